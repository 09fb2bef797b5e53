"""Who does the steps of Temporal's goals? An activity around `perform`, which says that it lives.

A step that is recorded is never given out again. One whose worker is silent for `SILENCE` is: the
worker may be dead, or only have stood still. So after standing still a worker asks the server
whether a step is still its own before it begins or tries it again; what it was doing at that
moment is cancelled by the SDK, and what it reports late is refused by the server.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from satchel._optional import require
from satchel.goals.engines import _temporal_wire as wire
from satchel.goals.engines._temporal_workflow import SILENCE, GoalWorkflow
from satchel.goals.model import StepCall, StepResult
from satchel.goals.perform import error_of, perform
from satchel.goals.reports import pack, unpack

try:
    from temporalio import activity
    from temporalio.client import AsyncActivityCancelledError
    from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
    from temporalio.service import RPCError, RPCStatusCode
    from temporalio.worker import UnsandboxedWorkflowRunner, Worker
except ImportError:
    require("temporalio", "temporal")
    raise

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.client import Client

    from satchel.goals.engines.base import Workbench
    from satchel.goals.model import Done, StepEvent, Work

BEAT = 2.0
"""Seconds between two signs of life; also how long a step goes on that is cancelled."""
STILL = SILENCE.total_seconds() / 2
"""A worker that did nothing for so long is not sure of its steps any more."""
EAGER = 16
"""Steps of one turn that a worker gives to itself: they spare the server a way."""
GRACE = 10.0
"""Seconds for steps that are cancelled to clean up."""
FOREVER = timedelta(days=365)
SAID = 10
"""Tries of a step that a sign of life tells of."""


class StepWorker:
    """A worker of this process: begin, drain, end.

    Args:
        client: Connected.
        queue: Which goals.
        bench: Who does the steps.
        at_once: Steps at the same time.
    """

    def __init__(self, client: Client, queue: str, bench: Workbench, at_once: int) -> None:
        self._client = client
        self._bench = bench
        self._tasks: set[asyncio.Task[Any]] = set()
        self._leaving = False
        self._ticked = time.monotonic()
        self._woke = self._ticked - SILENCE.total_seconds()
        self._ticker: asyncio.Task[None] | None = None
        self._worker = Worker(
            client,
            task_queue=queue,
            workflows=[GoalWorkflow],
            activities=[self.step],
            # Nothing of the user's runs in the workflow, and the sandbox takes a third of the time.
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=at_once,
            max_eager_activity_reservations_per_workflow_task=min(EAGER, at_once),
            max_heartbeat_throttle_interval=timedelta(seconds=BEAT),
            default_heartbeat_throttle_interval=timedelta(seconds=BEAT),
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=5),
            graceful_shutdown_timeout=FOREVER,  # `drain` is known only when it begins
        )
        self._run: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Begin; the task ends when the worker breaks down."""
        self._ticker = asyncio.create_task(self._tick())
        self._run = asyncio.create_task(self._worker.run())
        return self._run

    async def stop(self, drain: float = 0.0) -> None:
        """Take no more, finish what is begun within `drain` seconds, give the rest back."""
        if self._run is None:
            return
        ending = asyncio.create_task(self._worker.shutdown())
        await asyncio.wait([ending], timeout=max(drain, 0.01))
        # What was given out before the server heard of it still comes in: it is given back too.
        self._leaving = True
        while self._tasks:
            self._tasks.pop().cancel()
        await asyncio.wait([ending], timeout=GRACE)
        if self._ticker is not None:
            self._ticker.cancel()
        if ending.done():
            await asyncio.gather(ending, self._run, return_exceptions=True)

    async def _tick(self) -> None:
        """Notice when this process stood still."""
        while True:
            await asyncio.sleep(STILL / 5)
            now = time.monotonic()
            if now - self._ticked > STILL:
                self._woke = now
            self._ticked = now

    def stood_still(self) -> bool:
        """Whether this process may have lost its steps a moment ago."""
        now = time.monotonic()
        return now - self._ticked > STILL or now - self._woke < SILENCE.total_seconds()

    @activity.defn(name=wire.ACTIVITY)
    async def step(self, packed: dict[str, Any]) -> dict[str, Any]:
        """Do one step; it fails as a result, and raises only when it is not to be recorded."""
        task = asyncio.current_task()
        if task is None:  # pragma: no cover - activities are tasks
            raise RuntimeError("An activity runs outside of any task")
        call = unpack(StepCall, packed["call"])
        beating = _Beat()
        self._tasks.add(task)
        try:
            if self._leaving:
                raise _given_back()
            guard = _Guard(self, self._bench.runner)
            await guard.check(self._old())
            bench = self._bench._replace(
                runner=guard, large=min(self._bench.large, packed["large"])
            )
            result = await self._performed(call, bench, beating.tell)
            return pack(wire.fitting(result, packed["large"]))
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if self._leaving or (details is not None and details.worker_shutdown):
                raise _given_back() from None
            if details is not None and not details.cancel_requested and (
                details.not_found or details.timed_out
            ):  # fmt: skip
                activity.raise_complete_async()  # nobody waits for what this worker has to say
            raise
        finally:
            beating.stop()
            self._tasks.discard(task)

    async def _performed(
        self, call: StepCall, bench: Workbench, tell: Callable[[StepEvent], None]
    ) -> StepResult:
        try:
            return await perform(call, bench, tell)
        except Exception as exc:  # noqa: BLE001 - such as a disk that is full: it is a result too
            return StepResult(call.step.id, "failed", error=error_of(exc))

    @staticmethod
    def _old() -> bool:
        """Whether the server gave this out long ago: it lay here while the process stood still."""
        begun = activity.info().started_time.timestamp()
        return abs(time.time() - begun) > STILL

    async def is_mine(self) -> bool:
        """Ask the server whether the step of this activity is still this worker's."""
        handle = self._client.get_async_activity_handle(task_token=activity.info().task_token)
        try:
            await handle.heartbeat()
        except AsyncActivityCancelledError:
            return True  # ours still; the SDK brings the news itself
        except RPCError as exc:
            return exc.status != RPCStatusCode.NOT_FOUND
        return True


def _given_back() -> ApplicationError:
    """What the server makes the next worker's at once."""
    return ApplicationError(
        "The worker is going",
        type="WorkerGoing",
        next_retry_delay=timedelta(milliseconds=10),
        category=ApplicationErrorCategory.BENIGN,
    )


class _Beat:
    """Says every now and then that the activity lives. One that is quick says nothing."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(BEAT, self._beat)
        self._said: list[dict[str, Any]] = []
        """The last tries: whoever watches takes them from the server."""

    def _beat(self) -> None:
        activity.heartbeat(self._said)
        self._handle = self._loop.call_later(BEAT, self._beat)

    def tell(self, event: StepEvent) -> None:
        """It is tried again."""
        self._said = [*self._said[-(SAID - 1) :], pack(event)]
        activity.heartbeat(self._said)

    def stop(self) -> None:
        self._handle.cancel()


class _Guard:
    """A runner that does nothing for a step that is somebody else's by now."""

    def __init__(self, worker: StepWorker, runner: Any) -> None:
        self._worker = worker
        self._runner = runner

    async def check(self, doubt: bool = False) -> None:  # noqa: FBT001, FBT002
        """End this activity without a word when it is not ours."""
        if (doubt or self._worker.stood_still()) and not await self._worker.is_mine():
            activity.raise_complete_async()

    async def run(self, work: Work) -> Done:
        await self.check()
        return await self._runner.run(work)
