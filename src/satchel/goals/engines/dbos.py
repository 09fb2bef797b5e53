"""The engine `dbos`: goals are workflows of DBOS, in SQLite or PostgreSQL.

    async with DbosEngine(runner, "goals.db") as engine:      # one process, no server
        await engine.submit(goal)
        report = await engine.wait(goal.id)

With a runner the process works on goals from when the engine is opened, on those of others too:
`work()` does nothing but that. Without one it submits, looks, answers and cancels, and workers
elsewhere do the steps. DBOS is one per process, so there is one engine with a runner at a time.

SQLite is for one machine. From the second machine, or for many workers, it is PostgreSQL: the
database is all that they share.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from satchel._language import say
from satchel._optional import require
from satchel.errors import Conflict, NotFound
from satchel.goals import answers
from satchel.goals.engines._dbos_runs import (
    ENGINE,
    QUEUE,
    WORKFLOW,
    Order,
    RunId,
    Runs,
    about,
    own_queue,
)
from satchel.goals.engines._dbos_store import (
    SCHEMA,
    DatabaseArtefacts,
    Store,
    own_name,
    surely_dead,
)
from satchel.goals.engines._dbos_worker import APPLICATION, VERSION, Worker
from satchel.goals.engines.base import (
    AT_REST,
    Workbench,
    busy,
    no_runner,
    not_open,
    not_over,
    other_plan,
    watch_reports,
)
from satchel.goals.graph import insist
from satchel.goals.model import OVER
from satchel.goals.reports import pack, report_of
from satchel.goals.revision import still_known
from satchel.goals.spending import spent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence

    from satchel.goals.artefacts import Artefacts
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

_Given = TypeVar("_Given")
_NEVER = 10 * 365 * 86400.0
"""The delay of a run that only says that a goal was cancelled: nobody ever begins it."""
_LOOK_S = 0.3
"""Seconds between two looks at a goal that is watched."""
_STOPPING = 10.0
"""Seconds that a new revision waits for steps of the old one that were cancelled."""


class DbosEngine:
    """Goals in a database.

    Args:
        runner: Who does the steps here; without one, others do.
        database: A path, `sqlite:///…` or `postgresql://…`.
        artefacts: Where large outputs are kept; in the same database when None.
        large: Outputs of more bytes than this are kept as artefacts.
        only: Ids of the goals that this process may do, when not all that wait: the approvals and
            skills of a person are for their own goals. Read anew at each look, so it may grow.
        at_once: Goals that a worker has at once, at most. Kept in the database: who says it says
            it for all workers. When None, what was said last; 100 at first.
        poll: Seconds between two looks for new goals.
        lease: Seconds after which a worker that does not answer is taken for dead. One of the same
            machine is known to be dead at once.
    """

    name = ENGINE
    durable = True

    def __init__(
        self,
        runner: StepRunner | None = None,
        database: str = "goals.db",
        *,
        artefacts: Artefacts | None = None,
        large: int = 32_768,
        only: Collection[str] | None = None,
        at_once: int | None = None,
        poll: float = 0.1,
        lease: float = 5.0,
    ) -> None:
        require("dbos", "dbos")
        self._store = Store(database)
        self.artefacts: Artefacts = artefacts or DatabaseArtefacts(self._store)
        self._bench = Workbench(runner, self.artefacts, large) if runner else None
        self._only = only
        self._at_once = at_once
        self._poll = poll
        self._lease = lease
        self._client: Any = None
        self._runs: Runs
        self._ended: dict[str, asyncio.Event] = {}
        """Run that is waited for -> whether it has ended in this process."""
        self._worker: Worker | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._connect)
            if self._bench is not None:
                worker = Worker(
                    self._store, self._runs, self._bench, self._has_ended,
                    self._go_on_with_answered, self._only, self._lease,
                )  # fmt: skip
                await worker.launch()
                self._worker = worker
        except BaseException:
            await self._disconnect()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Leave; what was begun here goes on elsewhere, or when the next worker comes."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close()
        await self._disconnect()

    def _connect(self) -> None:
        from dbos import DBOSClient, DBOSPortableJSONSerializer

        self._store.prepare()
        client = DBOSClient(
            system_database_engine=self._store.engine,
            dbos_system_schema=SCHEMA,
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            lazy=True,
        )
        self._client = client
        name = own_name() if self._bench else ""
        own = own_queue(name) if name and self._only is not None else QUEUE
        for queue in {QUEUE, own}:
            client.register_queue(
                queue,
                worker_concurrency=self._at_once or 100,
                polling_interval_sec=self._poll,
                on_conflict="always_update" if self._bench and self._at_once else "never_update",
                application_name=APPLICATION,
            )
        self._runs = Runs(client, own, name)

    async def _disconnect(self) -> None:
        if self._client is not None:
            await asyncio.to_thread(self._client.destroy)
            self._client = None
        self._store.close()

    async def _in_thread(self, work: Callable[..., _Given], *given: Any) -> _Given:
        if self._client is None:
            raise not_open()
        return await asyncio.to_thread(work, *given)

    # --- beginning ------------------------------------------------------------------------

    async def submit(self, goal: Goal) -> GoalReport:
        """Begin a goal and come back at once. The same id and plan again is the same goal."""
        insist(goal)
        order = Order(goal, RunId(goal.id, 1, 1), born=secrets.token_hex(8))
        if await self._in_thread(self._begin, order):
            return report_of(goal, {}, "queued", engine=ENGINE)
        return await self._in_thread(self._same_goal, goal)

    def _begin(self, order: Order, delay: float | None = None) -> bool:
        """Put a run into the queue; False when it is there already."""
        from dbos import error

        options: dict[str, Any] = {
            "workflow_name": WORKFLOW,
            "queue_name": self._runs.queue,
            "workflow_id": str(order.run),
            "workflow_id_reuse_policy": "reject",
            "app_version": VERSION,
            "attributes": about(order),
        }
        if delay is not None:
            options["delay_seconds"] = delay
        try:
            self._client.enqueue(options, order.packed())
        except error.DBOSWorkflowIDInUseError:
            return False
        self._runs.keep(order)
        return True

    def _same_goal(self, goal: Goal) -> GoalReport:
        run = self._runs.latest(goal.id)
        plan = pack(goal.plan)
        known = (str(run.id), str(RunId(goal.id, 1, 1)))
        if not any(pack(self._runs.order(one, run.born).goal.plan) == plan for one in known):
            raise other_plan(goal.id)
        return self._runs.report(run)

    async def retry(
        self, goal_id: str, *, from_step: str = "", plan: Plan | None = None
    ) -> GoalReport:
        """Begin a new revision of a goal that is over or asks; kept are results that hold.

        Raises:
            Conflict: it runs, or was cancelled and a step of it has not ended yet.
        """
        await self._until_stopped(goal_id)
        return await self._in_thread(self._retry, goal_id, from_step, plan)

    async def _until_stopped(self, goal_id: str) -> None:
        """Wait for steps of a goal that was cancelled.

        Raises:
            Conflict: one has not ended in time.
        """
        patience = time.monotonic() + _STOPPING
        while await self._in_thread(self._still_stops, goal_id):
            if time.monotonic() > patience:
                raise Conflict(
                    say(
                        "Goal `{goal}` was cancelled, and a step of it has not ended", goal=goal_id
                    ),
                    say("Wait until its worker has ended it, then try again"),
                )
            await asyncio.sleep(0.1)

    def _still_stops(self, goal_id: str) -> bool:
        """Whether a worker that lives is still at a step that was cancelled."""
        run = self._runs.latest(goal_id)
        worker = self._store.who_stops(str(run.id)) if run.status == "CANCELLED" else ""
        return bool(worker) and not surely_dead(worker)

    def _retry(self, goal_id: str, from_step: str, plan: Plan | None) -> GoalReport:
        run = self._runs.latest(goal_id)
        if run.moving:
            raise busy(goal_id)
        report = self._runs.report(run)
        wanted = report.plan if plan is None else plan
        earlier = self._runs.order(str(run.id), run.born)
        goal = earlier.goal._replace(plan=wanted)
        insist(goal)
        kept = still_known(report.plan, wanted, report.steps, from_step)
        took = spent(report.plan, report.steps, kept, earlier.spent)
        order = Order(
            goal, RunId(goal_id, run.id.revision + 1, 1), str(run.id), tuple(kept), spent=took,
            born=run.born,
        )  # fmt: skip
        if not self._begin(order):
            raise busy(goal_id)  # somebody else was quicker
        revision = order.run.revision
        return report_of(goal, kept, "queued", engine=ENGINE, revision=revision, spent=took)

    async def resume(self, goal_id: str) -> GoalReport:
        """Go on with a goal that was set aside; others go on by themselves."""
        return await self._in_thread(self._resume, goal_id)

    def _resume(self, goal_id: str) -> GoalReport:
        run = self._runs.latest(goal_id)
        if run.set_aside:
            self._runs.count_deaths(str(run.id), 0)
            self._client.resume_workflow(str(run.id), queue_name=self._runs.queue)
            run = self._runs.latest(goal_id)
        elif run.status == "PENDING" and not surely_dead(run.worker):
            raise busy(goal_id)
        return self._runs.report(run)

    # --- people ---------------------------------------------------------------------------

    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Say a person's word; the goal goes on."""
        await self._in_thread(self._answer, goal_id, step, answer)

    def _answer(self, goal_id: str, step: str, answer: Answer) -> None:
        run = self._runs.latest(goal_id)
        revision = run.id.revision
        said = self._store.said(goal_id, revision)
        if not answers.is_new(self._runs.report(run), step, answer, said.get(step)):
            return
        self._store.say(goal_id, revision, step, answer)
        if self._store.said(goal_id, revision)[step] != answer:  # somebody else was quicker
            answers.is_new(
                self._runs.report(run), step, answer, self._store.said(goal_id, revision)[step]
            )
        self._go_on(goal_id)

    def _go_on(self, goal_id: str) -> None:
        """Begin the next run of a goal that asked and was answered; when it runs, later."""
        run = self._runs.latest(goal_id)
        said = self._store.said(goal_id, run.id.revision)
        waiting = {revision for _, revision in self._store.waiting(goal_id)}
        for revision in waiting - {run.id.revision}:
            earlier = self._store.said(goal_id, revision)
            self._store.taken(goal_id, revision, list(earlier), 0)  # of a plan that is no more
        if run.moving or run.id.revision not in waiting:
            return
        number = 0
        if run.state == "asking":
            order = self._runs.order(str(run.id), run.born)
            number = run.id.number + 1
            now = run.id._replace(number=number)
            self._begin(Order(order.goal, now, str(run.id), None, said, order.spent, run.born))
            taken = self._runs.order(str(now), run.born).answers
            said = {step: said[step] for step in said if step in taken}
        self._store.taken(goal_id, run.id.revision, list(said), number)

    def _go_on_with_answered(self) -> None:
        """The same for all goals: of answers that came while their goal ran."""
        for goal_id, revision in self._store.waiting():
            try:
                self._go_on(goal_id)
            except NotFound:  # somebody removed it from the database
                said = self._store.said(goal_id, revision)
                self._store.taken(goal_id, revision, list(said), 0)

    async def cancel(self, goal_id: str) -> None:
        """Stop it."""
        await self._in_thread(self._cancel, goal_id)
        if self._worker is not None:
            self._worker.look()

    def _cancel(self, goal_id: str) -> None:
        run = self._runs.latest(goal_id)
        while run.state not in OVER:
            if run.moving:
                if run.worker:
                    self._store.stop(str(run.id), run.worker)
                self._client.cancel_workflow(str(run.id))
            else:  # it asks, so no run of it can be stopped: one that never begins says it
                order = self._runs.order(str(run.id), run.born)
                now = run.id._replace(number=run.id.number + 1)
                end = Order(order.goal, now, str(run.id), spent=order.spent, born=run.born)
                self._begin(end, _NEVER)
                self._client.cancel_workflow(str(end.run))
            run = self._runs.latest(goal_id)
            if run.status == "CANCELLED" and run.worker:  # it was taken a moment ago
                self._store.stop(str(run.id), run.worker)

    async def forget(self, goal_id: str) -> None:
        """Remove a goal that is over, with its runs, its answers and its large outputs.

        Raises:
            Conflict: it runs or asks, or was cancelled and a step of it has not ended yet.
        """
        try:
            await self._until_stopped(goal_id)
        except NotFound:
            await self.artefacts.forget(goal_id)  # what outlived its goal
            raise
        runs = await self._in_thread(self._claim, goal_id)
        await self.artefacts.forget(goal_id)
        await self._in_thread(self._remove, goal_id, runs)

    def _claim(self, goal_id: str) -> list[str]:
        """Make sure that nobody begins a goal again while it is removed. Returns its runs.

        The place of its next revision is taken, by a run that nobody ever begins. Should this
        process die before it has removed it all, the goal waits, and can be cancelled and removed.
        """
        run = self._runs.latest(goal_id)
        if run.state not in OVER:
            raise not_over(goal_id, run.state)
        order = self._runs.order(str(run.id), run.born)
        end = RunId(goal_id, run.id.revision + 1, 1)
        if not self._begin(Order(order.goal, end, str(run.id), born=run.born), _NEVER):
            raise not_over(goal_id, "queued")  # somebody else was quicker
        return self._runs.all_of(goal_id)

    def _remove(self, goal_id: str, runs: list[str]) -> None:
        self._store.forget(goal_id)
        self._client.delete_workflows(runs)
        self._runs.forget(runs)

    # --- looking --------------------------------------------------------------------------

    async def report(self, goal_id: str) -> GoalReport:
        """How far it is now."""
        return await self._in_thread(lambda: self._runs.report(self._runs.latest(goal_id)))

    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Until it is over, or asks a person; what is so far when the time is up."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.02
        while True:
            run = await self._in_thread(self._runs.latest, goal_id)
            left = pause if end is None else min(pause, end - time.monotonic())
            at_rest = run.state in AT_REST
            if run.state == "asking" and await self._in_thread(self._answered, goal_id):
                at_rest = False  # it goes on in a moment
            if at_rest or left <= 0:
                self._ended.pop(str(run.id), None)
                return await self._in_thread(self._runs.report, run)
            # The more are waited for, the less often: what ends here is heard of at once.
            pause = min(pause * 1.5, 0.5 + 0.01 * len(self._ended))
            ended = self._ended.setdefault(str(run.id), asyncio.Event())
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await ended.wait()
                    self._ended.pop(str(run.id), None)
                    pause = 0.01  # until it is written down

    def _has_ended(self, run: str) -> None:
        if run in self._ended:
            self._ended[run].set()

    def _answered(self, goal_id: str) -> bool:
        """Whether a goal that asks was answered, and goes on in a moment."""
        if not self._store.waiting(goal_id):
            return False
        self._go_on(goal_id)
        return True

    async def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Those first that were submitted last."""
        return await self._in_thread(self._runs.summaries, states, limit, before)

    async def watch(self, goal_id: str) -> AsyncIterator[StepEvent]:
        """What happens to it, until it is over or asks. Beginning with what has happened."""
        async for event in watch_reports(lambda: self.report(goal_id), AT_REST, _LOOK_S):
            yield event

    async def work(self, *, drain: float = 30.0) -> None:
        """Work until cancelled; then finish the steps that are begun, `drain` seconds long."""
        if self._worker is None:
            raise no_runner()
        worker = self._worker
        try:
            await asyncio.Event().wait()
        finally:
            await worker.drain(drain)
