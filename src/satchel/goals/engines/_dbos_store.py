"""What does Satchel keep beside the tables of DBOS? Who works, what people said, large outputs.

Everything is in the one database that DBOS has: whoever can run a goal can read all of it.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from satchel._fs import make_private
from satchel._language import say
from satchel._optional import require
from satchel.errors import InvalidInput, ServerFailed
from satchel.goals.artefacts import checked, digest_of
from satchel.goals.model import Answer
from satchel.goals.reports import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import sqlalchemy as sa

SCHEMA = "satchel"
"""Where the tables are on PostgreSQL, those of DBOS as well: other applications have their own."""
IDLE = 5
"""Seconds after which PostgreSQL ends a transaction whose process is frozen."""
_PATIENCE = 60.0
"""Seconds that a question of ours waits for a database that is being restarted."""
_Given = TypeVar("_Given")

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
        "CREATE TABLE IF NOT EXISTS {in}satchel_artefacts (digest TEXT PRIMARY KEY,"
        " data {bytes} NOT NULL, kept DOUBLE PRECISION NOT NULL)"
    ),
    (
        "CREATE TABLE IF NOT EXISTS {in}satchel_stopping (run TEXT PRIMARY KEY,"
        " worker TEXT NOT NULL)"
    ),
    (
        "CREATE INDEX IF NOT EXISTS satchel_answers_open ON {in}satchel_answers (goal)"
        " WHERE run IS NULL"
    ),
)


class Waiting(NamedTuple):
    """An answer that no run has taken yet."""

    goal: str
    revision: int


def address(database: str) -> str:
    """A path or an address as DBOS wants it.

    Raises:
        InvalidInput: it is neither SQLite nor PostgreSQL.
    """
    if database.startswith("postgres://"):
        return "postgresql://" + database.removeprefix("postgres://")
    if database.startswith(("postgresql://", "sqlite:///")):
        return database
    if "://" in database:
        raise InvalidInput(
            say("Goals are kept in SQLite or PostgreSQL, not in `{database}`",
                database=database.partition("://")[0]),
            say("Give the path of a file, or `postgresql://…`"),
        )  # fmt: skip
    return f"sqlite:///{os.path.abspath(database)}"


class Store:
    """The database, as this process reaches it."""

    def __init__(self, database: str) -> None:
        self.url = address(database)
        self.sqlite = self.url.startswith("sqlite")
        self.engine: sa.Engine = self._engine()
        self._now = (
            "((julianday('now') - 2440587.5) * 86400.0)"
            if self.sqlite
            else "EXTRACT(EPOCH FROM clock_timestamp())"
        )
        """The clock that all who share the database share."""

    def _engine(self) -> sa.Engine:
        require("dbos", "dbos")
        import sqlalchemy as sa
        from sqlalchemy import event

        if self.sqlite:
            path = self.url.removeprefix("sqlite:///").partition("?")[0]
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            make_private(path)
            engine = sa.create_engine(self.url, pool_size=20, max_overflow=0, pool_timeout=60)
            event.listen(engine, "connect", _prepare_sqlite)
            return engine
        url = sa.make_url(self.url).set(drivername="postgresql+psycopg")
        return sa.create_engine(
            url,
            pool_size=5,
            max_overflow=5,
            pool_timeout=60,
            pool_pre_ping=True,
            connect_args={
                "application_name": "satchel-goals",
                "connect_timeout": 10,
                "options": f"-c idle_in_transaction_session_timeout={IDLE * 1000}",
            },
        )

    def prepare(self, migrate: Callable[[], object]) -> None:
        """Make sure that the tables are there.

        Args:
            migrate: Makes those of DBOS.

        Raises:
            ServerFailed: the database does not answer.
        """
        import sqlalchemy as sa
        from sqlalchemy.exc import DBAPIError

        try:
            with self.engine.connect() as connection:
                connection.execute(sa.text("SELECT 1"))
            migrate()
            with self.engine.begin() as connection:
                if not self.sqlite:  # two who start at once would both create them
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(7305112)"))
                for statement in _TABLES:
                    connection.execute(sa.text(self._sql(statement)))
        except DBAPIError as exc:
            shown = self.engine.url.render_as_string(hide_password=True)
            raise ServerFailed(
                say("The database `{database}` does not answer: {why}", database=shown,
                    why=str(exc.orig).strip()),
                say("Start it, or correct the setting `database`: its role, password or name"),
            ) from exc  # fmt: skip

    def _sql(self, statement: str) -> str:
        return (
            statement.replace("{in}", "" if self.sqlite else f"{SCHEMA}.")
            .replace("{now}", self._now)
            .replace("{bytes}", "BLOB" if self.sqlite else "BYTEA")
        )

    def _do(self, work: Callable[[sa.Connection], _Given]) -> _Given:
        """One transaction; a database that is being restarted is waited for."""
        from sqlalchemy.exc import DBAPIError

        give_up = time.monotonic() + _PATIENCE
        while True:
            try:
                with self.engine.begin() as connection:
                    return work(connection)
            except DBAPIError as exc:
                transient = exc.connection_invalidated or type(exc).__name__ in {
                    "OperationalError",
                    "InterfaceError",
                }
                if not transient or time.monotonic() > give_up:
                    raise
                time.sleep(0.3)

    def execute(self, statement: str, **values: Any) -> int:
        """Change something; returns how many rows it changed."""
        import sqlalchemy as sa

        text = sa.text(self._sql(statement))
        return self._do(lambda c: cast("Any", c.execute(text, values)).rowcount)

    def rows(self, statement: str, **values: Any) -> list[Any]:
        """Ask something."""
        import sqlalchemy as sa

        text = sa.text(self._sql(statement))
        return self._do(lambda c: list(c.execute(text, values).all()))

    # Who works

    def alive(self, name: str, lease: float) -> None:
        """This worker lives for `lease` seconds more, at least."""
        self.execute(
            "INSERT INTO {in}satchel_workers (name, until) VALUES (:name, {now} + :lease)"
            " ON CONFLICT (name) DO UPDATE SET until = excluded.until",
            name=name, lease=lease,
        )  # fmt: skip

    def gone(self, names: Sequence[str]) -> None:
        """These workers are no more."""
        for name in names:
            self.execute("DELETE FROM {in}satchel_workers WHERE name = :name", name=name)
            self.execute("DELETE FROM {in}satchel_stopping WHERE worker = :name", name=name)

    def left_alive(self, name: str) -> None:
        """This worker goes by its own will: its runs have not killed it."""
        self.execute(
            "UPDATE {in}workflow_status SET recovery_attempts = recovery_attempts - 1"
            " WHERE executor_id = :name AND status = 'PENDING' AND recovery_attempts > 0",
            name=name,
        )

    def went_on(self, run: str, worker: str) -> None:
        """A run got further: earlier workers that died with it do not count any more."""
        self.execute(
            "UPDATE {in}workflow_status SET recovery_attempts = 1"
            " WHERE workflow_uuid = :run AND executor_id = :worker AND status = 'PENDING'",
            run=run, worker=worker,
        )  # fmt: skip

    def workers(self) -> dict[str, float]:
        """Worker -> seconds until its lease runs out; negative when it has."""
        found = self.rows("SELECT name, until - {now} FROM {in}satchel_workers")
        return {str(name): float(left) for name, left in found}

    # What was cancelled, and may not have ended yet

    def stop(self, run: str, worker: str) -> None:
        """This run was cancelled; its worker says when it has really ended."""
        self.execute(
            "INSERT INTO {in}satchel_stopping (run, worker) VALUES (:run, :worker)"
            " ON CONFLICT (run) DO NOTHING",
            run=run, worker=worker,
        )  # fmt: skip

    def stopping(self, worker: str) -> list[str]:
        """The runs that a worker is to end."""
        found = self.rows(
            "SELECT run FROM {in}satchel_stopping WHERE worker = :worker", worker=worker
        )
        return [str(run) for (run,) in found]

    def stopped(self, run: str) -> None:
        """It has ended."""
        self.execute("DELETE FROM {in}satchel_stopping WHERE run = :run", run=run)

    def who_stops(self, run: str) -> str:
        """The worker that still is at a run that was cancelled; empty when none is."""
        found = self.rows(
            "SELECT s.worker FROM {in}satchel_stopping s JOIN {in}satchel_workers w"
            " ON w.name = s.worker WHERE s.run = :run AND w.until > {now}",
            run=run,
        )
        return str(found[0][0]) if found else ""

    # What people said

    def say(self, goal: str, revision: int, step: str, answer: Answer) -> None:
        """Keep an answer; the first one stands."""
        self.execute(
            "INSERT INTO {in}satchel_answers (goal, revision, step, answer)"
            " VALUES (:goal, :revision, :step, :answer)"
            " ON CONFLICT (goal, revision, step) DO NOTHING",
            goal=goal, revision=revision, step=step, answer=json.dumps(pack(answer)),
        )  # fmt: skip

    def said(self, goal: str, revision: int) -> dict[str, Answer]:
        """Step -> what was said to it in this revision."""
        found = self.rows(
            "SELECT step, answer FROM {in}satchel_answers"
            " WHERE goal = :goal AND revision = :revision",
            goal=goal, revision=revision,
        )  # fmt: skip
        return {str(step): unpack(Answer, json.loads(answer)) for step, answer in found}

    def taken(self, goal: str, revision: int, steps: Sequence[str], run: int) -> None:
        """These answers are with this run now."""
        for step in steps:
            self.execute(
                "UPDATE {in}satchel_answers SET run = :run"
                " WHERE goal = :goal AND revision = :revision AND step = :step AND run IS NULL",
                goal=goal, revision=revision, step=step, run=run,
            )  # fmt: skip

    def waiting(self, goal: str = "") -> list[Waiting]:
        """Goals that were answered and have no run yet that knows it."""
        found = self.rows(
            "SELECT DISTINCT goal, revision FROM {in}satchel_answers"
            " WHERE run IS NULL AND (:goal = '' OR goal = :goal)",
            goal=goal,
        )
        return [Waiting(str(name), int(revision)) for name, revision in found]

    def close(self) -> None:
        """Let go of it."""
        self.engine.dispose()


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """What every connection to a file needs, those of DBOS too."""
    import sqlite3

    connection.isolation_level = "IMMEDIATE"
    connection.execute("PRAGMA busy_timeout=30000")
    connection.execute("PRAGMA foreign_keys=ON")
    # Who reads does not stop who writes, and a commit is one write to the disk.
    connection.execute("PRAGMA journal_mode=WAL")
    if sqlite3.sqlite_version_info < (3, 42):
        # From Python 3.12 on DBOS asks for `unixepoch('subsec')`, which is nothing before 3.42.
        connection.create_function("unixepoch", 1, _seconds)


def _seconds(_wanted: str) -> float:
    return time.time()


class DatabaseArtefacts:
    """Large outputs in the same database: every worker finds them, wherever it is."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, data: bytes) -> str:
        """Keep them, once; what is damaged is replaced."""
        import asyncio

        digest = digest_of(data)
        await asyncio.to_thread(
            self._store.execute,
            "INSERT INTO {in}satchel_artefacts (digest, data, kept) VALUES (:digest, :data, {now})"
            " ON CONFLICT (digest) DO UPDATE SET data = excluded.data",
            digest=digest,
            data=data,
        )
        return digest

    async def get(self, digest: str) -> bytes:
        """Give them back."""
        import asyncio

        found = await asyncio.to_thread(
            self._store.rows,
            "SELECT data FROM {in}satchel_artefacts WHERE digest = :digest",
            digest=digest,
        )
        return checked(bytes(found[0][0]) if found else None, digest)
