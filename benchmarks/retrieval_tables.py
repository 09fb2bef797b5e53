"""Documentation tables of the retrieval figures."""

from __future__ import annotations

from typing import Any

from interval import wilson

Rows = list[list[str]]
WAYS = ("BM25", "model", "words", "Satchel")
"""The ways to rank, as `retrieval.py` names them; without a model two of them are missing."""
VERDICTS = {True: "met", False: "**not met**", None: ""}
_CONTENDERS = {
    "bare": "bare tantivy",
    "legs": "Satchel's index alone",
    "detector": "Satchel, with reasons",
    "memory": "plain Python",
}


def retrieval(kept: dict[str, Any]) -> Rows:
    """Hit@1 and Recall@10 of every way on every set."""
    ways = [way for way in WAYS if any(way in row for row in kept["sets"])]
    rows = [["set", "skills", "requests", *ways, "95 % of Hit@1", "goal", ""]]
    for row in kept["sets"]:
        best = row.get("Satchel") or row["words"]
        low, high = wilson(best["hit"] * row["requests"], row["requests"])
        goal = row.get("goal")
        rows.append([
            f"`{row['set']}`",
            f"{row['skills']:,}",
            f"{row['requests']:,}",
            *(_pair(row.get(way)) for way in ways),
            f"{100 * low:.1f}–{100 * high:.1f}",
            f"≥ {goal[0]} / {goal[1]}" if goal else "",
            VERDICTS[_reaches(best, goal)],
        ])  # fmt: skip
    return rows


def no_skill(kept: dict[str, Any]) -> Rows:
    """What the verdict "no skill fits" does where it should, and what it costs where not."""
    ways = {"words": "words", "Satchel": "with model"}
    rows = [["named / lost, %", *ways.values(), *(f"{name}, of 30" for name in ways.values())]]
    for row in kept["sets"]:
        found = row.get("no_skill", {})
        cells = [
            f"{100 * found[way][before + 'named']:.0f} / {100 * found[way][before + 'lost']:.0f}"
            if way in found
            else ""
            for before in ("", "small_")
            for way in ways
        ]
        if found:
            rows.append([f"`{row['set']}`", *cells])
    return rows


def end_to_end(kept: dict[str, Any]) -> Rows:
    """How many tasks have a right skill in what the model sees."""
    rows = [["what the model sees", "tasks served", "share", "95 %"]]
    for row in kept["rows"]:
        if "random histories" in row["name"] or "evenly" in row["name"]:
            continue
        low, high = row["interval"]
        hits = f"{row['hits']:.1f}".removesuffix(".0")
        if row["spread"]:
            hits += f" ({row['spread'][0]} to {row['spread'][1]})"
        name = f"**{row['name']}**" if row["name"].startswith("satchel, list and") else row["name"]
        share = f"{100 * row['hits'] / row['of']:.1f} %"
        between = f"{100 * low:.1f}–{100 * high:.1f}"
        rows.append([name, f"{hits} of {row['of']}", share, between])
    return rows


def retrieval_speed(kept: dict[str, Any]) -> Rows:
    """Median and 99th percentile of a search at every size, short goals and long ones."""
    sizes = sorted(map(int, kept["sizes"]))
    rows = [["CPU ms, p50 / p99", *(f"{size:,}" for size in sizes)]]
    for kind in ("short", "long"):
        for name, title in _CONTENDERS.items():
            asked = [kept["sizes"][str(size)]["query ms"][kind].get(name) for size in sizes]
            if any(asked):
                cells = [f"{_ms(one['p50'])} / {_ms(one['p99'])}" if one else "–" for one in asked]
                rows.append([f"{kind} goal, {title}", *cells])
    return rows


def _pair(figures: dict[str, float] | None) -> str:
    return "–" if figures is None else f"{100 * figures['hit']:.1f} / {100 * figures['recall']:.1f}"


def _reaches(figures: dict[str, float], goal: list[float] | None) -> bool | None:
    """Whether both goals are reached, to the tenth that is shown; None without goals."""
    if not goal:
        return None
    found = (round(100 * figures["hit"], 1), round(100 * figures["recall"], 1))
    return found[0] >= goal[0] and found[1] >= goal[1]


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
