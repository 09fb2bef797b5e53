"""The engine `dbos`: goals are DBOS workflows in SQLite or PostgreSQL.

    async with DbosEngine(runner, "goals.db") as engine:      # one process, no server
        await engine.submit(goal)
        report = await engine.wait(goal.id)

With a runner the process works on all goals while the engine is open; `work()` only waits for
that. Without a runner it submits, reports, answers and cancels, and other processes run the steps.
DBOS exists once per process, so there is one engine with a runner at a time.

SQLite is for one machine; several machines or many workers share a PostgreSQL database.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from satchel._optional import require
from satchel.errors import NotFound
from satchel.goals import approvals
from satchel.goals.engines.base import (
    AT_REST,
    StepContext,
    engine_not_open,
    goal_cancelled,
    goal_not_over,
    goal_running,
    new_revision,
    no_runner,
    plan_conflict,
    wait_until_rest,
    watch_reports,
)
from satchel.goals.engines.dbos_runs import (
    ENGINE,
    QUEUE,
    WORKFLOW,
    DbosRuns,
    RunId,
    RunOrder,
    own_queue,
)
from satchel.goals.engines.dbos_tables import (
    SCHEMA,
    DatabaseArtifacts,
    DbosTables,
    worker_name,
)
from satchel.goals.engines.dbos_worker import APPLICATION, VERSION, DbosWorker
from satchel.goals.model import OVER
from satchel.goals.plan_checks import require_valid
from satchel.goals.reports import pack, report_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.engines.dbos_runs import DbosRun
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

_T = TypeVar("_T")
_NEVER_S = 10 * 365 * 86400.0
"""Delay of a placeholder run: it never begins."""
_WATCH_INTERVAL_S = 0.3


class DbosEngine:
    """Runs goals with DBOS, in SQLite or PostgreSQL.

    Args:
        runner: Runs steps in this process; without one, other workers do.
        database: A path, `sqlite:///…` or `postgresql://…`.
        artifacts: Storage of large outputs; the same database when None.
        large: Larger outputs, in bytes, are stored as artifacts.
        only: Ids of the goals that this process may run; all when None. The approvals and
            skills of a user apply to their own goals. Read at every poll, so it may grow.
        at_once: Maximum number of goals per worker. Stored in the database for
            all workers. When None, the stored value; 100 at first.
        poll: Seconds between polls for new goals.
        lease: Seconds after which a silent worker is considered dead. A dead worker of the same
            machine is detected at once.
    """

    name = ENGINE
    durable = True

    def __init__(
        self,
        runner: StepRunner | None = None,
        database: str = "goals.db",
        *,
        artifacts: Artifacts | None = None,
        large: int = 32_768,
        only: Collection[str] | None = None,
        at_once: int | None = None,
        poll: float = 0.1,
        lease: float = 5.0,
    ) -> None:
        require("dbos", "dbos")
        self._store = DbosTables(database)
        self.artifacts: Artifacts = artifacts or DatabaseArtifacts(self._store)
        self._context = StepContext(runner, self.artifacts, large) if runner else None
        self._only = only
        self._at_once = at_once
        self._poll = poll
        self._lease = lease
        self._client: Any = None
        self._runs: DbosRuns
        self._waiter_count = 0
        self._worker: DbosWorker | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._connect)
            if self._context is not None:
                worker = DbosWorker(
                    self._store, self._runs, self._context, self._continue_answered, self._only,
                    self._lease,
                )  # fmt: skip
                await worker.launch()
                self._worker = worker
        except BaseException:
            await self._disconnect()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close; other workers, or the next one, continue what was started here."""
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
        name = worker_name() if self._context else ""
        own = own_queue(name) if name and self._only is not None else QUEUE
        for queue in {QUEUE, own}:
            client.register_queue(
                queue,
                worker_concurrency=self._at_once or 100,
                polling_interval_sec=self._poll,
                on_conflict="always_update" if self._context and self._at_once else "never_update",
                application_name=APPLICATION,
            )
        self._runs = DbosRuns(client, self._store, own, name)

    async def _disconnect(self) -> None:
        if self._client is not None:
            await asyncio.to_thread(self._client.destroy)
            self._client = None
        self._store.close()

    async def _in_thread(self, work: Callable[..., _T], *given: Any) -> _T:
        if self._client is None:
            raise engine_not_open()
        return await asyncio.to_thread(work, *given)

    # --- starting -------------------------------------------------------------------------

    async def submit(self, goal: Goal) -> GoalReport:
        """Start a goal; a known id with the same plan changes nothing."""
        require_valid(goal)
        order = RunOrder(goal, str(RunId(goal.id, 1, 1)))
        if await self._in_thread(self._enqueue, order):
            return report_of(goal, {}, "queued", engine=ENGINE)
        return await self._in_thread(self._same_goal, goal)

    def _enqueue(self, order: RunOrder, delay: float | None = None) -> bool:
        """Enqueue a run; False when it exists already."""
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
            raise plan_conflict(goal.id)
        return self._runs.report(run)

    async def retry(
        self, goal_id: str, *, from_step: str = "", plan: Plan | None = None
    ) -> GoalReport:
        """Start a new revision of a goal that is over or asks; valid results are kept."""
        return await self._in_thread(self._retry, goal_id, from_step, plan)

    def _retry(self, goal_id: str, from_step: str, plan: Plan | None) -> GoalReport:
        run = self._runs.latest(goal_id)
        if run.is_active:
            raise goal_running(goal_id)
        order, results = run.order, self._runs.report(run).steps
        goal, kept, took = new_revision(order.goal, results, plan, from_step, order.spent)
        revision = run.id.revision + 1
        now = RunId(goal_id, revision, 1)
        if not self._enqueue(run.successor(now, goal=goal, keep=[*kept], spent=took)):
            raise goal_running(goal_id)  # another process did it first
        return report_of(goal, kept, "queued", engine=ENGINE, revision=revision, spent=took)

    async def resume(self, goal_id: str) -> GoalReport:
        """Continue a goal that was set aside; others continue by themselves."""
        return await self._in_thread(self._resume, goal_id)

    def _resume(self, goal_id: str) -> GoalReport:
        run = self._runs.latest(goal_id)
        if run.set_aside:
            self._runs.set_deaths(str(run.id), 0)
            self._client.resume_workflow(str(run.id), queue_name=self._runs.queue)
            run = self._runs.latest(goal_id)
        elif run.status == "PENDING" and self._store.is_alive(run.worker):
            raise goal_running(goal_id)
        elif run.state == "cancelled":
            raise goal_cancelled(goal_id)
        return self._runs.report(run)

    # --- answers and control --------------------------------------------------------------

    async def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Record an answer and continue the goal."""
        await self._in_thread(self._answer, goal_id, step, answer)

    def _answer(self, goal_id: str, step: str, answer: Answer) -> None:
        run = self._runs.latest(goal_id)
        revision = run.id.revision
        answers = self._store.answers(goal_id, revision)
        if not approvals.is_new_answer(self._runs.report(run), step, answer, answers.get(step)):
            return
        self._store.add_answer(goal_id, revision, step, answer)
        recorded = self._store.answers(goal_id, revision)[step]
        if recorded != answer:  # another answer was first: raises
            approvals.is_new_answer(self._runs.report(run), step, answer, recorded)
        self._continue_goal(goal_id)

    def _continue_goal(self, goal_id: str) -> None:
        """Start the next run of a goal that asked and was answered, unless it runs."""
        run = self._runs.latest(goal_id)
        if run.is_active:
            return
        answers = self._store.answers(goal_id, run.id.revision)
        now = run.id._replace(number=run.id.number + 1)
        if run.state == "asking" and not self._enqueue(run.successor(now, answers=answers)):
            return  # another process did it first
        self._store.mark_used(goal_id, run.id.revision, list(answers))

    def _continue_answered(self) -> None:
        """Continue all goals whose answers were recorded while they ran."""
        for goal_id in self._store.answered_goals():
            try:
                self._continue_goal(goal_id)
            except NotFound:  # it was removed from the database
                self._store.remove_answers(goal_id)

    async def cancel(self, goal_id: str) -> None:
        """Cancel a goal; the worker of running steps ends them first."""
        await self._in_thread(self._cancel, goal_id)
        if self._worker is not None:
            self._worker.check_now()

    def _cancel(self, goal_id: str) -> None:
        run = self._runs.latest(goal_id)
        while run.state not in OVER:
            if run.state == "asking":  # a placeholder run takes the id of the next run
                end = run.successor(run.id._replace(number=run.id.number + 1))
                if self._enqueue(end, _NEVER_S):
                    self._runs.cancel(end.run)
            elif self._runs.stop(run):
                return
            run = self._runs.latest(goal_id)  # it may have continued meanwhile

    async def forget(self, goal_id: str) -> None:
        """Remove a goal that is over, with its runs, answers and large outputs."""
        try:
            runs = await self._in_thread(self._reserve, goal_id)
        except NotFound:
            await self.artifacts.forget(goal_id)  # artifacts that outlived their goal
            raise
        await self.artifacts.forget(goal_id)
        await self._in_thread(self._remove, goal_id, runs)

    def _reserve(self, goal_id: str) -> list[str]:
        """Prevent the restart of a goal while it is removed. Returns its runs.

        A placeholder run, which never begins, takes the id of the next revision. If this process
        dies before everything is removed, the goal is `queued`, and can be cancelled and removed.
        """
        run = self._runs.latest(goal_id)
        if run.state not in OVER:
            raise goal_not_over(goal_id, run.state)
        end = RunId(goal_id, run.id.revision + 1, 1)
        if not self._enqueue(run.successor(end), _NEVER_S):
            raise goal_not_over(goal_id, "queued")  # another process did it first
        return self._runs.all_of(goal_id)

    def _remove(self, goal_id: str, runs: list[str]) -> None:
        self._store.remove_answers(goal_id)
        self._client.delete_workflows(runs)

    # --- reports --------------------------------------------------------------------------

    async def report(self, goal_id: str) -> GoalReport:
        """Return the current report."""
        return await self._in_thread(lambda: self._runs.report(self._runs.latest(goal_id)))

    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Wait until it is over or asks; return the report when the time is up."""
        self._waiter_count += 1
        try:
            run = await wait_until_rest(
                lambda: self._in_thread(self._latest_run, goal_id),
                timeout,
                0.02,
                lambda: 0.3 + 0.005 * self._waiter_count,
            )
        finally:
            self._waiter_count -= 1
        return await self._in_thread(self._runs.report, run)

    def _latest_run(self, goal_id: str) -> DbosRun:
        """The latest run; a goal that asks and was answered is continued before."""
        run = self._runs.latest(goal_id)
        if run.state == "asking" and goal_id in self._store.answered_goals():
            self._continue_goal(goal_id)
            run = self._runs.latest(goal_id)
        return run

    async def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Summaries, newest first."""
        return await self._in_thread(self._runs.summaries, states, limit, before)

    def watch(self, goal_id: str) -> AsyncIterator[StepEvent]:
        """Events of a goal from its start until it is over or asks."""
        return watch_reports(lambda: self.report(goal_id), AT_REST, _WATCH_INTERVAL_S)

    async def work(self, *, drain: float = 30.0) -> None:
        """Work until cancelled; then finish the running steps within `drain` seconds."""
        if self._worker is None:
            raise no_runner()
        worker = self._worker
        try:
            await asyncio.Event().wait()
        finally:
            await worker.drain(drain)
