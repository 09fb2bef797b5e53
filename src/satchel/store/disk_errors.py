"""Converts OSError into Refused errors with a hint."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from satchel.errors import Conflict, Refused
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Generator


def to_refusal(exc: OSError, fallback: str = "") -> Refused:
    """The refusal for an OSError that occurred before any change, or after a complete rollback."""
    path = path_of_error(exc, fallback)
    return Refused(
        say("`{path}`: {reason}; nothing was changed", path=path, reason=reason_of(exc)),
        _hint_of(exc),
    )


def _hint_of(exc: OSError) -> str:
    if exc.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return say("Make the folder writable, or work on a copy of the project")
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return say("Free some space on the disk")
    return say("Try again")


def path_of_error(exc: OSError, fallback: str = "") -> str:
    """The path of an OSError."""
    path = exc.filename if exc.filename is not None else fallback
    return path.decode("utf-8", "replace") if isinstance(path, bytes) else str(path)


def reason_of(exc: OSError) -> str:
    """The text of an OSError."""
    if isinstance(exc, TimeoutError):
        return say("another process holds it")
    return exc.strerror or str(exc)


@contextmanager
def disk_errors_as_refusal(fallback: str) -> Generator[None]:
    """Convert an OSError into a refusal with a hint. For code that has not changed anything yet."""
    try:
        yield
    except OSError as exc:
        raise to_refusal(exc, fallback) from exc


def changed_meanwhile(name: str) -> Conflict:
    """The error for a skill, or its lockfile entry, that is not what the plan was made on."""
    return Conflict(say("`{path}` changed meanwhile", path=name), say("Try again"))
