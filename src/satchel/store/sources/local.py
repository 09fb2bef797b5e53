"""The sources `folder` and `archive`: files of this machine."""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import open_beneath
from satchel.errors import AccessDenied, InvalidInput, NotFound
from satchel.i18n import join_names, say
from satchel.library.lockfile import LockedSource
from satchel.skill.file_tree import IGNORED, TreeFile
from satchel.store.archive import open_archive
from satchel.store.archive.rules import WIDE, ListedTree, refuse, shown, unreadable
from satchel.store.sources.base import Bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

    from satchel.skill.file_tree import Tree
    from satchel.store.archive.rules import ArchiveLimits

_CHUNK_BYTES = 1 << 20
_IGNORED_NAMES = frozenset(name.casefold() for name in IGNORED)
_MAX_FOLDER_DEPTH = 256
_MAX_NAMES_SHOWN = 20
ARCHIVE_ENDINGS = re.compile(
    r"\.(?:zip|skill|tar|tgz|tbz2?|txz|tzst|tar\.(?:gz|bz2|xz|zst)|7z|rar)\Z", re.IGNORECASE
)
"""File name endings of archives. The content decides which format it is."""


class LocalTree(ListedTree):
    """The files below a folder; links are listed, not followed."""

    may_be_checkout = True

    def __init__(self, root: str, bounds: ArchiveLimits = WIDE) -> None:
        self.root = root
        self._ignored: list[str] = []
        self.ignored = self._ignored
        self._bounds = bounds
        try:
            super().__init__(self._list())
        except OSError as exc:
            raise unreadable(exc.filename or root, exc) from exc

    def _list(self) -> Iterator[TreeFile]:
        entry_count = path_chars = 0
        pending_folders = [("", 0)]
        while pending_folders:
            folder, depth = pending_folders.pop()
            with os.scandir(os.path.join(self.root, folder) if folder else self.root) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.name.casefold() in _IGNORED_NAMES:
                        self._ignored.append(path)
                        continue
                    entry_count += 1
                    path_chars += len(path)
                    if entry_count > self._bounds.entries:
                        raise refuse("too-many-files", self.root, str(self._bounds.entries))
                    if path_chars > self._bounds.names:
                        raise refuse("names-too-large", self.root)
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        if depth < _MAX_FOLDER_DEPTH:
                            pending_folders.append((path, depth + 1))
                        else:
                            self.blocked[path] = "path-too-deep"
                    elif file := self._make_file(path, info):
                        yield file

    def _make_file(self, path: str, info: os.stat_result) -> TreeFile | None:
        if stat.S_ISLNK(info.st_mode):
            return TreeFile(path, info.st_size, "link")
        if stat.S_ISREG(info.st_mode):
            return TreeFile(path, info.st_size, "program" if info.st_mode & 0o100 else "file")
        self.blocked[path] = "special-file"
        return None

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content, a megabyte at a time; of a link, its target."""
        absolute_path = os.path.join(self.root, path)
        try:
            if os.path.islink(absolute_path):
                yield os.fsencode(os.readlink(absolute_path))
                return
            descriptor = open_beneath(self.root, path)
        except AccessDenied as exc:
            raise refuse("link-escapes", path) from exc
        except OSError as exc:
            raise unreadable(absolute_path, exc) from exc
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise refuse("changed-while-read", path)
            remaining = info.st_size
            while chunk := os.read(descriptor, _CHUNK_BYTES):
                remaining -= len(chunk)
                if remaining < 0:
                    break
                yield chunk
            if remaining:
                raise refuse("changed-while-read", path)
        except OSError as exc:
            raise unreadable(absolute_path, exc) from exc
        finally:
            os.close(descriptor)


class _OpenFiles(NamedTuple):
    """The files of a folder or an archive, while it is open."""

    tree: Tree
    ignored: Sequence[str]
    """Paths that are left out."""
    skill_id: str
    """The id of a skill at the top."""


class PathSource:
    """A folder or an archive at `location`; `url` is its path as recorded in the lockfile."""

    kind = ""
    _repository_prefix = ""

    def __init__(self, location: str, url: str, path: str = "") -> None:
        self.location = location
        self.url = url
        self.path = path
        self.notes: tuple[str, ...] = ()
        """Notes about the choice of the source."""

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """List the files.

        Raises:
            NotFound: there is nothing.
            Unsafe: it breaks a rule, or is too large.
        """
        del progress
        if ref or commit:
            raise InvalidInput(
                say("`{path}` has no branches or tags", path=shown(self.location)),
                say("Write `{value}`", value=self._repository_prefix + shown(self.location)),
            )
        with self._open() as files:
            notes = self.notes
            if files.ignored:
                names = join_names(f"`{shown(path)}`" for path in files.ignored[:_MAX_NAMES_SHOWN])
                notes = (*notes, say("Left out: {names}", names=names))
            source = LockedSource(self.kind, self.url, path=self.path)
            yield Bundle(source, files.tree, notes, files.skill_id)

    def _open(self) -> AbstractContextManager[_OpenFiles]:
        """Open the folder or the archive."""
        raise NotImplementedError


class FolderSource(PathSource):
    """Skills in a folder."""

    kind = "folder"
    _repository_prefix = "git+"

    @contextmanager
    def _open(self) -> Generator[_OpenFiles]:
        if not os.path.isdir(self.location):
            raise NotFound(
                say("There is no `{path}`", path=shown(self.location)), say("Check the path")
            )
        tree = LocalTree(self.location)
        skill_id = os.path.basename(os.path.abspath(self.location))
        yield _OpenFiles(tree, sorted(tree.ignored), skill_id)


class ArchiveSource(PathSource):
    """Skills in an archive."""

    kind = "archive"

    @contextmanager
    def _open(self) -> Generator[_OpenFiles]:
        with open_archive(self.location) as tree:
            skill_id = ARCHIVE_ENDINGS.sub("", os.path.basename(self.location))
            yield _OpenFiles(tree, tree.ignored, skill_id)
