"""What the bytes of a file tell: binaries, disguised files, and payloads that are not plain text.

Payloads are encoded commands, packed programs, stealers and web shells, in files of any kind. All
searches are for fixed bytes, except the three patterns of web shells, whose repetitions are
bounded: the time is linear for any file.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from itertools import pairwise
from typing import TYPE_CHECKING

from satchel.i18n import Message
from satchel.security.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENCODED = (
    b"curl -fsSL http", b"curl -sSL http", b"wget -qO- http", b"/bin/bash -c ",
    b"bash -i >& /dev/tcp/", b"Invoke-Expression", b"Invoke-WebRequest", b"DownloadString(",
    b"import subprocess", b"import socket", b"os.system(", b"child_process", b"powershell -",
    b"exec(base64",
)  # fmt: skip
_XORED = (b"powershell.exe", b"/bin/bash -c", b"User-Agent: Mozilla")
_HARMLESS_KEYS = (0x00, 0x20)
"""The text itself, and the text in the other case."""
_IN_PROGRAMS = {
    "packed-program": (
        1,
        (b"upx!", b"upx0", b"this file is packed with the upx", b".themida", b".vmp0",
         b"__pyarmor__"),
    ),
    "stealer-program": (
        4,
        (b"login data", b"local state", b"wallet.dat", b"nkbihfbeogaeaoehlefnkodbefgpgknn",
         b"logins.json", b"\\telegram desktop\\tdata", b"discord\\local storage\\leveldb",
         b"login.keychain", b"exodus", b"key4.db"),
    ),
    "miner-program": (
        2,
        (b"stratum+tcp://", b"stratum+ssl://", b"cryptonight", b"randomx", b"donate-level"),
    ),
}  # fmt: skip
"""Rule -> how many of these words a program has to contain."""
_RANSOM = (
    (b"your files have been encrypted", b"all your files are encrypted"),
    (b"decryption key", b"bitcoin", b".onion"),
    (b"os.walk(", b"fernet(", b"aes.new(", b"vssadmin"),
)
"""One word of each group."""
_PHP = re.compile(
    rb"(?:eval|assert|system|passthru|shell_exec)\s{0,4}\(\s{0,4}"
    rb"(?:base64_decode\s{0,4}\(\s{0,4})?\$_(?:get|post|request|cookie)\s{0,4}\["
)
_MAX_PHP_BYTES = 405
"""From `<?php` to the call."""
_WEB_SHELLS = (
    (b"getruntime", re.compile(
        rb"runtime\.getruntime\(\)\.exec\(\s{0,4}request\.getparameter")),
    (b"request", re.compile(rb"eval\s{0,4}\(?\s{0,4}request(?:\.item)?\s{0,4}[\[(]\s{0,4}[\"']")),
)  # fmt: skip


def _base64_forms(text: bytes) -> Iterator[bytes]:
    """The characters that a text has inside longer encoded text, at each of three offsets."""
    for shift in range(3):
        whole = b64encode(b"\0" * shift + text).rstrip(b"=")
        yield whole[(0, 2, 3)[shift] : -1 if (shift + len(text)) % 3 else None]


_FORMS = tuple(form for text in _ENCODED for form in _base64_forms(text))
_DIFFERENCES = tuple((text, bytes(a ^ b for a, b in pairwise(text))) for text in _XORED)


def _find_web_shell(low: bytes) -> tuple[int, int] | None:
    """Start and end of a web shell. In linear time: PHP is searched from the call backwards."""
    for call in _PHP.finditer(low) if b"<?php" in low else ():
        start = low.rfind(b"<?php", max(0, call.start() - _MAX_PHP_BYTES), call.start())
        if start >= 0 and b"\0" not in low[start : call.start()]:
            return start, call.end()
    for word, pattern in _WEB_SHELLS:
        if word in low and (shell := pattern.search(low)):
            return shell.span()
    return None


def find_payloads(path: str, data: bytes) -> Iterator[Finding]:
    """The payloads in a file."""
    form = next((form for form in _FORMS if form in data), None)
    if form is not None:
        yield _finding("encoded-shell", path, data, data.index(form), len(form))
    at = _find_xored(data)
    if at >= 0:
        yield _finding("xored-address", path, data, at, 0)
    low = data.lower()
    if b"\0" in data:
        low += b"\n" + low.replace(b"\0", b"")  # text in UTF-16
    if data.startswith(_MAGIC["program"]):
        for rule, (least, words) in _IN_PROGRAMS.items():
            found = [word for word in words if word in low]
            if len(found) >= least:
                yield Finding(rule, path, 0, found[0].decode())
    if shell := _find_web_shell(low):
        start, end = shell
        yield _finding("web-shell", path, data, start, min(end - start, 80))
    if all(any(word in low for word in group) for group in _RANSOM):
        yield Finding("ransom-note", path)


def _find_xored(data: bytes) -> int:
    """Where a text is hidden by XOR with one byte; -1 when it is nowhere.

    The XOR of neighbouring bytes is the same for every key.
    """
    number = int.from_bytes(data, "little")
    differences = (number ^ (number >> 8)).to_bytes(len(data), "little")
    for text, wanted in _DIFFERENCES:
        at = differences.find(wanted)
        while at >= 0:
            if data[at] ^ text[0] not in _HARMLESS_KEYS:
                return at
            at = differences.find(wanted, at + 1)
    return -1


def _finding(rule: str, path: str, data: bytes, at: int, length: int) -> Finding:
    line = data.count(b"\n", 0, at) + 1 if b"\0" not in data[:4096] else 0
    text = data[at : at + length].decode("utf-8", "replace")
    return Finding(rule, path, line, " ".join(text.split()))


_MAGIC = {
    "program": (
        b"\x7fELF", b"MZ", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe",
        b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\0asm", b"dex\n",
    ),
    "zip": (b"PK\x03\x04", b"PK\x05\x06"),
    "archive": (
        b"Rar!\x1a\x07", b"7z\xbc\xaf\x27\x1c", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0",
        b"\x28\xb5\x2f\xfd", b"MSCF", b"!<arch>\n",
    ),
    "media": (
        b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"OggS", b"ID3", b"\0\0\x01\0", b"wOFF",
        b"wOF2", b"OTTO", b"\0\x01\0\0", b"BM", b"II*\0", b"MM\0*", b"fLaC",
    ),
    "document": (b"%PDF", b"\xd0\xcf\x11\xe0"),
    "data": (b"SQLite format 3\0",),
}  # fmt: skip
"""Kind -> how its files begin."""
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
_TEXT_FILES = frozenset((
    ".md", ".txt", ".json", ".yaml", ".yml", ".toml", ".csv", ".html", ".xml", ".svg", ".css",
    ".log", ".rst", ".ini", ".cfg",
))  # fmt: skip
_BYTECODE = frozenset((".pyc", ".pyo"))
_ENTRY = b"PK\x01\x02"


def inspect_binary(path: str, data: bytes) -> tuple[list[Finding], str] | None:
    """Findings by the signature of a file, and why it was not scanned; None for text."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix in _BYTECODE:
        return [Finding("bytecode", path)], Message("it is not text")
    kind = _kind(data)
    if kind == "media" and b"\0" not in data:
        return None  # `BM` and `ID3` begin words too
    if kind == "":
        if suffix == ".tar" or data[257:262] == b"ustar":
            kind = "archive"
        elif b"\0" not in data[:8192] or data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
            return None
    if kind == "program" and not _is_real_program(data):
        kind = ""
        if b"\0" not in data[:8192]:
            return None
    return [*_binary_findings(path, suffix, kind, data)], _unscanned_reason(suffix, kind)


def is_recognised(data: bytes) -> bool:
    """Whether a file begins as a known kind of binary files does."""
    return bool(_kind(data))


def _kind(data: bytes) -> str:
    for kind, starts in _MAGIC.items():
        if data.startswith(starts):
            return kind
    return "media" if data[4:8] == b"ftyp" else ""


def _is_real_program(data: bytes) -> bool:
    """`MZ` begins words too: a real program has a second signature."""
    if data[:2] != b"MZ":
        return True
    offset = int.from_bytes(data[60:64], "little")
    return data[offset : offset + 2] in {b"PE", b"NE", b"LE"} or b"\0" in data[:64]


def _binary_findings(path: str, suffix: str, kind: str, data: bytes) -> Iterator[Finding]:
    if kind == "program":
        disguised = suffix in _MEDIA | _TEXT_FILES | _OFFICE | {".pdf"}
        yield Finding("disguised-program" if disguised else "compiled-program", path)
    elif kind == "zip":
        yield from _zip(path, suffix, data)
    elif kind == "archive":
        if _locked(data):
            yield Finding("encrypted-archive", path)
        yield Finding(
            "nested-archive" if suffix not in _MEDIA | _TEXT_FILES else "disguised-file", path
        )
    elif kind == "media":
        if suffix in _TEXT_FILES:
            yield Finding("disguised-file", path)
        elif _appended_kind(data):
            yield Finding("appended-data", path, 0, _appended_kind(data))
    elif kind == "document":
        yield Finding("document-not-read", path)
        if data[:4] == b"\xd0\xcf\x11\xe0" and b"_VBA_PROJECT" in data:
            yield Finding("macros", path)
    elif kind == "" and suffix in _TEXT_FILES | _MEDIA and suffix != ".log":
        yield Finding("disguised-file", path)


def _zip(path: str, suffix: str, data: bytes) -> Iterator[Finding]:
    if _zip_locked(data):
        yield Finding("encrypted-archive", path)
    if suffix in _OFFICE:
        yield Finding("document-not-read", path)
        if b"vbaProject.bin" in data:
            yield Finding("macros", path, 0, "vbaProject.bin")
    elif suffix in _MEDIA | _TEXT_FILES:
        yield Finding("disguised-file", path, 0, "zip")
    else:
        yield Finding("nested-archive", path)


def _unscanned_reason(suffix: str, kind: str) -> str:
    if kind == "archive" or (kind == "zip" and suffix not in _OFFICE):
        return Message("it is an archive")
    if kind == "program" or (kind == "" and suffix not in _MEDIA):
        return Message("it is not text")
    return ""


def _zip_locked(data: bytes) -> bool:
    at = data.find(_ENTRY)
    while at >= 0:
        if data[at + 8 : at + 9] and data[at + 8] & 1:
            return True
        at = data.find(_ENTRY, at + 46)
    return data[:4] == b"PK\x03\x04" and bool(data[6:7] and data[6] & 1)


def _locked(data: bytes) -> bool:
    """Whether a 7z or rar archive is marked as encrypted."""
    if data.startswith(b"7z\xbc\xaf\x27\x1c"):
        return b"\x06\xf1\x07\x01" in data[-4096:]
    if data.startswith(b"Rar!\x1a\x07\x00"):
        return (len(data) > 24 and bool(int.from_bytes(data[10:12], "little") & 0x80)) or (
            len(data) > 25 and bool(int.from_bytes(data[23:25], "little") & 0x04)
        )
    return False


def _appended_kind(data: bytes) -> str:
    """The kind of data that follows the end of a PNG or JPEG."""
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
