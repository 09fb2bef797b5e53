"""How does a skill become one file that is the same on every machine?

Files are stored, not compressed: two builds of zlib pack the same text into different bytes, and
skills are small. Names are sorted, times and modes fixed, nothing about the machine is in it. What
is written here is read back by `store.archive`, with the same seal.
"""

from __future__ import annotations

import os
import zlib
from struct import pack
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.errors import InvalidInput
from satchel.store.archive.rules import check_path, refuse, shown
from satchel.store.sources.base import subtree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from satchel.skill.tree import File, Limits, Tree

_DAY = 33  # 1980-01-01, the first day a zip knows
_BLOCK = 512
_RECORD = 20 * _BLOCK
_MOST = 0xFFFF0000
"""Beyond this a zip needs other headers. No skill comes near."""


class Exported(NamedTuple):
    """A written archive."""

    path: str
    size: int
    digest: str
    """`sha256:…` of the archive itself."""
    notes: tuple[str, ...] = ()
    """What was left out, and which links became copies."""


def write_archive(
    tree: Tree, target: str, *, prefix: str = "", limits: Limits | None = None
) -> Exported:
    """Write a tree as `.zip`, `.tar` or `.tar.gz` (`.tgz`), as the target's name ends.

    Args:
        tree: The files; links become copies.
        target: The archive. It is replaced at once or not at all.
        prefix: A folder to put everything in, such as the skill's id.
        limits: Other limits than those of one skill.

    Raises:
        InvalidInput: the name ends in something else.
        Unsafe: a file has a name that no reader should accept.
        OSError: it cannot be written.
    """
    from hashlib import sha256

    form = _form(target)
    if prefix:
        check_path(prefix)
        prefix += "/"
    checked = subtree(tree) if limits is None else subtree(tree, "", limits)
    target = os.path.abspath(target)
    temporary = f"{target}.{os.getpid()}.{os.urandom(4).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(temporary, flags | getattr(os, "O_BINARY", 0), 0o644)
    try:
        with os.fdopen(descriptor, "w+b") as stream:
            form(stream, checked, prefix)
            stream.flush()
            os.fsync(stream.fileno())
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            total = sha256()
            while chunk := stream.read(1 << 20):
                total.update(chunk)
        os.replace(temporary, target)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    return Exported(target, size, f"sha256:{total.hexdigest()}", checked.notes)


def _form(target: str):  # noqa: ANN202 - one of three functions below
    name = os.path.basename(target).lower()
    for endings, form in (
        ((".zip", ".skill"), _write_zip),
        ((".tar.gz", ".tgz"), _write_gzip),
        ((".tar",), _write_tar),
    ):
        if name.endswith(endings):
            return form
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
        _same_size(file, size)
        end = stream.tell()
        if end > _MOST:
            raise InvalidInput(
                say("The archive would be larger than 4 GiB"), say("Export fewer skills at a time")
            )
        about = pack("<HHHHHIIIHH", 20, flags, 0, 0, _DAY, crc, size, size, len(name), 0)
        stream.seek(at)
        stream.write(b"PK\x03\x04" + about)
        stream.seek(end)
        mode = (0o100755 if file.mode == "program" else 0o100644) << 16
        made = pack("<H", 0x0314)  # by Unix, so that the right to execute is kept
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
            total += _BLOCK + len(_padded(record))
            name = b"pax/" + zlib.crc32(name).to_bytes(4, "big").hex().encode()
        yield _header(name, file.size, 0o755 if file.mode == "program" else 0o644, b"0")
        size = 0
        for chunk in tree.chunks(file.path):
            size += len(chunk)
            yield chunk
        _same_size(file, size)
        yield bytes(-size % _BLOCK)
        total += _BLOCK + size + -size % _BLOCK
    total += 2 * _BLOCK
    yield bytes(2 * _BLOCK + -total % _RECORD)


def _same_size(file: File, size: int) -> None:
    if size != file.size:
        raise refuse("changed-while-read", file.path)


def _pax(name: bytes) -> bytes:
    """A record that counts its own length."""
    rest = b" path=" + name + b"\n"
    size = len(rest) + 1
    while len(str(size)) + len(rest) != size:
        size = len(str(size)) + len(rest)
    return str(size).encode() + rest


def _header(name: bytes, size: int, mode: int, kind: bytes) -> bytes:
    block = bytearray(_BLOCK)
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
    return data + bytes(-len(data) % _BLOCK)


# --- gzip ---------------------------------------------------------------------------------


def _write_gzip(stream: IO[bytes], tree: Tree, prefix: str) -> None:
    """A gzip whose blocks are stored: the format every tool opens, without anybody's zlib."""
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
