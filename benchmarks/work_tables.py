"""Documentation tables of the goal engine figures."""

from __future__ import annotations

from typing import Any

Rows = list[list[str]]

ENGINES = {
    "local": "`local`",
    "sqlite": "`dbos`, SQLite",
    "postgres": "`dbos`, PostgreSQL",
    "temporal": "`temporal`",
    "dbos": "`dbos`, PostgreSQL",
    "dbos-sqlite": "`dbos`, SQLite",
    "dbos, two workers": "`dbos`, PostgreSQL, two workers",
}
SHAPES = {"fan-out": "1,000 steps at once", "many": "200 goals of 10 steps"}
TRIALS = {
    "kills": "one worker, killed and started again",
    "one of two": "two workers, one killed",
    "frozen": "two workers, one frozen for 9 s",
    "restarts": "its server restarted",
}


def goal_overhead(kept: dict[str, Any]) -> Rows:
    """Steps per second beside the bare engine, and long steps beside the ideal."""
    rows = [["", "bare engine", "satchel", "ratio", "lowest–highest", "goal"]]
    for line in kept["overhead"]:
        ratio = line["ratio"]
        rows.append([
            f"{ENGINES[line['engine']]}, {SHAPES[line['shape']]}",
            f"{line['bare']['value']:,.0f}/s", f"{line['ours']['value']:,.0f}/s",
            f"{ratio['value']:.2f}", f"{ratio['low']:.2f}–{ratio['high']:.2f}",
            f"≥ {line['goal']:g}{_missed(line)}",
        ])  # fmt: skip
    for line in kept["ideal"]:
        share = line["share"]
        rows.append([
            f"{ENGINES[line['engine']]}, steps of 2 s", "", "", f"{share['value']:.2f}",
            f"{share['low']:.2f}–{share['high']:.2f}", f"≥ {line['goal']:g}{_missed(line)}",
        ])  # fmt: skip
    return rows


def goal_crashes(kept: dict[str, Any]) -> Rows:
    """What was done to workers, and what harm it did."""
    rows = [["", "times", "goals", "lost", "done again", "swapped", "goes on after"]]
    for engine, trials in kept["engines"].items():
        for name, row in trials.items():
            back = row.get("back after seconds") or row.get("recovery seconds")
            after = f"{back['median']:.1f} s, at most {back['longest']:.1f}" if back else ""
            rows.append([
                f"{ENGINES[engine]}: {TRIALS[name]}", f"{row['times']}", f"{row['goals']:,}",
                f"{row['lost']}", f"{row['rerun'] + row['replaced']}", f"{row['swapped']}", after,
            ])  # fmt: skip
    return rows


def _missed(line: dict[str, Any]) -> str:
    return "" if line["verdict"] == "met" else ", **missed**"
