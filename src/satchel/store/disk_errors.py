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
    if isinstance(exc, TimeoutError):
        return Refused(
            say("`{path}` is held by another process; nothing was changed", path=path),
            say("Wait until the other command has ended, then run this one again"),
        )
    return Refused(
        say("`{path}`: {reason}; nothing was changed", path=path, reason=reason_of(exc)),
        hint_for(exc),
    )


def path_of_error(exc: OSError, fallback: str = "") -> str:
    """The path of an OSError."""
    found = exc.filename if exc.filename is not None else fallback
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)


def reason_of(exc: OSError) -> str:
    """The text of an OSError."""
    return exc.strerror or str(exc)


def hint_for(exc: OSError) -> str:
    """What the user can do about an OSError."""
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return say("Make room on the disk, then run the command again")
    if exc.errno in (errno.EACCES, errno.EPERM):
        return say("Check the permissions of the folder, then run the command again")
    if exc.errno == errno.EROFS:
        return say("The file system is read-only: make it writable, then run the command again")
    if exc.errno == errno.EXDEV:
        return say(
            "The skills and `.satchel` must be on one file system: replace the link or mount"
        )
    if exc.errno == errno.EIO:
        return say("The disk reports an error: look after it before you run the command again")
    return say("Run the command again")


@contextmanager
def disk_errors_as_refusal(fallback: str) -> Generator[None]:
    """Convert an OSError into a refusal with a hint. For code that has not changed anything yet."""
    try:
        yield
    except OSError as exc:
        raise to_refusal(exc, fallback) from exc


def changed_meanwhile(name: str) -> Conflict:
    """The error for a skill, or its lockfile entry, that is not what the plan was made on."""
    return Conflict(
        say("`{name}` was changed meanwhile; nothing was changed by this command", name=name),
        say("Look at it, then run the command again"),
    )
