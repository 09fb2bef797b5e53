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
from satchel.goals.model import StepCall
from satchel.goals.reports import pack, unpack
from satchel.goals.step_runner import perform

if TYPE_CHECKING:
    from temporalio.client import Client

    from satchel.goals.model import Done, StepRunner, Work
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
        beat = timedelta(seconds=HEARTBEAT_INTERVAL_S)
        self._worker = Worker(
            client,
            task_queue=queue,
            workflows=[wire.GoalWorkflow],
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
        alive = _HeartbeatRunner(self._client, self._context.runner)
        context = self._context._replace(
            runner=alive,
            artifacts=self._context.artifacts.of(call.goal),
            large=min(self._context.large, packed["large"]),
        )
        self._tasks.add(task)
        try:
            if self._leaving:
                task.cancel()
            result = await perform(call, context)
            return pack(wire.shorten_result(result, packed["large"]))
        except asyncio.CancelledError:
            if not self._leaving:
                raise
            raise ApplicationError(  # the server gives the step to the next worker at once
                "The worker is going",
                type="WorkerGoing",
                next_retry_delay=timedelta(milliseconds=10),
                category=ApplicationErrorCategory.BENIGN,
            ) from None
        finally:
            alive.beats.cancel()
            self._tasks.discard(task)


class _HeartbeatRunner:
    """The runner of one activity; it sends heartbeats until `beats` is cancelled."""

    def __init__(self, client: Client, runner: StepRunner) -> None:
        self._client = client
        self._runner = runner
        self._started = activity.info().started_time.timestamp()
        """A suspended worker gets a step long after its start."""
        self.beats = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            activity.heartbeat()

    async def run(self, work: Work) -> Done:
        """Run an attempt; end the activity without a result when another worker has the step."""
        if work.attempt > 1 or time.time() - self._started > SUSPENDED_S:
            token = activity.info().task_token
            try:
                await self._client.get_async_activity_handle(task_token=token).heartbeat()
            except AsyncActivityCancelledError:
                pass  # still this worker's; the SDK cancels it
            except RPCError:
                activity.raise_complete_async()
        return await self._runner.run(work)
