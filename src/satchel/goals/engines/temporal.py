"""How does a goal run for those who have Temporal? One workflow each, one activity per step.

    async with TemporalEngine(runner, address="127.0.0.1:7233") as engine:
        await engine.submit(goal)
        report = await engine.wait(goal.id)

A goal's id is its workflow's; a new revision is a new run of it. Nothing is asked of the server but
a namespace: the list of goals needs no search attributes, only the memo of each workflow. Goals are
forgotten when the namespace's retention is over, or by `forget`, which alone removes their large
outputs too. Workers share the artefacts: on several machines their folder must be one that all of
them see.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from satchel._language import say
from satchel._optional import require
from satchel.errors import Conflict, NotFound, Refused, ServerFailed
from satchel.goals import answers
from satchel.goals.artefacts import MemoryArtefacts
from satchel.goals.engines import _temporal_wire as wire
from satchel.goals.engines._temporal_look import ENGINE, Looker, report_from
from satchel.goals.engines._temporal_outputs import NamespaceArtefacts
from satchel.goals.engines._temporal_watch import AT_REST, Watched
from satchel.goals.engines.base import Workbench, not_over
from satchel.goals.graph import insist
from satchel.goals.reports import pack, report_of
from satchel.goals.revision import still_known
from satchel.goals.spending import spent

try:
    from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
    from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
    from temporalio.converter import DataConverter
    from temporalio.envconfig import ClientConfig
    from temporalio.exceptions import WorkflowAlreadyStartedError
    from temporalio.service import RPCError, RPCStatusCode
except ImportError:
    require("temporalio", "temporal")
    raise

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Generator,
        Sequence,
    )
    from types import CoroutineType

    from temporalio.client import WorkflowHandle

    from satchel.goals.artefacts import Artefacts
    from satchel.goals.engines._temporal_look import Look
    from satchel.goals.engines._temporal_worker import StepWorker
    from satchel.goals.model import (
        Answer,
        Goal,
        GoalReport,
        GoalState,
        GoalSummary,
        Plan,
        StepEvent,
        StepRunner,
    )

_P = ParamSpec("_P")
_T = TypeVar("_T")
LOOK = 0.2
"""Seconds between two looks at a goal that is watched."""
PATIENCE = 10.0
"""Seconds that a goal is waited for before somebody looks whether its worker lives."""
LATE = 5.0
"""Seconds that the server's list may be late when a goal is removed."""
HELD = timedelta(minutes=10)
"""How long the id of a goal that is being removed is nobody's, when who removes it dies."""
FRESH = 15.0
"""Seconds after which a goal that was submitted here is in Temporal's own list."""


@contextmanager
def _server() -> Generator[None]:
    """Say what the server's own errors mean here."""
    try:
        yield
    except RPCError as exc:
        raise ServerFailed(
            say("Temporal's server does not do it: {why}", why=exc.message or exc.status.name),
            say("Look whether it runs, and whether address and namespace are right"),
        ) from exc


def heard(
    method: Callable[Concatenate[TemporalEngine, _P], Awaitable[_T]],
) -> Callable[Concatenate[TemporalEngine, _P], CoroutineType[Any, Any, _T]]:
    """A method of the engine whose errors are ours."""

    @wraps(method)
    async def outer(self: TemporalEngine, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with _server():
            return await method(self, *args, **kwargs)

    return outer


@cache
def _leave_in_peace() -> None:
    """Give the SDK's threads a moment before the interpreter ends.

    One that comes back into Python at that moment aborts the process (temporalio/sdk-python#300).
    A moment makes that less likely; it rules nothing out.
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
    """Goals on a Temporal server.

    Args:
        runner: Who does the steps; with one, this process is a worker as long as it is open.
        folder: Where large outputs are kept, each namespace's apart; in memory, of this process
            alone, when empty.
        address: Of the server; as Temporal's own settings (`TEMPORAL_ADDRESS`, …) say when empty.
        namespace: The same.
        queue: What goals and workers find each other by.
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
        self.artefacts: Artefacts = artefacts or (
            NamespaceArtefacts(folder) if folder else MemoryArtefacts()
        )
        kept = wire.ActivityArtefacts(self.artefacts)
        self._bench = Workbench(runner, kept, large) if runner else None
        self._address = address
        self._namespace = namespace
        self._queue = queue
        self._at_once = at_once
        self._given = client
        self._client: Client | None = None
        self._looker: Looker | None = None
        self._worker: StepWorker | None = None
        self._working: asyncio.Task[None] | None = None
        self._fresh: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        self._client = await connect(self._address, self._namespace, self._given)
        self._looker = Looker(self._client, self._queue)
        if isinstance(self.artefacts, NamespaceArtefacts):
            with _server():
                self.artefacts.enter(self._client.namespace, await self._looker.namespace())
        if self._bench is not None:
            from satchel.goals.engines._temporal_worker import StepWorker

            self._worker = StepWorker(self._client, self._queue, self._bench, self._at_once)
            self._working = self._worker.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Leave; what runs here is given to the next worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop()
        self._client = self._looker = None

    # --- beginning --------------------------------------------------------------------------

    @heard
    async def submit(self, goal: Goal) -> GoalReport:
        """Begin a goal and come back at once."""
        insist(goal)
        wire.insist_on_size(goal)
        task = wire.Task(goal)
        mark = wire.digest(goal)
        try:
            await self._start(
                task, mark, mark, WorkflowIDReusePolicy.REJECT_DUPLICATE, submitted=time.time()
            )
        except WorkflowAlreadyStartedError:
            if await self._again(task, mark):
                return report_of(goal, {}, "queued", engine=ENGINE)
            if await self._look.is_leaving(goal.id):
                raise _leaving(goal.id) from None
            if mark not in await self._marks(goal.id):
                raise Conflict(
                    say("There is a goal `{goal}` with another plan", goal=goal.id),
                    say("Use another id, or `satchel goal retry` with `--plan` or `--input`"),
                ) from None
            return await self.report(goal.id)
        return report_of(goal, {}, "queued", engine=ENGINE)

    async def _again(self, task: wire.Task, mark: str) -> bool:
        """Begin a goal whose name another one had that was removed; whether it is so."""
        if not await self._look.is_forgotten(task.goal.id):
            return False
        reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE
        with suppress(WorkflowAlreadyStartedError):  # somebody else was quicker
            await self._start(task, mark, mark, reuse, submitted=time.time())
            return True
        return False

    async def _marks(self, goal_id: str) -> set[str]:
        """The plans that an id stands for: the first, and the one it has now."""
        try:
            memo = await (await self._look.describe(goal_id)).memo()
        except NotFound:
            return set()  # a workflow of somebody else
        return {str(memo.get("plan")), str(memo.get("first"))}

    async def _start(
        self,
        task: wire.Task,
        mark: str,
        first: str,
        reuse: WorkflowIDReusePolicy,
        conflict: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.FAIL,
        *,
        submitted: float,
        previous: str = "",
    ) -> None:
        goal = task.goal
        handle = await self._connected.start_workflow(
            wire.WORKFLOW,
            wire.pack_task(task),
            id=goal.id,
            task_queue=self._queue,
            id_reuse_policy=reuse,
            id_conflict_policy=conflict,
            memo={
                "goal": goal.plan.goal[:200],
                "steps": len(goal.plan.steps),
                "plan": mark,
                "first": first,
                "submitted": submitted,
                wire.PREVIOUS: previous,
            },
        )
        if handle.result_run_id:
            self._look.remember(handle.result_run_id, task)
        self._note(goal.id)

    def _note(self, goal_id: str) -> None:
        """The server's list is late: remember what it may not know."""
        now = time.monotonic()
        self._fresh = {name: at for name, at in self._fresh.items() if now - at < FRESH}
        self._fresh[goal_id] = now

    @heard
    async def resume(self, goal_id: str) -> GoalReport:
        """Nothing to do: the server gives a dead worker's steps to the next one."""
        return await self.report(goal_id)

    @heard
    async def retry(
        self, goal_id: str, *, from_step: str = "", plan: Plan | None = None
    ) -> GoalReport:
        """Begin a new revision of a goal that is over or asks."""
        found = await self._look.look(goal_id)
        report = found.report
        if report.state not in AT_REST:
            raise _busy(goal_id)
        goal = found.task.goal._replace(plan=report.plan if plan is None else plan)
        insist(goal)
        wire.insist_on_size(goal)
        known = still_known(report.plan, goal.plan, report.steps, from_step)
        latest = await self._look.describe(goal_id)
        memo: dict[str, Any] = dict(await latest.memo())
        task = found.task._replace(
            goal=goal, revision=report.revision + 1, known=known, answers={}, marks={},
            started=report.started,
            spent=spent(report.plan, report.steps, known, found.task.spent),
        )  # fmt: skip
        asks = report.state == "asking"  # its workflow sleeps, and makes place
        try:
            await self._start(
                task,
                wire.digest(goal),
                memo.get("first", ""),
                WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                WorkflowIDConflictPolicy.TERMINATE_EXISTING
                if asks
                else WorkflowIDConflictPolicy.FAIL,
                submitted=memo.get("submitted") or latest.start_time.timestamp(),
                previous=latest.run_id,
            )
        except WorkflowAlreadyStartedError:
            raise _busy(goal_id) from None
        return report_of(
            goal, known, "queued", engine=ENGINE, started=task.started, revision=task.revision,
            spent=task.spent,
        )  # fmt: skip

    @heard
    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Say a person's word; the goal goes on."""
        found = await self._look.look(goal_id)
        if not answers.is_new(found.report, step, answer, _earlier(found, step, answer)):
            return
        wire.insist_on_answer(found.report, answer)
        handle = self._connected.get_workflow_handle(goal_id, run_id=found.run_id)
        try:
            await handle.signal(wire.ANSWER, args=[step, pack(answer)])
        except RPCError as exc:
            if exc.status != RPCStatusCode.NOT_FOUND:
                raise
        # Somebody may have been quicker: the first word holds, and this one must know.
        again = await self._look.look(goal_id)
        if again.run_id == found.run_id:
            answers.is_new(again.report, step, answer, _earlier(again, step, answer))

    @heard
    async def cancel(self, goal_id: str) -> None:
        """Stop it; a workflow that cannot go on is ended by force."""
        found = await self._look.describe(goal_id)
        if found.status != WorkflowExecutionStatus.RUNNING:
            return
        handle = self._connected.get_workflow_handle(goal_id, run_id=found.run_id)
        stuck = await self._look.stuck(found)
        try:
            if stuck:  # it would hear of it only when it can go on
                await handle.terminate(reason=stuck)
            else:
                await handle.cancel()
        except RPCError as exc:
            if exc.status != RPCStatusCode.NOT_FOUND:  # it ended by itself meanwhile
                raise

    @heard
    async def forget(self, goal_id: str) -> None:
        """Remove a goal that is over, with all of its runs and its large outputs.

        The server removes a run when it has time: of one that has just ended, half a minute later.
        Until then a workflow of another kind stands in its place, so that nobody takes the id for
        the goal's. As long as that runs, nobody begins the goal again, nor another one under its
        id: nothing is removed before, and what is to be removed is known when it ends.
        """
        latest = await self._look.removable(goal_id)
        if latest.status == WorkflowExecutionStatus.RUNNING:
            raise not_over(goal_id, (await self.report(goal_id)).state)
        try:
            stone = await self._connected.start_workflow(
                wire.FORGOTTEN,
                id=goal_id,
                task_queue=f"{self._queue}-forgotten",  # nobody works on it
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                execution_timeout=HELD,
                memo={wire.PREVIOUS: latest.run_id},
            )
        except WorkflowAlreadyStartedError:  # somebody was quicker
            if await self._look.is_leaving(goal_id):
                raise _leaving(goal_id) from None
            raise not_over(goal_id, "running") from None
        try:
            runs, whole = await self._look.runs(goal_id, latest.run_id, LATE)
            await self.artefacts.forget(goal_id)
        except BaseException:
            with suppress(RPCError):
                await _lift(stone, "not removed")  # who removes it again goes on from here
            raise
        await _lift(stone, wire.GONE)
        self._fresh.pop(goal_id, None)
        itself = stone.result_run_id or ""
        await self._look.delete(goal_id, runs - {itself})
        if whole:  # else it stays, and hides in lists what nobody could name
            await self._look.delete(goal_id, [itself])

    # --- looking ----------------------------------------------------------------------------

    @heard
    async def report(self, goal_id: str) -> GoalReport:
        """How far it is now."""
        return (await self._look.look(goal_id)).report

    @heard
    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Until it is over, or asks a person; what is so far when the time is up."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.05
        while True:
            self._insist_on_worker()
            run = await self._look.describe(goal_id)
            task = await self._look.task(goal_id, run.run_id)
            asks = any(step.action_type == "human" for step in task.goal.plan.steps)
            pause = min(pause * 1.5, 1.0) if asks else PATIENCE
            left = pause if end is None else min(pause, end - time.monotonic())
            if run.status == WorkflowExecutionStatus.RUNNING and left > 0:
                progress = await self._ending(goal_id, run.run_id, left)
                if progress is not None:
                    return report_from(task, progress, await self._look.closed(goal_id))
                if not asks and (end is None or time.monotonic() < end):
                    continue
            report = await self.report(goal_id)
            if report.state in AT_REST or (end is not None and time.monotonic() >= end):
                return report

    async def _ending(self, goal_id: str, run_id: str, seconds: float) -> Any:
        """What a workflow says at its end; None when that does not come in time."""
        handle = self._connected.get_workflow_handle(goal_id, run_id=run_id)
        with suppress(TimeoutError, WorkflowFailureError):
            async with asyncio.timeout(seconds):
                return await handle.result()
        return None

    @heard
    async def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Those first that were submitted last."""
        now = time.monotonic()
        fresh = [name for name, at in self._fresh.items() if now - at < FRESH]
        return await self._look.list(states, limit, fresh, before)

    async def watch(self, goal_id: str) -> AsyncIterator[StepEvent]:
        """What happens to it, until it is over or asks."""
        watched = Watched(self._look, goal_id)
        while True:
            with _server():
                events, rest = await watched.next()
            for event in events:
                yield event
            if rest:
                return
            await asyncio.sleep(LOOK)

    async def work(self, *, drain: float = 30.0) -> None:
        """Take work from others until cancelled; then finish what is begun."""
        if self._worker is None or self._working is None:
            raise Refused(
                say("Nobody here can do the steps of goals"), say("Give the engine a runner")
            )
        worker = self._worker
        try:
            await asyncio.shield(self._working)
        finally:
            self._worker = None
            await worker.stop(drain)

    def _insist_on_worker(self) -> None:
        """Nobody waits for a worker of this process that broke down."""
        if self._worker is not None and self._working is not None and self._working.done():
            raise ServerFailed(
                say("The worker of this process broke down: {why}", why=self._working.exception()),
                say("Look at the log, then start it again"),
            )

    # --- finding ----------------------------------------------------------------------------

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise Refused(say("The engine is not open"), say("Use it with `async with`"))
        return self._client

    @property
    def _look(self) -> Looker:
        if self._looker is None:
            raise Refused(say("The engine is not open"), say("Use it with `async with`"))
        return self._looker


def _earlier(found: Look, step: str, answer: Answer) -> Answer | None:
    """What was said to a step before: the same as now, something else, or nothing."""
    mark = found.answers.get(step)
    if mark is None:
        return None
    return answer if mark == wire.mark_of(answer) else answer._replace(approved=not answer.approved)


def _busy(goal_id: str) -> Conflict:
    return Conflict(
        say("Goal `{goal}` is running", goal=goal_id),
        say("Wait for it, or run `satchel goal cancel {goal}`", goal=goal_id),
    )


def _leaving(goal_id: str) -> Conflict:
    return Conflict(
        say("Goal `{goal}` is being removed", goal=goal_id), say("Try again in a moment")
    )


async def _lift(stone: WorkflowHandle[Any, Any], reason: str) -> None:
    """Free the id that a stone holds; it is free already when that took too long."""
    try:
        await stone.terminate(reason=reason, rpc_timeout=timedelta(seconds=10))
    except RPCError as exc:
        if exc.status != RPCStatusCode.NOT_FOUND:
            raise
