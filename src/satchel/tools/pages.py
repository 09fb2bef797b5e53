"""A file's bytes -> the part of its text that fits into one reply, and where to go on."""

from __future__ import annotations

import re
from typing import NamedTuple

_LINES = re.compile(r"[^\n]*\n|[^\n]+")
"""Lines as editors count them: `str.splitlines` also breaks at form feeds and the like."""


class Page(NamedTuple):
    """One part of a text."""

    content: str
    first: int
    """Its first line, counted from 1."""
    last: int
    lines: int
    """How many lines the whole text has."""
    next_line: int
    """Where the rest begins; 0 when nothing was cut."""
    next_column: int


def decode(data: bytes, *, cut: bool) -> tuple[str | None, str]:
    """The text, or None for what is none; and which fallback made it readable.

    Args:
        data: The file's bytes.
        cut: Whether the file is longer, so that the last sign may be half.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
        return (None, "") if "\0" in text else (text, "")
    if b"\0" in data:
        return None, ""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode(), ""
    except UnicodeDecodeError as exc:
        if cut and exc.start >= len(data) - 4:
            return data[: exc.start].decode(), ""
        return data.decode("utf-8", "replace"), "invalid-utf-8"


def cut_page(text: str, *, first: int, count: int | None, column: int, limit: int) -> Page:
    """Cut out `count` lines from `first` on, and of them at most `limit` characters.

    What was asked for is complete even when the text goes on; only the limit makes it partial.
    """
    rows = _LINES.findall(text)
    total = len(rows)
    if first > total:
        return Page("", first, first - 1, total, 0, 1)
    wanted = rows[first - 1 : None if count is None else first - 1 + int(count)]
    if column > 1:
        wanted[0] = wanted[0][column - 1 :]
    taken: list[str] = []
    room = limit
    for at, row in enumerate(wanted):
        if len(row) > room:
            line = first + at
            if taken:
                return Page("".join(taken), first, line - 1, total, line, 1)
            # One line alone is too long: cut it, and go on within it.
            start = column if at == 0 else 1
            return Page(row[:room], first, line, total, line, start + room)
        taken.append(row)
        room -= len(row)
    return Page("".join(taken), first, first + len(wanted) - 1, total, 0, 1)
