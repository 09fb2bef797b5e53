"""Runs of goals in the tables of DBOS: each run is one workflow.

A run is `{goal}.{revision}.{number}`. The first run of a revision is number 1; each answer of
a person starts another one that continues where the one before it stopped.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import NotFound
from satchel.goals.engines import base
from satchel.goals.engines.dbos_queries import (
    ENGINE,
    RUN_STATES,
    WORKFLOW,
    active_runs,
    first_runs,
    step_outputs,
)
from satchel.goals.model import FINAL_GOAL_STATES, Answer, Goal, StepResult
from satchel.goals.reports import (
    NESTED_RECORDS,
    add_begun,
    continued_results,
    last_event_time,
    report_of,
    summary_of,
    unpack,
)
from satchel.goals.step_runner import worker_label
from satchel.i18n import say, unpack_messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dbos import DBOSClient, WorkflowStatus

    from satchel.goals.engines.dbos_queries import GoalPosition
    from satchel.goals.engines.dbos_tables import DbosTables
    from satchel.goals.model import GoalReport, GoalState, GoalSummary, StepBegun

QUEUE = "satchel-goals"
_MAX_PAGE_ROWS = 500
_AHEAD = range(1, 9)
"""How many further runs of a goal are asked for at once."""
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.05, 0.5
"""Between two queries for the runs that are waited for."""


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
    running_steps: tuple[StepBegun, ...] = ()
    """The steps of a cancelled run that have not ended."""

    @property
    def order(self) -> RunOrder:
        """Its input."""
        return unpack(RunOrder, cast("Any", self.row.input)["args"][0])

    def successor(self, run: RunId, **changes: Any) -> RunOrder:
        """The input of a run that continues this one."""
        order = self.order._replace(run=str(run), before=str(self.id), keep=None, answers={})
        return order._replace(**changes)

    @property
    def ended(self) -> float:
        """When it ended, by the clock of the database; 0 while it runs."""
        if self.state not in FINAL_GOAL_STATES:
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
        if self.running_steps:
            return "cancelling"
        return RUN_STATES.get(self.status, "failed")

    @property
    def reason(self) -> str:
        """Why it is not done; empty for a goal that was cancelled by a person."""
        if self.status == "SUCCESS":
            return unpack_messages(cast("Any", self.row.output or {})).get("reason", "")
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
        runs = self.latest_of([goal])
        if not runs:
            raise base.goal_missing(goal)
        return runs[goal]

    def latest_of(self, goals: Sequence[str], *, load_input: bool = True) -> dict[str, DbosRun]:
        """The latest run of each goal that exists, in the order of the goals.

        Revisions and runs are numbered without gaps. Asking for exact ids costs the same with a
        million goals; asking for all that begin with a goal's id would read them all.
        """
        latest: dict[str, DbosRun] = {}

        def load(ids: list[RunId]) -> list[RunId]:
            """Load these runs; returns the latest of each goal that has one of them."""
            runs = self._runs_by_id(ids, load_input=load_input)
            latest.update({run.goal: runs[run] for run in sorted(runs)})
            return [latest[goal].id for goal in {run.goal for run in runs}]

        newer = load([RunId(goal, *run) for goal in goals for run in ((1, 1), (1, 2), (2, 1))])
        newer = several = [run for run in newer if run[1:] != (1, 1)]
        while newer:
            newer = load([RunId(run.goal, run.revision + n, 1) for run in newer for n in _AHEAD])
        newer = [latest[run.goal].id for run in several]
        while newer:
            newer = load([run._replace(number=run.number + n) for run in newer for n in _AHEAD])
        self._add_running_steps(latest)
        return {goal: latest[goal] for goal in goals if goal in latest}

    def _add_running_steps(self, latest: dict[str, DbosRun]) -> None:
        """Add to cancelled runs the steps that have begun in a live worker, and have no result."""
        cancelled = [run for run in latest.values() if run.status == "CANCELLED"]
        alive = self._store.live_workers() if cancelled else set[str]()
        for run, begun in zip(cancelled, self._begun_steps(cancelled), strict=True):
            steps = [step for step in begun.values() if step.worker in alive]
            if steps:
                order = self.order(str(run.id))
                results = {**self.known_results([order])[0], **self._results([order.run])[0]}
                steps = [step for step in steps if step.step not in results]
                latest[run.id.goal] = run._replace(running_steps=tuple(steps))

    def _begun_steps(self, runs: Sequence[DbosRun]) -> list[dict[str, StepBegun]]:
        steps: list[dict[str, StepBegun]] = []
        for start in range(0, len(runs), base.MAX_BATCH_GOALS):
            batch = runs[start : start + base.MAX_BATCH_GOALS]
            steps += self._store.begun_steps([(run.id.goal, run.id.revision) for run in batch])
        return steps

    def _runs_by_id(self, ids: Sequence[RunId], *, load_input: bool = True) -> dict[RunId, DbosRun]:
        runs: dict[RunId, DbosRun] = {}
        for start in range(0, len(ids), base.MAX_BATCH_GOALS):
            batch = [str(run_id) for run_id in ids[start : start + base.MAX_BATCH_GOALS]]
            workflows = self.client.list_workflows(workflow_ids=batch, load_input=load_input)
            runs |= {run.id: run for run in map(_run, workflows)}
        return runs

    def all_ids(self, runs: Sequence[DbosRun]) -> list[str]:
        """All runs of the goals that have these latest runs."""
        chains = self._chains([run.order for run in runs])
        return [order.run for chain in chains for order in chain]

    def rows(self, **which: Any) -> list[WorkflowStatus]:
        """Runs without inputs and outputs."""
        return self.client.list_workflows(**which, load_input=False, load_output=False)

    def own_runs(self) -> set[str]:
        """Runs of this worker."""
        rows = self.rows(name=WORKFLOW, status="PENDING", executor_id=self.worker)
        return {row.workflow_id for row in rows}

    def claim(self, goal: str) -> None:
        """Move the waiting run of a goal from the shared queue into our own."""
        with suppress(NotFound):
            run = self.latest(goal)
            if run.status == "ENQUEUED" and run.row.queue_name == QUEUE:
                self.client.resume_workflow(str(run.id), queue_name=self.queue)

    def release(self, run: str) -> None:
        """Put a run of this worker back into the shared queue."""
        if run in self.own_runs():
            self.client.resume_workflow(run, queue_name=QUEUE)

    def requeue(self, worker: str, *, died: bool = False) -> None:
        """Move the runs of a worker, and those waiting in its own queue, into the shared queue."""
        queue = own_queue(worker)
        runs = [row.workflow_id for row in self.rows(status="ENQUEUED", queue_name=queue)]
        pending = self.rows(status="PENDING", executor_id=worker)
        runs += [row.workflow_id for row in pending]
        if died:
            self._store.count_death(worker)
        if runs:
            self.client.resume_workflows(runs, queue_name=QUEUE)
        self.client.delete_queue(queue)

    def order(self, run: str) -> RunOrder:
        """The input of a run.

        Raises:
            NotFound: it was removed meanwhile.
        """
        runs = self._runs_by_id([parse(run)])
        if not runs:
            raise base.goal_missing(run)
        return runs[parse(run)].order

    def _results(self, runs: Sequence[str]) -> list[dict[str, StepResult]]:
        """The results that each of the runs has recorded so far."""
        results: dict[str, dict[str, StepResult]] = {run: {} for run in runs}
        for run, packed in step_outputs(self._store.rows, [*results]):
            result = unpack(StepResult, json.loads(packed))
            results[run][result.step] = result
        return [results[run] for run in runs]

    def known_results(self, orders: Sequence[RunOrder]) -> list[dict[str, StepResult]]:
        """The results that each run starts with: of runs that are over, so always the same."""
        chains = self._chains(orders)
        names = [order.before for chain in chains for order in chain if order.before]
        results = dict(zip(names, self._results(names), strict=True))
        return [_carried_results(chain, results) for chain in chains]

    def _chains(self, orders: Sequence[RunOrder]) -> list[list[RunOrder]]:
        """Each order and those before it, the latest first; there may be a thousand answers.

        Raises:
            NotFound: a run was removed meanwhile.
        """
        chains = [[order] for order in orders]
        while open_chains := [chain for chain in chains if chain[-1].before]:
            loaded = self._runs_by_id([parse(chain[-1].before) for chain in open_chains])
            for chain in open_chains:
                before = parse(chain[-1].before)
                if before not in loaded:
                    raise base.goal_missing(before.goal)
                chain.append(loaded[before].order)
        return chains

    def _open_questions(self, order: RunOrder) -> dict[str, StepResult]:
        """Questions of the previous run that this one asks again, and may not have asked yet."""
        if not order.before or order.keep is not None:
            return {}
        return {
            name: result
            for name, result in self._results([order.before])[0].items()
            if result.state == "asking" and name not in order.answers
        }

    def report(self, run: DbosRun) -> GoalReport:
        """The report of a goal, from its latest run."""
        return self.reports([run])[0]

    def reports(self, runs: Sequence[DbosRun]) -> list[GoalReport]:
        """The reports of several goals; the number of queries does not grow with them."""
        orders = [run.order for run in runs]
        known_results = self.known_results(orders)
        recorded_results = self._results([str(run.id) for run in runs])
        active = [run for run in runs if run.is_active]
        alive = self._store.live_workers() if active else set[str]()
        begun = dict(zip([run.id for run in active], self._begun_steps(active), strict=True))
        reports: list[GoalReport] = []
        for run, order, *parts in zip(runs, orders, known_results, recorded_results, strict=True):
            results = {**parts[0], **parts[1]}
            reason = run.reason
            add_begun(results, run.running_steps)
            if run.is_active:
                results = {**self._open_questions(order), **results}
                is_alive = worker_label(run.row.executor_id or "") in alive
                steps = begun[run.id].values()
                add_begun(results, steps if is_alive else (s._replace(worker="") for s in steps))
                if run.state == "running" and not is_alive:
                    reason = self._lost_worker()
            reports.append(_report(run, order, results, reason))
        return reports

    def _lost_worker(self) -> str:
        if self._store.sqlite:
            return say("Its process is gone; `satchel goal resume` goes on with it")
        return say("Its worker is gone; another worker goes on with it")

    def summaries(
        self, states: Sequence[GoalState], limit: int, before: float | None = None
    ) -> list[GoalSummary]:
        """Summaries, newest first."""
        summaries: list[GoalSummary] = []
        position: GoalPosition | None = None
        page_rows = min(limit, _MAX_PAGE_ROWS)
        while len(summaries) < limit:
            page = first_runs(self._store.rows, states, position, before, page_rows)
            try:
                runs = self.latest_of([parse(run).goal for _, run in page]).values()
                chosen = [run for run in runs if not states or run.state in states]
                summaries += map(summary_of, self.reports(chosen))
            except NotFound:  # a goal was removed meanwhile: the page is read again
                continue
            if len(page) < page_rows:
                break
            position = page[-1][0]
        return summaries[:limit]


def _report(
    run: DbosRun, order: RunOrder, results: Mapping[str, StepResult], reason: str
) -> GoalReport:
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
    ended = max(report.ended, last_event_time(report)) if run.ended else report.ended
    return report._replace(ended=ended)


def _carried_results(
    chain: Sequence[RunOrder], results: Mapping[str, Mapping[str, StepResult]]
) -> dict[str, StepResult]:
    """The results that the first run of a chain starts with; each run continues the next one."""
    carried: dict[str, StepResult] = {}
    for order in reversed(chain[:-1]):
        earlier = {**carried, **results[order.before]}
        carried = continued_results(earlier)
        if order.keep is not None:
            carried = {name: earlier[name] for name in order.keep}
    return carried


class RunWatch:
    """Waits for the end of runs: one query, repeated with growing pauses, for all who wait."""

    def __init__(self, store: DbosTables) -> None:
        self._store = store
        self._waiting: dict[asyncio.Future[None], str] = {}
        """Who waits -> for which run."""
        self._pause = _MIN_PAUSE_S
        self._task: asyncio.Task[None] | None = None

    async def wait_for_end(self, run: str, timeout: float | None) -> None:  # noqa: ASYNC109
        """Return when a run waits for no worker and has none, or when the time is up."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[ended] = run
        self._pause = _MIN_PAUSE_S
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            await asyncio.wait([ended], timeout=timeout)
        finally:
            del self._waiting[ended]

    async def _poll(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._pause)
            waiting = dict(self._waiting)  # who comes from now on waits for the next query
            try:
                active = await asyncio.to_thread(
                    active_runs, self._store.rows, [*{*waiting.values()}]
                )
            except Exception:  # noqa: BLE001 - who waits asks the database as well, and fails
                active = set[str]()
            ended = [future for future, run in waiting.items() if run not in active]
            for future in ended:
                if not future.done():
                    future.set_result(None)
            self._pause = _MIN_PAUSE_S if ended else min(self._pause * 1.5, _MAX_PAUSE_S)

    async def close(self) -> None:
        """Wake all who wait."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def own_queue(worker: str) -> str:
    """The queue of a process that runs only some goals."""
    return f"{QUEUE}:{worker}"


def _run(row: WorkflowStatus) -> DbosRun:
    return DbosRun(parse(row.workflow_id), row.status, row)
