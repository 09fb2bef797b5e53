"""The scan of a skill before it is used, once for each content.

Contents that were scanned and not blocked are remembered by their digest in the cache folder, for
one version of the rules. The file only grows; deleting it costs a few milliseconds per skill.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from satchel.security.report import Report
    from satchel.skill.tree import Tree

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
    """Changes with the files of the scanner, so that other rules scan everything anew."""
    from zlib import crc32

    from satchel.security import scan as security

    version = 0
    for here, folders, files in os.walk(os.path.dirname(os.path.abspath(security.__file__))):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in sorted(files):
            with open(os.path.join(here, name), "rb") as stream:
                version = crc32(stream.read(), version)
    return f"{version:08x}"
