"""How does a process hear of goals that run anywhere? It asks the database, for all waits at once.

Workers are not disturbed: they write down what ends, and that is all that is read.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from satchel.goals.engines._dbos_runs import over
from satchel.goals.model import ENDS, StepEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from satchel.goals.engines._dbos_runs import Run, Runs
    from satchel.goals.model import GoalReport

_QUICK = 0.1
_SLOW = 0.5
_PER_RUN = 0.002
"""Seconds between two looks: at first, after a while, and more when many are waited for."""
_LOOK = 0.3
"""Seconds between two looks at a goal that is watched."""


class Waits:
    """One question for everybody here who waits for a run."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._wanted: dict[str, list[asyncio.Future[Run | None]]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._nudged = asyncio.Event()
        self._pause = _QUICK

    async def until(self, run: str, timeout: float | None) -> Run | None:  # noqa: ASYNC109
        """A run when it is over; None when the time is up first."""
        future: asyncio.Future[Run | None] = asyncio.get_running_loop().create_future()
        self._wanted.setdefault(run, []).append(future)
        self._pause = _QUICK
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            return None
        finally:
            futures = self._wanted.get(run, [])
            if future in futures:
                futures.remove(future)
            if not futures:
                self._wanted.pop(run, None)

    def nudge(self) -> None:
        """Something is about to end here: look soon."""
        self._nudged.set()

    async def close(self) -> None:
        """Nobody waits any more. Who asks the database just now is not cut off."""
        for futures in self._wanted.values():
            for future in futures:
                future.cancel()
        self._wanted.clear()
        self._nudged.set()
        if self._asking is not None:
            await self._asking

    async def _ask(self) -> None:
        while self._wanted:
            pause = self._pause + _PER_RUN * len(self._wanted)
            try:
                async with asyncio.timeout(pause):
                    await self._nudged.wait()
                await asyncio.sleep(min(pause, 0.01 + _PER_RUN * len(self._wanted)))
            except TimeoutError:
                self._pause = min(_SLOW, self._pause * 1.1)
            self._nudged.clear()
            try:
                ended = await asyncio.to_thread(self._runs.ended, list(self._wanted))
            except Exception as exc:  # noqa: BLE001 - whoever waits hears of it
                for futures in self._wanted.values():
                    for future in futures:
                        if not future.done():
                            future.set_exception(exc)
                return
            for name, run in ended.items():
                for future in self._wanted.pop(name, []):
                    if not future.done():
                        future.set_result(run)


class Watchers:
    """Those here who watch goals."""

    def __init__(self) -> None:
        self._queues: dict[str, list[asyncio.Queue[StepEvent]]] = {}

    def hear(self, event: StepEvent) -> None:
        """Something happened to a goal that runs here."""
        for queue in self._queues.get(event.goal, ()):
            queue.put_nowait(event)

    async def watch(
        self, goal_id: str, report: Callable[[str], Awaitable[GoalReport]]
    ) -> AsyncIterator[StepEvent]:
        """What has happened, then what happens: at once when it runs here, else soon."""
        queue: asyncio.Queue[StepEvent] = asyncio.Queue()
        self._queues.setdefault(goal_id, []).append(queue)
        told: dict[str, str] = {}
        try:
            while True:
                now = await report(goal_id)
                for event in _news(now, told):
                    yield event
                if over(now.state):
                    return
                try:
                    async with asyncio.timeout(_LOOK):
                        event = await queue.get()
                except TimeoutError:
                    continue
                while True:
                    known = told.get(event.step, "")
                    if known not in ENDS and known != event.state:
                        if event.state != "retrying":
                            told[event.step] = event.state
                        yield event
                    if queue.empty():
                        break
                    event = queue.get_nowait()
        finally:
            self._queues[goal_id].remove(queue)
            if not self._queues[goal_id]:
                del self._queues[goal_id]


def _news(report: GoalReport, told: dict[str, str]) -> list[StepEvent]:
    """What a report says that was not told yet."""
    found: list[StepEvent] = []
    for name, result in report.steps.items():
        if result.state == "waiting" or told.get(name) == result.state:
            continue
        if told.get(name) and result.state == "running":
            continue
        told[name] = result.state
        at = result.started + result.seconds or time.time()
        text = result.output if result.state == "asking" else ""
        found.append(StepEvent(report.id, name, result.state, at, str(text), result))
    if told.get("") != report.state:
        told[""] = report.state
        found.append(StepEvent(report.id, "", report.state, time.time(), report.reason))
    return found
