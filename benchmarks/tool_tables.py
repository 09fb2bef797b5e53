"""Documentation tables of the tool skill figures."""

from __future__ import annotations

from typing import Any

Rows = list[list[str]]
GOALS = (
    ("Python, cold, / `python -I`", "cold", "python cold / bare", 1.25, "×"),
    ("Node, cold, / `node`", "cold", "node cold / bare", 1.25, "×"),
    ("Go, cold, more than bare", "cold", "go cold - bare", 8.0, "ms"),
    ("binary, cold, more than bare", "cold", "binary cold - bare", 8.0, "ms"),
)
"""What is asked for: title, part, figure, most, unit."""


def tools(kept: dict[str, Any]) -> Rows:
    """Every goal with its figure."""
    rows = [["", "goal", "median", "lowest–highest", ""]]
    for title, part, name, most, unit in GOALS:
        if part not in kept:
            continue
        figure = kept[part]["against"][name]
        met = "met" if figure["value"] <= most else "**not met**"
        spread = f"{_said(figure['low'], unit)}–{_said(figure['high'], unit)}"
        rows.append([title, f"≤ {_said(most, unit)}", _said(figure["value"], unit), spread, met])
    return rows


def part(kept: dict[str, Any], name: str) -> Rows:
    """One part as it is printed."""
    rows = [[name, "median", "low", "high"]]
    for title, figure in kept[name]["ms"].items():
        rows.append([title, *(_time(figure[key]) for key in ("value", "low", "high"))])
    for title, figure in kept[name]["against"].items():
        ratio = " / " in title
        rows.append(
            [title, *(f"{figure[key]:.2f}" if ratio else _time(figure[key])
                      for key in ("value", "low", "high"))]
        )  # fmt: skip
    return rows


def tool_crowd(kept: dict[str, Any]) -> Rows:
    """200 calls at once."""
    both = kept["crowd"]
    rows = [["", "nobody hangs", "one skill hangs"]]
    for title, key, unit in (
        ("calls", "calls", ""),
        ("skills", "skills", ""),
        ("calls that run at once", "slots", ""),
        ("answers mixed up", "wrong", ""),
        ("median of the healthy", "median_ms", "ms"),
        ("p95 of the healthy", "p95_ms", "ms"),
        ("slowest first answer of a healthy skill", "slowest_first_answer_ms", "ms"),
        ("most processes, minders and bwrap counted", "most_processes", ""),
        ("timed out", "hung", ""),
        ("crashed", "crashed", ""),
    ):
        rows.append([title, *(f"{both[side][key]:,.0f} {unit}".strip() for side in both)])
    return rows


def _said(value: float, unit: str) -> str:
    return f"{value:.1f} ms" if unit == "ms" else f"{value:.2f}"


def _time(milliseconds: float) -> str:
    if abs(milliseconds) < 1:
        return f"{milliseconds * 1000:.0f} µs"
    return f"{milliseconds:.1f} ms"
