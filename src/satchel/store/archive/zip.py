"""Reads zip archives with the standard library, and checks every entry before any is read.

A zip archive describes each entry twice: in a local header before the content, and in the central
directory at its end. This reader uses the central directory alone, for the scan and for the disk.
Other readers may use the local headers, and would unpack what was never scanned. Therefore the two
must agree, and the entries must fill the file from its first byte to the directory. `zipfile`
compares names, sizes and checksums when it reads.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from satchel.skill.file_tree import LIMITS
from satchel.store.archive.rules import ArchiveTree, Contents, check_path, read_at, refuse

if TYPE_CHECKING:
    from zipfile import ZipInfo

    from satchel.store.archive.rules import ArchiveLimits

_READ_ERRORS = (
    BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError, struct.error,
    zlib.error,
)  # fmt: skip
"""What `zipfile` raises for archives that it cannot read."""

_ENCRYPTED_FLAGS = 0x2041  # plain, strong, and masked headers
_UTF8_FLAG, _DESCRIPTOR_FLAG = 0x0800, 0x0008
_COMPARED_FLAGS = _ENCRYPTED_FLAGS | _UTF8_FLAG | _DESCRIPTOR_FLAG
"""Flags that must be the same in the local header and in the central directory."""
_AES_METHOD_CODE = 99
_AES_FIELD, _UNICODE_PATH_FIELD = 0x9901, 0x7075
"""Kinds of additional fields."""
_UTF8_SYSTEMS = frozenset((3, 19))
"""Systems whose `zip` writes UTF-8 names and does not set the flag: Unix and macOS."""
_TYPE_MASK, _FILE_TYPE, _FOLDER_TYPE, _LINK_TYPE = 0o170000, 0o100000, 0o040000, 0o120000
_EXECUTABLE_FLAG = 0o100
_DOS_FOLDER_FLAG = 0x10

_END_RECORD = Struct("<4s4H2IH")
_END_SIGNATURE = b"PK\5\6"
_LOCAL_HEADER = Struct("<4s5H3I2H")
_CRC_AND_SIZES = Struct("<3I")
_DESCRIPTOR_SIZES = (_CRC_AND_SIZES.size, _CRC_AND_SIZES.size + 4)
"""A descriptor repeats checksum and sizes after the content; four bytes may precede them."""
_FIELD_HEADER = Struct("<2H")
_UNICODE_PATH_PREFIX_BYTES = 5
"""Bytes before the name in the field of a second name: version and checksum."""
_MAX_RECORD_BYTES = 200
"""What a record of the central directory may take on average; most take about 130."""


class _DirectoryReader(io.FileIO):
    """A file of which `zipfile` can only read so much at once, such as the central directory."""

    def __init__(self, descriptor: int, limit: int) -> None:
        super().__init__(descriptor)
        self.limit = limit

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self.limit:
            raise refuse("names-too-large")
        return super().read(-1 if size is None else size) or b""


def open_zip(descriptor: int, bounds: ArchiveLimits) -> ArchiveTree:
    """Read the central directory and check its entries.

    Raises:
        Unsafe: it breaks a rule.
    """
    stream = _DirectoryReader(os.dup(descriptor), bounds.entries * _MAX_RECORD_BYTES)
    try:
        archive = ZipFile(stream)
        archive_size = os.fstat(descriptor).st_size
        contents = Contents(bounds)
        entries = _read_entries(archive, contents)
        _check_ratio(contents.size, archive_size, bounds)
        _check_layout(archive, descriptor)
        _check_end_record(archive, descriptor, archive_size)
    except BaseException as exc:
        stream.close()
        if isinstance(exc, UnicodeDecodeError):
            raise refuse("path-encoding") from exc
        if isinstance(exc, _READ_ERRORS):
            raise refuse("damaged", found=str(exc)) from exc
        raise

    stream.limit = LIMITS.size

    def read(path: str) -> bytes:
        entry = entries[path]
        try:
            with archive.open(entry) as content:
                return content.read(entry.file_size)  # without a size, a bomb would be unpacked
        except _READ_ERRORS as exc:
            raise refuse("damaged", path) from exc

    os.close(descriptor)
    return ArchiveTree(contents, "zip", read, stream.close)


# --- the central directory ----------------------------------------------------------------


def _read_entries(archive: ZipFile, contents: Contents) -> dict[str, ZipInfo]:
    """Check all entries and add them to the contents; returns those of files by path."""
    entries: dict[str, ZipInfo] = {}
    for entry in archive.infolist():
        path = _add_entry(entry, contents)
        if path:
            entries[path] = entry
    return entries


def _add_entry(entry: ZipInfo, contents: Contents) -> str:
    """Check an entry and add it; returns its path, which is empty unless it is a file to read."""
    path = _decode_name(entry)
    contents.count(path, entry.file_size)
    if entry.flag_bits & _ENCRYPTED_FLAGS or entry.compress_type == _AES_METHOD_CODE:
        raise refuse("encrypted", path)
    if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise refuse("method", path, str(entry.compress_type))
    if entry.volume:
        raise refuse("multi-part", path)
    _check_additional_fields(path, entry.extra)
    is_folder = path.endswith("/")
    path = path.removesuffix("/")
    check_path(path)
    if contents.skips(path):
        return ""
    _check_type(entry, path, is_folder=is_folder)
    is_program = bool(entry.external_attr >> 16 & _EXECUTABLE_FLAG)
    contents.add(path, entry.file_size, folder=is_folder, program=is_program)
    return "" if is_folder else path


def _decode_name(entry: ZipInfo) -> str:
    """Return the name of an entry. Only zips of Unix and macOS may have UTF-8 without the flag."""
    name = entry.orig_filename
    if entry.flag_bits & _UTF8_FLAG or name.isascii():
        return name
    data = name.encode("cp437")  # `zipfile` has decoded it so
    if entry.create_system in _UTF8_SYSTEMS:
        with suppress(UnicodeDecodeError):
            return data.decode()
    # Readers guess different encodings, and so see different names.
    raise refuse("zip-encoding", data.decode(errors="backslashreplace"))


def _check_type(entry: ZipInfo, path: str, *, is_folder: bool) -> None:
    """Refuse links and special files, and entries that are both a file and a folder."""
    file_type = entry.external_attr >> 16 & _TYPE_MASK
    if file_type == _LINK_TYPE:
        raise refuse("link", path)
    if file_type not in (0, _FILE_TYPE, _FOLDER_TYPE):
        raise refuse("special-file", path)
    if file_type:  # Unix writers set it
        has_folder_type = file_type == _FOLDER_TYPE
    else:  # all others set the folder bit of DOS, or nothing
        has_folder_type = is_folder or bool(entry.external_attr & _DOS_FOLDER_FLAG)
    if has_folder_type != is_folder or (is_folder and entry.file_size):
        raise refuse("type-differs", path)


def _check_ratio(size: int, archive_size: int, bounds: ArchiveLimits) -> None:
    if size > max(bounds.total_floor, bounds.ratio * archive_size):
        raise refuse("ratio", found=f"{size} : {archive_size}")


def _check_end_record(archive: ZipFile, descriptor: int, archive_size: int) -> None:
    """Check that the end record closes the file and counts all entries."""
    position = archive_size - _END_RECORD.size - len(archive.comment)
    record = _END_RECORD.unpack(read_at(descriptor, _END_RECORD.size, position))
    signature, disk, directory_disk, disk_count, total_count = record[:5]
    if signature != _END_SIGNATURE:
        raise refuse("trailing-data")
    entry_count = len(archive.infolist())
    if disk or directory_disk or not disk_count == total_count == entry_count:
        raise refuse("multi-part", found=f"{entry_count} of {total_count}")


# --- local headers ------------------------------------------------------------------------


def _check_layout(archive: ZipFile, descriptor: int) -> None:
    """Compare all entries with their local headers; together they fill the file up to its end."""
    entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    offsets = [*(entry.header_offset for entry in entries), archive.start_dir]
    if offsets[0]:
        raise refuse("hidden-data", found="before the first entry")
    for entry, next_offset in zip(entries, offsets[1:], strict=True):
        _check_local_header(entry, next_offset, descriptor)


def _check_local_header(entry: ZipInfo, next_offset: int, descriptor: int) -> None:
    """Check that a local header agrees with its entry, which ends where the next one begins."""
    path, fields_offset = entry.orig_filename, entry.header_offset + _LOCAL_HEADER.size
    header = read_at(descriptor, _LOCAL_HEADER.size, entry.header_offset)
    _, _, flags, method, _, _, *local_values, name_size, extra_size = _LOCAL_HEADER.unpack(header)
    _check_additional_fields(path, read_at(descriptor, extra_size, fields_offset + name_size))
    end = fields_offset + name_size + extra_size + entry.compress_size
    if end > next_offset:
        raise refuse("overlap", path)
    values = [entry.CRC, entry.compress_size, entry.file_size]
    if flags & _DESCRIPTOR_FLAG:
        if next_offset - end not in _DESCRIPTOR_SIZES:
            raise refuse("hidden-data", path)
        repeated = read_at(descriptor, next_offset - end, end)[-_CRC_AND_SIZES.size :]
        if repeated != _CRC_AND_SIZES.pack(*values):
            raise refuse("header-differs", path, "descriptor")
        # The header may have 0 in place of each value that the descriptor has.
        local_values = [local or value for local, value in zip(local_values, values, strict=True)]
        end = next_offset
    has_other_flags = (flags ^ entry.flag_bits) & _COMPARED_FLAGS
    if local_values != values or method != entry.compress_type or has_other_flags:
        raise refuse("header-differs", path)
    if end != next_offset:
        raise refuse("hidden-data", path)


def _check_additional_fields(path: str, data: bytes) -> None:
    """Refuse additional fields that some readers take for another name, or for encryption."""
    while len(data) >= _FIELD_HEADER.size:
        kind, size = _FIELD_HEADER.unpack_from(data)
        end = _FIELD_HEADER.size + size
        if kind == _AES_FIELD:
            raise refuse("encrypted", path)
        if kind == _UNICODE_PATH_FIELD:
            name = data[_FIELD_HEADER.size : end][_UNICODE_PATH_PREFIX_BYTES:]
            if name.decode(errors="replace") != path:
                raise refuse("header-differs", path, "a second name")
        data = data[end:]
