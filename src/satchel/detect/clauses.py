"""Which parts does a goal have? "Write the file, then mail it" wants two skills."""

from __future__ import annotations

import re

MOST = 12
"""Parts that are compared on their own."""
SHORTEST = 4
_AND_THEN = (
    "and|then|also|finally|next|after that|afterwards|然后|再|最后|并且|并|同时|接着|そして|그리고"
)
_CUT = re.compile(
    rf"(?<=[.!?;])\s+|(?<=[。！？；])|\n+|[,，、]\s*(?:{_AND_THEN})\s*",
)


def clauses(goal: str) -> list[str]:
    """The sentences of a goal, at most `MOST`; the goal itself when it is one."""
    parts = [part.strip() for part in _CUT.split(goal) if part]
    found = [part for part in parts if len(part) >= SHORTEST]
    return found[:MOST] or [goal.strip()]
