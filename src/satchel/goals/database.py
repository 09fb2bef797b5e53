"""Databases that processes share: an SQLite file or PostgreSQL, without SQLAlchemy.

Statements are written with `?`; `{now}` is the clock of the database, in seconds. Errors name a
database without its password.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from satchel._fs import make_private
from satchel._optional import require
from satchel.errors import ServerFailed
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_T = TypeVar("_T")
IDLE_TRANSACTION_S = 5
"""PostgreSQL ends the transaction of a frozen process after this time."""
_RESTART_TIMEOUT_S = 60.0
_BUSY_TIMEOUT_S = 30.0
_ADVISORY_LOCK_ID = 7305113
"""Satchel's key for PostgreSQL's advisory locks."""


class Database:
    """One connection, used by one thread at a time.

    Args:
        address: `postgresql://…`, or the path of an SQLite file.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_server = address.startswith("postgres")
        self._now = (
            "EXTRACT(EPOCH FROM clock_timestamp())::float8"
            if self.is_server
            else "((julianday('now') - 2440587.5) * 86400.0)"
        )
        self._lock = threading.Lock()
        self._connection: Any = None
        self._was_connected = False
        if self.is_server:
            require("psycopg", "dbos")

    def create(self, *statements: str) -> None:
        """Create tables; processes that start at once do not disturb each other.

        Raises:
            ServerFailed: the database cannot be used.
        """
        self.in_exclusive_transaction(
            lambda execute: [execute(statement) for statement in statements]
        )

    def execute(self, sql: str, *values: Any) -> int:
        """Run a statement; returns the number of changed rows."""
        return self._do(lambda execute: execute(sql, *values).rowcount)

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Run a query."""
        return self._do(lambda execute: execute(sql, *values).fetchall())

    def in_exclusive_transaction(self, work: Callable[[Callable[..., Any]], _T]) -> _T:
        """Call `work` with a function that runs statements, alone among all processes."""

        def transaction(execute: Callable[..., Any]) -> _T:
            with _transaction(execute, "BEGIN" if self.is_server else "BEGIN IMMEDIATE"):
                if self.is_server:
                    execute("SELECT pg_advisory_xact_lock(?)", _ADVISORY_LOCK_ID)
                return work(execute)

        return self._do(transaction)

    def in_snapshot(self, work: Callable[[Callable[..., Any]], _T]) -> _T:
        """Call `work` with a function that runs queries, which all see the same moment."""
        options = " ISOLATION LEVEL REPEATABLE READ READ ONLY" if self.is_server else ""

        def transaction(execute: Callable[..., Any]) -> _T:
            with _transaction(execute, f"BEGIN{options}"):
                return work(execute)

        return self._do(transaction)

    def _do(self, work: Callable[[Callable[..., Any]], _T]) -> _T:
        """Call `work`; wait for a server that is restarted after the first connection.

        Raises:
            ServerFailed: the database is unavailable, or refuses.
        """
        failures, lost = _failures(server=self.is_server)
        give_up = time.monotonic() + _RESTART_TIMEOUT_S
        with self._lock:
            while True:
                try:
                    if self._connection is None:
                        self._connection = self._connect()
                        self._was_connected = True
                    return work(self._execute)
                except failures as exc:
                    self._disconnect()
                    waits = isinstance(exc, lost) and self._was_connected
                    if waits and time.monotonic() < give_up:
                        time.sleep(0.3)
                        continue
                    if not self.is_server:
                        raise self.failed(exc) from exc
                    # A driver quotes the address, which may hold a password: not chained.
                    raise self.failed(exc) from None

    def failed(self, exc: BaseException) -> ServerFailed:
        """The error for a database that cannot be used."""
        if self.is_server:
            return database_failed(self.address, str(exc))
        return ServerFailed(
            say("`{path}` cannot be used: {reason}", path=self.address, reason=exc),
            say("Repair the cause, or move the file away: the goals in it are lost then"),
        )

    def create_file(self, fill: Callable[[str], None]) -> None:
        """Create a missing file under another name first: a crash leaves no half of it.

        Args:
            fill: Creates the tables in the file at a path.
        """
        path = os.path.abspath(self.address)
        if self.is_server or os.path.exists(path):
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        new = f"{path}.{os.getpid()}.new"
        try:
            make_private(new)
            fill(new)
            file = sqlite3.connect(new)
            file.execute("PRAGMA journal_mode=DELETE")  # merges the log into the file
            file.close()
            if not os.path.exists(path):  # another worker may have been faster
                os.link(new, path) if hasattr(os, "link") else os.rename(new, path)
        except FileExistsError:
            pass
        finally:
            if os.path.exists(new):
                os.unlink(new)

    def _execute(self, sql: str, *values: Any) -> Any:
        sql = sql.replace("{now}", self._now)
        return self._connection.execute(sql.replace("?", "%s") if self.is_server else sql, values)

    def _connect(self) -> Any:
        if not self.is_server:
            return self._open_file()
        import psycopg

        return psycopg.connect(
            re.sub(r"^postgres(ql)?(\+\w+)?:", "postgresql:", self.address),
            autocommit=True,
            connect_timeout=10,
            application_name="satchel-goals",
            # To compile a query would take longer than to run it.
            options="-c jit=off"
            f" -c idle_in_transaction_session_timeout={IDLE_TRANSACTION_S * 1000}",
        )

    def _open_file(self) -> sqlite3.Connection:
        folder = os.path.dirname(os.path.abspath(self.address))
        os.makedirs(folder, exist_ok=True)
        make_private(self.address)
        file = sqlite3.connect(
            self.address, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        write_ahead(file)
        return file

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()


@contextmanager
def _transaction(execute: Callable[..., Any], begin: str) -> Generator[None]:
    execute(begin)
    try:
        yield
    except BaseException:
        execute("ROLLBACK")
        raise
    execute("COMMIT")


def _failures(*, server: bool) -> tuple[type[Exception], tuple[type[Exception], ...]]:
    """The errors of a driver, and those of a lost connection."""
    if not server:
        return sqlite3.Error, ()
    import psycopg

    return psycopg.Error, (psycopg.OperationalError, psycopg.InterfaceError)


def write_ahead(connection: sqlite3.Connection) -> None:
    """Switch a file to write-ahead logging: readers do not block writers.

    The switch takes a lock that SQLite does not wait for while another process writes, whatever the
    busy timeout: of two workers that start together one would fail.

    Raises:
        sqlite3.OperationalError: another process keeps writing, or the file cannot be switched.
    """
    give_up = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as exc:
            if "locked" not in str(exc) or time.monotonic() > give_up:
                raise
            time.sleep(0.02)
        else:
            return


_SERVER_WORDS = re.compile(
    r"FATAL:\s+.+|permission denied.*|Connection refused|timeout expired|No route to host"
    r"|could not translate host name|server closed the connection unexpectedly"
)


def database_failed(database: str, text: str) -> ServerFailed:
    """The error for a server that cannot be used.

    Only words of the server and of the network are quoted, without names: a driver that parses an
    address in its own way takes a part of a password for a name.
    """
    quotation = _SERVER_WORDS.search(text)
    why = (
        re.sub(r'"[^"]*"', '"…"', quotation[0].removeprefix("FATAL:").strip()) if quotation else "–"
    )
    return ServerFailed(
        say("`{path}` cannot be used: {reason}", path=without_password(database), reason=why),
        say("Start it, or correct its address in the setting `engine`"),
    )


def without_password(database: str) -> str:
    """The scheme, host and name of an address; the rest may hold a password."""
    scheme, mark, location = database.partition("://")
    if not mark or not re.fullmatch(r"[\w+]+", scheme):
        return "…"
    host = location.rpartition("@")[2]
    if "@" in location.partition("?")[2]:  # the host, or a part of a password
        host = "…"
    return f"{scheme}://{host.partition('?')[0]}"
