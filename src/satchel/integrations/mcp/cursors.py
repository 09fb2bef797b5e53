"""How does a client ask for the next page? With a word that says after what the last one ended.

A position would shift when a skill is added or removed between two pages. A name does not: what
comes after it is what comes after it, so nothing is told twice and nothing that stays is missed.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST = 2_048
_MARK = "satchel1"


class Page(NamedTuple):
    """Some of the names, and how to ask for the rest."""

    names: Sequence[str]
    cursor: str | None


def page(names: Sequence[str], kind: str, cursor: str | None, size: int) -> Page:
    """One page of sorted names.

    Args:
        names: All of them, sorted.
        kind: What is listed: a cursor of one list is none of another.
        cursor: Where the client goes on; None at the start.
        size: How many at most.

    Raises:
        InvalidInput: the cursor is none that was given out for this list.
    """
    start = bisect_right(names, after(kind, cursor)) if cursor is not None else 0
    part = names[start : start + size]
    more = start + size < len(names)
    return Page(part, make(kind, part[-1]) if more and part else None)


def make(kind: str, last: str) -> str:
    """The word for everything after `last`."""
    return urlsafe_b64encode(f"{_MARK}\0{kind}\0{last}".encode()).decode().rstrip("=")


def after(kind: str, cursor: str) -> str:
    """The name after which a page begins.

    Raises:
        InvalidInput: the cursor is none that was given out for this list.
    """
    try:
        text = urlsafe_b64decode(cursor[:_LONGEST] + "=" * (-len(cursor) % 4)).decode()
    except (ValueError, binascii.Error) as exc:
        raise _unknown() from exc
    mark, _, rest = text.partition("\0")
    made_for, _, last = rest.partition("\0")
    if mark != _MARK or made_for != kind or make(kind, last) != cursor:
        raise _unknown()
    return last


def _unknown() -> InvalidInput:
    return InvalidInput("This cursor is none of this server's", "Begin again without a cursor")
