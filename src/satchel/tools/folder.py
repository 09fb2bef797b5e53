"""What else lies in a skill's folder: listed, counted, never read.

The walk is bounded, follows no link out of the folder, and leaves out what is no material of this
skill: version control, caches, and folders that are skills of their own.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from satchel.library.walk import OWN_FOLDERS, SKIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.library.survey import Survey

LISTED = 50
"""Files that a reply names."""
_ENTRIES = 2_000
_DEPTH = 8


class Folder(NamedTuple):
    """The files of a skill at one moment."""

    files: tuple[tuple[str, int], ...]
    """Path below the folder, with `/`, and size in bytes; the first `LISTED` of them."""
    total: int
    """How many there are, as far as the walk went."""
    complete: bool
    """False when the walk met its bound: there are more than `total`."""
    left_out: int
    """Links that lead out of the folder, and things that are no files."""
    revision: str
    """Changes when a file is added, removed, renamed, edited or touched."""


def list_folder(base_dir: str, own_file: str) -> Folder:
    """List a skill's folder. `own_file` is the SKILL.md itself: it counts for the revision only."""
    from hashlib import blake2b

    total = blake2b(digest_size=8)
    files: list[tuple[str, int]] = []
    walk = _Walk(base_dir)
    count = 0
    for path, size, times in walk.entries():
        total.update(f"{path}\0{size}\0{times}\n".encode("utf-8", "surrogateescape"))
        if path == own_file:
            continue
        count += 1
        if len(files) < LISTED:
            files.append((path, size))
    return Folder(tuple(files), count, walk.complete, walk.left_out, total.hexdigest())


def folder_of(rows: Survey, own_file: str) -> Folder | None:
    """The same from a survey of the folder; None when it is not as simple as most are.

    Links, folders that are left out, skills within the skill and very many files need the walk.
    """
    from hashlib import blake2b

    if len(rows) > _ENTRIES // 2:
        return None
    orders: dict[str, str] = {"": "\0"}
    found: list[tuple[str, str, int, str]] = []
    for path, changed, inode, size, _, mode in rows:
        head, _, name = path.rpartition("/")
        order = orders.get(head)
        if order is None:
            folders = head.split("/")
            if len(folders) >= _DEPTH or not SKIPPED.isdisjoint(folders):
                return None
            order = orders[head] = "".join(f"\1{folder}\0" for folder in folders) + "\0"
        if not stat.S_ISREG(mode) or (
            head
            and len(name) == 8
            and name.lower() == "skill.md"
            and head.split("/", 1)[0] not in OWN_FOLDERS
        ):
            return None
        # As the walk goes: the files of a folder before its folders, each by name.
        found.append((order + name, path, size, f"{path}\0{size}\0{changed}/{inode}\n"))
    found.sort()
    text = "".join([row[3] for row in found])
    others = [(path, size) for _, path, size, _ in found if path != own_file]
    return Folder(
        tuple(others[:LISTED]),
        len(others),
        complete=True,
        left_out=0,
        revision=blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest(),
    )


def listed_folder(rows: Survey, own_file: str) -> Folder:
    """The same from the list of a server: all its files, whether they are here or not."""
    from hashlib import blake2b

    text = "".join([f"{path}\0{size}\0{mark}\n" for path, mark, _, size, _, _ in rows])
    others = [(path, size) for path, _, _, size, _, _ in rows if path != own_file]
    revision = blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return Folder(tuple(others[:LISTED]), len(others), complete=True, left_out=0, revision=revision)


class _Walk:
    """One bounded walk."""

    def __init__(self, base_dir: str) -> None:
        self._base = base_dir
        self._real = ""
        self._seen = 0
        self.complete = True
        self.left_out = 0

    def entries(self) -> Iterator[tuple[str, int, str]]:
        """Path, size and times of every file, sorted within each folder, files first."""
        todo = [("", 0)]
        while todo:
            prefix, depth = todo.pop()
            files: list[tuple[str, int, str]] = []
            below: list[str] = []
            own = False
            try:
                with os.scandir(f"{self._base}/{prefix}") as entries:
                    for entry in entries:
                        self._seen += 1
                        if self._seen > _ENTRIES:
                            self.complete = False
                            break
                        name = entry.name
                        if len(name) == 8 and name.lower() == "skill.md":
                            own = True
                        self._sort(entry, prefix, files, below)
            except OSError:
                self.left_out += 1  # gone meanwhile, or not ours to read
            if own and prefix and prefix.split("/", 1)[0] not in OWN_FOLDERS:
                continue  # a skill of its own
            files.sort()
            yield from files
            if depth + 1 < _DEPTH:
                todo += [(f"{prefix}{name}/", depth + 1) for name in sorted(below, reverse=True)]
            elif below:
                self.complete = False

    def _sort(
        self,
        entry: os.DirEntry[str],
        prefix: str,
        files: list[tuple[str, int, str]],
        below: list[str],
    ) -> None:
        name = entry.name
        if entry.is_dir(follow_symlinks=False):
            if name not in SKIPPED:
                below.append(name)
            return
        try:
            if entry.is_symlink() and not self._inside(entry.path):
                self.left_out += 1
                return
            info = entry.stat()
        except OSError:
            self.left_out += 1
            return
        if stat.S_ISREG(info.st_mode):
            # The inode's own time too: a file's time of change can be set back.
            times = f"{info.st_mtime_ns}/{info.st_ctime_ns}"
            files.append((prefix + name, info.st_size, times))
        else:
            self.left_out += 1

    def _inside(self, path: str) -> bool:
        self._real = self._real or os.path.realpath(self._base)
        return os.path.realpath(path).startswith(self._real + os.sep)
