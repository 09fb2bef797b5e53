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
_NO_PLURALS = frozenset(("axis", "iris", "onus", "opus", "plus", "this", "thus"))
"""Words of four letters in `is` and `us` that are one; the others are several: APIs, CPUs, GUIs."""
_PLURALS = frozenset(("emojis", "kiwis", "menus", "taxis", "wikis"))
"""Longer words in `is` and `us` that mean several all the same."""
_APART = frozenset(("stats",))
"""What would be one with a word of another meaning: the `state` of a thing."""


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The core of a word in lower case."""
    if word in _PLURALS:
        return word[:-1]
    if len(word) < _CORE or word in _APART or not word.isascii() or not word.isalpha():
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
    # `site` is no `sit`, and `note` is no `not`.
    if len(word) > _CORE and word[-1] == "e":
        word = word[:-1]
    if len(word) >= _CORE and word[-1] == "y":
        word = word[:-1] + "i"
    return word


def _singular(word: str) -> str:
    if word.endswith(("sses", "xes")):
        return word[:-2]
    if word.endswith("ies") and len(word) > _CORE:
        return word[:-2]
    if word[-1] != "s" or word[-2] == "s":
        return word
    if word[-2] in "ui" and (len(word) > _CORE or word in _NO_PLURALS):
        return word  # status, redis, analysis
    return word[:-1]


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
    # Nothing was doubled, so that there was an `e`: `coding` is of `code`, `running` of `run`.
    if len(core) == _CORE - 1 and _is_closed(core):
        return core + "e"
    return core


def _is_closed(core: str) -> bool:
    """Whether three letters are a vowel between two consonants."""
    first, middle, last = core
    return middle in _VOWELS and first not in _VOWELS and last not in _VOWELS and last not in "wx"
