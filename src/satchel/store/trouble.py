"""What is said when the disk says no?

An error of the system becomes a `Refused` with the path, the reason and a next step. Whether the
old state holds is said by whoever knows it.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import Conflict, Refused

if TYPE_CHECKING:
    from collections.abc import Generator


def refusal(exc: OSError, fallback: str = "") -> Refused:
    """An error of the system before anything was changed, or after everything was put back."""
    path = named(exc, fallback)
    if isinstance(exc, TimeoutError):
        return Refused(
            say("`{path}` is held by another process; nothing was changed", path=path),
            say("Wait until the other command has ended, then run this one again"),
        )
    return Refused(
        say("`{path}`: {reason}; nothing was changed", path=path, reason=reason(exc)), hint(exc)
    )


def named(exc: OSError, fallback: str = "") -> str:
    """The path that an error is about."""
    found = exc.filename if exc.filename is not None else fallback
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)


def reason(exc: OSError) -> str:
    """What the system says."""
    return exc.strerror or str(exc)


def hint(exc: OSError) -> str:
    """What to do about it."""
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
def unchanged(fallback: str) -> Generator[None]:
    """Errors of the system in here become refusals that say that nothing was changed."""
    try:
        yield
    except OSError as exc:
        raise refusal(exc, fallback) from exc


def meanwhile(name: str) -> Conflict:
    """A skill, or its entry in the lockfile, is not what the plan saw."""
    return Conflict(
        say("`{name}` was changed meanwhile; nothing was changed by this command", name=name),
        say("Look at it, then run the command again"),
    )
