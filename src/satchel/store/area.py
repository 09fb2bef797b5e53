"""The work area `.satchel` has one owner.

`.satchel/owner` holds a mark that only this user, at this path, can make (`library/marks.py`). An
area without it came with a clone or a copy, belongs to another user, or the project was moved. It
is never believed: readers see an empty history, and every change is refused until it is removed.

A file that a pull put into our own area has no seal: see `journal.py`. Without a state folder to
keep the key in, the key lives as long as the process. Without `marks` in the scope nothing is
checked; for tests of single parts.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel._fs import is_odd, make_folders, read_plain, write_atomic
from satchel._language import say
from satchel.errors import AccessDenied
from satchel.library.marks import mark_of, own_key, read_key
from satchel.store.scope import PARTS, check_places, check_scope

if TYPE_CHECKING:
    from satchel.store.scope import Scope

OWNER = "owner"
_MAX_FILE = 4096
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


def claim(scope: Scope) -> list[str]:
    """Make sure that the work area is ours; returns notes about it.

    Raises:
        AccessDenied: it belongs to another owner.
        OSError: the disk says no.
    """
    if not scope.marks:
        return []
    key, why = own_key(scope.marks)
    wanted = mark_of(key, scope.work)
    if wanted not in _owners(scope):
        # Another process of ours may have written its mark meanwhile.
        if not _is_blank(scope) and wanted not in _owners(scope):
            raise AccessDenied(
                say("`{path}` was not made here: it came with the project, belongs to another "
                    "user, or the project was moved; nothing was changed", path=scope.work),
                say("Remove it, then run the command again. The skills are not in it, but what "
                    "could be undone is"),
            )  # fmt: skip
        make_folders(scope.work)
        write_atomic(scope.part(OWNER), f"{wanted}\n".encode())
    if not why:
        return []
    return [
        say(
            "`{path}` cannot be written ({reason}), so this change cannot be undone later, and the "
            "next one is refused until `.satchel` is removed",
            path=scope.marks,
            reason=why,
        )
    ]


def _owners(scope: Scope) -> list[str]:
    """The marks in a work area; 0.1 wrote several."""
    try:
        data = read_plain(scope.part(OWNER), _MAX_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        if is_odd(exc):
            return []
        raise
    return data.decode("ascii", "replace").split("\n")


def _is_blank(scope: Scope) -> bool:
    """Whether there is no work area, or one that was begun and holds nothing."""
    try:
        return all(_BLANK.fullmatch(name) for name in os.listdir(scope.work))
    except FileNotFoundError:
        return True


def prepare_scope(scope: Scope) -> list[str]:
    """Make the work area, at the first use; returns notes about it.

    Raises:
        AccessDenied: something in the scope leads elsewhere, or it belongs to another owner.
        OSError: it cannot be made.
    """
    check_places(scope)
    said = claim(scope)
    check_scope(scope)
    ignore = scope.part(".gitignore")
    if not (os.path.isfile(ignore) and all(os.path.isdir(scope.part(name)) for name in PARTS)):
        for name in PARTS:
            make_folders(scope.part(name))
        if not os.path.isfile(ignore):
            write_atomic(ignore, b"*\n")
    return said
