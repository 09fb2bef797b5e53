"""Regular expressions of a plan's output schema, with a bound on their backtracking.

The author of a plan is its user, so this guards against accidents, not attacks: `re` holds the
interpreter lock while it backtracks, and one bad pattern would stop a worker. A pattern is refused
when it repeats a group that itself repeats or has alternatives, refers back or looks around.
Possessive repeats (`++`, `*+`) do not backtrack and are always allowed. For the other patterns the
work grows as a power of the text's length; longer texts are not tried.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from satchel._language import Message

MAX_TEXT_CHARS = 100_000
MAX_PATTERN_CHARS = 1_000
_MAX_TRIES = 50_000_000
"""Positions that one search may look at: less than a second."""
_TOKEN = re.compile(
    r"\\(?P<back>[1-9])|\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]"  # an escape, or a character class
    r"|(?P<around>\(\?(?:<?[=!]|P=|\())|\(\?[aiLmsux]+\)"  # looking around; flags
    r"|(?P<open>\((?:\?(?:P<\w+>|[aiLmsux-]*:|>))?)"
    r"|(?P<close>\))|(?P<either>\|)"
    r"|(?P<times>[*+?]|\{\d*,?\d*\})(?P<keep>[?+]?)|.",
    re.DOTALL,
)


def fault(pattern: Any) -> str:
    """Return why a pattern is refused; empty when it is accepted."""
    if not isinstance(pattern, str):
        return "it is no text"
    return _analysed(pattern)[0]


def fits(pattern: str, text: str) -> str:
    """Return what is wrong with a text; empty when the pattern is found in it."""
    refused, repeats = _analysed(pattern)
    if refused:
        return f"has a pattern that is not tried: {refused}"
    length = len(text)
    if length > MAX_TEXT_CHARS or (length + 1) ** repeats > _MAX_TRIES:
        return f"is too long, with {length} characters, for `{pattern}`"
    return "" if re.search(pattern, text) else f"must match `{pattern}`"


@lru_cache(maxsize=500)
def _analysed(pattern: str) -> tuple[str, int]:
    """Return why a pattern is refused, and the power of a text's length that bounds its work."""
    if len(pattern) > MAX_PATTERN_CHARS:
        return Message("it has more than {count} characters", count=MAX_PATTERN_CHARS), 0
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as exc:
        return Message("it cannot be read: {reason}", reason=exc), 0
    repeats = 0 if pattern.startswith("^") else 1
    open_groups = [""]
    closed = ""  # what a repeat of the group that has just been closed would multiply
    for token in _TOKEN.finditer(pattern):
        if token["back"] or token["around"]:
            return "it refers back or looks around", 0
        if token["times"] and not _is_fixed(token["times"]) and token["keep"] != "+":
            if closed and token["times"] != "?":
                return f"it repeats {closed}; make the inner repeat possessive, as in `++`", 0
            open_groups[-1] = "what repeats"
            repeats += 1
        if token["either"]:
            open_groups[-1] = open_groups[-1] or "alternatives"
        closed = ""
        if token["open"]:
            open_groups.append("")
        elif token["close"]:
            closed = open_groups.pop()
            if closed == "what repeats":
                open_groups[-1] = closed
    return "", repeats


def _is_fixed(times: str) -> bool:
    """Whether a repeat has one length, as `{4}`, or is a literal brace, as `{}`."""
    return times[0] == "{" and ("," not in times or not any(map(str.isdigit, times)))
