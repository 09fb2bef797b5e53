"""What does the clock of a try not count, and what did a try take that never came to its end?

A step that stands in line for its provider does nothing wrong: its timeout is about its work. And
a try that is cancelled gives no result, but its tokens are spent all the same.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from satchel.goals.model import NO_USAGE

if TYPE_CHECKING:
    from collections.abc import Generator

    from satchel.goals.model import Usage

_current: ContextVar[Clock | None] = ContextVar("satchel_clock", default=None)


make_current = _current.set
"""Make a clock that of all that this task does from now on."""


class Clock:
    """The clock of one try; it stands still while all of it that goes on stands in line.

    Args:
        latest: When the goal itself has no time left, as the loop counts; waiting changes nothing
            about that.
    """

    __slots__ = ("_since", "_still", "_timers", "_waiting", "_working", "latest", "spent")

    def __init__(self, latest: float | None = None) -> None:
        self.latest = latest
        self.spent: Usage = NO_USAGE
        """What the try had taken when it was cancelled."""
        self._timers: dict[asyncio.Timeout, float] = {}
        self._waiting = self._working = 0
        self._still = False
        self._since = 0.0

    @contextmanager
    def stopping(self, timer: asyncio.Timeout) -> Generator[None]:
        """Move a timer, which must be running, by as long as the clock stands still."""
        due = timer.when()
        if due is None:
            yield
            return
        if self._still:
            due += self._since - asyncio.get_running_loop().time()
            timer.reschedule(self.latest)
        self._timers[timer] = due
        try:
            yield
        finally:
            del self._timers[timer]

    def count(self, *, waiting: int = 0, working: int = 0) -> None:
        """So many more stand in line, or are at work.

        A part that works keeps the clock going: else two parts of a step that wait for each other
        would never be too late.
        """
        self._waiting += waiting
        self._working += working
        still = self._waiting > 0 and not self._working
        if still == self._still:
            return
        self._still = still
        now = asyncio.get_running_loop().time()
        gone, self._since = now - self._since, now
        for timer, due in self._timers.items():
            if timer.expired():
                continue  # it is too late, and whoever tidies up may still ask
            if still:
                timer.reschedule(self.latest)
                continue
            later = self._timers[timer] = due + gone
            timer.reschedule(later if self.latest is None else min(later, self.latest))


@contextmanager
def waiting() -> Generator[None]:
    """Stand in line: the step's clock does not count this."""
    clock = _current.get()
    if clock is None:
        yield
        return
    clock.count(waiting=1)
    try:
        yield
    finally:
        clock.count(waiting=-1)


@contextmanager
def working() -> Generator[None]:
    """Be at work, which counts although another part of the step stands in line."""
    clock = _current.get()
    if clock is None:
        yield
        return
    clock.count(working=1)
    try:
        yield
    finally:
        clock.count(working=-1)


@contextmanager
def stopping(timer: asyncio.Timeout) -> Generator[None]:
    """Let a timer of one's own stand still too while the step's clock does."""
    clock = _current.get()
    if clock is None:
        yield
        return
    with clock.stopping(timer):
        yield


def spent(usage: Usage) -> None:
    """Say what a try took that is being cancelled."""
    clock = _current.get()
    if clock is not None:
        clock.spent = usage


def carry(end: BaseException, usage: Usage) -> None:
    """Let a cancellation tell what all tries of the step took until then."""
    cast("Any", end).satchel_usage = usage


def carried(end: BaseException) -> Usage:
    """What it tells; nothing when it came from elsewhere."""
    return getattr(end, "satchel_usage", NO_USAGE)
