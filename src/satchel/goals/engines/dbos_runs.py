"""Runs of goals in the tables of DBOS: each run is one workflow.

A run is `{goal}.{revision}.{number}`. The first run of a revision is number 1; each answer of
a person starts another one that continues where the one before it stopped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import NotFound
from satchel.goals.engines import base
from satchel.goals.model import OVER, Answer, Goal, StepResult
from satchel.goals.plan_checks import running_steps
from satchel.goals.reports import (
    NESTED_RECORDS,
    continued_results,
    last_event_time,
    report_of,
    summary_of,
    unpack,
)
from satchel.i18n import say, unpack_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dbos import DBOSClient, WorkflowStatus

    from satchel.goals.engines.dbos_tables import DbosTables
    from satchel.goals.model import GoalReport, GoalState, GoalSummary

ENGINE = "dbos"
WORKFLOW = "satchel.goal"
STEP = "step:"
QUEUE = "satchel-goals"
MAX_RECOVERIES = 100
"""A run whose workers died this often is cancelled."""
_PAGE_ROWS = 200
_STATES: dict[str, GoalState] = {
    "ENQUEUED": "queued", "DELAYED": "queued", "PENDING": "running", "CANCELLED": "cancelled",
}  # fmt: skip


class RunId(NamedTuple):
    """Goal, revision and number of a run."""

    goal: str
    revision: int
    number: int

    def __str__(self) -> str:
        return f"{self.goal}.{self.revision}.{self.number}"


def parse(workflow: str) -> RunId:
    """The run of a workflow id."""
    goal, revision, number = workflow.split(".")
    return RunId(goal, int(revision), int(number))


class RunOrder(NamedTuple):
    """The input of a run's workflow."""

    goal: Goal
    run: str
    before: str = ""
    """The run whose results it continues from."""
    keep: Sequence[str] | None = None
    """The results that are kept; those that have ended when None."""
    answers: Mapping[str, Answer] = {}


NESTED_RECORDS[RunOrder] = {"goal": Goal, "answers": Answer}


class DbosRun(NamedTuple):
    """The stored state of a run."""

    id: RunId
    status: str
    row: WorkflowStatus

    @property
    def order(self) -> RunOrder:
        """Its input."""
        return unpack(RunOrder, cast("Any", self.row.input)["args"][0])

    def successor(self, run: RunId, **changes: Any) -> RunOrder:
        """The input of a run that continues this one."""
        order = self.order._replace(run=str(run), before=str(self.id), keep=None, answers={})
        return order._replace(**changes)

    @property
    def enqueued_at(self) -> float:
        """When it was enqueued: DBOS itself records only seconds, on SQLite."""
        about = self.row.attributes or {}
        return float(about.get("begun") or (self.row.created_at or 0) / 1000)

    @property
    def deaths(self) -> int:
        """Number of workers that died while running it."""
        return (self.row.attributes or {}).get("deaths", 0)

    @property
    def ended(self) -> float:
        """When it ended, by the clock of the database; 0 while it runs."""
        if self.state not in OVER:
            return 0.0
        return (self.row.completed_at or self.row.updated_at or 0) / 1000

    @property
    def is_active(self) -> bool:
        """Whether it waits for a worker, or has one."""
        return self.state in {"queued", "running"}

    @property
    def state(self) -> GoalState:
        """The goal's state."""
        if self.status == "SUCCESS":
            return cast("Any", self.row.output or {}).get("state", "failed")
        return _STATES.get(self.status, "failed")

    @property
    def reason(self) -> str:
        """Why it is not done; empty for a goal that was cancelled by a person."""
        if self.status == "SUCCESS":
            return unpack_messages(cast("Any", self.row.output or {})).get("reason", "")
        if self.status == "CANCELLED" and self.deaths >= MAX_RECOVERIES:
            return say("Its workers died {count} times", count=self.deaths)
        if self.status == "ERROR":
            return str(self.row.error)
        return ""


class DbosRuns:
    """Queries and changes of runs. The methods block: call them in a thread."""

    def __init__(self, client: DBOSClient, store: DbosTables, queue: str, worker: str) -> None:
        self.client = client
        self._store = store
        self.queue = queue
        self.worker = worker

    def latest(self, goal: str) -> DbosRun:
        """The latest run of a goal.

        Raises:
            NotFound: there is no such goal.
        """
        first = RunId(goal, 1, 1)
        runs = self._some([first, RunId(goal, 1, 2), RunId(goal, 2, 1)])
        if not runs:
            raise base.goal_missing(goal)
        if list(runs) == [first]:
            return runs[first]
        latest = max(runs)
        # Revisions and runs are numbered without gaps. Asking for exact ids costs the same with a
        # million goals; asking for all that begin with this one's would read them all.
        while more := self._some([RunId(goal, latest.revision + n, 1) for n in range(1, 9)]):
            runs |= more
            latest = max(runs)
        while more := self._some([latest._replace(number=latest.number + n) for n in range(1, 9)]):
            runs |= more
            latest = max(runs)
        return runs[latest]

    def _some(self, ids: Sequence[RunId]) -> dict[RunId, DbosRun]:
        found = self.client.list_workflows(workflow_ids=[str(one) for one in ids])
        return {run.id: run for run in map(_run, found)}

    def rows(self, **which: Any) -> list[WorkflowStatus]:
        """Runs without inputs and outputs."""
        return self.client.list_workflows(**which, load_input=False, load_output=False)

    def own_runs(self) -> set[str]:
        """Runs of this worker."""
        found = self.rows(name=WORKFLOW, status="PENDING", executor_id=self.worker)
        return {row.workflow_id for row in found}

    def claim(self, goal: str) -> None:
        """Move the waiting run of a goal from the shared queue into our own."""
        with suppress(NotFound):
            run = self.latest(goal)
            if run.status == "ENQUEUED" and run.row.queue_name == QUEUE:
                self.client.resume_workflow(str(run.id), queue_name=self.queue)

    def requeue(self, worker: str, *, died: bool = False) -> None:
        """Move the runs of a worker, and those waiting in its own queue, into the shared queue."""
        own = own_queue(worker)
        runs = [row.workflow_id for row in self.rows(status="ENQUEUED", queue_name=own)]
        for row in self.rows(name=WORKFLOW, status="PENDING", executor_id=worker):
            run = _run(row)
            deaths = run.deaths + died
            if died:
                about = {"deaths": deaths}
                self.client.update_workflow_attributes(row.workflow_id, about, merge=True)
            if deaths >= MAX_RECOVERIES:
                self.client.cancel_workflow(row.workflow_id)
            else:
                runs.append(row.workflow_id)
        if runs:
            self.client.resume_workflows(runs, queue_name=QUEUE)
        self.client.delete_queue(own)

    def order(self, run: str) -> RunOrder:
        """The input of a run.

        Raises:
            NotFound: it was removed meanwhile.
        """
        found = self._some([parse(run)])
        if not found:
            raise base.goal_missing(run)
        return found[parse(run)].order

    def results(self, run: str) -> dict[str, StepResult]:
        """The results that a run has recorded so far."""
        found: dict[str, StepResult] = {}
        for step in self.client.list_workflow_steps(run):
            if step["function_name"].startswith(STEP) and step["output"] is not None:
                result = unpack(StepResult, step["output"])
                found[result.step] = result
        return found

    def known_results(self, order: RunOrder) -> dict[str, StepResult]:
        """The results that a run starts with: of runs that are over, so always the same."""
        chain = [order]  # latest first; people may have answered a thousand times
        while chain[-1].before:
            chain.append(self.order(chain[-1].before))
        known: dict[str, StepResult] = {}
        for one in reversed(chain[:-1]):
            results = {**known, **self.results(one.before)}
            known = continued_results(results)
            if one.keep is not None:
                known = {name: results[name] for name in one.keep}
        return known

    def _still_asking(self, order: RunOrder) -> dict[str, StepResult]:
        """Questions of the previous run that this one asks again, and may not have asked yet."""
        if not order.before or order.keep is not None:
            return {}
        return {
            name: result
            for name, result in self.results(order.before).items()
            if result.state == "asking" and name not in order.answers
        }

    def report(self, run: DbosRun) -> GoalReport:
        """The report of a goal, from its latest run."""
        order = run.order
        results = {
            **(self._still_asking(order) if run.is_active else {}),
            **self.known_results(order),
            **self.results(str(run.id)),
        }
        reason = run.reason
        if run.state == "running":
            for name in running_steps(order.goal.plan, results):
                results[name] = StepResult(name, "running")
            if not self._store.is_alive(run.row.executor_id or ""):
                reason = say("Its process is gone; `satchel goal resume` goes on with it")
        report = report_of(
            order.goal,
            results,
            run.state,
            reason=reason,
            engine=ENGINE,
            revision=run.id.revision,
            ended=run.ended,
        )
        # DBOS records only seconds, on SQLite: no goal ends before its steps.
        return (
            report._replace(ended=max(report.ended, last_event_time(report)))
            if run.ended
            else report
        )

    def summaries(
        self, states: Sequence[GoalState], limit: int, before: float | None = None
    ) -> list[GoalSummary]:
        """Summaries, newest first."""
        found: list[GoalSummary] = []
        for run in self._by_submission(before):
            if len(found) >= limit:
                break
            if not states or run.state in states:
                with suppress(NotFound):  # it was removed meanwhile
                    found.append(summary_of(self.report(self.latest(run.id.goal))))
        return found

    def _by_submission(self, before: float | None) -> Iterator[DbosRun]:
        """The latest run of each goal, newest goal first.

        A goal's first run is its oldest, so all its runs have been seen when it is reached.
        """
        latest: dict[str, DbosRun] = {}
        offset = 0
        page = [None] * _PAGE_ROWS
        while len(page) == _PAGE_ROWS:
            page = self.client.list_workflows(
                name=WORKFLOW, sort_desc=True, limit=_PAGE_ROWS, offset=offset, load_input=False
            )
            offset += _PAGE_ROWS
            for run in map(_run, page):
                name = run.id.goal
                if name not in latest or latest[name].id < run.id:
                    latest[name] = run
                if run.id == RunId(name, 1, 1):
                    found = latest.pop(name)
                    if before is None or run.enqueued_at < before:
                        yield found
        yield from latest.values()  # their first runs were removed from the database


def own_queue(worker: str) -> str:
    """The queue of a process that runs only some goals."""
    return f"{QUEUE}:{worker}"


def _run(row: WorkflowStatus) -> DbosRun:
    return DbosRun(parse(row.workflow_id), row.status, row)
