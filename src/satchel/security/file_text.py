"""The texts of a file: in its encoding, inside a binary file, and in the members of an archive.

A model reads a file with tools that we do not choose, so a text counts in every encoding in which
it can be read. What is neither text nor a readable archive is not examined.
"""

from __future__ import annotations

import bz2
import lzma
import re
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUN = re.compile(rb"[\t\n\r -~]{12,}|(?:[\xc3-\xed][\x80-\xbf]{1,2}[ ,.!?]?){6,}")
"""Shorter texts in a binary file are chance."""
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_NARROW = ("gb18030", "shift_jis", "euc_jp", "euc_kr", "cp1251", "koi8_r")
_UTF7 = re.compile(rb"\+A[A-Za-z0-9+/]{2,}-")
_DISGUISED = re.compile(
    "[a-zA-Z][\u00ad\u180e\u200b-\u200f\u2060-\u2064\ufeff][a-zA-Z]"
    "|[\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff]{3}"
)
_MARKS = frozenset(map(chr, (
    0xAD, 0x180E, *range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF, *range(0xFF21, 0xFF5B),
    *range(0x1D400, 0x1D800),
)))  # fmt: skip
"""The characters of `_DISGUISED`: looking them up is faster."""
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u2060-\u2064\ufeff]+")


def decode_text(data: bytes) -> tuple[str, bool]:
    """(text, whether all of it is text)."""
    if data[:4] in {b"\xff\xfe\0\0", b"\0\0\xfe\xff"}:
        text = data.decode("utf-32", "replace")
    elif data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        text = data.decode("utf-16", "replace")
    else:
        try:
            return _plain(data.decode("utf-8")), True
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    if broken * 20 > len(text):
        return _plain(data.decode("latin-1")), False
    return _plain(text), True


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\0", "")


def other_readings(data: bytes, text: str) -> Iterator[str]:
    """What a text file says without disguise, and with its broken characters left out.

    Args:
        data: The file.
        text: Its likely text.
    """
    if b"+A" in data and _UTF7.search(data):
        yield data.decode("utf-7", "ignore")
    if not text.isascii() and not _MARKS.isdisjoint(text) and _DISGUISED.search(text):
        yield unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    if "\ufffd" in text:
        yield data.decode("utf-8", "ignore").replace("\0", "")


def other_encodings(data: bytes) -> Iterator[str]:
    """The text of a file that is not in UTF-8, in each encoding that it may have."""
    for encoding in (*_WIDE, *_NARROW):
        text = data.decode(encoding, "ignore")
        if not text.isascii():
            yield text


def is_utf8(data: bytes) -> bool:
    """Whether a file is text in UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def text_inside(data: bytes) -> str:
    """The readable parts of a binary file, such as the comment of a picture; one a line."""
    parts = [data.replace(b"\0", b""), *_compressed_comments(data)]
    runs = (run for part in parts for run in _RUN.findall(part))
    return b"\n".join(runs).decode("utf-8", "replace")


def _compressed_comments(data: bytes) -> Iterator[bytes]:
    """The compressed texts of a PNG."""
    at = 8 if data.startswith(b"\x89PNG") else len(data)
    while at + 8 <= len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + size]
        at += 12 + size
        if kind not in {b"zTXt", b"iTXt", b"iCCP"}:
            continue
        start = body.find(b"x", body.find(b"\0"))  # every zlib stream of a PNG begins with 0x78
        while 0 <= start < len(body):
            try:
                yield zlib.decompressobj().decompress(body[start:], MAX_UNPACKED_BYTES)
                break
            except zlib.error:
                start = body.find(b"x", start + 1)


# --- archives -----------------------------------------------------------------------------
# In memory, with limits; nothing is unpacked to a folder.

MAX_UNPACKED_BYTES = 64 << 20
"""Of all archives of a skill together."""
_MAX_MEMBERS = 10_000
_ZIP_END = b"PK\x05\x06"
_MAX_ZIP_END_BYTES = 65_557
"""The end of a zip, with the longest comment."""
_MAX_XZ_MEMORY_BYTES = 256 << 20
_DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, NotImplementedError,
    RuntimeError, OSError, EOFError, ValueError, struct.error,
)  # fmt: skip


class NotExamined(Exception):
    """A file that cannot be examined whole."""


def is_archive(path: str, data: bytes) -> bool:
    """Whether a file is an archive that can be read here, also with a head of another kind."""
    return (
        data.startswith((b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ"))
        or data[257:262] == b"ustar"
        or path.lower().endswith(".tar")
        or _ZIP_END in data[-_MAX_ZIP_END_BYTES:]
    )


def members(data: bytes, room: int) -> Iterator[tuple[str, bytes]]:
    """The name and content of each file in a zip or tar archive, or in one compressed file.

    Args:
        data: The archive.
        room: The bytes that may still be unpacked.

    Raises:
        NotExamined: it is damaged, or larger than the limits.
    """
    try:
        for count, (name, content) in enumerate(_members(data, room)):
            room -= len(content)
            if room < 0 or count >= _MAX_MEMBERS:
                raise NotExamined
            yield name, content
    except _DAMAGED as exc:
        raise NotExamined from exc


def _members(data: bytes, room: int) -> Iterator[tuple[str, bytes]]:
    if _ZIP_END in data[-_MAX_ZIP_END_BYTES:]:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            for entry in archive.infolist():
                if not entry.is_dir() and not entry.flag_bits & 1:  # encrypted: has its own rule
                    with archive.open(entry) as stream:
                        content = stream.read(room + 1)
                    room -= len(content)
                    yield entry.filename, content
        return
    inner = _decompressed(data, room + 1)
    if inner is not data and inner[257:262] != b"ustar":
        yield "content", inner
        return
    with tarfile.open(fileobj=BytesIO(inner), mode="r:") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield member.name, stream.read()


def _decompressed(data: bytes, limit: int) -> bytes:
    """A gzip, bzip2 or xz file without its compression; another one as it is.

    Raises:
        NotExamined: something follows the compressed data, such as more of it.
    """
    if data.startswith(b"\x1f\x8b"):
        reader = zlib.decompressobj(31)
    elif data.startswith(b"BZh"):
        reader = bz2.BZ2Decompressor()
    elif data.startswith(b"\xfd7zXZ"):
        reader = lzma.LZMADecompressor(memlimit=_MAX_XZ_MEMORY_BYTES)
    else:
        return data
    inner = reader.decompress(data, limit)
    if reader.unused_data:
        raise NotExamined
    return inner
