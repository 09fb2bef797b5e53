"""Which words are one word? `review`, `reviews`, `reviewing` and `reviewed` are.

A light stemmer for English: it cuts the endings that grammar adds and leaves the word's core,
which need not be a word. On the labelled sets it ranks as well as a full Snowball stemmer, and it
needs no package. Other languages are left as they are.
"""

from __future__ import annotations

from functools import lru_cache

_VOWELS = frozenset("aeiouy")
_ENDINGS = (
    ("ization", "iz"),
    ("mentation", "ment"),
    ("ation", "at"),
    ("ator", "at"),
    ("fulness", "ful"),
    ("iveness", "iv"),
    ("ness", ""),
    ("ally", "al"),
    ("ly", ""),
    ("able", ""),
    ("ible", ""),
    ("ance", ""),
    ("ence", ""),
    ("ion", ""),
)
"""Endings that make one word of another, and what stays of them."""
_CORE = 4
"""Letters that must be left, or the ending was none."""


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The core of a word in lower case."""
    if len(word) < _CORE or not word.isascii() or not word.isalpha():
        return word
    word = _singular(word)
    word = _undone(word)
    for ending, rest in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _CORE:
            word = word[: -len(ending)] + rest
            break
    else:
        if word.endswith("ement") and len(word) > 2 * _CORE + 1:
            word = word[:-5]
    if len(word) >= _CORE and word[-1] == "e":
        word = word[:-1]
    if len(word) >= _CORE and word[-1] == "y":
        word = word[:-1] + "i"
    return word


def _singular(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("ies") and len(word) > _CORE:
        return word[:-2]
    if word[-1] == "s" and word[-2] not in "sui":
        return word[:-1]
    return word


def _undone(word: str) -> str:
    """Without `ing` and `ed`, and without the letter that they doubled."""
    if word.endswith("ing") and len(word) > 5:
        core = word[:-3]
    elif word.endswith("ed") and not word.endswith("eed") and len(word) > _CORE:
        core = word[:-2]
    else:
        return word
    if _VOWELS.isdisjoint(core):
        return word
    if len(core) >= _CORE and core[-1] == core[-2] and core[-1] not in "lsz":
        return core[:-1]
    return core
