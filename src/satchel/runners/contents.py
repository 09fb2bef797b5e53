"""What is in a skill's folder: has anything changed, and what exactly is there?

Stamps answer the first question without reading a file, so they are asked at every call. Content
answers the second, and is asked when stamps differ or are too young to be believed.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import RACY_NS, open_beneath, read_small
from satchel._language import say
from satchel.errors import AccessDenied, BuildFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

_IGNORED = frozenset((".git", "__pycache__", ".DS_Store"))
_CLOSED = frozenset(("node_modules",))
"""Folders of which only the outside is looked at: they hold thousands of files."""
LARGEST = 64 * 1024 * 1024
"""Bytes of a file that is compiled in."""


class Stamps(NamedTuple):
    """What can be known of a folder without reading its files."""

    marks: tuple[tuple[str, int, int, int, int, int], ...]
    young: bool
    """Something changed so recently that it may change again unseen."""


def take_stamps(folder: str) -> Stamps:
    """The stamps of everything below a folder. Links are stamped, not followed."""
    marks: list[tuple[str, int, int, int, int, int]] = []
    newest = 0
    todo = [folder]
    while todo:
        here = todo.pop()
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.name in _IGNORED:
                    continue
                info = entry.stat(follow_symlinks=False)
                changed = info.st_ctime_ns
                newest = max(newest, changed)
                marks.append(
                    (entry.path, info.st_mtime_ns, changed, info.st_size, info.st_ino, info.st_mode)
                )
                if entry.is_dir(follow_symlinks=False) and entry.name not in _CLOSED:
                    todo.append(entry.path)
    return Stamps(tuple(marks), time.time_ns() - newest < RACY_NS)


def stamp(path: str) -> tuple[int, int, int, int]:
    """The stamp of one file, links followed; zeros when it is not there."""
    try:
        info = os.stat(path)
    except OSError:
        return (0, 0, 0, 0)
    return (info.st_mtime_ns, info.st_size, info.st_ino, info.st_dev)


def list_files(folder: str) -> list[str]:
    """The regular files below a folder, relative, with `/`, sorted; `node_modules` is left out."""
    found: list[str] = []
    todo = [""]
    while todo:
        here = todo.pop()
        with os.scandir(os.path.join(folder, here)) as entries:
            for entry in entries:
                if entry.name in _IGNORED or entry.name in _CLOSED:
                    continue
                inside = f"{here}/{entry.name}" if here else entry.name
                if entry.is_dir(follow_symlinks=False):
                    todo.append(inside)
                elif entry.is_file(follow_symlinks=False):
                    found.append(inside)
    return sorted(found)


def read_inside(
    folder: str, path: str, limit: int = LARGEST, only: int | None = None
) -> bytes | None:
    """A file of the skill, or None when there is none.

    Args:
        folder: The skill's.
        path: Relative to it.
        limit: Bytes that it may have.
        only: Read so many bytes from its beginning, however long it is.

    Raises:
        BuildFailed: it leads outside the folder, is no file, or is too large.
    """
    try:
        descriptor = open_beneath(folder, path)
    except FileNotFoundError:
        return None
    except (AccessDenied, OSError) as exc:
        raise _unreadable(path, exc) from exc
    try:
        if only is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.read(descriptor, only)
        return read_small(descriptor, limit)
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    finally:
        os.close(descriptor)


def _unreadable(path: str, exc: Exception) -> BuildFailed:
    reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return BuildFailed(
        say("`{path}` cannot be read: {reason}", path=path, reason=reason.split("\n")[0]),
        say("Every file of a skill must be a plain file inside its folder"),
    )


def digest_files(folder: str, paths: Iterable[str]) -> str:
    """One digest over names and contents."""
    import hashlib

    total = hashlib.sha256()
    for path in paths:
        data = read_inside(folder, path) or b""
        total.update(f"{path}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
        total.update(data)
    return total.hexdigest()


def digest(*parts: object) -> str:
    """A short name for what something is made from."""
    import hashlib

    text = "\0".join(str(part) for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]
