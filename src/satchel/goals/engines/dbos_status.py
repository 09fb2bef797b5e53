"""The status of the engine `dbos`, read in one transaction with a fixed number of queries.

All queries see the same moment: a step that ends meanwhile is neither missing nor counted twice.
Only the runs that are open, asked, or ended in the last 24 hours are read; a run counts when no
later one of its goal exists.
"""
# ruff: noqa: S608 - the statements are made of constants

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.goals.engines.dbos_queries import (
    ENGINE,
    HAS_USAGE,
    HEAD,
    IS_LATEST,
    OPEN_RUNS,
    REVISION,
    REVISION_STEM,
    RUN_STATES,
    STEP,
    WORKFLOW,
    ended_as,
    head_of,
)
from satchel.goals.engines.dbos_runs import QUEUE, parse
from satchel.goals.engines.dbos_tables import is_surely_dead
from satchel.goals.model import StepBegun, Usage
from satchel.goals.reports import unpack
from satchel.goals.status import (
    DAY_S,
    MAX_STEPS_LISTED,
    BegunStep,
    GoalStatus,
    WorkerStatus,
    count_goals,
    overdue_question,
    sort_steps,
)
from satchel.goals.step_runner import worker_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from satchel.goals.engines.dbos_runs import RunId
    from satchel.goals.engines.dbos_tables import DbosTables
    from satchel.goals.status import StepStatus

    Query = Callable[..., list[Any]]

_RUNS = (
    "SELECT w.status, CASE w.status WHEN 'PENDING' THEN w.executor_id ELSE w.queue_name END,"
    f" NULL, count(*) FROM {OPEN_RUNS} w WHERE w.name = '{WORKFLOW}' GROUP BY 1, 2"
    f" UNION ALL SELECT w.status, w.queue_name, {HEAD}, count(*)"
    " FROM {in}workflow_output o JOIN {in}workflow_status w ON w.workflow_uuid = o.workflow_uuid"
    f" WHERE {ended_as('asking')} GROUP BY 1, 2, 3"
    " UNION ALL SELECT w.status, w.queue_name,"
    f" coalesce({HEAD}, substr(w.output, 1, {len(head_of(''))})), count(*)"
    " FROM {in}workflow_status w"
    " LEFT JOIN {in}workflow_output o ON o.workflow_uuid = w.workflow_uuid"
    f" WHERE w.name = '{WORKFLOW}' AND w.completed_at >= ?"
    f" AND coalesce({HEAD}, '') <> '{head_of('asking')}' AND {IS_LATEST} GROUP BY 1, 2, 3"
)
"""Open runs, those that asked, and those that ended after a moment; for each DBOS or we have an
index."""
_BEGUN = (
    "SELECT w.workflow_uuid, w.status, b.worker, b.deaths, b.record"
    f" FROM (SELECT * FROM {OPEN_RUNS} w UNION ALL SELECT * FROM {{in}}workflow_status w"
    f" WHERE w.status = 'CANCELLED' AND w.completed_at >= ? AND {IS_LATEST}) w"
    " JOIN {in}satchel_begun b"
    f" ON b.goal = rtrim({REVISION_STEM}, '.') AND b.revision = {REVISION}"
    f" WHERE w.name = '{WORKFLOW}' AND (w.status <> 'CANCELLED' OR b.worker <> '')"
    " AND NOT EXISTS (SELECT 1 FROM {in}operation_outputs s WHERE s.output IS NOT NULL"
    f" AND s.workflow_uuid = w.workflow_uuid AND s.function_name = '{STEP}' || b.step)"
)
"""Begun steps of open and of just cancelled runs that have no result in this run."""
_EARLIER = (
    "SELECT workflow_uuid, substr(output, 1, 300) FROM {in}operation_outputs"
    " WHERE output IS NOT NULL AND workflow_uuid IN (SELECT {each}(?))"
)
_QUESTIONS = (
    "SELECT w.workflow_uuid, w.completed_at, substr(s.output, 1, 300) FROM {in}workflow_output o"
    " JOIN {in}workflow_status w ON w.workflow_uuid = o.workflow_uuid"
    " JOIN {in}operation_outputs s ON s.workflow_uuid = o.workflow_uuid"
    f" WHERE {ended_as('asking')} AND w.completed_at < ? ORDER BY w.completed_at"
)
_WORKERS = (
    "SELECT s.name, s.until - {now}, a.about FROM {in}satchel_workers s"
    " LEFT JOIN {in}satchel_announcements a ON a.worker = s.name"
)
_USAGE = (
    "SELECT {sums} FROM {in}operation_outputs o WHERE o.completed_at_epoch_ms >= ?"
    f" AND substr(o.function_name, 1, {len(STEP)}) = '{STEP}'"
    f" AND {HAS_USAGE}"
)
_STATES_BY_HEAD = {head_of(state): state for state in ("done", "partial", "failed", "asking")}
_RESULT_HEAD = re.compile(r'\{"step":"([^"]*)","state":"(\w+)"')
_DEFAULT_LEASE_S = 5.0
"""Of a worker that has announced nothing yet."""


def read_status(store: DbosTables) -> GoalStatus:
    """Read the status; blocks."""
    return store.in_snapshot(lambda query: _Reader(query, is_sqlite=store.sqlite).status())


class _Worker(NamedTuple):
    """A worker in the database."""

    name: str
    is_alive: bool
    about: dict[str, Any]
    seconds_left: float

    @property
    def only_goal(self) -> str:
        return self.about.get("goal", "")


class _Reader:
    """Reads one status."""

    def __init__(self, query: Query, *, is_sqlite: bool) -> None:
        self._query = query
        self._is_sqlite = is_sqlite
        [[now]] = query("SELECT {now}")
        self._now = float(now)
        self._day_ago_ms = int((self._now - DAY_S) * 1000)

    def status(self) -> GoalStatus:
        runs = self._query(_RUNS, self._day_ago_ms)
        workers = [self._worker(*row) for row in self._query(_WORKERS)]
        alive = {worker.name for worker in workers if worker.is_alive}
        begun, cancelling = self._begun_steps(alive)
        states, places = _count_runs(runs)
        states["cancelled"] -= cancelling
        states["cancelling"] += cancelling
        goals_by_worker = Counter(
            {place: count for (status, place), count in places.items() if status == "PENDING"}
        )
        steps_by_worker = Counter(step.begun.worker for step in begun if step.is_running)
        fields = sort_steps(map(_with_label, begun))
        fields["waiting"] = (*self._questions(), *fields["waiting"])[:MAX_STEPS_LISTED]
        is_attended = any(worker.is_alive and not worker.only_goal for worker in workers)
        lost = sum(goals_by_worker[name] for name in goals_by_worker.keys() - alive)
        return GoalStatus(
            ENGINE,
            self._now,
            workers=tuple(
                self._worker_status(worker, goals_by_worker, steps_by_worker)
                for worker in sorted(workers, key=lambda worker: worker.name)
            ),
            unattended=0 if is_attended else places["ENQUEUED", QUEUE] + lost,
            usage=self._usage(),
            **count_goals(states),
            **fields,
        )

    def _worker(self, name: str, seconds_left: float, about: str | None) -> _Worker:
        is_alive = seconds_left > 0 and not is_surely_dead(name)
        return _Worker(name, is_alive, json.loads(about or "{}"), seconds_left)

    def _worker_status(
        self, worker: _Worker, goals: Counter[str], steps: Counter[str]
    ) -> WorkerStatus:
        about = worker.about
        age = max(0.0, about.get("lease", _DEFAULT_LEASE_S) - worker.seconds_left)
        return WorkerStatus(
            worker_label(worker.name),
            self._now - age,
            worker.is_alive,
            steps=steps[worker.name],
            goals=goals[worker.name],
            at_once=about.get("at_once"),
            only_goal=worker.only_goal,
            model=about.get("model"),
            skills=about.get("skills"),
        )

    def _begun_steps(self, alive: Iterable[str]) -> tuple[list[BegunStep], int]:
        """Return the begun steps of open goals, and how many cancelled goals have running ones."""
        rows = self._query(_BEGUN, self._day_ago_ms)
        ended = self._steps_of_earlier_runs({parse(row[0]) for row in rows})
        steps: list[BegunStep] = []
        cancelling: set[str] = set()
        for run, status, worker, deaths, packed in rows:
            goal, revision, _ = parse(run)
            begun = unpack(StepBegun, json.loads(packed))._replace(worker=worker, deaths=deaths)
            if (goal, revision, begun.step) in ended:
                continue
            step = BegunStep(goal, begun, worker in alive)
            if status != "CANCELLED":
                steps.append(step)
            elif step.is_alive:
                steps.append(step)
                cancelling.add(goal)
        return steps, len(cancelling)

    def _steps_of_earlier_runs(self, runs: Iterable[RunId]) -> set[tuple[str, int, str]]:
        """Return the steps that ended in an earlier run of the same revision."""
        earlier = [
            str(run._replace(number=number)) for run in runs for number in range(1, run.number)
        ]
        if not earlier:
            return set()
        each = "value FROM json_each" if self._is_sqlite else "json_array_elements_text"
        rows = self._query(_EARLIER.replace("{each}", each), json.dumps(earlier))
        ended: set[tuple[str, int, str]] = set()
        for run, head in rows:
            match = _RESULT_HEAD.match(head)
            if match is not None and match[2] in {"done", "failed", "skipped"}:
                ended.add((*parse(run)[:2], match[1]))
        return ended

    def _questions(self) -> list[StepStatus]:
        """Return the questions that are older than a day."""
        questions: list[StepStatus] = []
        for run, asked_at_ms, head in self._query(_QUESTIONS, self._day_ago_ms):
            match = _RESULT_HEAD.match(head)
            if match is not None and match[2] == "asking":
                questions.append(overdue_question(parse(run).goal, match[1], asked_at_ms / 1000))
        return questions

    def _usage(self) -> Usage:
        fields = ("requests", "input_tokens", "output_tokens", "cost")
        if self._is_sqlite:
            sums = [f"sum(json_extract(o.output, '$.usage.{name}'))" for name in fields]
        else:
            sums = [f"sum((o.output::json #>> '{{usage,{name}}}')::float8)" for name in fields]
        sql = _USAGE.replace("{sums}", ", ".join(sums))
        [[requests, asked, produced, cost]] = self._query(sql, self._day_ago_ms)
        return Usage(int(requests or 0), int(asked or 0), int(produced or 0), cost)


def _state_of(status: str, head: str | None) -> str:
    """Return the state of a goal, from the status and the output of its latest run."""
    if status == "SUCCESS":
        return _STATES_BY_HEAD.get(head or "", "failed")
    return RUN_STATES.get(status, "failed")


def _count_runs(rows: Iterable[Any]) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Count runs by the state of their goal, and by their status and queue, or worker."""
    states: Counter[str] = Counter()
    places: Counter[tuple[str, str]] = Counter()
    for status, place, head, count in rows:
        states[_state_of(status, head)] += count
        places[status, place or ""] += count
    return states, places


def _with_label(step: BegunStep) -> BegunStep:
    """Return a step with the name of its worker as people see it."""
    return step._replace(begun=step.begun._replace(worker=worker_label(step.begun.worker)))
