"""The engine `temporal`: each goal is a workflow, each step an activity.

    async with TemporalEngine(runner, address="127.0.0.1:7233") as engine:
        await engine.submit(goal)
        report = await engine.wait(goal.id)

The goal's id is the workflow's id; a new revision is a new run. The server needs only a namespace:
lists read the memo of each workflow. A worker answers queries for the progress of a goal;
without a worker only the plan, the memo and the state of the workflow are known. Goals are
removed when the namespace's retention ends, or by `forget`, which also removes their large
outputs. Workers on several machines need a shared folder for large outputs.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from satchel._optional import require
from satchel.errors import NotFound, ServerFailed
from satchel.goals import approvals
from satchel.goals.artifacts import FolderArtifacts, MemoryArtifacts, digest_of
from satchel.goals.engines import temporal_messages as wire
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
    watch_reports,
)
from satchel.goals.model import OVER, GoalSummary
from satchel.goals.plan_checks import require_valid
from satchel.goals.reports import pack, report_of, summary_of, unpack, unpack_results
from satchel.i18n import say, unpack_messages

try:
    from temporalio.api.common.v1 import WorkflowExecution as WorkflowExecutionId
    from temporalio.api.workflowservice.v1 import (
        DeleteWorkflowExecutionRequest,
        DescribeNamespaceRequest,
    )
    from temporalio.client import (
        Client,
        WorkflowExecutionStatus,
        WorkflowFailureError,
        WorkflowQueryFailedError,
        WorkflowQueryRejectedError,
    )
    from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
    from temporalio.converter import DataConverter
    from temporalio.envconfig import ClientConfig
    from temporalio.exceptions import WorkflowAlreadyStartedError
    from temporalio.service import RPCError, RPCStatusCode
except ImportError:
    require("temporalio", "temporal")
    raise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
    from types import CoroutineType

    from temporalio.client import WorkflowExecution, WorkflowExecutionDescription, WorkflowHandle

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.engines.temporal_worker import StepWorker
    from satchel.goals.model import (
        Answer,
        Goal,
        GoalReport,
        GoalState,
        Plan,
        StepEvent,
        StepRunner,
    )

_P = ParamSpec("_P")
_T = TypeVar("_T")
ENGINE = "temporal"
WATCH_INTERVAL_S = 0.2
QUERY_TIMEOUT = timedelta(seconds=3)
REMOVAL_TIMEOUT = timedelta(minutes=10)
"""How long the id of a goal is reserved during its removal, if the removing process dies."""
LIST_DELAY_S = 15.0
"""How long the server's list may be outdated after a change made here."""
MAX_TASK_ATTEMPTS = 2
"""A workflow whose task was attempted more often than this cannot continue."""
_ENDED: dict[WorkflowExecutionStatus | None, GoalState] = {
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "cancelled",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.TIMED_OUT: "failed",
}
"""Ends that the workflow did not decide itself."""
_MOVING = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)


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


async def connect(address: str, namespace: str, given: Client | None = None) -> Client:
    """Connect a client with our JSON converter.

    Raises:
        ServerFailed: there is no server.
    """
    _delay_exit()
    if given is not None:
        converter = replace(given.data_converter, payload_converter_class=wire.Converter)
        config: Any = {**given.config(active_config=True), "data_converter": converter}
        return Client(**config)
    options: Any = dict(ClientConfig.load_client_connect_config())
    if address:
        options["target_host"] = address
    if namespace:
        options["namespace"] = namespace
    options.setdefault("target_host", "localhost:7233")
    converter = DataConverter(payload_converter_class=wire.Converter)
    try:
        return await Client.connect(**options, data_converter=converter)
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
        artifacts: Another storage for large outputs.
        large: Larger outputs, in bytes, are stored as artifacts.
        at_once: Maximum number of concurrent steps of this worker.
        client: A connected client, for example with its own encryption or certificates.
    """

    name = ENGINE
    durable = True

    def __init__(  # noqa: PLR0913 - one argument per thing that can be different
        self,
        runner: StepRunner | None = None,
        folder: str = "",
        *,
        address: str = "",
        namespace: str = "",
        queue: str = "satchel",
        artifacts: Artifacts | None = None,
        large: int = 32_768,
        at_once: int = 100,
        client: Client | None = None,
    ) -> None:
        self.artifacts: Artifacts = artifacts or MemoryArtifacts()
        self._folder = "" if artifacts else folder
        self._runner = runner
        self._large = large
        self._address = address
        self._namespace = namespace
        self._queue = queue
        self._at_once = at_once
        self._given = client
        self._client: Client | None = None
        self._worker: StepWorker | None = None
        self._working: asyncio.Task[None] | None = None
        self._changed_at: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        client = self._client = await connect(self._address, self._namespace, self._given)
        if self._folder:
            self.artifacts = FolderArtifacts(await self._artifacts_folder())
        if self._runner is not None:
            from satchel.goals.engines.temporal_worker import StepWorker

            context = StepContext(self._runner, self.artifacts, self._large)
            self._worker = StepWorker(client, self._queue, context, self._at_once)
            self._working = self._worker.start()
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
        client = self._connected
        request = DescribeNamespaceRequest(namespace=client.namespace)
        found = await client.workflow_service.describe_namespace(request)
        return os.path.join(
            self._folder, namespace_folder(client.namespace, found.namespace_info.id)
        )

    # --- starting ---------------------------------------------------------------------------

    @translate_errors
    async def submit(self, goal: Goal) -> GoalReport:
        """Start a goal."""
        require_valid(goal)
        wire.require_size(goal)
        task, mark = wire.Task(goal), wire.json_digest(goal.plan)
        policy = WorkflowIDReusePolicy
        found = None
        for reuse in (policy.REJECT_DUPLICATE, policy.ALLOW_DUPLICATE):
            try:
                await self._start(task, mark, reuse, submitted=time.time())
            except WorkflowAlreadyStartedError:
                found = await self._described(goal.id)
            else:
                return report_of(goal, {}, "queued", engine=ENGINE)
            if found and _is_taken(found):
                break  # otherwise the ended workflow is a tombstone
        if found is None or found.workflow_type == wire.FORGOTTEN:
            raise goal_not_over(goal.id, "removed")
        memo: Mapping[str, Any] = await found.memo()
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
                "goal": goal.plan.goal[:200],
                "steps": len(goal.plan.steps),
                "plan": wire.json_digest(goal.plan),
                "first": first,
                "submitted": submitted,
            },
        )
        self._changed_at[goal.id] = time.monotonic()

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
        goal, known, took = new_revision(
            found.task.goal, report.steps, plan, from_step, found.task.spent
        )
        wire.require_size(goal)
        memo: Mapping[str, Any] = await found.run.memo()
        task = found.task._replace(
            goal=goal, revision=report.revision + 1, known=known, answers={},
            started=report.started, spent=took,
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
            goal, known, "queued", engine=ENGINE, started=task.started, revision=task.revision,
            spent=task.spent,
        )  # fmt: skip

    @translate_errors
    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Record an answer and continue the goal."""
        found = await self._inspect(goal_id)
        if not approvals.is_new_answer(
            found.report, step, answer, _recorded_answer(found, step, answer)
        ):
            return
        steps = found.report.steps.values()
        said = [wire.encode_json(one.output) for one in steps if one.step in found.answers]
        size = sum(map(len, [*said, wire.encode_json(pack(answer))]))
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
        """Cancel a goal; a workflow that cannot continue is terminated."""
        found = await self._describe(goal_id)
        if found.status != WorkflowExecutionStatus.RUNNING:
            return
        with _ignore_missing():
            if found.raw_description.pending_workflow_task.attempt > MAX_TASK_ATTEMPTS:
                await self._handle(found).terminate(reason="cancelled")
            else:
                await self._handle(found).cancel()

    @translate_errors
    async def forget(self, goal_id: str) -> None:
        """Remove a goal that is over, with all of its runs and its large outputs.

        The server removes runs asynchronously. Until then a workflow of another type (a tombstone)
        has their id. While the tombstone runs, the id cannot be reused, so that no output of a
        restarted goal is removed. Once it has ended it hides the runs from lists until the
        namespace's retention is over.
        """
        latest = await self._described(goal_id)
        if latest is None or latest.workflow_type not in {wire.WORKFLOW, wire.FORGOTTEN}:
            raise goal_missing(goal_id)
        known = latest.workflow_type == wire.WORKFLOW
        if known and latest.status == WorkflowExecutionStatus.RUNNING:
            raise goal_not_over(goal_id, (await self.report(goal_id)).state)
        try:
            stone = await self._connected.start_workflow(
                wire.FORGOTTEN,
                id=goal_id,
                task_queue=f"{self._queue}-forgotten",  # a queue without workers
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                execution_timeout=REMOVAL_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:  # another process did it first
            found = await self._described(goal_id)
            if found is not None and found.workflow_type == wire.WORKFLOW:
                raise goal_not_over(goal_id, "running") from None
            raise goal_not_over(goal_id, "removed") from None
        self._changed_at[goal_id] = time.monotonic()
        try:
            query = f"WorkflowId = '{goal_id}' AND WorkflowType = '{wire.WORKFLOW}'"
            rows = self._connected.list_workflows(query)
            runs = {latest.run_id} | {run.run_id async for run in rows}
            await self.artifacts.forget(goal_id)
        finally:
            with _ignore_missing():
                await stone.terminate(reason="forgotten", rpc_timeout=timedelta(seconds=10))
        for run_id in runs:
            request = DeleteWorkflowExecutionRequest(
                namespace=self._connected.namespace,
                workflow_execution=WorkflowExecutionId(workflow_id=goal_id, run_id=run_id),
            )
            with _ignore_missing():
                await self._connected.workflow_service.delete_workflow_execution(request)
        if not known:  # an interrupted removal may have left outputs behind
            raise goal_missing(goal_id)

    # --- reports ----------------------------------------------------------------------------

    @translate_errors
    async def report(self, goal_id: str) -> GoalReport:
        """Return the current report."""
        return (await self._inspect(goal_id)).report

    @translate_errors
    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Wait until it is over or asks; return the report when the time is up."""

        async def current() -> GoalReport:
            if self._worker is not None and self._working is not None and self._working.done():
                raise ServerFailed(
                    say("Temporal's server failed: {why}", why=self._working.exception()),
                    say("Try again"),
                )  # fmt: skip
            return await self.report(goal_id)

        async def sleep(seconds: float) -> None:
            with suppress(TimeoutError, WorkflowFailureError), _ignore_missing():
                async with asyncio.timeout(seconds):
                    await self._connected.get_workflow_handle(goal_id).result()

        return await wait_until_rest(current, timeout, 0.05, lambda: 1.0, sleep)

    @translate_errors
    async def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Summaries, newest first. Reads one entry per goal of the queue."""
        query = (
            f"WorkflowType = '{wire.FORGOTTEN}' OR "
            f"(WorkflowType = '{wire.WORKFLOW}' AND TaskQueue = '{self._queue}')"
        )
        latest: dict[str, WorkflowExecution] = {}
        async for run in self._connected.list_workflows(query, page_size=1000):
            if run.id not in latest or latest[run.id].start_time < run.start_time:
                latest[run.id] = run
        now = time.monotonic()
        self._changed_at = {
            name: at for name, at in self._changed_at.items() if now - at < LIST_DELAY_S
        }
        for fresh in await asyncio.gather(*map(self._described, self._changed_at)):
            if fresh is not None:
                latest[fresh.id] = fresh
        rows = [
            (await _submitted(run), run.id)
            for run in latest.values()
            if run.workflow_type == wire.WORKFLOW
        ]
        names = [name for at, name in sorted(rows, reverse=True) if before is None or at < before]
        lines: list[GoalSummary] = []
        for start in range(0, len(names), max(1, limit)):
            page = names[start : start + limit]
            found = await asyncio.gather(*(self._summary(latest[name]) for name in page))
            lines += [one for one in found if one and (not states or one.state in states)]
            if len(lines) >= limit:
                break
        return lines[:limit]

    async def _summary(self, run: WorkflowExecution) -> GoalSummary | None:
        """The summary of a goal; the server's list may be outdated for a goal that runs."""
        if run.status not in _MOVING:
            return await _from_memo(run)
        with suppress(NotFound):
            return summary_of((await self._inspect(run.id)).report)
        return None

    def watch(self, goal_id: str) -> AsyncIterator[StepEvent]:
        """Events of a goal until it is over or asks."""
        return watch_reports(lambda: self.report(goal_id), AT_REST, WATCH_INTERVAL_S)

    async def work(self, *, drain: float = 30.0) -> None:
        """Work until cancelled; then finish the running steps."""
        if self._worker is None or self._working is None:
            raise no_runner()
        worker = self._worker
        try:
            await asyncio.shield(self._working)
        finally:
            self._worker = None
            await worker.stop(drain)

    # --- lookup -----------------------------------------------------------------------------

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise engine_not_open()
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
            spent=task.spent,
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
            if run.raw_description.pending_workflow_task.attempt <= MAX_TASK_ATTEMPTS:
                return None, say("No worker answers: start one")
            why = exc.message
        return None, say("Its workflow failed: {why}", why=why[:500])

    async def _task(self, run: WorkflowExecution) -> wire.Task:
        """The input of a run, from its first event."""
        event = await anext(self._handle(run).fetch_history_events(page_size=1))
        given = event.workflow_execution_started_event_attributes.input.payloads
        [packed] = await self._connected.data_converter.decode(given)
        return unpack(wire.Task, packed)


def namespace_folder(namespace: str, identity: str) -> str:
    """The folder of a namespace: readable, and unique by the server's id of the namespace."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", namespace)[:40].strip("-")
    return f"{readable or 'namespace'}-{digest_of(identity.encode())[:12]}"


async def _submitted(run: WorkflowExecution) -> float:
    """When a goal was submitted, approximately: the start of its first run."""
    return float((await run.memo()).get("submitted") or run.start_time.timestamp())


async def _from_memo(run: WorkflowExecution) -> GoalSummary:
    """A summary from the memo; a completed workflow without a state is `done`."""
    memo = await run.memo()
    steps = memo.get("steps", 0)
    started, seconds, done = memo.get("started", 0.0), memo.get("seconds", 0.0), memo.get("done", 0)
    state = memo.get("state") or ("running" if run.history_length > 2 else "queued")
    if run.status == WorkflowExecutionStatus.COMPLETED and "seconds" not in memo:
        started, state, done = run.start_time.timestamp(), "done", steps
        seconds = run.close_time.timestamp() - started if run.close_time else 0.0
    state = _ENDED.get(run.status, state)
    return GoalSummary(run.id, state, memo.get("goal", ""), ENGINE, started, seconds, done, steps)


def _recorded_answer(found: TemporalGoal, step: str, answer: Answer) -> Answer | None:
    """The recorded answer of a step: the same, another one, or none."""
    mark = found.answers.get(step)
    if mark is None:
        return None
    return (
        answer
        if mark == wire.json_digest(answer)
        else answer._replace(approved=not answer.approved)
    )


def _is_taken(found: WorkflowExecutionDescription) -> bool:
    """Whether an id is taken: by a goal, or by a removal in progress."""
    running = found.status == WorkflowExecutionStatus.RUNNING
    return running or found.workflow_type != wire.FORGOTTEN
