"""Finds invisible, deceptive and padding characters in the text of a file.

Models read what people do not see: characters without a glyph, letters that look like others, and
text behind a long gap. The scan calls `find_hidden_characters` once for each text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel._unicode import BIDI_CONTROLS, LATIN_LOOKALIKES, VARIATION_SELECTORS
from satchel.security.regions import PROGRAM_KINDS
from satchel.security.report import Finding, TextSource

if TYPE_CHECKING:
    from collections.abc import Iterator

_TAG_CHARACTERS = re.compile("[\U000e0020-\U000e007f]{2,}")
_BLACK_FLAG = "\U0001f3f4"
"""Tag characters after a black flag legitimately spell the flag of a region."""
_VARIATION_SELECTORS = re.compile(f"[{VARIATION_SELECTORS}]{{4,}}")
_ZERO_WIDTH_RUN = re.compile("[\u200b\u200c\u200d\u2060-\u2064\ufeff\u00ad\u180e\u3164\uffa0]{8,}")
_BROKEN_WORD = re.compile("[a-z][\u200b\u2060\u00ad\u2063\u2062\ufeff][a-z]", re.IGNORECASE)
_BIDI_CONTROL = re.compile(f"[{BIDI_CONTROLS}]")
_INVISIBLE = frozenset(
    "\u00ad\u180e\u200b\u200c\u200d\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064\u2066"
    "\u2067\u2068\u2069\u3164\ufe00\ufe01\ufe02\ufe03\ufe04\ufe05\ufe06\ufe07\ufe08\ufe09\ufe0a\ufe0b"
    "\ufe0c\ufe0d\ufe0e\ufe0f\ufeff\uffa0"
)
_FIRST_TAG = "\U000e0000"
_HOST = re.compile(r"https?://([^\s/'\"`<>()\[\]{}|\\^:?#]{3,253})", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{3,40}")
_LONG_GAP = re.compile(r"(?<![^\S\n])[^\S\n]{200,}+(?=\S)")
"""Matches only from the first blank of a run, possessively: linear on any text."""
_MIN_PADDING_LINES = 79
"""More than an editor's window shows."""
_MIN_PADDED_CHARS = 8
_MAX_PADDED_CHARS = 400
_TABLE_CHARACTERS = frozenset("|-+=─│ ║╗╝")
_PADDED_COMMAND = re.compile(
    r"\b(?:curl|wget|bash|sh|powershell|python[23]?|eval|exec|node|nc|base64|iex|rm|fetch)\b"
    r"|https?://|ignore (?:all|previous)",
    re.IGNORECASE,
)


def find_hidden_characters(path: str, text: str, kind: str) -> Iterator[Finding]:
    """Find invisible, deceptive and padding characters.

    Args:
        path: For the findings.
        text: The text of the file.
        kind: The kind of the file, as in `Region.kind`.
    """
    source = TextSource(path, text)
    if not text.isascii():
        characters = set(text)
        if not characters.isdisjoint(_INVISIBLE) or max(characters) >= _FIRST_TAG:
            yield from _find_invisible(source, kind)
        if not characters.isdisjoint(LATIN_LOOKALIKES):
            yield from _find_lookalikes(source, kind)
    if "    " * 50 in text or "\t" * 200 in text or "\n\n\n\n" in text:
        padding = _find_long_gap(source) or _find_empty_lines(source)
        if padding is not None:
            yield padding


def _find_invisible(source: TextSource, kind: str) -> Iterator[Finding]:
    text = source.text
    for match in _TAG_CHARACTERS.finditer(text):
        if text[match.start() - 1 : match.start()] != _BLACK_FLAG:
            ascii_text = "".join(chr(ord(char) - ord(_FIRST_TAG)) for char in match.group())
            yield source.finding("tag-characters", match.start(), ascii_text)
            break
    match = _VARIATION_SELECTORS.search(text) or _ZERO_WIDTH_RUN.search(text)
    if match:
        evidence = f"{len(match.group())} × {_code_point(match.group()[0])}"
        yield source.finding("hidden-bytes", match.start(), evidence)
    match = _BIDI_CONTROL.search(text)
    if match:
        rule = "bidi-controls" if kind in PROGRAM_KINDS else "bidi-in-text"
        yield source.finding(rule, match.start(), _code_point(match.group()))
    match = _BROKEN_WORD.search(text)
    if match:
        before, invisible, after = match.group()
        yield source.finding(
            "zero-width", match.start(), f"{before} {_code_point(invisible)} {after}"
        )


def _code_point(char: str) -> str:
    return f"U+{ord(char):04X}"


def _find_lookalikes(source: TextSource, kind: str) -> Iterator[Finding]:
    for match in _HOST.finditer(source.text):
        if any(mixes_scripts(label) for label in match[1].split(".")):
            yield source.finding("lookalike-host", match.start(), match.group())
            break
    for match in _WORD.finditer(source.text):
        word = match.group()
        if not word.isascii() and mixes_scripts(word) and _is_disguised(word, kind):
            yield source.finding("lookalike-letters", match.start(), word)
            break


def mixes_scripts(word: str) -> bool:
    """Whether a word has Latin letters and lookalikes of another script."""
    return (
        not word.isascii()
        and any("a" <= char.lower() <= "z" for char in word)
        and any(char in LATIN_LOOKALIKES for char in word)
    )


def _is_disguised(word: str, kind: str) -> bool:
    """Whether all foreign letters are lookalikes; `μm` and `αβ` are not disguised."""
    foreign_letters = [char for char in word if not char.isascii()]
    if not all(char in LATIN_LOOKALIKES for char in foreign_letters):
        return False
    latin_count = len(word) - len(foreign_letters)
    return kind in PROGRAM_KINDS or (latin_count >= 3 and len(foreign_letters) < latin_count)


def _find_long_gap(source: TextSource) -> Finding | None:
    """Find text that stands far to the right of its line."""
    text = source.text
    for match in _LONG_GAP.finditer(text):
        line_end = text.find("\n", match.end())
        if line_end < 0:
            line_end = len(text)
        padded = text[match.end() : min(line_end, match.end() + _MAX_PADDED_CHARS)]
        if len(padded) >= _MIN_PADDED_CHARS and not set(padded) <= _TABLE_CHARACTERS:
            rule = "padding-hides-command" if _PADDED_COMMAND.search(padded) else "padding"
            return source.finding(rule, match.end(), padded[:120])
    return None


def _find_empty_lines(source: TextSource) -> Finding | None:
    """Find text that stands below many empty lines."""
    empty_lines = 0
    for number, line in enumerate(source.text.split("\n"), 1):
        if not line or line.isspace():
            empty_lines += 1
        elif empty_lines >= _MIN_PADDING_LINES:
            return Finding("padding", source.path, number, line.strip()[:80])
        else:
            empty_lines = 0
    return None
