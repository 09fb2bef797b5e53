"""Queries of the tables of DBOS: which runs are the latest of their goals, and in which state.

A run is one workflow, with the id `GOAL.REVISION.NUMBER`. These queries read no inputs of runs, and
of outputs only what is needed; with indexes, what they cost grows with what they return.
"""
# ruff: noqa: S608 - the statements are made of constants

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.goals.status import DAY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from satchel.goals.model import GoalState

    Query = Callable[..., list[Any]]
    """Runs a query: a statement, and its values."""

ENGINE = "dbos"
WORKFLOW = "satchel.goal"
FIRING = "satchel.firing"
"""The workflow that starts a goal of a schedule."""
STEP = "step:"
"""What the name of a step begins with; its id follows."""
RUN_STATES: dict[str, GoalState] = {
    "ENQUEUED": "queued", "DELAYED": "queued", "PENDING": "running", "CANCELLED": "cancelled",
}  # fmt: skip
"""Status of a run -> state of its goal; a run that succeeded has the state in its output."""

_DIGITS = "'0123456789'"
_STEM = f"rtrim(w.workflow_uuid, {_DIGITS})"
"""SQL: the id of a run without its number: `GOAL.REVISION.`."""
REVISION_STEM = f"rtrim(rtrim({_STEM}, '.'), {_DIGITS})"
"""SQL: `GOAL.`."""
_NUMBER = f"CAST(substr(w.workflow_uuid, length({_STEM}) + 1) AS INTEGER)"
REVISION = f"CAST(substr(rtrim({_STEM}, '.'), length({REVISION_STEM}) + 1) AS INTEGER)"
IS_LATEST = (
    "NOT EXISTS (SELECT 1 FROM {in}workflow_status n"
    f" WHERE n.workflow_uuid = {_STEM} || ({_NUMBER} + 1))"
    " AND NOT EXISTS (SELECT 1 FROM {in}workflow_status n"
    f" WHERE n.workflow_uuid = {REVISION_STEM} || ({REVISION} + 1) || '.1')"
)
"""SQL: the run has no successor. Two conditions, each of which PostgreSQL can make a join."""
OPEN_RUNS = (
    "(SELECT * FROM {in}workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
    " UNION ALL SELECT * FROM {in}workflow_status WHERE status = 'DELAYED')"
)
"""SQL: the runs that wait for a worker, or have one; for each part DBOS has an index."""
_MAX_CLOCK_DIFFERENCE_S = 60.0
_HEAD_CHARS = 16
_DONE = '{"state":"done",'
HEAD = f"substr(o.output, 1, {_HEAD_CHARS})"
"""SQL: the beginning of the output of a run, which has its state."""
_NOT_DONE = f"substr(output, 1, {_HEAD_CHARS}) <> '{_DONE}'"
HAS_USAGE = """{position}(output, '"usage":{') > 0"""
"""SQL: a step used a model."""
INDEXES = f"""
CREATE INDEX IF NOT EXISTS satchel_not_done ON {{in}}workflow_output
    (substr(output, 1, {_HEAD_CHARS})) WHERE {_NOT_DONE};
CREATE INDEX IF NOT EXISTS satchel_usage ON {{in}}operation_outputs
    (completed_at_epoch_ms) WHERE {HAS_USAGE}
"""
"""For the few runs among many that are not done, and the few steps that used a model."""


def head_of(state: str) -> str:
    """The beginning of the output of a run in this state."""
    return f'{{"state":"{state}",'[:_HEAD_CHARS]


def ended_as(*states: str) -> str:
    """SQL: a run `w` with output `o` ended in one of these states, none of them `done`."""
    heads = ", ".join(f"'{head_of(state)}'" for state in states)
    return (
        f"w.name = '{WORKFLOW}' AND w.status = 'SUCCESS' AND {HEAD} IN ({heads})"
        f" AND {HEAD} <> '{_DONE}' AND {IS_LATEST}"
    )


_FIRST = f"{REVISION_STEM} || '1.1'"
_IS_FIRST = "substr(f.workflow_uuid, length(f.workflow_uuid) - 3) = '.1.1'"
_SELECT = f"SELECT {_FIRST} AS first FROM {{in}}workflow_status w WHERE w.name = '{WORKFLOW}'"
_FROM_OUTPUT = (
    f"SELECT {_FIRST} AS first FROM {{in}}workflow_output o"
    " JOIN {in}workflow_status w ON w.workflow_uuid = o.workflow_uuid WHERE "
)


class GoalPosition(NamedTuple):
    """The place of a goal in the list of all goals, the latest first."""

    created_at: int
    row: str | int
    """Orders goals of the same moment: DBOS records only seconds, on SQLite."""


def first_runs(
    query: Query,
    states: Sequence[GoalState],
    position: GoalPosition | None,
    before: float | None,
    limit: int,
) -> list[tuple[GoalPosition, str]]:
    """The first runs of goals that may be in these states, the latest first.

    Args:
        query: Queries the database.
        states: States of goals; all when empty.
        position: The last goal of the page before.
        before: Only goals that were submitted before this moment, in seconds since the epoch.
        limit: How many at most.
    """
    source = "{in}workflow_status f"
    if states and "done" not in states:
        candidates = " UNION ".join(_candidates(states)) or f"{_SELECT} AND false"
        source = f"({candidates}) c JOIN {source} ON f.workflow_uuid = c.first"
    values: list[Any] = [WORKFLOW]
    conditions = f"f.name = ? AND {_IS_FIRST}"
    if before is not None:  # the clock of a client may differ from that of the database
        conditions += " AND f.created_at < ? AND coalesce({begun}, f.created_at / 1000.0) < ?"
        values += [int((before + _MAX_CLOCK_DIFFERENCE_S) * 1000), before]
    if position is not None:
        conditions += " AND (f.created_at, f.{row}) < (?, ?)"
        values += position
    sql = (
        f"SELECT f.created_at, f.{{row}}, f.workflow_uuid FROM {source} WHERE {conditions}"
        " ORDER BY f.created_at DESC, f.{row} DESC LIMIT ?"
    )
    return [(GoalPosition(*row[:2]), str(row[2])) for row in query(sql, *values, limit)]


def _candidates(states: Sequence[GoalState]) -> Iterator[str]:
    """Queries of goals that are in one of these states, or in a similar one."""
    if "queued" in states or "running" in states:
        yield _SELECT.replace("{in}workflow_status", OPEN_RUNS)
    if "cancelled" in states:
        yield f"{_SELECT} AND w.status = 'CANCELLED' AND {IS_LATEST}"
    elif "cancelling" in states:
        day_ago_ms = int((time.time() - DAY_S) * 1000)
        yield (
            f"{_SELECT} AND w.status = 'CANCELLED' AND w.completed_at >= {day_ago_ms}"
            f" AND {IS_LATEST}"
        )
    if "failed" in states:
        failed = "('ERROR', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED')"
        yield f"{_SELECT} AND w.status IN {failed} AND {IS_LATEST}"
    ended = [state for state in states if state in {"asking", "partial", "failed"}]
    if ended:
        yield _FROM_OUTPUT + ended_as(*ended)


def step_outputs(query: Query, runs: Sequence[str]) -> list[tuple[str, str]]:
    """The recorded steps of runs: the run, and the packed result."""
    if not runs:
        return []
    sql = (
        "SELECT workflow_uuid, output FROM {in}operation_outputs WHERE output IS NOT NULL"
        f" AND substr(function_name, 1, {len(STEP)}) = '{STEP}' AND workflow_uuid IN ({{runs}})"
        " ORDER BY workflow_uuid, function_id"
    )
    rows = query(sql.replace("{runs}", ", ".join("?" * len(runs))), *runs)
    return [(str(run), str(output)) for run, output in rows]


def active_runs(query: Query, runs: Sequence[str]) -> set[str]:
    """Those of the runs that wait for a worker, or have one."""
    sql = (
        "SELECT workflow_uuid FROM {in}workflow_status WHERE workflow_uuid IN ({runs})"
        " AND status IN ('ENQUEUED', 'DELAYED', 'PENDING')"
    )
    places = ", ".join("?" * len(runs))
    return {str(run) for (run,) in query(sql.replace("{runs}", places), *runs)}


def runs_ended_before(query: Query, moment: float) -> list[str]:
    """The runs that ended before a moment, the oldest first."""
    sql = (
        "SELECT workflow_uuid FROM {in}workflow_status WHERE completed_at < ? AND name = ?"
        " ORDER BY completed_at"
    )
    return [str(run) for (run,) in query(sql, int(moment * 1000), WORKFLOW)]
