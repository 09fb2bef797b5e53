"""Database errors as messages with hints, without passwords; write-ahead logging for SQLite."""

from __future__ import annotations

import re
import sqlite3
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from satchel.errors import ServerFailed
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_TEMPORARY = (
    "the database system is",  # starting up, shutting down, in recovery mode
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "terminating connection",
)
"""Messages of a server that accepts connections again soon."""


class PostgresRefusal(NamedTuple):
    """A refusal of PostgreSQL, and what to do about it."""

    why: str
    hint: str
    temporary: bool = False


def refusal(text: str) -> PostgresRefusal | None:
    """Classify the error of a server that refused; None when no server answered."""
    said = _FATAL_MESSAGE.search(text)
    why = (said[1] if said else text).strip()
    if any(words in why for words in _TEMPORARY):
        return PostgresRefusal(why, say("Wait for it, or look at the server's log"), temporary=True)
    hint = _hint(why)
    if hint is None and said is None:
        return None
    return PostgresRefusal(
        why.splitlines()[0].strip() if why else "", hint or say("Look at the server's log")
    )


def _hint(why: str) -> str | None:
    role = re.search(r'role "(.+?)" does not exist', why)
    if role:
        return say(
            "Create it (`createuser {role}`), or correct the role in the setting `database`",
            role=role[1],
        )
    name = re.search(r'database "(.+?)" does not exist', why)
    if name:
        return say(
            "Create it (`createdb {name}`), or correct the name in the setting `database`",
            name=name[1],
        )
    if "authentication failed" in why or "no password supplied" in why:
        return say(
            "Correct the password in the setting `database`, or give it by `PGPASSWORD` or "
            "`~/.pgpass`"
        )
    if "pg_hba.conf" in why:
        return say("Let this machine and role in, by the server's `pg_hba.conf`")
    if "permission denied" in why or "not permitted to log in" in why:
        return say("Let the role do that (`GRANT`), or use another in the setting `database`")
    return None


def database_failed(database: str, text: str) -> ServerFailed:
    """The error for a database that cannot be used, without passwords."""
    shown = without_password(database)
    found = refusal(text)
    if found is None:
        return ServerFailed(
            say("The database `{database}` does not answer: {why}", database=shown,
                why=_without_secrets(text.strip(), database)),
            say("Start it, or correct the setting `database`: its role, password or name"),
        )  # fmt: skip
    return ServerFailed(
        say("PostgreSQL refuses `{database}`: {why}", database=shown,
            why=_without_secrets(found.why, database)),
        _without_secrets(found.hint, database),
    )  # fmt: skip


_REDACTED = "***"
_IN_ADDRESS = re.compile(r"(://[^:]*):(.*)@", re.DOTALL)
"""Up to the last `@`: a password may contain `@`, `/` and `?` itself."""
_IN_TEXT = re.compile(r"(://[^:\s]*):\S*@")
_KEY = re.compile(r"([^\s?&=]+)\s*=\s*")
_SECRET = re.compile("passw|pwd|secret|client_key|token", re.IGNORECASE)
_WORD = re.compile(r"'(?:\\.|[^'\\])*'?|(?:\\.|\S)*", re.DOTALL)
_PARAMETER = re.compile("[^&]*")
_ORDINARY = frozenset(
    ("authentication", "connection", "database", "failed", "host", "password", "port", "postgres",
     "role", "server", "user")
)  # fmt: skip
"""Words of the server's own messages: they reveal no password."""
_MIN_SECRET_CHARS = 4
"""Shorter secrets may be part of any word."""


def without_password(database: str) -> str:
    """An address without its password."""
    hidden = _IN_ADDRESS.sub(rf"\1:{_REDACTED}@", database)
    return _redact_settings(hidden, _value_of(database))


def _value_of(database: str) -> re.Pattern[str]:
    """The end of a setting's value, in a URL or in a space-separated list."""
    return _PARAMETER if re.match(r"\s*[\w+]+://", database) else _WORD


def _settings(text: str, value: re.Pattern[str]) -> Iterator[tuple[str, int, int]]:
    """Each setting in a text: its key, and the span of its value."""
    for key in _KEY.finditer(text):
        found = value.match(text, key.end())
        yield unquote(key[1]), key.end(), found.end() if found else key.end()


def _redact_settings(text: str, value: re.Pattern[str]) -> str:
    parts: list[str] = []
    done = 0
    for key, begin, end in _settings(text, value):
        if begin >= done and _SECRET.search(key):
            parts += (text[done:begin], _REDACTED)
            done = end
    return "".join((*parts, text[done:]))


def _without_secrets(text: str, database: str) -> str:
    """Remove the password from a driver's message, which may quote the address or parts of it."""
    for secret in _secrets(database):
        pattern = re.escape(secret)
        if len(secret) < _MIN_SECRET_CHARS:  # replaced only as a whole word
            pattern = rf"(?<![^\W_]){pattern}(?![^\W_])"
        text = re.sub(pattern, _REDACTED, text, flags=re.IGNORECASE)
    return _redact_settings(_IN_TEXT.sub(rf"\1:{_REDACTED}@", text), _WORD)


def _secrets(database: str) -> list[str]:
    """The passwords of an address in all forms that may be quoted, longest first."""
    found: set[str] = set()
    names: set[str] = set()
    account = _IN_ADDRESS.search(database)
    if account:
        found.add(account[2])
        names.add(account[1].removeprefix("://"))
        names.update(re.split("[/:]", database[account.end() :].partition("?")[0]))
    done = 0
    for key, begin, end in _settings(database, _value_of(database)):
        value = database[begin:end].strip("'")
        if _SECRET.search(key):
            found.update((value, re.sub(r"\\(.)", r"\1", value)))
            done = max(done, end)
        elif begin >= done:  # otherwise it is a part of a password
            names.add(value)
    found |= {unquote(one) for one in found}
    found |= {quote(one, safe=safe) for one in found for safe in ("", "/")}
    # A driver that parses an address differently takes a part of a password for a host or a name.
    parts = {part for one in found for part in re.split(r"[/@:?#&=\s]+", one)}
    found |= {part for part in parts if len(part) >= _MIN_SECRET_CHARS - 1}
    # A password equal to the role's name is visible in the address anyway.
    known = names | {unquote(one) for one in names} | _ORDINARY | {""}
    return sorted(found - known, key=len, reverse=True)


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
