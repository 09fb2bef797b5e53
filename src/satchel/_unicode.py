"""Tables of invisible, bidirectional and look-alike characters.

The upper-case texts are parts of character classes in regular expressions: each caller combines
those that matter to it. They are code points rather than Unicode categories, so that all versions
of Python agree.
"""

from __future__ import annotations

import re

CONTROLS = "\x00-\x1f\x7f-\x9f"
FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"
"""Letters and marks without a glyph: Khmer, Mongolian and Hangul fillers."""
BIDI_CONTROLS = "\u202a-\u202e\u2066-\u2069"
SURROGATES = "\ud800-\udfff"
TAGS = "\U000e0000-\U000e0fff"
VARIATION_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
JOINERS = "\u200c\u200d"
"""ZWNJ and ZWJ, which shape emoji and Indic or Arabic script."""

INVISIBLE = re.compile(
    rf"[\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff{FILLERS}{TAGS}]"
)
"""Characters that can hide text in names and descriptions, including joiners."""

_CYRILLIC_LOOKALIKES = "авеіјкмнорсѕтухһԁԛԝӏ"
LATIN_LOOKALIKES = frozenset(
    _CYRILLIC_LOOKALIKES + "αικνορτυ" + "АВЕКМНОРСТУХІЈЅ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"
)
"""Cyrillic and Greek letters that look like Latin ones."""
TO_LATIN = str.maketrans(
    _CYRILLIC_LOOKALIKES + "αεικνορτυχ" + "０１",
    "abeijkmhopcstyxhdqwl" + "aeikvoptux" + "01",
)
"""Translates small letters of other alphabets to the Latin ones they look like."""


_IGNORABLE = re.compile(f"[{FILLERS}{VARIATION_SELECTORS}]")


def fold(name: str) -> str:
    """A name without case, compatibility forms and marks that some file systems ignore."""
    import unicodedata  # rarely needed

    folded = _IGNORABLE.sub("", unicodedata.normalize("NFKC", name).casefold())
    return "".join(char for char in folded if unicodedata.category(char) != "Cf")


def replace_unprintable(text: str, replacement: str) -> str:
    """Replace each character that is not printable, line breaks included."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else replacement for char in text)
