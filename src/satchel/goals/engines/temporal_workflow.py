"""The workflow of the engine `temporal` and its messages; each step of a goal is an activity.

The plan is data, so this code seldom changes; where it must, `workflow.patched` keeps running goals
replayable. No user code runs here, only on workers (`temporal_worker`).

A message has at most 2 MB. The plan is limited, and the size from which an output becomes an
artifact depends on the number of steps: a plan and all its results fit into one message, as a query
and a new revision need it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    CancelledError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

from satchel.errors import InvalidInput
from satchel.goals.artifacts import is_reference
from satchel.goals.executor import RunProgress, execute
from satchel.goals.model import Answer, Goal, StepError, StepResult
from satchel.goals.reports import NESTED_RECORDS, pack, report_of, unpack
from satchel.goals.substeps import max_step_count
from satchel.goals.telemetry import report_end
from satchel.goals.templates import references_of
from satchel.i18n import Message, pack_messages, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from satchel.goals.model import GoalReport, GoalState, Step, StepCall

WORKFLOW = "satchel.goal"
FIRING = "satchel.firing"
ACTIVITY = "satchel.step"
ANSWER = "answer"
"""Update: records an answer, or refuses it."""
RESERVE = "reserve"
"""Update: prepares a goal that asks for its next revision, or refuses."""
RESERVED_S = 30.0
"""How long a retry has to replace a goal that asks; answers are refused meanwhile."""
PROGRESS = "progress"
"""Query for everything but the plan."""

MAX_MESSAGE_BYTES = 1_900_000
"""Limit of a plan with everything that belongs to it."""
MAX_ANSWER_BYTES = 100_000
"""Reserved for answers, however large the plan is."""
STEP_BYTES = 300
"""Size of a result without its output."""
MAX_RESULTS_BYTES = 300_000
"""Limit of all outputs of a goal, outside of artifacts."""
MIN_ARTIFACT_BYTES = 150
"""Smaller outputs never become artifacts: the reference would be as long."""


class Task(NamedTuple):
    """The input of a workflow: a revision of a goal, and its known results."""

    goal: Goal
    revision: int = 1
    known: Mapping[str, StepResult] = {}
    answers: Mapping[str, Answer] = {}
    started: float = 0.0
    """Time of the goal's first run; 0 before it."""


NESTED_RECORDS[Task] = {"goal": Goal, "known": StepResult, "answers": Answer}


def pack_call(call: StepCall, large: int) -> dict[str, Any]:
    """Pack a call with only the inputs that its step uses: every call is kept in the history."""
    references = list(references_of(call.step))
    names = {reference.name for reference in references if reference.kind == "inputs"}
    call = call._replace(
        inputs={name: value for name, value in call.inputs.items() if name in names},
        text=call.text if any(reference.kind == "goal" for reference in references) else "",
    )
    return {"call": pack(call), "large": large}


def artifact_threshold(steps: int) -> int:
    """The size in bytes from which an output becomes an artifact."""
    return max(MIN_ARTIFACT_BYTES, MAX_RESULTS_BYTES // max(1, steps))


def shorten_result(result: StepResult, large: int) -> StepResult:
    """Shorten the texts of a result to leave room for those of the other steps."""
    max_bytes = max(MIN_ARTIFACT_BYTES, large // 4)
    output, error, notes = result.output, result.error, result.notes
    if is_reference(output):
        output = {**output, "head": cut_text(str(output.get("head", "")), max_bytes)}
    if error is not None:
        error = error._replace(message=cut_text(error.message, max_bytes))
    notes = tuple(cut_text(note, max_bytes // len(notes)) for note in notes)
    return result._replace(output=output, error=error, notes=notes)


def cut_text(text: str, max_bytes: int) -> str:
    """Cut a text to a number of bytes, plus the mark of the cut."""
    data = text.encode("utf-8", "surrogatepass")
    return text if len(data) <= max_bytes else data[:max_bytes].decode("utf-8", "ignore") + "…"


def require_size(goal: Goal, answers: int = MAX_ANSWER_BYTES) -> None:
    """Refuse a plan and answers that exceed Temporal's message limit.

    Raises:
        InvalidInput: it is too large.
    """
    steps = max_step_count(goal.plan)
    room = STEP_BYTES + 2 * artifact_threshold(steps)  # as JSON, Chinese takes twice as much
    taken = len(json.dumps(pack(goal))) + room * steps + answers
    if taken > MAX_MESSAGE_BYTES:
        over = f"{taken - MAX_MESSAGE_BYTES:,}"
        raise InvalidInput(
            say(
                "The plan with its answers has {over} bytes more than Temporal can carry", over=over
            ),
            say("Put long texts into files, or use the engine `dbos`"),
        )


def json_digest(record: Any) -> str:
    """A digest for comparing answers or plans."""
    text = json.dumps(pack(record), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def memo_of(goal: Goal, first: str, submitted: float) -> dict[str, Any]:
    """What is stored with the workflow of a goal, readable without its history.

    Args:
        goal: The goal.
        first: The digest of the plan of its first revision.
        submitted: When it was submitted.
    """
    return {
        "goal": goal.plan.goal[:200],  # for people who look into Temporal
        "plan": json_digest(goal.plan),
        "first": first,
        "submitted": submitted,
        "asks": any(step.action_type == "human" for step in goal.plan.steps),
    }


HEARTBEAT_TIMEOUT = timedelta(seconds=10)
"""A step whose worker sends no heartbeat for so long is given to another one."""
WORKER_LOSS_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=5)
)
"""For lost workers only: a failed step is a result, also one that kills its workers."""


@workflow.defn(name=WORKFLOW, sandboxed=False)
class GoalWorkflow:
    """One revision of a goal; also the `Execution` of this engine."""

    @workflow.init
    def __init__(self, packed: dict[str, Any]) -> None:
        task = self.task = unpack(Task, packed)
        self.goal = task.goal
        plan = task.goal.plan
        self.artifact_bytes = artifact_threshold(max_step_count(plan))
        self.answers = dict(task.answers)
        self.progress = RunProgress()
        self.progress.results.update(task.known)
        self.open_questions: dict[str, asyncio.Event] = {}
        """Step that asks -> the event that wakes it."""
        self.running_activities = 0
        self.has_questions = any(step.action_type == "human" for step in plan.steps)
        self.started = task.started
        self.ended: GoalReport | None = None
        self.reserved_until = 0.0
        """Until when a retry may replace this run."""

    @workflow.run
    async def run(self, packed: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - as in `init`
        """Run the goal to its end."""
        self.started = self.started or self.now()
        notice = asyncio.create_task(self.update_memo()) if self.has_questions else None
        try:
            report = await execute(
                self.goal,
                self,
                known_results=self.task.known,
                answers=self.task.answers,
                revision=self.task.revision,
                started=self.started,
                progress=self.progress,
            )
        except asyncio.CancelledError:
            report = self.report("cancelled")
        finally:
            if notice is not None:
                notice.cancel()
        self.ended = report
        if not workflow.unsafe.is_replaying():
            report_end("temporal", self.goal.id, report.state, report.seconds)
        # A goal that simply ended as `done` needs no memo: each one is a write for the server.
        if report.state != "done" or self.has_questions or self.task.started:
            workflow.upsert_memo({"state": report.state})
        return self.progress_data()

    async def update_memo(self) -> None:
        """Record in the memo whether it asks."""
        while True:
            await workflow.wait_condition(lambda: self.state() == "asking")
            workflow.upsert_memo({"state": "asking"})
            await workflow.wait_condition(lambda: self.state() != "asking")
            if self.ended is None:
                workflow.upsert_memo({"state": "running"})

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
        self.running_activities += 1
        try:
            packed: Any = await workflow.execute_activity(
                ACTIVITY,
                pack_call(call, self.artifact_bytes),
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
            self.running_activities -= 1

    async def ask(self, step: Step, text: str) -> Answer | None:
        """Wait for the signal."""
        if step.id not in self.answers:
            text = cut_text(text, self.artifact_bytes)  # a question must fit into a message as well
            asking = StepResult(step.id, "asking", text, started=self.now())
            self.progress.results[step.id] = asking
            event = self.open_questions[step.id] = asyncio.Event()
            try:
                await event.wait()
            finally:
                del self.open_questions[step.id]
        return self.answers[step.id]

    # --- updates and queries ----------------------------------------------------------------

    @workflow.signal(name=ANSWER)
    def signal_answer(self, step: str, packed: dict[str, Any]) -> None:
        """Record an answer in the history of an earlier version."""
        event = self.open_questions.get(step)
        if event is not None and step not in self.answers:
            self.answers[step] = unpack(Answer, packed)
            event.set()

    @workflow.update(name=ANSWER)
    def answer(self, step: str, packed: dict[str, Any]) -> None:
        """Record an answer; the first one wins."""
        if step not in self.answers:
            self.answers[step] = unpack(Answer, packed)
            self.open_questions[step].set()

    @answer.validator
    def check_answer(self, step: str, packed: dict[str, Any]) -> None:
        """Refuse an answer that nothing waits for, and one that differs from the recorded one."""
        recorded = self.answers.get(step)
        if recorded is not None and recorded != unpack(Answer, packed):
            raise ValueError("it has another answer")
        if recorded is None and (step not in self.open_questions or self.is_reserved()):
            raise ValueError("it does not ask")

    @workflow.update(name=RESERVE)
    def reserve(self, revision: int) -> None:  # noqa: ARG002 - for the check
        """Accept no answers for a moment, in which a retry replaces this run."""
        self.reserved_until = self.now() + RESERVED_S

    @reserve.validator
    def check_reservation(self, revision: int) -> None:
        """Refuse when the goal runs, is at another revision, or is reserved."""
        answered = any(step in self.answers for step in self.open_questions)
        if answered or revision != self.task.revision or self.state() != "asking":
            raise ValueError("it was changed")
        if self.is_reserved():
            raise ValueError("another retry is first")

    def is_reserved(self) -> bool:
        """Whether a retry is about to replace this run."""
        return self.now() < self.reserved_until

    @workflow.query(name=PROGRESS)
    def progress_data(self) -> dict[str, Any]:
        """Everything but the plan."""
        report = self.ended or self.report(self.state())
        progress = {
            "state": report.state,
            "reason": report.reason,
            "started": report.started,
            "revision": report.revision,
            "results": {name: pack(result) for name, result in report.results.items()},
            "answers": {name: json_digest(answer) for name, answer in self.answers.items()},
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
        return "asking" if self.open_questions and not self.running_activities else "running"


@workflow.defn(name=FIRING, sandboxed=False)
class FiringWorkflow:
    """Starts a goal of a schedule.

    The schedule does not start the goal itself, since the server adds a time with colons to the id
    of what it starts.
    """

    @workflow.run
    async def run(self, packed: dict[str, Any]) -> None:
        """Start the goal, unless it was started."""
        goal = unpack(Goal, packed)._replace(id=workflow.info().workflow_id.replace(":", ""))
        with suppress(WorkflowAlreadyStartedError):
            await workflow.start_child_workflow(
                WORKFLOW,
                pack(Task(goal)),
                id=goal.id,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                priority=Priority(priority_key=goal.priority),
                memo=memo_of(goal, json_digest(goal.plan), workflow.time()),
            )


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
