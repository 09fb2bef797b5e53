"""Goals in the tables of DBOS: each run is one workflow.

A run is `{goal}.{revision}.{number}`. The first run of a revision is number 1; each time that
a person answered, another one goes on where the one before it stopped.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import say, unpack_messages
from satchel.errors import NotFound
from satchel.goals.engines.base import missing
from satchel.goals.model import OVER, Answer, Goal, StepResult
from satchel.goals.reports import INSIDE, NOTHING, Spent, last_sign, report_of, summary_of, unpack
from satchel.goals.revision import going_on
from satchel.goals.wiring import at_work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dbos import DBOSClient, WorkflowStatus

    from satchel.goals.engines._dbos_store import Store
    from satchel.goals.model import GoalReport, GoalState, GoalSummary

ENGINE = "dbos"
WORKFLOW = "satchel.goal"
STEP = "step:"
QUEUE = "satchel-goals"
RECOVERIES = 100
"""A run whose workers die so often is set aside."""
_PAGE = 200


class RunId(NamedTuple):
    """Which run of which goal."""

    goal: str
    revision: int
    number: int

    def __str__(self) -> str:
        return f"{self.goal}.{self.revision}.{self.number}"


def parse(workflow: str) -> RunId:
    """The run that a workflow is."""
    goal, revision, number = workflow.split(".")
    return RunId(goal, int(revision), int(number))


class Order(NamedTuple):
    """What a run is told: the input of its workflow."""

    goal: Goal
    run: str
    before: str = ""
    """The run whose results it goes on from."""
    keep: Sequence[str] | None = None
    """Which of them hold; those that have ended when None."""
    answers: Mapping[str, Answer] = {}
    spent: Spent = NOTHING
    """What earlier revisions took for results that are not kept."""


INSIDE[Order] = {"goal": Goal, "answers": Answer, "spent": Spent}


class Run(NamedTuple):
    """A run as it stands."""

    id: RunId
    status: str
    """DBOS' word for it."""
    worker: str
    row: WorkflowStatus

    @property
    def order(self) -> Order:
        """What it was told."""
        return unpack(Order, cast("Any", self.row.input)["args"][0])

    def follow(self, run: RunId, **changes: Any) -> Order:
        """What a run is told that goes on from this one."""
        order = self.order._replace(run=str(run), before=str(self.id), keep=None, answers={})
        return order._replace(**changes)

    @property
    def begun(self) -> float:
        """When it was put into the queue: DBOS itself knows only the second, on SQLite."""
        about = self.row.attributes or {}
        return float(about.get("begun") or (self.row.created_at or 0) / 1000)

    @property
    def deaths(self) -> int:
        """How many workers died with it."""
        return (self.row.attributes or {}).get("deaths", 0)

    @property
    def stopped(self) -> float:
        """When it was told to stop; 0 if it was not."""
        return (self.row.attributes or {}).get("stopped", 0.0)

    @property
    def set_aside(self) -> bool:
        """Whether its workers died too often."""
        return self.status == "CANCELLED" and self.deaths >= RECOVERIES

    @property
    def ended(self) -> float:
        """When it was over, by the clock of the database; 0 while it is not."""
        if self.state not in OVER:
            return 0.0
        return max(self.stopped, (self.row.completed_at or self.row.updated_at or 0) / 1000)

    @property
    def moving(self) -> bool:
        """Whether it waits for a worker, or has one."""
        return self.status in {"ENQUEUED", "PENDING", "DELAYED"}

    @property
    def state(self) -> GoalState:
        """Our word for it."""
        if self.status in {"ENQUEUED", "DELAYED"}:
            return "queued"
        if self.status == "PENDING":
            return "running"
        if self.status == "CANCELLED" and not self.set_aside:
            return "cancelled"
        if self.status == "SUCCESS":
            return cast("Any", self.row.output or {}).get("state", "failed")
        return "failed"

    @property
    def reason(self) -> str:
        """Why it failed; empty for a goal that is done or was cancelled."""
        if self.state == "cancelled":
            return ""
        if self.status == "SUCCESS":
            return unpack_messages(cast("Any", self.row.output or {})).get("reason", "")
        if self.set_aside:
            return say(
                "Its workers died {count} times; `satchel goal resume` tries again",
                count=self.deaths,
            )
        if self.stopped and self.moving:
            return say("It was told to stop; its worker ends the step first")
        if self.status == "ERROR":
            return str(self.row.error)
        return ""


class Runs:
    """The runs. Its methods wait for the database: call them in a thread.

    Args:
        client: Of DBOS.
        store: Knows which workers live.
        queue: Where this process puts runs, and takes them from.
        worker: The name of this process, when it works.
    """

    def __init__(self, client: DBOSClient, store: Store, queue: str, worker: str) -> None:
        self._client = client
        self._store = store
        self.queue = queue
        self.worker = worker

    def latest(self, goal: str) -> Run:
        """The run that stands for the goal now.

        Raises:
            NotFound: there is no such goal.
        """
        first = RunId(goal, 1, 1)
        runs = self._some([first, RunId(goal, 1, 2), RunId(goal, 2, 1)])
        if not runs:
            raise missing(goal)
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

    def all_of(self, goal: str) -> list[str]:
        """Every run of a goal."""
        return [row.workflow_id for row in self._rows(workflow_id_prefix=f"{goal}.")]

    def _some(self, ids: Sequence[RunId]) -> dict[RunId, Run]:
        found = self._client.list_workflows(workflow_ids=[str(one) for one in ids])
        return {run.id: run for run in map(_run, found)}

    def _rows(self, **which: Any) -> list[WorkflowStatus]:
        """Runs without what they were told and what they gave back."""
        return self._client.list_workflows(**which, load_input=False, load_output=False)

    def ours(self) -> dict[str, bool]:
        """Runs that this worker has -> whether they are told to stop."""
        found = self._rows(name=WORKFLOW, status="PENDING", executor_id=self.worker)
        return {row.workflow_id: bool(_run(row).stopped) for row in found}

    def stop(self, run: Run) -> bool:
        """Cancel a run; True when that is left to a worker that lives: it ends the steps first."""
        about = {"stopped": time.time()}
        self._client.update_workflow_attributes(str(run.id), about, merge=True)
        if run.status == "PENDING" and self._store.lives(run.worker):
            return True
        if run.moving:
            self.cancel(str(run.id))
        return False

    def claim(self, goals: Sequence[str]) -> None:
        """Take the runs of these goals that wait in the queue of all workers into our own."""
        for goal in goals:
            with suppress(NotFound):
                run = self.latest(goal)
                if run.status == "ENQUEUED" and run.row.queue_name == QUEUE:
                    self._client.resume_workflow(str(run.id), queue_name=self.queue)

    def give_back(self, worker: str, *, died: bool = False) -> None:
        """Put what a worker has, and what waits in its own queue, into the queue of all workers."""
        own = own_queue(worker)
        runs = [row.workflow_id for row in self._rows(status="ENQUEUED", queue_name=own)]
        for row in self._rows(name=WORKFLOW, status="PENDING", executor_id=worker):
            deaths = (row.attributes or {}).get("deaths", 0) + 1
            if died:
                self.count_deaths(row.workflow_id, deaths)
            if (died and deaths >= RECOVERIES) or _run(row).stopped:
                self.cancel(row.workflow_id)
            else:
                runs.append(row.workflow_id)
        if runs:
            self._client.resume_workflows(runs, queue_name=QUEUE)
        self._client.delete_queue(own)

    def count_deaths(self, run: str, deaths: int) -> None:
        """Write down how many workers died with a run."""
        self._client.update_workflow_attributes(run, {"deaths": deaths}, merge=True)

    def cancel(self, run: str) -> None:
        """Cancel a run."""
        self._client.cancel_workflow(run)

    def workers(self) -> set[str]:
        """Who has runs."""
        found = self._rows(name=WORKFLOW, status="PENDING")
        return {row.executor_id for row in found if row.executor_id}

    def order(self, run: str) -> Order:
        """What a run was told.

        Raises:
            NotFound: there is no such run.
        """
        found = self._client.list_workflows(workflow_ids=[run], load_output=False)
        if not found:
            raise NotFound(say("There is no run `{run}`", run=run))
        return _run(found[0]).order

    def results(self, run: str) -> dict[str, StepResult]:
        """What a run has recorded so far."""
        found: dict[str, StepResult] = {}
        for step in self._client.list_workflow_steps(run):
            if step["function_name"].startswith(STEP) and step["output"] is not None:
                result = unpack(StepResult, step["output"])
                found[result.step] = result
        return found

    def known(self, order: Order) -> dict[str, StepResult]:
        """What a run knows before it begins: of runs that are over, so always the same."""
        chain = [order]  # the latest first; people may have answered a thousand times
        while chain[-1].before:
            chain.append(self.order(chain[-1].before))
        known: dict[str, StepResult] = {}
        for one in reversed(chain[:-1]):
            results = {**known, **self.results(one.before)}
            known = going_on(results)
            if one.keep is not None:
                known = {name: results[name] for name in one.keep}
        return known

    def _still_asking(self, order: Order) -> dict[str, StepResult]:
        """Questions of the run before that this one will ask again, and may not have yet."""
        if not order.before or order.keep is not None:
            return {}
        return {
            name: result
            for name, result in self.results(order.before).items()
            if result.state == "asking" and name not in order.answers
        }

    def report(self, run: Run) -> GoalReport:
        """How far a goal is, by its latest run."""
        order = run.order
        results = {
            **(self._still_asking(order) if run.moving else {}),
            **self.known(order),
            **self.results(str(run.id)),
        }
        reason = run.reason
        if run.state == "running":
            for name in at_work(order.goal.plan, results):
                results[name] = StepResult(name, "running")
            if not self._store.lives(run.worker):
                reason = say("Its worker is gone; the next one goes on with it")
        report = report_of(
            order.goal,
            results,
            run.state,
            reason=reason,
            engine=ENGINE,
            revision=run.id.revision,
            spent=order.spent,
            ended=run.ended,
        )
        # DBOS knows only the second, on SQLite: no goal ends before its steps.
        return report._replace(ended=max(report.ended, last_sign(report))) if run.ended else report

    def summaries(
        self, states: Sequence[GoalState], limit: int, before: float | None = None
    ) -> list[GoalSummary]:
        """Those first that were submitted last."""
        found: list[GoalSummary] = []
        for run in self._by_submission(before):
            if len(found) >= limit:
                break
            if not states or run.state in states:
                with suppress(NotFound):  # it was removed meanwhile
                    found.append(summary_of(self.report(self.latest(run.id.goal))))
        return found

    def _by_submission(self, before: float | None) -> Iterator[Run]:
        """The latest run of each goal, in the order of their first runs, the last one first.

        A goal's first run is its oldest, so its others have been seen when it comes.
        """
        latest: dict[str, Run] = {}
        offset = 0
        page = [None] * _PAGE
        while len(page) == _PAGE:
            page = self._client.list_workflows(
                name=WORKFLOW, sort_desc=True, limit=_PAGE, offset=offset, load_input=False
            )
            offset += _PAGE
            for run in map(_run, page):
                name = run.id.goal
                if name not in latest or latest[name].id < run.id:
                    latest[name] = run
                if run.id == RunId(name, 1, 1):
                    found = latest.pop(name)
                    if before is None or run.begun < before:
                        yield found
        yield from latest.values()  # somebody removed their first runs from the database


def own_queue(worker: str) -> str:
    """The queue of a process that does only some goals."""
    return f"{QUEUE}:{worker}"


def _run(row: WorkflowStatus) -> Run:
    return Run(parse(row.workflow_id), row.status, row.executor_id or "", row)
