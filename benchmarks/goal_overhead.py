"""Overhead of goals compared with the bare engine.

    python benchmarks/goal_overhead.py --rounds 3 --out benchmarks/results/goal-overhead.json
    python benchmarks/goal_overhead.py --quick            # tiny sizes; the figures mean nothing
    python benchmarks/goal_overhead.py --only temporal    # also: sqlite, postgres, ideal

Empty work: one goal with 1,000 steps at once, and 200 goals of 10 steps (one, eight at once, one).
Bare and ours in turns, each in a process of its own, who begins changing each round. A ratio is
taken within a round; the median over the rounds is shown. Then steps of 2 seconds: what share of
the time that the longest path takes is left, on `local` and with two workers on PostgreSQL.

`bare` is as good as we can make it: the worker options of our own engine, results by event where
the engine would poll. `--scale` makes the sizes smaller, for a busy machine; the figures say so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from measure import machine, table
from sampling import Figure, ratios

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

SHAPES = {"fan-out": (1, 1_000), "many": (200, 10)}
"""Goals, and steps of each."""
GOAL = {"sqlite": 0.85, "postgres": 0.85, "temporal": 0.85}
IDEAL = {"local": 0.9, "dbos, two workers": 0.8}
SECONDS = 2.0
LEVELS = 3
"""Steps of ten that come after each other."""


class Pair(NamedTuple):
    """A bare engine, and goals on top of it."""

    bare: str
    ours: str
    more: dict[str, Any]
    """Further options, by contender."""


PAIRS = {
    "sqlite": Pair("bare dbos", "dbos", {}),
    "postgres": Pair("bare dbos", "dbos", {}),
    "temporal": Pair("bare temporal", "temporal", {"bare temporal": {"tuned": True}}),
}


class Places:
    """Servers and files, each begun when it is first wanted."""

    def __init__(self, stack: ExitStack, folder: str) -> None:
        self._stack = stack
        self._folder = folder
        self._postgres: Any = None
        self._temporal: Any = None
        self._files = 0

    def fresh(self, kind: str) -> str:
        """A new goal store for one measurement."""
        if kind == "sqlite":
            self._files += 1
            return f"sqlite:///{os.path.join(self._folder, f'{self._files}.db')}"
        if kind == "postgres":
            if self._postgres is None:
                from postgres import Postgres

                self._postgres = self._stack.enter_context(Postgres())
            return str(self._postgres.database())
        if kind == "temporal":
            if self._temporal is None:
                from temporal_server import TemporalServer

                server = TemporalServer(os.path.join(self._folder, "temporal"))
                self._temporal = self._stack.enter_context(server)
            return str(self._temporal.address)
        return ""


def child(name: str, **given: Any) -> subprocess.Popen[str]:
    """One contender in a process of its own."""
    command = [sys.executable, str(HERE / "goal_contenders.py"), name, json.dumps(given)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def measured(name: str, timeout: float = 900.0, **given: Any) -> dict[str, float]:
    """Run it to its end.

    Raises:
        RuntimeError: it failed, with the end of what it said.
    """
    said, wrong = child(name, **given).communicate(timeout=timeout)
    lines = said.strip().splitlines()
    if not lines:
        raise RuntimeError(f"{name}: {wrong[-2000:]}")
    return json.loads(lines[-1])


def overhead(kind: str, shape: str, size: tuple[int, int], places: Places, turn: int) -> Any:
    """Bare and ours once each, one after the other."""
    pair = PAIRS[kind]
    goals, steps = size
    row: dict[str, float] = {}
    names = [pair.bare, pair.ours]
    for name in names if turn % 2 == 0 else reversed(names):
        given = {"where": places.fresh(kind)}
        found = measured(name, goals=goals, steps=steps, **given, **pair.more.get(name, {}))
        who = "bare" if name == pair.bare else "ours"
        row[who] = goals * steps / found["wall"]
        row[f"{who} cpu ms"] = found["cpu"] * 1000 / goals / steps
    print(
        f"{kind:9} {shape:8} bare {row['bare']:9,.0f}/s  ours {row['ours']:9,.0f}/s  "
        f"{row['ours'] / row['bare']:.2f}",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    return row


def ideal_on_local(goals: int) -> float:
    """The longest path's time, as a share of what it took."""
    found = measured("local", goals=goals, steps=10, seconds=SECONDS, repeats=1, warm=False)
    return SECONDS * LEVELS / found["wall"]


def ideal_with_two_workers(goals: int, places: Places) -> float:
    """The same on PostgreSQL: two processes work, a third one submits and waits."""
    where = places.fresh("postgres")
    workers = [child("dbos worker", where=where, seconds=SECONDS) for _ in range(2)]
    try:
        for worker in workers:
            if worker.stdout is None or worker.stdout.readline() != "ready\n":
                worker.kill()
                raise RuntimeError(f"a worker does not start: {worker.communicate()[1][-2000:]}")
        found = measured("dbos client", goals=goals, steps=10, where=where, warm=False)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    return SECONDS * LEVELS / found["wall"]


def verdict(value: float, goal: float) -> str:
    """Whether it is met."""
    return "met" if value >= goal else "MISSED"


def shown(results: dict[str, Any]) -> str:
    """The table."""
    rows = [["engine, shape", "bare /s", "ours /s", "ratio", "spread", "cpu ms/step", "goal", ""]]
    for line in results["overhead"]:
        low, high = line["ratio"]["low"], line["ratio"]["high"]
        rows.append([
            f"{line['engine']}, {line['shape']}", f"{line['bare']['value']:,.0f}",
            f"{line['ours']['value']:,.0f}", f"{line['ratio']['value']:.2f}",
            f"{low:.2f}–{high:.2f}", f"{line['bare cpu']:.2f} / {line['ours cpu']:.2f}",
            f"{line['goal']:.2f}", line["verdict"],
        ])  # fmt: skip
    for line in results["ideal"]:
        share = line["share"]
        rows.append([
            f"{line['engine']}, 2 s steps", "", "", f"{share['value']:.2f}",
            f"{share['low']:.2f}–{share['high']:.2f}", "", f"{line['goal']:.2f}",
            line["verdict"],
        ])  # fmt: skip
    return table(rows)


def summed(rounds: dict[tuple[str, str], list[Any]], shares: dict[str, list[float]]) -> Any:
    """Medians and verdicts."""
    lines: list[dict[str, Any]] = []
    for (kind, shape), rows in rounds.items():
        ratio = ratios(rows, "ours", "bare")
        goal = GOAL[kind]
        lines.append({
            "engine": kind, "shape": shape, "goal": goal, "ratio": ratio._asdict(),
            "bare": Figure.of(row["bare"] for row in rows)._asdict(),
            "ours": Figure.of(row["ours"] for row in rows)._asdict(),
            "bare cpu": Figure.of(row["bare cpu ms"] for row in rows).value,
            "ours cpu": Figure.of(row["ours cpu ms"] for row in rows).value,
            "verdict": verdict(ratio.value, goal), "rounds": rows,
        })  # fmt: skip
    ideal: list[dict[str, Any]] = []
    for name, values in shares.items():
        share = Figure.of(values)
        ideal.append({
            "engine": name, "share": share._asdict(), "goal": IDEAL[name],
            "verdict": verdict(share.value, IDEAL[name]),
        })  # fmt: skip
    return {"overhead": lines, "ideal": ideal}


def scaled(scale: float) -> dict[str, tuple[int, int]]:
    """The shapes, smaller: fewer steps at once, and fewer goals."""
    (one, fan), (many, steps) = SHAPES["fan-out"], SHAPES["many"]
    return {
        "fan-out": (one, max(20, round(fan * scale))),
        "many": (max(2, round(many * scale)), steps),
    }


def main() -> None:
    """Measure in rounds, print the table, write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join([*PAIRS, "ideal"]))
    parser.add_argument("--quick", action="store_true", help="tiny sizes; figures mean nothing")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes; 1 is the goal's")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    parser.add_argument("--gate", action="store_true", help="exit with 1 when a goal is missed")
    options = parser.parse_args()
    wanted = options.only.split(",")
    sizes = {"fan-out": (1, 30), "many": (4, 10)} if options.quick else scaled(options.scale)
    before = machine()
    began = time.time()
    rounds: dict[tuple[str, str], list[Any]] = {}
    shares: dict[str, list[float]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="satchel-overhead-"))
        places = Places(stack, folder)
        for turn in range(1 if options.quick else options.rounds):
            for kind in (kind for kind in PAIRS if kind in wanted):
                for shape, size in sizes.items():
                    row = overhead(kind, shape, size, places, turn)
                    rounds.setdefault((kind, shape), []).append(row)
            if "ideal" in wanted:
                goals = 2 if options.quick else 20
                shares.setdefault("local", []).append(ideal_on_local(goals))
                with_two = ideal_with_two_workers(goals, places)
                shares.setdefault("dbos, two workers", []).append(with_two)
    results: dict[str, Any] = {
        "machine": before, "load after": round(os.getloadavg()[0], 2),
        "seconds": round(time.time() - began), "sizes": sizes, **summed(rounds, shares),
    }  # fmt: skip
    print(shown(results))
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    verdicts = [line["verdict"] for part in ("overhead", "ideal") for line in results[part]]
    if options.gate and "MISSED" in verdicts:
        sys.exit(1)


if __name__ == "__main__":
    main()
