"""How is a compressed tar made readable at any place without running out of anything?

It is unpacked once into a file without a name, which vanishes with its descriptor. On the way the
ratio, the size, the number of parts and the memory of the decompressor are bounded.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from satchel.store.archive.pieces import read_at
from satchel.store.archive.rules import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.store.archive.rules import Bounds

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
