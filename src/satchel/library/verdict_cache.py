"""The cache of what was found in contents: reports of the scan, and problems of files.

Results are kept by digest in the user's cache folder, which no project can choose, in one folder
per version of the code that finds them; deleting it costs the work again.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any
from zlib import crc32

from satchel._fs import write_atomic
from satchel.skill.problems import pack_problems, unpack_problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.library.fingerprint import Survey
    from satchel.security.report import ScanReport
    from satchel.skill.file_tree import Tree, TreeDigest
    from satchel.skill.problems import Problem

_MAX_SHARD_BYTES = 256 << 10


class VerdictCache:
    """Scans contents, and caches the reports by digest, and digests by the stamps of folders."""

    def __init__(self, folder: str = "") -> None:
        """Create a cache in the user's folder; without one, results are kept in memory only."""
        self._folder = folder
        self._lock = threading.Lock()
        self._stamps = _TextTable(os.path.join(folder, "digests-1") if folder else "")

    @cached_property
    def _reports(self) -> _TextTable:
        return self._open_results("scans", "security")

    @cached_property
    def _problems(self) -> _TextTable:
        return self._open_results("problems", "skill", "runners", "locale")

    def _open_results(self, name: str, *code: str) -> _TextTable:
        """Open the table of results that the code in some folders of this package made."""
        name = f"{name}-{_code_version(code)}"
        return _TextTable(os.path.join(self._folder, name) if self._folder else "")

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

    def problems(self, key: object, find: Callable[[], list[Problem]]) -> list[Problem]:
        """The problems of a skill's files, which `find` finds when they are not cached.

        Args:
            key: All that they depend on, beside the code of this package.
            find: Finds them.
        """
        import json  # not on the way of `list`

        name = _checksum(key)
        with self._lock:
            text = self._problems.get(name)
        if text:
            return list(unpack_problems(json.loads(text)))
        problems = find()
        with self._lock:
            self._problems.put(name, json.dumps(pack_problems(problems)))
        return problems

    def has_text(self, text: str) -> bool:
        """Whether `add_text` was called with this text before."""
        with self._lock:
            return self._stamps.get(_text_key(text)) == text

    def add_text(self, text: str) -> None:
        """Remember a text, for `has_text`."""
        with self._lock:
            self._stamps.put(_text_key(text), text)

    def tree_of(self, path: str, survey: Survey) -> TreeDigest | None:
        """The digests of a folder that has not changed since `remember_tree`."""
        with self._lock:
            text = self._stamps.get(_checksum(path))
        checksum, _, digests = text.partition(" ")
        return _file_tree().TreeDigest.from_text(digests) if checksum == _checksum(survey) else None

    def remember_tree(self, path: str, survey: Survey, tree: TreeDigest) -> None:
        """Cache the digests of a folder; its survey must be settled."""
        text = f"{_checksum(survey)} {tree.to_text()}"
        with self._lock:
            self._stamps.put(_checksum(path), text)


class _TextTable:
    """A table of texts in files of lines, one file (a shard) per first two digits of the keys."""

    def __init__(self, folder: str) -> None:
        """Open the table in a folder; without one, it is kept in memory only."""
        self._folder = folder
        self._shards: dict[str, dict[str, str]] = {}

    def get(self, key: str) -> str:
        """The text of a key in hexadecimal digits; empty when there is none."""
        prefix = key[:2]
        if prefix not in self._shards:
            self._shards[prefix] = self._read_shard(prefix)
        return self._shards[prefix].get(key, "")

    def put(self, key: str, text: str) -> None:
        """Keep a text without line breaks."""
        if self.get(key) == text:
            return
        prefix = key[:2]
        shard = self._shards[prefix]
        shard.pop(key, None)
        shard[key] = text
        if not self._folder:
            return
        with suppress(OSError):  # the cache is optional
            if self._append_line(prefix, f"\n{key} {text}\n") > _MAX_SHARD_BYTES:
                self._halve_shard(prefix)

    def _append_line(self, prefix: str, line: str) -> int:
        """Append a line to the file of a shard; returns its size."""
        if not os.path.isdir(self._folder):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        with open(self._path(prefix), "ab", buffering=0) as stream:
            stream.write(line.encode("ascii", "replace"))  # one write: lines are never mixed
            return stream.tell()

    def _halve_shard(self, prefix: str) -> None:
        """Remove the older half of a shard."""
        rows = list(self._shards[prefix].items())
        shard = self._shards[prefix] = dict(rows[len(rows) // 2 :])
        lines = "".join(f"{key} {text}\n" for key, text in shard.items())
        data = lines.encode("ascii", "replace")
        write_atomic(self._path(prefix), data, private=True, durable=False)

    def _read_shard(self, prefix: str) -> dict[str, str]:
        if not self._folder:
            return {}
        try:
            with open(self._path(prefix), encoding="ascii", errors="replace") as stream:
                lines = stream.read(2 * _MAX_SHARD_BYTES).split("\n")
        except OSError:
            return {}
        rows = (line.partition(" ") for line in lines if line)
        return {key: text for key, _, text in rows}

    def _path(self, prefix: str) -> str:
        return os.path.join(self._folder, f"{prefix}.txt")


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


def _text_key(text: str) -> str:
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


@cache
def _code_version(names: tuple[str, ...]) -> str:
    """Checksum over the files in some folders of this package, and its character tables."""
    from satchel import _unicode

    with open(_unicode.__file__, "rb") as stream:
        version = crc32(stream.read())
    package = os.path.dirname(os.path.abspath(_unicode.__file__))
    for top in names:
        for folder, folders, files in os.walk(os.path.join(package, top)):
            folders[:] = sorted(set(folders) - {"__pycache__"})
            for name in sorted(files):
                with open(os.path.join(folder, name), "rb") as stream:
                    version = crc32(stream.read(), version)
    return f"{version:08x}"
