"""Which names may a skill's files have?

One answer for archives, folders and repositories, so that what installs on one machine installs
on all: the strictest of Linux, macOS and Windows decides. `check_path` looks at one path, `Names`
at all of them together.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from satchel.skill.tree import IGNORED
from satchel.store.archive.rules import BOUNDS, refuse

if TYPE_CHECKING:
    from satchel.store.archive.rules import Bounds

MAX_PART = 255
MAX_PATH = 1024
MAX_DEPTH = 64

# Characters that hide, or that change how the rest is read; category Cf is looked up besides.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2028\u2029\u2800\u3164\ufdd0-\ufdef"
    "\uffa0\ufff0-\uffff\ufe00-\ufe0e\U000e0000-\U000e0fff\ud800-\udfff]"
)
_EMOJI_STYLE = "\ufe0f"
"""Asks for the coloured form of a sign: common in names, and no difference between two of them."""
_WINDOWS = re.compile(r"""[<>"|?*]""")
_RESERVED = re.compile(
    r"(?:^|/)((?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$|clock\$)[ ]*(?:\.[^/]*)?"
    r"|git~[0-9]+)(?:/|\Z)",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"(?:[A-Za-z0-9_.\- ()+,@=]*[A-Za-z0-9_\-()+,@=](?:/(?!\Z)|\Z))+\Z")
"""Parts of ordinary characters, none empty or with a dot or space at its end: almost every path."""
_ODD_PART = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)")
_ODD_END = re.compile(r"[. ](?:/|\Z)")
_IGNORED = re.compile(
    rf"(?:^|/)(?:{'|'.join(map(re.escape, sorted(IGNORED)))})(?=/|\Z)", re.IGNORECASE
)


def check_path(path: str) -> None:
    """Refuse a path that is not a plain relative name everywhere.

    Raises:
        Unsafe: with the rule it breaks.
    """
    if not _PLAIN.match(path):
        _check_characters(path)
        _check_parts(path)
    size = len(path) if path.isascii() else len(path.encode())
    if size > MAX_PATH:
        raise refuse("path-too-long", path)
    if path.count("/") > MAX_DEPTH:
        raise refuse("path-too-deep", path)
    if size > MAX_PART and max(len(part.encode()) for part in path.split("/")) > MAX_PART:
        raise refuse("path-too-long", path)
    if found := _RESERVED.search(path):
        raise refuse("windows-name", path, found.group(1))


def _check_parts(path: str) -> None:
    if path.startswith("/"):
        raise refuse("path-absolute", path)
    if _ODD_PART.search(path):
        raise refuse("path-escapes" if ".." in path.split("/") else "path-parts", path)
    if _ODD_END.search(path):
        raise refuse("windows-name", path, "a name ends in a dot or a space")


def _check_characters(path: str) -> None:
    if not path:
        raise refuse("path-parts", found="an empty name")
    if "\\" in path:
        raise refuse("path-backslash", path)
    found = _INVISIBLE.search(path)
    if not found and not path.isascii():
        hidden = (mark for mark in path if unicodedata.category(mark) == "Cf")
        mark = next(hidden, "")
    else:
        mark = found.group() if found else ""
    if "\ud800" <= mark <= "\udfff":
        raise refuse("path-encoding", path)  # bytes of a file system that are no text
    if mark:
        raise refuse("path-characters", path, f"U+{ord(mark):04X}")
    if ":" in path:
        raise refuse("path-colon", path)
    if found := _WINDOWS.search(path):
        raise refuse("windows-name", path, found.group())


def decode_path(data: bytes) -> str:
    """A path from its bytes.

    Raises:
        Unsafe: they are not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise refuse("path-encoding", data.decode("ascii", "backslashreplace")) from exc


def ignored_part(path: str) -> str:
    """The path up to something that is never part of a skill, such as `__MACOSX`; else empty."""
    found = _IGNORED.search(path)
    return path[: found.end()] if found else ""


def fold(path: str) -> str:
    """What two paths have in common that some file system takes for one."""
    if path.isascii():
        return path.lower()
    plain = unicodedata.normalize("NFD", path.replace(_EMOJI_STYLE, "")).casefold()
    return unicodedata.normalize("NFC", plain)


class Names:
    """The names of one tree so far: none twice, none that another system takes for another."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self._bounds = bounds
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._listed: set[str] = set()
        self._size = 0
        self._last = ""

    def add(self, path: str, *, folder: bool = False) -> None:
        """Take one more path in, which `check_path` has seen.

        Raises:
            Unsafe: it breaks a rule together with another.
        """
        key = fold(path)
        if key == path:
            key = path  # one object, not two: there may be very many
        if folder:
            if path in self._listed:
                raise refuse("duplicate-name", path)
            self._listed.add(path)
            self._add_folder(path, key)
        else:
            other = self._files.get(key)
            if other is not None:
                raise refuse("duplicate-name" if other == path else "case-conflict", path, other)
            if key in self._folders:
                self._not_in(self._folders, path, key)
            self._files[key] = path
            self._count(path)
        last = path.rpartition("/")[0]
        if last == self._last:
            return  # archives list a folder's files after each other
        self._last = last
        while "/" in path:
            path, key = path.rpartition("/")[0], key.rpartition("/")[0]
            if not self._add_folder(path, key):
                break

    def _add_folder(self, path: str, key: str) -> bool:
        """False when it was known already, and so were the folders above it."""
        other = self._folders.get(key)
        if other is not None:
            if other != path:
                raise refuse("case-conflict", path, other)
            return False
        self._not_in(self._files, path, key)
        self._folders[key] = path
        self._count(path)
        return True

    def _not_in(self, table: dict[str, str], path: str, key: str) -> None:
        other = table.get(key)
        if other is not None:
            raise refuse("file-and-folder" if other == path else "case-conflict", path, other)

    def _count(self, path: str) -> None:
        self._size += len(path)
        if self._size > self._bounds.names:
            raise refuse("names-too-large", path)
        if len(self._files) + len(self._folders) > 2 * self._bounds.entries:
            raise refuse("too-many-files", path)
