"""Whose is the work area?

`.satchel/owner` holds a mark that only this user, at this path, can make (`library/marks.py`). An
area without it was made by somebody else: it came with a clone, or in a copy, or the project was
moved. It is never read. It is renamed aside as a whole, `.satchel.foreign-…`, kept and told, and a
new one is made; what it could have undone is in there, for people.

Some cases:
    a file that a pull put into our own area   has no seal: see `journal.py` and `link_book.py`
    two users, or a host and its container     the marks of the area that was set aside are taken
                                               over, so that both go on with the new one instead of
                                               setting each other's aside; each believes, undoes and
                                               finishes only what is sealed with the own key
    no state folder to keep the key in         the key lives as long as the process: the next
                                               command sets this area aside again, and says so
    no `marks` in the scope                    nothing is checked; for tests of single parts
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import nullcontext
from typing import TYPE_CHECKING

from satchel._fs import is_odd, locked, make_folders, read_plain, sync_folder, write_atomic
from satchel._language import say
from satchel.library.marks import mark_of, own_key, read_key
from satchel.store.scope import PARTS, TIMEOUT, check_places, check_scope

if TYPE_CHECKING:
    from satchel.store.scope import Scope

OWNER = "owner"
_MARK = re.compile(r"[0-9a-f]{32}")
_MAX_FILE = 4096
_MOST = 8
"""Users who share one area."""
_BLANK = re.compile(r"lock|\.gitignore|\.(?:\.gitignore|owner)\.[0-9]+\.[0-9a-f]{8}")
"""What says nothing, so that it may be there before the owner's mark is."""


def is_ours(scope: Scope) -> bool:
    """Whether what is in the work area may be believed; for readers.

    Raises:
        OSError: the disk does not say.
    """
    if not scope.marks:
        return True
    key = read_key(scope.marks)
    return bool(key) and mark_of(key, scope.work) in _owners(scope)


def claim(scope: Scope, timeout: float) -> list[str]:
    """Make sure that the work area is ours; returns what had to be done for it.

    Raises:
        OSError: the disk says no.
    """
    if not scope.marks:
        return []
    key, why = own_key(scope.marks)
    said: list[str] = []
    if why:
        said.append(
            say(
                "`{path}` cannot be written ({reason}), so nobody will know that this change was "
                "made here: it cannot be undone later",
                path=scope.marks,
                reason=why,
            )
        )
    wanted = mark_of(key, scope.work)
    owners = _owners(scope)
    if wanted in owners:
        return said
    if not _is_blank(scope):
        aside, owners = _set_aside(scope, wanted, timeout)
        if not aside:
            return said
        said.append(
            say(
                "`.satchel` was not made here; it was set aside as `{path}`, with all that it "
                "could undo or finish",
                path=aside,
            )
        )
    make_folders(scope.work)
    lines = [wanted, *owners][:_MOST]
    write_atomic(scope.part(OWNER), "".join(f"{line}\n" for line in lines).encode())
    return said


def _owners(scope: Scope) -> list[str]:
    """The marks in a work area."""
    try:
        data = read_plain(scope.part(OWNER), _MAX_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        if is_odd(exc):
            return []
        raise
    lines = data.decode("ascii", "replace").split("\n")
    return [line for line in lines if _MARK.fullmatch(line)]


def _is_blank(scope: Scope) -> bool:
    """Whether there is no work area, or one that was begun and holds nothing."""
    try:
        return all(_BLANK.fullmatch(name) for name in os.listdir(scope.work))
    except FileNotFoundError:
        return True


def _set_aside(scope: Scope, wanted: str, timeout: float) -> tuple[str, list[str]]:
    """Rename somebody else's work area; where it is now, and whose marks were in it."""
    lock = scope.part("lock")
    try:
        plain = stat.S_ISREG(os.lstat(lock).st_mode)
    except FileNotFoundError:
        plain = True
    # Another user may be at work in it this moment: wait for the end of that.
    with locked(lock, timeout=timeout, private=False) if plain else nullcontext():
        owners = _owners(scope)
        if wanted in owners or _is_blank(scope):
            return "", owners
        aside = f"{scope.work}.foreign-{os.urandom(4).hex()}"
        os.rename(scope.work, aside)
    sync_folder(scope.root)
    return aside, owners


def prepare_scope(scope: Scope, *, timeout: float = TIMEOUT) -> list[str]:
    """Make the work area, at the first use; returns what there is to say about the old one.

    Raises:
        AccessDenied: something in the scope leads elsewhere.
        OSError: it cannot be made.
    """
    check_places(scope)
    said = claim(scope, timeout)
    check_scope(scope)
    ignore = scope.part(".gitignore")
    if not (os.path.isfile(ignore) and all(os.path.isdir(scope.part(name)) for name in PARTS)):
        for name in PARTS:
            make_folders(scope.part(name))
        if not os.path.isfile(ignore):
            write_atomic(ignore, b"*\n")
    return said
