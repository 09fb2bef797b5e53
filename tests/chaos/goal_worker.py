"""A process that works on goals until it is killed; forked from one that has imported everything.

    python goal_worker.py ENGINE

Each line on standard input, `["address", "folder", at_once, skills]`, forks a worker; the answer is
its number. `skills` are the digests of the skills that it has; null means that it has all. What it
does to steps is appended to `steps` in the folder, one line each: time, what, goal, step, run. A
run is one try of one step by one process. The worker checks that what flows into a step
is of the steps it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from satchel.errors import StepFailed
from satchel.goals.model import Done, Usage

if TYPE_CHECKING:
    from satchel.goals.model import Step, Work

MODEL = (0.03, 0.07)
"""Seconds that the simulated model takes: 0.05 on average, so that the order changes."""
USAGE = Usage(1, 10, 5)
"""Of each try that ended."""
POISON = "kill your worker"
SLOW = "take your time"
SLOW_S = 3.0
FAIL = "fail"
FAIL_ONCE = "fail once"
_SECONDS = re.compile(r"take (\d+\.\d+) s")
_FLOWING = re.compile(r"(\w+)=(\S+)/(\S+)#")


class Simulated:
    """A slow model whose answer names the goal and the step."""

    def __init__(
        self,
        path: str,
        seconds: tuple[float, float] = MODEL,
        skills: dict[str, str] | None = None,
    ) -> None:
        self._skills = skills
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._seconds = seconds
        self._count = 0

    def abilities(self) -> dict[str, Any]:
        return {"model": "simulated", "skills": self._skills or {}}

    def version_of(self, step: Step) -> str | None:
        return "" if self._skills is None or not step.skill else self._skills.get(step.skill)

    def _note(self, what: str, work: Work, run: str) -> None:
        line = f"{time.time():.6f} {what} {work.goal} {work.step.id} {run}\n"
        os.write(self._file, line.encode())  # one call: lines of many processes do not mix

    async def run(self, work: Work) -> Done:
        self._count += 1
        run = f"{os.getpid()}-{self._count}"
        self._note("begin", work, run)
        for name, goal, step in _FLOWING.findall(work.prompt):
            if (goal, step) != (work.goal, name):
                self._note("swapped", work, run)
        if work.prompt == POISON:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(self._seconds_of(work.prompt))
        if work.prompt == FAIL or (work.prompt == FAIL_ONCE and work.attempt == 1):
            self._note("fail", work, run)
            raise StepFailed("It fails")
        self._note("end", work, run)
        return Done(f"{work.goal}/{work.step.id}#{run}", USAGE)

    def _seconds_of(self, prompt: str) -> float:
        seconds = _SECONDS.search(prompt)
        if seconds is not None:
            return float(seconds[1])
        return SLOW_S if prompt == SLOW else random.uniform(*self._seconds)


def engine(kind: str, address: str, folder: str, runner: Any = None, at_once: int = 8) -> Any:
    """An engine, working when it has a runner."""
    if kind == "local":
        from satchel.goals.engines.local import LocalEngine

        return LocalEngine(runner, folder)
    if kind == "dbos":
        from satchel.goals.engines.dbos import DbosEngine

        return DbosEngine(runner, address, at_once=at_once)
    from satchel.goals.engines.temporal import TemporalEngine

    return TemporalEngine(runner, folder, address=address, at_once=at_once)


async def work(
    kind: str, address: str, folder: str, at_once: int, skills: dict[str, str] | None
) -> None:
    runner = Simulated(os.path.join(folder, "steps"), skills=skills)
    async with engine(kind, address, folder, runner, at_once) as opened:
        working = resume_all(opened) if kind == "local" else opened.work(drain=5.0)
        task = asyncio.ensure_future(working)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def resume_all(engine: Any) -> None:
    """Go on with every goal whose process is gone, as a person would with `goal resume`."""
    while True:
        for one in await engine.list(states=("queued",), limit=1_000):
            await engine.resume(one.id)
        await asyncio.sleep(0.05)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    kind = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        engine(kind, os.path.join(folder, "imported.db"), folder)  # everything is imported once
    if kind == "dbos":
        import dbos  # noqa: F401
        import psycopg  # noqa: F401
        import sqlalchemy.dialects.postgresql.psycopg
        import sqlalchemy.dialects.sqlite  # noqa: F401
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the killed leave nothing behind
    _say("ready")
    for line in sys.stdin:
        address, folder, at_once, skills = json.loads(line)
        child = os.fork()
        if child:
            _say(str(child))
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(0)
        random.seed()
        log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            asyncio.run(work(kind, address, folder, at_once, skills))
        except BaseException:  # noqa: BLE001 - into the log, and no further
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)


if __name__ == "__main__":
    main()
