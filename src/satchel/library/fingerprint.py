"""Change detection for skill folders, and the cache of scanned contents.

A survey lists the file stamps of a folder without reading contents: while two surveys are equal,
nothing changed. Reports on scanned contents are kept by digest in the user's cache folder, which no
project can choose, in one folder per version of the rules; deleting it costs a new scan.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from satchel._fs import RACY_NS, write_atomic
from satchel.errors import Changed, SkillBroken
from satchel.i18n import Message

if TYPE_CHECKING:
    from satchel.security.report import ScanReport
    from satchel.skill.file_tree import Tree, TreeDigest
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
    max_files, version_control = _file_tree().LIMITS.files, _file_tree().VERSION_CONTROL
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
                    if name not in version_control:
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
        if len(rows) > max_files or folders > max_files + 1:
            raise SkillBroken(
                f"`{os.path.basename(root)}` has more than {max_files} files or folders",
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


class _Shards:
    """A table of texts in files of lines, one file per first two digits of the keys."""

    def __init__(self, folder: str) -> None:
        """Open the table in a folder; without one, it is kept in memory only."""
        self._folder = folder
        self._shards: dict[str, dict[str, str]] = {}

    def get(self, key: str) -> str:
        """The text of a key in hexadecimal digits; empty when there is none."""
        name = key[:2]
        if name not in self._shards:
            self._shards[name] = self._read(name)
        return self._shards[name].get(key, "")

    def put(self, key: str, text: str) -> None:
        """Keep a text without line breaks."""
        if self.get(key) == text:
            return
        shard = self._shards[key[:2]]
        shard.pop(key, None)
        shard[key] = text
        if not self._folder:
            return
        path = self._path(key[:2])
        with suppress(OSError):  # the cache is optional
            if not os.path.isdir(self._folder):
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with open(path, "ab", buffering=0) as stream:  # one write: lines are never mixed
                stream.write(f"\n{key} {text}\n".encode("ascii", "replace"))
                size = stream.tell()
            if size > _MAX_SHARD_BYTES:
                rows = list(shard.items())[len(shard) // 2 :]
                self._shards[key[:2]] = dict(rows)
                lines = "".join(f"{one} {row}\n" for one, row in rows)
                write_atomic(path, lines.encode("ascii", "replace"), private=True, durable=False)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, f"{name}.txt")

    def _read(self, name: str) -> dict[str, str]:
        if not self._folder:
            return {}
        try:
            with open(self._path(name), encoding="ascii", errors="replace") as stream:
                lines = stream.read(2 * _MAX_SHARD_BYTES).split("\n")
        except OSError:
            return {}
        rows = (line.partition(" ") for line in lines if line)
        return {key: text for key, _, text in rows}


_MAX_SHARD_BYTES = 256 << 10


class VerdictCache:
    """Scans contents, and caches the reports by digest, and digests by the stamps of folders."""

    def __init__(self, folder: str = "") -> None:
        """Create a cache in the user's folder; without one, results are kept in memory only."""
        self._folder = folder
        self._lock = threading.Lock()
        self._stamps = _Shards(os.path.join(folder, "digests-1") if folder else "")

    @cached_property
    def _reports(self) -> _Shards:
        name = f"scans-{_rules_version()}"
        return _Shards(os.path.join(self._folder, name) if self._folder else "")

    def report(self, digest: str) -> ScanReport | None:
        """The report on a content; None when it was not scanned with the present rules."""
        with self._lock:
            text = self._reports.get(_digits(digest))
        return _security().ScanReport.from_text(text) if text else None

    def remember(self, digest: str, report: ScanReport) -> None:
        """Cache the report on a content."""
        with self._lock:
            self._reports.put(_digits(digest), report.to_text())

    def scan(self, digest: str, tree: Tree) -> ScanReport:
        """The report on a tree with this digest, which is scanned when it is not cached."""
        report = self.report(digest)
        if report is None:
            report = _security().scan_tree(tree)
            self.remember(digest, report)
        return report

    def knows(self, mark: str) -> bool:
        """Whether `add` was called with this text before."""
        with self._lock:
            return self._stamps.get(_mark_key(mark)) == mark

    def add(self, mark: str) -> None:
        """Remember a text, for `knows`."""
        with self._lock:
            self._stamps.put(_mark_key(mark), mark)

    def tree_of(self, path: str, rows: Survey) -> TreeDigest | None:
        """The digests of a folder that has not changed since `remember_tree`."""
        with self._lock:
            text = self._stamps.get(_checksum(path))
        stamp, _, text = text.partition(" ")
        return _file_tree().TreeDigest.from_text(text) if stamp == _checksum(rows) else None

    def remember_tree(self, path: str, rows: Survey, tree: TreeDigest) -> None:
        """Cache the digests of a folder; its survey must be settled."""
        text = f"{_checksum(rows)} {tree.to_text()}"
        with self._lock:
            self._stamps.put(_checksum(path), text)


def _security() -> Any:
    from satchel import security  # `list` does without

    return security


def _file_tree() -> Any:
    from satchel.skill import file_tree  # the same

    return file_tree


def _checksum(value: object) -> str:
    return _digits(_file_tree().digest_of({"": repr(value)}))


def _digits(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _mark_key(mark: str) -> str:
    return f"{crc32(mark.encode('utf-8', 'surrogatepass')):08x}"


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
