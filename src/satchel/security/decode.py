"""What do encoded pieces of a text say? They are decoded, bounded, and looked at like the rest."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error, unhexlify
from typing import TYPE_CHECKING

from satchel.security.regions import Region
from satchel.security.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{24,}={0,2}")
_HEX = re.compile(r"(?:\\x[0-9a-fA-F]{2}){8,}|(?<![0-9a-fA-F])(?:[0-9a-fA-F]{2}){24,}")
_CODES = re.compile(r"(?:\b\d{2,3}\s{0,2},\s{0,2}){12,}\d{2,3}\b")
_PIECES = 40
_SHORTEST = 24
_LONGEST = 64 * 1024
_COMMAND = re.compile(
    r"\b(?:curl|wget)\s+(?:-\w+\s+)*['\"]?https?://|/bin/(?:ba|z)?sh\b|\b(?:ba|z)?sh\s+-c\b"
    r"|powershell(?:\.exe)?\s+-|invoke-(?:expression|webrequest)|\biex\b\s*\(|downloadstring"
    r"|\b(?:exec|eval)\s*\(|\bos\.(?:system|popen)\s*\(|\bsubprocess\.|\bchild_process\b"
    r"|/dev/tcp/|\bnc\s+-\w*e|import\s+(?:os|socket|subprocess)\b|cmd(?:\.exe)?\s+/c",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"^\s*(?:https?|wss?|tcp)://[^\s]{4,200}\s*$")


def decoded(region: Region) -> Iterator[Region]:
    """What is encoded in a region, as regions of their own."""
    text = region.text
    left = _PIECES
    at = 0
    words = text.split()
    if max(map(len, words), default=0) < _SHORTEST:
        words = []  # most parts of most pages
    for word in [word for word in words if len(word) >= _SHORTEST]:
        at = max(text.find(word, at), at)
        for pattern, read in ((_BASE64, _base64), (_HEX, _hex)):
            for found in pattern.finditer(word):
                inner = read(found.group())
                if inner:
                    yield _inside(region, at, inner)
                    left -= 1
        if left <= 0:
            return
        at += len(word)
    if text.count(",") > 11:
        for found in _CODES.finditer(text):
            inner = _codes(found.group())
            if inner:
                yield _inside(region, found.start(), inner)
                return


def find_encoded(path: str, region: Region) -> Iterator[Finding]:
    """What a decoded region is, beyond what the other rules find in it."""
    if region.kind != "decoded":
        return
    found = _COMMAND.search(region.text)
    if found:
        yield Finding("encoded-command", path, region.line, " ".join(region.text.split())[:160])
    elif _ADDRESS.match(region.text):
        yield Finding("encoded-address", path, region.line, region.text.strip()[:160])


def _inside(region: Region, where: int, text: str) -> Region:
    line = region.line + region.text.count("\n", 0, where)
    return Region("decoded", text, line, region.heading, region.above, region.script)


def _base64(value: str) -> str:
    value = value[:_LONGEST]
    head = _readable(_bytes64(value[:40]))
    return _readable(_bytes64(value)) if head else ""


def _bytes64(value: str) -> bytes:
    value = value.rstrip("=")
    if len(value) % 4 == 1:
        value = value[:-1]
    try:
        return b64decode(value + "==")
    except (Error, ValueError):
        return b""


def _hex(value: str) -> str:
    try:
        return _readable(unhexlify(value.replace("\\x", "")[: _LONGEST * 2]))
    except (Error, ValueError):
        return ""


def _codes(value: str) -> str:
    numbers = [int(part) for part in value[:_LONGEST].split(",") if part.strip()]
    return _readable(bytes(numbers)) if max(numbers) < 256 else ""


def _readable(data: bytes) -> str:
    """The text that bytes are, or nothing."""
    if data[1:2] == b"\0" and data[3:4] == b"\0":
        data = data[: len(data) // 2 * 2].decode("utf-16-le", "replace").encode("utf-8", "replace")
    if len(data) < 12 or not data.isascii():
        return ""
    text = data.decode("ascii")
    return text if all(char.isprintable() or char in "\n\r\t" for char in text) else ""
