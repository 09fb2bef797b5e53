"""Rate limits of model providers: requests per second and concurrent requests, for all workers.

    limiter = SharedLimiter({"anthropic": Limit(per_second=5, at_once=3)}, "limits.db")
    async with limiter.slot("anthropic"):
        ...  # one request

Each request is a row of a shared table. A process takes a slot (`at_once`), which is leased: a
killed process loses it soon. The slot comes with a start time, later than earlier ones by what
`per_second` requires. At that time the process checks again: other requests may have begun later
than planned, and count from there. A process has at most one such time, so that few are lost with
it; its other requests wait in line.
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
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from satchel._fs import make_private
from satchel._optional import require
from satchel.errors import InvalidInput
from satchel.goals.database_errors import database_failed, for_driver, is_final, write_ahead
from satchel.i18n import say

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence

    from psycopg import Connection

ANY_PROVIDER = "*"
"""The key of the limit for providers without one of their own."""
WINDOW_MARGIN_S = 0.25
"""How much longer a window is than its second. Two requests that leave a second apart may arrive
closer together, by as much as the first one took longer."""


class Limit(NamedTuple):
    """Limits of a provider. None means no limit."""

    per_second: float | None = None
    """Requests that begin within any one second. Fractions of a request do not count: 2.5 is 2, and
    0.5 is one in two seconds."""
    at_once: int | None = None

    @property
    def window(self) -> tuple[int, float]:
        """Maximum number of starts, and within how many seconds; `(0, 0)` without a limit."""
        if self.per_second is None:
            return 0, 0.0
        if self.per_second >= 1:
            return int(self.per_second), 1.0
        return 1, 1.0 / self.per_second


def _limit_for(limits: Mapping[str, Limit], provider: str) -> Limit | None:
    """The limit of a provider; None when there is none.

    Raises:
        InvalidInput: it would allow no request at all.
    """
    limit = limits.get(provider) or limits.get(ANY_PROVIDER)
    if limit is None or limit == Limit():
        return None
    if (limit.per_second is not None and not limit.per_second > 0) or (
        limit.at_once is not None and limit.at_once < 1
    ):
        raise InvalidInput(
            say("The limit of `{provider}` allows no request", provider=provider),
            say("Give `per_second` and `at_once` values above 0"),
        )
    return limit


# --- ledger -------------------------------------------------------------------------------
# One table, in an SQLite file or in PostgreSQL. A row is one request: when it begins, whether it
# has begun, and until when its slot is leased. All times are the database's own (a file's are
# those of its machine).

NO_SLOT_S = -1.0
_TABLE = """
CREATE TABLE IF NOT EXISTS satchel_turns (turn TEXT PRIMARY KEY, provider TEXT NOT NULL,
    start_at DOUBLE PRECISION NOT NULL, begun INTEGER NOT NULL, leased DOUBLE PRECISION NOT NULL)
"""
_MAX_ROW_AGE_S = 3600.0
"""Rows older than this are deleted; rows as far in the future come from a clock that was set back.
"""
_RESTART_TIMEOUT_S = 60.0
_ADVISORY_LOCK_ID = 7305113
"""Satchel's key for PostgreSQL's advisory locks."""


class Ledger:
    """The requests of all processes that share a database. Called from one thread at a time.

    Args:
        database: `postgresql://…`, or the path of an SQLite file.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._server = database.startswith("postgres")
        self._connection: Any = None
        if self._server:
            require("psycopg", "dbos")

    def reserve(self, provider: str, turn: str, limit: Limit, margin: float, lease: float) -> float:
        """Take a slot and a start time: seconds until then, or `NO_SLOT_S`."""

        def work(execute: Callable[..., Any], now: float) -> float:
            execute(
                "DELETE FROM satchel_turns WHERE provider = ? AND leased < ?"
                " AND (start_at < ? OR start_at > ?)",
                (
                    provider,
                    now,
                    now - max(_MAX_ROW_AGE_S, 2 * limit.window[1]),
                    now + _MAX_ROW_AGE_S,
                ),
            )
            if limit.at_once is not None:
                sql = "SELECT count(*) FROM satchel_turns WHERE provider = ? AND leased >= ?"
                if execute(sql, (provider, now)).fetchone()[0] >= limit.at_once:
                    return NO_SLOT_S
            begin = self._start(execute, (provider, turn), limit, margin, now, planned=True)
            execute("UPDATE satchel_turns SET leased = ? WHERE turn = ?", (begin + lease, turn))
            return begin - now

        return self._do(work)

    def begin(self, provider: str, turn: str, limit: Limit, margin: float) -> float:
        """Begin now if enough time has passed since earlier starts: seconds left, otherwise 0."""

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
        """Record a start time: after earlier starts, and after planned ones if `planned`."""
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
        """Renew the leases of running requests."""

        def work(execute: Callable[..., Any], now: float) -> None:
            for turn in turns:
                sql = "UPDATE satchel_turns SET leased = ? WHERE turn = ? AND leased < ?"
                execute(sql, (now + lease, turn, now + lease))

        self._do(work)

    def release(self, turn: str) -> None:
        """Free the slot of a request; one that never began does not count."""

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
        """Run one transaction; wait for a server that is being restarted.

        Raises:
            ServerFailed: it stays unavailable, or refuses.
        """
        import psycopg

        give_up = time.monotonic() + _RESTART_TIMEOUT_S
        while True:
            try:
                if self._connection is None:
                    self._connection = _connect(self._database)
                connection = self._connection
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ADVISORY_LOCK_ID,))
                    row = connection.execute(
                        "SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8"
                    ).fetchone()
                    return work(_with_percents(connection), row[0])
            except (psycopg.OperationalError, psycopg.InterfaceError) as exc:
                begun = self._connection is not None
                self.close()
                final = not begun and is_final(str(exc))
                if final or time.monotonic() > give_up:
                    raise database_failed(self._database, str(exc)) from exc
                time.sleep(0.3)
            except psycopg.errors.InsufficientPrivilege as exc:
                self.close()
                raise database_failed(self._database, str(exc)) from exc
            except psycopg.ProgrammingError as exc:
                if self._connection is not None:
                    raise
                # The driver quotes the address, which may hold a password: not chained.
                raise database_failed(self._database, str(exc)) from None


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
        # A power cut may lose the last rows, but no request survives it either.
        options="-c idle_in_transaction_session_timeout=5000 -c synchronous_commit=off",
    )
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ADVISORY_LOCK_ID,))
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
    file.execute("BEGIN IMMEDIATE")
    try:
        yield file.execute
    except BaseException:
        file.execute("ROLLBACK")
        raise
    file.execute("COMMIT")


_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.02, 0.25
_MAX_DELAY_S = 0.05
"""A start that is later than this is checked again."""
_MAX_RECHECKS = 3
"""On a machine this slow the margin has to suffice."""


class SharedLimiter:
    """Enforces limits across all processes that share a database.

    Args:
        limits: Provider -> limit; `*` is for providers without one.
        database: `postgresql://…`, or the path of an SQLite file.
        margin: Seconds by which a window is longer than one second.
        lease: Seconds after which the slot of a silent process is free.
    """

    def __init__(
        self,
        limits: Mapping[str, Limit],
        database: str,
        *,
        margin: float = WINDOW_MARGIN_S,
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
        """Close the ledger."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)
        with self._lock:
            self._ledger.close()

    @asynccontextmanager
    async def slot(self, provider: str) -> AsyncGenerator[None]:
        """Wait for a slot."""
        limit = _limit_for(self._limits, provider)
        if limit is None:
            yield
            return
        turn = secrets.token_hex(12)
        try:
            # Only one request of a process tries at a time; the others wait in line.
            async with self._turns.setdefault(provider, asyncio.Lock()):
                await self._begin(provider, turn, limit)
            yield
        finally:
            self._held.discard(turn)
            await asyncio.shield(self._in_thread(self._ledger.release, turn))

    async def _begin(self, provider: str, turn: str, limit: Limit) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            asked = time.monotonic()
            left = await self._in_thread(
                self._ledger.reserve, provider, turn, limit, self._margin, self._lease
            )
            if left >= 0:
                break
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(_MAX_PAUSE_S, pause * 1.5)
        self._held.add(turn)
        again = 0
        while limit.per_second is not None:
            if left > 0:
                await asyncio.sleep(left)
            elif time.monotonic() - asked <= _MAX_DELAY_S or again >= _MAX_RECHECKS:
                break
            else:
                again += 1
            asked = time.monotonic()
            left = await self._in_thread(self._ledger.begin, provider, turn, limit, self._margin)

    async def _in_thread(self, work: Callable[..., Any], *given: Any) -> Any:
        if self._thread is None:
            self._stop.clear()
            self._thread = ThreadPoolExecutor(1, "satchel-limits")
            self._renewing = threading.Thread(
                target=self._renew, name="satchel-limits-lease", daemon=True
            )
            self._renewing.start()
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._locked, work, *given
        )

    def _locked(self, work: Callable[..., Any], *given: Any) -> Any:
        with self._lock:
            return work(*given)

    def _renew(self) -> None:
        """Renew leases in a separate thread, so that a busy event loop does not lose a slot."""
        while not self._stop.wait(self._lease / 4):
            held = list(self._held)
            if held:
                try:
                    self._locked(self._ledger.renew, held, self._lease)
                except Exception:
                    logging.getLogger(__name__).exception("renewing the places failed")
