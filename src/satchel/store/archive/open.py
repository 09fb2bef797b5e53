"""Opens archives by their content, and reads tar.

Tar means ustar with pax and GNU names, regular files and folders. An extended header that
contradicts its entry makes two readers see different archives, so it is refused; so is a header
without an entry, a second one for the same entry, and anything after the end.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from contextlib import contextmanager
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import InvalidInput, NotFound
from satchel.i18n import say
from satchel.store.archive.rules import (
    BOUNDS,
    ArchiveReader,
    ArchiveTree,
    Contents,
    check_path,
    decode_path,
    read_at,
    refuse,
    shown,
    unreadable,
)
from satchel.store.archive.zip import open_zip

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from satchel.store.archive.rules import ArchiveLimits

_BLOCK_BYTES = 512
_ZERO = bytes(_BLOCK_BYTES)
_BUFFER_BYTES = 1 << 20
_MAX_GLOBAL_HEADERS = 1000
_MAX_PAX_BYTES = 64 << 10
_MAX_NAME_BYTES = 4096
_OCTAL = re.compile(rb"[ ]*([0-7]*)[ \0]*\Z")
_RECORD = re.compile(rb"([1-9][0-9]{0,5}) ([^=\n]{1,255})=")
_UTF8 = b"ISO-IR 10646 2000 UTF-8"
_SPECIAL = {b"1": "link", b"2": "link", b"S": "sparse-file", b"M": "multi-part"} | dict.fromkeys(
    (b"3", b"4", b"6"), "special-file"
)


class _Header(NamedTuple):
    """A parsed header block."""

    name: bytes
    mode: int
    size: int
    kind: bytes


class _Pending:
    """Values of extended headers for the next entry."""

    def __init__(self) -> None:
        self.name: bytes | None = None
        self.size: int | None = None
        self.seen = b""

    def note(self, kind: bytes) -> None:
        if kind in self.seen or (kind == b"L" and self.name is not None):
            raise refuse("tar-order", found=f"two headers of type {kind.decode()}")
        self.seen += kind


def open_tar(descriptor: int, bounds: ArchiveLimits, kind: str) -> ArchiveTree:
    """Read and check all headers.

    Raises:
        Unsafe: it breaks a rule.
    """
    contents = Contents(bounds)
    reader = _TarReader(descriptor)
    with open(os.dup(descriptor), "rb", buffering=_BUFFER_BYTES) as stream:
        length = os.fstat(descriptor).st_size
        stream.seek(0)
        pending = _Pending()
        at = extended = 0
        while True:
            block = stream.read(_BLOCK_BYTES)
            at += _BLOCK_BYTES
            if len(block) < _BLOCK_BYTES:
                raise refuse("truncated", found="no end")
            if block == _ZERO:
                break
            header = _parse(block)
            room = -(-header.size // _BLOCK_BYTES) * _BLOCK_BYTES
            if at + room > length:
                raise refuse("truncated", header.name.decode("ascii", "backslashreplace"))
            if header.kind in b"xgLK":
                extended += header.kind == b"g"
                if extended > _MAX_GLOBAL_HEADERS:
                    raise refuse("too-many-files", found="extended headers")
                _read_extended(header, stream.read(room), pending)
            else:
                contents.count("", header.size)
                _add_entry(header, at, pending, contents, reader)
                pending = _Pending()
                if room:
                    stream.seek(room, os.SEEK_CUR)
            at += room
        if pending.seen:
            raise refuse("tar-order", found="a header without an entry")
        _check_end(stream.read(_BLOCK_BYTES), iter(lambda: stream.read(_BUFFER_BYTES), b""))
    return ArchiveTree(contents, reader, kind)


def _check_end(second: bytes, rest: Iterator[bytes]) -> None:
    if second != _ZERO:
        raise refuse("truncated" if len(second) < _BLOCK_BYTES else "tar-header", found="no end")
    for data in rest:
        if data.count(0) != len(data):
            raise refuse("trailing-data")


def _parse(block: bytes) -> _Header:
    checksum = block[148:156]
    if sum(block) - sum(checksum) + 8 * 32 != _number(checksum):
        raise refuse("tar-header", found="checksum")
    magic = block[257:265]
    name, prefix = _text(block[:100]), block[345:500]
    if magic == b"ustar\x0000":
        prefix = _text(prefix)
    elif magic == b"ustar  \0" and prefix.count(0) == 155:
        prefix = b""
    else:
        # Older formats do not define where a name ends or what follows it.
        raise refuse("tar-header", name.decode("ascii", "backslashreplace"), "format")
    if prefix:
        name = prefix + b"/" + name
    return _Header(name, _number(block[100:108]), _number(block[124:136]), block[156:157])


def _text(field: bytes) -> bytes:
    text = field.rstrip(b"\0")
    if b"\0" in text:
        text = text.partition(b"\0")[0]
        raise refuse("tar-header", text.decode("ascii", "backslashreplace"), "bytes after a name")
    return text


def _number(field: bytes) -> int:
    if field[:1] == b"\x80":  # base 256, for numbers too large for octal digits
        return int.from_bytes(field[1:], "big")
    found = _OCTAL.match(field)
    if not found:
        raise refuse("tar-header", found="a number")
    return int(found.group(1) or b"0", 8)


def _read_extended(header: _Header, data: bytes, pending: _Pending) -> None:
    """Read an extended header: x and g are pax, L and K the long names of GNU."""
    limit = _MAX_PAX_BYTES if header.kind in b"xg" else _MAX_NAME_BYTES
    if header.size > limit:
        raise refuse("tar-pax" if header.kind in b"xg" else "path-too-long", found=str(header.size))
    data, padding = data[: header.size], data[header.size :]
    if padding.strip(b"\0"):
        raise refuse("hidden-data", found="padding of a header")
    if header.kind == b"g":
        if pending.seen:
            raise refuse("tar-order")
        _read_pax(data, glob=True)
        return
    pending.note(header.kind)
    if header.kind == b"L":
        pending.name = _text(data)
    elif header.kind == b"x":
        values = _read_pax(data, glob=False)
        if b"path" in values:
            if pending.name is not None:
                raise refuse("tar-order", found="two names")
            pending.name = values[b"path"]
        if b"size" in values:
            if not re.fullmatch(rb"[0-9]{1,20}", values[b"size"]):
                raise refuse("tar-pax", found="size")
            pending.size = int(values[b"size"])


def _read_pax(data: bytes, *, glob: bool) -> dict[bytes, bytes]:
    values: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        found = _RECORD.match(data, at)
        if not found:
            raise refuse("tar-pax")
        end = at + int(found.group(1))
        key, value = found.group(2), data[found.end() : end - 1]
        if end > len(data) or end <= found.end() or data[end - 1 : end] != b"\n" or key in values:
            raise refuse("tar-pax", found=key.decode("ascii", "backslashreplace"))
        if key.startswith(b"GNU.sparse") or key in (b"SCHILY.realsize", b"SUN.holesdata"):
            raise refuse("sparse-file")
        if glob and key in (b"path", b"size", b"linkpath", b"hdrcharset"):
            raise refuse("tar-pax", found=f"global {key.decode()}")
        if key == b"hdrcharset" and value != _UTF8:
            raise refuse("path-encoding")
        values[key] = value
        at = end
    return values


def _add_entry(
    header: _Header, at: int, pending: _Pending, contents: Contents, reader: _TarReader
) -> None:
    path = decode_path(header.name if pending.name is None else pending.name)
    if pending.size is not None and pending.size != header.size:
        raise refuse("header-differs", path, f"size {pending.size}, {header.size}")
    folder = header.kind == b"5"
    if folder and path in {"./", "."}:
        return  # `tar -C folder .` names the folder itself
    path = path.removeprefix("./")
    if folder:
        path = path.removesuffix("/")
    check_path(path[:-1] if path.endswith("/") and path != "/" else path)
    if contents.skips(path):
        return
    if header.kind in _SPECIAL:
        raise refuse(_SPECIAL[header.kind], path)
    if header.kind not in (b"0", b"\0", b"5"):
        raise refuse("tar-type", path, ascii(header.kind.decode("latin-1")))
    if b"K" in pending.seen:
        raise refuse("tar-order", path, "a link's name")
    if path.endswith("/") or (folder and header.size):
        raise refuse("type-differs", path)
    contents.add(path, header.size, folder=folder, program=bool(header.mode & 0o100))
    if not folder:
        reader.places[path] = (at, header.size)


class _TarReader(ArchiveReader):
    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self.places: dict[str, tuple[int, int]] = {}

    def chunks(self, path: str) -> Iterator[bytes]:
        at, size = self.places[path]
        return self.read_range(path, at, at + size)


_UNSUPPORTED = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"PK\x07\x08": "zip in parts",
}


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
    head = read_at(descriptor, 512, 0)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return open_zip(descriptor, bounds)
    for mark, name in _UNSUPPORTED.items():
        if head.startswith(mark):
            raise refuse("unsupported-format", found=name)
    if head.startswith(b"\x1f\x8b"):
        return _open_packed(descriptor, bounds)
    return _open_plain(descriptor, "tar", bounds)


def _open_plain(descriptor: int, kind: str, bounds: ArchiveLimits) -> ArchiveTree:
    head = read_at(descriptor, 512, 0)
    if head[257:262] != b"ustar" and head != bytes(512):
        raise refuse("not-an-archive", found="" if kind == "tar" else f"{kind} without a tar in it")
    return open_tar(descriptor, bounds, kind)


def _open_packed(descriptor: int, bounds: ArchiveLimits) -> ArchiveTree:
    with TemporaryFile(buffering=0) as target:
        _unpack(descriptor, target.fileno(), bounds)
        plain = os.dup(target.fileno())
    try:
        tree = _open_plain(plain, "tar.gz", bounds)
    except BaseException:
        os.close(plain)
        raise
    os.close(descriptor)
    return tree


_CHUNK_BYTES = 256 << 10


def _unpack(descriptor: int, target: int, bounds: ArchiveLimits) -> None:
    """Decompress a gzip of one stream.

    Raises:
        Unsafe: it is damaged, incomplete, or grows beyond the bounds.
    """
    unpacker = zlib.decompressobj(31)
    at = total = 0
    data, more = b"", False
    while not unpacker.eof:
        if not data and not more:
            data = read_at(descriptor, _CHUNK_BYTES, at)
            at += len(data)
            if not data:
                raise refuse("truncated")
        try:
            chunk = unpacker.decompress(data, _CHUNK_BYTES)
        except zlib.error as exc:
            raise refuse("damaged", found=str(exc)) from exc
        data = unpacker.unconsumed_tail
        more = len(chunk) == _CHUNK_BYTES  # after a full piece there may be more output
        total += len(chunk)
        if total > bounds.size:
            raise refuse("too-large", found=f"{bounds.size >> 20} MiB")
        if total > max(bounds.total_floor, bounds.ratio * at):
            raise refuse("ratio", found=f"{total} : {at}")
        view = memoryview(chunk)
        while view:
            view = view[os.write(target, view) :]
    if unpacker.unused_data or read_at(descriptor, 1, at):
        raise refuse("trailing-data")
