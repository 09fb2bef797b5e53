"""Is this file a workbook that may be opened? A workbook is a zip of XML, and may be a bomb.

Looked at before the library sees it: how many parts there are, how large they become, what they
were packed with, that the XML is UTF-8 and declares no entities, and how many tags there are. A tag
becomes an object of some 70 bytes, so their number is what decides about memory.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from satchel.tools.packaged import Failure, Text, ToolFailed

if TYPE_CHECKING:
    import zipfile

MAX_PARTS = 4_000
MAX_DIRECTORY = 1024 * 1024
MAX_UNPACKED = 200 * 1024 * 1024
MAX_TAGS = 8_000_000
MAX_RATIO = 300
"""How much larger than the file its parts may be, once they have more than `_SMALL` bytes."""
_SMALL = 16 * 1024 * 1024
_CHUNK = 256 * 1024

DAMAGED = Failure(
    "damaged",
    "EXECUTION_ERROR",
    Text("The file is not a usable workbook", "文件不是可用的工作簿"),
    Text("{path}"),
    Text(
        "Ask the user to open it in Excel and save it again as .xlsx",
        "请让用户在 Excel 中打开并重新另存为 .xlsx",
    ),
    Text("It is damaged, or something else with this ending", "文件损坏，或并非 Excel 文件"),
)
LOCKED = Failure(
    "locked",
    "PERMISSION_DENIED",
    Text(
        "The workbook is encrypted, or in the old .xls format", "工作簿已加密，或为旧版 .xls 格式"
    ),
    Text("{path}"),
    Text("Ask the user to save it without a password as .xlsx", "请让用户去除密码并另存为 .xlsx"),
    Text("It has a password, or was only renamed", "文件设有密码，或仅修改了后缀"),
)
BOMB = Failure(
    "bomb",
    "PERMISSION_DENIED",
    Text("The workbook becomes too large when unpacked", "工作簿解压后过大"),
    Text("{path} ({reason})"),
    Text("Split it into smaller workbooks", "请拆分为较小的工作簿"),
    Text(
        "More than 4,000 parts, 200 MB, 8 million tags, or 300 times its size",
        "超过 4000 个部件、200MB、800 万个标签，或超过自身体积的 300 倍",
    ),
)
UNSAFE = Failure(
    "unsafe",
    "PERMISSION_DENIED",
    Text("The workbook contains XML that is not read", "工作簿包含不予读取的 XML"),
    Text("{path} ({reason})"),
    Text(
        "Ask the user to open it in Excel and save it again as .xlsx",
        "请让用户在 Excel 中打开并重新另存为 .xlsx",
    ),
    Text(
        "A part declares entities or another encoding, or two have one name",
        "部件声明了实体或其他编码，或部件重名",
    ),
)
FAILURES = (DAMAGED, LOCKED, BOMB, UNSAFE)

_END = b"PK\x05\x06"
_END_64 = b"PK\x06\x06"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00", b"<\x00", b"+/v")
_ENCODING = re.compile(rb"^\s*<\?xml[^>]*?encoding\s*=\s*[\"']([^\"']*)", re.DOTALL)
_KNOWN = frozenset((b"utf-8", b"utf8", b"us-ascii", b"ascii"))
_DECLARED = re.compile(rb"<!(?:DOCTYPE|ENTITY)", re.IGNORECASE)


def check_workbook(data: bytes, path: str) -> None:
    """Refuse what must not be opened.

    Raises:
        ToolFailed: one of `FAILURES`.
    """
    import io
    import zipfile
    import zlib

    if data[:8] == _OLE:
        raise ToolFailed(LOCKED, path=path)
    _check_directory(data, path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = archive.infolist()
            _check_parts(parts, len(data), path)
            tags = 0
            for part in parts:
                if part.filename.lower().endswith((".xml", ".rels", ".vml")):
                    tags += _read_through(archive, part, path)
                    if tags > MAX_TAGS:
                        _bomb(path, f"> {MAX_TAGS:,} tags")
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError):
        raise ToolFailed(DAMAGED, path=path) from None


def _check_directory(data: bytes, path: str) -> None:
    """How long the table of contents says it is, before anybody reads it into memory."""
    import struct

    at = data.rfind(_END, max(len(data) - 65_557, 0))
    if at < 0 or len(data) < at + 22:
        raise ToolFailed(DAMAGED, path=path)
    count, size = struct.unpack_from("<HI", data, at + 10)
    more = data.rfind(_END_64, max(at - 4_096, 0), at)
    if more >= 0 and len(data) >= more + 48:
        large, length = struct.unpack_from("<QQ", data, more + 32)
        count, size = max(large, count if count < 0xFFFF else 0), max(length, 0)
    if count > MAX_PARTS or size > MAX_DIRECTORY:
        _bomb(path, f"> {MAX_PARTS:,} parts")


def _check_parts(parts: list[zipfile.ZipInfo], packed: int, path: str) -> None:
    if len(parts) > MAX_PARTS:
        _bomb(path, f"> {MAX_PARTS:,} parts")
    if any(part.flag_bits & 1 for part in parts):
        raise ToolFailed(LOCKED, path=path)
    if len({part.filename for part in parts}) < len(parts):
        raise ToolFailed(UNSAFE, path=path, reason=_twice(parts))
    total = sum(part.file_size for part in parts)
    if total > MAX_UNPACKED:
        _bomb(path, f"> {MAX_UNPACKED // 1024 // 1024} MB")
    if total > _SMALL and total > MAX_RATIO * packed:
        _bomb(path, f"{total // max(packed, 1)} x")


def _read_through(archive: zipfile.ZipFile, part: zipfile.ZipInfo, path: str) -> int:
    """Read one part as it will be read, without keeping it; returns its number of tags."""
    tags = 0
    before = b""
    with archive.open(part) as stream:
        while chunk := stream.read(_CHUNK):
            if not tags and not before:
                named = _ENCODING.match(chunk.removeprefix(b"\xef\xbb\xbf"))
                if chunk.startswith(_BOMS) or (named and named[1].lower() not in _KNOWN):
                    raise ToolFailed(UNSAFE, path=path, reason=f"encoding: {part.filename}")
            if _DECLARED.search(before + chunk):
                raise ToolFailed(UNSAFE, path=path, reason=f"DOCTYPE: {part.filename}")
            before = chunk[-16:]
            tags += chunk.count(b"<")
            if tags > MAX_TAGS:
                _bomb(path, f"> {MAX_TAGS:,} tags")
    return tags


def _twice(parts: list[zipfile.ZipInfo]) -> str:
    """The name that two parts have."""
    seen: set[str] = set()
    for part in parts:
        if part.filename in seen:
            return part.filename
        seen.add(part.filename)
    return ""


def _bomb(path: str, reason: str) -> NoReturn:
    raise ToolFailed(BOMB, path=path, reason=reason)
