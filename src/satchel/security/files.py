"""What is a file that is not text? By its first bytes, not by its name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import Message
from satchel.security.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x7fELF", "program"),
    (b"MZ", "program"),
    (b"\xfe\xed\xfa\xce", "program"),
    (b"\xfe\xed\xfa\xcf", "program"),
    (b"\xce\xfa\xed\xfe", "program"),
    (b"\xcf\xfa\xed\xfe", "program"),
    (b"\xca\xfe\xba\xbe", "program"),
    (b"\0asm", "program"),
    (b"dex\n", "program"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"Rar!\x1a\x07", "archive"),
    (b"7z\xbc\xaf\x27\x1c", "archive"),
    (b"\x1f\x8b", "archive"),
    (b"BZh", "archive"),
    (b"\xfd7zXZ\0", "archive"),
    (b"\x28\xb5\x2f\xfd", "archive"),
    (b"MSCF", "archive"),
    (b"!<arch>\n", "archive"),
    (b"\x89PNG", "media"),
    (b"\xff\xd8\xff", "media"),
    (b"GIF8", "media"),
    (b"RIFF", "media"),
    (b"OggS", "media"),
    (b"ID3", "media"),
    (b"\0\0\x01\0", "media"),
    (b"wOFF", "media"),
    (b"wOF2", "media"),
    (b"OTTO", "media"),
    (b"\0\x01\0\0", "media"),
    (b"BM", "media"),
    (b"II*\0", "media"),
    (b"MM\0*", "media"),
    (b"fLaC", "media"),
    (b"%PDF", "document"),
    (b"\xd0\xcf\x11\xe0", "document"),
    (b"SQLite format 3\0", "data"),
)
_OFFICE = frozenset((
    ".docx", ".xlsx", ".pptx", ".dotx", ".xltx", ".potx", ".odt", ".ods", ".odp", ".epub", ".docm",
    ".xlsm", ".pptm", ".ott", ".vsdx", ".pages", ".key", ".numbers",
))  # fmt: skip
_MEDIA = frozenset((
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".bmp", ".tiff", ".tif", ".mp3", ".wav",
    ".ogg", ".mp4", ".mov", ".webm", ".avi", ".flac", ".ttf", ".otf", ".woff", ".woff2", ".eot",
    ".heic",
    ".avif", ".m4a", ".icns", ".mkv", ".psd", ".svgz", ".ttc", ".glb", ".aac", ".opus",
))  # fmt: skip
_TEXT = frozenset((
    ".md", ".txt", ".json", ".yaml", ".yml", ".toml", ".csv", ".html", ".xml", ".svg", ".css",
    ".log", ".rst", ".ini", ".cfg",
))  # fmt: skip
_BYTECODE = frozenset((".pyc", ".pyo"))
_ENTRY = b"PK\x01\x02"


class Binary(NamedTuple):
    """What was found out about a file that is not text."""

    findings: tuple[Finding, ...] = ()
    unscanned: str = ""
    """Why its content could not be looked at; empty when it could, or needs no look."""


def look_at_binary(path: str, data: bytes) -> Binary | None:
    """What a file of bytes is; None when it may be text."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix in _BYTECODE:
        return Binary((Finding("bytecode", path),), Message("bytecode is not read"))
    kind = _kind(data)
    if kind == "":
        if suffix == ".tar" or data[257:262] == b"ustar":
            kind = "archive"
        elif b"\0" not in data[:8192] or data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
            return None
    if kind == "program" and not _convincing(data):
        kind = ""
        if b"\0" not in data[:8192]:
            return None
    found = tuple(_judge(path, suffix, kind, data))
    return Binary(found, _unread(suffix, kind))


def _kind(data: bytes) -> str:
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    return "media" if data[4:8] == b"ftyp" else ""


def _convincing(data: bytes) -> bool:
    """`MZ` and `BM` begin words too: a real program has its second signature."""
    if data[:2] != b"MZ":
        return True
    offset = int.from_bytes(data[60:64], "little")
    return data[offset : offset + 2] in {b"PE", b"NE", b"LE"} or b"\0" in data[:64]


def _judge(path: str, suffix: str, kind: str, data: bytes) -> Iterator[Finding]:
    if kind == "program":
        disguised = suffix in _MEDIA | _TEXT | _OFFICE | {".pdf"}
        yield Finding("disguised-program" if disguised else "compiled-program", path)
    elif kind == "zip":
        yield from _zip(path, suffix, data)
    elif kind == "archive":
        if _locked(data):
            yield Finding("encrypted-archive", path)
        yield Finding("nested-archive" if suffix not in _MEDIA | _TEXT else "disguised-file", path)
    elif kind == "media":
        if suffix in _TEXT:
            yield Finding("disguised-file", path)
        elif _carries(data):
            yield Finding("appended-data", path, 0, _carries(data))
    elif kind == "document":
        yield Finding("document-not-read", path)
        if data[:4] == b"\xd0\xcf\x11\xe0" and b"_VBA_PROJECT" in data:
            yield Finding("macros", path)
    elif kind == "" and suffix in _TEXT | _MEDIA and suffix != ".log":
        yield Finding("disguised-file", path)


def _zip(path: str, suffix: str, data: bytes) -> Iterator[Finding]:
    if _zip_locked(data):
        yield Finding("encrypted-archive", path)
    if suffix in _OFFICE:
        yield Finding("document-not-read", path)
        if b"vbaProject.bin" in data:
            yield Finding("macros", path, 0, "vbaProject.bin")
    elif suffix in _MEDIA | _TEXT:
        yield Finding("disguised-file", path, 0, "zip")
    else:
        yield Finding("nested-archive", path)


def _unread(suffix: str, kind: str) -> str:
    if kind == "program":
        return Message("a compiled program is not read")
    if kind == "archive" or (kind == "zip" and suffix not in _OFFICE):
        return Message("an archive inside a skill is not opened")
    if kind == "" and suffix not in _MEDIA:
        return Message("it is neither text nor a kind of file that is known")
    return ""


def _zip_locked(data: bytes) -> bool:
    at = data.find(_ENTRY)
    while at >= 0:
        if data[at + 8 : at + 9] and data[at + 8] & 1:
            return True
        at = data.find(_ENTRY, at + 46)
    return data[:4] == b"PK\x03\x04" and bool(data[6:7] and data[6] & 1)


def _locked(data: bytes) -> bool:
    """Whether a 7z or rar archive says that it is encrypted."""
    if data.startswith(b"7z\xbc\xaf\x27\x1c"):
        return b"\x06\xf1\x07\x01" in data[-4096:]
    if data.startswith(b"Rar!\x1a\x07\x00"):
        return (len(data) > 24 and bool(int.from_bytes(data[10:12], "little") & 0x80)) or (
            len(data) > 25 and bool(int.from_bytes(data[23:25], "little") & 0x04)
        )
    return False


def _carries(data: bytes) -> str:
    """What follows the end of a PNG or JPEG."""
    if data.startswith(b"\x89PNG"):
        end = data.rfind(b"IEND")
        rest = data[end + 8 :] if end > 0 else b""
    elif data.startswith(b"\xff\xd8"):
        end = data.rfind(b"\xff\xd9")
        rest = data[end + 2 :] if end > 0 else b""
    else:
        return ""
    for magic, name in (
        (b"PK\x03\x04", "zip"),
        (b"\x7fELF", "ELF"),
        (b"Rar!", "rar"),
        (b"#!/", "script"),
    ):
        if magic in rest[:4096]:
            return name
    return ""
