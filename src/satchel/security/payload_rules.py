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
from typing import TYPE_CHECKING, NamedTuple

from satchel.i18n import Message
from satchel.security.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENCODED_COMMANDS = (
    b"curl -fsSL http", b"curl -sSL http", b"wget -qO- http", b"/bin/bash -c ",
    b"bash -i >& /dev/tcp/", b"Invoke-Expression", b"Invoke-WebRequest", b"DownloadString(",
    b"import subprocess", b"import socket", b"os.system(", b"child_process", b"powershell -",
    b"exec(base64",
)  # fmt: skip
_XORED_TEXTS = (b"powershell.exe", b"/bin/bash -c", b"User-Agent: Mozilla")
_HARMLESS_KEYS = (0x00, 0x20)
"""The text itself, and the text in the other case."""
_PROGRAM_WORDS = {
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
_RANSOM_NOTE_WORDS = (
    (b"your files have been encrypted", b"all your files are encrypted"),
    (b"decryption key", b"bitcoin", b".onion"),
    (b"os.walk(", b"fernet(", b"aes.new(", b"vssadmin"),
)
"""One word of each group."""
_PHP_SHELL = re.compile(
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

_SIGNATURES = {
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
"""Kind -> how files of this kind begin."""
_OFFICE_SUFFIXES = frozenset((
    ".docx", ".xlsx", ".pptx", ".dotx", ".xltx", ".potx", ".odt", ".ods", ".odp", ".epub", ".docm",
    ".xlsm", ".pptm", ".ott", ".vsdx", ".pages", ".key", ".numbers",
))  # fmt: skip
_MEDIA_SUFFIXES = frozenset((
    ".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".bmp", ".tiff", ".tif", ".mp3", ".wav",
    ".ogg", ".mp4", ".mov", ".webm", ".avi", ".flac", ".ttf", ".otf", ".woff", ".woff2", ".eot",
    ".heic",
    ".avif", ".m4a", ".icns", ".mkv", ".psd", ".svgz", ".ttc", ".glb", ".aac", ".opus",
))  # fmt: skip
_TEXT_SUFFIXES = frozenset((
    ".md", ".txt", ".json", ".yaml", ".yml", ".toml", ".csv", ".html", ".xml", ".svg", ".css",
    ".log", ".rst", ".ini", ".cfg",
))  # fmt: skip
_APPENDED_SIGNATURES = {b"PK\x03\x04": "zip", b"\x7fELF": "ELF", b"Rar!": "rar", b"#!/": "script"}
_MAX_APPENDED_START_BYTES = 4096
_BYTECODE_SUFFIXES = frozenset((".pyc", ".pyo"))
_ZIP_ENTRY = b"PK\x01\x02"


def _make_base64_forms(text: bytes) -> Iterator[bytes]:
    """Return the characters of a text inside longer encoded text, at each of three offsets."""
    for shift in range(3):
        encoded = b64encode(b"\0" * shift + text).rstrip(b"=")
        yield encoded[(0, 2, 3)[shift] : -1 if (shift + len(text)) % 3 else None]


_BASE64_FORMS = tuple(form for text in _ENCODED_COMMANDS for form in _make_base64_forms(text))
_MIN_FORM_BYTES = min(map(len, _BASE64_FORMS))
_BASE64_BYTES = bytes(
    byte if byte < 128 and (chr(byte).isalnum() or byte in b"+/") else 32 for byte in range(256)
)
"""Leaves the characters of encoded text, and blanks between them."""
_XOR_PATTERNS = tuple((text, bytes(a ^ b for a, b in pairwise(text))) for text in _XORED_TEXTS)


def _find_web_shell(lowered: bytes) -> tuple[int, int] | None:
    """Find start and end of a web shell in linear time: PHP is searched from the call backwards."""
    for call in _PHP_SHELL.finditer(lowered) if b"<?php" in lowered else ():
        start = lowered.rfind(b"<?php", max(0, call.start() - _MAX_PHP_BYTES), call.start())
        if start >= 0 and b"\0" not in lowered[start : call.start()]:
            return start, call.end()
    for word, pattern in _WEB_SHELLS:
        if word in lowered and (shell := pattern.search(lowered)):
            return shell.span()
    return None


def find_payloads(path: str, data: bytes) -> Iterator[Finding]:
    """Find the payloads in a file."""
    runs = data.translate(_BASE64_BYTES).split()
    long_runs = b" ".join(run for run in runs if len(run) >= _MIN_FORM_BYTES)
    if form := next((form for form in _BASE64_FORMS if form in long_runs), None):
        yield _make_finding("encoded-shell", path, data, data.index(form), len(form))
    position = _find_xored(data)
    if position >= 0:
        yield _make_finding("xored-address", path, data, position, 0)
    lowered = data.lower()
    if b"\0" in data:
        lowered += b"\n" + lowered.replace(b"\0", b"")  # text in UTF-16
    if data.startswith(_SIGNATURES["program"]):
        yield from _find_harmful_programs(path, lowered)
    if shell := _find_web_shell(lowered):
        start, end = shell
        yield _make_finding("web-shell", path, data, start, min(end - start, 80))
    if all(any(word in lowered for word in group) for group in _RANSOM_NOTE_WORDS):
        yield Finding("ransom-note", path)


def _find_harmful_programs(path: str, lowered: bytes) -> Iterator[Finding]:
    """Find the harmful kinds of programs that a program has the words of."""
    for rule, (min_count, words) in _PROGRAM_WORDS.items():
        matched_words = [word for word in words if word in lowered]
        if len(matched_words) >= min_count:
            yield Finding(rule, path, 0, matched_words[0].decode())


def _find_xored(data: bytes) -> int:
    """Find a text that is hidden by XOR with one byte; -1 without one.

    The XOR of neighbouring bytes is the same for every key.
    """
    number = int.from_bytes(data, "little")
    differences = (number ^ (number >> 8)).to_bytes(len(data), "little")
    for text, pattern in _XOR_PATTERNS:
        position = differences.find(pattern)
        while position >= 0:
            if data[position] ^ text[0] not in _HARMLESS_KEYS:
                return position
            position = differences.find(pattern, position + 1)
    return -1


def _make_finding(rule: str, path: str, data: bytes, position: int, length: int) -> Finding:
    line = data.count(b"\n", 0, position) + 1 if b"\0" not in data[:4096] else 0
    text = data[position : position + length].decode("utf-8", "replace")
    return Finding(rule, path, line, " ".join(text.split()))


class BinaryFile(NamedTuple):
    """What the signature of a file tells."""

    findings: list[Finding]
    unscanned_reason: str
    """Why its content cannot be scanned; else empty."""


def inspect_binary(path: str, data: bytes) -> BinaryFile | None:
    """Inspect a file by its signature; None for text."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix in _BYTECODE_SUFFIXES:
        return BinaryFile([Finding("bytecode", path)], Message("it is not text"))
    kind = _detect_kind(data)
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
    findings = [*_find_by_kind(path, suffix, kind, data)]
    return BinaryFile(findings, _explain_unscanned(suffix, kind))


def is_recognised(data: bytes) -> bool:
    """Whether a file begins as a known kind of binary files does."""
    return bool(_detect_kind(data))


def _detect_kind(data: bytes) -> str:
    for kind, starts in _SIGNATURES.items():
        if data.startswith(starts):
            return kind
    return "media" if data[4:8] == b"ftyp" else ""


def _is_real_program(data: bytes) -> bool:
    """`MZ` begins words too: a real program has a second signature."""
    if data[:2] != b"MZ":
        return True
    offset = int.from_bytes(data[60:64], "little")
    return data[offset : offset + 2] in {b"PE", b"NE", b"LE"} or b"\0" in data[:64]


def _find_by_kind(path: str, suffix: str, kind: str, data: bytes) -> Iterator[Finding]:
    if kind in _KIND_CHECKS:
        yield from _KIND_CHECKS[kind](path, suffix, data)
    elif kind == "" and suffix in _TEXT_SUFFIXES | _MEDIA_SUFFIXES and suffix != ".log":
        yield Finding("disguised-file", path)


def _check_program(path: str, suffix: str, _data: bytes) -> Iterator[Finding]:
    is_disguised = suffix in _MEDIA_SUFFIXES | _TEXT_SUFFIXES | _OFFICE_SUFFIXES | {".pdf"}
    yield Finding("disguised-program" if is_disguised else "compiled-program", path)


def _check_archive(path: str, suffix: str, data: bytes) -> Iterator[Finding]:
    if _is_encrypted(data):
        yield Finding("encrypted-archive", path)
    is_disguised = suffix in _MEDIA_SUFFIXES | _TEXT_SUFFIXES
    yield Finding("disguised-file" if is_disguised else "nested-archive", path)


def _check_media(path: str, suffix: str, data: bytes) -> Iterator[Finding]:
    if suffix in _TEXT_SUFFIXES:
        yield Finding("disguised-file", path)
    elif appended_kind := _find_appended_kind(data):
        yield Finding("appended-data", path, 0, appended_kind)


def _check_document(path: str, _suffix: str, data: bytes) -> Iterator[Finding]:
    yield Finding("document-not-read", path)
    if data[:4] == b"\xd0\xcf\x11\xe0" and b"_VBA_PROJECT" in data:
        yield Finding("macros", path)


def _check_zip(path: str, suffix: str, data: bytes) -> Iterator[Finding]:
    if _is_zip_encrypted(data):
        yield Finding("encrypted-archive", path)
    if suffix in _OFFICE_SUFFIXES:
        yield Finding("document-not-read", path)
        if b"vbaProject.bin" in data:
            yield Finding("macros", path, 0, "vbaProject.bin")
    elif suffix in _MEDIA_SUFFIXES | _TEXT_SUFFIXES:
        yield Finding("disguised-file", path, 0, "zip")
    else:
        yield Finding("nested-archive", path)


_KIND_CHECKS = {
    "program": _check_program,
    "zip": _check_zip,
    "archive": _check_archive,
    "media": _check_media,
    "document": _check_document,
}


def _explain_unscanned(suffix: str, kind: str) -> str:
    if kind == "archive" or (kind == "zip" and suffix not in _OFFICE_SUFFIXES):
        return Message("it is an archive")
    if kind == "program" or (kind == "" and suffix not in _MEDIA_SUFFIXES):
        return Message("it is not text")
    return ""


def _is_zip_encrypted(data: bytes) -> bool:
    """Whether an entry of a zip is marked as encrypted."""
    entry_start = data.find(_ZIP_ENTRY)
    while entry_start >= 0:
        if data[entry_start + 8 : entry_start + 9] and data[entry_start + 8] & 1:
            return True
        entry_start = data.find(_ZIP_ENTRY, entry_start + 46)
    return data[:4] == b"PK\x03\x04" and bool(data[6:7] and data[6] & 1)


def _is_encrypted(data: bytes) -> bool:
    """Whether a 7z or rar archive is marked as encrypted."""
    if data.startswith(b"7z\xbc\xaf\x27\x1c"):
        return b"\x06\xf1\x07\x01" in data[-4096:]
    if data.startswith(b"Rar!\x1a\x07\x00"):
        return (len(data) > 24 and bool(int.from_bytes(data[10:12], "little") & 0x80)) or (
            len(data) > 25 and bool(int.from_bytes(data[23:25], "little") & 0x04)
        )
    return False


def _find_appended_kind(data: bytes) -> str:
    """Return the kind of data that follows the end of a PNG or JPEG."""
    if data.startswith(b"\x89PNG"):
        end = data.rfind(b"IEND")
        appended = data[end + 8 :] if end > 0 else b""
    elif data.startswith(b"\xff\xd8"):
        end = data.rfind(b"\xff\xd9")
        appended = data[end + 2 :] if end > 0 else b""
    else:
        return ""
    start = appended[:_MAX_APPENDED_START_BYTES]
    names = (name for signature, name in _APPENDED_SIGNATURES.items() if signature in start)
    return next(names, "")
