"""Change detection for skill folders, and the cache of scanned contents.

A survey lists the file stamps of a folder without reading contents: while two surveys are equal,
nothing changed. Digests of contents that were scanned and not blocked are kept in the cache folder,
one file per version of the rules; deleting it costs a few milliseconds per skill.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from satchel._fs import RACY_NS
from satchel.errors import Changed, SkillBroken
from satchel.i18n import Message

if TYPE_CHECKING:
    from satchel.security.report import ScanReport
    from satchel.skill.file_tree import TreeDigest
    from satchel.skill.model import Skill

Row = tuple[str, int, int, int, int, int]
"""Path, mtime, ctime, size, inode and mode."""
Survey = list[Row]


def list_stamps(root: str, only: frozenset[str] | None = None) -> Survey:
    """List the files below a folder with their stamps, sorted; empty folders are ignored.

    Args:
        root: The folder.
        only: Names directly below it to include; everything when None.

    Raises:
        SkillBroken: there are more files than a skill may have.
        OSError: it cannot be read.
    """
    from satchel.skill.file_tree import LIMITS, VERSION_CONTROL  # `list` does without

    rows: Survey = []
    todo = [""]
    folders = 0
    for prefix in todo:  # grows while it is walked
        with os.scandir(f"{root}/{prefix}") as entries:
            for entry in entries:
                name = entry.name
                if only is not None and not prefix and name not in only:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if name not in VERSION_CONTROL:
                        todo.append(f"{prefix}{name}/")
                    continue
                info = entry.stat(follow_symlinks=False)
                rows.append((
                    prefix + name,
                    info.st_mtime_ns,
                    info.st_ctime_ns,
                    info.st_size,
                    info.st_ino,
                    info.st_mode,
                ))  # fmt: skip
        folders += 1
        if len(rows) > LIMITS.files or folders > LIMITS.files + 1:
            raise SkillBroken(
                f"`{os.path.basename(root)}` has more than {LIMITS.files} files or folders",
                "Remove what the skill does not need",
            )
    rows.sort()
    return rows


def is_settled(rows: Survey, began: int) -> bool:
    """Whether any later change would alter the stamps: no file is too recent.

    Args:
        rows: The survey.
        began: When the survey began, in nanoseconds.
    """
    limit = began - RACY_NS
    return all(row[2] <= limit for row in rows)


class VerifiedFolder(NamedTuple):
    """A verified folder; the same object while nothing in it changes."""

    path: str
    real: str
    only: frozenset[str] | None
    tree: TreeDigest
    rows: Survey

    def holds(self, real: str, digest: str) -> bool:
        """Whether a file, by its real path, is part of the folder with this content.

        Args:
            real: The real path of a regular file.
            digest: Hexadecimal SHA-256 of the bytes read.
        """
        return self.has(os.path.relpath(real, self.real).replace(os.sep, "/"), digest)

    def has(self, path: str, digest: str) -> bool:
        """As `holds`, by the path below the folder, with `/`."""
        mark = self.tree.files.get(path, "")
        if mark.startswith("link:"):
            real = os.path.realpath(os.path.join(self.path, path))
            path = os.path.relpath(real, self.real).replace(os.sep, "/")
            mark = self.tree.files.get(path, "")
        return mark.removesuffix(" x") == f"sha256:{digest}"


def changed_error(skill: Skill) -> Changed:
    """The error for a skill that changed while it was used."""
    return Changed(
        Message("The skill `{name}` changed meanwhile", name=skill.name), Message("Try again")
    )


_MAX_CACHE_BYTES = 32 << 20
_PROGRAMS = " programs"
"""After the digest of a content with programs."""


class VerdictCache:
    """Scans skills, and caches the digests of contents that were not blocked."""

    def __init__(self, folder: str = "") -> None:
        """Create a cache in a folder; without one, results are kept in memory only."""
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, bool] | None = None
        """Digest -> whether the content has programs."""

    def knows(self, digest: str) -> bool:
        """Whether a content with this digest was scanned and not blocked."""
        return self.has_programs(digest) is not None

    def has_programs(self, digest: str) -> bool | None:
        """Whether a content has programs; None when it was not scanned, or was blocked."""
        with self._lock:
            if self._known is None:
                self._known = self._read()
            return self._known.get(digest)

    def remember(self, digest: str, report: ScanReport) -> None:
        """Cache the digest of a content that was not blocked."""
        if report.verdict != "blocked":
            self.add(digest, has_programs=bool(report.inventory.programs))

    def add(self, digest: str, *, has_programs: bool = False) -> None:
        """Cache the digest of a content, or another text without line breaks, as checked."""
        with self._lock:
            known = self._known if self._known is not None else self._read()
            self._known = known
            if digest in known:
                return
            known[digest] = has_programs
            if self._folder:
                with suppress(OSError):  # the cache is optional
                    os.makedirs(self._folder, mode=0o700, exist_ok=True)
                    with open(self._path(), "ab", buffering=0) as stream:
                        line = digest + _PROGRAMS * has_programs + "\n"
                        stream.write(line.encode("ascii", "replace"))

    def _path(self) -> str:
        return os.path.join(self._folder, f"scanned-{_rules_version()}.txt")

    def _read(self) -> dict[str, bool]:
        if not self._folder:
            return {}
        try:
            with open(self._path(), encoding="ascii", errors="replace") as stream:
                lines = stream.read(_MAX_CACHE_BYTES).split("\n")
        except OSError:
            return {}
        return {line.removesuffix(_PROGRAMS): line.endswith(_PROGRAMS) for line in lines}


@cache
def _rules_version() -> str:
    """Checksum over the scanner's files and its character tables."""
    from satchel import _unicode

    with open(_unicode.__file__, "rb") as stream:
        version = crc32(stream.read())
    rules = os.path.join(os.path.dirname(os.path.abspath(_unicode.__file__)), "security")
    for here, folders, files in os.walk(rules):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in sorted(files):
            with open(os.path.join(here, name), "rb") as stream:
                version = crc32(stream.read(), version)
    return f"{version:08x}"
