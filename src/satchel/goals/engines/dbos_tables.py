"""Tables of the engine `dbos` besides those of DBOS: workers, begun steps, answers, outputs."""

from __future__ import annotations

import json
import os
import platform
import secrets
import sqlite3
import time
from typing import TYPE_CHECKING, Any, TypeVar

from satchel.errors import InvalidInput
from satchel.goals.database import Database
from satchel.goals.engines.dbos_queries import INDEXES
from satchel.goals.model import Answer, StepBegun
from satchel.goals.reports import pack, unpack
from satchel.goals.step_runner import worker_label
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import sqlalchemy as sa

_T = TypeVar("_T")
SCHEMA = "satchel"
"""The schema of all tables on PostgreSQL, those of DBOS included."""

_SQLITE_WORDS = {
    "{in}": "",
    "{bytes}": "BLOB",
    "{row}": "rowid",
    "{position}": "instr",
    "{begun}": "json_extract(f.attributes, '$.begun')",
}
_POSTGRESQL_WORDS = {
    "{in}": f"{SCHEMA}.",
    "{bytes}": "BYTEA",
    "{row}": "workflow_uuid",
    "{position}": "strpos",
    "{begun}": "(f.attributes ->> 'begun')::float8",
}
"""Mark in a statement -> what the database has for it."""
BegunRow = tuple[str, int, str, str, str]
"""Goal, revision, step, worker and record of a step that has begun."""

_TABLES = """
CREATE TABLE IF NOT EXISTS {in}satchel_workers (
    name TEXT PRIMARY KEY, until DOUBLE PRECISION NOT NULL);
CREATE TABLE IF NOT EXISTS {in}satchel_announcements (
    worker TEXT PRIMARY KEY, about TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS {in}satchel_answers (goal TEXT NOT NULL, revision INTEGER NOT NULL,
    step TEXT NOT NULL, answer TEXT NOT NULL, run INTEGER, PRIMARY KEY (goal, revision, step));
CREATE TABLE IF NOT EXISTS {in}satchel_deadlines (goal TEXT NOT NULL, revision INTEGER NOT NULL,
    step TEXT NOT NULL, answer TEXT NOT NULL, due DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (goal, revision, step));
CREATE TABLE IF NOT EXISTS {in}satchel_outputs (goal TEXT NOT NULL, digest TEXT NOT NULL,
    data {bytes} NOT NULL, kept DOUBLE PRECISION NOT NULL, PRIMARY KEY (goal, digest));
CREATE TABLE IF NOT EXISTS {in}satchel_successors (goal TEXT NOT NULL, run TEXT NOT NULL,
    next TEXT NOT NULL, PRIMARY KEY (goal, run));
CREATE TABLE IF NOT EXISTS {in}satchel_begun (goal TEXT NOT NULL, revision INTEGER NOT NULL,
    step TEXT NOT NULL, worker TEXT NOT NULL, deaths INTEGER NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (goal, revision, step));
CREATE INDEX IF NOT EXISTS satchel_begun_worker ON {in}satchel_begun (worker) WHERE worker <> '';
CREATE INDEX IF NOT EXISTS satchel_answers_open ON {in}satchel_answers (goal) WHERE run IS NULL
"""


def database_url(database: str) -> str:
    """Convert a path or an address to the form that DBOS wants.

    Raises:
        InvalidInput: it is neither SQLite nor PostgreSQL.
    """
    scheme, mark, location = database.partition("://")
    if not mark:
        return f"sqlite:///{os.path.abspath(database)}"
    if scheme in {"postgres", "postgresql", "postgresql+psycopg"}:
        return f"postgresql://{location}"
    if scheme != "sqlite":
        raise InvalidInput(
            say("`{value}` is not valid", value=scheme),
            say("Write `dbos:sqlite:///FILE` or `dbos:postgresql://USER@HOST/NAME`"),
        )
    return database


def _migrate(url: str) -> None:
    from dbos import DBOS

    DBOS.migrate(url, schema=SCHEMA)


class DbosTables:
    """The connections of this process to the database."""

    def __init__(self, database: str) -> None:
        self.url = database_url(database)
        self.sqlite = self.url.startswith("sqlite")
        path = self.url.removeprefix("sqlite:///").partition("?")[0]
        self._database = Database(path if self.sqlite else self.url)
        self.engine = self._engine() if self.sqlite else None
        """The connections of DBOS to a file; it makes its own to a server."""

    def _engine(self) -> sa.Engine:
        import sqlalchemy as sa
        from sqlalchemy import event

        engine = sa.create_engine(
            self.url, pool_size=20, max_overflow=0, pool_timeout=60, hide_parameters=True
        )
        event.listen(engine, "connect", _prepare_sqlite)
        return engine

    def prepare(self) -> None:
        """Create the missing tables, those of DBOS included.

        Raises:
            ServerFailed: the database does not answer, or refuses.
        """
        from sqlalchemy.exc import DBAPIError

        if self.sqlite:
            self._database.create_file(lambda path: _migrate(f"sqlite:///{path}"))
        self.rows("SELECT 1")  # raises when it cannot be used
        give_up = time.monotonic() + 60
        while True:
            try:
                _migrate(self.url)
                break
            except DBAPIError as exc:
                # It does not wait for another process that creates the same tables.
                if "locked" not in str(exc) or time.monotonic() > give_up:
                    raise self._database.failed(exc.orig or exc) from None
                time.sleep(0.1)
        self._database.create(*self._sql(f"{_TABLES};{INDEXES}").split(";"))

    def _sql(self, statement: str) -> str:
        for name, text in (_SQLITE_WORDS if self.sqlite else _POSTGRESQL_WORDS).items():
            statement = statement.replace(name, text)
        return statement

    def execute(self, statement: str, *values: Any) -> int:
        """Run a statement; returns the number of changed rows."""
        return self._database.execute(self._sql(statement), *values)

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """Run a query."""
        return self._database.rows(self._sql(statement), *values)

    def in_snapshot(self, work: Callable[[Callable[..., list[Any]]], _T]) -> _T:
        """Call `work` with a function that runs queries, which all see the same moment."""

        def read(execute: Callable[..., Any]) -> _T:
            def query(statement: str, *values: Any) -> list[Any]:
                return execute(self._sql(statement), *values).fetchall()

            return work(query)

        return self._database.in_snapshot(read)

    # Workers

    def renew_lease(self, name: str, lease: float) -> None:
        """Extend the lease of a worker to at least `lease` seconds from now."""
        self.execute(
            "INSERT INTO {in}satchel_workers (name, until) VALUES (?, {now} + ?)"
            " ON CONFLICT (name) DO UPDATE SET until = excluded.until",
            name, lease,
        )  # fmt: skip

    def remove_worker(self, name: str) -> None:
        """Remove a worker."""
        self.execute("DELETE FROM {in}satchel_announcements WHERE worker = ?", name)
        self.execute("DELETE FROM {in}satchel_workers WHERE name = ?", name)

    def announce(self, name: str, about: str) -> None:
        """Store what a worker can run."""
        self.execute(
            "INSERT INTO {in}satchel_announcements (worker, about) VALUES (?, ?)"
            " ON CONFLICT (worker) DO UPDATE SET about = excluded.about",
            name, about,
        )  # fmt: skip

    def claim_worker(self, name: str, seconds_left: float, lease: float) -> bool:
        """Extend the lease of a dead worker; True for the one process that did it.

        The extended lease is longer than that of a worker: so the next process sees the claim.
        """
        if seconds_left > 1.5 * lease:
            return False
        sql = (
            "UPDATE {in}satchel_workers SET until = {now} + ? WHERE name = ? AND until < {now} + ?"
        )
        return self.execute(sql, 2 * lease, name, max(seconds_left, 0.0)) > 0

    def workers(self) -> dict[str, float]:
        """Worker -> seconds until its lease ends; negative when it has ended."""
        rows = self.rows("SELECT name, until - {now} FROM {in}satchel_workers")
        return {str(name): float(seconds_left) for name, seconds_left in rows}

    def live_workers(self) -> set[str]:
        """The labels of the workers that are alive."""
        workers = self.workers().items()
        return {
            worker_label(name) for name, left in workers if left > 0 and not is_surely_dead(name)
        }

    def is_alive(self, name: str) -> bool:
        """Whether a worker has a lease, and its process is not known to be gone."""
        return not is_surely_dead(name) and self.workers().get(name, -1.0) > 0

    # Answers

    def add_answer(self, goal: str, revision: int, step: str, answer: Answer) -> None:
        """Store an answer; the first one is kept."""
        self.execute(
            "INSERT INTO {in}satchel_answers (goal, revision, step, answer)"
            " VALUES (?, ?, ?, ?) ON CONFLICT (goal, revision, step) DO NOTHING",
            goal, revision, step, json.dumps(pack(answer)),
        )  # fmt: skip

    def answers(self, goal: str, revision: int) -> dict[str, Answer]:
        """Step -> its answer in this revision."""
        sql = "SELECT step, answer FROM {in}satchel_answers WHERE goal = ? AND revision = ?"
        rows = self.rows(sql, goal, revision)
        return {str(step): unpack(Answer, json.loads(answer)) for step, answer in rows}

    def mark_used(self, goal: str, revision: int, steps: Sequence[str]) -> None:
        """Mark answers as used by a run, and remove those of earlier revisions."""
        sql = "DELETE FROM {in}satchel_answers WHERE goal = ? AND revision < ?"
        self.execute(sql, goal, revision)
        sql = "UPDATE {in}satchel_answers SET run = 0 WHERE goal = ? AND revision = ? AND step = ?"
        for step in steps:
            self.execute(sql, goal, revision, step)

    def answered_goals(self) -> list[str]:
        """Goals with answers that no run uses yet."""
        rows = self.rows("SELECT DISTINCT goal FROM {in}satchel_answers WHERE run IS NULL")
        return [str(name) for (name,) in rows]

    def remove_answer(self, goal: str, revision: int, step: str) -> None:
        """Remove an answer that came too late."""
        self.execute(
            "DELETE FROM {in}satchel_answers WHERE goal = ? AND revision = ? AND step = ?",
            goal, revision, step,
        )  # fmt: skip

    def add_deadline(
        self, goal: str, revision: int, step: str, answer: Answer, seconds: float
    ) -> None:
        """Store the answer that counts when no person answers in time; the first one is kept."""
        self.execute(
            "INSERT INTO {in}satchel_deadlines (goal, revision, step, answer, due)"
            " VALUES (?, ?, ?, ?, {now} + ?) ON CONFLICT (goal, revision, step) DO NOTHING",
            goal, revision, step, json.dumps(pack(answer)), seconds,
        )  # fmt: skip

    def add_overdue_answers(self, goal: str = "") -> None:
        """Store the answers whose time has come, of one goal or of all."""
        rows = self.rows(
            "SELECT goal, revision, step, answer FROM {in}satchel_deadlines"
            " WHERE due <= {now} AND (goal = ? OR ? = '')",
            goal, goal,
        )  # fmt: skip
        for name, revision, step, answer in rows:
            self.add_answer(name, revision, step, unpack(Answer, json.loads(answer)))
            self.execute(
                "DELETE FROM {in}satchel_deadlines WHERE goal = ? AND revision = ? AND step = ?",
                name, revision, step,
            )  # fmt: skip

    def remove_deadlines(self, goal: str, revision: int) -> None:
        """Remove the deadlines of revisions before this one."""
        sql = "DELETE FROM {in}satchel_deadlines WHERE goal = ? AND revision < ?"
        self.execute(sql, goal, revision)

    # Steps that have begun

    def write_begun(self, rows: Sequence[BegunRow], worker: str) -> Sequence[None]:
        """Write the records of steps: an attempt begins, or it has ended without a result.

        Its end is written only by the worker that has the step.
        """
        sql = (
            "INSERT INTO {in}satchel_begun AS old (goal, revision, step, worker, record, deaths)"
            " VALUES {rows} ON CONFLICT (goal, revision, step)"
            " DO UPDATE SET worker = excluded.worker, record = excluded.record"
            " WHERE excluded.worker <> '' OR old.worker IN ('', ?)"
        )
        latest = {row[:3]: row for row in rows}  # in the same order everywhere, against deadlocks
        values = [value for _, row in sorted(latest.items()) for value in row]
        places = ", ".join(["(?, ?, ?, ?, ?, 0)"] * len(latest))
        self.execute(sql.replace("{rows}", places), *values, worker)
        return [None] * len(rows)

    def count_death(self, worker: str) -> None:
        """Count the death of a worker for the steps that had begun in it."""
        sql = "UPDATE {in}satchel_begun SET worker = '', deaths = deaths + 1 WHERE worker = ?"
        self.execute(sql, worker)

    def begun_steps(self, revisions: Sequence[tuple[str, int]]) -> list[dict[str, StepBegun]]:
        """Step -> its record, for each revision; a step may have a result meanwhile."""
        sql = (
            "SELECT goal, revision, worker, deaths, record FROM {in}satchel_begun"
            " WHERE (goal, revision) IN (VALUES {revisions})"
        )
        sql = sql.replace("{revisions}", ", ".join(["(?, ?)"] * len(revisions)))
        values = [value for revision in revisions for value in revision]
        records: dict[tuple[str, int], dict[str, StepBegun]] = {key: {} for key in revisions}
        for goal, revision, worker, deaths, packed in self.rows(sql, *values):
            begun = unpack(StepBegun, json.loads(packed))
            label = worker_label(worker)
            records[goal, revision][begun.step] = begun._replace(worker=label, deaths=deaths)
        return [records[key] for key in revisions]

    # Changes

    def claim_successor(self, goal: str, run: str, successor: str) -> str:
        """Record which run follows another one; returns the first that was recorded.

        An answer, a retry and a cancellation each start a run after the one that asks. The one
        whose run is recorded here wins.
        """
        self.execute(
            "INSERT INTO {in}satchel_successors (goal, run, next) VALUES (?, ?, ?)"
            " ON CONFLICT (goal, run) DO NOTHING",
            goal, run, successor,
        )  # fmt: skip
        sql = "SELECT next FROM {in}satchel_successors WHERE goal = ? AND run = ?"
        rows = self.rows(sql, goal, run)
        return str(rows[0][0]) if rows else ""  # the goal was removed meanwhile

    def remove_goals(self, goals: Sequence[str]) -> None:
        """Remove the answers, changes, begun steps and large outputs of goals."""
        places = ", ".join("?" * len(goals))
        for table in ("answers", "deadlines", "successors", "begun", "outputs"):
            sql = "DELETE FROM {in}satchel_{table} WHERE goal IN ({goals})"
            sql = sql.replace("{table}", table).replace("{goals}", places)
            self.execute(sql, *goals)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()
        if self.engine is not None:
            self.engine.dispose()


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Configure a connection of DBOS to a file."""
    connection.isolation_level = "IMMEDIATE"
    connection.execute("PRAGMA busy_timeout=30000")
    connection.execute("PRAGMA foreign_keys=ON")
    if sqlite3.sqlite_version_info < (3, 42):
        # From Python 3.12 on DBOS uses `unixepoch('subsec')`, which SQLite has from 3.42 on.
        connection.create_function("unixepoch", 1, lambda _: time.time())  # pyright: ignore[reportUnknownLambdaType]


def worker_name() -> str:
    """A unique name of this process: machine, process id, random digits, host."""
    return f"{_machine()}:{os.getpid()}:{secrets.token_hex(4)}:{platform.node()}"


def is_surely_dead(name: str) -> bool:
    """Whether a process of this machine is gone; False when that cannot be determined."""
    machine, pid = f"{name}:".split(":")[:2]
    return machine == _machine() != "" and pid.isdigit() and not os.path.exists(f"/proc/{pid}")


def _machine() -> str:
    """The same value for processes that see each other's ids; empty when unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read()[:13]}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""
