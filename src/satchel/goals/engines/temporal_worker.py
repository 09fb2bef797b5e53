"""Workers of the engine `temporal`: an activity around `perform` that sends heartbeats.

A recorded step never runs again. One whose worker is silent for `HEARTBEAT_TIMEOUT` does: that
worker may be dead, or only suspended. So a worker asks the server whether a step is still its own
before it begins another attempt, or one that it received late.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from satchel.goals.engines import temporal_workflow as wire
from satchel.goals.model import StepBegun, StepCall
from satchel.goals.reports import pack, unpack
from satchel.goals.step_runner import AttemptLog, perform, worker_label
from satchel.goals.telemetry import report_death

if TYPE_CHECKING:
    from temporalio.client import Client

    from satchel.goals.step_runner import StepContext

HEARTBEAT_INTERVAL_S = 2.0
"""Also the delay until a cancelled step is interrupted."""
SUSPENDED_S = wire.HEARTBEAT_TIMEOUT.total_seconds() / 2
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
        # Sent at once: a heartbeat that is kept back would replace a newer record.
        throttle = timedelta(milliseconds=10)
        self._worker = Worker(
            client,
            task_queue=queue,
            workflows=[wire.GoalWorkflow, wire.FiringWorkflow],
            activities=[self.step],
            # No user code runs in the workflow, and the sandbox takes a third of the time.
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=at_once,
            max_eager_activity_reservations_per_workflow_task=min(16, at_once),
            max_heartbeat_throttle_interval=throttle,
            default_heartbeat_throttle_interval=throttle,
            sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
            graceful_shutdown_timeout=timedelta(days=365),  # `stop` ends it sooner
        )
        self.running = asyncio.create_task(self._worker.run())
        """Ends when the worker fails."""

    async def stop(self, drain: float = 0.0) -> None:
        """Accept no more steps, finish running ones within `drain` seconds, hand over the rest."""
        ending = asyncio.create_task(self._worker.shutdown())
        await asyncio.wait([ending], timeout=max(drain, 0.01))
        self._leaving = True  # steps that still arrive are handed over too
        for task in list(self._tasks):
            task.cancel()
        await asyncio.wait([ending], timeout=GRACE_S)
        if ending.done():
            await asyncio.gather(ending, self.running, return_exceptions=True)

    @activity.defn(name=wire.ACTIVITY)
    async def step(self, packed: dict[str, Any]) -> dict[str, Any]:
        """Run one step; a failure is a result, and an exception means that nothing is recorded."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - activities are tasks
        call = unpack(StepCall, packed["call"])
        log = _ActivityAttempts(self._client)
        context = self._context._replace(
            log=log,
            artifacts=self._context.artifacts.of(call.goal),
            artifact_bytes=min(self._context.artifact_bytes, packed["large"]),
        )
        self._tasks.add(task)
        try:
            if self._leaving:
                task.cancel()
            if activity.info().attempt > 1:
                await log.send()  # until the next attempt begins, no death counts
            result = await perform(call, context)
            return pack(wire.shorten_result(result, packed["large"]))
        except asyncio.CancelledError:
            if not self._leaving:
                raise
            log.current = log.current._replace(worker="")
            await log.send()
            raise ApplicationError(  # the server gives the step to the next worker at once
                "The worker is going",
                type="WorkerGoing",
                next_retry_delay=timedelta(milliseconds=10),
                category=ApplicationErrorCategory.BENIGN,
            ) from None
        finally:
            log.close()
            self._tasks.discard(task)


class _ActivityAttempts(AttemptLog):
    """The record of the begun step of one activity, in the details of its heartbeats.

    The server itself records that a new activity has begun, so the first record is not sent.
    """

    def __init__(self, client: Client) -> None:
        info = activity.info()
        self.worker = client.identity
        self._client = client
        self._info = info
        step = info.activity_id
        self.current = StepBegun(step)
        if info.heartbeat_details:
            self.current = unpack(StepBegun, info.heartbeat_details[0])
        elif info.attempt > 1:
            self.current = StepBegun(step, attempts=1, worker="?")
        if self.current.worker:
            report_death("temporal", worker_label(self.current.worker))
            deaths = self.current.deaths + 1
            self.current = self.current._replace(worker="", deaths=deaths)
        self._beats = asyncio.create_task(self._beat())

    def begun(self, step: str) -> StepBegun:
        """The record as earlier workers left it."""
        return self.current._replace(step=step)

    async def write(self, begun: StepBegun) -> None:
        """Send a record; end the activity without a result when another worker has the step."""
        self.current = begun
        late = time.time() - self._info.started_time.timestamp() > SUSPENDED_S
        is_first = self._info.attempt == 1 and begun.attempts == 1 and bool(begun.worker)
        if not is_first or late:
            await self.send()

    async def leave_to_others(self, begun: StepBegun) -> bool:
        """Return the step to the server, which gives it to any worker after a delay."""
        self.current = begun
        await self.send()
        raise ApplicationError(
            "This worker cannot run it",
            type="CannotRun",
            next_retry_delay=timedelta(seconds=min(5.0, 0.5 * self._info.attempt)),
            category=ApplicationErrorCategory.BENIGN,
        )

    async def send(self) -> None:
        """Send the current record."""
        handle = self._client.get_async_activity_handle(task_token=self._info.task_token)
        try:
            await handle.heartbeat(pack(self.current))
        except AsyncActivityCancelledError:
            activity.heartbeat(pack(self.current))  # so the SDK learns of it, and cancels the step
        except RPCError:
            activity.raise_complete_async()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            activity.heartbeat(pack(self.current))

    def close(self) -> None:
        """Send no more heartbeats."""
        self._beats.cancel()
