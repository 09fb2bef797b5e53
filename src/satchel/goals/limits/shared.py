"""Limits that several processes keep together: each turn is a row of a shared table.

To begin, a process takes one of the places (`at_once`), which is leased: who is killed loses it
soon. With it goes a time to begin, later than the last ones by what `per_second` asks. Who wakes
then looks once more: others may have begun later than they had planned, and count from there. A
process has one such time at most, so that few are lost with it; the rest of it stands in line.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Self

from satchel._fs import make_private
from satchel._optional import require
from satchel.goals.limits.base import MARGIN, limit_for
from satchel.goals.refusals import failed, for_driver, refusal, write_ahead

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence

    from psycopg import Connection

    from satchel.goals.limits.base import Limit

# --- the table of turns -------------------------------------------------------------------
# One table, in an SQLite file or in PostgreSQL. A row is one request: when it begins, whether it
# has begun, and until when its place is leased. All times are the database's own (a file's are
# those of its machine).

FULL = -1.0
"""Every place is taken."""
_TABLE = """
CREATE TABLE IF NOT EXISTS satchel_turns (turn TEXT PRIMARY KEY, provider TEXT NOT NULL,
    start_at DOUBLE PRECISION NOT NULL, begun INTEGER NOT NULL, leased DOUBLE PRECISION NOT NULL)
"""
_FORGET_S = 3600.0
"""Seconds after which a turn is deleted; one so far ahead is of a clock that was set back."""
_RESTART_S = 60.0
"""Seconds that a server which is being restarted is waited for."""
_LOCK = 7305113
"""Satchel's number among PostgreSQL's advisory locks."""


class Ledger:
    """Turns of all processes that share a database. Called from one thread at a time.

    Args:
        database: `postgresql://…`, or the path of an SQLite file.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._server = database.startswith("postgres")
        self._connection: Any = None
        if self._server:
            require("psycopg", "dbos")

    def take(self, provider: str, turn: str, limit: Limit, margin: float, lease: float) -> float:
        """Take a place and a time to begin: seconds until then, or `FULL`."""

        def work(execute: Callable[..., Any], now: float) -> float:
            execute(
                "DELETE FROM satchel_turns WHERE provider = ? AND leased < ?"
                " AND (start_at < ? OR start_at > ?)",
                (provider, now, now - max(_FORGET_S, 2 * limit.window[1]), now + _FORGET_S),
            )
            if limit.at_once is not None:
                sql = "SELECT count(*) FROM satchel_turns WHERE provider = ? AND leased >= ?"
                if execute(sql, (provider, now)).fetchone()[0] >= limit.at_once:
                    return FULL
            begin = self._start(execute, (provider, turn), limit, margin, now, planned=True)
            execute("UPDATE satchel_turns SET leased = ? WHERE turn = ?", (begin + lease, turn))
            return begin - now

        return self._do(work)

    def begin(self, provider: str, turn: str, limit: Limit, margin: float) -> float:
        """Begin now, if enough time has passed since those that began: seconds left, else 0."""

        def work(execute: Callable[..., Any], now: float) -> float:
            key = (provider, turn)
            return self._start(execute, key, limit, margin, now, planned=False) - now

        return self._do(work)

    @staticmethod
    def _start(
        execute: Callable[..., Any],
        key: tuple[str, str],
        limit: Limit,
        margin: float,
        now: float,
        *,
        planned: bool,
    ) -> float:
        """Record when a turn begins: after those that began, and if `planned` those that will."""
        count, window = limit.window
        begin = now
        if count:
            row = execute(
                "SELECT start_at FROM satchel_turns WHERE provider = ? AND turn <> ?"
                " AND begun >= ? ORDER BY start_at DESC LIMIT 1 OFFSET ?",
                (*key, 0 if planned else 1, count - 1),
            ).fetchone()
            begin = max(now, row[0] + window + margin) if row else now
        execute(
            "INSERT INTO satchel_turns VALUES (?, ?, ?, ?, 0)"
            " ON CONFLICT (turn) DO UPDATE"
            " SET start_at = excluded.start_at, begun = excluded.begun",
            (key[1], key[0], begin, int(begin <= now)),
        )
        return begin

    def renew(self, turns: Sequence[str], lease: float) -> None:
        """Keep the places of requests that are under way."""

        def work(execute: Callable[..., Any], now: float) -> None:
            for turn in turns:
                sql = "UPDATE satchel_turns SET leased = ? WHERE turn = ? AND leased < ?"
                execute(sql, (now + lease, turn, now + lease))

        self._do(work)

    def give_back(self, turn: str) -> None:
        """Free the place of a request that is over; one that never began does not count."""

        def work(execute: Callable[..., Any], _now: float) -> None:
            execute("DELETE FROM satchel_turns WHERE turn = ? AND begun = 0", (turn,))
            execute("UPDATE satchel_turns SET leased = 0 WHERE turn = ?", (turn,))

        self._do(work)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _do(self, work: Callable[[Callable[..., Any], float], Any]) -> Any:
        """Run one transaction, alone among all processes."""
        if self._server:
            return self._on_server(work)
        if self._connection is None:
            self._connection = _open_file(self._database)
        with _alone(self._connection) as execute:
            return work(execute, time.time())

    def _on_server(self, work: Callable[[Callable[..., Any], float], Any]) -> Any:
        """Run one transaction; a server that is being restarted is waited for.

        Raises:
            ServerFailed: it does not come back, or refuses.
        """
        import psycopg

        give_up = time.monotonic() + _RESTART_S
        while True:
            try:
                if self._connection is None:
                    self._connection = _connect(self._database)
                connection = self._connection
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                    row = connection.execute(
                        "SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8"
                    ).fetchone()
                    return work(_with_percents(connection), row[0])
            except (psycopg.OperationalError, psycopg.InterfaceError) as exc:
                begun = self._connection is not None
                self.close()
                said = None if begun else refusal(str(exc))
                if (said is not None and not said.passes) or time.monotonic() > give_up:
                    raise failed(self._database, str(exc)) from exc
                time.sleep(0.3)
            except psycopg.errors.InsufficientPrivilege as exc:
                self.close()
                raise failed(self._database, str(exc)) from exc
            except psycopg.ProgrammingError as exc:
                if self._connection is not None:
                    raise
                # The driver quotes the address, which may hold a password: not chained.
                raise failed(self._database, str(exc)) from None


def _with_percents(connection: Connection[tuple[Any, ...]]) -> Callable[..., Any]:
    """Return `execute` for statements that are written with `?`."""
    execute: Any = connection.execute

    def run(sql: str, given: tuple[Any, ...]) -> Any:
        return execute(sql.replace("?", "%s"), given)

    return run


def _connect(database: str) -> Connection[tuple[Any, ...]]:
    import psycopg

    connection = psycopg.connect(
        for_driver(database),
        autocommit=True,
        connect_timeout=10,
        application_name="satchel-limits",
        # A power cut may lose the last moment: then no request is under way either.
        options="-c idle_in_transaction_session_timeout=5000 -c synchronous_commit=off",
    )
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            connection.execute(_TABLE)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_file(path: str) -> sqlite3.Connection:
    import sqlite3

    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    make_private(path)
    file = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    write_ahead(file)
    file.execute("PRAGMA synchronous=OFF")
    file.execute(_TABLE)
    return file


@contextmanager
def _alone(file: sqlite3.Connection) -> Generator[Callable[..., Any]]:
    """Hold the file's write lock."""
    file.execute("BEGIN IMMEDIATE")
    try:
        yield file.execute
    except BaseException:
        file.execute("ROLLBACK")
        raise
    file.execute("COMMIT")


_FIRST, _MOST = 0.02, 0.25
"""Seconds between two tries to get a place."""
_LATE = 0.05
"""Seconds between being told to begin and doing so; after more, it is asked again."""
_AGAIN = 3
"""How often that happens at most: on a machine so slow the margin has to do."""


class SharedLimiter:
    """Limits that all processes on one database keep together.

    Args:
        limits: Provider -> limit; `*` is for those without one.
        database: `postgresql://…`, or the path of an SQLite file.
        margin: Seconds that a window is longer than a second.
        lease: Seconds after which the place of a process that does not answer is free.
    """

    def __init__(
        self,
        limits: Mapping[str, Limit],
        database: str,
        *,
        margin: float = MARGIN,
        lease: float = 15.0,
    ) -> None:
        self._limits = dict(limits)
        self._ledger = Ledger(database)
        self._margin = margin
        self._lease = lease
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._turns: dict[str, asyncio.Lock] = {}
        self._held: set[str] = set()
        self._stop = threading.Event()
        self._renewing: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Let go of the ledger."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)
        with self._lock:
            self._ledger.close()

    @asynccontextmanager
    async def slot(self, provider: str) -> AsyncGenerator[None]:
        """Wait for a turn."""
        limit = limit_for(self._limits, provider)
        if limit is None:
            yield
            return
        turn = secrets.token_hex(12)
        try:
            await self._wait(provider, turn, limit)
            yield
        finally:
            self._held.discard(turn)
            await asyncio.shield(self._do("give_back", turn))

    async def _wait(self, provider: str, turn: str, limit: Limit) -> None:
        """Only one of a process tries at a time; the others stand in line behind it."""
        async with self._turns.setdefault(provider, asyncio.Lock()):
            await self._begin(provider, turn, limit)

    async def _begin(self, provider: str, turn: str, limit: Limit) -> None:
        pause = _FIRST
        while True:
            asked = time.monotonic()
            left = await self._do("take", provider, turn, limit, self._margin, self._lease)
            if left >= 0:
                break
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(_MOST, pause * 1.5)
        self._held.add(turn)
        again = 0
        while limit.per_second is not None:
            if left > 0:
                await asyncio.sleep(left)
            elif time.monotonic() - asked <= _LATE or again >= _AGAIN:
                break
            else:
                again += 1
            asked = time.monotonic()
            left = await self._do("begin", provider, turn, limit, self._margin)

    async def _do(self, what: str, *given: Any) -> Any:
        if self._thread is None:
            self._stop.clear()
            self._thread = ThreadPoolExecutor(1, "satchel-limits")
            self._renewing = threading.Thread(
                target=self._renew, name="satchel-limits-lease", daemon=True
            )
            self._renewing.start()
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._call, what, *given
        )

    def _call(self, what: str, *given: Any) -> Any:
        with self._lock:
            return getattr(self._ledger, what)(*given)

    def _renew(self) -> None:
        """In a thread of its own: a busy loop must not cost somebody a place."""
        while not self._stop.wait(self._lease / 4):
            held = list(self._held)
            if held:
                try:
                    self._call("renew", held, self._lease)
                except Exception:
                    logging.getLogger(__name__).exception("renewing the places failed")
