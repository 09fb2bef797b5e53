"""Where is a description cut when there is no room for all of it?

At the end of a sentence when that keeps most of the room, else at the end of a word. Chinese,
Japanese, Thai and their like have no spaces between words and are cut after any character. What
was cut ends in `…`, so that the reader knows.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MORE = "…"
_KEEPS = 0.6
"""A sentence end must keep this share of the room: half a line of good text beats a short one."""

_SENTENCE = re.compile(r"[.!?](?=\s)(?<!e\.g\.)(?<!i\.e\.)(?<!\svs\.)(?<!\setc\.)|[。！？]")
_DANGLING = " ,;:-–—(\"'“‘[{/、，；：（「"


def sentence_ends(text: str) -> list[int]:
    """The positions right after each sentence."""
    return [match.end() for match in _SENTENCE.finditer(text)]


def shorten(text: str, limit: int, ends: Sequence[int]) -> str:
    """At most `limit` characters of `text`, the `…` included.

    Args:
        text: One line.
        limit: More than two.
        ends: `sentence_ends(text)`, which the caller keeps because it asks more than once.
    """
    if len(text) <= limit:
        return text
    at = bisect_right(ends, limit - 2)
    if at and ends[at - 1] >= limit * _KEEPS:
        return f"{text[: ends[at - 1]]} {MORE}"
    return text[: _word_end(text, limit - 1)].rstrip(_DANGLING) + MORE


def _word_end(text: str, stop: int) -> int:
    """The last position up to `stop` where a word ends."""
    if text[stop] == " ":
        return stop
    here = text[stop - 1 : stop + 1]
    space = text.rfind(" ", 0, stop)
    if not here.isascii() and any(map(_unspaced, here)):
        return _whole_character(text, stop)
    # One endless word, such as an address, is cut in its middle.
    return space if space * 2 >= stop else _whole_character(text, stop)


def _unspaced(char: str) -> bool:
    """Whether the script of `char` writes no spaces between words."""
    return (
        char >= "\u2e80" or "\u0e00" <= char <= "\u0eff" or "\u1000" <= char <= "\u109f"
        or "\u1780" <= char <= "\u17ff"
    )  # fmt: skip


def _whole_character(text: str, stop: int) -> int:
    """Step back so that no mark or half of a joined emoji is left alone."""
    if text[stop - 1 : stop + 1].isascii():
        return stop
    from unicodedata import category

    first = max(1, stop - 16)
    while stop > first and (
        category(text[stop])[0] == "M" or text[stop] == "\u200d" or text[stop - 1] == "\u200d"
    ):
        stop -= 1
    return stop
