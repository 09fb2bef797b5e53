"""The engine `temporal`: each goal is a workflow, each step an activity.

    async with TemporalEngine(runner, address="127.0.0.1:7233") as engine:
        await engine.submit(goal)
        report = await engine.wait(goal.id)

The goal's id is the workflow's id; a new revision is a new run. The server needs only a namespace:
a worker answers queries for the progress of a goal; without one only the plan, the memo and the
state of the workflow are known. The server removes goals when the retention of their namespace
ends; their large outputs stay. Workers on several machines need a shared folder for those.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import wraps
from math import inf
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from temporalio import client as sdk
from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueRequest
from temporalio.client import (
    Client,
    WorkflowContinuedAsNewError,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from satchel.errors import Conflict, NotFound, Refused, ServerFailed
from satchel.goals import approvals
from satchel.goals.artifacts import FolderArtifacts, digest_of
from satchel.goals.engines import base
from satchel.goals.engines import temporal_workflow as wire
from satchel.goals.model import FINAL_GOAL_STATES, Schedule, StepBegun, StepResult
from satchel.goals.plan_checks import require_valid
from satchel.goals.reports import add_begun, pack, report_of, summary_of, unpack
from satchel.goals.status import DAY_S, GoalStatus, WorkerStatus
from satchel.goals.step_runner import StepContext
from satchel.i18n import say, unpack_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
    from types import CoroutineType

    from temporalio.client import WorkflowExecution, WorkflowExecutionDescription, WorkflowHandle

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.engines.temporal_worker import StepWorker
    from satchel.goals.model import (
        Answer,
        Goal,
        GoalReport,
        GoalState,
        GoalSummary,
        Plan,
        StepRunner,
    )

# A thread of the SDK that returns to Python while the interpreter exits aborts the process
# (temporalio/sdk-python#300).
atexit.register(time.sleep, 0.3)

_P = ParamSpec("_P")
_T = TypeVar("_T")
ENGINE = "temporal"
_SCHEDULE = "satchel:"
"""What the id of a schedule begins with; its name follows."""
QUERY_TIMEOUT = timedelta(seconds=3)
_UPDATE_TIMEOUT = timedelta(seconds=10)
_POLLER_TIMEOUT_S = 90.0
"""A worker asks for steps at least once a minute; the server lists it for five."""
_MAX_GOALS_READ = 1_000
"""Of more open goals the status does not read which ones ask."""
_HEALTH_TIMEOUT = timedelta(seconds=2)
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.05, 0.5
"""Between two looks at a goal that may ask."""
_LONG_POLL_S = 20.0
_MAX_TASK_ATTEMPTS = 2
"""A workflow whose task was attempted more often than this cannot continue."""
_FORCED_STATES: dict[WorkflowExecutionStatus | None, GoalState] = {
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "cancelled",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.TIMED_OUT: "failed",
}
"""Ends that the workflow did not decide itself."""


class TemporalGoal(NamedTuple):
    """A goal as the server has it."""

    report: GoalReport
    task: wire.Task
    answers: Mapping[str, str]
    """Step -> digest of its answer."""
    run: WorkflowExecutionDescription


@contextmanager
def _ignore_missing() -> Generator[None]:
    """Ignore that a workflow does not exist, or has ended."""
    try:
        yield
    except RPCError as exc:
        if exc.status != RPCStatusCode.NOT_FOUND:
            raise


def translate_errors(
    method: Callable[Concatenate[TemporalEngine, _P], Awaitable[_T]],
) -> Callable[Concatenate[TemporalEngine, _P], CoroutineType[Any, Any, _T]]:
    """Decorator of engine methods: converts errors of the SDK."""

    @wraps(method)
    async def outer(self: TemporalEngine, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await method(self, *args, **kwargs)
        except RPCError as exc:
            raise ServerFailed(
                say("Temporal's server failed: {why}", why=exc.message or exc.status.name),
                say("Start it, or correct its address in the setting `engine`"),
            ) from exc

    return outer


async def connect(address: str, namespace: str) -> Client:
    """Connect a client, with Temporal's own settings where the arguments are empty.

    Raises:
        ServerFailed: there is no server.
    """
    options: Any = {"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()}
    options |= {"target_host": address} if address else {}
    options |= {"namespace": namespace} if namespace else {}
    try:
        return await Client.connect(**options)
    except (RuntimeError, RPCError) as exc:
        raise ServerFailed(
            say("There is no Temporal server at `{address}`", address=options["target_host"]),
            say("Start it, or correct its address in the setting `engine`"),
        ) from exc


class TemporalEngine:
    """Runs goals on a Temporal server.

    Args:
        runner: Runs steps; with one, this process is a worker while the engine is open.
        folder: Folder of large outputs, one subfolder per namespace; a temporary one when empty.
        address: Server address; from Temporal's own settings (`TEMPORAL_ADDRESS`, …) when empty.
        namespace: The same.
        queue: Connects goals and workers.
        at_once: Maximum number of concurrent steps of this worker.
        client: A connected client, for example with its own encryption or certificates.
    """

    name = ENGINE

    def __init__(
        self,
        runner: StepRunner | None = None,
        folder: str = "",
        *,
        address: str = "",
        namespace: str = "",
        queue: str = "satchel",
        at_once: int = 100,
        client: Client | None = None,
    ) -> None:
        self.artifacts: Artifacts
        self._outputs: FolderArtifacts
        self._folder = folder
        self._temporary: TemporaryDirectory[str] | None = None
        self._runner = runner
        self._address = address
        self._namespace = namespace
        self._queue = queue
        self._at_once = at_once
        self._custom_client = client
        self._client: Client | None = None
        self._worker: StepWorker | None = None

    async def __aenter__(self) -> Self:
        client = self._custom_client or await connect(self._address, self._namespace)
        self._client = client
        self._temporary = None if self._folder else TemporaryDirectory(prefix="satchel-goals-")
        self.artifacts = self._outputs = FolderArtifacts(await self._artifacts_folder())
        if self._runner is not None:
            from satchel.goals.engines.temporal_worker import StepWorker

            context = StepContext(
                self._runner, self.artifacts, suspects=asyncio.Lock(), engine=ENGINE
            )
            self._worker = StepWorker(client, self._queue, context, self._at_once)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close; the next worker continues what runs here."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()
        self._client = None
        if self._temporary is not None:
            self._temporary.cleanup()

    @translate_errors
    async def _artifacts_folder(self) -> str:
        """The folder of large outputs: a goal's id is unique only in its namespace."""
        name = self._connected.namespace
        request = DescribeNamespaceRequest(namespace=name)
        description = await self._connected.workflow_service.describe_namespace(request)
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:40].strip("-") or "namespace"
        digest = digest_of(description.namespace_info.id.encode())
        folder = self._temporary.name if self._temporary else self._folder
        return os.path.join(folder, f"{readable}-{digest[:12]}")

    # --- starting ---------------------------------------------------------------------------

    @translate_errors
    async def submit(self, goal: Goal) -> GoalReport:
        """Start a goal."""
        require_valid(goal)
        wire.require_size(goal)
        mark = wire.json_digest(goal.plan)
        try:
            await self._start(
                wire.Task(goal), mark, WorkflowIDReusePolicy.REJECT_DUPLICATE, submitted=time.time()
            )
        except WorkflowAlreadyStartedError:
            memo: Mapping[str, Any] = await (await self._describe(goal.id)).memo()
            if mark not in {memo.get("plan"), memo.get("first")}:
                raise base.plan_conflict(goal.id) from None
            return await self.report(goal.id)
        return report_of(goal, {}, "queued", engine=ENGINE)

    async def _start(
        self,
        task: wire.Task,
        first: str,
        reuse: WorkflowIDReusePolicy,
        conflict: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.FAIL,
        *,
        submitted: float,
    ) -> None:
        goal = task.goal
        await self._connected.start_workflow(
            wire.WORKFLOW,
            pack(task),
            id=goal.id,
            task_queue=self._queue,
            id_reuse_policy=reuse,
            id_conflict_policy=conflict,
            priority=Priority(priority_key=goal.priority),
            memo=wire.memo_of(goal, first, submitted),
        )

    async def _update(self, run: WorkflowExecution, name: str, *args: Any) -> None:
        """Change a run that asks.

        Raises:
            Conflict: it does not ask any more, or not for this.
            ServerFailed: no worker answers.
        """
        handle: Any = self._handle(run)
        try:
            await handle.execute_update(name, args=args, rpc_timeout=_UPDATE_TIMEOUT)
        except WorkflowUpdateFailedError:
            raise base.goal_changed(run.id) from None
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            raise ServerFailed(say("No worker answers: start one"), say("Try again")) from None
        except RPCError as exc:
            # The run has ended, or is just ending.
            if exc.status not in {RPCStatusCode.NOT_FOUND, RPCStatusCode.RESOURCE_EXHAUSTED}:
                raise
            raise base.goal_changed(run.id) from None

    async def resume(self, goal_id: str) -> GoalReport:
        """Return the report: the server itself moves the steps of a dead worker to the next one."""
        report = await self.report(goal_id)
        if report.state == "cancelled":
            raise base.goal_cancelled(goal_id)
        return report

    @translate_errors
    async def retry(
        self,
        goal_id: str,
        *,
        from_step: str = "",
        plan: Plan | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> GoalReport:
        """Start a new revision of a goal that is over or asks."""
        await base.wait_until_cancelled(goal_id, lambda: self.report(goal_id))
        current = await self._inspect(goal_id)
        report = current.report
        if report.state not in base.AT_REST:
            raise base.goal_running(goal_id)
        goal, results = base.new_revision(
            current.task.goal, report.results, plan, from_step, versions
        )
        wire.require_size(goal)
        memo: Mapping[str, Any] = await current.run.memo()
        task = current.task._replace(
            goal=goal, revision=report.revision + 1, known=results, answers={},
            started=report.started,
        )  # fmt: skip
        conflict = WorkflowIDConflictPolicy.FAIL
        if report.state == "asking":  # its workflow is idle, and is replaced
            await self._update(current.run, wire.RESERVE, report.revision)
            conflict = WorkflowIDConflictPolicy.TERMINATE_EXISTING
        try:
            await self._start(
                task, memo.get("first", ""), WorkflowIDReusePolicy.ALLOW_DUPLICATE, conflict,
                submitted=memo.get("submitted") or current.run.start_time.timestamp(),
            )  # fmt: skip
        except WorkflowAlreadyStartedError:
            raise base.goal_changed(goal_id) from None
        return report_of(
            goal, results, "queued", engine=ENGINE, started=task.started, revision=task.revision
        )

    @translate_errors
    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Record an answer and continue the goal."""
        current = await self._inspect(goal_id)
        if not approvals.is_new_answer(
            current.report, step, answer, _recorded_answer(current, step, answer)
        ):
            return
        steps = current.report.steps.values()
        answers = [json.dumps(result.output) for result in steps if result.step in current.answers]
        size = sum(map(len, [*answers, json.dumps(pack(answer))]))
        wire.require_size(current.task.goal, size)
        try:
            await self._update(current.run, wire.ANSWER, step, pack(answer))
        except Conflict:
            again = await self._inspect(goal_id)
            # Raises a refusal that says what the step has become.
            approvals.is_new_answer(
                again.report, step, answer, _recorded_answer(again, step, answer)
            )
            raise

    @translate_errors
    async def cancel(self, goal_id: str) -> None:
        """Cancel a goal; a workflow that cannot continue is terminated."""
        description = await self._describe(goal_id)
        stuck = description.raw_description.pending_workflow_task.attempt > _MAX_TASK_ATTEMPTS
        handle = self._connected.get_workflow_handle(goal_id)  # also a revision of this moment
        with _ignore_missing():
            if stuck:
                await handle.terminate(reason="cancelled")
            else:
                await handle.cancel()

    async def forget(self, goal_id: str) -> None:
        """Raise: the server removes goals by itself."""
        command = f"temporal workflow delete --workflow-id {quote(goal_id)}"
        raise Refused(
            say("Temporal removes goals when the retention of their namespace ends"),
            say("Run `{command}`", command=command),
        )

    @translate_errors
    async def ended_before(self, moment: float) -> Sequence[str]:
        """The goals that the server has removed, and whose outputs are older than a moment."""
        removed: list[str] = []
        for goal_id in await asyncio.to_thread(self._outputs.older_goals, moment):
            try:
                await self._describe(goal_id)
            except NotFound:
                removed.append(goal_id)
        return removed

    async def forget_all(self, goal_ids: Sequence[str]) -> Sequence[str]:
        """Remove the large outputs of goals that the server has removed."""
        for goal_id in goal_ids:
            await self.artifacts.forget(goal_id)
        return goal_ids

    # --- schedules --------------------------------------------------------------------------

    @translate_errors
    async def schedule(self, goal: Goal, cron: str) -> None:
        """Make or replace a schedule; the server starts its goals."""
        base.require_valid_schedule(goal)
        wire.require_size(goal)
        schedule = sdk.Schedule(
            sdk.ScheduleActionStartWorkflow(
                wire.FIRING, pack(goal), id=goal.id, task_queue=self._queue
            ),
            sdk.ScheduleSpec(cron_expressions=[cron]),
            sdk.SchedulePolicy(overlap=sdk.ScheduleOverlapPolicy.ALLOW_ALL),
            sdk.ScheduleState(note=cron),  # the server converts the expression itself
        )
        handle = self._schedule_handle(goal.id)
        try:
            try:
                await self._connected.create_schedule(handle.id, schedule)
            except sdk.ScheduleAlreadyRunningError:
                await handle.update(lambda _: sdk.ScheduleUpdate(schedule))
        except RPCError as exc:
            if exc.status != RPCStatusCode.INVALID_ARGUMENT:
                raise
            raise base.cron_invalid(cron) from None

    def _schedule_handle(self, name: str) -> sdk.ScheduleHandle:
        return self._connected.get_schedule_handle(_SCHEDULE + name)

    @translate_errors
    async def schedules(self) -> Sequence[Schedule]:
        """Return all schedules, by name; the list of the server may be a second old."""
        schedules: dict[str, Schedule] = {}
        async for row in await self._connected.list_schedules():
            if row.id.startswith(_SCHEDULE) and row.schedule and row.info:
                name = row.id.removeprefix(_SCHEDULE)
                times = [moment.timestamp() for moment in row.info.next_action_times]
                cron = row.schedule.state.note or ""
                schedules[name] = Schedule(name, cron, min(times, default=0.0))
        return [schedules[name] for name in sorted(schedules)]

    @translate_errors
    async def unschedule(self, name: str) -> None:
        """Remove a schedule."""
        try:
            await self._schedule_handle(name).delete()
        except RPCError as exc:
            if exc.status != RPCStatusCode.NOT_FOUND:
                raise
            raise base.schedule_missing(name) from None

    # --- reports ----------------------------------------------------------------------------

    @translate_errors
    async def report(self, goal_id: str) -> GoalReport:
        """Return the current report."""
        return (await self._inspect(goal_id)).report

    @translate_errors
    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Wait until it is over or asks; return the report when the time is up."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = _MIN_PAUSE_S
        while True:
            run = await self._describe(goal_id)
            memo: Mapping[str, Any] = await run.memo()
            left = inf if end is None else end - time.monotonic()
            is_running = run.status == WorkflowExecutionStatus.RUNNING
            if not is_running or memo.get("state") == "asking" or left <= 0:
                report = await self.report(goal_id)
                if report.state in base.AT_REST or left <= 0:
                    return report
            # The server reports the end of a workflow by itself, but no question.
            limit = pause if memo.get("asks", True) else _LONG_POLL_S
            await self._wait_for_end(run, min(left, limit))
            pause = min(pause * 1.5, _MAX_PAUSE_S)

    async def _wait_for_end(self, run: WorkflowExecution, seconds: float) -> None:
        """Return when a run has ended, or when the time is up."""
        with suppress(TimeoutError, WorkflowFailureError, WorkflowContinuedAsNewError):
            async with asyncio.timeout(seconds):
                await self._handle(run).result(follow_runs=False)

    @translate_errors
    async def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Summaries, newest first. Reads one entry per goal of the queue."""
        runs = await self._latest_runs(states)
        if before is not None:
            runs = [pair for pair in runs if pair[0] < before]
        lines: list[GoalSummary] = []
        for start in range(0, len(runs), max(1, limit)):
            page = (self._summary(run) for _, run in runs[start : start + limit])
            summaries = [summary for summary in await asyncio.gather(*page) if summary is not None]
            lines += [summary for summary in summaries if not states or summary.state in states]
            if len(lines) >= limit:
                break
        return lines[:limit]

    async def _latest_runs(
        self, states: Sequence[GoalState]
    ) -> Sequence[tuple[float, WorkflowExecution]]:
        """When each goal was submitted, and its latest run; newest goals first."""
        query = f"WorkflowType = '{wire.WORKFLOW}' AND TaskQueue = '{self._queue}'"
        if states and {*states} <= {"queued", "running", "asking", "cancelling"}:
            query += " AND ExecutionStatus = 'Running'"
        latest: dict[str, WorkflowExecution] = {}
        async for run in self._connected.list_workflows(query, page_size=1000):
            if run.id not in latest or latest[run.id].start_time < run.start_time:
                latest[run.id] = run
        rows: list[tuple[float, WorkflowExecution]] = []
        for run in latest.values():
            submitted_at = (await run.memo()).get("submitted") or run.start_time.timestamp()
            rows.append((float(submitted_at), run))
        return sorted(rows, key=lambda row: (row[0], row[1].id), reverse=True)

    async def _summary(self, run: WorkflowExecution) -> GoalSummary | None:
        try:
            return summary_of(await self.report(run.id))
        except NotFound:  # it was removed, and the server's list is outdated
            return None

    @translate_errors
    async def status(self) -> GoalStatus:
        """Counts of the visibility store, which may be seconds old, and the pollers of the queue.

        The server has no cheap answer for the state of steps: `unknown` names what is missing.
        """
        now = time.time()
        mine = f"WorkflowType = '{wire.WORKFLOW}' AND TaskQueue = '{self._queue}'"
        day_ago = datetime.fromtimestamp(now - DAY_S, UTC).isoformat()
        running = f"{mine} AND ExecutionStatus = 'Running'"
        ended = f"{mine} AND ExecutionStatus != 'Running' AND CloseTime >= '{day_ago}'"
        open_count = (await self._connected.count_workflows(running)).count
        ended_count = (await self._connected.count_workflows(ended)).count
        workers = await self._pollers()
        goals: dict[GoalState, int] = {}
        if open_count <= _MAX_GOALS_READ:
            goals["asking"] = 0
            async for run in self._connected.list_workflows(running, limit=_MAX_GOALS_READ):
                goals["asking"] += (await run.memo()).get("state") == "asking"
        return GoalStatus(
            ENGINE,
            now,
            open_count,
            ended_count,
            goals,
            workers=workers,
            unattended=0
            if any(worker.is_alive for worker in workers)
            else open_count - goals.get("asking", 0),
            unknown=("oldest", "waiting", "stuck", "usage"),
        )

    async def _pollers(self) -> tuple[WorkerStatus, ...]:
        """The processes that asked the server for steps in the last minutes."""
        response = await self._connected.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=self._connected.namespace,
                task_queue=TaskQueue(name=self._queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            )
        )
        now = time.time()
        pollers = sorted(response.pollers, key=lambda poller: poller.identity)
        times = [poller.last_access_time.ToMicroseconds() / 1e6 for poller in pollers]
        return tuple(
            WorkerStatus(poller.identity, seen, seen > now - _POLLER_TIMEOUT_S)
            for poller, seen in zip(pollers, times, strict=True)
        )

    async def work(self, *, drain: float = 30.0) -> None:
        """Work until cancelled; then finish the running steps."""
        if self._worker is None:
            raise base.no_runner()
        worker = self._worker
        try:
            await asyncio.shield(worker.running)
        finally:
            self._worker = None
            await worker.stop(drain)

    @translate_errors
    async def health(self) -> str:
        """Why this worker cannot run steps; empty when it can."""
        if self._worker is None:
            raise base.no_runner()
        service = self._connected.service_client
        is_serving = await service.check_health(timeout=_HEALTH_TIMEOUT)
        return "" if is_serving else say("Temporal's server is not serving")

    # --- lookup -----------------------------------------------------------------------------

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise base.engine_not_open()
        if self._worker is not None and self._worker.running.done():
            why = self._worker.running.exception()
            raise ServerFailed(say("Temporal's server failed: {why}", why=why), say("Try again"))
        return self._client

    def _handle(self, run: WorkflowExecution) -> WorkflowHandle[Any, Any]:
        return self._connected.get_workflow_handle(run.id, run_id=run.run_id)

    async def _describe(self, goal_id: str) -> WorkflowExecutionDescription:
        """The description of a goal's latest run.

        Raises:
            NotFound: there is no such goal.
        """
        try:
            description = await self._connected.get_workflow_handle(goal_id).describe()
        except RPCError as exc:
            if exc.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT}:
                raise base.goal_missing(goal_id) from None
            raise
        if description.workflow_type != wire.WORKFLOW:
            raise base.goal_missing(goal_id)
        return description

    async def _inspect(self, goal_id: str) -> TemporalGoal:
        """Collect what is known of a goal.

        Raises:
            NotFound: there is no such goal.
        """
        run = await self._describe(goal_id)
        task = await self._task(run)
        ended = _FORCED_STATES.get(run.status)
        progress: Any = None
        reason = ""
        if run.status == WorkflowExecutionStatus.COMPLETED:
            progress = await self._handle(run).result(follow_runs=False)
        elif run.history_length > 2:
            progress, reason = await self._progress(run)
        if progress is None:
            state = (await run.memo()).get("state")
            if not state:
                state = "running" if run.history_length > 2 else "queued"
            progress = {
                "state": state, "reason": reason, "started": task.started,
                "revision": task.revision, "results": {}, "answers": {},
            }  # fmt: skip
        elif (
            progress["state"] in FINAL_GOAL_STATES and run.status == WorkflowExecutionStatus.RUNNING
        ):
            await self._handle(run).result(follow_runs=False)  # it ended just now
            return await self._inspect(goal_id)
        progress = unpack_messages(progress)
        if ended:
            failed = say("Its workflow failed: {why}", why="")
            progress["reason"] = "" if ended == "cancelled" else failed
        results = dict(task.known)
        for name, packed in progress["results"].items():
            results[name] = unpack(StepResult, packed)
        goal_state: GoalState = ended or progress["state"]
        if goal_state not in FINAL_GOAL_STATES:
            await self._add_begun(run, results)
            if run.raw_description.workflow_extended_info.cancel_requested:
                goal_state = "cancelling"
        report = report_of(
            task.goal,
            results,
            goal_state,
            reason=progress["reason"],
            engine=ENGINE,
            started=progress["started"],
            revision=progress["revision"],
            ended=run.close_time.timestamp() if run.close_time else 0.0,
        )
        return TemporalGoal(report, task, progress["answers"], run)

    async def _add_begun(
        self, run: WorkflowExecutionDescription, results: dict[str, StepResult]
    ) -> None:
        """Add the steps that have begun, as the server knows their activities."""
        for name in [name for name, result in results.items() if result.state == "running"]:
            del results[name]
        steps: list[StepBegun] = []
        for pending in run.raw_description.pending_activities:
            details = await self._connected.data_converter.decode(
                pending.heartbeat_details.payloads
            )
            begun = unpack(StepBegun, details[0]) if details else StepBegun(pending.activity_id)
            is_running = pending.state != PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
            if not details and (is_running or pending.attempt > 1):
                begun = begun._replace(attempts=1, worker=pending.last_worker_identity)
            since = begun.started or pending.last_started_time.ToMicroseconds() / 1e6
            steps.append(begun._replace(worker=begun.worker if is_running else "", started=since))
        add_begun(results, steps)

    async def _progress(self, run: WorkflowExecutionDescription) -> tuple[Any, str]:
        """A worker's answer; None with the reason when there is none."""
        try:
            return await self._handle(run).query(wire.PROGRESS, rpc_timeout=QUERY_TIMEOUT), ""
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as exc:
            return None, say("Its workflow failed: {why}", why=str(exc)[:500])
        except RPCError as exc:
            if exc.status in {RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNAUTHENTICATED}:
                raise
            return None, say("No worker answers: start one")

    async def _task(self, run: WorkflowExecution) -> wire.Task:
        """The input of a run, from its first event."""
        event = await anext(self._handle(run).fetch_history_events(page_size=1))
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        [packed] = await self._connected.data_converter.decode(payloads)
        return unpack(wire.Task, packed)


def _recorded_answer(current: TemporalGoal, step: str, answer: Answer) -> Answer | None:
    """The recorded answer of a step: the same, another one, or none."""
    mark = current.answers.get(step)
    if mark is None or mark == wire.json_digest(answer):
        return None if mark is None else answer
    return answer._replace(approved=not answer.approved)
