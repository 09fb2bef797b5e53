"""Draws the kept results for the documentation.

    python benchmarks/plots.py
    python benchmarks/plots.py --check    # fail when a plot shows other figures than the results

Reads `benchmarks/results/*.json` and writes `docs/assets/bench-*.svg`. The same figures give the
same bytes. Grey text on nothing: the pictures are read on light and on dark pages.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot  # noqa: ICN001 - `plt` is the untyped one

if TYPE_CHECKING:
    from collections.abc import Callable

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

WAYS = {"BM25": GREY, "model": FLOOR, "words": "#e3b587", "Satchel": OURS}
"""The ways to rank, as `retrieval.py` names them."""
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


def draw_retrieval_speed(figures: dict[str, Any]) -> Any:
    """Median and 99th percentile of a search: two panels, one for each length of goal."""
    sizes = sorted(map(int, figures["sizes"]))
    names = {"bare": "bare tantivy", "legs": "index", "detector": "detector"}
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True)
    for axes, kind in zip(panels, ("short", "long"), strict=True):
        for (name, label), colour in zip(names.items(), (FLOOR, GREY, OURS), strict=True):
            rows = [figures["sizes"][str(size)]["query ms"][kind].get(name) for size in sizes]
            known = [(size, row) for size, row in zip(sizes, rows, strict=True) if row]
            places = [size for size, _ in known]
            for key, style in (("p50", "-"), ("p99", ":")):
                values = [row[key] * 1e-3 for _, row in known]
                shown = label if key == "p50" else None
                axes.plot(
                    places, values, style, marker="o", markersize=3, color=colour, label=shown
                )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"{kind} goals", color=GREY, fontsize=11)
        axes.set_xlabel("skills")
        axes.xaxis.set_major_formatter(_count)
        axes.yaxis.set_major_formatter(_seconds)
        axes.grid(visible=True, color=GREY, alpha=0.2)
    panels[0].set_ylabel("CPU time of a search (dotted: 99 of 100 are faster)")
    panels[0].legend(labelcolor=GREY)
    return figure


def draw_end_to_end(figures: dict[str, Any]) -> Any:
    """One bar per way to fill the prompt: tasks with a right skill, with 95 % interval."""
    rows = figures["rows"][::-1]
    shares = [100 * row["hits"] / row["of"] for row in rows]
    below = [
        max(0.0, share - 100 * row["interval"][0]) for share, row in zip(shares, rows, strict=True)
    ]
    above = [
        max(0.0, 100 * row["interval"][1] - share) for share, row in zip(shares, rows, strict=True)
    ]
    ours = [row["name"].startswith(("satchel, list and", "the same", "its first")) for row in rows]
    figure, axes = plt.subplots(figsize=(8, 0.36 * len(rows) + 1))
    axes.barh(
        [row["name"] for row in rows],
        shares,
        xerr=[below, above],
        color=[OURS if own else GREY for own in ours],
        error_kw={"ecolor": FLOOR, "capsize": 2, "linewidth": 1},
        height=0.7,
    )
    for at, (share, row) in enumerate(zip(shares, rows, strict=True)):
        axes.text(100 * row["interval"][1] + 1.5, at, f"{share:.0f} %", va="center")
    axes.set_xlim(0, 108)
    axes.set_xlabel(
        f"% of {figures['tasks']} tasks with a right skill in sight: "
        f"{figures['skills']:,} skills, {figures['budget']:,} characters"
    )
    axes.tick_params(axis="y", length=0)
    return figure


def draw_retrieval(figures: dict[str, Any]) -> Any:
    """Hit@1 of every way on every set, side by side, and the goal that was set for each."""
    sets = figures["sets"]
    ways = [way for way in WAYS if any(way in row for row in sets)]
    figure, axes = plt.subplots(figsize=(8, 4))
    width = 0.8 / len(ways)
    for place, way in enumerate(ways):
        there = [(at, 100 * row[way]["hit"]) for at, row in enumerate(sets) if way in row]
        left = [at - 0.4 + (place + 0.5) * width for at, _ in there]
        hits = [hit for _, hit in there]
        bars = axes.bar(left, hits, width * 0.92, color=WAYS[way], label=way)
        axes.bar_label(bars, [f"{hit:.0f}" for hit in hits], fontsize=8, color=GREY)
    goals = [(at, row["goal"][0]) for at, row in enumerate(sets) if row.get("goal")]
    if goals:
        left = [at - 0.45 for at, _ in goals]
        right = [at + 0.45 for at, _ in goals]
        axes.hlines([goal for _, goal in goals], left, right, colors=COLOURS[4], label="goal")
    axes.set_xticks(range(len(sets)), [f"{row['set']}\n{row['skills']:,} skills" for row in sets])
    axes.set_ylabel("Hit@1, %")
    axes.set_ylim(0, 100)
    axes.tick_params(axis="x", length=0, labelsize=9)
    axes.legend(labelcolor=GREY, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.15))
    return figure


def draw_prompt_cache(figures: dict[str, Any]) -> Any:
    """One line for each agent: the input that the provider had to read anew, summed up."""
    agents = figures["agents"]["anthropic"]
    shown = {
        "satchel": OURS,
        "list in each request, one order": FLOOR,
        "the same, loaded skills in the system prompt": GREY,
    }
    names = ("satchel", "list of skills written anew", "and most used first, loaded ones in it")
    figure, axes = plt.subplots(figsize=(8, 4))
    for (name, colour), label in zip(shown.items(), names, strict=True):
        anew = {0: 0}
        for turn, total, read in agents[name]["by request"]:
            anew[turn] = anew.get(turn, anew[turn - 1]) + total - read
        axes.step(list(anew), list(anew.values()), where="post", color=colour, label=label)
    axes.set_xlabel(f"turn (the library of {figures['skills']} skills changes five times)")
    axes.set_ylabel("input tokens so far, not from the cache")
    axes.yaxis.set_major_formatter(_count)
    axes.set_xlim(0, figures["turns"])
    axes.set_ylim(0)
    axes.grid(visible=True, axis="y", color=GREY, alpha=0.2)
    axes.legend(labelcolor=GREY)
    return figure


def draw_goal_overhead(figures: dict[str, Any]) -> Any:
    """Steps per second by those of the bare engine, each round within its own: 1 is no cost."""
    names = {
        "sqlite": "dbos, SQLite",
        "postgres": "dbos, PostgreSQL",
        "temporal": "temporal",
    }
    shapes = {"fan-out": "1,000 steps at once", "many": "200 goals of 10 steps"}
    rows = [row for row in figures["overhead"] if row["shape"] in shapes][::-1]
    figure, axes = plt.subplots(figsize=(8, 0.42 * len(rows) + 1))
    for at, row in enumerate(rows):
        ratio, met = row["ratio"], row["verdict"] == "met"
        axes.barh(at, ratio["value"], color=OURS if met else GREY, height=0.62)
        axes.plot([ratio["low"], ratio["high"]], [at, at], color=FLOOR, linewidth=2)
        axes.plot([row["goal"]] * 2, [at - 0.4, at + 0.4], color=COLOURS[4], linewidth=2)
        words = f"{ratio['value']:.2f} × of {row['bare']['value']:,.0f}/s"
        axes.text(max(ratio["high"], row["goal"]) + 0.02, at, words, va="center")
    axes.set_yticks(
        range(len(rows)), [f"{names[row['engine']]}, {shapes[row['shape']]}" for row in rows]
    )
    axes.axvline(1, color=GREY, linewidth=1, linestyle=":")
    axes.set_xlim(0, 1.7)
    axes.set_xlabel("steps per second, by those of the bare engine (red: the goal)")
    axes.tick_params(axis="y", length=0)
    return figure


def draw_scanner(figures: dict[str, Any]) -> Any:
    """What each scanner blocks of the malicious and of the benign, with 95 % intervals."""
    sets = ("MalSkills", "skillfortify", "skill-inject")
    looks = {"satchel": OURS, "cisco": FLOOR}
    names = {"satchel": "Satchel", "cisco": "Cisco skill-scanner"}
    kinds = (("recall", "malicious"), ("false_positives", "benign"))
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
    for axes, (key, title) in zip(panels, kinds, strict=True):
        for place, (scanner, colour) in enumerate(looks.items()):
            for at, name in enumerate(sets[::-1]):
                (row,) = (
                    row
                    for row in figures["rows"]
                    if (row["scanner"], row["set"], row["part"]) == (scanner, name, "all")
                )
                share = 100 * row[key]["blocked"] / row[key]["of"]
                y = at + 0.2 - 0.4 * place
                axes.barh(y, share, color=colour, height=0.36, label=None if at else names[scanner])
                low, high = (100 * bound for bound in row[key]["interval"])
                axes.plot([low, high], [y, y], color=GREY, linewidth=1.5)
                axes.text(max(high, share) + 2, y, f"{share:.0f} %", va="center", fontsize=9)
        axes.set_title(f"% blocked of the {title}", color=GREY, fontsize=11)
        axes.set_xlim(0, 112)
        axes.set_yticks(range(len(sets)), sets[::-1])
        axes.tick_params(axis="y", length=0)
    panels[1].legend(labelcolor=GREY, loc="lower right")
    return figure


PICTURES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "discovery": draw_discovery,
    "growth": draw_growth,
    "retrieval": draw_retrieval,
    "retrieval-speed": draw_retrieval_speed,
    "end_to_end": draw_end_to_end,
    "prompt-cache": draw_prompt_cache,
    "goal-overhead": draw_goal_overhead,
    "scanner": draw_scanner,
}
"""The kept figures, and who draws them."""


def main(arguments: list[str]) -> int:
    """Draw every picture that has figures, or with `--check` compare them."""
    check = arguments == ["--check"]
    stale = 0
    ASSETS.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        for name, draw in PICTURES.items():
            source = RESULTS / f"{name}.json"
            if not source.exists():
                print(f"left out: there is no {source.name} yet", file=sys.stderr)
                continue
            picture = draw(json.loads(source.read_text("utf-8")))
            out = ASSETS / f"bench-{name.replace('_', '-')}.svg"
            drawn = io.BytesIO()
            picture.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None})
            plt.close(picture)
            shown = out.relative_to(HERE.parent)
            if not check:
                out.write_bytes(drawn.getvalue())
                print(shown)
            elif not out.exists() or out.read_bytes() != drawn.getvalue():
                stale += 1
                print(f"error: `{shown}` does not show the kept results", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
