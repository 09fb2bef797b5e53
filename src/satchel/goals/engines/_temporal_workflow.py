"""The workflow of the engine `temporal`: it runs `execute`; each step is one activity.

The plan is data, so this code seldom changes; where it must, `workflow.patched` keeps goals that
run replayable. Nothing of the user's runs here, only on workers (`_temporal_worker`).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from satchel._language import Message, pack_messages
from satchel._optional import require
from satchel.goals.engines import _temporal_wire as wire
from satchel.goals.execute import execute
from satchel.goals.execution import Progress
from satchel.goals.model import Answer, StepError, StepResult
from satchel.goals.reports import pack_results, report_of, summary_of, unpack

try:
    from temporalio import workflow
    from temporalio.common import RetryPolicy
    from temporalio.exceptions import ActivityError, CancelledError, is_cancelled_exception
except ImportError:
    require("temporalio", "temporal")
    raise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from satchel.goals.model import GoalReport, GoalState, Step, StepCall

SILENCE = timedelta(seconds=10)
"""A worker without a heartbeat for so long has lost its step to another one."""
LOST = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    maximum_interval=timedelta(seconds=5),
    maximum_attempts=50,
)
"""Only for lost workers: what a step itself does wrong is a result. A step that kills each worker
that takes it ends after so many of them."""
PENDING = 1_900
"""Activities at once; Temporal's limit is 2,000."""


@workflow.defn(name=wire.WORKFLOW, sandboxed=False)
class GoalWorkflow:
    """One revision of a goal; also the `Execution` that `execute` works with."""

    @workflow.init
    def __init__(self, packed: dict[str, Any]) -> None:
        task = self.task = unpack(wire.Task, packed)
        plan = task.goal.plan
        self.goal = task.goal._replace(plan=plan._replace(parallel=min(plan.parallel, PENDING)))
        self.large = wire.large_for(len(plan.steps))
        self.answers = dict(task.answers)
        self.progress = Progress()
        self.progress.results.update(task.known)
        self.asked: dict[str, asyncio.Event] = {}
        """Steps that ask, and what wakes them."""
        self.busy = 0
        """Activities that run."""
        self.people = any(step.action_type == "human" for step in plan.steps)
        self.started = task.started
        self.ended: GoalReport | None = None

    @workflow.run
    async def run(self, packed: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - as in `init`
        """Bring the goal to its end."""
        self.started = self.started or self.now()
        notice = asyncio.create_task(self.note_asking()) if self.people else None
        try:
            report = await execute(
                self.goal,
                self,
                known=self.task.known,
                answers=self.task.answers,
                revision=self.task.revision,
                spent=self.task.spent,
                started=self.started,
                progress=self.progress,
            )
        except asyncio.CancelledError:
            report = self.report("cancelled")
        finally:
            if notice is not None:
                notice.cancel()
        self.ended = report
        # One that simply ended as `done` is known by that: each memo is a write for the server.
        if report.state != "done" or self.people or self.task.started:
            line = summary_of(report)
            workflow.upsert_memo(
                {"state": report.state, "done": line.done, "started": line.started,
                 "seconds": line.seconds}
            )  # fmt: skip
        return self.told()

    async def note_asking(self) -> None:
        """Keep in the memo whether it asks."""
        while True:
            await workflow.wait_condition(lambda: self.state() == "asking")
            workflow.upsert_memo({"state": "asking", "done": self.done()})
            await workflow.wait_condition(lambda: self.state() != "asking")
            if self.ended is None:
                workflow.upsert_memo({"state": "running", "done": self.done()})

    # --- what `execute` wants ---------------------------------------------------------------

    def now(self) -> float:
        """The time in the history."""
        return workflow.time()

    async def record(
        self,
        step: Step,  # noqa: ARG002
        body: Callable[[], Awaitable[StepResult]],
    ) -> StepResult:
        """Temporal records what comes from outside; all else is the same in a replay."""
        return await body()

    async def perform(self, call: StepCall) -> StepResult:
        """One activity."""
        self.busy += 1
        try:
            packed: Any = await workflow.execute_activity(
                wire.ACTIVITY,
                wire.pack_call(call, self.large),
                activity_id=call.step.id,
                start_to_close_timeout=timedelta(days=365),  # the step's own is in `perform`
                heartbeat_timeout=SILENCE,
                retry_policy=LOST,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            return unpack(StepResult, packed)
        except ActivityError as exc:
            if is_cancelled_exception(exc) or isinstance(exc.cause, CancelledError):
                raise asyncio.CancelledError from exc
            return _lost(call, exc)
        finally:
            self.busy -= 1

    async def ask(self, step: Step, text: str) -> Answer | None:
        """Wait for the signal."""
        if step.id not in self.answers:
            text = wire.cut(text, self.large)  # a question must fit into a message as well
            asking = StepResult(step.id, "asking", text, started=self.now())
            self.progress.results[step.id] = asking
            event = self.asked[step.id] = asyncio.Event()
            try:
                await event.wait()
            finally:
                del self.asked[step.id]
        return self.answers[step.id]

    # --- signals and queries ----------------------------------------------------------------

    @workflow.signal(name=wire.ANSWER)
    def answer(self, step: str, packed: dict[str, Any]) -> None:
        """An answer; the first one holds."""
        event = self.asked.get(step)
        if event is not None and step not in self.answers:
            self.answers[step] = unpack(Answer, packed)
            event.set()

    @workflow.query(name=wire.PROGRESS)
    def told(self) -> dict[str, Any]:
        """Everything but the plan."""
        report = self.ended or self.report(self.state())
        progress = {
            "state": report.state,
            "reason": report.reason,
            "started": report.started,
            "revision": report.revision,
            "results": pack_results(report.steps),
            "answers": {name: wire.mark_of(one) for name, one in self.answers.items()},
        }
        return pack_messages(progress)

    def report(self, state: GoalState) -> GoalReport:
        """How far it is."""
        return report_of(
            self.goal,
            self.progress.seen(),
            state,
            started=self.started,
            revision=self.task.revision,
        )

    def state(self) -> GoalState:
        """Its state now; only looked at when everything that could go on has gone on."""
        if self.ended is not None:
            return self.ended.state
        return "asking" if self.asked and not self.busy else "running"

    def done(self) -> int:
        """How many steps are done."""
        return sum(result.state == "done" for result in self.progress.results.values())


def _lost(call: StepCall, exc: ActivityError) -> StepResult:
    """The result of a step that no worker brought to an end."""
    cause = exc.cause or exc
    why = str(getattr(cause, "message", None) or cause)
    error = StepError(
        "WORKER_LOST",
        Message("No worker brought it to an end: {why}", why=why[:1_900]),
        Message("Look at the workers' logs: the step may take their memory, or kill them"),
        retryable=False,
    )
    return StepResult(call.step.id, "failed", error=error)
