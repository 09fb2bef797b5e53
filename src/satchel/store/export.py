"""Writes reproducible archives of skills.

Files are stored, not compressed: two builds of zlib compress the same text to different bytes, and
skills are small. Names are sorted, times and modes fixed. `store.archive` reads such an archive
with the same tree digest.
"""

from __future__ import annotations

import os
import zlib
from struct import pack
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import InvalidInput
from satchel.i18n import say
from satchel.skill.file_tree import LIMITS
from satchel.store.archive.rules import check_path, refuse, shown
from satchel.store.sources.base import subtree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

    from satchel.skill.file_tree import Tree, TreeFile, TreeLimits

_MIN_ZIP_DATE = 33  # 1980-01-01, the first day that a zip can hold
_TAR_BLOCK_BYTES = 512
_TAR_RECORD_BYTES = 20 * _TAR_BLOCK_BYTES
_MAX_ZIP_BYTES = 0xFFFF0000
"""A larger zip needs zip64 headers, which no skill comes near."""


class Exported(NamedTuple):
    """A written archive."""

    path: str
    size: int
    digest: str
    """`sha256:…` of the archive itself."""
    notes: tuple[str, ...] = ()
    """Files that were left out, and links that became copies."""


def write_archive(
    tree: Tree, target: str, *, prefix: str = "", limits: TreeLimits = LIMITS
) -> Exported:
    """Write a tree as `.zip`, `.tar` or `.tar.gz` (`.tgz`), and hash the archive.

    Args:
        tree: The files; links become copies.
        target: The archive. It is replaced atomically.
        prefix: A folder to put everything in, such as the skill's id.
        limits: The size limits.

    Raises:
        InvalidInput: the name has another ending.
        Unsafe: a file has a name that no reader should accept.
        OSError: it cannot be written.
    """
    from hashlib import file_digest

    target = os.path.abspath(target)
    notes = pack_tree(tree, target, prefix=prefix, limits=limits)
    with open(target, "rb") as stream:
        digest = file_digest(stream, "sha256").hexdigest()
        return Exported(target, stream.tell(), f"sha256:{digest}", notes)


def pack_tree(
    tree: Tree, target: str, *, prefix: str = "", limits: TreeLimits = LIMITS
) -> tuple[str, ...]:
    """`write_archive` without hashing the archive; returns notes."""
    write = _writer_for(target)
    if prefix:
        check_path(prefix)
        prefix += "/"
    checked = subtree(tree, "", limits)
    temporary = f"{target}.{os.getpid()}.{os.urandom(4).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(temporary, flags | getattr(os, "O_BINARY", 0), 0o644)
    try:
        with os.fdopen(descriptor, "w+b") as stream:
            write(stream, checked, prefix)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    return checked.notes


def _writer_for(target: str) -> Callable[[IO[bytes], Tree, str], None]:
    name = os.path.basename(target).lower()
    for endings, write in (
        ((".zip", ".skill"), _write_zip),
        ((".tar.gz", ".tgz"), _write_gzip),
        ((".tar",), _write_tar),
    ):
        if name.endswith(endings):
            return write
    raise InvalidInput(
        say("`{path}` does not say which kind of archive it is to be", path=shown(target)),
        say("Let the name end in `.zip`, `.tar.gz` or `.tar`"),
    )


# --- zip ----------------------------------------------------------------------------------


def _write_zip(stream: IO[bytes], tree: Tree, prefix: str) -> None:
    directory: list[bytes] = []
    for file in tree.files:
        name = (prefix + file.path).encode()
        flags = 0 if name.isascii() else 0x0800
        at = stream.tell()
        stream.write(bytes(30) + name)
        crc = size = 0
        for chunk in tree.chunks(file.path):
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
            stream.write(chunk)
        _check_size(file, size)
        end = stream.tell()
        if end > _MAX_ZIP_BYTES:
            raise InvalidInput(
                say("The archive would be larger than 4 GiB"), say("Export fewer skills at a time")
            )
        about = pack("<HHHHHIIIHH", 20, flags, 0, 0, _MIN_ZIP_DATE, crc, size, size, len(name), 0)
        stream.seek(at)
        stream.write(b"PK\x03\x04" + about)
        stream.seek(end)
        mode = (0o100755 if file.mode == "program" else 0o100644) << 16
        made = pack("<H", 0x0314)  # made on Unix, so that the executable bit counts
        directory.append(b"PK\x01\x02" + made + about + pack("<HHHII", 0, 0, 0, mode, at) + name)
    _end_zip(stream, directory)


def _end_zip(stream: IO[bytes], directory: list[bytes]) -> None:
    start = stream.tell()
    for row in directory:
        stream.write(row)
    end = stream.tell()
    count = len(directory)
    if count >= 0xFFFF:
        sizes = (count, count, end - start, start)
        stream.write(pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 0x032D, 45, 0, 0, *sizes))
        stream.write(pack("<4sIQI", b"PK\x06\x07", 0, end, 1))
        count = 0xFFFF
    stream.write(pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, end - start, start, 0))


# --- tar ----------------------------------------------------------------------------------


def _write_tar(stream: IO[bytes], tree: Tree, prefix: str) -> None:
    for piece in _tar(tree, prefix):
        stream.write(piece)


def _tar(tree: Tree, prefix: str) -> Iterator[bytes]:
    total = 0
    for file in tree.files:
        name = (prefix + file.path).encode()
        if len(name) > 100 or not name.isascii():
            record = _pax(name)
            yield _header(b"pax/path", len(record), 0o644, b"x") + _padded(record)
            total += _TAR_BLOCK_BYTES + len(_padded(record))
            name = b"pax/" + zlib.crc32(name).to_bytes(4, "big").hex().encode()
        yield _header(name, file.size, 0o755 if file.mode == "program" else 0o644, b"0")
        size = 0
        for chunk in tree.chunks(file.path):
            size += len(chunk)
            yield chunk
        _check_size(file, size)
        yield bytes(-size % _TAR_BLOCK_BYTES)
        total += _TAR_BLOCK_BYTES + size + -size % _TAR_BLOCK_BYTES
    total += 2 * _TAR_BLOCK_BYTES
    yield bytes(2 * _TAR_BLOCK_BYTES + -total % _TAR_RECORD_BYTES)


def _check_size(file: TreeFile, size: int) -> None:
    if size != file.size:
        raise refuse("changed-while-read", file.path)


def _pax(name: bytes) -> bytes:
    """A pax record with the path; its length includes the digits of the length."""
    rest = b" path=" + name + b"\n"
    size = len(rest) + 1
    while len(str(size)) + len(rest) != size:
        size = len(str(size)) + len(rest)
    return str(size).encode() + rest


def _header(name: bytes, size: int, mode: int, kind: bytes) -> bytes:
    block = bytearray(_TAR_BLOCK_BYTES)
    block[0 : len(name)] = name
    for at, width, value in (
        (100, 8, mode),
        (108, 8, 0),
        (116, 8, 0),
        (124, 12, size),
        (136, 12, 0),
    ):
        block[at : at + width] = b"%0*o\0" % (width - 1, value)
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[329:345] = b"0000000\x000000000\0"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _TAR_BLOCK_BYTES)


# --- gzip ---------------------------------------------------------------------------------


def _write_gzip(stream: IO[bytes], tree: Tree, prefix: str) -> None:
    """Write a gzip of stored blocks, which does not depend on the version of zlib."""
    stream.write(b"\x1f\x8b\x08\0\0\0\0\0\0\xff")
    crc = size = 0
    waiting = bytearray()
    for piece in _tar(tree, prefix):
        crc = zlib.crc32(piece, crc)
        size += len(piece)
        waiting += piece
        while len(waiting) > 0xFFFF:
            stream.write(pack("<BHH", 0, 0xFFFF, 0))
            stream.write(waiting[:0xFFFF])
            del waiting[:0xFFFF]
    stream.write(pack("<BHH", 1, len(waiting), len(waiting) ^ 0xFFFF))
    stream.write(waiting)
    stream.write(pack("<II", crc, size & 0xFFFFFFFF))
