"""Which format is a file, and what does it contain?

The first bytes decide, never the name: a zip called `.tar.gz` is a zip.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Protocol

from satchel._language import say
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.store.archive.rules import BOUNDS, refuse, shown
from satchel.store.archive.tar import open_tar
from satchel.store.archive.tree import read_at
from satchel.store.archive.zip import open_zip

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.store.archive.rules import Bounds
    from satchel.store.archive.tree import ArchiveTree

_PACKED = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\0": "xz"}
_OTHERS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"\x1f\x9d": "compress",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x07\x08": "zip in parts",
    b"MSCF": "cab",
    b"xar!": "xar",
    b"LZIP": "lzip",
}


def open_archive(path: str, bounds: Bounds = BOUNDS, *, scratch: str | None = None) -> ArchiveTree:
    """Open a zip or a tar, compressed or not.

    Every header is checked at once; the content of a file when it is read.

    Args:
        path: The archive.
        bounds: How large it may be; a skill's own limits are for `subtree`.
        scratch: A folder on the disk that a compressed tar is unpacked to, unnamed.

    Raises:
        Unsafe: it breaks a rule.
        NotFound: there is no such file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise NotFound(
            say("There is no archive `{path}`", path=shown(path)), say("Check the path")
        ) from exc
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    try:
        return _open(descriptor, path, bounds, scratch)
    except BaseException as exc:
        os.close(descriptor)
        if isinstance(exc, OSError):  # such as a full disk
            raise _unreadable(path, exc) from exc
        raise


def _unreadable(path: str, exc: OSError) -> Refused:
    return Refused(
        say("`{path}` cannot be read: {reason}", path=shown(path), reason=exc.strerror or exc),
        say("Check its permissions, and the room for temporary files"),
    )


def _open(descriptor: int, path: str, bounds: Bounds, scratch: str | None) -> ArchiveTree:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise InvalidInput(
            say("`{path}` is not a regular file", path=shown(path)), say("Check the path")
        )
    head = read_at(descriptor, 512, 0)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return open_zip(descriptor, bounds)
    for mark, name in _OTHERS.items():
        if head.startswith(mark):
            raise refuse("unsupported-format", found=name)
    for mark, kind in _PACKED.items():
        if head.startswith(mark):
            return _open_packed(descriptor, kind, bounds, scratch)
    return _open_plain(descriptor, "tar", bounds)


def _open_plain(descriptor: int, kind: str, bounds: Bounds) -> ArchiveTree:
    head = read_at(descriptor, 512, 0)
    if head[257:262] != b"ustar" and head != bytes(512):
        raise refuse("not-an-archive", found="" if kind == "tar" else f"{kind} without a tar in it")
    return open_tar(descriptor, bounds, kind)


def _open_packed(descriptor: int, kind: str, bounds: Bounds, scratch: str | None) -> ArchiveTree:
    plain = unpack(descriptor, kind, bounds, scratch)
    try:
        tree = _open_plain(plain, f"tar.{kind}", bounds)
    except BaseException:
        os.close(plain)
        raise
    os.close(descriptor)
    return tree


_CHUNK = 256 << 10
_MAX_PARTS = 10_000
"""Parallel packers write a part for every 900 kB; a part can also be empty."""


class _Unpacker(Protocol):
    """The part of bz2's and lzma's interface that is used; zlib's is made to fit."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """zlib's decompressor with the interface of the other two."""

    def __init__(self) -> None:
        import zlib

        self._inner = zlib.decompressobj(31)
        self._tail = b""
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        chunk = self._inner.decompress(self._tail + data, max_length)
        self._tail = self._inner.unconsumed_tail
        # A full piece may mean that more is waiting inside.
        self.needs_input = not self._tail and len(chunk) < max_length
        return chunk


def unpack(descriptor: int, kind: str, bounds: Bounds, scratch: str | None = None) -> int:
    """Unpack a file into an unnamed one; returns its descriptor.

    Args:
        descriptor: The compressed file.
        kind: `gz`, `bz2` or `xz`.
        bounds: How much it may become.
        scratch: The folder whose disk holds the unnamed file; the system's own when None.

    Raises:
        Unsafe: it is damaged, incomplete, or grows beyond the bounds.
    """
    from tempfile import TemporaryFile

    with TemporaryFile(dir=scratch, buffering=0) as target:
        _pump(descriptor, _maker(kind, bounds), target.fileno(), bounds)
        return os.dup(target.fileno())


def _maker(kind: str, bounds: Bounds) -> Callable[[], _Unpacker]:
    if kind == "gz":
        return _Gzip
    if kind == "bz2":
        from bz2 import BZ2Decompressor

        return BZ2Decompressor
    from lzma import FORMAT_XZ, LZMADecompressor

    return lambda: LZMADecompressor(FORMAT_XZ, bounds.memory)


def _pump(descriptor: int, make: Callable[[], _Unpacker], target: int, bounds: Bounds) -> None:
    from lzma import LZMAError
    from zlib import error

    try:
        _copy(descriptor, make, target, bounds)
    except LZMAError as exc:
        raise refuse("memory" if "emory" in str(exc) else "damaged", found=str(exc)) from exc
    except MemoryError as exc:
        raise refuse("memory") from exc
    except (error, OSError, EOFError, ValueError) as exc:
        if isinstance(exc, OSError) and exc.errno is not None:
            raise  # the disk is full, not the archive broken
        raise refuse("damaged", found=str(exc)) from exc


def _copy(descriptor: int, make: Callable[[], _Unpacker], target: int, bounds: Bounds) -> None:
    unpacker = make()
    at = total = 0
    parts = 1
    data = b""
    while True:
        if not data and (unpacker.needs_input or unpacker.eof):
            data = read_at(descriptor, _CHUNK, at)
            at += len(data)
            if not data:
                break
        if unpacker.eof:
            parts += 1
            if parts > _MAX_PARTS:
                raise refuse("too-many-files", found=f"{_MAX_PARTS} compressed parts")
            unpacker = make()
        chunk = unpacker.decompress(data, _CHUNK)
        data = unpacker.unused_data if unpacker.eof else b""
        total += len(chunk)
        if total > bounds.size:
            raise refuse("too-large", found=f"{bounds.size >> 20} MiB")
        if total > max(bounds.total_floor, bounds.ratio * (at - len(data))):
            raise refuse("ratio", found=f"{total} : {at - len(data)}")
        _write(target, chunk)
    if not unpacker.eof:
        raise refuse("truncated")


def _write(target: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(target, view) :]
