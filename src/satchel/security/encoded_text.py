"""Decodes Base64, hexadecimal and lists of character codes, and finds commands in the result.

The scan searches a decoded region with all other rules too. All patterns are bounded, so that the
time is linear for any text.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error, unhexlify
from typing import TYPE_CHECKING, NamedTuple

from satchel.security.report import MAX_EVIDENCE_CHARS, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.security.regions import Region

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{24,}={0,2}")
_HEX = re.compile(r"(?:\\x[0-9a-fA-F]{2}){8,}|(?<![0-9a-fA-F])(?:[0-9a-fA-F]{2}){24,}")
_CHARACTER_CODES = re.compile(r"(?:\b\d{2,3}\s{0,2},\s{0,2}){12,}\d{2,3}\b")
_MIN_CODE_COMMAS = 12
_MAX_DECODED_REGIONS = 40
"""Of one region; further texts are searched as one region."""
_MIN_ENCODED_CHARS = 24
_MIN_DECODED_BYTES = 12
_PREFIX_CHARS = 40
"""Of a Base64 text, decoded first: most such texts are no text when they are decoded."""
_ENCODED_BYTES = bytes(
    byte if (chr(byte).isalnum() and byte < 128) or byte in b"+/\\" else 32 for byte in range(256)
)
"""Leaves what encoded texts consist of, and blanks between them."""
_COMMAND = re.compile(
    r"\b(?:curl|wget)\s+(?:-\w+\s+)*['\"]?https?://|/bin/(?:ba|z)?sh\b|\b(?:ba|z)?sh\s+-c\b"
    r"|powershell(?:\.exe)?\s+-|invoke-(?:expression|webrequest)|\biex\b\s*\(|downloadstring"
    r"|\b(?:exec|eval)\s*\(|\bos\.(?:system|popen)\s*\(|\bsubprocess\.|\bchild_process\b"
    r"|/dev/tcp/|\bnc\s+-\w*e|import\s+(?:os|socket|subprocess)\b|cmd(?:\.exe)?\s+/c",
    re.IGNORECASE,
)
_PRINTABLE = re.compile(rb"[\t\n\r -~\x80-\xff]+")
_URL = re.compile(r"^\s*(?:https?|wss?|tcp)://[^\s]{4,200}\s*$")


class _DecodedText(NamedTuple):
    position: int
    """Where the encoded text stands in its region."""
    text: str


def decode_region(region: Region) -> Iterator[Region]:
    """Decode the encoded texts of a region.

    Yields:
        A region of the kind `decoded` for each of the first ones, and one for all others.
    """
    decoded_texts = [*_decode_words(region.text), *_decode_character_codes(region.text)]
    for position, text in decoded_texts[:_MAX_DECODED_REGIONS]:
        yield _make_decoded_region(region, position, text)
    remaining = decoded_texts[_MAX_DECODED_REGIONS:]
    if remaining:
        joined_text = "\n".join(decoded.text for decoded in remaining)
        yield _make_decoded_region(region, remaining[0].position, joined_text)


def find_encoded(path: str, region: Region) -> Iterator[Finding]:
    """Find a command or an address in a decoded region."""
    if region.kind != "decoded":
        return
    if _COMMAND.search(region.text):
        evidence = " ".join(region.text.split())
        yield Finding("encoded-command", path, region.line, evidence[:MAX_EVIDENCE_CHARS])
    elif _URL.match(region.text):
        evidence = region.text.strip()
        yield Finding("encoded-address", path, region.line, evidence[:MAX_EVIDENCE_CHARS])


def _decode_words(text: str) -> Iterator[_DecodedText]:
    """Decode the words that are Base64 or hexadecimal."""
    if not _has_long_run(text):
        return
    position = 0
    for word in text.split():
        if len(word) < _MIN_ENCODED_CHARS or not _has_long_run(word):
            continue
        position = max(text.find(word, position), position)
        for pattern, decode in ((_BASE64, _decode_base64), (_HEX, _decode_hex)):
            for encoded in pattern.findall(word):
                if decoded := decode(encoded):
                    yield _DecodedText(position, decoded)
        position += len(word)


def _decode_character_codes(text: str) -> Iterator[_DecodedText]:
    """Decode the lists of decimal character codes."""
    if text.count(",") < _MIN_CODE_COMMAS:
        return
    for match in _CHARACTER_CODES.finditer(text):
        codes = [int(code) for code in match.group().split(",")]
        if max(codes) < 256 and (decoded := _read_printable(bytes(codes))):
            yield _DecodedText(match.start(), decoded)


def _has_long_run(text: str) -> bool:
    """Whether a text may have encoded text in it."""
    runs = text.encode("utf-8", "surrogatepass").translate(_ENCODED_BYTES).split()
    return max(map(len, runs), default=0) >= _MIN_ENCODED_CHARS


def _make_decoded_region(region: Region, position: int, text: str) -> Region:
    return region._replace(kind="decoded", text=text, line=region.line_at(position))


def _decode_base64(encoded: str) -> str:
    """Return the decoded text; empty when it is not printable."""
    if not _read_printable(_decode_base64_bytes(encoded[:_PREFIX_CHARS])):
        return ""
    return _read_printable(_decode_base64_bytes(encoded))


def _decode_base64_bytes(encoded: str) -> bytes:
    encoded = encoded.rstrip("=")
    if len(encoded) % 4 == 1:
        encoded = encoded[:-1]
    try:
        return b64decode(encoded + "==")
    except (Error, ValueError):
        return b""


def _decode_hex(encoded: str) -> str:
    """Return the decoded text; empty when it is not printable."""
    try:
        return _read_printable(unhexlify(encoded.replace("\\x", "")))
    except (Error, ValueError):
        return ""


def _read_printable(data: bytes) -> str:
    """Return the text of the bytes; empty when they are not printable."""
    if b"\0" in data[:4]:
        data = data.replace(b"\0", b"")  # UTF-16
    if len(data) < _MIN_DECODED_BYTES or not _PRINTABLE.fullmatch(data):
        return ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""
