"""A strict zip reader that refuses archives with contradictory headers.

A zip holds all metadata twice, and readers that use different copies see different files, so that a
scan could see other content than the disk gets. Here the end record, the central directory and each
local header must agree, and the entries must fill the file from its first byte to the directory
without a gap or an overlap. Zip64, for archives above 4 GB, is refused.
"""

from __future__ import annotations

import os
import zlib
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from satchel.store.archive.rules import (
    ArchiveReader,
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

_CENTRAL = Struct("<4s6H3I5H2I")
_LOCAL = Struct("<4s5H3I2H")
_MAX_UINT32 = 0xFFFFFFFF
_MAX_UINT16 = 0xFFFF
_ENCRYPTED_FLAGS = 0x2041  # plain, strong, and masked headers
_DESCRIPTOR_FLAG = 0x0008
_UTF8_FLAG = 0x0800
_UTF8_SYSTEMS = frozenset((3, 19))
"""Systems whose `zip` writes UTF-8 names and does not set the flag: Unix and macOS."""
_KNOWN_FLAGS = _DESCRIPTOR_FLAG | _UTF8_FLAG | 0x0006  # how hard deflate tried
_COMPARED_FLAGS = _DESCRIPTOR_FLAG | _UTF8_FLAG
_STORED_METHOD, _DEFLATED_METHOD = 0, 8
_CHUNK_BYTES = 64 << 10
_BUFFER_BYTES = 1 << 20
_AES_EXTRA, _ZIP64_EXTRA, _UNICODE_PATH_EXTRA = 0x9901, 0x0001, 0x7075
_TYPE_MASK, _FILE_TYPE, _FOLDER_TYPE, _LINK_TYPE = 0o170000, 0o100000, 0o040000, 0o120000


class _Entry(NamedTuple):
    """One row of the central directory."""

    path: str
    raw: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    at: int
    """Offset of its local header."""


class _EntryPlace(NamedTuple):
    """The position of an entry's content."""

    at: int
    packed: int
    size: int
    crc: int
    deflated: bool


def open_zip(descriptor: int, bounds: ArchiveLimits) -> ArchiveTree:
    """Read the central directory and check it against the whole file.

    Raises:
        Unsafe: it breaks a rule.
    """
    length = os.fstat(descriptor).st_size
    places: dict[str, _EntryPlace] = {}
    contents = Contents(bounds)
    start, end, count = find_directory(descriptor, length)
    if count > bounds.entries:
        raise refuse("too-many-files", found=f"{count} > {bounds.entries}")
    rows = _read_directory(descriptor, start, end, count, contents, places)
    if contents.size > max(bounds.total_floor, bounds.ratio * length):
        raise refuse("ratio", found=f"{contents.size} : {length}")
    rows.sort(key=lambda row: row.at)
    borders = [*(row.at for row in rows), start]
    if borders[0]:
        raise refuse("hidden-data", found="before the first entry")
    for entry, following in zip(rows, borders[1:], strict=True):
        if entry.at >= start:
            raise refuse("header-differs", entry.path, "no local header")
        place = _check_local(descriptor, entry, following, bounds)
        if entry.path in places:
            places[entry.path] = place
    return ArchiveTree(contents, _ZipReader(descriptor, places), "zip")


def _read_directory(
    descriptor: int,
    start: int,
    end: int,
    count: int,
    contents: Contents,
    places: dict[str, _EntryPlace],
) -> list[_Entry]:
    rows: list[_Entry] = []
    with open(os.dup(descriptor), "rb", buffering=_BUFFER_BYTES) as stream:
        stream.seek(start)
        at = start
        for _ in range(count):
            head = stream.read(_CENTRAL.size)
            if at + _CENTRAL.size > end or head[:4] != b"PK\x01\x02":
                raise refuse("zip-count", found=f"{len(rows)} < {count}")
            fields = _CENTRAL.unpack(head)
            lengths = fields[10:13]
            at += _CENTRAL.size + sum(lengths)
            if at > end:
                raise refuse("zip-count", found=f"{len(rows)} < {count}")
            raw = stream.read(lengths[0])
            extra = stream.read(lengths[1])
            stream.seek(lengths[2], os.SEEK_CUR)
            rows.append(_row(fields, raw, extra, contents, places))
    if at != end:
        raise refuse("hidden-data", found="central directory")
    return rows


def _row(
    fields: tuple[int, ...],
    raw: bytes,
    extra: bytes,
    contents: Contents,
    places: dict[str, _EntryPlace],
) -> _Entry:
    _, made, _, flags, method, _, _, crc, packed, size, _, _, _, disk, _, outside, at = fields
    path = _path(raw, flags, made >> 8)
    _check_extras(path, raw, extra)
    if _MAX_UINT32 in (packed, size, at) or disk == _MAX_UINT16:
        raise refuse("zip64", path, "zip64")
    contents.count(path, size)
    _check_features(path, flags, method, disk)
    folder = path.endswith("/")
    name = path[:-1] if folder else path
    check_path(name)
    if not contents.skips(name):
        _check_kind(name, folder, made >> 8, outside)
        if folder and (size or crc):
            raise refuse("type-differs", name, "a folder with content")
        contents.add(name, size, folder=folder, program=bool(outside >> 16 & 0o100))
        if not folder:
            places[path] = _EntryPlace(0, 0, 0, 0, deflated=False)
    return _Entry(path, raw, flags, method, crc, packed, size, at)


def _path(raw: bytes, flags: int, system: int) -> str:
    """The name of an entry. Only zips of Unix and macOS may have UTF-8 without the flag."""
    if not (flags & _UTF8_FLAG or raw.isascii() or (system in _UTF8_SYSTEMS and _is_utf8(raw))):
        # Readers guess different encodings, and so see different names.
        raise refuse("zip-encoding", raw.decode(errors="backslashreplace"))
    return decode_path(raw)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_features(path: str, flags: int, method: int, disk: int) -> None:
    if flags & _ENCRYPTED_FLAGS or method == 99:
        raise refuse("encrypted", path)
    if flags & ~_KNOWN_FLAGS:
        raise refuse("zip-flags", path, f"{flags:#06x}")
    if method not in (_STORED_METHOD, _DEFLATED_METHOD):
        raise refuse("method", path, str(method))
    if disk:
        raise refuse("multi-part", path)


def _check_kind(path: str, folder: bool, system: int, outside: int) -> None:  # noqa: FBT001 - one caller
    kind = outside >> 16 & _TYPE_MASK
    if kind == _LINK_TYPE:
        raise refuse("link", path)
    if kind not in (0, _FILE_TYPE, _FOLDER_TYPE):
        raise refuse("special-file", path)
    # Unix writers set the kind of file, all others the folder bit of DOS.
    said = kind == _FOLDER_TYPE if kind else folder
    if said != folder or (outside & 0x10 and not folder) or (outside & 0x08 and system == 0):
        raise refuse("type-differs", path)


def _check_extras(path: str, raw: bytes, extra: bytes) -> None:
    """Refuse additional fields that are cut off, or that say something else than the header."""
    at = 0
    while at < len(extra):
        key = int.from_bytes(extra[at : at + 2], "little")
        size = int.from_bytes(extra[at + 2 : at + 4], "little")
        at += 4 + size
        if at > len(extra):
            raise refuse("zip-extra", path)
        data = extra[at - size : at]
        if key == _AES_EXTRA:
            raise refuse("encrypted", path)
        if key == _ZIP64_EXTRA:
            raise refuse("zip64", path, "zip64")
        if key == _UNICODE_PATH_EXTRA and (data[:1] != b"\x01" or data[5:] != raw):
            raise refuse("header-differs", path, "a second name")


def _check_local(
    descriptor: int, entry: _Entry, following: int, bounds: ArchiveLimits
) -> _EntryPlace:
    """Compare an entry with its local header, and locate its content."""
    want = _LOCAL.size + len(entry.raw)
    head = read_at(descriptor, want, entry.at)
    if len(head) < want or head[:4] != b"PK\x03\x04":
        raise refuse("header-differs", entry.path, "no local header")
    _, _, flags, method, _, _, crc, packed, size, name_size, extra_size = _LOCAL.unpack_from(head)
    if name_size != len(entry.raw) or head[_LOCAL.size :] != entry.raw:
        raise refuse("header-differs", entry.path, "name")
    if method != entry.method or (flags ^ entry.flags) & _COMPARED_FLAGS:
        raise refuse("header-differs", entry.path, "method or flags")
    _check_features(entry.path, flags, method, 0)
    begin = entry.at + want + extra_size
    end = begin + entry.packed
    if end > following:
        raise refuse("overlap", entry.path)
    _check_extras(entry.path, entry.raw, read_at(descriptor, extra_size, entry.at + want))
    late = bool(flags & _DESCRIPTOR_FLAG)
    for here, there in ((crc, entry.crc), (packed, entry.packed), (size, entry.size)):
        if here != there and not (late and here == 0):  # a data descriptor follows
            raise refuse("header-differs", entry.path, "size or checksum")
    if late:
        end += _check_descriptor(descriptor, entry, end, following - end)
    if end != following:
        raise refuse("hidden-data", entry.path)
    deflated = method == _DEFLATED_METHOD
    if not deflated and entry.packed != entry.size:
        raise refuse("size-differs", entry.path)
    if entry.size > max(bounds.file_floor, bounds.ratio * entry.packed):
        raise refuse("ratio", entry.path, f"{entry.size} : {entry.packed}")
    return _EntryPlace(begin, entry.packed, entry.size, entry.crc, deflated)


def _check_descriptor(descriptor: int, entry: _Entry, at: int, room: int) -> int:
    """The length of the data descriptor, which must repeat the values of the directory."""
    if room not in (12, 16):
        raise refuse("header-differs" if room < 12 else "hidden-data", entry.path, "descriptor")
    values = (entry.crc, entry.packed, entry.size)
    expected = b"".join(value.to_bytes(4, "little") for value in values)
    if read_at(descriptor, room, at) != b"PK\x07\x08"[: room - 12] + expected:
        raise refuse("header-differs", entry.path, "descriptor")
    return room


class _ZipReader(ArchiveReader):
    def __init__(self, descriptor: int, places: dict[str, _EntryPlace]) -> None:
        super().__init__(descriptor)
        self._places = places

    def chunks(self, path: str) -> Iterator[bytes]:
        return self._checked(path, self._places[path])

    def _checked(self, path: str, place: _EntryPlace) -> Iterator[bytes]:
        crc = total = 0
        source = self._inflated(path, place) if place.deflated else self._packed(path, place)
        for chunk in source:
            total += len(chunk)
            if total > place.size:
                raise refuse("size-differs", path)
            crc = zlib.crc32(chunk, crc)
            # The last piece is yielded only when the checksum is right.
            if total == place.size and crc != place.crc:
                raise refuse("damaged", path)
            yield chunk
        if total != place.size:
            raise refuse("size-differs", path)
        if crc != place.crc:
            raise refuse("damaged", path)

    def _packed(self, path: str, place: _EntryPlace) -> Iterator[bytes]:
        return self.read_range(path, place.at, place.at + place.packed)

    def _inflated(self, path: str, place: _EntryPlace) -> Iterator[bytes]:
        unpacker = zlib.decompressobj(-15)
        try:
            for data in self._packed(path, place):
                if unpacker.eof:
                    raise refuse("hidden-data", path)
                while data:
                    if chunk := unpacker.decompress(data, _CHUNK_BYTES):
                        yield chunk
                    data = unpacker.unconsumed_tail  # noqa: PLW2901 - what is left of it
        except zlib.error as exc:
            raise refuse("damaged", path) from exc
        if not unpacker.eof:
            raise refuse("damaged", path)
        if unpacker.unused_data:
            raise refuse("hidden-data", path)


_END_RECORD = Struct("<4s4H2IH")
_LOCATOR_BYTES = 20
"""Of zip64, in front of the end record."""
_END_MAGIC = b"PK\x05\x06"


def find_directory(descriptor: int, length: int) -> tuple[int, int, int]:
    """Start, end and number of entries of the central directory.

    Raises:
        Unsafe: there is no end record, more than one, or it contradicts itself.
    """
    end, (disk, first, here, count, size, start) = _find_end(descriptor, length)
    mark = read_at(descriptor, 4, max(0, end - _LOCATOR_BYTES))
    if mark == b"PK\x06\x07" or _MAX_UINT16 in (disk, first, here, count):
        raise refuse("zip64", found="zip64")
    if disk or first or here != count:
        raise refuse("multi-part", found="in parts")
    if start + size != end:
        raise refuse("hidden-data" if start + size < end else "zip-end", found="central directory")
    return start, end, count


def _find_end(descriptor: int, length: int) -> tuple[int, tuple[int, ...]]:
    base = max(0, length - _END_RECORD.size - _MAX_UINT16)
    tail = read_at(descriptor, length - base, base)
    ends: list[int] = []
    marks: list[int] = []
    at = tail.find(_END_MAGIC)
    while at >= 0:
        marks.append(at)
        if len(tail) >= at + _END_RECORD.size:
            comment = int.from_bytes(tail[at + 20 : at + 22], "little")
            if at + _END_RECORD.size + comment == len(tail):
                ends.append(at)
        at = tail.find(_END_MAGIC, at + 1)
    if not ends:
        raise refuse("trailing-data" if marks else "truncated", found="end record")
    if len(ends) > 1 or marks[-1] != ends[0]:
        raise refuse("zip-end", found=f"{len(marks)} end records")
    fields = _END_RECORD.unpack_from(tail, ends[0])
    return base + ends[0], fields[1:7]
