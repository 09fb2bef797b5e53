"""English stemmer: `reviewing`, `reviewed` and `reviews` have the stem `review`."""

from __future__ import annotations

import re
from functools import lru_cache

_VOWELS = frozenset("aeiouy")
_DERIVATIONS = (
    ("ization", "iz"),
    ("isation", "iz"),
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
"""Derivational endings and their replacements."""
_AMERICAN_ENDS = {"ys": "yz", "is": "iz", "our": "or", "ogu": "og"}
"""Ends of stems that are spelled in two ways: `analyse`, `organise`, `colour`, `catalogue`."""
_BRITISH_END = re.compile(r"(?:(?<=\w{4})(?:ys|(?<!s)is|ogu)|(?<=\w{3})our)$")
_MIN_STEM_CHARS = 4
"""A shorter remainder means that the ending is part of the word."""
_SINGULAR_WORDS = frozenset(("axis", "iris", "onus", "opus", "plus", "this", "thus"))
"""Singular words of four letters in `is` and `us`; others are plural: APIs, CPUs, GUIs."""
_PLURAL_WORDS = frozenset(("emojis", "kiwis", "menus", "taxis", "wikis"))
"""Longer plural words in `is` and `us`."""
_UNSTEMMED_WORDS = frozenset(
    ("stats", "accounting", "billion", "business", "filing", "meeting", "mission", "shipping")
)
"""Words whose stem would equal that of a word of another meaning: `state`, `account`, `bill`,
`busy`, `file`, `meet`, `miss`, `ship`."""


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of a lowercase word."""
    if word in _PLURAL_WORDS:
        return word[:-1]
    if (
        len(word) < _MIN_STEM_CHARS
        or word in _UNSTEMMED_WORDS
        or not word.isascii()
        or not word.isalpha()
    ):
        return word
    word = _remove_plural(word)
    if word in _UNSTEMMED_WORDS:
        return word
    word = _strip_suffix(word)
    word = _strip_derivation(word)
    # `site` is not `sit`, and `note` is not `not`.
    if len(word) > _MIN_STEM_CHARS and word[-1] == "e":
        word = word[:-1]
    if len(word) >= _MIN_STEM_CHARS and word[-1] == "y":
        word = word[:-1] + "i"
    return _BRITISH_END.sub(lambda match: _AMERICAN_ENDS[match[0]], word)


def _strip_derivation(word: str) -> str:
    """Remove an ending such as `ation` or `ness`."""
    for ending, replacement in _DERIVATIONS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM_CHARS:
            return word[: -len(ending)] + replacement
    is_long = len(word) > 2 * _MIN_STEM_CHARS + 1
    return word.removesuffix("ement") if is_long else word


def _remove_plural(word: str) -> str:
    """Remove the `s` of a plural."""
    if word.endswith(("sses", "xes")):
        return word[:-2]
    if word.endswith("ies") and len(word) > _MIN_STEM_CHARS:
        return word[:-2]
    if word[-1] != "s" or word[-2] == "s":
        return word
    if word[-2] in "ui" and (len(word) > _MIN_STEM_CHARS or word in _SINGULAR_WORDS):
        return word  # status, redis, analysis
    return word[:-1]


def _strip_suffix(word: str) -> str:
    """Remove `ing` and `ed`, and the doubled letter before them."""
    if word.endswith("ing") and len(word) > 5:
        remainder = word[:-3]
    elif word.endswith("ed") and not word.endswith("eed") and len(word) > _MIN_STEM_CHARS:
        remainder = word[:-2]
    else:
        return word
    if _VOWELS.isdisjoint(remainder):
        return word
    if (
        len(remainder) >= _MIN_STEM_CHARS
        and remainder[-1] == remainder[-2]
        and remainder[-1] not in "lsz"
    ):
        return remainder[:-1]
    # Without a doubled letter there was an `e`: `coding` -> `code`, `running` -> `run`.
    if len(remainder) == _MIN_STEM_CHARS - 1 and _is_closed_syllable(remainder):
        return remainder + "e"
    return remainder


def _is_closed_syllable(remainder: str) -> bool:
    """Whether three letters are consonant, vowel, consonant."""
    first, middle, last = remainder
    return middle in _VOWELS and first not in _VOWELS and last not in _VOWELS and last not in "wx"
