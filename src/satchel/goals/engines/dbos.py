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
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from satchel.errors import NotFound
from satchel.goals import approvals
from satchel.goals.artifacts import DatabaseArtifacts
from satchel.goals.database import IDLE_TRANSACTION_S
from satchel.goals.engines import base
from satchel.goals.engines.dbos_queries import ENGINE, FIRING, WORKFLOW, runs_ended_before
from satchel.goals.engines.dbos_runs import (
    QUEUE,
    DbosRuns,
    RunId,
    RunOrder,
    RunWatch,
    own_queue,
    parse,
)
from satchel.goals.engines.dbos_status import read_status
from satchel.goals.engines.dbos_tables import SCHEMA, DbosTables, worker_name
from satchel.goals.engines.dbos_worker import APPLICATION, VERSION, DbosWorker
from satchel.goals.model import FINAL_GOAL_STATES, Schedule
from satchel.goals.plan_checks import require_valid
from satchel.goals.reports import pack, report_of
from satchel.goals.step_runner import StepContext
from satchel.goals.telemetry import report_end

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
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
    from satchel.goals.status import GoalStatus

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
        at_once: Maximum number of goals per worker. DBOS stores it with the queue: that of the
            worker which started last holds for all workers.
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
        self._context = (
            StepContext(runner, self.artifacts, suspects=asyncio.Lock(), engine=ENGINE)
            if runner
            else None
        )
        self._only = only
        self._at_once = at_once
        self._poll = poll
        self._lease = lease
        self.client: Any = None
        self._runs: DbosRuns
        self._watch = RunWatch(self._store)
        self._worker: DbosWorker | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._connect)
            if self._context is not None:
                worker = DbosWorker(
                    self._store, self._runs, self._context, self._continue_answered, self._only,
                    self._lease, start=self._start_first_run,
                )  # fmt: skip
                worker.about["at_once"] = self._at_once
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
        own_name = own_queue(name) if self._context and self._only else QUEUE
        for queue in {QUEUE, own_name}:
            client.register_queue(
                queue,
                worker_concurrency=self._at_once,
                polling_interval_sec=self._poll,
                on_conflict="always_update" if self._context else "never_update",
                application_name=APPLICATION,
            )
        self._runs = DbosRuns(client, self._store, own_name, name)

    async def _disconnect(self) -> None:
        await self._watch.close()
        if self.client is not None:
            await asyncio.to_thread(self.client.destroy)
            self.client = None
        self._store.close()

    # --- starting -------------------------------------------------------------------------

    @in_thread
    def submit(self, goal: Goal) -> GoalReport:
        """Start a goal; a known id with the same plan changes nothing."""
        require_valid(goal)
        if self._start_first_run(goal):
            return report_of(goal, {}, "queued", engine=ENGINE)
        run = self._runs.latest(goal.id)
        first = str(RunId(goal.id, 1, 1))
        plans = (run.order.goal.plan, self._runs.order(first).goal.plan)
        if pack(goal.plan) not in map(pack, plans):
            raise base.plan_conflict(goal.id)
        return self._runs.report(run)

    def _start_first_run(self, goal: Goal) -> bool:
        """Start a goal; False when it was started before."""
        return self._enqueue(RunOrder(goal, str(RunId(goal.id, 1, 1))))

    def _enqueue(self, order: RunOrder, delay: float | None = None) -> bool:
        """Enqueue a run; False when it exists already."""
        from dbos import error

        options: dict[str, Any] = {
            "workflow_name": WORKFLOW,
            "queue_name": self._runs.queue,
            "workflow_id": order.run,
            "workflow_id_reuse_policy": "reject",
            "app_version": VERSION,
            "priority": order.goal.priority,
            "attributes": {"begun": time.time()},
        }
        if delay is not None:
            options["delay_seconds"] = delay
        try:
            self.client.enqueue(options, pack(order))
        except error.DBOSWorkflowIDInUseError:
            return False
        return True

    async def retry(
        self,
        goal_id: str,
        *,
        from_step: str = "",
        plan: Plan | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> GoalReport:
        """Start a new revision of a goal that is over or asks; valid results are kept."""
        await base.wait_until_cancelled(goal_id, lambda: self._latest_run(goal_id))
        return await self._retry(goal_id, from_step, plan, versions)

    @in_thread
    def _retry(
        self, goal_id: str, from_step: str, plan: Plan | None, versions: Mapping[str, str] | None
    ) -> GoalReport:
        run = self._runs.latest(goal_id)
        if run.is_active:
            raise base.goal_running(goal_id)
        if run.state == "asking" and goal_id in self._store.answered_goals():
            self._continue_goal(goal_id)
            raise base.goal_running(goal_id)
        order, results = run.order, self._runs.report(run).results
        goal, valid_results = base.new_revision(order.goal, results, plan, from_step, versions)
        revision = run.id.revision + 1
        next_id = RunId(goal_id, revision, 1)
        claimed_id = self._store.claim_successor(goal_id, str(run.id), str(next_id))
        order = run.successor(next_id, goal=goal, keep=[*valid_results])
        if claimed_id != str(next_id) or not self._enqueue(order):
            raise base.goal_changed(goal_id)
        self._store.remove_deadlines(goal_id, revision)
        return report_of(goal, valid_results, "queued", engine=ENGINE, revision=revision)

    @in_thread
    def resume(self, goal_id: str) -> GoalReport:
        """Return the report: workers continue goals by themselves."""
        run = self._runs.latest(goal_id)
        if run.status == "PENDING" and self._store.is_alive(run.row.executor_id or ""):
            raise base.goal_running(goal_id)
        if run.status == "CANCELLED":
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
        recorded = self._store.answers(goal_id, revision).get(step)
        if recorded is None:  # it came too late, and the same answer of another caller did, too
            raise base.goal_changed(goal_id)
        if recorded != answer:  # another answer was first: raises
            approvals.is_new_answer(self._runs.report(run), step, answer, recorded)
        in_time = self._continue_goal(goal_id)
        run = self._runs.latest(goal_id)
        if run.id.revision != revision:
            in_time = False
        elif run.status == "CANCELLED":
            in_time = self._runs.report(run).steps[step].state != "cancelled"
        if not in_time:
            self._store.remove_answer(goal_id, revision, step)
            raise base.goal_changed(goal_id)

    def _continue_goal(self, goal_id: str) -> bool:
        """Start the next run of a goal that asked and was answered, unless it runs.

        Returns:
            False when another change of the goal was first.
        """
        run = self._runs.latest(goal_id)
        if run.is_active:
            return True
        answers = self._store.answers(goal_id, run.id.revision)
        if run.state == "asking":
            next_id = run.id._replace(number=run.id.number + 1)
            claimed_id = self._store.claim_successor(goal_id, str(run.id), str(next_id))
            if claimed_id != str(next_id):
                return False
            if not self._enqueue(run.successor(next_id, answers=answers)):
                return True  # another process did it first
        self._store.mark_used(goal_id, run.id.revision, list(answers))
        return True

    def _continue_answered(self) -> None:
        """Continue all goals whose answers were recorded while they ran, or are overdue."""
        self._store.add_overdue_answers(self._only)
        for goal_id in self._store.answered_goals():
            try:
                self._continue_goal(goal_id)
            except NotFound:  # it was removed from the database
                self._store.remove_goals([goal_id])

    async def cancel(self, goal_id: str) -> None:
        """Cancel a goal; the worker of running steps ends them."""
        await self._cancel(goal_id)
        if self._worker is not None:
            self._worker.poll_now.set()

    @in_thread
    def _cancel(self, goal_id: str) -> None:
        over = FINAL_GOAL_STATES | {"cancelling"}
        cancelled_id = ""
        while (run := self._runs.latest(goal_id)).state not in over:
            cancelled_id = str(run.id)
            if run.state == "asking":  # a placeholder run takes the id of the next run
                next_id = run.id._replace(number=run.id.number + 1)
                # Or the id of a retry, whose process may have died before it began.
                cancelled_id = self._store.claim_successor(goal_id, str(run.id), str(next_id))
                if not self._enqueue(run.successor(parse(cancelled_id)), _NEVER_S):
                    continue  # it has continued meanwhile
            self.client.cancel_workflow(cancelled_id)
        if cancelled_id and run.state in {"cancelling", "cancelled"}:
            report_end(ENGINE, goal_id, "cancelled")

    async def forget(self, goal_id: str) -> None:
        """Remove a goal that is over, with its runs, answers and large outputs."""
        run = await self._latest_run(goal_id)
        if run.state not in FINAL_GOAL_STATES:
            raise base.goal_not_over(goal_id, run.state)
        await self._remove([goal_id])

    @in_thread
    def ended_before(self, moment: float) -> Sequence[str]:
        """The ids of the goals that ended before a moment."""
        runs = map(parse, runs_ended_before(self._store.rows, moment))
        goals = [*dict.fromkeys(run.goal for run in runs)]
        latest = self._runs.latest_of(goals, load_input=False)
        return [goal for goal, run in latest.items() if 0 < run.ended < moment]

    async def forget_all(self, goal_ids: Sequence[str]) -> Sequence[str]:
        """Remove those of the goals that are over."""
        return await self._remove(goal_ids)

    @in_thread
    def _remove(self, goal_ids: Sequence[str]) -> list[str]:
        latest = self._runs.latest_of(goal_ids)
        over = [goal for goal, run in latest.items() if run.state in FINAL_GOAL_STATES]
        if over:
            runs = self._runs.all_ids([latest[goal] for goal in over])
            self._store.remove_goals(over)  # first: a remaining run can be removed again
            self.client.delete_workflows(runs)
        return over

    # --- schedules ------------------------------------------------------------------------

    @in_thread
    def schedule(self, goal: Goal, cron: str) -> None:
        """Make or replace a schedule; workers start its goals."""
        from dbos import error

        base.require_valid_schedule(goal)
        schedule = {
            "schedule_name": goal.id,
            "workflow_name": FIRING,
            "schedule": cron,
            "context": pack(goal),
            "queue_name": QUEUE,
        }
        try:
            self.client.apply_schedules([schedule])
        except error.DBOSException:
            raise base.cron_invalid(cron) from None

    @in_thread
    def schedules(self) -> Sequence[Schedule]:
        """Return all schedules, by name."""
        from croniter import croniter

        def next_time(cron: str) -> float:
            times = croniter(cron, datetime.now(UTC), second_at_beginning=True)
            return times.get_next(float)

        crons = {row["schedule_name"]: row["schedule"] for row in self.client.list_schedules()}
        return [Schedule(name, cron, next_time(cron)) for name, cron in sorted(crons.items())]

    @in_thread
    def unschedule(self, name: str) -> None:
        """Remove a schedule."""
        if self.client.get_schedule(name) is None:
            raise base.schedule_missing(name)
        self.client.delete_schedule(name)

    # --- reports --------------------------------------------------------------------------

    @in_thread
    def report(self, goal_id: str) -> GoalReport:
        """Return the current report."""
        return self._runs.report(self._runs.latest(goal_id))

    async def wait(self, goal_id: str, timeout: float | None = None) -> GoalReport:  # noqa: ASYNC109
        """Wait until it is over or asks; return the report when the time is up."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            run = await self._latest_run(goal_id)
            left = None if end is None else end - time.monotonic()
            if run.state in base.AT_REST or (left is not None and left <= 0):
                return await asyncio.to_thread(self._runs.report, run)
            if run.is_active:
                await self._watch.wait_for_end(str(run.id), left)
            else:  # its steps have not ended
                await asyncio.sleep(0.1 if left is None else min(left, 0.1))

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

    @in_thread
    def status(self) -> GoalStatus:
        """Read the status in one transaction; the number of queries does not grow with goals."""
        return read_status(self._store)

    async def work(self, *, drain: float = 30.0) -> None:
        """Work until cancelled; then finish the running steps within `drain` seconds."""
        if self._worker is None:
            raise base.no_runner()
        worker = self._worker
        try:
            await asyncio.Event().wait()
        finally:
            await worker.close(drain)

    async def health(self) -> str:
        """Why this worker cannot run steps; empty when it can."""
        if self._worker is None:
            raise base.no_runner()
        return self._worker.problem()
