"""Does a text deny what it names next, or does it only ask or tell something about it?

"Do not use docker" is an order. "This app does not run with docker" is a report, and who reports
what does not work needs just that skill.
"""

from __future__ import annotations

from typing import NamedTuple

from satchel.detect import phrases as say_so


class Denial(NamedTuple):
    """A negation, and what stands beside it."""

    start: int
    word: str
    fill: str
    """What stands between it and what it denies."""
    before: str
    """The text just before it."""


def is_asked(low: str, start: int) -> bool:
    """`why did you use X?`, `can I use X?`: a question, and no order."""
    if say_so.MAY_ASK(low[max(0, start - say_so.SPAN) : start]) is None:
        return False
    from satchel.detect.no_orders import ASKED

    return bool(ASKED(low[max(0, start - say_so.SPAN) : start]))


def is_denied(low: str, at: int) -> bool:
    """Whether a negation stands just before `at`."""
    return denial(low, at) is not None


def denial(low: str, at: int) -> Denial | None:
    """The negation that stands just before `at`."""
    begins = max(0, at - say_so.SPAN)
    window = low[begins:at]
    if not window.isascii():
        found = say_so.ZH_NOT_BEFORE(window)
        if found is not None:
            other = window[found.start() - 1 : found.start()] in say_so.NOT_OTHER
            if other and found.group()[0] in "别別":
                return None
            return Denial(begins + found.start(), found["not"], "", window[: found.start()])
    if say_so.NOT_WORDS(window) is None:
        return None
    found = say_so.NOT_BEFORE(window)
    if found is None:
        return None
    before = window[: found.start()]
    if found["not"] in {"not", "n't", "dont"} and say_so.WHY(before):
        return None
    if found["not"] in {"without", "w/o"} and say_so.TWICE(before):
        return None
    return Denial(begins + found.start(), found["not"], found["fill"], before)


def is_order(low: str, at: int, end: int, *, named: bool) -> bool:
    """Whether what is denied before `at` is forbidden, and not only told of.

    Args:
        low: The text in lower case.
        at: Where the verb or the name begins.
        end: Where the names end.
        named: They are called skills, or look like names: then it needs less to be an order.
    """
    found = denial(low, at)
    if found is None:
        return True
    from satchel.detect import no_orders

    if not found.word.isascii():
        return no_orders.zh_order(found.word, found.before, low[end : end + 3], named=named)
    if found.word not in {"not", "n't", "dont", "never", "cannot"}:
        return True
    return no_orders.is_order(found.word, found.before, found.fill, named=named)
