"""Tables of the engine `dbos` besides those of DBOS: workers, answers, large outputs."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from typing import TYPE_CHECKING, Any, TypeVar, cast

from satchel._fs import make_private
from satchel._optional import require
from satchel.errors import InvalidInput
from satchel.goals.artifacts import artifact_name, digest_of, split_name, verify
from satchel.goals.database_errors import database_failed
from satchel.goals.model import Answer
from satchel.goals.reports import pack, unpack
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import sqlalchemy as sa
    from sqlalchemy.exc import DBAPIError

SCHEMA = "satchel"
"""The schema of all tables on PostgreSQL, those of DBOS included."""
IDLE_TRANSACTION_S = 5
"""PostgreSQL ends the transaction of a frozen process after this time."""
_RESTART_TIMEOUT_S = 60.0
_T = TypeVar("_T")

_TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS {in}satchel_workers ("
        "name TEXT PRIMARY KEY, until DOUBLE PRECISION NOT NULL)"
    ),
    (
        "CREATE TABLE IF NOT EXISTS {in}satchel_answers (goal TEXT NOT NULL,"
        " revision INTEGER NOT NULL, step TEXT NOT NULL, answer TEXT NOT NULL, run INTEGER,"
        " PRIMARY KEY (goal, revision, step))"
    ),
    (
        "CREATE TABLE IF NOT EXISTS {in}satchel_outputs (goal TEXT NOT NULL, digest TEXT NOT NULL,"
        " data {bytes} NOT NULL, kept DOUBLE PRECISION NOT NULL, PRIMARY KEY (goal, digest))"
    ),
    (
        "CREATE INDEX IF NOT EXISTS satchel_answers_open ON {in}satchel_answers (goal)"
        " WHERE run IS NULL"
    ),
)


def database_url(database: str) -> str:
    """Convert a path or an address to the form that DBOS wants.

    Raises:
        InvalidInput: it is neither SQLite nor PostgreSQL.
    """
    if database.startswith("postgres://"):
        return "postgresql://" + database.removeprefix("postgres://")
    if database.startswith(("postgresql://", "sqlite:///")):
        return database
    if "://" in database:
        raise InvalidInput(
            say("`{value}` is not valid",
                value=database.partition("://")[0]),
            say("Write `dbos:sqlite:///FILE` or `dbos:postgresql://USER@HOST/NAME`"),
        )  # fmt: skip
    return f"sqlite:///{os.path.abspath(database)}"


class DbosTables:
    """The connection of this process to the database."""

    def __init__(self, database: str) -> None:
        self.url = database_url(database)
        self.sqlite = self.url.startswith("sqlite")
        self.engine: sa.Engine = self._engine()
        self._now = (
            "((julianday('now') - 2440587.5) * 86400.0)"
            if self.sqlite
            else "EXTRACT(EPOCH FROM clock_timestamp())"
        )
        """The database's clock, shared by all processes."""

    def _engine(self) -> sa.Engine:
        require("dbos", "dbos")
        import sqlalchemy as sa
        from sqlalchemy import event

        if self.sqlite:
            path = self.url.removeprefix("sqlite:///").partition("?")[0]
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            make_private(path)
            engine = sa.create_engine(
                self.url, pool_size=20, max_overflow=0, pool_timeout=60, hide_parameters=True
            )
            event.listen(engine, "connect", _prepare_sqlite)
            return engine
        url = sa.make_url(self.url).set(drivername="postgresql+psycopg")
        return sa.create_engine(
            url,
            pool_size=5,
            max_overflow=5,
            pool_timeout=60,
            pool_pre_ping=True,
            hide_parameters=True,  # outputs of steps do not belong in logs
            connect_args={
                "application_name": "satchel-goals",
                "connect_timeout": 10,
                "options": f"-c idle_in_transaction_session_timeout={IDLE_TRANSACTION_S * 1000}",
            },
        )

    def prepare(self) -> None:
        """Create the missing tables, those of DBOS included.

        Raises:
            ServerFailed: the database does not answer, or refuses.
        """
        import sqlalchemy as sa
        from dbos import DBOS
        from sqlalchemy.exc import DBAPIError

        try:
            with self.engine.connect() as connection:
                connection.execute(sa.text("SELECT 1"))
            # Its connections do not wait for another process that creates the same tables.
            _retry_temporary(lambda: DBOS.migrate(self.url, schema=SCHEMA), _is_locked)
            with self.engine.begin() as connection:
                if not self.sqlite:  # two that start at once would both create them
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(7305112)"))
                for statement in _TABLES:
                    connection.execute(sa.text(self._sql(statement)))
        except DBAPIError as exc:
            url = self.engine.url
            if not self.sqlite:
                url = url.set(drivername="postgresql")  # as the user wrote it
            # `database_failed` removes the password, also from the driver's message.
            raise database_failed(url.render_as_string(hide_password=False), str(exc.orig)) from exc

    def _sql(self, statement: str) -> str:
        return (
            statement.replace("{in}", "" if self.sqlite else f"{SCHEMA}.")
            .replace("{now}", self._now)
            .replace("{bytes}", "BLOB" if self.sqlite else "BYTEA")
        )

    def _do(self, work: Callable[[sa.Connection], _T]) -> _T:
        """Run one transaction; wait for a database that is being restarted."""

        def once() -> _T:
            with self.engine.begin() as connection:
                return work(connection)

        return _retry_temporary(once, _is_transient)

    def execute(self, statement: str, **values: Any) -> int:
        """Run a statement; returns the number of changed rows."""
        import sqlalchemy as sa

        text = sa.text(self._sql(statement))
        return self._do(lambda c: cast("Any", c.execute(text, values)).rowcount)

    def rows(self, statement: str, **values: Any) -> list[Any]:
        """Run a query."""
        import sqlalchemy as sa

        text = sa.text(self._sql(statement))
        return self._do(lambda c: list(c.execute(text, values).all()))

    # Workers

    def renew_lease(self, name: str, lease: float) -> None:
        """Extend the lease of a worker to at least `lease` seconds from now."""
        self.execute(
            "INSERT INTO {in}satchel_workers (name, until) VALUES (:name, {now} + :lease)"
            " ON CONFLICT (name) DO UPDATE SET until = excluded.until",
            name=name, lease=lease,
        )  # fmt: skip

    def remove_worker(self, name: str) -> bool:
        """Remove a worker; True for the one process that removed it."""
        return self.execute("DELETE FROM {in}satchel_workers WHERE name = :name", name=name) > 0

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
            " VALUES (:goal, :revision, :step, :answer)"
            " ON CONFLICT (goal, revision, step) DO NOTHING",
            goal=goal, revision=revision, step=step, answer=json.dumps(pack(answer)),
        )  # fmt: skip

    def answers(self, goal: str, revision: int) -> dict[str, Answer]:
        """Step -> its answer in this revision."""
        found = self.rows(
            "SELECT step, answer FROM {in}satchel_answers"
            " WHERE goal = :goal AND revision = :revision",
            goal=goal, revision=revision,
        )  # fmt: skip
        return {str(step): unpack(Answer, json.loads(answer)) for step, answer in found}

    def mark_used(self, goal: str, revision: int, steps: Sequence[str]) -> None:
        """Mark answers as used by a run, and remove those of earlier revisions."""
        self.execute(
            "DELETE FROM {in}satchel_answers WHERE goal = :goal AND revision < :revision",
            goal=goal, revision=revision,
        )  # fmt: skip
        for step in steps:
            self.execute(
                "UPDATE {in}satchel_answers SET run = 0"
                " WHERE goal = :goal AND revision = :revision AND step = :step AND run IS NULL",
                goal=goal, revision=revision, step=step,
            )  # fmt: skip

    def answered_goals(self) -> list[str]:
        """Goals with answers that no run uses yet."""
        found = self.rows("SELECT DISTINCT goal FROM {in}satchel_answers WHERE run IS NULL")
        return [str(name) for (name,) in found]

    def remove_answers(self, goal: str) -> None:
        """Remove the answers of a goal."""
        self.execute("DELETE FROM {in}satchel_answers WHERE goal = :goal", goal=goal)

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()


def _retry_temporary(work: Callable[[], _T], passes: Callable[[DBAPIError], bool]) -> _T:
    from sqlalchemy.exc import DBAPIError

    give_up = time.monotonic() + _RESTART_TIMEOUT_S
    while True:
        try:
            return work()
        except DBAPIError as exc:
            if not passes(exc) or time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def _is_locked(exc: DBAPIError) -> bool:
    return "locked" in str(exc)


def _is_transient(exc: DBAPIError) -> bool:
    names = {"OperationalError", "InterfaceError"}
    return exc.connection_invalidated or type(exc).__name__ in names


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Configure a connection to a file, for DBOS too."""
    import sqlite3

    from satchel.goals.database_errors import write_ahead

    connection.isolation_level = "IMMEDIATE"
    connection.execute("PRAGMA busy_timeout=30000")
    connection.execute("PRAGMA foreign_keys=ON")
    # Readers do not block writers, and a commit is one write to the disk.
    write_ahead(connection)
    if sqlite3.sqlite_version_info < (3, 42):
        # From Python 3.12 on DBOS uses `unixepoch('subsec')`, which SQLite has from 3.42 on.
        connection.create_function("unixepoch", 1, _seconds)


def _seconds(_wanted: str) -> float:
    return time.time()


class DatabaseArtifacts:
    """Artifacts in the same database, visible to all workers."""

    def __init__(self, store: DbosTables, goal: str = "") -> None:
        self._store = store
        self._goal = goal

    async def put(self, data: bytes) -> str:
        """Store bytes once; damaged ones are replaced."""
        digest = digest_of(data)
        statement = (
            "INSERT INTO {in}satchel_outputs (goal, digest, data, kept)"
            " VALUES (:goal, :digest, :data, {now})"
            " ON CONFLICT (goal, digest) DO UPDATE SET data = excluded.data"
        )
        values = {"goal": self._goal, "digest": digest, "data": data}
        await asyncio.to_thread(self._store.execute, statement, **values)
        return artifact_name(self._goal, digest)

    async def get(self, name: str) -> bytes:
        """Return bytes."""
        goal, digest = split_name(name)
        statement = "SELECT data FROM {in}satchel_outputs WHERE goal = :goal AND digest = :digest"
        found = await asyncio.to_thread(self._store.rows, statement, goal=goal, digest=digest)
        return verify(bytes(found[0][0]) if found else None, digest)

    def of(self, goal: str) -> DatabaseArtifacts:
        """Return the same storage for one goal."""
        return DatabaseArtifacts(self._store, goal)

    async def forget(self, goal: str) -> None:
        """Remove a goal's bytes."""
        statement = "DELETE FROM {in}satchel_outputs WHERE goal = :goal"
        await asyncio.to_thread(self._store.execute, statement, goal=goal)


def worker_name() -> str:
    """A unique name of this process: machine, process id, start time, random digits."""
    pid = os.getpid()
    return f"{_machine()}:{pid}:{_start_time(pid)}:{secrets.token_hex(4)}"


def is_surely_dead(name: str) -> bool:
    """Whether a process of this machine is gone; False when that cannot be determined."""
    fields = name.split(":")
    if len(fields) != 4 or fields[0] != _machine() or not fields[0] or not fields[1].isdigit():
        return False
    began = _start_time(int(fields[1]))
    return began != fields[2] if began or fields[2] else False


def _machine() -> str:
    """The same value for processes that see each other's ids; empty when unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot[:13]}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """The start time of a process in clock ticks since boot; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]
