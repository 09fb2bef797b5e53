"""The engine `temporal`: each goal is a workflow, each step an activity.

    async with TemporalEngine(runner, address="127.0.0.1:7233") as engine:
        await engine.submit(goal)
        report = await engine.wait(goal.id)

The goal's id is the workflow's id; a new revision is a new run. The server needs only a namespace:
a worker answers queries for the progress of a goal; without one only the plan, the memo and the
state of the workflow are known. Goals are
removed when the namespace's retention ends, or by `forget`, which also removes their large
outputs. Workers on several machines need a shared folder for large outputs.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from temporalio.api.common.v1 import WorkflowExecution as WorkflowExecutionId
from temporalio.api.workflowservice.v1 import (
    DeleteWorkflowExecutionRequest,
    DescribeNamespaceRequest,
)
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

from satchel.errors import NotFound, ServerFailed
from satchel.goals import approvals
from satchel.goals.artifacts import FolderArtifacts, MemoryArtifacts, digest_of
from satchel.goals.engines import temporal_workflow as wire
from satchel.goals.engines.base import (
    AT_REST,
    StepContext,
    engine_not_open,
    goal_cancelled,
    goal_missing,
    goal_not_over,
    goal_running,
    new_revision,
    no_runner,
    plan_conflict,
    wait_until_rest,
)
from satchel.goals.model import OVER
from satchel.goals.plan_checks import require_valid
from satchel.goals.reports import pack, report_of, summary_of, unpack, unpack_results
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

_P = ParamSpec("_P")
_T = TypeVar("_T")
ENGINE = "temporal"
QUERY_TIMEOUT = timedelta(seconds=3)
LIST_DELAY_S = 15.0
"""How long the server's list may be without a goal that was started here."""
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


@cache
def _delay_exit() -> None:
    """Give the SDK's threads a moment before the interpreter exits.

    A thread that returns to Python at that moment aborts the process (temporalio/sdk-python#300).
    """
    import atexit

    atexit.register(time.sleep, 0.3)


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
        folder: Folder of large outputs, one subfolder per namespace; in memory, of this process
            only, when empty.
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
        self.artifacts: Artifacts = MemoryArtifacts()
        self._folder = folder
        self._runner = runner
        self._address = address
        self._namespace = namespace
        self._queue = queue
        self._at_once = at_once
        self._given = client
        self._client: Client | None = None
        self._worker: StepWorker | None = None
        self._started_at: dict[str, float] = {}
        self._ended: dict[str, GoalSummary] = {}
        """Run id -> summary of a run that is over."""

    async def __aenter__(self) -> Self:
        _delay_exit()
        client = self._given or await connect(self._address, self._namespace)
        self._client = client
        if self._folder:
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

    @translate_errors
    async def _artifacts_folder(self) -> str:
        """The folder of large outputs: a goal's id is unique only in its namespace."""
        name = self._connected.namespace
        request = DescribeNamespaceRequest(namespace=name)
        found = await self._connected.workflow_service.describe_namespace(request)
        readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:40].strip("-") or "namespace"
        digest = digest_of(found.namespace_info.id.encode())
        return os.path.join(self._folder, f"{readable}-{digest[:12]}")

    # --- starting ---------------------------------------------------------------------------

    @translate_errors
    async def submit(self, goal: Goal) -> GoalReport:
        """Start a goal."""
        require_valid(goal)
        wire.require_size(goal)
        mark = wire.json_digest(goal.plan)
        policy = WorkflowIDReusePolicy
        for reuse in (policy.REJECT_DUPLICATE, policy.ALLOW_DUPLICATE):
            try:
                await self._start(wire.Task(goal), mark, reuse, submitted=time.time())
            except WorkflowAlreadyStartedError:
                found = await self._described(goal.id)
                if found is None or found.workflow_type != wire.FORGOTTEN:
                    break
            else:
                return report_of(goal, {}, "queued", engine=ENGINE)
        memo: Mapping[str, Any] = await (await self._describe(goal.id)).memo()
        if mark not in {memo.get("plan"), memo.get("first")}:
            raise plan_conflict(goal.id)
        return await self.report(goal.id)

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
        self._started_at[goal.id] = time.monotonic()

    @translate_errors
    async def resume(self, goal_id: str) -> GoalReport:
        """Return the report: the server itself moves the steps of a dead worker to the next one."""
        report = await self.report(goal_id)
        if report.state == "cancelled":
            raise goal_cancelled(goal_id)
        return report

    @translate_errors
    async def retry(
        self, goal_id: str, *, from_step: str = "", plan: Plan | None = None
    ) -> GoalReport:
        """Start a new revision of a goal that is over or asks."""
        found = await self._inspect(goal_id)
        report = found.report
        if report.state not in AT_REST:
            raise goal_running(goal_id)
        goal, known = new_revision(found.task.goal, report.steps, plan, from_step)
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
            raise goal_running(goal_id) from None
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
            handle = self._handle(found.run)
            await handle.signal(wire.ANSWER, args=[step, pack(answer)])
        # The first of two answers wins, and the second is refused.
        again = await self._inspect(goal_id)
        if again.run.run_id == found.run.run_id:
            approvals.is_new_answer(
                again.report, step, answer, _recorded_answer(again, step, answer)
            )

    @translate_errors
    async def cancel(self, goal_id: str) -> None:
        """Cancel a goal."""
        with _ignore_missing():
            await self._handle(await self._describe(goal_id)).cancel()

    @translate_errors
    async def forget(self, goal_id: str) -> None:
        """Remove a goal that is over, with all of its runs and its large outputs.

        The server removes runs asynchronously. Until then a workflow of another type hides them.
        """
        found = await self._describe(goal_id)
        if found.status == WorkflowExecutionStatus.RUNNING:
            raise goal_not_over(goal_id, (await self.report(goal_id)).state)
        await self.artifacts.forget(goal_id)  # first: a remaining goal can be removed again
        try:
            stone = await self._connected.start_workflow(
                wire.FORGOTTEN,
                id=goal_id,
                task_queue=f"{self._queue}-forgotten",  # a queue without workers
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            )
        except WorkflowAlreadyStartedError:  # it was retried meanwhile
            raise goal_not_over(goal_id, "running") from None
        await stone.terminate(reason="forgotten")
        self._ended.clear()
        rows = self._connected.list_workflows(
            f"WorkflowId = '{goal_id}' AND WorkflowType = '{wire.WORKFLOW}'"
        )
        runs = {found.run_id} | {run.run_id async for run in rows}
        for run_id in runs:
            request = DeleteWorkflowExecutionRequest(
                namespace=self._connected.namespace,
                workflow_execution=WorkflowExecutionId(workflow_id=goal_id, run_id=run_id),
            )
            with _ignore_missing():
                await self._connected.workflow_service.delete_workflow_execution(request)

    # --- reports ----------------------------------------------------------------------------

    @translate_errors
    async def report(self, goal_id: str) -> GoalReport:
        """Return the current report."""
        return (await self._inspect(goal_id)).report

    @translate_errors
    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Wait until it is over or asks; return the report when the time is up."""
        return await wait_until_rest(lambda: self.report(goal_id), timeout, 0.05, 0.5)

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
        now = time.monotonic()
        recent = [name for name, at in self._started_at.items() if now - at < LIST_DELAY_S]
        for fresh in await asyncio.gather(*map(self._described, recent)):
            if fresh is not None:
                latest[fresh.id] = fresh
        rows = [(await _submitted(run), run.id) for run in latest.values()]
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
        if run.run_id in self._ended:
            return self._ended[run.run_id]
        try:
            found = await self._inspect(run.id)
        except NotFound:  # it was removed, and the server's list is outdated
            return None
        line = summary_of(found.report)
        if line.state in OVER:
            self._ended[found.run.run_id] = line
        return line

    async def work(self, *, drain: float = 30.0) -> None:
        """Work until cancelled; then finish the running steps."""
        if self._worker is None:
            raise no_runner()
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
            raise engine_not_open()
        if self._worker is not None and self._worker.running.done():
            why = self._worker.running.exception()
            raise ServerFailed(say("Temporal's server failed: {why}", why=why), say("Try again"))
        return self._client

    def _handle(self, run: WorkflowExecution) -> WorkflowHandle[Any, Any]:
        return self._connected.get_workflow_handle(run.id, run_id=run.run_id)

    async def _described(self, goal_id: str) -> WorkflowExecutionDescription | None:
        """The latest run with the id, of any workflow type."""
        try:
            return await self._connected.get_workflow_handle(goal_id).describe()
        except RPCError as exc:
            if exc.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT}:
                return None
            raise

    async def _describe(self, goal_id: str) -> WorkflowExecutionDescription:
        """The description of a goal's latest run.

        Raises:
            NotFound: there is no such goal.
        """
        found = await self._described(goal_id)
        if found is None or found.workflow_type != wire.WORKFLOW:
            raise goal_missing(goal_id)
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
            progress, reason = await self._query(run, wire.PROGRESS)
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

    async def _query(self, run: WorkflowExecutionDescription, query: str) -> tuple[Any, str]:
        """A worker's answer; None with the reason when there is none."""
        try:
            return await self._handle(run).query(query, rpc_timeout=QUERY_TIMEOUT), ""
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as exc:
            why = str(exc)
        except RPCError as exc:
            if exc.status in {RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNAUTHENTICATED}:
                raise
            return None, say("No worker answers: start one")
        return None, say("Its workflow failed: {why}", why=why[:500])

    async def _task(self, run: WorkflowExecution) -> wire.Task:
        """The input of a run, from its first event."""
        event = await anext(self._handle(run).fetch_history_events(page_size=1))
        given = event.workflow_execution_started_event_attributes.input.payloads
        [packed] = await self._connected.data_converter.decode(given)
        return unpack(wire.Task, packed)


async def _submitted(run: WorkflowExecution) -> float:
    """When a goal was submitted, approximately: the start of its first run."""
    return float((await run.memo()).get("submitted") or run.start_time.timestamp())


def _recorded_answer(found: TemporalGoal, step: str, answer: Answer) -> Answer | None:
    """The recorded answer of a step: the same, another one, or none."""
    mark = found.answers.get(step)
    if mark is None or mark == wire.json_digest(answer):
        return None if mark is None else answer
    return answer._replace(approved=not answer.approved)
