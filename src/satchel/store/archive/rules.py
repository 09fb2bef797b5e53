"""The rules of the strict reader, how a broken one is said, and a tree of files that keeps them.

One table for archives, folders and repositories: a rule's name is stable, its sentence is what
people read and what the reference page lists. A reader never mends what breaks a rule.
"""

from __future__ import annotations

import os
import re
import unicodedata
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from satchel._language import say
from satchel.errors import NotFound, Unsafe
from satchel.skill.tree import IGNORED, File

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RULES: dict[str, str] = {
    # Names, wherever they come from.
    "path-absolute": "a path must be relative",
    "path-escapes": "a path must not contain `..`",
    "path-parts": "a path must not have empty parts or `.` as a part",
    "path-backslash": "a path must be written with `/`, not with a backslash",
    "path-colon": "a name must not contain a colon",
    "path-characters": "a name must not contain control, invisible or text-reversing characters",
    "path-encoding": "a name must be valid UTF-8",
    "path-too-long": "a name has at most 255 bytes, a path at most 1,024",
    "path-too-deep": "folders are nested at most 64 deep",
    "windows-name": "a name must be usable on Windows too",
    "duplicate-name": "a name must occur only once",
    "case-conflict": "two names must not differ only in case or in how an accent is written",
    "file-and-folder": "a name must not be both a file and a folder",
    # What things are.
    "link": "an archive must not contain links",
    "link-escapes": "a link must lead to a file of the same skill",
    "link-loop": "a link must not lead back to itself",
    "link-broken": "a link must lead to something that is there",
    "special-file": "only regular files and folders are read",
    "submodule": "a skill must not contain a submodule",
    "type-differs": "a name and its attributes must agree on what is a file and what is a folder",
    # How much there is.
    "too-many-files": "there must not be more files than the limit",
    "too-large": "the content must not be larger than the limit",
    "names-too-large": "all names together must not be larger than the limit",
    "ratio": "content must not be more than 100 times as large as it is packed",
    "memory": "unpacking must not need more memory than the limit",
    # Whether an archive says the same everywhere.
    "not-an-archive": "it must be a zip or a tar archive",
    "unsupported-format": "only zip, tar, tar.gz, tar.bz2 and tar.xz are read",
    "truncated": "the archive must be complete",
    "trailing-data": "nothing may follow the end of the archive",
    "hidden-data": "nothing may lie before, between or under the entries",
    "overlap": "entries must not share bytes",
    "damaged": "the content must match its checksum and be packed correctly",
    "size-differs": "the content must be as large as declared",
    "header-differs": "the table of contents and the entry itself must say the same",
    "encrypted": "nothing may be encrypted",
    "method": "zip entries are stored or deflated, nothing else",
    "multi-part": "an archive must be in one part",
    "zip-end": "a zip must have one clear end record",
    "zip-count": "a zip must have as many entries as it declares",
    "zip-encoding": "a zip must mark names beyond ASCII as UTF-8",
    "zip-extra": "additional fields of a zip must be well formed",
    "zip-flags": "a zip must use known features only",
    "tar-header": "every header of a tar must be well formed and match its checksum",
    "tar-order": "an extended header of a tar must belong to exactly one entry",
    "tar-pax": "extended headers of a tar must be well formed and say each thing once",
    "tar-type": "a tar must contain only known kinds of entries",
    "sparse-file": "files with holes are not read",
    # Repositories.
    "git-address": "the address of a repository must be a plain one",
    "git-ref": "a branch, tag or commit must have a plain name",
    "git-objects": "the objects of a repository must pass git's own checks",
    "changed-while-read": "files must not change while they are read",
}
"""Rule -> what it asks for, in one sentence."""

HINT = "Ask whoever made it for a clean copy, or unpack it yourself and look"
HINTS: dict[str, str] = {
    "encrypted": "Do not unpack it: encryption is how malicious skills avoid being looked at",
    "unsupported-format": "Unpack it and pack it again as `.zip` or `.tar.gz`",
    "not-an-archive": "Give a folder, a `.zip`, a `.tar.gz` or the address of a git repository",
    "zip-encoding": "Pack it again as `.tar.gz`",
    "link": "Pack it again with the files themselves in place of links",
    "link-escapes": "Put the file itself in place of the link",
    "link-loop": "Put the file itself in place of the link",
    "link-broken": "Remove the link, or put the file itself in its place",
    "submodule": "Import the submodule's own repository, or copy its files into the skill",
    "too-many-files": "Remove what the skill does not need",
    "too-large": "Remove what the skill does not need",
    "truncated": "Download it again",
    "damaged": "Download it again",
    "case-conflict": "Rename one of the two: on many systems they are the same file",
    "windows-name": "Rename it, so that everybody can install the skill",
    "git-address": "Use `https://…`, `ssh://…`, `git@host:path` or a path on this machine",
    "git-ref": "Give a branch, a tag or a whole commit id",
    "changed-while-read": "Wait until nobody writes to it, then try again",
}
_SHOWN = 120


class Bounds(NamedTuple):
    """How large an archive, or any other source with many skills in it, may be."""

    entries: int = 50_000
    """Enough for ten thousand ordinary skills, and looked through in a second."""
    size: int = 4 << 30
    """Bytes of all files together, unpacked."""
    names: int = 16 << 20
    """Bytes of all paths together, the folders they imply included."""
    ratio: int = 100
    """Unpacked bytes for one packed byte."""
    file_floor: int = 1 << 20
    """A file up to this size may be packed as tightly as it likes."""
    total_floor: int = 8 << 20
    """The same for everything together."""
    memory: int = 72 << 20
    """What one decompressor may ask for; `xz -9` needs 65 MiB."""


BOUNDS = Bounds()
"""For archives."""
WIDE = Bounds(entries=100_000)
"""For folders and repositories: there skills often lie beside much else."""


def refuse(rule: str, path: str = "", found: str = "") -> Unsafe:
    """The error for a broken rule.

    Args:
        rule: A key of `RULES`.
        path: What broke it: a name inside the source, or the source's own.
        found: What was there instead, when that helps.
    """
    why = say(RULES[rule])
    hint = say(HINTS.get(rule, HINT))
    name = shown(path)
    if name and found:
        text = say("`{path}` is refused: {why} ({found})", path=name, why=why, found=shown(found))
    elif name:
        text = say("`{path}` is refused: {why}", path=name, why=why)
    elif found:
        text = say("The source is refused: {why} ({found})", why=why, found=shown(found))
    else:
        text = say("The source is refused: {why}", why=why)
    return Unsafe(rule, text, hint)


def shown(text: str) -> str:
    """A name as it may be shown on a terminal: one short line without tricks."""
    short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    if short.isascii() and short.isprintable() and "`" not in short:
        return short
    return "".join(
        mark if mark.isprintable() and mark != "`" else f"\\u{ord(mark):04x}" for mark in short
    )


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


_HAS_PREAD = hasattr(os, "pread")


def read_at(descriptor: int, size: int, at: int) -> bytes:
    """Up to `size` bytes from the position `at`."""
    if _HAS_PREAD:
        return os.pread(descriptor, size, at)
    os.lseek(descriptor, at, os.SEEK_SET)  # Windows: one reader at a time
    return os.read(descriptor, size)


def _key(file: File) -> bytes:
    return os.fsencode(file.path)


class Listing:
    """A base for trees that know all their files from the start."""

    def __init__(self, files: Iterable[File]) -> None:
        self.files = tuple(sorted(files, key=_key))

    def below(self, path: str) -> tuple[File, ...]:
        """The files under the folder `path`; all of them when it is empty."""
        if not path:
            return self.files
        name = os.fsencode(path)
        # In byte order everything under `a/` stands between `a/` and `a0`.
        first = bisect_left(self.files, name + b"/", key=_key)
        return self.files[first : bisect_left(self.files, name + b"0", first, key=_key)]


class Reader(Protocol):
    """One format."""

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content of a file, checked on the way."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class Contents:
    """What a format's parser collects: names are checked as they come."""

    def __init__(self, bounds: Bounds) -> None:
        self.files: list[File] = []
        self.ignored: dict[str, None] = {}
        self._bounds = bounds
        self._names = Names(bounds)
        self._entries = 0
        self._size = 0

    def count(self, path: str, size: int) -> None:
        """Count an entry before anything else is asked of it."""
        self._entries += 1
        self._size += size
        if self._entries > self._bounds.entries:
            raise refuse("too-many-files", path, str(self._bounds.entries))
        if self._size > self._bounds.size:
            raise refuse("too-large", path, f"{self._bounds.size >> 20} MiB")

    @property
    def size(self) -> int:
        """Bytes of all files so far."""
        return self._size

    def skips(self, path: str) -> bool:
        """Whether a path is left out: it is checked as strictly, and remembered."""
        part = ignored_part(path)
        if part:
            self.ignored[part] = None
        return bool(part)

    def add(self, path: str, size: int, *, folder: bool, program: bool) -> None:
        """Take in one entry."""
        self._names.add(path, folder=folder)
        if not folder:
            self.files.append(File(path, size, "program" if program else "file"))


class ArchiveTree(Listing):
    """The files of an archive. Close it, or use it in a `with` block."""

    def __init__(self, contents: Contents, reader: Reader, kind: str) -> None:
        super().__init__(contents.files)
        self.ignored = tuple(sorted(contents.ignored))
        """What desktops and version control left in it, and nobody gets."""
        self.kind = kind
        """`zip`, `tar`, `tar.gz`, `tar.bz2` or `tar.xz`."""
        self._reader = reader

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content of a file, piece by piece.

        Raises:
            Unsafe: it is damaged, or not what the archive declares.
            NotFound: there is no such file.
        """
        try:
            return self._reader.chunks(path)
        except KeyError as exc:
            raise NotFound(f"There is no `{path}` in the archive") from exc

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
