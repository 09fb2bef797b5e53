"""What did PostgreSQL say, and what is to be done about it? A server that refuses does answer."""

from __future__ import annotations

import re
import sqlite3
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from satchel._language import say
from satchel.errors import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

# --- write-ahead log ----------------------------------------------------------------------
# With it who reads does not stop who writes. To switch to it takes a lock that SQLite does not
# wait for when another process is writing, whatever its time limit says: of two workers that begin
# together one would fail.

WAIT = 30.0
"""Seconds to wait for whoever writes."""
_PAUSE = 0.02
_KIND = 0xFF
"""The part of SQLite's error codes that says what it is about."""


def write_ahead(connection: sqlite3.Connection, seconds: float = WAIT) -> None:
    """Switch the file of a connection to a write-ahead log, once nobody writes.

    Raises:
        sqlite3.OperationalError: somebody writes all the time, or it cannot be done.
    """
    give_up = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as exc:
            busy = exc.sqlite_errorcode & _KIND in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > give_up:
                raise
            time.sleep(_PAUSE)
        else:
            return


_SAID = re.compile(r"FATAL:\s+(.+)")
_LATER = (
    "the database system is",  # starting up, shutting down, in recovery mode
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "terminating connection",
)
"""What a server says that is to be asked again."""


class Refusal(NamedTuple):
    """A word of PostgreSQL's, and what a person can do about it."""

    why: str
    hint: str
    passes: bool = False
    """Whether it may answer otherwise in a moment."""


def refusal(text: str) -> Refusal | None:
    """What a server said that refused; None when none answered.

    Args:
        text: Of the error that the driver raised.
    """
    said = _SAID.search(text)
    why = (said[1] if said else text).strip()
    if any(words in why for words in _LATER):
        return Refusal(why, say("Wait for it, or look at the server's log"), passes=True)
    hint = _hint(why)
    if hint is None and said is None:
        return None
    return Refusal(_first_line(why), hint or say("Look at the server's log"))


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


def _first_line(text: str) -> str:
    return text.splitlines()[0].strip() if text else ""


def failed(database: str, text: str) -> ServerFailed:
    """The error to raise when a database cannot be used; no password stands in it.

    Args:
        database: Its address.
        text: Of the error that the driver raised.
    """
    shown = without_password(database)
    found = refusal(text)
    if found is None:
        return ServerFailed(
            say("The database `{database}` does not answer: {why}", database=shown,
                why=_told(text.strip(), database)),
            say("Start it, or correct the setting `database`: its role, password or name"),
        )  # fmt: skip
    return ServerFailed(
        say("PostgreSQL refuses `{database}`: {why}", database=shown,
            why=_told(found.why, database)),
        _told(found.hint, database),
    )  # fmt: skip


_HIDDEN = "***"
_IN_ADDRESS = re.compile(r"(://[^:]*):(.*)@", re.DOTALL)
"""To the last `@`: a password may have one itself, and `/` and `?` too."""
_IN_TEXT = re.compile(r"(://[^:\s]*):\S*@")
_KEY = re.compile(r"([^\s?&=]+)\s*=\s*")
_SECRET = re.compile("passw|pwd|secret|client_key|token", re.IGNORECASE)
_WORD = re.compile(r"'(?:\\.|[^'\\])*'?|(?:\\.|\S)*", re.DOTALL)
_PARAMETER = re.compile("[^&]*")
_ORDINARY = frozenset(
    ("authentication", "connection", "database", "failed", "host", "password", "port", "postgres",
     "role", "server", "user")
)  # fmt: skip
"""Words that a server says itself: they give nobody's password away."""
_SHORT = 4
"""Characters that may be a part of any word."""


def without_password(database: str) -> str:
    """An address that may be shown."""
    hidden = _IN_ADDRESS.sub(rf"\1:{_HIDDEN}@", database)
    return _settings_hidden(hidden, _value_of(database))


def _value_of(database: str) -> re.Pattern[str]:
    """How far a setting goes: one of a URL, or one of many with spaces between them."""
    return _PARAMETER if re.match(r"\s*[\w+]+://", database) else _WORD


def _settings(text: str, value: re.Pattern[str]) -> Iterator[tuple[str, int, int]]:
    """Each setting in a text: its key, and where its value begins and ends."""
    for key in _KEY.finditer(text):
        found = value.match(text, key.end())
        yield unquote(key[1]), key.end(), found.end() if found else key.end()


def _settings_hidden(text: str, value: re.Pattern[str]) -> str:
    parts: list[str] = []
    done = 0
    for key, begin, end in _settings(text, value):
        if begin >= done and _SECRET.search(key):
            parts += (text[done:begin], _HIDDEN)
            done = end
    return "".join((*parts, text[done:]))


def _told(text: str, database: str) -> str:
    """What the driver said, without the password: it may quote the address, or parts of it."""
    for secret in _secrets(database):
        pattern = re.escape(secret)
        if len(secret) < _SHORT:  # hidden where it stands alone
            pattern = rf"(?<![^\W_]){pattern}(?![^\W_])"
        text = re.sub(pattern, _HIDDEN, text, flags=re.IGNORECASE)
    return _settings_hidden(_IN_TEXT.sub(rf"\1:{_HIDDEN}@", text), _WORD)


def _secrets(database: str) -> list[str]:
    """The passwords of an address in all forms that may be quoted, the longest first."""
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
        elif begin >= done:  # else it is a part of a password
            names.add(value)
    found |= {unquote(one) for one in found}
    found |= {quote(one, safe=safe) for one in found for safe in ("", "/")}
    # A driver that reads an address otherwise takes a part of a password for a host or a name.
    parts = {part for one in found for part in re.split(r"[/@:?#&=\s]+", one)}
    found |= {part for part in parts if len(part) >= _SHORT - 1}
    # Where the password is the name of the role, the address shows that name anyway.
    known = names | {unquote(one) for one in names} | _ORDINARY | {""}
    return sorted(found - known, key=len, reverse=True)


def for_driver(database: str) -> str:
    """An address as libpq must be given it to read what SQLAlchemy reads, who serves the engine.

    To libpq a `/` or `?` ends the password, and a `%` needs two digits after it.
    """
    found = _ACCOUNT.match(database)
    if found is None:
        return database
    user, password = (quote(unquote(one or ""), safe="") for one in found.group(1, 2))
    secret = "" if found[2] is None else f":{password}"
    return f"postgresql://{user}{secret}@{database[found.end() :]}"


_ACCOUNT = re.compile(r"postgres(?:ql)?(?:\+\w+)?://([^:/]*)(?::([^@]*))?@")
