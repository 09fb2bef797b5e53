"""What an archive looks like to the rest of Satchel: a tree of files that can be closed."""

from __future__ import annotations

import os
from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol, Self

from satchel.errors import NotFound
from satchel.skill.tree import File
from satchel.store.archive.rules import Names, ignored_part, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from satchel.store.archive.rules import Bounds

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
