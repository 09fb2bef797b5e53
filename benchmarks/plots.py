"""What do the figures look like? Draws the kept results for the documentation.

    python benchmarks/plots.py

Reads `benchmarks/results/*.json` and writes `docs/assets/bench-*.svg`. The same figures give the
same bytes. Grey text on nothing: the pictures are read on light and on dark pages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot  # noqa: ICN001 - `plt` is the untyped one

plt: Any = pyplot  # its types are only half known

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
ASSETS = HERE.parent / "docs" / "assets"

GREY = "#808890"
"""Readable on white and on near-black."""
OURS = "#d9822b"
FLOOR = "#5b8fb9"
COLOURS = (OURS, FLOOR, "#6aa84f", "#a678b4", "#c0504d", GREY)

STYLE: dict[str, Any] = {
    "svg.hashsalt": "satchel",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "savefig.transparent": True,
}

FLOORS = ("python limit", "python limit, recursive", "C loader", "C loader, recursive")
LINES = (
    ("cold", "first look"),
    ("warm", "first look of the next process"),
    ("refresh", "another look"),
    ("search", "search"),
    ("catalogue", "catalogue"),
    ("load", "load by name"),
)


def _seconds(value: float, _place: object = None) -> str:
    """`0.001` as `1 ms`: an axis that can be read aloud."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:g} {unit}"
    return f"{value * 1e6:g} µs"


def _count(value: float, _place: object = None) -> str:
    return f"{value:,.0f}"


def draw_discovery(figures: dict[str, Any]) -> Any:
    """Bars on a logarithmic axis: the floor, Satchel, everybody else."""
    rows = [
        row
        for row in figures["rows"]
        if "cpu" in row and (row["name"] in FLOORS or row["right"] == row["total"])
    ]
    rows.sort(key=lambda row: -row["cpu"])
    names = [f"{row['name']} {row['version']}".strip() for row in rows]
    values = [row["cpu"] for row in rows]
    colours = [
        OURS if row["name"] == "satchel" else FLOOR if row["name"] in FLOORS else GREY
        for row in rows
    ]
    figure, axes = plt.subplots(figsize=(8, 0.36 * len(rows) + 1))
    bars = axes.barh(names, values, color=colours, height=0.7)
    axes.set_xscale("log")
    axes.bar_label(bars, [f"{value:.2g} s" for value in values], padding=4, color=GREY)
    axes.set_xlabel(f"CPU time to find {figures['count']:,} skills (logarithmic)")
    axes.xaxis.set_major_formatter(_seconds)
    axes.margins(x=0.15)
    axes.tick_params(axis="y", length=0)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        if row["name"] == "satchel":
            label.set_color(OURS)
            label.set_fontweight("bold")
    return figure


def draw_growth(figures: dict[str, Any]) -> Any:
    """One line per noun, both axes logarithmic: a flat line does not grow, a diagonal one does."""
    sizes = sorted(map(int, figures["sizes"]))
    figure, axes = plt.subplots(figsize=(8, 5))
    for (key, label), colour in zip(LINES, COLOURS, strict=True):
        scale = 1e-6 if key.startswith("load") else 1e-3
        values = [figures["sizes"][str(size)][key]["value"] * scale for size in sizes]
        axes.plot(sizes, values, marker="o", markersize=4, color=colour, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("skills")
    axes.set_ylabel("CPU time")
    axes.xaxis.set_major_formatter(_count)
    axes.yaxis.set_major_formatter(_seconds)
    axes.grid(visible=True, color=GREY, alpha=0.2)
    axes.legend(labelcolor=GREY)
    return figure


def main() -> None:
    """Draw both pictures."""
    ASSETS.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        for name, draw in (("discovery", draw_discovery), ("growth", draw_growth)):
            figures = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
            picture = draw(figures)
            out = ASSETS / f"bench-{name}.svg"
            picture.savefig(out, bbox_inches="tight", metadata={"Date": None})
            plt.close(picture)
            print(out.relative_to(HERE.parent))


if __name__ == "__main__":
    main()
