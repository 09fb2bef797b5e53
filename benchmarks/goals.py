"""Checks all goals for speed and size in one run and one table.

    python benchmarks/goals.py --workdir DIR --out goals.json
    python benchmarks/goals.py --quick        # tiny sizes: does every row still print?

CPU time, measured in turns; ratios are taken within a round, and the median over the rounds is
shown with the lowest and the highest. A goal that cannot be measured here says why. `--only` runs
some sections.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora import REAL
from goal_rows import Plan, printed
from goal_sections import SECTIONS
from measure import machine

if TYPE_CHECKING:
    from goal_rows import Row

NEAREST = "strands-agents,google-adk,deepagents,openskills list"
"""The fastest correct peers; `discovery.py` measures all of them."""


def _plan(options: argparse.Namespace) -> Plan:
    workdir = Path(options.workdir or tempfile.mkdtemp(prefix="satchel-goals-")).resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    if options.quick:
        sizes, middle, sections = (20, 60), 60, (10, 20, 60)
        rounds, starts, peer = 2, 2, "none"
    else:
        sizes, middle, sections = (10_000, 100_000), 10_000, (100, 1_000, 10_000, 69_568)
        rounds, starts, peer = options.rounds, options.starts, options.peers
    return Plan(
        workdir, options.source, sizes, middle, sections, rounds, starts, peer, options.wheel,
        options.quick,
    )  # fmt: skip


def main() -> None:
    """Measure section by section, print the table, write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes; the figures mean nothing")
    parser.add_argument("--only", default="", help=", ".join(SECTIONS))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--starts", type=int, default=25, help="rounds of whole programs")
    parser.add_argument("--peers", default=NEAREST, help="none, all, or names between commas")
    parser.add_argument("--wheel", type=Path, help="install this one instead of building")
    parser.add_argument("--source", type=Path, default=REAL, help="folder of the real corpus")
    parser.add_argument("--workdir", type=Path, help="keeps environments and corpora for next time")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    parser.add_argument("--gate", action="store_true", help="exit with 1 when a goal is missed")
    options = parser.parse_args()
    plan = _plan(options)
    wanted = [name for name in options.only.split(",") if name] or list(SECTIONS)
    rows: list[Row] = []
    result: dict[str, Any] = {"machine": machine(), "sections": {}}
    for name in wanted:
        load_before = os.getloadavg()[0]
        found = SECTIONS[name](plan)
        if plan.quick:  # a handful of skills says nothing about speed
            found = [row._replace(met=None) for row in found]
        rows += found
        result["sections"][name] = {
            "load": round(load_before, 2),
            "rows": [
                {**row._asdict(), "figure": row.figure and row.figure._asdict()} for row in found
            ],
        }
        if options.out:
            options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(printed(rows))
    notes = [f"{row.what}: {row.note}" for row in rows if row.note]
    print("", *notes, sep="\n")
    missed = sum(row.met is False for row in rows)
    met = sum(row.met is True for row in rows)
    print("\nquick: no verdicts" if plan.quick else f"\n{met} met, {missed} not met")
    if options.gate and missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
