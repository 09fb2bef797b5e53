"""A folder on this machine as a source.

Everything is read through the folder itself: a link that is exchanged while we look cannot lead
outside. What is neither a file, a folder nor a link is remembered and refused only when it is
part of a skill that somebody wants.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from satchel._fs import open_beneath
from satchel._language import listed, say
from satchel.errors import AccessDenied, InvalidInput, NotFound, Refused
from satchel.library.lockfile import Place
from satchel.skill.tree import IGNORED, File
from satchel.store.archive.open import open_archive
from satchel.store.archive.rules import WIDE, refuse, shown
from satchel.store.archive.tree import Listing
from satchel.store.sources.base import Bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from satchel.store.archive.rules import Bounds

_CHUNK = 1 << 20
_IGNORED = frozenset(name.casefold() for name in IGNORED)


class LocalTree(Listing):
    """The files below a folder; links are listed, not followed."""

    def __init__(self, root: str, bounds: Bounds = WIDE) -> None:
        self.root = root
        self.blocked: dict[str, str] = {}
        self.ignored: list[str] = []
        self._bases = {os.path.abspath(root) + os.sep, os.path.realpath(root) + os.sep}
        self._bounds = bounds
        try:
            super().__init__(self._list())
        except OSError as exc:
            raise _unreadable(exc.filename or root, exc) from exc

    def _list(self) -> Iterator[File]:
        count = names = 0
        todo = [("", 0)]
        while todo:
            folder, depth = todo.pop()
            with os.scandir(os.path.join(self.root, folder) if folder else self.root) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.name.casefold() in _IGNORED:
                        self.ignored.append(path)
                        continue
                    count += 1
                    names += len(path)
                    if count > self._bounds.entries:
                        raise refuse("too-many-files", self.root, str(self._bounds.entries))
                    if names > self._bounds.names:
                        raise refuse("names-too-large", self.root)
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        if depth < 256:
                            todo.append((path, depth + 1))
                        else:
                            self.blocked[path] = "path-too-deep"
                    elif file := self._file(path, info):
                        yield file

    def _file(self, path: str, info: os.stat_result) -> File | None:
        if stat.S_ISLNK(info.st_mode):
            return File(path, info.st_size, "link")
        if stat.S_ISREG(info.st_mode):
            return File(path, info.st_size, "program" if info.st_mode & 0o100 else "file")
        self.blocked[path] = "special-file"
        return None

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content, a megabyte at a time; of a link, where it leads."""
        full = os.path.join(self.root, path)
        try:
            if os.path.islink(full):
                yield self._link(path, os.readlink(full))
                return
            descriptor = open_beneath(self.root, path)
        except AccessDenied as exc:
            raise refuse("link-escapes", path) from exc
        except OSError as exc:
            raise _unreadable(full, exc) from exc
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise refuse("changed-while-read", path)
            left = info.st_size
            while chunk := os.read(descriptor, _CHUNK):
                left -= len(chunk)
                if left < 0:
                    break
                yield chunk
            if left:
                raise refuse("changed-while-read", path)
        except OSError as exc:
            raise _unreadable(full, exc) from exc
        finally:
            os.close(descriptor)

    def _link(self, path: str, text: str) -> bytes:
        """A link's text; one that names our own folder in full is said relative to it."""
        for base in self._bases:
            if text.startswith(base) and ".." not in text.split(os.sep):
                return os.fsencode(os.path.relpath(text[len(base) :], os.path.dirname(path) or "."))
        return os.fsencode(text)


class FolderSource:
    """Skills in a folder."""

    kind = "folder"

    def __init__(self, folder: str, url: str, path: str = "") -> None:
        self.folder = folder
        self.url = url
        self.path = path

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """List the folder.

        Raises:
            NotFound: there is no such folder.
            Unsafe: it is too large.
        """
        del progress
        if ref or commit:
            raise InvalidInput(
                say("`{path}` is a folder: it has no branches or tags", path=shown(self.folder)),
                say("Write `git+{path}` to read it as a repository", path=shown(self.folder)),
            )
        if not os.path.isdir(self.folder):
            raise NotFound(
                say("There is no folder `{path}`", path=shown(self.folder)), say("Check the path")
            )
        tree = LocalTree(self.folder)
        notes: tuple[str, ...] = ()
        if tree.ignored:
            names = listed(f"`{shown(one)}`" for one in sorted(tree.ignored)[:20])
            notes = (say("Left out: {names}", names=names),)
        name = os.path.basename(os.path.abspath(self.folder))
        yield Bundle(Place("folder", self.url, path=self.path), tree, notes, name)


def _unreadable(path: str, exc: OSError) -> Refused:
    return Refused(
        say("`{path}` cannot be read: {reason}", path=shown(path), reason=exc.strerror or exc),
        say("Check its permissions"),
    )


ENDINGS = re.compile(
    r"\.(?:zip|skill|tar|tgz|tbz2?|txz|tzst|tar\.(?:gz|bz2|xz|zst)|7z|rar)\Z", re.IGNORECASE
)
"""What an archive's name ends in. Its first bytes decide what it is."""


class ArchiveSource:
    """Skills in an archive."""

    kind = "archive"

    def __init__(self, file: str, url: str, path: str = "") -> None:
        self.file = file
        self.url = url
        self.path = path

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """Open the archive.

        Raises:
            Unsafe: it breaks a rule of the strict reader.
            NotFound: there is no such file.
        """
        del progress
        if ref or commit:
            raise InvalidInput(
                say("`{path}` is an archive: it has no branches or tags", path=shown(self.file)),
                say("Leave the ref out"),
            )
        with open_archive(self.file) as tree:
            notes: tuple[str, ...] = ()
            if tree.ignored:
                names = listed(f"`{shown(one)}`" for one in tree.ignored[:20])
                notes = (say("Left out: {names}", names=names),)
            name = ENDINGS.sub("", os.path.basename(self.file))
            yield Bundle(Place("archive", self.url, path=self.path), tree, notes, name)
