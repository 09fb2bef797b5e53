"""Kill, freeze and cut off the workers of goals, and look whether anything was harmed.

The judge is outside: it submits goals, sends signals, and knows what workers did by the lines that
they append to a file. A goal is lost when it does not end as `done`. A recorded step was done again
when a try of it began after the one whose output is recorded had ended. An output is swapped when
it is not of its step, or when a step was given another's.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from chaos.goal_worker import POISON, SLOW, USAGE, engine
from satchel.goals.model import Goal, Plan, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HERE = os.path.dirname(os.path.abspath(__file__))
NEEDS: dict[str, tuple[str, ...]] = {
    "s0": (), "s1": ("s0",), "s2": ("s0",), "s3": ("s0",), "s4": ("s1", "s2"), "s5": ("s3",),
    "s6": ("s4", "s5"), "s7": ("s6",), "s8": ("s6",), "s9": ("s7", "s8"),
}  # fmt: skip
"""Ten steps: a fan-out, a fan-in, and a race in between."""
PLAN = Plan(
    "Survive",
    tuple(
        Step(name, prompt=" ".join(["do", *(f"{one}={{{{steps.{one}.output}}}}" for one in needs)]))
        for name, needs in NEEDS.items()
    ),
)
PATIENCE = 60.0
"""Seconds in which something must go on after a kill."""


class Line(NamedTuple):
    """What a worker did."""

    at: float
    what: str
    goal: str
    step: str
    run: str

    @property
    def process(self) -> int:
        return int(self.run.partition("-")[0])


class Verdict(NamedTuple):
    """The result."""

    goals: int
    steps: int
    lost: int
    rerun: int
    """Tries of a step that began after its output was recorded."""
    replaced: int
    """Outputs that were recorded at a kill, and are others at the end."""
    swapped: int
    tries: int
    """Of all steps together; what is above their number was under way at a kill."""
    uncalled: int
    """Attempts of the reports whose worker died between the record and the call of the runner."""
    miscounted: int
    """Steps whose report has fewer attempts than the runner had tries, or another usage than the
    try that it records."""
    unrecorded: int
    """Tries that ended, but whose worker died before the record; their usage is in no report."""
    recoveries: tuple[float, ...]
    """Seconds from a kill until a goal that was with the killed went on."""

    @property
    def unharmed(self) -> bool:
        return not (self.lost or self.rerun or self.replaced or self.swapped or self.miscounted)


class Forks:
    """The process that forks workers: it has imported everything, so a kill hits the work."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        source = os.path.join(os.path.dirname(os.path.dirname(HERE)), "src")
        path = os.pathsep.join([source, os.path.dirname(HERE)])
        self._process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "goal_worker.py"), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def start(self, address: str, folder: str, at_once: int, skills: dict[str, str] | None) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([address, folder, at_once, skills]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()


class Workers:
    """Workers on the same goals."""

    def __init__(self, forks: Forks, address: str, folder: str, at_once: int = 8) -> None:
        self.kind = forks.kind
        self.address = address
        self.folder = folder
        self.steps = os.path.join(folder, "steps")
        self.alive: list[int] = []
        self.killed: list[tuple[float, int]] = []
        self._forks = forks
        self._at_once = at_once

    def start(self, skills: dict[str, str] | None = None) -> int:
        number = self._forks.start(self.address, self.folder, self._at_once, skills)
        self.alive.append(number)
        return number

    def kill(self, number: int) -> None:
        self.killed.append((time.time(), number))
        os.kill(number, signal.SIGKILL)
        self.alive.remove(number)

    def lines(self) -> list[Line]:
        try:
            with open(self.steps, encoding="ascii") as file:
                found = [line.split() for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []
        return [Line(float(at), what, goal, step, run) for at, what, goal, step, run in found]

    def at_work(self, number: int) -> bool:
        """Whether a worker has begun a step."""
        try:
            with open(self.steps, encoding="ascii") as file:
                return f" {number}-" in file.read()
        except FileNotFoundError:
            return False

    def close(self) -> None:
        for number in self.alive:
            os.kill(number, signal.SIGCONT)
            os.kill(number, signal.SIGKILL)
        self.alive.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Trial:
    """Goals that run while their workers are ill-treated."""

    def __init__(self, workers: Workers, goals: int) -> None:
        self.workers = workers
        self.batch = goals
        self.names: list[str] = []
        self.recorded: dict[tuple[str, str], str] = {}
        """What a look at a random moment found recorded."""
        self.client: Any = None

    async def __aenter__(self) -> Self:
        self.client = engine(self.workers.kind, self.workers.address, self.workers.folder)
        await self.client.__aenter__()
        await self.submit()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.client.__aexit__(*exc)

    async def submit(self) -> None:
        """Another batch."""
        names = [f"g{len(self.names) + number}" for number in range(self.batch)]
        for part in range(0, len(names), 8):
            await asyncio.gather(
                *(self.client.submit(Goal(name, PLAN)) for name in names[part : part + 8])
            )
        self.names += names

    def ended(self) -> set[str]:
        """Goals whose last step was done at least once."""
        return {
            line.goal for line in self.workers.lines() if (line.what, line.step) == ("end", "s9")
        }

    async def left(self) -> None:
        """Submit more when there is not enough to do."""
        if len(self.names) - len(await asyncio.to_thread(self.ended)) < 12:
            await self.submit()

    async def look(self, count: int = 3) -> None:
        """Remember what some goals have recorded now."""
        for name in random.sample(self.names, min(count, len(self.names))):
            report = await self.client.report(name)
            for step, result in report.steps.items():
                if result.state == "done":
                    self.recorded.setdefault((name, step), result.output)

    async def until(self, ready: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Wait for something, with enough to do meanwhile."""
        end = time.monotonic() + patience
        while not await asyncio.to_thread(ready):
            await self.left()
            if time.monotonic() > end:
                raise AssertionError("nothing goes on any more")
            await asyncio.sleep(0.02)

    async def finish(self, patience: float = 300.0) -> Verdict:
        """Let the workers finish, and judge."""
        end = time.monotonic() + patience
        results: dict[str, Any] = {}
        for name in self.names:
            results[name] = await self.client.wait(name, max(0.1, end - time.monotonic()))
            while results[name].state == "queued" and time.monotonic() < end:
                await asyncio.sleep(0.05)  # `local` does not wait for a process
                results[name] = await self.client.wait(name, max(0.1, end - time.monotonic()))
        return self.judge(results)

    def judge(self, reports: dict[str, Any]) -> Verdict:
        lines = self.workers.lines()
        ends = {(line.goal, line.step, line.run): line.at for line in lines if line.what == "end"}
        lost = swapped = rerun = replaced = 0
        kept: dict[tuple[str, str], str] = {}
        tries = Counter((line.goal, line.step) for line in lines if line.what == "begin")
        uncalled = miscounted = 0
        for name, report in reports.items():
            lost += report.state != "done"
            for step, result in report.steps.items():
                whose, _, run = str(result.output).partition("#")
                swapped += result.state == "done" and whose != f"{name}/{step}"
                kept[name, step] = run
                more = result.attempts - tries[name, step]
                uncalled += max(0, more)
                miscounted += more < 0 or result.usage != USAGE
        for line in lines:
            swapped += line.what == "swapped"
            recorded = kept.get((line.goal, line.step))
            if line.what == "begin" and recorded and line.run != recorded:
                ended = ends.get((line.goal, line.step, recorded), float("inf"))
                rerun += line.at > ended
        for (name, step), output in self.recorded.items():
            replaced += output.partition("#")[2] != kept.get((name, step))
        return Verdict(
            len(reports),
            len(kept),
            lost,
            rerun,
            replaced,
            swapped,
            sum(tries.values()),
            uncalled,
            miscounted,
            len(ends) - len(kept),
            tuple(recoveries(lines, self.workers.killed)),
        )


def recoveries(lines: Iterable[Line], kills: Iterable[tuple[float, int]]) -> list[float]:
    """Seconds until what was with a killed worker went on."""
    by_goal: dict[str, list[Line]] = {}
    for line in lines:
        by_goal.setdefault(line.goal, []).append(line)
    found: list[float] = []
    for at, number in kills:
        for own in by_goal.values():
            before = [line for line in own if line.at <= at]
            if not before or before[-1].process != number or before[-1].step == "s9":
                continue
            after = [line.at for line in own if line.at > at and line.process != number]
            if after:
                found.append(min(after) - at)
    return found


async def kill_often(trial: Trial, kills: int) -> None:
    """One worker, killed at random moments: at work, or while it starts."""
    workers = trial.workers
    for _ in range(kills):
        number = workers.start()
        if random.random() < 0.15:
            await asyncio.sleep(random.uniform(0, 0.8))
        else:
            await trial.until(lambda number=number: workers.at_work(number))
            await asyncio.sleep(random.uniform(0, 0.5))
        workers.kill(number)
        await trial.look()
        await trial.left()
    workers.start()


async def freeze(trial: Trial, times: int, seconds: float = 9.0) -> list[float]:
    """Two workers; one is frozen for longer than its lease, and wakes when others have its goals.

    Returns:
        Seconds until a goal that was with the frozen one went on, each.
    """
    workers = trial.workers
    found: list[float] = []
    for _ in range(times):
        while len(workers.alive) < 2:
            workers.start()
        await trial.left()
        seen = {number: sum(one.process == number for one in workers.lines())
                for number in workers.alive}  # fmt: skip
        await trial.until(
            lambda seen=seen: all(
                sum(one.process == number for one in workers.lines()) > before
                for number, before in seen.items()
            )
        )
        victim = random.choice(workers.alive)
        at = time.time()
        os.kill(victim, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        os.kill(victim, signal.SIGCONT)
        await asyncio.sleep(1.0)
        await trial.look()
        found += [one for one in recoveries(workers.lines(), [(at, victim)]) if one < seconds]
    return found


def _is_gone(number: int) -> bool:
    return not os.path.exists(f"/proc/{number}")


async def poison(client: Any, workers: Workers, innocents: int) -> tuple[Any, list[Any], int]:
    """A step that kills its worker beside goals that run at the same time, on three workers.

    Returns:
        The report of the poison goal, those of the others, and how many workers died.
    """
    steps = (Step("begin", prompt="do"), Step("die", prompt=POISON, needs=("begin",)))
    slow = tuple(Step(f"s{n}", prompt=SLOW, needs=(f"s{n - 1}",) if n else ()) for n in range(4))
    names = [f"innocent{n}" for n in range(innocents)]
    await client.submit(Goal("poison", Plan("Kill", steps)))
    for name in names:
        await client.submit(Goal(name, Plan("Survive", slow)))
    died = 0

    async def supervise() -> None:
        nonlocal died
        while True:
            for number in filter(_is_gone, list(workers.alive)):
                workers.alive.remove(number)
                died += 1
            while len(workers.alive) < 3:
                workers.start()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(supervise())
    try:
        report = await client.wait("poison", 240)
        return report, [await client.wait(name, 240) for name in names], died
    finally:
        task.cancel()


async def cut_off(trial: Trial, restart: Callable[[bool], None], times: int) -> list[float]:
    """Two workers whose server is restarted: orderly, then as by a crash, and so on.

    Returns:
        Seconds from when it went until a step began again, each; it is away for one of them.
    """
    workers = trial.workers
    found: list[float] = []
    while len(workers.alive) < 2:
        workers.start()
    await trial.until(lambda: all(workers.at_work(number) for number in workers.alive))
    for turn in range(times):
        await asyncio.sleep(random.uniform(0.3, 1.5))
        await trial.left()
        at = time.time()
        await asyncio.to_thread(restart, bool(turn % 2))
        back = time.time()
        await trial.until(
            lambda back=back: any(
                line.at > back and line.what == "begin" for line in workers.lines()
            )
        )
        found.append(min(
            line.at for line in workers.lines() if line.at > back and line.what == "begin"
        ) - at)  # fmt: skip
        await trial.look()
    return found
