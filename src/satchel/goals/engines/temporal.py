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
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from satchel.errors import NotFound, Refused, ServerFailed
from satchel.goals import approvals
from satchel.goals.artifacts import FolderArtifacts, digest_of
from satchel.goals.engines import base
from satchel.goals.engines import temporal_workflow as wire
from satchel.goals.model import OVER
from satchel.goals.plan_checks import require_valid
from satchel.goals.reports import pack, report_of, summary_of, unpack, unpack_results
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
QUERY_TIMEOUT = timedelta(seconds=3)
_MAX_TASK_ATTEMPTS = 2
"""A workflow whose task was attempted more often than this cannot continue."""
_ENDED: dict[WorkflowExecutionStatus | None, GoalState] = {
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
        self._folder = folder
        self._temporary: TemporaryDirectory[str] | None = None
        self._runner = runner
        self._address = address
        self._namespace = namespace
        self._queue = queue
        self._at_once = at_once
        self._given = client
        self._client: Client | None = None
        self._worker: StepWorker | None = None

    async def __aenter__(self) -> Self:
        client = self._given or await connect(self._address, self._namespace)
        self._client = client
        self._temporary = None if self._folder else TemporaryDirectory(prefix="satchel-goals-")
        self.artifacts = FolderArtifacts(await self._artifacts_folder())
        if self._runner is not None:
            from satchel.goals.engines.temporal_worker import StepWorker

            context = StepContext(self._runner, self.artifacts)
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
        found = await self._connected.workflow_service.describe_namespace(request)
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:40].strip("-") or "namespace"
        digest = digest_of(found.namespace_info.id.encode())
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
            memo={
                "goal": goal.plan.goal[:200],  # for people who look into Temporal
                "plan": wire.json_digest(goal.plan),
                "first": first,
                "submitted": submitted,
            },
        )

    async def resume(self, goal_id: str) -> GoalReport:
        """Return the report: the server itself moves the steps of a dead worker to the next one."""
        report = await self.report(goal_id)
        if report.state == "cancelled":
            raise base.goal_cancelled(goal_id)
        return report

    @translate_errors
    async def retry(
        self, goal_id: str, *, from_step: str = "", plan: Plan | None = None
    ) -> GoalReport:
        """Start a new revision of a goal that is over or asks."""
        found = await self._inspect(goal_id)
        report = found.report
        if report.state not in base.AT_REST:
            raise base.goal_running(goal_id)
        goal, known = base.new_revision(found.task.goal, report.steps, plan, from_step)
        wire.require_size(goal)
        memo: Mapping[str, Any] = await found.run.memo()
        task = found.task._replace(
            goal=goal, revision=report.revision + 1, known=known, answers={},
            started=report.started,
        )  # fmt: skip
        conflict = WorkflowIDConflictPolicy.FAIL
        if report.state == "asking":  # its workflow is idle, and is replaced
            conflict = WorkflowIDConflictPolicy.TERMINATE_EXISTING
        try:
            await self._start(
                task, memo.get("first", ""), WorkflowIDReusePolicy.ALLOW_DUPLICATE, conflict,
                submitted=memo.get("submitted") or found.run.start_time.timestamp(),
            )  # fmt: skip
        except WorkflowAlreadyStartedError:
            raise base.goal_running(goal_id) from None
        return report_of(
            goal, known, "queued", engine=ENGINE, started=task.started, revision=task.revision
        )

    @translate_errors
    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Record an answer and continue the goal."""
        found = await self._inspect(goal_id)
        if not approvals.is_new_answer(
            found.report, step, answer, _recorded_answer(found, step, answer)
        ):
            return
        steps = found.report.steps.values()
        said = [json.dumps(one.output) for one in steps if one.step in found.answers]
        size = sum(map(len, [*said, json.dumps(pack(answer))]))
        wire.require_size(found.task.goal, size)
        with _ignore_missing():
            await self._handle(found.run).signal(wire.ANSWER, args=[step, pack(answer)])
        # The first of two answers wins, and the second is refused.
        again = await self._inspect(goal_id)
        if again.run.run_id == found.run.run_id:
            approvals.is_new_answer(
                again.report, step, answer, _recorded_answer(again, step, answer)
            )

    @translate_errors
    async def cancel(self, goal_id: str) -> None:
        """Cancel a goal; a workflow that cannot continue is terminated."""
        found = await self._describe(goal_id)
        stuck = found.raw_description.pending_workflow_task.attempt > _MAX_TASK_ATTEMPTS
        with _ignore_missing():
            if stuck:
                await self._handle(found).terminate(reason="cancelled")
            else:
                await self._handle(found).cancel()

    async def forget(self, goal_id: str) -> None:
        """Raise: the server removes goals by itself."""
        command = f"temporal workflow delete --workflow-id {quote(goal_id)}"
        raise Refused(
            say("Temporal removes goals when the retention of their namespace ends"),
            say("Run `{command}`", command=command),
        )

    # --- reports ----------------------------------------------------------------------------

    @translate_errors
    async def report(self, goal_id: str) -> GoalReport:
        """Return the current report."""
        return (await self._inspect(goal_id)).report

    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Wait until it is over or asks; return the report when the time is up."""
        return await base.wait_until_rest(lambda: self.report(goal_id), timeout, 0.05, 0.5)

    @translate_errors
    async def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Summaries, newest first. Reads one entry per goal of the queue."""
        query = f"WorkflowType = '{wire.WORKFLOW}' AND TaskQueue = '{self._queue}'"
        if states and {*states} <= {"queued", "running", "asking"}:
            query += " AND ExecutionStatus = 'Running'"
        latest: dict[str, WorkflowExecution] = {}
        async for run in self._connected.list_workflows(query, page_size=1000):
            if run.id not in latest or latest[run.id].start_time < run.start_time:
                latest[run.id] = run
        rows: list[tuple[float, str]] = []
        for run in latest.values():
            first = (await run.memo()).get("submitted")
            rows.append((float(first or run.start_time.timestamp()), run.id))
        names = [name for at, name in sorted(rows, reverse=True) if before is None or at < before]
        lines: list[GoalSummary] = []
        for start in range(0, len(names), max(1, limit)):
            page = (self._summary(latest[name]) for name in names[start : start + limit])
            found = [one for one in await asyncio.gather(*page) if one is not None]
            lines += [one for one in found if not states or one.state in states]
            if len(lines) >= limit:
                break
        return lines[:limit]

    async def _summary(self, run: WorkflowExecution) -> GoalSummary | None:
        try:
            return summary_of(await self.report(run.id))
        except NotFound:  # it was removed, and the server's list is outdated
            return None

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
            found = await self._connected.get_workflow_handle(goal_id).describe()
        except RPCError as exc:
            if exc.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT}:
                raise base.goal_missing(goal_id) from None
            raise
        if found.workflow_type != wire.WORKFLOW:
            raise base.goal_missing(goal_id)
        return found

    async def _inspect(self, goal_id: str) -> TemporalGoal:
        """Collect what is known of a goal.

        Raises:
            NotFound: there is no such goal.
        """
        run = await self._describe(goal_id)
        task = await self._task(run)
        ended = _ENDED.get(run.status)
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
        elif progress["state"] in OVER and run.status == WorkflowExecutionStatus.RUNNING:
            await self._handle(run).result(follow_runs=False)  # it ended just now
            return await self._inspect(goal_id)
        if ended:
            reason = "" if ended == "cancelled" else say("Its workflow failed: {why}", why="")
        report = report_of(
            task.goal,
            {**task.known, **unpack_results(progress["results"])},
            ended or progress["state"],
            reason=reason if ended else unpack_messages(progress)["reason"],
            engine=ENGINE,
            started=progress["started"],
            revision=progress["revision"],
            ended=run.close_time.timestamp() if run.close_time else 0.0,
        )
        return TemporalGoal(report, task, progress["answers"], run)

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
        given = event.workflow_execution_started_event_attributes.input.payloads
        [packed] = await self._connected.data_converter.decode(given)
        return unpack(wire.Task, packed)


def _recorded_answer(found: TemporalGoal, step: str, answer: Answer) -> Answer | None:
    """The recorded answer of a step: the same, another one, or none."""
    mark = found.answers.get(step)
    if mark is None or mark == wire.json_digest(answer):
        return None if mark is None else answer
    return answer._replace(approved=not answer.approved)
