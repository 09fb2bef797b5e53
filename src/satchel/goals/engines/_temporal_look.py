"""How far is a goal on Temporal? A worker is asked; where none answers, the history is read.

The server alone knows enough: the plan is in the first event, each result in an event of its own.
So a goal can be looked at with no worker anywhere, and after somebody ended its workflow by hand.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import say
from satchel._optional import require
from satchel.errors import NotFound
from satchel.goals.engines import _temporal_wire as wire
from satchel.goals.execute import answered
from satchel.goals.model import OVER, Answer, GoalSummary, StepResult
from satchel.goals.reports import report_of, unpack, unpack_results

try:
    from temporalio.api.enums.v1 import EventType
    from temporalio.client import (
        WorkflowExecutionStatus,
        WorkflowQueryFailedError,
        WorkflowQueryRejectedError,
    )
    from temporalio.service import RPCError, RPCStatusCode
except ImportError:
    require("temporalio", "temporal")
    raise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from temporalio.api.history.v1 import HistoryEvent
    from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription

    from satchel.goals.model import GoalReport, GoalState

ASKED = timedelta(seconds=3)
"""How long a worker may take to answer before the history is read."""
KEPT = 512
"""Plans that are remembered."""
PAGE = 100
_WHY = 500
"""Characters of an error of the worker's that a reason has."""
ENGINE = "temporal"
_ENDED: dict[WorkflowExecutionStatus, GoalState] = {
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "cancelled",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.TIMED_OUT: "failed",
}
"""Ends that are not the workflow's own: somebody outside did it."""


class Look(NamedTuple):
    """A goal as it was found."""

    report: GoalReport
    task: wire.Task
    answers: Mapping[str, str]
    """Step -> the mark of what was said to it."""
    run_id: str


class Looker:
    """Reads goals of one queue."""

    def __init__(self, client: Client, queue: str) -> None:
        self._client = client
        self._queue = queue
        self._tasks: dict[str, wire.Task] = {}

    async def describe(self, goal_id: str) -> WorkflowExecutionDescription:
        """What the server says of the goal's latest run.

        Raises:
            NotFound: there is no such goal.
        """
        try:
            found = await self._client.get_workflow_handle(goal_id).describe()
        except RPCError as exc:
            if exc.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT}:
                raise missing(goal_id) from exc
            raise
        if found.workflow_type != wire.WORKFLOW:
            raise missing(goal_id)
        return found

    async def look(self, goal_id: str) -> Look:
        """Everything that is known of a goal.

        Raises:
            NotFound: there is no such goal.
        """
        found = await self.describe(goal_id)
        task = await self.task(goal_id, found.run_id)
        status = found.status
        progress: Any = None
        why: list[str] = []
        if status == WorkflowExecutionStatus.COMPLETED:
            handle = self._client.get_workflow_handle(goal_id, run_id=found.run_id)
            progress = await handle.result(follow_runs=False)
        elif status == WorkflowExecutionStatus.RUNNING and found.history_length > 2:
            progress = await self.ask(goal_id, found.run_id, wire.PROGRESS, why=why)
        if progress is None:
            return await self._read(found, task, "; ".join(why))
        return Look(report_from(task, progress), task, progress["answers"], found.run_id)

    async def ask(
        self, goal_id: str, run_id: str, query: str, *values: Any, why: list[str] | None = None
    ) -> Any:
        """What a worker says; None when none does, or none can.

        Args:
            goal_id: Whom to ask about.
            run_id: The same.
            query: What to ask.
            values: What belongs to it.
            why: Gets the reason when a worker was there and could not say it.
        """
        handle = self._client.get_workflow_handle(goal_id, run_id=run_id)
        try:
            return await handle.query(query, args=values, rpc_timeout=ASKED)
        except WorkflowQueryFailedError as exc:
            if why is not None:
                why.append(exc.message)
            return None
        except WorkflowQueryRejectedError:
            return None
        except RPCError as exc:
            if exc.status in {RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNAUTHENTICATED}:
                raise
            return None  # nobody works on this queue, or the workflow was just replaced

    async def task(self, goal_id: str, run_id: str) -> wire.Task:
        """What a run began with: it never changes, so it is read once."""
        known = self._tasks.get(run_id)
        if known is None:
            handle = self._client.get_workflow_handle(goal_id, run_id=run_id)
            async for event in handle.fetch_history_events(page_size=1):
                payloads = event.workflow_execution_started_event_attributes.input.payloads
                known = wire.unpack_task((await self._decoded(payloads))[0])
                break
            if known is None:
                raise missing(goal_id)
            self.remember(run_id, known)
        return known

    def remember(self, run_id: str, task: wire.Task) -> None:
        """Keep what a run began with; of many the oldest are forgotten."""
        while len(self._tasks) >= KEPT:
            del self._tasks[next(iter(self._tasks))]
        self._tasks[run_id] = task

    async def _decoded(self, payloads: Sequence[Any]) -> list[Any]:
        return await self._client.data_converter.decode(payloads)

    # --- the history ------------------------------------------------------------------------

    async def stuck(self, found: WorkflowExecutionDescription) -> str:
        """Why a workflow that runs cannot go on; empty when it can."""
        if found.raw_description.pending_workflow_task.attempt <= 1:
            return ""  # its last turn was a good one
        task = await self.task(found.id, found.run_id)
        return (await self._history(found, task)).stuck

    async def _history(self, found: WorkflowExecutionDescription, task: wire.Task) -> _History:
        handle = self._client.get_workflow_handle(found.id, run_id=found.run_id)
        history = _History(task)
        async for event in handle.fetch_history_events():
            await history.add(event, self._decoded)
        return history

    async def _read(
        self, found: WorkflowExecutionDescription, task: wire.Task, why: str = ""
    ) -> Look:
        history = await self._history(found, task)
        ended = _ENDED.get(found.status) if found.status is not None else None
        state, reason = ended or history.state(), history.reason
        if not ended and (history.stuck or why):
            # A worker is there: whether people are asked is for it to say, and it cannot.
            state = "running"
            reason = say(
                "Its workflow cannot say how far it is: {why}", why=(history.stuck or why)[:_WHY]
            )
        started = task.started or (history.began and found.start_time.timestamp())
        report = report_of(
            task.goal, history.results, state, reason=reason, engine=ENGINE,
            started=started, revision=task.revision,
        )  # fmt: skip
        marks = {name: wire.mark_of(answer) for name, answer in history.answers.items()}
        return Look(report, task, {**task.marks, **marks}, found.run_id)

    # --- the list ---------------------------------------------------------------------------

    async def list(
        self, states: Sequence[GoalState], limit: int, fresh: Iterable[str]
    ) -> list[GoalSummary]:
        """The latest goals first.

        Args:
            states: Only these; all when empty.
            limit: As many at most.
            fresh: Goals that the server's list may not have yet.
        """
        query = f"WorkflowType = '{wire.WORKFLOW}' AND TaskQueue = '{self._queue}'"
        if states and not set(states) & OVER:
            query += " AND ExecutionStatus = 'Running'"
        seen: set[str] = set()
        found: list[tuple[float, GoalSummary]] = []

        async def add(ids: Sequence[str]) -> None:
            lines = await asyncio.gather(*(self._now(name) for name in ids))
            found.extend(line for line in lines if line and (not states or line[1].state in states))

        seen.update(fresh)
        await add(list(seen))
        running: list[str] = []
        async for run in self._client.list_workflows(query, page_size=PAGE):
            if run.id in seen or run.status == WorkflowExecutionStatus.CONTINUED_AS_NEW:
                continue  # an earlier run of a goal that is already there
            seen.add(run.id)
            if run.status == WorkflowExecutionStatus.RUNNING:
                running.append(run.id)  # the list may be late, and has no progress
            else:
                line = await _from_memo(run)
                if not states or line.state in states:
                    found.append((run.start_time.timestamp(), line))
            if len(running) >= PAGE:
                await add(running)
                running.clear()
            if len(found) + len(running) >= limit + PAGE or len(found) >= limit:
                break
        await add(running)
        found.sort(key=lambda one: one[0], reverse=True)
        return [line for _, line in found[:limit]]

    async def _now(self, goal_id: str) -> tuple[float, GoalSummary] | None:
        """A line of the list as it is now."""
        try:
            run = await self.describe(goal_id)
        except NotFound:
            return None
        line = await _from_memo(run)
        if run.status == WorkflowExecutionStatus.RUNNING and run.history_length > 2:
            said = await self.ask(goal_id, run.run_id, wire.SUMMARY)
            if said is not None:
                line = line._replace(**said)
        return run.start_time.timestamp(), line


async def _from_memo(run: WorkflowExecution) -> GoalSummary:
    """A line of the list; a workflow that only says that it is completed is `done`."""
    memo = await run.memo()
    steps = memo.get("steps", 0)
    started, seconds, done = memo.get("started", 0.0), memo.get("seconds", 0.0), memo.get("done", 0)
    state = memo.get("state") or "queued"
    if run.status == WorkflowExecutionStatus.COMPLETED and "seconds" not in memo:
        started, state, done = run.start_time.timestamp(), "done", steps
        seconds = run.close_time.timestamp() - started if run.close_time else 0.0
    elif run.status is not None:
        state = _ENDED.get(run.status, state)
    return GoalSummary(
        run.id,
        cast("GoalState", state),
        memo.get("goal", ""),
        ENGINE,
        started,
        seconds,
        done,
        steps,
    )


def report_from(task: wire.Task, progress: Mapping[str, Any]) -> GoalReport:
    """A report from what the workflow says, which leaves the plan out."""
    return report_of(
        task.goal,
        unpack_results(progress["results"]),
        progress["state"],
        reason=progress["reason"],
        engine=ENGINE,
        started=progress["started"],
        revision=progress["revision"],
    )


def missing(goal_id: str) -> NotFound:
    """There is no such goal."""
    return NotFound(
        say("There is no goal `{goal}`", goal=goal_id), say("Run `satchel goal list` to see them")
    )


class _History:
    """What the events of one run say, without the workflow's code."""

    def __init__(self, task: wire.Task) -> None:
        self._steps = {step.id: step for step in task.goal.plan.steps}
        self._scheduled: dict[int, str] = {}
        self.results: dict[str, StepResult] = dict(task.known)
        self.answers: dict[str, Answer] = dict(task.answers)
        self.began = False
        self.reason = ""
        self.stuck = ""
        """Why its last turn failed: Temporal repeats it until it does not."""

    async def add(self, event: HistoryEvent, decoded: Any) -> None:
        """Take one event into account."""
        kind = event.event_type
        at = event.event_time.ToMicroseconds() / 1e6
        if kind == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            self.began, self.stuck = True, ""
        elif kind == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            failure = event.workflow_task_failed_event_attributes.failure
            self.stuck = failure.message or say("its worker does not say why")
        elif kind == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            name = event.activity_task_scheduled_event_attributes.activity_id
            self._scheduled[event.event_id] = name
            self.results[name] = StepResult(name, "running", started=at)
        elif kind == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            done = event.activity_task_completed_event_attributes
            [packed] = await decoded(done.result.payloads)
            self.results[self._scheduled[done.scheduled_event_id]] = unpack(StepResult, packed)
        elif kind == EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
            gone = event.activity_task_canceled_event_attributes
            name = self._scheduled[gone.scheduled_event_id]
            self.results[name] = StepResult(name, "cancelled")
        elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            signal = event.workflow_execution_signaled_event_attributes
            if signal.signal_name == wire.ANSWER:
                name, packed = await decoded(signal.input.payloads)
                self._answer(name, unpack(Answer, packed), at)
        elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
            self.reason = event.workflow_execution_terminated_event_attributes.reason
        elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            self.reason = event.workflow_execution_failed_event_attributes.failure.message

    def _answer(self, name: str, answer: Answer, at: float) -> None:
        step = self._steps.get(name)
        if step is not None and name not in self.answers:
            self.answers[name] = answer
            self.results[name] = answered(step, answer, at, at)

    def state(self) -> GoalState:
        """As far as it can be told: who asks is not in the history."""
        if not self.began:
            return "queued"
        busy = any(result.state == "running" for result in self.results.values())
        people = any(
            step.action_type == "human" and name not in self.results
            for name, step in self._steps.items()
        )
        return "asking" if people and not busy else "running"
