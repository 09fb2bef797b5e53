"""Writes tables of Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table, and an empty one."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join(' --- ' for _ in head)}|"
    for row in rows:
        yield f"| {' | '.join(cell(value) for value in row)} |"
    yield ""


def cell(text: str) -> str:
    """Text that stays in its cell and is no markup, though code in backticks stays code."""
    parts = " ".join(text.split()).split("`")
    for at, part in enumerate(parts):
        if at % 2 == 0:
            parts[at] = part.replace("<", "&lt;").replace("|", "&#124;")
        elif "|" in part:  # escapes are shown as they are within backticks
            plain = part.replace("<", "&lt;").replace("|", "&#124;")
            parts[at] = f"<code>{plain}</code>"
        else:
            parts[at] = f"`{part}`"
    return "".join(parts)
