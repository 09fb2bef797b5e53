"""Database errors as messages with hints, without passwords; write-ahead logging for SQLite."""

from __future__ import annotations

import re
import sqlite3
import time
from urllib.parse import quote, unquote

from satchel.errors import ServerFailed
from satchel.i18n import say

# --- write-ahead log ----------------------------------------------------------------------
# Readers do not block writers. Switching to it takes a lock that SQLite does not wait for while
# another process writes, whatever the busy timeout: of two workers that start together one
# would fail.

WRITE_TIMEOUT_S = 30.0
_RETRY_DELAY_S = 0.02
_ERROR_CODE_MASK = 0xFF
"""Mask of the primary code in SQLite's extended error codes."""


def write_ahead(connection: sqlite3.Connection, seconds: float = WRITE_TIMEOUT_S) -> None:
    """Switch a database file to write-ahead logging, once no other process writes.

    Raises:
        sqlite3.OperationalError: another process keeps writing, or the file cannot be switched.
    """
    give_up = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as exc:
            busy = exc.sqlite_errorcode & _ERROR_CODE_MASK in (
                sqlite3.SQLITE_BUSY,
                sqlite3.SQLITE_LOCKED,
            )
            if not busy or time.monotonic() > give_up:
                raise
            time.sleep(_RETRY_DELAY_S)
        else:
            return


_FATAL_MESSAGE = re.compile(r"FATAL:\s+(.+)")
_SERVER_WORDS = re.compile(r"FATAL:\s+.+|permission denied.*")
_TEMPORARY = (
    "the database system is",  # starting up, shutting down, in recovery mode
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "terminating connection",
)
"""Messages of a server that accepts connections again soon."""


def is_final(text: str) -> bool:
    """Whether a server answered with a refusal that waiting does not change."""
    said = _FATAL_MESSAGE.search(text)
    return said is not None and not any(words in said[1] for words in _TEMPORARY)


def database_failed(database: str, text: str) -> ServerFailed:
    """The error for a database that cannot be used.

    Only the server's own words are quoted, without names: a driver that parses an address in its
    own way takes a part of a password for a name.
    """
    said = _SERVER_WORDS.search(text)
    why = re.sub(r'"[^"]*"', '"…"', said[0].removeprefix("FATAL:").strip()) if said else "–"
    return ServerFailed(
        say("`{path}` cannot be used: {reason}",
            path=without_password(database), reason=why),
        say("Start it, or correct its address in the setting `engine`"),
    )  # fmt: skip


def without_password(database: str) -> str:
    """The scheme, host and name of an address; the rest may hold a password."""
    scheme, mark, rest = database.partition("://")
    if not mark or not re.fullmatch(r"[\w+]+", scheme):
        return "…"
    host = rest.rpartition("@")[2]
    if "@" in rest.partition("?")[2]:  # the host, or a part of a password
        host = "…"
    return f"{scheme}://{host.partition('?')[0]}"


def for_driver(database: str) -> str:
    """Quote an address so that libpq parses it like SQLAlchemy, which the engine uses.

    For libpq a `/` or `?` ends the password, and a `%` needs two digits after it.
    """
    found = _ACCOUNT.match(database)
    if found is None:
        return database
    user, password = (quote(unquote(one or ""), safe="") for one in found.group(1, 2))
    secret = "" if found[2] is None else f":{password}"
    return f"postgresql://{user}{secret}@{database[found.end() :]}"


_ACCOUNT = re.compile(r"postgres(?:ql)?(?:\+\w+)?://([^:/]*)(?::([^@]*))?@")
