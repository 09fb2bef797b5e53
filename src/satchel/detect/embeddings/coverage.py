"""Script coverage of a local embedding model, from its vocabulary.

An English tokenizer contains the single letters of many scripts. It splits Russian into letters and
maps most Chinese characters to the unknown token, and the resulting vectors are meaningless. A
script counts as covered when the vocabulary contains word pieces in it, not only its letters.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_ONE_IS_A_WORD = frozenset(("CJK",))
"""Scripts whose characters are words or nearly so, and carry more meaning than a letter."""
_DENSE = frozenset(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI"))
_LATIN_CHARS_PER_SIGN_RATIO = 2.5
_MAX_UNCOVERED_SHARE = 0.3
"""Uncovered letters or unknown words from which a text is not covered."""
_MIN_SCRIPT_PIECES = 1_000
_MIN_SCRIPT_SHARE = 0.2
"""A script is covered from this number of word pieces, or from this share of a small vocabulary."""
_MARKERS = ("##", "▁", "Ġ", "</w>")
_MAX_EXAMINED_CHARS = 2_000
_SAME = {"KATAKANA": "HIRAGANA", "KATAKANA-HIRAGANA": "HIRAGANA", "IDEOGRAPHIC": "CJK"}


@lru_cache(maxsize=8_192)
def script_of(char: str) -> str:
    """The script of a letter, as Unicode names it; empty for what is no letter."""
    if not char.isalpha():
        return ""
    script = unicodedata.name(char, "").partition(" ")[0]
    return _SAME.get(script, script)


def scripts_in(text: str) -> dict[str, float]:
    """How much of a text is written in each script, in Latin letters' worth."""
    found: dict[str, float] = {}
    # Full-width Latin is Latin, and an accent belongs to its letter.
    for char in unicodedata.normalize("NFKC", text[:_MAX_EXAMINED_CHARS]):
        if script := script_of(char):
            found[script] = found.get(script, 0.0) + (
                _LATIN_CHARS_PER_SIGN_RATIO if script in _DENSE else 1.0
            )
    return found


class Vocabulary:
    """The covered scripts of a tokenizer, counted on first use."""

    def __init__(self, tokenizer: Any, unknown: int | None) -> None:
        self._tokenizer = tokenizer
        self._unknown = unknown
        self._scripts: frozenset[str] | None = None

    def covers(self, text: str) -> bool:
        """Whether the script is one of the vocabulary's, and so are most of the words."""
        if not self._reads(text):
            return False
        if self._unknown is None:
            return True
        found = self._tokenizer.encode(text[:_MAX_EXAMINED_CHARS], add_special_tokens=False)
        known = unknown = 0
        for token, (begin, end) in zip(found.ids, found.offsets, strict=True):
            # Unknown symbols such as emoji are ignored.
            if any(map(str.isalpha, text[begin:end])):
                unknown += token == self._unknown
                known += token != self._unknown
        return unknown <= _MAX_UNCOVERED_SHARE * (known + unknown)

    def _reads(self, text: str) -> bool:
        """Whether nearly all letters of a text belong to covered scripts."""
        if self._scripts is None:
            pieces: Iterable[str] = self._tokenizer.get_vocab()
            self._scripts = covered_scripts(pieces)
        if text.isascii():
            return "LATIN" in self._scripts or not any(map(str.isalpha, text))
        found = scripts_in(text)
        foreign = sum(size for script, size in found.items() if script not in self._scripts)
        return foreign <= _MAX_UNCOVERED_SHARE * sum(found.values())


def covered_scripts(pieces: Iterable[str]) -> frozenset[str]:
    """The scripts in which a vocabulary has pieces of words."""
    counts: dict[str, int] = {}
    total = 0
    for piece in map(_plain, pieces):
        total += 1
        scripts = {script for char in piece if (script := script_of(char))}
        if len(scripts) != 1:
            continue
        (script,) = scripts
        if script in _ONE_IS_A_WORD or sum(map(str.isalpha, piece)) > 1:
            counts[script] = counts.get(script, 0) + 1
    enough = min(_MIN_SCRIPT_PIECES, _MIN_SCRIPT_SHARE * total)
    return frozenset(script for script, count in counts.items() if count >= enough)


def _plain(piece: str) -> str:
    """Return a vocabulary piece as it occurs in a text."""
    for marker in _MARKERS:
        piece = piece.removeprefix(marker).removesuffix(marker)
    if piece.isascii() or any(char not in _BYTES for char in piece):
        return piece
    # Byte-level vocabularies write each byte as one visible character.
    return bytes(_BYTES[char] for char in piece).decode("utf-8", "ignore")


def _byte_letters() -> dict[str, int]:
    """The visible character of each byte in byte-level vocabularies."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    letters = {chr(byte): byte for byte in visible}
    letters.update({chr(256 + at): byte for at, byte in enumerate(hidden)})
    return letters


_BYTES = _byte_letters()
