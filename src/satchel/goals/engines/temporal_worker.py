"""Workers of the engine `temporal`: an activity around `perform` that sends heartbeats.

A recorded step never runs again. One whose worker is silent for `HEARTBEAT_TIMEOUT` does: that
worker may be dead, or only suspended. So after a suspension a worker asks the server
whether a step is still its own before it begins or repeats it.
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

from satchel.goals.engines import temporal_messages as wire
from satchel.goals.engines.temporal_workflow import HEARTBEAT_TIMEOUT, GoalWorkflow
from satchel.goals.model import StepCall, StepResult
from satchel.goals.reports import pack, unpack
from satchel.goals.step_runner import error_of, perform

if TYPE_CHECKING:
    from temporalio.client import Client

    from satchel.goals.executor import StepContext
    from satchel.goals.model import Done, StepRunner, Work

HEARTBEAT_INTERVAL_S = 2.0
"""Also the delay until a cancelled step is interrupted."""
SUSPENDED_S = HEARTBEAT_TIMEOUT.total_seconds() / 2
"""A worker that was suspended for so long may have lost its steps."""
STICKY_TIMEOUT = timedelta(seconds=5)
"""How long a workflow waits for the worker that has it in memory."""
GRACE_S = 10.0


class StepWorker:
    """The worker of this process."""

    def __init__(self, client: Client, queue: str, context: StepContext, at_once: int) -> None:
        self._client = client
        self._context = context
        self._tasks: set[asyncio.Task[Any]] = set()
        self._leaving = False
        beat = timedelta(seconds=HEARTBEAT_INTERVAL_S)
        self._worker = Worker(
            client,
            task_queue=queue,
            workflows=[GoalWorkflow],
            activities=[self.step],
            # No user code runs in the workflow, and the sandbox takes a third of the time.
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=at_once,
            max_eager_activity_reservations_per_workflow_task=min(16, at_once),
            max_heartbeat_throttle_interval=beat,
            default_heartbeat_throttle_interval=beat,
            sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
            graceful_shutdown_timeout=timedelta(days=365),  # `stop` ends it sooner
        )
        self._run: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Start; the task ends when the worker fails."""
        self._run = asyncio.create_task(self._worker.run())
        return self._run

    async def stop(self, drain: float = 0.0) -> None:
        """Accept no more steps, finish running ones within `drain` seconds, hand over the rest."""
        if self._run is None:
            return
        ending = asyncio.create_task(self._worker.shutdown())
        await asyncio.wait([ending], timeout=max(drain, 0.01))
        self._leaving = True  # steps that still arrive are handed over too
        for task in list(self._tasks):
            task.cancel()
        await asyncio.wait([ending], timeout=GRACE_S)
        if ending.done():
            await asyncio.gather(ending, self._run, return_exceptions=True)

    @activity.defn(name=wire.ACTIVITY)
    async def step(self, packed: dict[str, Any]) -> dict[str, Any]:
        """Run one step; a failure is a result, and an exception means that nothing is recorded."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - activities are tasks
        call = unpack(StepCall, packed["call"])
        alive = _HeartbeatRunner(self._client, self._context.runner)
        context = self._context._replace(
            runner=alive,
            artifacts=self._context.artifacts.of(call.goal),
            large=min(self._context.large, packed["large"]),
        )
        self._tasks.add(task)
        try:
            if self._leaving:
                raise _handover_error()
            await alive.check()
            try:
                result = await perform(call, context)
            except Exception as exc:  # noqa: BLE001 - such as a full disk: it is a result too
                result = StepResult(call.step.id, "failed", error=error_of(exc))
            return pack(wire.shorten_result(result, packed["large"]))
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if self._leaving or (details is not None and details.worker_shutdown):
                raise _handover_error() from None
            if details is not None and not details.cancel_requested and (
                details.not_found or details.timed_out
            ):  # fmt: skip
                activity.raise_complete_async()  # another worker has it
            raise
        finally:
            alive.stop()
            self._tasks.discard(task)


class _HeartbeatRunner:
    """The runner of one activity: sends heartbeats, and detects that the process was suspended."""

    def __init__(self, client: Client, runner: StepRunner) -> None:
        self._client = client
        self._runner = runner
        self._at = activity.info().started_time.timestamp()
        self._suspended = False
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(HEARTBEAT_INTERVAL_S, self._heartbeat)

    def _check_clock(self) -> None:
        now = time.time()
        self._suspended = self._suspended or abs(now - self._at) > SUSPENDED_S
        self._at = now

    def _heartbeat(self) -> None:
        self._check_clock()
        activity.heartbeat()
        self._handle = self._loop.call_later(HEARTBEAT_INTERVAL_S, self._heartbeat)

    def stop(self) -> None:
        self._handle.cancel()

    async def check(self) -> None:
        """End this activity without a result when another worker has the step."""
        self._check_clock()
        if not self._suspended:
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
        self._suspended = False

    async def run(self, work: Work) -> Done:
        await self.check()
        return await self._runner.run(work)


def _handover_error() -> ApplicationError:
    """An error that makes the server give the step to the next worker at once."""
    return ApplicationError(
        "The worker is going",
        type="WorkerGoing",
        next_retry_delay=timedelta(milliseconds=10),
        category=ApplicationErrorCategory.BENIGN,
    )
