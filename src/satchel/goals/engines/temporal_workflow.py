"""The workflow of the engine `temporal`: it runs `execute`; each step is one activity.

The plan is data, so this code seldom changes; where it must, `workflow.patched` keeps running goals
replayable. No user code runs here, only on workers (`temporal_worker`).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from satchel._optional import require
from satchel.goals.engines import temporal_messages as wire
from satchel.goals.executor import RunProgress, execute
from satchel.goals.model import Answer, StepError, StepResult
from satchel.goals.reports import pack_results, report_of, summary_of, unpack
from satchel.i18n import Message, pack_messages

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

HEARTBEAT_TIMEOUT = timedelta(seconds=10)
"""A step whose worker sends no heartbeat for so long is given to another one."""
WORKER_LOSS_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    maximum_interval=timedelta(seconds=5),
    maximum_attempts=50,
)
"""For lost workers only: a failed step is a result. A step that kills every worker ends after so
many attempts."""
MAX_ACTIVITIES = 1_900
"""Temporal's limit is 2,000."""


@workflow.defn(name=wire.WORKFLOW, sandboxed=False)
class GoalWorkflow:
    """One revision of a goal; also the `Execution` of this engine."""

    @workflow.init
    def __init__(self, packed: dict[str, Any]) -> None:
        task = self.task = unpack(wire.Task, packed)
        plan = task.goal.plan
        self.goal = task.goal._replace(
            plan=plan._replace(parallel=min(plan.parallel, MAX_ACTIVITIES))
        )
        self.large = wire.artifact_threshold(len(plan.steps))
        self.answers = dict(task.answers)
        self.progress = RunProgress()
        self.progress.results.update(task.known)
        self.asked: dict[str, asyncio.Event] = {}
        """Step that asks -> the event that wakes it."""
        self.busy = 0
        self.has_questions = any(step.action_type == "human" for step in plan.steps)
        self.started = task.started
        self.ended: GoalReport | None = None

    @workflow.run
    async def run(self, packed: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - as in `init`
        """Run the goal to its end."""
        self.started = self.started or self.now()
        notice = asyncio.create_task(self.update_memo()) if self.has_questions else None
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
        # A goal that simply ended as `done` needs no memo: each one is a write for the server.
        if report.state != "done" or self.has_questions or self.task.started:
            line = summary_of(report)
            workflow.upsert_memo(
                {"state": report.state, "done": line.done, "started": line.started,
                 "seconds": line.seconds}
            )  # fmt: skip
        return self.progress_data()

    async def update_memo(self) -> None:
        """Record in the memo whether it asks."""
        while True:
            await workflow.wait_condition(lambda: self.state() == "asking")
            workflow.upsert_memo({"state": "asking", "done": self.done()})
            await workflow.wait_condition(lambda: self.state() != "asking")
            if self.ended is None:
                workflow.upsert_memo({"state": "running", "done": self.done()})

    # --- Execution --------------------------------------------------------------------------

    def now(self) -> float:
        """The time in the history."""
        return workflow.time()

    async def record(
        self,
        step: Step,  # noqa: ARG002
        body: Callable[[], Awaitable[StepResult]],
    ) -> StepResult:
        """Run the body: Temporal records activities, and the rest is deterministic."""
        return await body()

    async def perform(self, call: StepCall) -> StepResult:
        """Run the step as an activity."""
        self.busy += 1
        try:
            packed: Any = await workflow.execute_activity(
                wire.ACTIVITY,
                wire.pack_call(call, self.large),
                activity_id=call.step.id,
                start_to_close_timeout=timedelta(days=365),  # the step's own is in `perform`
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=WORKER_LOSS_RETRY,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            return unpack(StepResult, packed)
        except ActivityError as exc:
            if is_cancelled_exception(exc) or isinstance(exc.cause, CancelledError):
                raise asyncio.CancelledError from exc
            return _lost_result(call, exc)
        finally:
            self.busy -= 1

    async def ask(self, step: Step, text: str) -> Answer | None:
        """Wait for the signal."""
        if step.id not in self.answers:
            text = wire.cut_text(text, self.large)  # a question must fit into a message as well
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
        """Record an answer; the first one wins."""
        event = self.asked.get(step)
        if event is not None and step not in self.answers:
            self.answers[step] = unpack(Answer, packed)
            event.set()

    @workflow.query(name=wire.PROGRESS)
    def progress_data(self) -> dict[str, Any]:
        """Everything but the plan."""
        report = self.ended or self.report(self.state())
        progress = {
            "state": report.state,
            "reason": report.reason,
            "started": report.started,
            "revision": report.revision,
            "results": pack_results(report.steps),
            "answers": {name: wire.json_digest(one) for name, one in self.answers.items()},
        }
        return pack_messages(progress)

    def report(self, state: GoalState) -> GoalReport:
        """The current report."""
        return report_of(
            self.goal,
            self.progress.all_results(),
            state,
            started=self.started,
            revision=self.task.revision,
        )

    def state(self) -> GoalState:
        """The current state; evaluated only when nothing else can proceed."""
        if self.ended is not None:
            return self.ended.state
        return "asking" if self.asked and not self.busy else "running"

    def done(self) -> int:
        """Number of steps that are done."""
        return sum(result.state == "done" for result in self.progress.results.values())


def _lost_result(call: StepCall, exc: ActivityError) -> StepResult:
    cause = exc.cause or exc
    why = str(getattr(cause, "message", None) or cause)
    error = StepError(
        "WORKER_LOST",
        Message("No worker brought it to an end: {why}", why=why[:1_900]),
        Message("Look at the workers' logs: the step may take their memory, or kill them"),
        retryable=False,
    )
    return StepResult(call.step.id, "failed", error=error)
