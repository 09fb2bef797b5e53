"""Limits for workers on several machines, in PostgreSQL."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from satchel._optional import require
from satchel.goals.limits.base import MARGIN
from satchel.goals.limits.shared import FULL, SharedLimiter
from satchel.goals.refusals import failed, for_driver, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from psycopg import Connection

    from satchel.goals.limits.base import Limit

_TABLES = (
    "CREATE SCHEMA IF NOT EXISTS satchel",
    (
        "CREATE TABLE IF NOT EXISTS satchel.limit_starts (provider TEXT NOT NULL,"
        " turn TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL,"
        " begun BOOLEAN NOT NULL)"
    ),
    "CREATE INDEX IF NOT EXISTS limit_starts_at ON satchel.limit_starts (provider, at)",
    (
        "CREATE TABLE IF NOT EXISTS satchel.limit_places (turn TEXT PRIMARY KEY,"
        " provider TEXT NOT NULL, until DOUBLE PRECISION NOT NULL)"
    ),
)
_LOCK = 7305113
"""Ours among the locks that applications agree on."""
_PATIENCE = 60.0
"""Seconds that a server which is being restarted is waited for."""
_Given = TypeVar("_Given")


class PostgresLimiter(SharedLimiter):
    """Limits that all workers on one database keep together.

    Args:
        limits: Provider -> limit; `*` is for those without one.
        database: `postgresql://…`.
        margin: Seconds that a window is longer than a second.
        lease: Seconds after which the place of a worker that does not answer is free.
    """

    def __init__(
        self,
        limits: Mapping[str, Limit],
        database: str,
        *,
        margin: float = MARGIN,
        lease: float = 15.0,
    ) -> None:
        require("psycopg", "dbos")
        super().__init__(limits, lambda: _Ledger(database), margin=margin, lease=lease)


class _Ledger:
    """The tables. All times are the server's: workers need not have the same clock."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._connection: Connection[tuple[Any, ...]] | None = None

    def _do(self, work: Callable[[Connection[tuple[Any, ...]]], _Given]) -> _Given:
        """One transaction; a server that is being restarted is waited for.

        Raises:
            ServerFailed: it does not come back, or refuses.
        """
        import psycopg

        give_up = time.monotonic() + _PATIENCE
        while True:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                with self._connection.transaction():
                    return work(self._connection)
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
                # The address cannot be read, and the error quotes it: nobody sees that one.
                raise failed(self._database, str(exc)) from None

    def _connect(self) -> Connection[tuple[Any, ...]]:
        import psycopg

        connection = psycopg.connect(
            for_driver(self._database),
            autocommit=True,
            connect_timeout=10,
            application_name="satchel-limits",
            # A power cut may take the last moment with it: then nothing is under way either.
            options="-c idle_in_transaction_session_timeout=5000 -c synchronous_commit=off",
        )
        try:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                for statement in _TABLES:
                    connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def take(self, provider: str, turn: str, limit: Limit, margin: float, lease: float) -> float:
        """Take a place and a time to begin."""
        return self._do(lambda connection: _take(connection, provider, turn, limit, margin, lease))

    def begin(self, provider: str, turn: str, limit: Limit, margin: float) -> float:
        """Begin now, if enough time has passed."""
        return self._do(lambda connection: _begin(connection, provider, turn, limit, margin))

    def renew(self, turns: Sequence[str], lease: float) -> None:
        """They are still under way."""
        self._do(
            lambda c: c.execute(
                "UPDATE satchel.limit_places SET until ="
                " greatest(until, EXTRACT(EPOCH FROM clock_timestamp()) + %s)"
                " WHERE turn = ANY(%s)",
                (lease, list(turns)),
            )
        )

    def give_back(self, turn: str) -> None:
        """It is over, or was given up before it began."""
        self._do(
            lambda c: c.execute(
                "WITH over AS (DELETE FROM satchel.limit_places WHERE turn = %(turn)s)"
                " DELETE FROM satchel.limit_starts WHERE turn = %(turn)s AND NOT begun",
                {"turn": turn},
            )
        )

    def close(self) -> None:
        """Let go of the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _alone(connection: Connection[tuple[Any, ...]], provider: str) -> float:
    """One at a time for each provider, until the transaction ends; the time of the server."""
    connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK, provider))
    row = connection.execute("SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8").fetchone()
    return float(row[0]) if row else time.time()


def _take(
    connection: Connection[tuple[Any, ...]],
    provider: str,
    turn: str,
    limit: Limit,
    margin: float,
    lease: float,
) -> float:
    execute = connection.execute
    now = _alone(connection, provider)
    if limit.at_once is not None:
        execute(
            "DELETE FROM satchel.limit_places WHERE provider = %s AND until < %s", (provider, now)
        )
        row = execute(
            "SELECT count(*) FROM satchel.limit_places WHERE provider = %s", (provider,)
        ).fetchone()
        if row is not None and row[0] >= limit.at_once:
            return FULL
    left = 0.0
    count, window = limit.window
    if count:
        execute(
            "DELETE FROM satchel.limit_starts WHERE provider = %s AND at < %s",
            (provider, now - 10 * (window + margin) - 60),
        )
        left = _start(connection, provider, turn, limit, margin, now, planned=True)
    if limit.at_once is not None:
        execute(
            "INSERT INTO satchel.limit_places (turn, provider, until) VALUES (%s, %s, %s)",
            (turn, provider, now + left + lease),
        )
    return left


def _begin(
    connection: Connection[tuple[Any, ...]],
    provider: str,
    turn: str,
    limit: Limit,
    margin: float,
) -> float:
    now = _alone(connection, provider)
    return _start(connection, provider, turn, limit, margin, now, planned=False)


def _start(
    connection: Connection[tuple[Any, ...]],
    provider: str,
    turn: str,
    limit: Limit,
    margin: float,
    now: float,
    *,
    planned: bool,
) -> float:
    """Write down when a turn begins: after those who began, and those who plan to if wished."""
    count, window = limit.window
    row = connection.execute(
        "SELECT at FROM satchel.limit_starts WHERE provider = %s AND turn != %s AND (begun OR %s)"
        " ORDER BY at DESC LIMIT 1 OFFSET %s",
        (provider, turn, planned, count - 1),
    ).fetchone()
    begin = now if row is None else max(now, float(row[0]) + window + margin)
    connection.execute(
        "INSERT INTO satchel.limit_starts (provider, turn, at, begun) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (turn) DO UPDATE SET at = excluded.at, begun = excluded.begun",
        (provider, turn, begin, begin <= now),
    )
    return begin - now
