"""Goals in the tables of DBOS: each run is one workflow.

A run is `{goal}.{revision}.{number}`. The first run of a revision is number 1; each time that
a person answered, another one goes on where the one before it stopped.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import say
from satchel.errors import NotFound
from satchel.goals.engines._dbos_store import surely_dead
from satchel.goals.engines.base import missing
from satchel.goals.model import OVER, Answer, Goal, GoalSummary, StepResult
from satchel.goals.reports import NOTHING, Spent, last_sign, pack, report_of, unpack
from satchel.goals.revision import going_on
from satchel.goals.wiring import at_work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dbos import DBOSClient, WorkflowStatus

    from satchel.goals.model import GoalReport, GoalState

ENGINE = "dbos"
WORKFLOW = "satchel.goal"
STEP = "step:"
QUEUE = "satchel-goals"
RECOVERIES = 20
"""A goal whose workers die so often, without a step being done meanwhile, is set aside. With 5, of
400 goals whose worker was killed every second six were, through no fault of theirs."""
_PAGE = 200
_KEPT = 1000


class RunId(NamedTuple):
    """Which run of which goal."""

    goal: str
    revision: int
    number: int

    def __str__(self) -> str:
        return f"{self.goal}.{self.revision}.{self.number}"


def parse(workflow: str) -> RunId | None:
    """The run that a workflow is, if it is one."""
    goal, _, rest = workflow.partition(".")
    revision, _, number = rest.partition(".")
    if goal and revision.isdigit() and number.isdigit():
        return RunId(goal, int(revision), int(number))
    return None


class Order(NamedTuple):
    """What a run is told: the input of its workflow."""

    goal: Goal
    run: RunId
    before: str = ""
    """The run whose results it goes on from."""
    keep: tuple[str, ...] | None = None
    """Which of them hold; those that have ended when None."""
    answers: Mapping[str, Answer] = {}
    spent: Spent = NOTHING
    """What earlier revisions took for results that are not kept."""
    born: str = ""
    """Which goal of this name it is: one may be removed, and another take its name."""

    def packed(self) -> dict[str, Any]:
        """As DBOS keeps it."""
        return {
            "goal": pack(self.goal),
            "run": str(self.run),
            "before": self.before,
            "keep": None if self.keep is None else list(self.keep),
            "answers": {step: pack(answer) for step, answer in self.answers.items()},
            "spent": pack(self.spent),
            "born": self.born,
        }

    @classmethod
    def of(cls, packed: Mapping[str, Any]) -> Order:
        """The same, back."""
        run = parse(packed["run"])
        assert run is not None  # noqa: S101 - we wrote it
        keep = packed.get("keep")
        answers = cast("Mapping[str, Any]", packed.get("answers") or {})
        return cls(
            unpack(Goal, packed["goal"]),
            run,
            packed.get("before", ""),
            None if keep is None else tuple(keep),
            {step: unpack(Answer, answer) for step, answer in answers.items()},
            unpack(Spent, packed.get("spent") or {}),
            packed.get("born", ""),
        )


class Run(NamedTuple):
    """A run as it stands."""

    id: RunId
    status: str
    """DBOS' word for it."""
    worker: str
    row: WorkflowStatus

    @property
    def about(self) -> dict[str, Any]:
        """What `about` wrote."""
        return self.row.attributes or {}

    @property
    def born(self) -> str:
        """Which goal of this name it is of."""
        return self.about.get("born", "")

    @property
    def begun(self) -> float:
        """When it was put into the queue: DBOS itself knows only the second, on SQLite."""
        return float(self.about.get("begun") or (self.row.created_at or 0) / 1000)

    @property
    def set_aside(self) -> bool:
        """Whether its workers died too often."""
        return self.status == "MAX_RECOVERY_ATTEMPTS_EXCEEDED" or (
            self.status == "CANCELLED" and self.about.get("deaths", 0) >= RECOVERIES
        )

    @property
    def ended(self) -> float:
        """When it was over, by the clock of the database; 0 while it is not."""
        if self.state not in OVER:
            return 0.0
        return (self.row.completed_at or self.row.updated_at or 0) / 1000

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
        """Why it did not end as `done`."""
        if self.status == "SUCCESS":
            return cast("Any", self.row.output or {}).get("reason", "")
        if self.set_aside:
            return say(
                "Its workers died {count} times; `satchel goal resume` tries again",
                count=self.about.get("deaths") or self.row.recovery_attempts or 0,
            )
        if self.status == "CANCELLED":
            return say("It was cancelled")
        if self.status == "ERROR":
            return str(self.row.error)
        if self.status == "PENDING" and surely_dead(self.worker):
            return say("Its worker is gone; the next one goes on with it")
        return ""


class Runs:
    """The runs. Its methods wait for the database: call them in a thread.

    Args:
        client: Of DBOS.
        queue: Where this process puts runs, and takes them from.
        worker: The name of this process, when it works.
    """

    def __init__(self, client: DBOSClient, queue: str, worker: str) -> None:
        self._client = client
        self.queue = queue
        self.worker = worker
        self._orders: dict[str, Order] = {}

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
        found = self._client.list_workflows(
            workflow_id_prefix=f"{goal}.", load_input=False, load_output=False
        )
        return [row.workflow_id for row in found]

    def _some(self, ids: Sequence[RunId]) -> dict[RunId, Run]:
        found = self._client.list_workflows(
            workflow_ids=[str(one) for one in ids], load_input=False
        )
        return {run.id: run for row in found if (run := _run(row)) is not None}

    def lost(self, ids: Sequence[str]) -> list[str]:
        """Those of our runs that are not our own any more: cancelled, or taken over."""
        if not ids:
            return []
        found = self._client.list_workflows(
            workflow_ids=list(ids), load_input=False, load_output=False
        )
        mine = {
            row.workflow_id
            for row in found
            if row.status == "PENDING" and row.executor_id == self.worker
        }
        return [run for run in ids if run not in mine]

    def claim(self, goals: Sequence[str]) -> None:
        """Take the runs of these goals that wait in the queue of all workers into our own."""
        for goal in goals:
            with suppress(NotFound):
                run = self.latest(goal)
                if run.status == "ENQUEUED" and run.row.queue_name == QUEUE:
                    self._client.resume_workflow(str(run.id), queue_name=self.queue)

    def give_back(self, worker: str, *, died: bool = False) -> None:
        """Put what a worker has, and what waits in its own queue, into the queue of all workers."""
        rows = self._client.list_workflows(
            name=WORKFLOW, status="PENDING", executor_id=worker, load_input=False, load_output=False
        )
        own = own_queue(worker)
        waiting = self._client.list_workflows(
            status="ENQUEUED", queue_name=own, load_input=False, load_output=False
        )
        runs = [row.workflow_id for row in waiting]
        for row in rows:
            deaths = (row.attributes or {}).get("deaths", 0) + 1
            if died:
                self.count_deaths(row.workflow_id, deaths)
            if died and deaths >= RECOVERIES:
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
        found = self._client.list_workflows(
            name=WORKFLOW, status="PENDING", load_input=False, load_output=False
        )
        return {row.executor_id for row in found if row.executor_id}

    def order(self, run: str, born: str) -> Order:
        """What a run was told: that never changes, so it is asked once.

        Args:
            run: Which.
            born: Of which goal of that name: another process may have removed the one that is
                remembered here.

        Raises:
            NotFound: there is no such run.
        """
        order = self._orders.get(run)
        if order is None or order.born != born:
            order = self._read(run)
            self.keep(order)
        return order

    def keep(self, order: Order) -> None:
        """Remember what a run was told."""
        while len(self._orders) >= _KEPT:
            self._orders.pop(next(iter(self._orders)), None)
        self._orders[str(order.run)] = order

    def forget(self, runs: Sequence[str]) -> None:
        """These are no more."""
        for run in runs:
            self._orders.pop(run, None)

    def _read(self, run: str) -> Order:
        found = self._client.list_workflows(workflow_ids=[run], load_output=False)
        if not found or found[0].input is None:
            raise NotFound(say("There is no run `{run}`", run=run))
        return Order.of(cast("Any", found[0].input)["args"][0])

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
            chain.append(self.order(chain[-1].before, order.born))
        known: dict[str, StepResult] = {}
        for one in reversed(chain[:-1]):
            results = {**known, **self.results(one.before)}
            known = (
                going_on(results)
                if one.keep is None
                else {name: results[name] for name in one.keep}
            )
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
        order = self.order(str(run.id), run.born)
        results = {
            **(self._still_asking(order) if run.moving else {}),
            **self.known(order),
            **self.results(str(run.id)),
        }
        if run.state == "running":
            for name in at_work(order.goal.plan, results):
                results[name] = StepResult(name, "running")
        report = report_of(
            order.goal,
            results,
            run.state,
            reason=run.reason,
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
                found.append(self._summary(run))
        return found

    def _by_submission(self, before: float | None) -> Iterator[Run]:
        """The latest run of each goal, in the order of their first runs, the last one first.

        A goal's first run is its oldest, so its others have been seen when it comes; but for those
        that began after `before`.
        """
        latest: dict[str, Run] = {}
        offset = 0
        until = None if before is None else datetime.fromtimestamp(before, UTC).isoformat()
        page = [None] * _PAGE
        while len(page) == _PAGE:
            page = self._client.list_workflows(
                name=WORKFLOW, sort_desc=True, limit=_PAGE, offset=offset, load_input=False,
                end_time=until,
            )  # fmt: skip
            offset += _PAGE
            for run in map(_run, page):
                if run is None:
                    continue
                name = run.id.goal
                if name not in latest or latest[name].id < run.id:
                    latest[name] = run
                if run.id == RunId(name, 1, 1):
                    found = latest.pop(name)
                    if before is None:
                        yield found
                    elif run.begun < before:
                        yield self.latest(name)
        yield from latest.values()  # somebody removed their first runs from the database

    def _summary(self, run: Run) -> GoalSummary:
        end = cast("dict[str, Any]", run.row.output or {}) if run.status == "SUCCESS" else None
        if end is None:
            report = self.report(run)
            done = sum(one.state == "done" for one in report.steps.values())
            started, seconds = report.started, report.seconds
        else:
            done, started, seconds = end["done"], end["started"], end["seconds"]
        return GoalSummary(
            run.id.goal,
            run.state,
            run.about.get("goal", ""),
            ENGINE,
            started,
            seconds,
            done,
            run.about.get("steps", 0),
        )


def ending(report: GoalReport) -> dict[str, Any]:
    """What a run gives back: the results are with its steps already."""
    return {
        "state": report.state,
        "reason": report.reason,
        # As the whole goal says it: an earlier run of it may have begun before this one.
        "started": min((one.started for one in report.steps.values() if one.started), default=0.0),
        "seconds": report.seconds,
        "done": sum(one.state == "done" for one in report.steps.values()),
    }


def about(order: Order) -> dict[str, Any]:
    """What a list shows of a goal, so that it need not read plans."""
    plan = order.goal.plan
    text = plan.goal[:300].replace("\0", "")  # PostgreSQL minds it in JSON
    return {"goal": text, "steps": len(plan.steps), "born": order.born, "begun": time.time()}


def own_queue(worker: str) -> str:
    """The queue of a process that does only some goals."""
    return f"{QUEUE}:{worker}"


def _run(row: WorkflowStatus) -> Run | None:
    run = parse(row.workflow_id)
    return None if run is None else Run(run, row.status, row.executor_id or "", row)
