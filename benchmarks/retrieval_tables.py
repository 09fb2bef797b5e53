"""Documentation tables of the retrieval figures."""

from __future__ import annotations

from typing import Any

from interval import wilson

Rows = list[list[str]]
WAYS = ("BM25", "model", "words", "Satchel")
"""The ways to rank, as `retrieval.py` names them; without a model two of them are missing."""
VERDICTS = {True: "met", False: "**not met**", None: ""}
MOST_NAMED, MOST_LOST = 0.10, 0.05
"""What was asked of the verdict: wrongly named, and lost, at most."""
MOST_TIMES = 1.5
"""Times bare tantivy that a search may take."""
_CONTENDERS = {
    "bare": "bare tantivy",
    "legs": "Satchel's index alone",
    "ranking": "from the text to a ranking",
    "detector": "from the text to ten explained matches",
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
    rows = [
        [
            "set",
            "by",
            "still named, the right one taken out",
            "points lost",
            "still named, among 30 drawn",
            "points lost",
            "",
        ]
    ]
    for row in kept["sets"]:
        for way, got in row.get("no_skill", {}).items():
            shares = [got[key] for key in ("named", "lost", "small_named", "small_lost")]
            met = got["named"] <= MOST_NAMED and got["lost"] <= MOST_LOST
            by = "words" if way == "words" else "words and model"
            cells = [f"{100 * share:.1f} %" for share in shares]
            rows.append([f"`{row['set']}`", by, *cells, VERDICTS[met]])
    return rows


def end_to_end(kept: dict[str, Any]) -> Rows:
    """How many tasks have a right skill in what the model sees."""
    rows = [["what the model sees", "tasks served", "share", "95 %"]]
    for row in kept["rows"]:
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


def retrieval_ratios(kept: dict[str, Any]) -> Rows:
    """The same against bare tantivy, which has the goal."""
    sizes = sorted(map(int, kept["sizes"]))
    head = ["× bare tantivy, p50 / p99", *(f"{size:,}" for size in sizes)]
    rows = [[*head, f"goal ≤ {MOST_TIMES}"]]
    for kind in ("short", "long"):
        for name in ("legs", "ranking", "detector"):
            found = [kept["sizes"][str(size)]["query ms"][kind][name] for size in sizes]
            pairs = [(one["p50 / bare"], one["p99 / bare"]) for one in found]
            met = max(max(pair) for pair in pairs) <= MOST_TIMES
            cells = [f"{half:.2f} / {far:.2f}" for half, far in pairs]
            rows.append([f"{kind} goal, {_CONTENDERS[name]}", *cells, VERDICTS[met]])
    return rows


def retrieval_upkeep(kept: dict[str, Any]) -> Rows:
    """What building, one changed skill, disk and memory cost."""
    sizes = sorted(map(int, kept["sizes"]))
    rows = [["", *(f"{size:,}" for size in sizes)]]
    parts = (
        ("cutting all skills into terms, CPU", "build s", "cutting into terms", "cpu", "s"),
        ("building the index, CPU", "build s", "index", "cpu", "s"),
        ("bare tantivy building its own, CPU", "build s", "bare", "cpu", "s"),
        ("one skill changed, until a search knows, CPU", "update ms", "detector", "cpu", "ms"),
        ("one skill changed, the index alone, CPU", "update ms", "index", "cpu", "ms"),
        ("the same in bare tantivy, CPU", "update ms", "bare", "cpu", "ms"),
        ("on disk", "disk MB", "index", "", "MB"),
        ("resident: its own", "memory MB", "index", "own", "MB"),
        ("resident: mapped, the system may drop it", "memory MB", "index", "mapped", "MB"),
    )
    for title, part, name, key, unit in parts:
        cells: list[str] = []
        for size in sizes:
            got = kept["sizes"][str(size)][part].get(name)
            value = got if got is None or not key else got[key]
            cells.append("–" if value is None else f"{_ms(value)} {unit}")
        rows.append([title, *cells])
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
