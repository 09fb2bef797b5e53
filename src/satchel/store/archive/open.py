"""Opens zip, tar and tar.gz archives; their content, not their name, decides which they are."""

from __future__ import annotations

import os
import stat
import zlib
from contextlib import contextmanager
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING

from satchel.errors import InvalidInput, NotFound
from satchel.i18n import say
from satchel.store.archive.rules import (
    BOUNDS,
    read_at,
    refuse,
    shown,
    unreadable,
)
from satchel.store.archive.tar import open_tar
from satchel.store.archive.zip import open_zip

if TYPE_CHECKING:
    from collections.abc import Generator

    from satchel.store.archive.rules import (
        ArchiveLimits,
        ArchiveTree,
    )

_MAGIC_BYTES_COUNT = 512
"""Bytes at the start that show the format; a tar has its magic number in its first block."""
_CHUNK_BYTES = 256 << 10
_UNSUPPORTED_FORMATS = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"PK\x07\x08": "zip in parts",
}
"""First bytes of formats that are not read, with their names."""


def open_archive(path: str, bounds: ArchiveLimits = BOUNDS) -> ArchiveTree:
    """Open a zip, a tar or a tar.gz.

    All headers are checked here, the content of a file when it is read.

    Raises:
        Unsafe: it breaks a rule.
        NotFound: there is no such file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise NotFound(
            say("There is no `{path}`", path=shown(path)), say("Check the path")
        ) from exc
    except OSError as exc:
        raise unreadable(path, exc) from exc
    try:
        return _open(descriptor, path, bounds)
    except BaseException as exc:
        os.close(descriptor)
        if isinstance(exc, OSError):  # such as a full disk
            raise unreadable(path, exc) from exc
        raise


@contextmanager
def open_packed(data: bytes) -> Generator[ArchiveTree]:
    """Open an archive that is in memory."""
    with TemporaryDirectory(prefix="satchel-") as folder:
        path = os.path.join(folder, "skill")
        with open(path, "wb") as stream:
            stream.write(data)
        with open_archive(path) as tree:
            yield tree


def _open(descriptor: int, path: str, bounds: ArchiveLimits) -> ArchiveTree:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise InvalidInput(
            say("`{path}` is not a regular file", path=shown(path)), say("Check the path")
        )
    head = read_at(descriptor, _MAGIC_BYTES_COUNT, 0)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return open_zip(descriptor, bounds)
    for magic, name in _UNSUPPORTED_FORMATS.items():
        if head.startswith(magic):
            raise refuse("unsupported-format", found=name)
    if head.startswith(b"\x1f\x8b"):
        return _open_gzip(descriptor, bounds)
    return _open_tar(descriptor, "tar", bounds)


def _open_tar(descriptor: int, kind: str, bounds: ArchiveLimits) -> ArchiveTree:
    head = read_at(descriptor, _MAGIC_BYTES_COUNT, 0)
    if head[257:262] != b"ustar" and head != bytes(_MAGIC_BYTES_COUNT):
        raise refuse("not-an-archive", found="" if kind == "tar" else f"{kind} without a tar in it")
    return open_tar(descriptor, bounds, kind)


def _open_gzip(descriptor: int, bounds: ArchiveLimits) -> ArchiveTree:
    """Open a tar.gz, decompressed to a temporary file without a name."""
    with TemporaryFile(buffering=0) as target:
        _decompress(descriptor, target.fileno(), bounds)
        tar_descriptor = os.dup(target.fileno())
    try:
        tree = _open_tar(tar_descriptor, "tar.gz", bounds)
    except BaseException:
        os.close(tar_descriptor)
        raise
    os.close(descriptor)
    return tree


def _decompress(descriptor: int, target: int, bounds: ArchiveLimits) -> None:
    """Decompress a gzip of one stream.

    Raises:
        Unsafe: it is damaged, incomplete, or grows beyond the bounds.
    """
    decompressor = zlib.decompressobj(31)
    position = total = 0
    data, has_pending_output = b"", False
    while not decompressor.eof:
        if not data and not has_pending_output:
            data = read_at(descriptor, _CHUNK_BYTES, position)
            position += len(data)
            if not data:
                raise refuse("truncated")
        try:
            chunk = decompressor.decompress(data, _CHUNK_BYTES)
        except zlib.error as exc:
            raise refuse("damaged", found=str(exc)) from exc
        data = decompressor.unconsumed_tail
        has_pending_output = len(chunk) == _CHUNK_BYTES
        total += len(chunk)
        if total > bounds.size:
            raise refuse("too-large", found=f"{bounds.size >> 20} MiB")
        if total > max(bounds.total_floor, bounds.ratio * position):
            raise refuse("ratio", found=f"{total} : {position}")
        unwritten = memoryview(chunk)
        while unwritten:
            unwritten = unwritten[os.write(target, unwritten) :]
    if decompressor.unused_data or read_at(descriptor, 1, position):
        raise refuse("trailing-data")
