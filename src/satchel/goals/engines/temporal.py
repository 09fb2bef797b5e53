"""The engine `temporal`: each goal is a workflow, each step an activity.

    async with TemporalEngine(runner, address="127.0.0.1:7233") as engine:
        await engine.submit(goal)
        report = await engine.wait(goal.id)

A goal's id is its workflow's; a new revision is a new run of it. The server needs a namespace and
nothing else: lists read the memo of each workflow. How far a goal is, a worker answers by a query;
without a worker only the plan, the memo and the state of the workflow are known. Goals are
forgotten when the namespace's retention is over, or by `forget`, which alone removes their large
outputs too. Workers on several machines need one folder for large outputs that all of them see.
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

from satchel._language import say, unpack_messages
from satchel._optional import require
from satchel.errors import Conflict, NotFound, ServerFailed
from satchel.goals import answers
from satchel.goals.artefacts import FolderArtefacts, MemoryArtefacts, digest_of
from satchel.goals.engines import _temporal_wire as wire
from satchel.goals.engines.base import (
    AT_REST,
    Workbench,
    busy,
    cancelled,
    missing,
    no_runner,
    not_open,
    not_over,
    other_plan,
    watch_reports,
)
from satchel.goals.graph import insist
from satchel.goals.model import OVER, GoalSummary
from satchel.goals.reports import pack, report_of, summary_of, unpack, unpack_results
from satchel.goals.revision import still_known
from satchel.goals.spending import spent

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

    from satchel.goals.artefacts import Artefacts
    from satchel.goals.engines._temporal_worker import StepWorker
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
LOOK_S = 0.2
"""Seconds between two looks at a goal that is watched."""
QUERY_TIMEOUT = timedelta(seconds=3)
HELD = timedelta(minutes=10)
"""How long the id of a goal that is being removed is held, should its remover die."""
FRESH_S = 15.0
"""Seconds for which the server's list may be late about a goal that was changed here."""
STUCK = 2
"""A workflow whose task was tried more often than this cannot go on."""
_ENDED: dict[WorkflowExecutionStatus | None, GoalState] = {
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "cancelled",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.TIMED_OUT: "failed",
}
"""Ends that are not the workflow's own."""
_MOVING = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)


class Look(NamedTuple):
    """A goal as it was found."""

    report: GoalReport
    task: wire.Task
    answers: Mapping[str, str]
    """Step -> the mark of its answer."""
    run: WorkflowExecutionDescription


@contextmanager
def _unless_gone() -> Generator[None]:
    """Ignore that a workflow is not there, or has ended."""
    try:
        yield
    except RPCError as exc:
        if exc.status != RPCStatusCode.NOT_FOUND:
            raise


def heard(
    method: Callable[Concatenate[TemporalEngine, _P], Awaitable[_T]],
) -> Callable[Concatenate[TemporalEngine, _P], CoroutineType[Any, Any, _T]]:
    """A method of the engine whose errors are ours."""

    @wraps(method)
    async def outer(self: TemporalEngine, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await method(self, *args, **kwargs)
        except RPCError as exc:
            raise ServerFailed(
                say("Temporal's server does not do it: {why}", why=exc.message or exc.status.name),
                say("Look whether it runs, and whether address and namespace are right"),
            ) from exc

    return outer


@cache
def _leave_in_peace() -> None:
    """Give the SDK's threads a moment before the interpreter ends.

    One that comes back into Python at that moment aborts the process (temporalio/sdk-python#300).
    """
    import atexit

    atexit.register(time.sleep, 0.3)


async def connect(address: str, namespace: str, given: Client | None = None) -> Client:
    """A client that speaks our JSON.

    Raises:
        ServerFailed: there is no server.
    """
    _leave_in_peace()
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
            say(
                "Start it (`temporal server start-dev`), or say where it is: by the setting "
                "`temporal`, or `TEMPORAL_ADDRESS`"
            ),
        ) from exc


class TemporalEngine:
    """Runs goals on a Temporal server.

    Args:
        runner: Does the steps; with one, this process is a worker as long as it is open.
        folder: Where large outputs are kept, each namespace's apart; in memory, of this process
            alone, when empty.
        address: Of the server; as Temporal's own settings (`TEMPORAL_ADDRESS`, …) say when empty.
        namespace: The same.
        queue: Connects goals and workers.
        artefacts: Another place for large outputs.
        large: Outputs of more bytes than this are kept as artefacts.
        at_once: Steps that this worker does at the same time.
        client: One that is connected already, with its own encryption or certificates.
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
        artefacts: Artefacts | None = None,
        large: int = 32_768,
        at_once: int = 100,
        client: Client | None = None,
    ) -> None:
        self.artefacts: Artefacts = artefacts or MemoryArtefacts()
        self._folder = "" if artefacts else folder
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
        self._fresh: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        client = self._client = await connect(self._address, self._namespace, self._given)
        if self._folder:
            self.artefacts = FolderArtefacts(await self._place())
        if self._runner is not None:
            from satchel.goals.engines._temporal_worker import StepWorker

            bench = Workbench(self._runner, self.artefacts, self._large)
            self._worker = StepWorker(client, self._queue, bench, self._at_once)
            self._working = self._worker.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Leave; what runs here is given to the next worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()
        self._client = None

    @heard
    async def _place(self) -> str:
        """The folder for large outputs: a goal's id is unique in its namespace only."""
        client = self._connected
        request = DescribeNamespaceRequest(namespace=client.namespace)
        found = await client.workflow_service.describe_namespace(request)
        return os.path.join(self._folder, part(client.namespace, found.namespace_info.id))

    # --- beginning --------------------------------------------------------------------------

    @heard
    async def submit(self, goal: Goal) -> GoalReport:
        """Begin a goal and come back at once."""
        insist(goal)
        wire.insist_on_size(goal)
        task, mark = wire.Task(goal), wire.mark_of(goal.plan)
        policy = WorkflowIDReusePolicy
        found = None
        for reuse in (policy.REJECT_DUPLICATE, policy.ALLOW_DUPLICATE):
            try:
                await self._start(task, mark, reuse, submitted=time.time())
            except WorkflowAlreadyStartedError:
                found = await self._described(goal.id)
            else:
                return report_of(goal, {}, "queued", engine=ENGINE)
            if found and _is_there(found):
                break  # else what ended there is the tombstone of a goal
        if found is None or found.workflow_type == wire.FORGOTTEN:
            raise _leaving(goal.id)
        memo: Mapping[str, Any] = await found.memo()
        if mark not in {memo.get("plan"), memo.get("first")}:
            raise other_plan(goal.id)
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
                "plan": wire.mark_of(goal.plan),
                "first": first,
                "submitted": submitted,
            },
        )
        self._fresh[goal.id] = time.monotonic()

    @heard
    async def resume(self, goal_id: str) -> GoalReport:
        """Return the report: the server gives a dead worker's steps to the next one."""
        report = await self.report(goal_id)
        if report.state == "cancelled":
            raise cancelled(goal_id)
        return report

    @heard
    async def retry(
        self, goal_id: str, *, from_step: str = "", plan: Plan | None = None
    ) -> GoalReport:
        """Begin a new revision of a goal that is over or asks."""
        found = await self._look(goal_id)
        report = found.report
        if report.state not in AT_REST:
            raise busy(goal_id)
        goal = found.task.goal._replace(plan=report.plan if plan is None else plan)
        insist(goal)
        wire.insist_on_size(goal)
        known = still_known(report.plan, goal.plan, report.steps, from_step)
        memo: Mapping[str, Any] = await found.run.memo()
        task = found.task._replace(
            goal=goal, revision=report.revision + 1, known=known, answers={},
            started=report.started,
            spent=spent(report.plan, report.steps, known, found.task.spent),
        )  # fmt: skip
        conflict = WorkflowIDConflictPolicy.FAIL
        if report.state == "asking":  # its workflow sleeps, and makes place
            conflict = WorkflowIDConflictPolicy.TERMINATE_EXISTING
        try:
            await self._start(
                task, memo.get("first", ""), WorkflowIDReusePolicy.ALLOW_DUPLICATE, conflict,
                submitted=memo.get("submitted") or found.run.start_time.timestamp(),
            )  # fmt: skip
        except WorkflowAlreadyStartedError:
            raise busy(goal_id) from None
        return report_of(
            goal, known, "queued", engine=ENGINE, started=task.started, revision=task.revision,
            spent=task.spent,
        )  # fmt: skip

    @heard
    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Answer a step that asks; the goal goes on."""
        found = await self._look(goal_id)
        if not answers.is_new(found.report, step, answer, _earlier(found, step, answer)):
            return
        steps = found.report.steps.values()
        said = [wire.encoded(one.output) for one in steps if one.step in found.answers]
        size = sum(map(len, [*said, wire.encoded(pack(answer))]))
        wire.insist_on_size(found.task.goal, size)
        with _unless_gone():
            handle = self._handle(found.run)
            await handle.signal(wire.ANSWER, args=[step, pack(answer)])
        # The first of two answers holds, and the second is refused.
        again = await self._look(goal_id)
        if again.run.run_id == found.run.run_id:
            answers.is_new(again.report, step, answer, _earlier(again, step, answer))

    @heard
    async def cancel(self, goal_id: str) -> None:
        """Stop it; a workflow that cannot go on is ended by force."""
        found = await self._describe(goal_id)
        if found.status != WorkflowExecutionStatus.RUNNING:
            return
        with _unless_gone():
            if found.raw_description.pending_workflow_task.attempt > STUCK:
                await self._handle(found).terminate(reason="cancelled")
            else:
                await self._handle(found).cancel()

    @heard
    async def forget(self, goal_id: str) -> None:
        """Remove a goal that is over, with all of its runs and its large outputs.

        The server removes a run when it has time. Until then a workflow of another type (a
        tombstone) stands in its place. While the tombstone runs, the id cannot be used, so no
        output of a goal that is begun again is removed. Once it has ended it hides the runs from
        lists until the namespace's retention is over.
        """
        latest = await self._described(goal_id)
        if latest is None or latest.workflow_type not in {wire.WORKFLOW, wire.FORGOTTEN}:
            raise missing(goal_id)
        known = latest.workflow_type == wire.WORKFLOW
        if known and latest.status == WorkflowExecutionStatus.RUNNING:
            raise not_over(goal_id, (await self.report(goal_id)).state)
        try:
            stone = await self._connected.start_workflow(
                wire.FORGOTTEN,
                id=goal_id,
                task_queue=f"{self._queue}-forgotten",  # without workers
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                execution_timeout=HELD,
            )
        except WorkflowAlreadyStartedError:  # another process was quicker
            found = await self._described(goal_id)
            if found is not None and found.workflow_type == wire.WORKFLOW:
                raise not_over(goal_id, "running") from None
            raise _leaving(goal_id) from None
        self._fresh[goal_id] = time.monotonic()
        try:
            query = f"WorkflowId = '{goal_id}' AND WorkflowType = '{wire.WORKFLOW}'"
            rows = self._connected.list_workflows(query)
            runs = {latest.run_id} | {run.run_id async for run in rows}
            await self.artefacts.forget(goal_id)
        finally:
            with _unless_gone():
                await stone.terminate(reason="forgotten", rpc_timeout=timedelta(seconds=10))
        for run_id in runs:
            request = DeleteWorkflowExecutionRequest(
                namespace=self._connected.namespace,
                workflow_execution=WorkflowExecutionId(workflow_id=goal_id, run_id=run_id),
            )
            with _unless_gone():
                await self._connected.workflow_service.delete_workflow_execution(request)
        if not known:  # a removal that broke off may have left outputs behind
            raise missing(goal_id)

    # --- looking ----------------------------------------------------------------------------

    @heard
    async def report(self, goal_id: str) -> GoalReport:
        """How far it is now."""
        return (await self._look(goal_id)).report

    @heard
    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Until it is over, or asks a person; what is so far when the time is up."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.05
        while True:
            if self._worker is not None and self._working is not None and self._working.done():
                raise ServerFailed(
                    say("The worker of this process broke down: {why}",
                        why=self._working.exception()),
                    say("Look at the log, then start it again"),
                )  # fmt: skip
            report = await self.report(goal_id)
            left = pause if end is None else min(pause, end - time.monotonic())
            if report.state in AT_REST or left <= 0:
                return report
            pause = min(pause * 1.5, 1.0)
            with suppress(TimeoutError, WorkflowFailureError), _unless_gone():
                async with asyncio.timeout(left):
                    await self._connected.get_workflow_handle(goal_id).result()

    @heard
    async def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Those first that were submitted last. Reads a line of every goal of the queue."""
        query = (
            f"WorkflowType = '{wire.FORGOTTEN}' OR "
            f"(WorkflowType = '{wire.WORKFLOW}' AND TaskQueue = '{self._queue}')"
        )
        latest: dict[str, WorkflowExecution] = {}
        async for run in self._connected.list_workflows(query, page_size=1000):
            if run.id not in latest or latest[run.id].start_time < run.start_time:
                latest[run.id] = run
        now = time.monotonic()
        self._fresh = {name: at for name, at in self._fresh.items() if now - at < FRESH_S}
        for fresh in await asyncio.gather(*map(self._described, self._fresh)):
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
            part = names[start : start + limit]
            found = await asyncio.gather(*(self._line(latest[name]) for name in part))
            lines += [one for one in found if one and (not states or one.state in states)]
            if len(lines) >= limit:
                break
        return lines[:limit]

    async def _line(self, run: WorkflowExecution) -> GoalSummary | None:
        """A line of the list; the server's list may be late about a goal that moves."""
        if run.status not in _MOVING:
            return await _from_memo(run)
        with suppress(NotFound):
            return summary_of((await self._look(run.id)).report)
        return None

    async def watch(self, goal_id: str) -> AsyncIterator[StepEvent]:
        """What happens to it, until it is over or asks."""
        async for event in watch_reports(lambda: self.report(goal_id), AT_REST, LOOK_S):
            yield event

    async def work(self, *, drain: float = 30.0) -> None:
        """Take work from others until cancelled; then finish what is begun."""
        if self._worker is None or self._working is None:
            raise no_runner()
        worker = self._worker
        try:
            await asyncio.shield(self._working)
        finally:
            self._worker = None
            await worker.stop(drain)

    # --- finding ----------------------------------------------------------------------------

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise not_open()
        return self._client

    def _handle(self, run: WorkflowExecution) -> WorkflowHandle[Any, Any]:
        return self._connected.get_workflow_handle(run.id, run_id=run.run_id)

    async def _described(self, goal_id: str) -> WorkflowExecutionDescription | None:
        """The latest run that has the id, whatever it is."""
        try:
            return await self._connected.get_workflow_handle(goal_id).describe()
        except RPCError as exc:
            if exc.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT}:
                return None
            raise

    async def _describe(self, goal_id: str) -> WorkflowExecutionDescription:
        """The goal's latest run.

        Raises:
            NotFound: there is no such goal.
        """
        found = await self._described(goal_id)
        if found is None or found.workflow_type != wire.WORKFLOW:
            raise missing(goal_id)
        return found

    async def _look(self, goal_id: str) -> Look:
        """Everything that is known of a goal.

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
            return await self._look(goal_id)
        if ended:
            reason = "" if ended == "cancelled" else say("Its workflow failed")
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
        return Look(report, task, progress["answers"], run)

    async def _query(self, run: WorkflowExecutionDescription, query: str) -> tuple[Any, str]:
        """What a worker answers; None, and why, when there is no answer."""
        try:
            return await self._handle(run).query(query, rpc_timeout=QUERY_TIMEOUT), ""
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as exc:
            why = str(exc)
        except RPCError as exc:
            if exc.status in {RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNAUTHENTICATED}:
                raise
            if run.raw_description.pending_workflow_task.attempt <= STUCK:
                return None, say("No worker answers: start one to see how far it is")
            why = exc.message
        return None, say("Its workflow cannot say how far it is: {why}", why=why[:500])

    async def _task(self, run: WorkflowExecution) -> wire.Task:
        """What a run began with: the input in its first event."""
        event = await anext(self._handle(run).fetch_history_events(page_size=1))
        given = event.workflow_execution_started_event_attributes.input.payloads
        [packed] = await self._connected.data_converter.decode(given)
        return unpack(wire.Task, packed)


def part(namespace: str, identity: str) -> str:
    """The folder of a namespace: readable, and unique by the id that the server gave it."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", namespace)[:40].strip("-")
    return f"{readable or 'namespace'}-{digest_of(identity.encode())[:12]}"


async def _submitted(run: WorkflowExecution) -> float:
    """When a goal was submitted; its first run began at that moment, more or less."""
    return float((await run.memo()).get("submitted") or run.start_time.timestamp())


async def _from_memo(run: WorkflowExecution) -> GoalSummary:
    """A line of the list; a workflow that only says that it is completed is `done`."""
    memo = await run.memo()
    steps = memo.get("steps", 0)
    started, seconds, done = memo.get("started", 0.0), memo.get("seconds", 0.0), memo.get("done", 0)
    state = memo.get("state") or ("running" if run.history_length > 2 else "queued")
    if run.status == WorkflowExecutionStatus.COMPLETED and "seconds" not in memo:
        started, state, done = run.start_time.timestamp(), "done", steps
        seconds = run.close_time.timestamp() - started if run.close_time else 0.0
    state = _ENDED.get(run.status, state)
    return GoalSummary(run.id, state, memo.get("goal", ""), ENGINE, started, seconds, done, steps)


def _earlier(found: Look, step: str, answer: Answer) -> Answer | None:
    """The answer that a step has: the same, another one, or none."""
    mark = found.answers.get(step)
    if mark is None:
        return None
    return answer if mark == wire.mark_of(answer) else answer._replace(approved=not answer.approved)


def _is_there(found: WorkflowExecutionDescription) -> bool:
    """Whether an id is taken: by a goal, or by the removal of one that is under way."""
    running = found.status == WorkflowExecutionStatus.RUNNING
    return running or found.workflow_type != wire.FORGOTTEN


def _leaving(goal_id: str) -> Conflict:
    return Conflict(
        say("Goal `{goal}` is being removed", goal=goal_id), say("Try again in a moment")
    )
