"""The texts of a file: in its encoding, inside a binary file, and in the members of an archive.

A model reads a file with tools that we do not choose, so a text counts in every encoding in which
it can be read. What is neither text nor a readable archive is not examined.
"""

from __future__ import annotations

import bz2
import json
import lzma
import re
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from contextlib import suppress
from html import unescape
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEXT_RUN = re.compile(rb"[\t\n\r -~]{12,}|(?:[\xc3-\xed][\x80-\xbf]{1,2}[ ,.!?]?){6,}")
"""Shorter texts in a binary file are chance."""
_WIDE_ENCODINGS = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_NARROW_ENCODINGS = ("gb18030", "shift_jis", "euc_jp", "euc_kr", "cp1251", "koi8_r")
_UTF7_TEXT = re.compile(rb"\+A[A-Za-z0-9+/]{2,}-")
_INVISIBLE_LETTERS = (
    "\u00ad\u034f\u180e\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\U000e0100-\U000e01ef"
)
_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters without ink."""
_DISGUISED_WORD = re.compile(
    f"[a-zA-Z][{_INVISIBLE_LETTERS}{_BLANK_LETTERS}][a-zA-Z]|[\u24b6-\u24e9\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7ff]{{3}}"
)
_DISGUISING_LETTER = re.compile(
    f"[{_INVISIBLE_LETTERS}{_BLANK_LETTERS}\u24b6-\u24e9\uff21-\uff5a\U0001d400-\U0001d7ff]"
)
"""The characters of `_DISGUISED_WORD`: looking for one of them is faster."""
_INVISIBLE_RUN = re.compile(f"[{_INVISIBLE_LETTERS}]+")
_BLANK_LETTER = re.compile(f"[{_BLANK_LETTERS}]")
_CODING_COMMENT = re.compile(rb"\A(?:[^\n]*\n)?[ \t\f]*#[^\n]*?coding[:=][ \t]*([-\w.]+)")
"""States the encoding in the first two lines of a Python file."""
_SPLIT_WORD = re.compile(r"(?<=\w)\\\n(?=\w)")
"""A shell joins the two halves of a word."""
_XML_TAG = re.compile(r"<[^<>]*>")
_PARAGRAPH_END = re.compile(r"</(?:w:p|a:p|si|row)>")
_NOTEBOOK_COMMAND = re.compile(r"^([ \t]*)[!%].*")
"""A line of a notebook that is no Python."""
MAX_UNPACKED_BYTES = 64 << 20
"""Of all archives of a skill together."""
_MAX_MEMBERS = 10_000
_ZIP_END = b"PK\x05\x06"
_MAX_ZIP_END_BYTES = 65_557
"""The end of a zip, with the longest comment."""
_MAX_XZ_MEMORY_BYTES = 256 << 20
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, NotImplementedError,
    RuntimeError, OSError, EOFError, ValueError, struct.error,
)  # fmt: skip


class NotExamined(Exception):
    """A file that cannot be examined whole."""


def decode_text(data: bytes) -> tuple[str, bool]:
    """Decode a text file; also returns whether all of it is text."""
    if data[:4] in {b"\xff\xfe\0\0", b"\0\0\xfe\xff"}:
        text = data.decode("utf-32", "replace")
    elif data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        text = data.decode("utf-16", "replace")
    else:
        try:
            return _clean_text(data.decode("utf-8")), True
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    if broken * 20 > len(text):
        return _clean_text(data.decode("latin-1")), False
    return _clean_text(text), True


def _clean_text(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\0", "")


def decode_disguised(data: bytes, text: str) -> Iterator[str]:
    """Decode a text file without disguises, and without its broken characters.

    Args:
        data: The file.
        text: Its likely text.
    """
    if b"+A" in data and _UTF7_TEXT.search(data):
        yield data.decode("utf-7", "ignore")
    if not text.isascii() and _DISGUISING_LETTER.search(text) and _DISGUISED_WORD.search(text):
        visible_text = _BLANK_LETTER.sub(" ", _INVISIBLE_RUN.sub("", text))
        yield unicodedata.normalize("NFKC", visible_text)
    if b"coding" in data[:400] and (coding := _CODING_COMMENT.match(data)):
        with suppress(LookupError, ValueError):
            yield data.decode(coding[1].decode(), "ignore").replace("\0", "")
    if "\\\n" in text and _SPLIT_WORD.search(text):
        yield _SPLIT_WORD.sub("", text)
    if "\ufffd" in text:
        yield data.decode("utf-8", "ignore").replace("\0", "")


def decode_encodings(data: bytes) -> Iterator[str]:
    """Decode a file that is not in UTF-8 in each encoding that it may have."""
    for encoding in (*_WIDE_ENCODINGS, *_NARROW_ENCODINGS):
        text = data.decode(encoding, "ignore")
        if not text.isascii():
            yield text


def extract_xml_text(text: str) -> str:
    """Return the words of an office document's page, a paragraph a line."""
    return unescape(_XML_TAG.sub("", _PARAGRAPH_END.sub("\n", text)))


def split_notebook(text: str) -> Iterator[tuple[str, str]]:
    """Return the name and text of a notebook's code, of the commands in it, and of its notes."""
    try:
        notebook = json.loads(text)
        # The older format has several worksheets.
        sheets = [notebook] if "cells" in notebook else notebook["worksheets"]
        cells = [
            (cell["cell_type"], "".join(cell.get("source", cell.get("input", ""))))
            for sheet in sheets
            for cell in sheet["cells"]
        ]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return
    code: list[str] = []
    commands: list[str] = []
    for kind, source in cells:
        if kind == "code" and source.startswith(("%%bash", "%%sh", "%%script", "%%!")):
            commands.append(source.partition("\n")[2])
        elif kind == "code":
            lines = source.split("\n")
            commands += [line.lstrip()[1:] for line in lines if line.lstrip()[:1] == "!"]
            code += [_NOTEBOOK_COMMAND.sub(r"\1pass", line) for line in lines]
    yield "code.py", "\n".join(code)
    yield "commands.sh", "\n".join(commands)
    yield "notes.md", "\n\n".join(source for kind, source in cells if kind != "code")


def is_utf8(data: bytes) -> bool:
    """Whether a file is text in UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def extract_text(data: bytes) -> str:
    """Return the readable parts of a binary file, such as the comment of a picture; one a line."""
    parts = [data.replace(b"\0", b""), *_decompress_png_texts(data)]
    runs = (run for part in parts for run in _TEXT_RUN.findall(part))
    return b"\n".join(runs).decode("utf-8", "replace")


def _decompress_png_texts(data: bytes) -> Iterator[bytes]:
    """Return the compressed texts of a PNG."""
    offset = 8 if data.startswith(b"\x89PNG") else len(data)
    while offset + 8 <= len(data):
        size, kind = int.from_bytes(data[offset : offset + 4], "big"), data[offset + 4 : offset + 8]
        body = data[offset + 8 : offset + 8 + size]
        offset += 12 + size
        if kind not in {b"zTXt", b"iTXt", b"iCCP"}:
            continue
        start = body.find(b"x", body.find(b"\0"))  # every zlib stream of a PNG begins with 0x78
        while 0 <= start < len(body):
            try:
                yield zlib.decompressobj().decompress(body[start:], MAX_UNPACKED_BYTES)
                break
            except zlib.error:
                start = body.find(b"x", start + 1)


def is_archive(path: str, data: bytes) -> bool:
    """Whether a file is an archive that can be read here, also with a head of another kind."""
    return (
        data.startswith((b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ"))
        or data[257:262] == b"ustar"
        or path.lower().endswith(".tar")
        or _ZIP_END in data[-_MAX_ZIP_END_BYTES:]
    )


def unpack_members(data: bytes, max_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Return the name and content of each file in a zip or tar archive, or in one compressed file.

    Args:
        data: The archive.
        max_bytes: The bytes that may still be unpacked.

    Raises:
        NotExamined: it is damaged, or larger than the limits.
    """
    try:
        for count, (name, content) in enumerate(_unpack(data, max_bytes)):
            max_bytes -= len(content)
            if max_bytes < 0 or count >= _MAX_MEMBERS:
                raise NotExamined
            yield name, content
    except _ARCHIVE_ERRORS as exc:
        raise NotExamined from exc


def _unpack(data: bytes, max_bytes: int) -> Iterator[tuple[str, bytes]]:
    if _ZIP_END in data[-_MAX_ZIP_END_BYTES:]:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            for entry in archive.infolist():
                if not entry.is_dir() and not entry.flag_bits & 1:  # encrypted: has its own rule
                    with archive.open(entry) as stream:
                        content = stream.read(max_bytes + 1)
                    max_bytes -= len(content)
                    yield entry.filename, content
        return
    inner = _decompress(data, max_bytes + 1)
    if inner is not data and inner[257:262] != b"ustar":
        yield "content", inner
        return
    with tarfile.open(fileobj=BytesIO(inner), mode="r:") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield member.name, stream.read()


def _decompress(data: bytes, limit: int) -> bytes:
    """Return a gzip, bzip2 or xz file without its compression; another one as it is.

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
