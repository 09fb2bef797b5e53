"""How much of what servers sent is kept here, and what of it does nobody need any more?

    remote/docs-1f2e….json    a list; its time says when a library used it last
    remote/docs-1f2e…/pdf/…   the files of its skills, as far as somebody read them
    remote/contents/9f86…     each content once, whichever server sent it

A content is needed while some list has it. Others stay for a week, since a list may have them
again and a conversation may still read them, and together they take no more than a bound. With a
server goes at once what only its own list had. Whatever is dropped can be fetched again.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from satchel.library.supplier import Served

AGE = 7 * 24 * 3600.0
"""Seconds for which a content is kept that no list has."""
SPARE = 64 << 20
"""Bytes that such contents take together, at most."""
UNUSED = 30 * 24 * 3600.0
"""Seconds after which a list is dropped that no library used."""
EVERY = 3600.0
"""Seconds between two looks for what is needless."""
_DAY = 24 * 3600.0
_UNFINISHED = 3600.0
"""Seconds after which a file that was never finished is one of a process that died."""
_CONTENT = re.compile(r"[0-9a-f]{64}")
_HALF = re.compile(r"\..+\.[0-9]+\.[0-9a-f]{8}")
"""How a file is called while it is written."""
_LISTED = re.compile(rb"sha256:([0-9a-f]{64})")
_CONTENTS = "contents"
_STAMP = "swept"
FAILED = ".failed"
"""Ends the name of the file that says when a server did not answer."""


class Kept(NamedTuple):
    """How much there is."""

    files: int = 0
    size: int = 0
    spare: int = 0
    """Bytes of contents that no list has any more."""

    def plus(self, more: Kept) -> Kept:
        """Both together."""
        return Kept(self.files + more.files, self.size + more.size, self.spare + more.spare)


def home_of(cache: str) -> str:
    """Where everything of servers is kept."""
    return os.path.join(cache, "remote")


def measure(home: str) -> Kept:
    """How much is kept, the lists aside."""
    needed = _needed(home)
    total = Kept()
    for name, size, _ in _contents(home):
        lost = needed is not None and name.encode() not in needed
        total = total.plus(Kept(1, size, size if lost else 0))
    for folder in _folders(home):
        for path in _files(folder):
            with suppress(OSError):
                total = total.plus(Kept(1, os.lstat(path).st_size))
    return total


def sweep(home: str, *, age: float = AGE, spare: int = SPARE) -> Kept:
    """Drop what no list has and what nobody uses; returns how much that was.

    Args:
        home: Where everything of servers is kept.
        age: Seconds for which a content stays that no list has.
        spare: Bytes of such contents that may stay, the youngest first.
    """
    with suppress(OSError):
        stamp = os.path.join(home, _STAMP)
        os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT, 0o600))
        os.utime(stamp)
    now = time.time()
    dropped = _drop_unused(home, now).plus(_drop_unfinished(home, now))
    needed = _needed(home)
    if needed is None:
        return dropped  # what cannot be known to be needless stays
    lost = [row for row in _contents(home) if row[0].encode() not in needed]
    left = 0
    for name, size, at in sorted(lost, key=lambda row: -row[2]):
        left += size
        if now - at < age and left <= spare:
            continue
        with suppress(OSError):
            os.unlink(os.path.join(home, _CONTENTS, name))
            dropped = dropped.plus(Kept(1, size, size))
    return dropped


def is_due(home: str) -> bool:
    """Whether nobody has looked for a while."""
    try:
        return not 0 <= time.time() - os.path.getmtime(os.path.join(home, _STAMP)) < EVERY
    except OSError:
        return True


def drop_unlisted(folder: str, served: Mapping[str, Served]) -> Kept:
    """Drop the files in a server's folder that its list has no more; returns how much that was.

    Args:
        folder: Where the files of the server's skills are.
        served: The list, whole.
    """
    dropped = Kept()
    now = time.time()
    for path in list(_files(folder)):
        skill, _, file = os.path.relpath(path, folder).replace(os.sep, "/").partition("/")
        if skill in served and file in served[skill].files:
            continue
        with suppress(OSError):
            info = os.lstat(path)
            if _is_being_written(os.path.basename(path), info, now):
                continue
            size = info.st_size
            os.unlink(path)
            dropped = dropped.plus(Kept(1, size))
    if dropped.files:
        for here, _, _ in os.walk(folder, topdown=False):
            if here != folder:
                with suppress(OSError):
                    os.rmdir(here)  # only those that are empty now
    return dropped


def note_use(kept: str) -> None:
    """Say that a library uses a list: one that nobody uses is dropped after a while."""
    with suppress(OSError):
        if time.time() - os.path.getmtime(kept) > _DAY:
            os.utime(kept)


def forget(folder: str) -> None:
    """Drop a server's folder and its list."""
    shutil.rmtree(folder, ignore_errors=True)
    for kept in (folder + ".json", folder + FAILED):
        with suppress(OSError):
            os.unlink(kept)


def forget_server(home: str, folders: Iterable[str]) -> Kept:
    """Drop what was kept of a server; returns how much of the contents that was.

    Only what its list had and no other has goes at once: somebody may read from the others.

    Args:
        home: Where everything of servers is kept.
        folders: Those of the server.
    """
    had: set[bytes] = set()
    for folder in folders:
        with suppress(OSError), open(folder + ".json", "rb") as stream:
            had.update(_LISTED.findall(stream.read()))
        forget(folder)
    dropped = Kept()
    needed = _needed(home)
    for name, size, _ in _contents(home) if needed is not None else ():
        if name.encode() in had and name.encode() not in (needed or ()):
            with suppress(OSError):
                os.unlink(os.path.join(home, _CONTENTS, name))
                dropped = dropped.plus(Kept(1, size, size))
    return dropped.plus(sweep(home))


def _is_being_written(name: str, info: os.stat_result, now: float) -> bool:
    """Whether somebody may be about to finish a file."""
    return _HALF.fullmatch(name) is not None and now - info.st_mtime < _UNFINISHED


def _drop_unfinished(home: str, now: float) -> Kept:
    """Files that a process left half written when it died."""
    dropped = Kept()
    for folder in (home, os.path.join(home, _CONTENTS)):
        for name in _names(folder):
            if not _HALF.fullmatch(name):
                continue
            path = os.path.join(folder, name)
            with suppress(OSError):
                info = os.lstat(path)
                if not _is_being_written(name, info, now):
                    os.unlink(path)
                    dropped = dropped.plus(Kept(1, info.st_size))
    return dropped


def _drop_unused(home: str, now: float) -> Kept:
    dropped = Kept()
    for name in _names(home):
        folder = os.path.join(home, name.removesuffix(".json"))
        try:
            unused = name.endswith(".json") and now - os.path.getmtime(folder + ".json") > UNUSED
        except OSError:
            continue
        if unused:
            for path in _files(folder):
                with suppress(OSError):
                    dropped = dropped.plus(Kept(1, os.lstat(path).st_size))
            forget(folder)
    return dropped


def _needed(home: str) -> set[bytes] | None:
    """The digests that some list has; None when that cannot be known."""
    needed: set[bytes] = set()
    try:
        for name in _names(home):
            if name.endswith(".json"):
                with open(os.path.join(home, name), "rb") as stream:
                    needed.update(_LISTED.findall(stream.read()))
    except OSError:
        return None
    return needed


def _contents(home: str) -> list[tuple[str, int, float]]:
    """Digest, size and time of each content."""
    found: list[tuple[str, int, float]] = []
    for name in _names(os.path.join(home, _CONTENTS)):
        if _CONTENT.fullmatch(name):
            with suppress(OSError):
                info = os.lstat(os.path.join(home, _CONTENTS, name))
                found.append((name, info.st_size, info.st_mtime))
    return found


def _folders(home: str) -> list[str]:
    paths = [os.path.join(home, name) for name in _names(home) if name != _CONTENTS]
    return [path for path in paths if os.path.isdir(path)]


def _files(folder: str) -> Iterator[str]:
    for here, _, names in os.walk(folder):
        yield from (os.path.join(here, name) for name in names)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
