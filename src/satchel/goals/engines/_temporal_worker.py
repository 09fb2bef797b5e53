"""Workers of the engine `temporal`: an activity around `perform` that sends heartbeats.

A step that is recorded is never given out again. One whose worker is silent for `SILENCE` is: that
worker may be dead, or only have stood still. So after standing still a worker asks the server
whether a step is still its own before it begins or tries it again.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from satchel.goals.engines import _temporal_wire as wire
from satchel.goals.engines._temporal_workflow import SILENCE, GoalWorkflow
from satchel.goals.model import StepCall, StepResult
from satchel.goals.perform import error_of, perform
from satchel.goals.reports import pack, unpack

if TYPE_CHECKING:
    from temporalio.client import Client

    from satchel.goals.execution import Workbench
    from satchel.goals.model import Done, StepRunner, Work

BEAT = 2.0
"""Seconds between two heartbeats; also how long a step goes on that is cancelled."""
STILL = SILENCE.total_seconds() / 2
"""A worker that did nothing for so many seconds may have lost its steps."""
STICKY = timedelta(seconds=5)
"""How long a workflow waits for the worker that has it in memory."""
GRACE_S = 10.0
"""Seconds for steps that are cancelled to clean up."""


class StepWorker:
    """The worker of this process.

    Args:
        client: Connected.
        queue: Which goals.
        bench: Does the steps.
        at_once: Steps at the same time.
    """

    def __init__(self, client: Client, queue: str, bench: Workbench, at_once: int) -> None:
        self._client = client
        self._bench = bench
        self._tasks: set[asyncio.Task[Any]] = set()
        self._leaving = False
        beat = timedelta(seconds=BEAT)
        self._worker = Worker(
            client,
            task_queue=queue,
            workflows=[GoalWorkflow],
            activities=[self.step],
            # Nothing of the user's runs in the workflow, and the sandbox takes a third of the time.
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=at_once,
            max_eager_activity_reservations_per_workflow_task=min(16, at_once),
            max_heartbeat_throttle_interval=beat,
            default_heartbeat_throttle_interval=beat,
            sticky_queue_schedule_to_start_timeout=STICKY,
            graceful_shutdown_timeout=timedelta(days=365),  # `stop` ends it sooner
        )
        self._run: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Begin; the task ends when the worker breaks down."""
        self._run = asyncio.create_task(self._worker.run())
        return self._run

    async def stop(self, drain: float = 0.0) -> None:
        """Take no more, finish what is begun within `drain` seconds, give the rest back."""
        if self._run is None:
            return
        ending = asyncio.create_task(self._worker.shutdown())
        await asyncio.wait([ending], timeout=max(drain, 0.01))
        self._leaving = True  # steps that still come in are given back too
        for task in list(self._tasks):
            task.cancel()
        await asyncio.wait([ending], timeout=GRACE_S)
        if ending.done():
            await asyncio.gather(ending, self._run, return_exceptions=True)

    @activity.defn(name=wire.ACTIVITY)
    async def step(self, packed: dict[str, Any]) -> dict[str, Any]:
        """Do one step; it fails as a result, and raises only when it is not to be recorded."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - activities are tasks
        call = unpack(StepCall, packed["call"])
        alive = _Alive(self._client, self._bench.runner)
        bench = self._bench._replace(
            runner=alive,
            artefacts=self._bench.artefacts.of(call.goal),
            large=min(self._bench.large, packed["large"]),
        )
        self._tasks.add(task)
        try:
            if self._leaving:
                raise _given_back()
            await alive.check()
            try:
                result = await perform(call, bench)
            except Exception as exc:  # noqa: BLE001 - such as a full disk: it is a result too
                result = StepResult(call.step.id, "failed", error=error_of(exc))
            return pack(wire.fitting(result, packed["large"]))
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if self._leaving or (details is not None and details.worker_shutdown):
                raise _given_back() from None
            if details is not None and not details.cancel_requested and (
                details.not_found or details.timed_out
            ):  # fmt: skip
                activity.raise_complete_async()  # it is another worker's by now
            raise
        finally:
            alive.stop()
            self._tasks.discard(task)


class _Alive:
    """The runner of one activity: it sends heartbeats, and notices when the process stood still."""

    def __init__(self, client: Client, runner: StepRunner) -> None:
        self._client = client
        self._runner = runner
        self._at = activity.info().started_time.timestamp()
        self._doubt = False
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(BEAT, self._beat)

    def _tick(self) -> None:
        now = time.time()
        self._doubt = self._doubt or abs(now - self._at) > STILL
        self._at = now

    def _beat(self) -> None:
        self._tick()
        activity.heartbeat()
        self._handle = self._loop.call_later(BEAT, self._beat)

    def stop(self) -> None:
        self._handle.cancel()

    async def check(self) -> None:
        """End this activity without a result when the step is another worker's."""
        self._tick()
        if not self._doubt:
            return
        handle = self._client.get_async_activity_handle(task_token=activity.info().task_token)
        try:
            await handle.heartbeat()
        except AsyncActivityCancelledError:
            return  # still this worker's; the SDK cancels it
        except RPCError as exc:
            if exc.status == RPCStatusCode.NOT_FOUND:
                activity.raise_complete_async()
            return
        self._doubt = False

    async def run(self, work: Work) -> Done:
        await self.check()
        return await self._runner.run(work)


def _given_back() -> ApplicationError:
    """An error that makes the server give the step to the next worker at once."""
    return ApplicationError(
        "The worker is going",
        type="WorkerGoing",
        next_retry_delay=timedelta(milliseconds=10),
        category=ApplicationErrorCategory.BENIGN,
    )
