"""Reads tar archives, and checks every header before any file is read.

Tar means ustar with pax and GNU names, regular files and folders. An extended header that
contradicts its entry makes two readers see different archives, so it is refused; so is a header
without an entry, a second one for the same entry, and anything after the end.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from satchel.store.archive.rules import (
    ArchiveTree,
    Contents,
    check_path,
    decode_path,
    read_at,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.store.archive.rules import ArchiveLimits

_BLOCK_BYTES = 512
_ZERO_BLOCK = bytes(_BLOCK_BYTES)
_BUFFER_BYTES = 1 << 20
_MAX_GLOBAL_HEADERS = 1000
_MAX_PAX_BYTES = 64 << 10
_MAX_NAME_BYTES = 4096
_OCTAL_NUMBER = re.compile(rb"[ ]*([0-7]*)[ \0]*\Z")
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,5}) ([^=\n]{1,255})=")
_PAX_UTF8 = b"ISO-IR 10646 2000 UTF-8"
_REFUSED_TYPES = {
    b"1": "link",
    b"2": "link",
    b"S": "sparse-file",
    b"M": "multi-part",
} | dict.fromkeys((b"3", b"4", b"6"), "special-file")


class _Header(NamedTuple):
    """A parsed header block."""

    name: bytes
    mode: int
    size: int
    """Bytes that follow it, without the padding of the last block."""
    type: bytes
    """`0` or NUL: a file. `5`: a folder. `x` and `g`: pax. `L` and `K`: a long name of GNU."""


class _ExtendedValues:
    """Values of extended headers for the next entry."""

    def __init__(self) -> None:
        self.name: bytes | None = None
        self.size: int | None = None
        self.types = b""
        """The types of the headers that were read."""

    def add_type(self, header_type: bytes) -> None:
        """Note the type of a header; a second one of it is refused."""
        if header_type in self.types or (header_type == b"L" and self.name is not None):
            raise refuse("tar-order", found=f"two headers of type {header_type.decode()}")
        self.types += header_type


def open_tar(descriptor: int, bounds: ArchiveLimits, kind: str) -> ArchiveTree:
    """Read and check all headers.

    Raises:
        Unsafe: it breaks a rule.
    """
    contents = Contents(bounds)
    positions: dict[str, tuple[int, int]] = {}
    with open(os.dup(descriptor), "rb", buffering=_BUFFER_BYTES) as stream:
        archive_size = os.fstat(descriptor).st_size
        stream.seek(0)
        extended_values = _ExtendedValues()
        position = global_header_count = 0
        while True:
            block = stream.read(_BLOCK_BYTES)
            position += _BLOCK_BYTES
            if len(block) < _BLOCK_BYTES:
                raise refuse("truncated", found="no end")
            if block == _ZERO_BLOCK:
                break
            header = _parse_header(block)
            padded_size = -(-header.size // _BLOCK_BYTES) * _BLOCK_BYTES
            if position + padded_size > archive_size:
                raise refuse("truncated", header.name.decode("ascii", "backslashreplace"))
            if header.type in b"xgLK":
                global_header_count += header.type == b"g"
                if global_header_count > _MAX_GLOBAL_HEADERS:
                    raise refuse("too-many-files", found="extended headers")
                _read_extended(header, stream.read(padded_size), extended_values)
            else:
                contents.count("", header.size)
                path = _add_entry(header, extended_values, contents)
                if path:
                    positions[path] = position, header.size
                extended_values = _ExtendedValues()
                if padded_size:
                    stream.seek(padded_size, os.SEEK_CUR)
            position += padded_size
        if extended_values.types:
            raise refuse("tar-order", found="a header without an entry")
        _check_end(stream.read(_BLOCK_BYTES), iter(lambda: stream.read(_BUFFER_BYTES), b""))

    def read(path: str) -> bytes:
        start, size = positions[path]
        return read_at(descriptor, size, start)

    return ArchiveTree(contents, kind, read, partial(os.close, descriptor))


def _check_end(block: bytes, chunks: Iterator[bytes]) -> None:
    """Check that a second block of zeros follows the first, and nothing but zeros behind it."""
    if block != _ZERO_BLOCK:
        raise refuse("truncated" if len(block) < _BLOCK_BYTES else "tar-header", found="no end")
    for data in chunks:
        if data.count(0) != len(data):
            raise refuse("trailing-data")


def _parse_header(block: bytes) -> _Header:
    """Parse a header block, whose fields have fixed positions."""
    checksum = block[148:156]
    if sum(block) - sum(checksum) + 8 * 32 != _parse_number(checksum):
        raise refuse("tar-header", found="checksum")
    magic = block[257:265]
    name, prefix = _parse_text(block[:100]), block[345:500]
    if magic == b"ustar\x0000":
        prefix = _parse_text(prefix)
    elif magic == b"ustar  \0" and prefix.count(0) == 155:
        prefix = b""
    else:
        # Older formats do not define where a name ends or what follows it.
        raise refuse("tar-header", name.decode("ascii", "backslashreplace"), "format")
    if prefix:
        name = prefix + b"/" + name
    return _Header(
        name, _parse_number(block[100:108]), _parse_number(block[124:136]), block[156:157]
    )


def _parse_text(field: bytes) -> bytes:
    """Return a field without the NUL bytes that fill it; other bytes behind them are refused."""
    text = field.rstrip(b"\0")
    if b"\0" in text:
        text = text.partition(b"\0")[0]
        raise refuse("tar-header", text.decode("ascii", "backslashreplace"), "bytes after a name")
    return text


def _parse_number(field: bytes) -> int:
    """Parse a number in octal digits, or in base 256."""
    if field[:1] == b"\x80":  # base 256, for numbers too large for octal digits
        return int.from_bytes(field[1:], "big")
    match = _OCTAL_NUMBER.match(field)
    if not match:
        raise refuse("tar-header", found="a number")
    return int(match.group(1) or b"0", 8)


def _read_extended(header: _Header, data: bytes, extended_values: _ExtendedValues) -> None:
    """Read an extended header: x and g are pax, L and K the long names of GNU."""
    limit = _MAX_PAX_BYTES if header.type in b"xg" else _MAX_NAME_BYTES
    if header.size > limit:
        raise refuse("tar-pax" if header.type in b"xg" else "path-too-long", found=str(header.size))
    data, padding = data[: header.size], data[header.size :]
    if padding.strip(b"\0"):
        raise refuse("hidden-data", found="padding of a header")
    if header.type == b"g":
        if extended_values.types:
            raise refuse("tar-order")
        _read_pax(data, is_global=True)
        return
    extended_values.add_type(header.type)
    if header.type == b"L":
        extended_values.name = _parse_text(data)
    elif header.type == b"x":
        values = _read_pax(data, is_global=False)
        if b"path" in values:
            if extended_values.name is not None:
                raise refuse("tar-order", found="two names")
            extended_values.name = values[b"path"]
        if b"size" in values:
            if not re.fullmatch(rb"[0-9]{1,20}", values[b"size"]):
                raise refuse("tar-pax", found="size")
            extended_values.size = int(values[b"size"])


def _read_pax(data: bytes, *, is_global: bool) -> dict[bytes, bytes]:
    """Parse the records of a pax header, `LENGTH KEY=VALUE` and a newline each."""
    values: dict[bytes, bytes] = {}
    position = 0
    while position < len(data):
        record = _PAX_RECORD.match(data, position)
        if not record:
            raise refuse("tar-pax")
        end = position + int(record.group(1))
        key, value = record.group(2), data[record.end() : end - 1]
        if end > len(data) or end <= record.end() or data[end - 1 : end] != b"\n" or key in values:
            raise refuse("tar-pax", found=key.decode("ascii", "backslashreplace"))
        if key.startswith(b"GNU.sparse") or key in (b"SCHILY.realsize", b"SUN.holesdata"):
            raise refuse("sparse-file")
        if is_global and key in (b"path", b"size", b"linkpath", b"hdrcharset"):
            raise refuse("tar-pax", found=f"global {key.decode()}")
        if key == b"hdrcharset" and value != _PAX_UTF8:
            raise refuse("path-encoding")
        values[key] = value
        position = end
    return values


def _add_entry(header: _Header, extended_values: _ExtendedValues, contents: Contents) -> str:
    """Check an entry and add it; returns its path, which is empty unless it is a file to read."""
    path = decode_path(header.name if extended_values.name is None else extended_values.name)
    if extended_values.size is not None and extended_values.size != header.size:
        raise refuse("header-differs", path, f"size {extended_values.size}, {header.size}")
    is_folder = header.type == b"5"
    if is_folder and path in {"./", "."}:
        return ""  # `tar -C folder .` names the folder itself
    path = path.removeprefix("./")
    if is_folder:
        path = path.removesuffix("/")
    check_path(path[:-1] if path.endswith("/") and path != "/" else path)
    if contents.skips(path):
        return ""
    _check_entry_type(header, path, extended_values)
    contents.add(path, header.size, folder=is_folder, program=bool(header.mode & 0o100))
    return "" if is_folder else path


def _check_entry_type(header: _Header, path: str, extended_values: _ExtendedValues) -> None:
    """Refuse entries that are neither a file nor a folder, or whose name says another type."""
    if header.type in _REFUSED_TYPES:
        raise refuse(_REFUSED_TYPES[header.type], path)
    if header.type not in (b"0", b"\0", b"5"):
        raise refuse("tar-type", path, ascii(header.type.decode("latin-1")))
    if b"K" in extended_values.types:
        raise refuse("tar-order", path, "a link's name")
    if path.endswith("/") or (header.type == b"5" and header.size):
        raise refuse("type-differs", path)
