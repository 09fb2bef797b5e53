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
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from satchel.errors import NotFound
from satchel.goals import approvals
from satchel.goals.artifacts import DatabaseArtifacts
from satchel.goals.database import IDLE_TRANSACTION_S
from satchel.goals.engines import base
from satchel.goals.engines.dbos_runs import (
    ENGINE,
    QUEUE,
    WORKFLOW,
    DbosRuns,
    RunId,
    RunOrder,
    own_queue,
)
from satchel.goals.engines.dbos_tables import SCHEMA, DbosTables, worker_name
from satchel.goals.engines.dbos_worker import APPLICATION, VERSION, DbosWorker
from satchel.goals.model import OVER
from satchel.goals.plan_checks import require_valid
from satchel.goals.reports import pack, report_of
from satchel.goals.step_runner import StepContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CoroutineType

    from satchel.goals.artifacts import Artifacts
    from satchel.goals.engines.dbos_runs import DbosRun
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
_NEVER_S = 10 * 365 * 86400.0
"""Delay of a placeholder run: it never begins."""


def in_thread(
    method: Callable[Concatenate[DbosEngine, _P], _T],
) -> Callable[Concatenate[DbosEngine, _P], CoroutineType[Any, Any, _T]]:
    """Decorator: makes an async method of a blocking one."""

    @wraps(method)
    async def outer(self: DbosEngine, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if self.client is None:
            raise base.engine_not_open()
        return await asyncio.to_thread(method, self, *args, **kwargs)

    return outer


class DbosEngine:
    """Runs goals with DBOS, in SQLite or PostgreSQL.

    Args:
        runner: Runs steps in this process; without one, other workers do.
        database: A path, `sqlite:///…` or `postgresql://…`.
        only: The one goal that this process may run; all when empty. The approvals and skills of
            a user apply to their own goals.
        at_once: Maximum number of goals per worker.
        poll: Seconds between polls for new goals.
        lease: Seconds after which a silent worker is considered dead. A dead worker of the same
            machine is detected at once.
    """

    name = ENGINE

    def __init__(
        self,
        runner: StepRunner | None = None,
        database: str = "goals.db",
        *,
        only: str = "",
        at_once: int = 100,
        poll: float = 0.1,
        lease: float = 5.0,
    ) -> None:
        self._store = DbosTables(database)
        self.artifacts: Artifacts = DatabaseArtifacts(self._store.execute, self._store.rows)
        self._context = StepContext(runner, self.artifacts) if runner else None
        self._only = only
        self._at_once = at_once
        self._poll = poll
        self._lease = lease
        self.client: Any = None
        self._runs: DbosRuns
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
            system_database_url=self._store.url,
            system_database_engine=self._store.engine,
            sys_db_idle_transaction_timeout_sec=IDLE_TRANSACTION_S,
            dbos_system_schema=SCHEMA,
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            lazy=True,
        )
        self.client = client
        name = worker_name()
        own = own_queue(name) if self._context and self._only else QUEUE
        for queue in {QUEUE, own}:
            client.register_queue(
                queue,
                worker_concurrency=self._at_once,
                polling_interval_sec=self._poll,
                on_conflict="always_update" if self._context else "never_update",
                application_name=APPLICATION,
            )
        self._runs = DbosRuns(client, self._store, own, name)

    async def _disconnect(self) -> None:
        if self.client is not None:
            await asyncio.to_thread(self.client.destroy)
            self.client = None
        self._store.close()

    # --- starting -------------------------------------------------------------------------

    @in_thread
    def submit(self, goal: Goal) -> GoalReport:
        """Start a goal; a known id with the same plan changes nothing."""
        require_valid(goal)
        first = str(RunId(goal.id, 1, 1))
        if self._enqueue(RunOrder(goal, first)):
            return report_of(goal, {}, "queued", engine=ENGINE)
        run = self._runs.latest(goal.id)
        known = (run.order.goal.plan, self._runs.order(first).goal.plan)
        if pack(goal.plan) not in map(pack, known):
            raise base.plan_conflict(goal.id)
        return self._runs.report(run)

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
            self.client.enqueue(options, pack(order))
        except error.DBOSWorkflowIDInUseError:
            return False
        return True

    @in_thread
    def retry(self, goal_id: str, *, from_step: str = "", plan: Plan | None = None) -> GoalReport:
        """Start a new revision of a goal that is over or asks; valid results are kept."""
        run = self._runs.latest(goal_id)
        if run.is_active:
            raise base.goal_running(goal_id)
        order, results = run.order, self._runs.report(run).steps
        goal, kept = base.new_revision(order.goal, results, plan, from_step)
        revision = run.id.revision + 1
        now = RunId(goal_id, revision, 1)
        if not self._enqueue(run.successor(now, goal=goal, keep=[*kept])):
            raise base.goal_running(goal_id)  # another process did it first
        return report_of(goal, kept, "queued", engine=ENGINE, revision=revision)

    @in_thread
    def resume(self, goal_id: str) -> GoalReport:
        """Return the report: workers continue goals by themselves."""
        run = self._runs.latest(goal_id)
        if run.status == "PENDING" and self._store.is_alive(run.row.executor_id or ""):
            raise base.goal_running(goal_id)
        if run.state == "cancelled":
            raise base.goal_cancelled(goal_id)
        return self._runs.report(run)

    # --- answers and control --------------------------------------------------------------

    @in_thread
    def answer(self, goal_id: str, step: str, answer: Answer) -> None:
        """Record an answer and continue the goal."""
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
        """Cancel a goal; the worker of running steps ends them."""
        await self._cancel(goal_id)
        if self._worker is not None:
            self._worker.poll_now.set()

    @in_thread
    def _cancel(self, goal_id: str) -> None:
        while (run := self._runs.latest(goal_id)).state not in OVER:
            ended = str(run.id)
            if run.state == "asking":  # a placeholder run takes the id of the next run
                end = run.successor(run.id._replace(number=run.id.number + 1))
                if not self._enqueue(end, _NEVER_S):
                    continue  # it has continued meanwhile
                ended = end.run
            self.client.cancel_workflow(ended)

    async def forget(self, goal_id: str) -> None:
        """Remove a goal that is over, with its runs, answers and large outputs."""
        run = await self._latest_run(goal_id)
        if run.state not in OVER:
            raise base.goal_not_over(goal_id, run.state)
        await self.artifacts.forget(goal_id)  # first: a remaining goal can be removed again
        await self._remove(goal_id)

    @in_thread
    def _remove(self, goal_id: str) -> None:
        self._store.remove_answers(goal_id)
        rows = self._runs.rows(workflow_id_prefix=f"{goal_id}.")
        self.client.delete_workflows([row.workflow_id for row in rows])

    # --- reports --------------------------------------------------------------------------

    @in_thread
    def report(self, goal_id: str) -> GoalReport:
        """Return the current report."""
        return self._runs.report(self._runs.latest(goal_id))

    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Wait until it is over or asks; return the report when the time is up."""
        await base.wait_until_rest(lambda: self._latest_run(goal_id), timeout, 0.02, 0.5)
        return await self.report(goal_id)

    @in_thread
    def _latest_run(self, goal_id: str) -> DbosRun:
        """The latest run; a goal that asks and was answered is continued before."""
        run = self._runs.latest(goal_id)
        if run.state == "asking" and goal_id in self._store.answered_goals():
            self._continue_goal(goal_id)
            run = self._runs.latest(goal_id)
        return run

    @in_thread
    def list(
        self, *, states: Sequence[GoalState] = (), limit: int = 50, before: float | None = None
    ) -> list[GoalSummary]:
        """Summaries, newest first."""
        return self._runs.summaries(states, limit, before)

    async def work(self, *, drain: float = 30.0) -> None:
        """Work until cancelled; then finish the running steps within `drain` seconds."""
        if self._worker is None:
            raise base.no_runner()
        worker = self._worker
        try:
            await asyncio.Event().wait()
        finally:
            await worker.close(drain)
