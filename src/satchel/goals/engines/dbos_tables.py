"""Tables of the engine `dbos` besides those of DBOS: workers, answers, large outputs."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import time
from typing import TYPE_CHECKING, Any

from satchel.errors import InvalidInput
from satchel.goals.database import Database
from satchel.goals.model import Answer
from satchel.goals.reports import pack, unpack
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa

SCHEMA = "satchel"
"""The schema of all tables on PostgreSQL, those of DBOS included."""

_TABLES = """
CREATE TABLE IF NOT EXISTS {in}satchel_workers (
    name TEXT PRIMARY KEY, until DOUBLE PRECISION NOT NULL);
CREATE TABLE IF NOT EXISTS {in}satchel_answers (goal TEXT NOT NULL, revision INTEGER NOT NULL,
    step TEXT NOT NULL, answer TEXT NOT NULL, run INTEGER, PRIMARY KEY (goal, revision, step));
CREATE TABLE IF NOT EXISTS {in}satchel_outputs (goal TEXT NOT NULL, digest TEXT NOT NULL,
    data {bytes} NOT NULL, kept DOUBLE PRECISION NOT NULL, PRIMARY KEY (goal, digest));
CREATE INDEX IF NOT EXISTS satchel_answers_open ON {in}satchel_answers (goal) WHERE run IS NULL
"""


def database_url(database: str) -> str:
    """Convert a path or an address to the form that DBOS wants.

    Raises:
        InvalidInput: it is neither SQLite nor PostgreSQL.
    """
    scheme, mark, rest = database.partition("://")
    if not mark:
        return f"sqlite:///{os.path.abspath(database)}"
    if scheme in {"postgres", "postgresql", "postgresql+psycopg"}:
        return f"postgresql://{rest}"
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
        self._database.create(*self._sql(_TABLES).split(";"))

    def _sql(self, statement: str) -> str:
        statement = statement.replace("{in}", "" if self.sqlite else f"{SCHEMA}.")
        return statement.replace("{bytes}", "BLOB" if self.sqlite else "BYTEA")

    def execute(self, statement: str, *values: Any) -> int:
        """Run a statement; returns the number of changed rows."""
        return self._database.execute(self._sql(statement), *values)

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """Run a query."""
        return self._database.rows(self._sql(statement), *values)

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
        self.execute("DELETE FROM {in}satchel_workers WHERE name = ?", name)

    def claim_worker(self, name: str, left: float, lease: float) -> bool:
        """Extend the lease of a dead worker; True for the one process that did it."""
        sql = (
            "UPDATE {in}satchel_workers SET until = {now} + ? WHERE name = ? AND until < {now} + ?"
        )
        return self.execute(sql, 2 * lease, name, max(left, 0.0)) > 0

    def workers(self) -> dict[str, float]:
        """Worker -> seconds until its lease ends; negative when it has ended."""
        found = self.rows("SELECT name, until - {now} FROM {in}satchel_workers")
        return {str(name): float(left) for name, left in found}

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
        found = self.rows(sql, goal, revision)
        return {str(step): unpack(Answer, json.loads(answer)) for step, answer in found}

    def mark_used(self, goal: str, revision: int, steps: Sequence[str]) -> None:
        """Mark answers as used by a run, and remove those of earlier revisions."""
        sql = "DELETE FROM {in}satchel_answers WHERE goal = ? AND revision < ?"
        self.execute(sql, goal, revision)
        sql = "UPDATE {in}satchel_answers SET run = 0 WHERE goal = ? AND revision = ? AND step = ?"
        for step in steps:
            self.execute(sql, goal, revision, step)

    def answered_goals(self) -> list[str]:
        """Goals with answers that no run uses yet."""
        found = self.rows("SELECT DISTINCT goal FROM {in}satchel_answers WHERE run IS NULL")
        return [str(name) for (name,) in found]

    def remove_answers(self, goal: str) -> None:
        """Remove the answers of a goal."""
        self.execute("DELETE FROM {in}satchel_answers WHERE goal = ?", goal)

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
    """A unique name of this process: machine, process id, random digits."""
    return f"{_machine()}:{os.getpid()}:{secrets.token_hex(4)}"


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
