"""How texts become comparable: one spelling for the library's side and for the query's.

Everything is UTF-8 bytes in lower case, because a search over bytes runs at the speed of C.
Scripts that write no spaces are searched by pairs of signs.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

_LOWER = bytes(code + 32 if 65 <= code <= 90 else code for code in range(256))
BORDER = bytes(code > 127 or not chr(code).isalnum() for code in range(256))
"""1 for the bytes that let a word beside them be whole. A sign beyond ASCII does: `使用pdf工具` has
the word `pdf`."""
_SPACED = bytes(32 if code < 128 and not chr(code).isalnum() else code for code in range(256))
_LOWER_SPACED = _LOWER.translate(_SPACED)
_SIGNS = dict.fromkeys((ord(sign) for sign in "«·»‐‑‒–—―‘’“”•…←→−●、。《》「」『』【】・"), " ")
# Thai, Lao, Myanmar, Khmer, and everything from the CJK radicals to the ideographs.
_DENSE = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
# Marks apart from their letters, parts of Hangul, wide and narrow forms, ligatures. Only such texts
# are normalised: it is by far the slowest step.
_SPELT_OTHERWISE = re.compile(
    "[\u0300-\u036f\u1100-\u11ff\u3099\u309a\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc\ufb00-\ufb06]"
).search
_LONGEST_RUN = 8
_IDLE = 2

_IDLE_WORDS = (
    "a an and any are as at be by can do does for from get has have help how i in into is it its "
    "me my need needs of on or our please should skill skills so some that the their them then "
    "there these they this to use used uses using want was we what when where which who will with "
    "would you your"
)
STOP = frozenset(_IDLE_WORDS.split())
"""English words that say nothing about what is wanted."""


class Word(NamedTuple):
    """One thing to look for."""

    data: bytes
    shown: str
    bordered: bool
    """Whether its script puts something between words, so that a whole word can be told."""


def even(text: str) -> str:
    """One spelling for what Unicode spells in several ways; ASCII is left to `lower`."""
    if text.isascii():
        return text
    if _SPELT_OTHERWISE(text):
        text = unicodedata.normalize("NFKC", text)
    return text.lower()


def lower(data: bytes) -> bytes:
    """ASCII letters to lower case."""
    return data.translate(_LOWER)


def spaced(data: bytes) -> bytes:
    """Words with single spaces between them and at both ends, whatever stood between them."""
    return b" " + b" ".join(data.translate(_SPACED).split()) + b" "


def query_bytes(text: str) -> bytes:
    """The comparable form of a query."""
    if text.isascii():  # a million names are
        return b" " + b" ".join(text.encode().translate(_LOWER_SPACED).split()) + b" "
    return spaced(lower(even(text).translate(_SIGNS).encode("utf-8", "replace")))


def words_of(query: bytes) -> list[Word]:
    """What to look for, in the order of the query, each once.

    Words that say nothing are left out unless there are no others.
    """
    found: dict[bytes, Word] = {}
    idle: dict[bytes, Word] = {}
    for piece in query.decode("utf-8", "replace").split():
        for part in _DENSE.split(piece):
            if not part:
                continue
            if _DENSE.match(part):
                for run in _pieces(part):
                    found.setdefault(run.encode(), Word(run.encode(), run, bordered=False))
            else:
                table = idle if part in STOP else found
                table.setdefault(part.encode(), Word(part.encode(), part, bordered=True))
    if found:
        return list(found.values())
    return sorted(idle.values(), key=lambda word: -len(word.data))[:_IDLE]


def _pieces(run: str) -> list[str]:
    """A run without spaces: itself when short enough to be one word, and its pairs."""
    if len(run) <= 2:
        return [run]
    pairs = [run[at : at + 2] for at in range(len(run) - 1)]
    return [run, *pairs] if len(run) <= _LONGEST_RUN else pairs
