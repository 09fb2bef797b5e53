"""A worker of the tests in a process of its own, so that it can be killed and frozen.

It writes what it does to FOLDER/log, one JSON line each. What a step does is in its prompt:
`sleep 3`, `hang first` (until it is cancelled, the first time), `fail once`, `break`; anything
else is given back.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple, Self

from satchel.errors import StepFailed
from satchel.goals.engines import temporal_worker, temporal_workflow
from satchel.goals.engines.temporal import TemporalEngine
from satchel.goals.model import Done

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from satchel.goals.model import Work

SILENCE = 2.5
"""Seconds after which a worker is given up here; less than in earnest, for the sake of time."""


def be_impatient() -> None:
    """Give silent workers up sooner, in all that this process does from now on."""
    temporal_workflow.HEARTBEAT_TIMEOUT = timedelta(seconds=SILENCE)
    temporal_worker.SUSPENDED_S = SILENCE / 2
    temporal_worker.HEARTBEAT_INTERVAL_S = SILENCE / 5
    temporal_worker.STICKY_TIMEOUT = timedelta(seconds=0.5)


class Logged:
    """Does what a prompt says, and writes down when it began and ended."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "log")

    def log(self, kind: str, work: Work) -> None:
        line = {"kind": kind, "goal": work.goal, "step": work.step.id, "key": work.key,
                "attempt": work.attempt, "at": time.time(), "pid": os.getpid()}  # fmt: skip
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    async def run(self, work: Work) -> Done:
        self.log("began", work)
        word, _, rest = work.prompt.partition(" ")
        if word == "sleep":
            await asyncio.sleep(float(rest))
        elif word == "hang" and sum(one.step == work.step.id for one in moments(self.folder)) == 1:
            await asyncio.Event().wait()
        elif word == "break" or (word == "fail" and work.attempt == 1):
            raise StepFailed("it is said to fail", code="BROKEN")
        self.log("ended", work)
        return Done(f"{work.step.id}: {work.prompt}")


class Moment(NamedTuple):
    """A line of the log."""

    kind: str
    goal: str
    step: str
    key: str
    attempt: int
    at: float
    pid: int


def moments(folder: str) -> list[Moment]:
    """What was done so far, by all workers."""
    try:
        with open(os.path.join(folder, "log"), encoding="utf-8") as file:
            return [Moment(**json.loads(line)) for line in file]
    except FileNotFoundError:
        return []


class WorkerProcess:
    """Such a worker, from the test's side. A fork of a process that has imported everything."""

    def __init__(self, address: str, queue: str, folder: str) -> None:
        forks = multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload(
            ["satchel.goals.engines.temporal_worker", TemporalEngine.__module__]
        )
        here, there = forks.Pipe(duplex=False)
        self.process = forks.Process(target=work, args=(address, queue, folder, there))
        self.process.start()
        there.close()
        assert here.recv() == "ready"

    def tell(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self, seconds: float) -> int | None:
        """Its exit code; None when it goes on."""
        self.process.join(seconds)
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


def work(address: str, queue: str, folder: str, test: Connection) -> None:
    """Work until told to end, then drain."""

    async def main() -> None:
        async with TemporalEngine(Logged(folder), folder, address=address, queue=queue) as engine:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            test.send("ready")
            with suppress(asyncio.CancelledError):
                await engine.work(drain=2)

    be_impatient()
    asyncio.run(main())
