"""The line ends of a file that was edited in a page.

A browser sends every line end as CRLF, whatever the file had. Each line that was there before keeps
its own, so that a save changes nothing that nobody touched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_END = re.compile(rb"(\r\n|\r|\n)")
_MOST_LINES = 2_000
"""Comparing is quadratic at worst; in more lines than this, those touched get the usual end."""


def with_line_ends(text: bytes, before: bytes) -> bytes:
    """A text with the line ends that its earlier version had.

    Args:
        text: The new one, with whatever line ends.
        before: The file as it was.
    """
    new = _END.split(text)[::2]
    parts = _END.split(before)
    old, ends = parts[::2], parts[1::2]
    kinds = set(ends)
    usual = max((b"\n", b"\r\n", b"\r"), key=ends.count)
    if len(kinds) <= 1:
        return usual.join(new)
    found = [usual] * len(new)
    for one, other in _pairs(old, new):
        if one < len(ends):  # the last line has none
            found[other] = ends[one]
    found[-1] = b""
    for at in range(len(new) - 2, -1, -1):
        if found[at] == b"\r" and not new[at + 1] and found[at + 1][:1] == b"\n":
            found[at] = b"\n"  # the two would become one
    return b"".join(line + end for line, end in zip(new, found, strict=True))


def _pairs(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int]]:
    """Which line of the old text became which of the new one."""
    shorter = min(len(old), len(new))
    start = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    room = shorter - start
    end = next((at for at in range(room) if old[-1 - at] != new[-1 - at]), room)
    pairs = [(at, at) for at in range(start)]
    pairs += [(len(old) - 1 - at, len(new) - 1 - at) for at in range(end)]
    was, now = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(was), len(now)) > _MOST_LINES:
        return pairs
    from difflib import SequenceMatcher

    for _, i, i_end, j, j_end in SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        # Lines that replace others take their ends, as far as there are as many.
        pairs += [(start + i + at, start + j + at) for at in range(min(i_end - i, j_end - j))]
    return pairs
