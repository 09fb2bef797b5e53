"""Are there characters that people do not see, or that look like others?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.security.regions import PROGRAMS
from satchel.security.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

_TAGS = re.compile("[\U000e0020-\U000e007f]{2,}")
_FLAG = "\U0001f3f4"
"""A black flag: tag characters after it spell the flag of a region, and are honest."""
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_ZERO = re.compile("[\u200b\u200c\u200d\u2060-\u2064\ufeff\u00ad\u180e\u3164\uffa0]{8,}")
_BROKEN = re.compile("[a-z][\u200b\u2060\u00ad\u2063\u2062\ufeff][a-z]", re.IGNORECASE)
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_HIDDEN = frozenset(
    "\u00ad\u180e\u200b\u200c\u200d\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064\u2066"
    "\u2067\u2068\u2069\u3164\ufe00\ufe01\ufe02\ufe03\ufe04\ufe05\ufe06\ufe07\ufe08\ufe09\ufe0a\ufe0b"
    "\ufe0c\ufe0d\ufe0e\ufe0f\ufeff\uffa0"
)
_HOST = re.compile(r"https?://([^\s/'\"`<>()\[\]{}|\\^:?#]{3,253})", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{3,40}")
_BLANKS = re.compile(r"(?<![^\S\n])[^\S\n]{200,}+(?=\S)")
"""Starts only at the first blank of a run and never gives one back: linear on any text."""
_BLANK_LINES = 79
"""Blank lines in a row before more text: an editor's window shows fewer."""
_COMMAND = re.compile(
    r"\b(?:curl|wget|bash|sh|powershell|python[23]?|eval|exec|node|nc|base64|iex|rm|fetch)\b"
    r"|https?://|ignore (?:all|previous)",
    re.IGNORECASE,
)
_LOOKALIKES = frozenset("аеорсухіјѕԁӏԛԝһкмтнвАВЕКМНОРСТУХІЈЅοαινρυτκΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
"""Cyrillic and Greek letters that look Latin."""


def find_unseen(path: str, text: str, kind: str) -> Iterator[Finding]:
    """What cannot be seen in a text."""
    if not text.isascii():
        used = set(text)
        if not used.isdisjoint(_HIDDEN) or max(used) >= "\U000e0000":
            yield from _invisible(path, text, kind)
        if not used.isdisjoint(_LOOKALIKES):
            yield from _lookalikes(path, text, kind)
    if "    " * 50 in text or "\t" * 200 in text or "\n\n\n\n" in text:
        yield from _padding(path, text)


def _invisible(path: str, text: str, kind: str) -> Iterator[Finding]:
    for found in _TAGS.finditer(text):
        if text[found.start() - 1 : found.start()] != _FLAG:
            words = "".join(chr(ord(char) - 0xE0000) for char in found.group())
            yield _at(path, text, found.start(), "tag-characters", words)
            break
    for pattern in (_SELECTORS, _ZERO):
        found = pattern.search(text)
        if found:
            shown = f"{len(found.group())} × U+{ord(found.group()[0]):04X}"
            yield _at(path, text, found.start(), "hidden-bytes", shown)
            break
    found = _BIDI.search(text)
    if found:
        rule = "bidi-controls" if kind in PROGRAMS else "bidi-in-text"
        yield _at(path, text, found.start(), rule, f"U+{ord(found.group()):04X}")
    found = _BROKEN.search(text)
    if found:
        shown = f"{found.group()[0]} U+{ord(found.group()[1]):04X} {found.group()[2]}"
        yield _at(path, text, found.start(), "zero-width", shown)


def _lookalikes(path: str, text: str, kind: str) -> Iterator[Finding]:
    for found in _HOST.finditer(text):
        if any(mixed(label) for label in found[1].split(".")):
            yield _at(path, text, found.start(), "lookalike-host", found.group())
            break
    for found in _WORD.finditer(text):
        word = found.group()
        if not word.isascii() and mixed(word) and _disguised(word, kind):
            yield _at(path, text, found.start(), "lookalike-letters", word)
            break


def mixed(word: str) -> bool:
    """Latin letters, and letters of another script that look Latin."""
    return (
        not word.isascii()
        and any("a" <= char.lower() <= "z" for char in word)
        and any(char in _LOOKALIKES for char in word)
    )


def _disguised(word: str, kind: str) -> bool:
    """Every foreign letter looks Latin: it was chosen for that. `μm` and `αβ` were not."""
    foreign = [char for char in word if not char.isascii()]
    latin = len(word) - len(foreign)
    return all(char in _LOOKALIKES for char in foreign) and (
        kind in PROGRAMS or (latin >= 3 and len(foreign) < latin)
    )


def _padding(path: str, text: str) -> Iterator[Finding]:
    for found in _BLANKS.finditer(text):
        end = text.find("\n", found.end())
        rest = text[found.end() : end if end >= 0 else found.end() + 400][:400]
        if len(rest) < 8 or set(rest) <= set("|-+=─│ ║╗╝"):
            continue
        rule = "padding-hides-command" if _COMMAND.search(rest) else "padding"
        yield _at(path, text, found.end(), rule, rest[:120])
        return
    blank = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.isspace():
            blank += 1
        elif blank >= _BLANK_LINES:
            yield Finding("padding", path, number, line.strip()[:80])
            return
        else:
            blank = 0


def _at(path: str, text: str, where: int, rule: str, evidence: str) -> Finding:
    return Finding(rule, path, text.count("\n", 0, where) + 1, evidence[:160])
