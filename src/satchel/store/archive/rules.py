"""The rules of the strict reader, their refusals, and the tree of files of an archive.

One table for archives, folders and repositories. The name of a rule is stable; its sentence is
shown to the user and on the reference page. A reader never repairs what breaks a rule.
"""

from __future__ import annotations

import os
import re
import unicodedata
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple, Self

from satchel._unicode import CONTROLS, FILLERS, SURROGATES, TAGS
from satchel.errors import NotFound, Refused, Unsafe
from satchel.i18n import say
from satchel.skill.file_tree import IGNORED, LIMITS, TreeFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_REQUIREMENTS = {
    "a path must be relative, with `/`, and without `..`, empty parts and colons": (
        "path-absolute", "path-escapes", "path-parts", "path-backslash", "path-colon",
    ),
    "a name must be valid on every system, short, and without invisible characters": (
        "path-characters", "path-encoding", "zip-encoding", "path-too-long", "path-too-deep",
        "windows-name",
    ),
    "a name must occur only once, whatever its case": (
        "duplicate-name", "case-conflict", "file-and-folder",
    ),
    "only regular files and folders are read": ("link", "special-file", "sparse-file", "tar-type"),
    "a link must lead to a file of the same skill": ("link-escapes",),
    "a skill must not contain a submodule": ("submodule",),
    "a skill must not contain what git takes for a repository": ("repository",),
    "files and names must stay within the limits": (
        "too-many-files", "too-large", "names-too-large", "ratio",
    ),
    "only zip, tar and tar.gz are read": (
        "not-an-archive", "unsupported-format", "multi-part", "method",
    ),
    "the archive must be complete and well formed": (
        "truncated", "trailing-data", "hidden-data", "overlap", "damaged", "header-differs",
        "type-differs", "tar-header", "tar-order", "tar-pax",
    ),
    "nothing may be encrypted": ("encrypted",),
    "addresses, branches, tags and commits must be plain names": ("git-address", "git-ref"),
    "the objects of a repository must pass git's own checks": ("git-objects",),
    "files must not change while they are read": ("changed-while-read",),
}  # fmt: skip
RULES: dict[str, str] = {rule: text for text, rules in _REQUIREMENTS.items() for rule in rules}
"""Rule -> its requirement, in one sentence."""

HINT = "Report it to its author"
_FILE_HINT = "Replace the link by a copy"
_SIZE_HINT = "Remove what the skill does not need"
_KIND_HINT = "Give a folder, a `.zip`, a `.tar.gz` or the address of a git repository"
_UNPACK_HINT = "Unpack it and give the folder"
HINTS: dict[str, str] = {
    "unsupported-format": _UNPACK_HINT,
    "method": _UNPACK_HINT,
    "not-an-archive": _KIND_HINT,
    "link": _FILE_HINT,
    "link-escapes": _FILE_HINT,
    "repository": "Remove it",
    "too-many-files": _SIZE_HINT,
    "too-large": _SIZE_HINT,
    "truncated": "Try again",
    "damaged": "Try again",
    "case-conflict": "Rename it",
    "windows-name": "Rename it",
    "git-address": _KIND_HINT,
    "git-ref": "Give a branch, a tag or a whole commit id",
    "changed-while-read": "Try again",
}
_MAX_SHOWN_CHARS = 120

MAX_PART_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_DEPTH = 64

# Invisible characters, and those that change the display of others; category Cf is checked too.
_INVISIBLE_CHARACTER = re.compile(
    f"[{CONTROLS}{FILLERS}{SURROGATES}{TAGS}\u2028\u2029\u2800\ufdd0-\ufdef\ufe00-\ufe0e"
    "\ufff0-\uffff]"
)
_EMOJI_STYLE = "\ufe0f"
"""Variation selector for the coloured form: common in names, and ignored in comparisons."""
_WINDOWS_CHARACTER = re.compile(r"""[<>"|?*]""")
_RESERVED_NAME = re.compile(
    r"(?:^|/)((?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$|clock\$)[ ]*(?:\.[^/]*)?"
    r"|git~[0-9]+)(?:/|\Z)",
    re.IGNORECASE,
)
_PLAIN_PATH = re.compile(r"(?:[A-Za-z0-9_.\- ()+,@=]*[A-Za-z0-9_\-()+,@=](?:/(?!\Z)|\Z))+\Z")
"""Fast path: parts of ordinary characters, none empty or with a dot or space at its end."""
_EMPTY_OR_DOT_PART = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)")
_DOT_OR_SPACE_END = re.compile(r"[. ](?:/|\Z)")
_IGNORED_PART = re.compile(
    rf"(?:^|/)(?:{'|'.join(map(re.escape, sorted(IGNORED)))})(?=/|\Z)", re.IGNORECASE
)


class ArchiveLimits(NamedTuple):
    """Size limits of an archive or another source with many skills."""

    entries: int = 50_000
    """Enough for ten thousand ordinary skills, and listed within a second."""
    size: int = 4 << 30
    """Bytes of all files, unpacked."""
    names: int = 16 << 20
    """Bytes of all paths, with the folders that they imply."""
    ratio: int = 100
    """Unpacked bytes for one packed byte."""
    total_floor: int = 8 << 20
    """`ratio` does not apply to all files together up to this size."""


BOUNDS = ArchiveLimits()
"""For archives."""
WIDE = ArchiveLimits(entries=100_000)
"""For folders and repositories, which often contain other files too."""


def refuse(rule: str, path: str = "", found: str = "") -> Unsafe:
    """The error for a broken rule.

    Args:
        rule: A key of `RULES`.
        path: The path inside the source, or the source itself.
        found: The offending value, where it helps; the name of the rule when empty.
    """
    reason = say(RULES[rule])
    if found or len(_REQUIREMENTS[RULES[rule]]) > 1:  # else the sentence says which rule it is
        reason += f" ({shown(found) or rule})"
    name = shown(path)
    message = (
        say("`{path}` is refused: {why}", path=name, why=reason)
        if name
        else say("The source is refused: {why}", why=reason)
    )
    return Unsafe(rule, message, say(HINTS.get(rule, HINT)))


def unreadable(path: str, exc: OSError) -> Refused:
    """The error for a source that the disk does not give."""
    return Refused(
        say("`{path}` cannot be read: {reason}", path=shown(path), reason=exc.strerror or exc),
        say("Check the permissions"),
    )


def shown(text: str) -> str:
    """A name for messages: one short line without control or invisible characters."""
    short = text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"
    if short.isascii() and short.isprintable() and "`" not in short:
        return short
    return "".join(
        char if char.isprintable() and char != "`" else f"\\u{ord(char):04x}" for char in short
    )


def check_path(path: str) -> None:
    """Refuse a path that is not a plain relative name everywhere.

    Raises:
        Unsafe: with the rule it breaks.
    """
    if not _PLAIN_PATH.match(path):
        _check_characters(path)
        _check_parts(path)
    size = len(path) if path.isascii() else len(path.encode())
    if size > MAX_PATH_BYTES:
        raise refuse("path-too-long", path)
    if path.count("/") > MAX_DEPTH:
        raise refuse("path-too-deep", path)
    if (
        size > MAX_PART_BYTES
        and max(len(part.encode()) for part in path.split("/")) > MAX_PART_BYTES
    ):
        raise refuse("path-too-long", path)
    if reserved := _RESERVED_NAME.search(path):
        raise refuse("windows-name", path, reserved.group(1))


def _check_parts(path: str) -> None:
    if path.startswith("/"):
        raise refuse("path-absolute", path)
    if _EMPTY_OR_DOT_PART.search(path):
        raise refuse("path-escapes" if ".." in path.split("/") else "path-parts", path)
    if _DOT_OR_SPACE_END.search(path):
        raise refuse("windows-name", path, "a name ends in a dot or a space")


def _check_characters(path: str) -> None:
    if not path:
        raise refuse("path-parts", found="an empty name")
    if "\\" in path:
        raise refuse("path-backslash", path)
    invisible = _INVISIBLE_CHARACTER.search(path)
    if not invisible and not path.isascii():
        format_chars = (char for char in path if unicodedata.category(char) == "Cf")
        char = next(format_chars, "")
    else:
        char = invisible.group() if invisible else ""
    if "\ud800" <= char <= "\udfff":
        raise refuse("path-encoding", path)  # bytes of a file name that are not UTF-8
    if char:
        raise refuse("path-characters", path, f"U+{ord(char):04X}")
    if ":" in path:
        raise refuse("path-colon", path)
    if reserved := _WINDOWS_CHARACTER.search(path):
        raise refuse("windows-name", path, reserved.group())


def decode_path(data: bytes) -> str:
    """Decode a path.

    Raises:
        Unsafe: it is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise refuse("path-encoding", data.decode("ascii", "backslashreplace")) from exc


def ignored_part(path: str) -> str:
    """The path up to an ignored part, such as `__MACOSX`; empty when there is none."""
    match = _IGNORED_PART.search(path)
    return path[: match.end()] if match else ""


def fold(path: str) -> str:
    """A key that is equal for paths which some file systems treat as the same."""
    if path.isascii():
        return path.lower()
    folded = unicodedata.normalize("NFD", path.replace(_EMOJI_STYLE, "")).casefold()
    return unicodedata.normalize("NFC", folded)


class TreeNames:
    """Collects the paths of one tree, and refuses duplicates under any file system's rules."""

    def __init__(self, bounds: ArchiveLimits = BOUNDS) -> None:
        self._bounds = bounds
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._listed_folders: set[str] = set()
        self._size = 0
        self._last_parent = ""

    def add(self, path: str, *, folder: bool = False) -> None:
        """Add a path that `check_path` accepted.

        Raises:
            Unsafe: it conflicts with another.
        """
        key = fold(path)
        if key == path:
            key = path  # share one string: there may be very many
        if folder:
            if path in self._listed_folders:
                raise refuse("duplicate-name", path)
            self._listed_folders.add(path)
            self._add_folder(path, key)
        else:
            other = self._files.get(key)
            if other is not None:
                raise refuse("duplicate-name" if other == path else "case-conflict", path, other)
            if key in self._folders:
                self._check_absent(self._folders, path, key)
            self._files[key] = path
            self._count(path)
        parent = path.rpartition("/")[0]
        if parent == self._last_parent:
            return  # archives list a folder's files after each other
        self._last_parent = parent
        while "/" in path:
            path, key = path.rpartition("/")[0], key.rpartition("/")[0]
            if not self._add_folder(path, key):
                break

    def _add_folder(self, path: str, key: str) -> bool:
        """Add a folder; False when it, and so the folders above it, were known."""
        other = self._folders.get(key)
        if other is not None:
            if other != path:
                raise refuse("case-conflict", path, other)
            return False
        self._check_absent(self._files, path, key)
        self._folders[key] = path
        self._count(path)
        return True

    def _check_absent(self, table: dict[str, str], path: str, key: str) -> None:
        other = table.get(key)
        if other is not None:
            raise refuse("file-and-folder" if other == path else "case-conflict", path, other)

    def _count(self, path: str) -> None:
        self._size += len(path)
        if self._size > self._bounds.names:
            raise refuse("names-too-large", path)
        if len(self._files) + len(self._folders) > 2 * self._bounds.entries:
            raise refuse("too-many-files", path)


def read_at(descriptor: int, size: int, position: int) -> bytes:
    """Up to `size` bytes from a position."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, position)
    os.lseek(descriptor, position, os.SEEK_SET)  # Windows: one reader at a time
    return os.read(descriptor, size)


def _key(file: TreeFile) -> bytes:
    return os.fsencode(file.path)


class ListedTree:
    """Base class of trees with a complete list of files."""

    ignored: Sequence[str] = ()
    """Paths of desktops and version control that are not listed."""
    may_be_checkout = False
    """Whether a `.git` directly in a skill's folder is left out: the user works on it there."""

    def __init__(self, files: Iterable[TreeFile]) -> None:
        self.blocked: dict[str, str] = {}
        """Paths that no skill may contain, such as submodules, with the rule; `files` fills it."""
        self.files = tuple(sorted(files, key=_key))

    def below(self, path: str) -> tuple[TreeFile, ...]:
        """The files under the folder `path`; all of them when it is empty."""
        if not path:
            return self.files
        name = os.fsencode(path)
        # In byte order everything under `a/` is between `a/` and `a0`.
        first = bisect_left(self.files, name + b"/", key=_key)
        return self.files[first : bisect_left(self.files, name + b"0", first, key=_key)]


class Contents:
    """The entries that a parser collects and checks."""

    def __init__(self, bounds: ArchiveLimits) -> None:
        self.files: list[TreeFile] = []
        self.ignored: dict[str, None] = {}
        self._bounds = bounds
        self._names = TreeNames(bounds)
        self._entries = 0
        self._size = 0

    def count(self, path: str, size: int) -> None:
        """Count an entry against the limits, before any other check."""
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
        """Whether a path is ignored; it is recorded for the notes."""
        part = ignored_part(path)
        if part:
            self.ignored[part] = None
        return bool(part)

    def add(self, path: str, size: int, *, folder: bool, program: bool) -> None:
        """Add an entry."""
        self._names.add(path, folder=folder)
        if not folder:
            self.files.append(TreeFile(path, size, "program" if program else "file"))


class ArchiveTree(ListedTree):
    """The files of an archive. Close it, or use it in a `with` block."""

    def __init__(
        self,
        contents: Contents,
        kind: str,
        read: Callable[[str], bytes],
        close: Callable[[], None],
    ) -> None:
        super().__init__(contents.files)
        self.ignored = tuple(sorted(contents.ignored))
        self.kind = kind
        """`zip`, `tar` or `tar.gz`."""
        self.close = close
        self._read = read
        self._sizes = {file.path: file.size for file in self.files}

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content of a file, checked, as one piece.

        Raises:
            Unsafe: it is damaged, differs from what the archive declares, or is larger than a
                skill may be.
            NotFound: there is no such file.
        """
        size = self._sizes.get(path)
        if size is None:
            raise NotFound(f"There is no `{path}` in the archive")
        if size > LIMITS.size:
            raise refuse("too-large", path, f"{LIMITS.size >> 20} MiB")
        data = self._read(path)
        if len(data) != size:
            raise refuse("truncated", path)
        yield data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
