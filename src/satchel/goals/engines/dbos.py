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
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from satchel._optional import require
from satchel.errors import NotFound
from satchel.goals import answers
from satchel.goals.engines._dbos_runs import (
    ENGINE,
    QUEUE,
    WORKFLOW,
    Order,
    RunId,
    Runs,
    own_queue,
)
from satchel.goals.engines._dbos_store import (
    SCHEMA,
    DatabaseArtefacts,
    Store,
    own_name,
)
from satchel.goals.engines._dbos_worker import APPLICATION, VERSION, Worker
from satchel.goals.engines.base import (
    AT_REST,
    Workbench,
    busy,
    cancelled,
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
    from satchel.goals.engines._dbos_runs import Run
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
"""The delay of a run that only takes the place of one: it never begins."""
_LOOK_S = 0.3
"""Seconds between two looks at a goal that is watched."""


class DbosEngine:
    """Runs goals with DBOS, in SQLite or PostgreSQL.

    Args:
        runner: Runs steps in this process; without one, workers elsewhere do.
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
        self._waiting = 0
        """How many goals are waited for."""
        self._worker: Worker | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._connect)
            if self._bench is not None:
                worker = Worker(
                    self._store, self._runs, self._bench, self._go_on_with_answered, self._only,
                    self._lease,
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
        self._runs = Runs(client, self._store, own, name)

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
        order = Order(goal, str(RunId(goal.id, 1, 1)))
        if await self._in_thread(self._begin, order):
            return report_of(goal, {}, "queued", engine=ENGINE)
        return await self._in_thread(self._same_goal, goal)

    def _begin(self, order: Order, delay: float | None = None) -> bool:
        """Put a run into the queue; False when it is there already."""
        from dbos import error

        options: dict[str, Any] = {
            "workflow_name": WORKFLOW,
            "queue_name": self._runs.queue,
            "workflow_id": order.run,
            "workflow_id_reuse_policy": "reject",
            "app_version": VERSION,
            "attributes": {"begun": time.time()},
        }
        if delay is not None:
            options["delay_seconds"] = delay
        try:
            self._client.enqueue(options, pack(order))
        except error.DBOSWorkflowIDInUseError:
            return False
        return True

    def _same_goal(self, goal: Goal) -> GoalReport:
        run = self._runs.latest(goal.id)
        plan = pack(goal.plan)
        first = self._runs.order(str(RunId(goal.id, 1, 1)))
        if plan not in (pack(run.order.goal.plan), pack(first.goal.plan)):
            raise other_plan(goal.id)
        return self._runs.report(run)

    async def retry(
        self, goal_id: str, *, from_step: str = "", plan: Plan | None = None
    ) -> GoalReport:
        """Begin a new revision of a goal that is over or asks; kept are results that hold."""
        return await self._in_thread(self._retry, goal_id, from_step, plan)

    def _retry(self, goal_id: str, from_step: str, plan: Plan | None) -> GoalReport:
        run = self._runs.latest(goal_id)
        if run.moving:
            raise busy(goal_id)
        report = self._runs.report(run)
        wanted = report.plan if plan is None else plan
        earlier = run.order
        goal = earlier.goal._replace(plan=wanted)
        insist(goal)
        kept = still_known(report.plan, wanted, report.steps, from_step)
        took = spent(report.plan, report.steps, kept, earlier.spent)
        revision = run.id.revision + 1
        now = RunId(goal_id, revision, 1)
        if not self._begin(run.follow(now, goal=goal, keep=[*kept], spent=took)):
            raise busy(goal_id)  # another process was quicker
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
        elif run.status == "PENDING" and self._store.lives(run.worker):
            raise busy(goal_id)
        elif run.state == "cancelled":
            raise cancelled(goal_id)
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
        if run.moving:
            return
        said = self._store.said(goal_id, run.id.revision)
        now = run.id._replace(number=run.id.number + 1)
        if run.state == "asking" and not self._begin(run.follow(now, answers=said)):
            return  # another process was quicker
        self._store.taken(goal_id, run.id.revision, list(said))

    def _go_on_with_answered(self) -> None:
        """The same for all goals: of answers that came while their goal ran."""
        for goal_id in self._store.waiting():
            try:
                self._go_on(goal_id)
            except NotFound:  # it was removed from the database
                self._store.forget(goal_id)

    async def cancel(self, goal_id: str) -> None:
        """Stop it; a goal whose steps run is cancelled when its worker has ended them."""
        await self._in_thread(self._cancel, goal_id)
        if self._worker is not None:
            self._worker.look()

    def _cancel(self, goal_id: str) -> None:
        run = self._runs.latest(goal_id)
        while run.state not in OVER:
            if run.state == "asking":  # a run that never begins takes the place of the next one
                end = run.follow(run.id._replace(number=run.id.number + 1))
                if self._begin(end, _NEVER):
                    self._runs.cancel(end.run)
            elif self._runs.stop(run):
                return
            run = self._runs.latest(goal_id)  # it may have gone on meanwhile

    async def forget(self, goal_id: str) -> None:
        """Remove a goal that is over, with its runs, its answers and its large outputs."""
        try:
            runs = await self._in_thread(self._claim, goal_id)
        except NotFound:
            await self.artefacts.forget(goal_id)  # what outlived its goal
            raise
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
        end = RunId(goal_id, run.id.revision + 1, 1)
        if not self._begin(run.follow(end), _NEVER):
            raise not_over(goal_id, "queued")  # somebody else was quicker
        return self._runs.all_of(goal_id)

    def _remove(self, goal_id: str, runs: list[str]) -> None:
        self._store.forget(goal_id)
        self._client.delete_workflows(runs)

    # --- looking --------------------------------------------------------------------------

    async def report(self, goal_id: str) -> GoalReport:
        """How far it is now."""
        return await self._in_thread(lambda: self._runs.report(self._runs.latest(goal_id)))

    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Until it is over, or asks a person; what is so far when the time is up."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.02
        self._waiting += 1
        try:
            while True:
                run = await self._in_thread(self._looked_at, goal_id)
                left = pause if end is None else min(pause, end - time.monotonic())
                if run.state in AT_REST or left <= 0:
                    return await self._in_thread(self._runs.report, run)
                await asyncio.sleep(left)
                pause = min(pause * 1.5, 0.3 + 0.005 * self._waiting)
        finally:
            self._waiting -= 1

    def _looked_at(self, goal_id: str) -> Run:
        """The latest run; one that asks and was answered goes on before."""
        run = self._runs.latest(goal_id)
        if run.state == "asking" and goal_id in self._store.waiting():
            self._go_on(goal_id)
            run = self._runs.latest(goal_id)
        return run

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
