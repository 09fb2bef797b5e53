"""What is known of a skill's content: whether it changed, and whether it was scanned.

A survey is one pass over a folder: of each file, what the operating system notes when
it is touched. Content is not read: as long as two surveys are equal, what was read before still
stands. Contents that were scanned and not blocked are remembered by their digest in the cache
folder, for one version of the rules; deleting that file costs a few milliseconds per skill.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import RACY_NS
from satchel.errors import SkillBroken
from satchel.skill.tree import LIMITS, VERSION_CONTROL

if TYPE_CHECKING:
    from satchel.security.report import Report
    from satchel.skill.tree import Seal, Tree

Row = tuple[str, int, int, int, int, int]
"""Path, time of change, of the inode's change, size, inode and mode."""
Survey = list[Row]


def survey(root: str, only: frozenset[str] | None = None) -> Survey:
    """Every file below a folder with its stamps, sorted. Folders show by what is in them.

    Args:
        root: The folder.
        only: Names right below it that count; everything when None.

    Raises:
        SkillBroken: there are more files than a skill may have.
        OSError: it cannot be read.
    """
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
    """Whether nothing was touched so shortly before `began` that a further change might not show.

    Args:
        rows: What was seen.
        began: When the survey began, in nanoseconds.
    """
    limit = began - RACY_NS
    return all(row[2] <= limit for row in rows)


class Sealed(NamedTuple):
    """A folder that was verified; the very same object as long as nothing in it changes."""

    path: str
    """The folder as it was asked for: the skill's, or that of the locked skill around it."""
    real: str
    only: frozenset[str] | None
    seal: Seal
    rows: Survey

    def holds(self, real: str, digest: str) -> bool:
        """Whether a file, by its real path, is part of it with this content.

        Args:
            real: The real path of a regular file.
            digest: The hexadecimal SHA-256 of what was read of it.
        """
        return self.has(os.path.relpath(real, self.real).replace(os.sep, "/"), digest)

    def has(self, path: str, digest: str) -> bool:
        """The same by the path below the folder, with `/`."""
        mark = self.seal.files.get(path, "")
        if mark.startswith("link:"):
            real = os.path.realpath(os.path.join(self.path, path))
            path = os.path.relpath(real, self.real).replace(os.sep, "/")
            mark = self.seal.files.get(path, "")
        return mark.removesuffix(" x") == f"sha256:{digest}"


_LONGEST_FILE = 32 << 20


class ScanCache:
    """Scans skills, and remembers which contents were not blocked."""

    def __init__(self, folder: str = "", allow: str = "") -> None:
        """Scan with one user's exceptions.

        Args:
            folder: The cache folder; empty keeps results in memory only.
            allow: The user's own list of accepted findings; empty when there is none.
        """
        self._folder = folder
        self._allow = allow
        self._lock = threading.Lock()
        self._known: set[str] | None = None

    def knows(self, digest: str) -> bool:
        """Whether a content was scanned and not blocked."""
        with self._lock:
            if self._known is None:
                self._known = self._read()
            return digest in self._known

    def scan(self, tree: Tree, name: str) -> Report:
        """Scan a skill's files.

        Args:
            tree: The files.
            name: The skill's folder, by which accepted findings are matched.

        Raises:
            SettingsError: the list of accepted findings cannot be read.
        """
        from satchel.security import read_allowances, scan_tree

        return scan_tree(tree, name=name, allow=read_allowances(self._allow) if self._allow else ())

    def remember(self, digest: str, report: Report) -> None:
        """Keep the digest of a content that was not blocked, except by exceptions, which end."""
        if report.verdict == "blocked" or report.allowed:
            return
        with self._lock:
            known = self._known if self._known is not None else self._read()
            self._known = known
            if digest in known:
                return
            known.add(digest)
            if self._folder:
                with suppress(OSError):  # a cache that cannot be written is no cache
                    os.makedirs(self._folder, mode=0o700, exist_ok=True)
                    with open(self._path(), "ab", buffering=0) as stream:
                        stream.write(digest.encode("ascii", "replace") + b"\n")

    def _path(self) -> str:
        return os.path.join(self._folder, f"scanned-{_rules_version()}.txt")

    def _read(self) -> set[str]:
        if not self._folder:
            return set()
        try:
            with open(self._path(), encoding="ascii", errors="replace") as stream:
                return set(stream.read(_LONGEST_FILE).split("\n"))
        except OSError:
            return set()


def _rules_version() -> str:
    """Changes with the files of the scanner and with YARA: other rules scan everything anew."""
    from importlib.util import find_spec
    from zlib import crc32

    from satchel.security import scan as security

    version = int(find_spec("yara_x") is not None)
    for here, folders, files in os.walk(os.path.dirname(os.path.abspath(security.__file__))):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in sorted(files):
            with open(os.path.join(here, name), "rb") as stream:
                version = crc32(stream.read(), version)
    return f"{version:08x}"
