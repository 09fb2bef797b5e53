"""How far is a goal on Temporal? A worker is asked; where none answers, the history is read.

The server alone knows enough: the plan is in the first event, each result in an event of its own.
So a goal can be looked at with no worker anywhere, and after somebody ended its workflow by hand.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import say
from satchel._optional import require
from satchel.errors import NotFound
from satchel.goals.engines import _temporal_wire as wire
from satchel.goals.execute import answered
from satchel.goals.model import OVER, Answer, GoalSummary, StepResult
from satchel.goals.reports import last_sign, report_of, unpack, unpack_results

try:
    from temporalio.api.common.v1 import WorkflowExecution as WorkflowExecutionId
    from temporalio.api.enums.v1 import EventType
    from temporalio.api.workflowservice.v1 import (
        DeleteWorkflowExecutionRequest,
        DescribeNamespaceRequest,
    )
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
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes
    from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription

    from satchel.goals.model import GoalReport, GoalState

ASKED = timedelta(seconds=3)
"""How long a worker may take to answer before the history is read."""
KEPT = 512
"""Plans that are remembered."""
PAGE = 100
AGAIN = 0.2
"""Seconds between two looks at a list that is late."""
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
        found = await self._described(goal_id)
        if found is None or found.workflow_type != wire.WORKFLOW:
            raise missing(goal_id)
        return found

    async def _described(self, goal_id: str) -> WorkflowExecutionDescription | None:
        """The latest run that has the id, whatever it is."""
        try:
            return await self._client.get_workflow_handle(goal_id).describe()
        except RPCError as exc:
            if exc.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT}:
                return None
            raise

    async def closed(self, goal_id: str) -> datetime | None:
        """When the goal's latest run was over, if it is."""
        found = await self._described(goal_id)
        return None if found is None else found.close_time

    async def namespace(self) -> str:
        """What the server calls the namespace; no other one is called so."""
        request = DescribeNamespaceRequest(namespace=self._client.namespace)
        found = await self._client.workflow_service.describe_namespace(request)
        return found.namespace_info.id

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
        report = report_from(task, progress, found.close_time)
        return Look(report, task, progress["answers"], found.run_id)

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
            started=started, revision=task.revision, spent=task.spent,
            ended=found.close_time.timestamp() if found.close_time else 0.0,
        )  # fmt: skip
        marks = {name: wire.mark_of(answer) for name, answer in history.answers.items()}
        return Look(report, task, {**task.marks, **marks}, found.run_id)

    # --- the list ---------------------------------------------------------------------------

    async def list(
        self,
        states: Sequence[GoalState],
        limit: int,
        fresh: Iterable[str],
        before: float | None = None,
    ) -> list[GoalSummary]:
        """Those first that were submitted last.

        The server gives goals that run by the start of their latest run, and the others by when
        they ended, the latest first. Nothing was submitted after it started or ended: so who
        started or ended before all that is wanted was submitted need not be read.

        Args:
            states: Only these; all when empty.
            limit: As many at most.
            fresh: Goals that the server's list may not have yet.
            before: Only goals that were submitted before this moment.
        """
        latest = _Latest(states, limit, before)
        early = ""
        if before is not None:
            early = f" AND StartTime < '{datetime.fromtimestamp(before, UTC).isoformat()}'"
        seen = set(fresh)
        forgotten = await self._forgotten()
        latest.add(await self._lines(list(seen)))
        running, whole = await self._running(early, seen, None if states else limit)
        whole = whole and before is None
        if states and set(states) <= OVER:
            del running[PAGE:]  # only the latest may have ended a moment ago
        while running and not latest.is_before(running[0][0]):
            # The list may be late, and has no progress.
            latest.add(await self._lines([name for _, name in running[:PAGE]]))
            del running[:PAGE]
        if states and not set(states) & OVER:
            return latest.lines()
        async for run in self._rows(f"ExecutionStatus != 'Running'{early}"):
            if run.id in seen or run.status == WorkflowExecutionStatus.CONTINUED_AS_NEW:
                continue  # an earlier run of a goal that is already there
            if run.start_time.timestamp() < forgotten.get(run.id, 0.0):
                continue  # the server has not removed it yet
            if run.close_time is not None and latest.is_before(run.close_time.timestamp()):
                break
            seen.add(run.id)
            submitted = await _submitted(run)
            if whole:
                latest.add([(submitted, await _from_memo(run))])
            elif not latest.is_before(submitted):
                latest.add(await self._lines([run.id]))  # this may not be its latest run
        return latest.lines()

    async def _running(
        self, early: str, seen: set[str], enough: int | None
    ) -> tuple[list[tuple[float, str]], bool]:
        """Goals that run, and when they were submitted; and whether that is all of them.

        Args:
            early: Which of them.
            seen: Goals that are known already; these are added.
            enough: So many of the latest are enough; all of them are wanted when None.
        """
        found: list[tuple[float, str]] = []
        async for run in self._rows(f"ExecutionStatus = 'Running'{early}"):
            if run.id in seen:
                continue
            if enough is not None and len(found) >= enough + PAGE:
                began = run.start_time.timestamp()
                if began < heapq.nlargest(enough, found)[-1][0]:
                    return sorted(found, reverse=True), False
            seen.add(run.id)
            found.append((await _submitted(run), run.id))
        return sorted(found, reverse=True), True

    def _rows(self, which: str) -> AsyncIterator[WorkflowExecution]:
        query = f"WorkflowType = '{wire.WORKFLOW}' AND TaskQueue = '{self._queue}' AND {which}"
        return self._client.list_workflows(query, page_size=PAGE)

    async def _lines(self, ids: Sequence[str]) -> list[tuple[float, GoalSummary]]:
        lines = await asyncio.gather(*(self._now(name) for name in ids))
        return [line for line in lines if line]

    # --- the end ----------------------------------------------------------------------------

    async def is_forgotten(self, goal_id: str) -> bool:
        """Whether a goal was removed, and the server has not done it yet."""
        found = await self._described(goal_id)
        if found is None:
            return True  # it has, just now
        ended = found.status != WorkflowExecutionStatus.RUNNING
        return found.workflow_type == wire.FORGOTTEN and ended

    async def is_leaving(self, goal_id: str) -> bool:
        """Whether somebody removes it now."""
        found = await self._described(goal_id)
        return (
            found is not None
            and found.workflow_type == wire.FORGOTTEN
            and found.status == WorkflowExecutionStatus.RUNNING
        )

    async def removable(self, goal_id: str) -> WorkflowExecutionDescription:
        """The latest run of a goal that is to be removed, also when that was begun and broke off.

        Raises:
            NotFound: there is no such goal.
        """
        found = await self._described(goal_id)
        if found is None or found.workflow_type not in {wire.WORKFLOW, wire.FORGOTTEN}:
            raise missing(goal_id)
        if found.workflow_type == wire.FORGOTTEN and (
            found.status == WorkflowExecutionStatus.RUNNING or await self._why(found) == wire.GONE
        ):
            raise missing(goal_id)
        return found

    async def _why(self, found: WorkflowExecutionDescription) -> str:
        """What somebody said who ended a run."""
        handle = self._client.get_workflow_handle(found.id, run_id=found.run_id)
        said = ""
        async for event in handle.fetch_history_events():
            said = event.workflow_execution_terminated_event_attributes.reason
        return said

    async def _forgotten(self) -> dict[str, float]:
        """Goals that the server is removing -> since when; who removed them has any queue."""
        query = f"WorkflowType = '{wire.FORGOTTEN}'"
        found: dict[str, float] = {}
        async for run in self._client.list_workflows(query, page_size=PAGE):
            found[run.id] = max(run.start_time.timestamp(), found.get(run.id, 0.0))
        return found

    async def runs(self, goal_id: str, latest: str, patience: float) -> tuple[set[str], bool]:
        """All runs that have had an id, and whether it is certain that these are all.

        Each run names the one before. Those of an earlier version do not, so the server's list is
        read as well: it is late, but when it has the latest run, it has the others too.

        Args:
            goal_id: The id, as all queues have it.
            latest: The last of them.
            patience: Seconds that the list is waited for, when it is needed.
        """
        named, whole = await self._chain(goal_id, latest)
        # A goal's id has no quotes, or it would not be found.
        query = (
            f"WorkflowType IN ('{wire.WORKFLOW}', '{wire.FORGOTTEN}') AND WorkflowId = '{goal_id}'"
        )
        end = time.monotonic() + patience
        while True:
            rows = self._client.list_workflows(query, page_size=PAGE)
            found = {run.run_id async for run in rows}
            if whole or latest in found:
                return named | found, True
            if time.monotonic() > end:
                return named | found, False
            await asyncio.sleep(AGAIN)

    async def _chain(self, goal_id: str, run_id: str) -> tuple[set[str], bool]:
        """A run and those before it, as far as they say; and whether these are all."""
        found: set[str] = set()
        while True:
            found.add(run_id)
            try:
                began = await self._began(goal_id, run_id)
            except RPCError as exc:
                if exc.status != RPCStatusCode.NOT_FOUND:
                    raise
                return found, True  # the server has forgotten it, and so those before it
            memo = began.memo.fields
            before = began.continued_execution_run_id
            if not before and wire.PREVIOUS in memo:
                [before] = [str(one) for one in await self._decoded([memo[wire.PREVIOUS]])]
            if not before or before in found:
                ours = began.workflow_type.name == wire.WORKFLOW
                return found, ours and (await self.task(goal_id, run_id)).revision == 1
            run_id = before

    async def _began(self, goal_id: str, run_id: str) -> WorkflowExecutionStartedEventAttributes:
        """What the first event of a run says."""
        handle = self._client.get_workflow_handle(goal_id, run_id=run_id)
        events = handle.fetch_history_events(page_size=1)
        return (await anext(events)).workflow_execution_started_event_attributes

    async def delete(self, goal_id: str, runs: Iterable[str]) -> None:
        """Have the server remove runs; it does so when it has time."""
        for run in runs:
            execution = WorkflowExecutionId(workflow_id=goal_id, run_id=run)
            request = DeleteWorkflowExecutionRequest(
                namespace=self._client.namespace, workflow_execution=execution
            )
            try:
                await self._client.workflow_service.delete_workflow_execution(request)
            except RPCError as exc:
                if exc.status != RPCStatusCode.NOT_FOUND:  # it is gone already
                    raise
            self._tasks.pop(run, None)

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
        return await _submitted(run), line


class _Latest:
    """Those of many lines that were submitted last."""

    def __init__(
        self, states: Sequence[GoalState], limit: int, before: float | None = None
    ) -> None:
        self._states = states
        self._before = before
        self._limit = limit
        self._found: list[tuple[float, str, GoalSummary]] = []
        """A heap, the earliest first."""

    def add(self, lines: Iterable[tuple[float, GoalSummary]]) -> None:
        """Take those that belong to them."""
        for submitted, line in lines:
            fits = not self._states or line.state in self._states
            if fits and (self._before is None or submitted < self._before):
                heapq.heappush(self._found, (submitted, line.id, line))
                if len(self._found) > self._limit:
                    heapq.heappop(self._found)

    def is_before(self, moment: float) -> bool:
        """Whether there are enough that were submitted later than this."""
        return len(self._found) >= self._limit and moment < self._found[0][0]

    def lines(self) -> list[GoalSummary]:
        """The latest first."""
        return [line for _, _, line in sorted(self._found, reverse=True)]


async def _submitted(run: WorkflowExecution) -> float:
    """When a goal was submitted; its first run began at that moment, more or less."""
    return float((await run.memo()).get("submitted") or run.start_time.timestamp())


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


def report_from(
    task: wire.Task, progress: Mapping[str, Any], closed: datetime | None
) -> GoalReport:
    """A report from what the workflow says, which leaves the plan out.

    Args:
        task: The plan, and all that the workflow began with.
        progress: What it says.
        closed: When it was over, as the server knows it.
    """
    report = report_of(
        task.goal,
        unpack_results(progress["results"]),
        progress["state"],
        reason=progress["reason"],
        engine=ENGINE,
        started=progress["started"],
        revision=progress["revision"],
        spent=task.spent,
        ended=closed.timestamp() if closed else 0.0,
    )
    if report.state in OVER and closed is None:  # it is about to say so to the server
        return report._replace(ended=last_sign(report))
    return report


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
