"""The timer of one attempt of a step, which pauses while the step waits for a rate limit.

The timeout of a step covers its work, not its time in a provider's queue. The timer also carries
the usage of an attempt that is cancelled and therefore returns no result.
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

_current: ContextVar[StepTimer | None] = ContextVar("satchel_clock", default=None)


make_current = _current.set
"""Set the timer of everything that this task does from now on."""


class StepTimer:
    """The timer of one attempt; paused while every active part of it waits for a rate limit.

    Args:
        latest: Loop time at which the goal's time budget ends; pauses do not extend
            it.
    """

    __slots__ = ("_since", "_still", "_timers", "_waiting", "_working", "latest", "spent")

    def __init__(self, latest: float | None = None) -> None:
        self.latest = latest
        self.spent: Usage = NO_USAGE
        """Usage of the attempt when it was cancelled."""
        self._timers: dict[asyncio.Timeout, float] = {}
        self._waiting = self._working = 0
        self._still = False
        self._since = 0.0

    @contextmanager
    def pausing(self, timer: asyncio.Timeout) -> Generator[None]:
        """Move a running timeout by the duration of the pauses."""
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
        """Change the number of waiting or working parts.

        A working part keeps the timer running: otherwise two parts that wait for each other
        would never time out.
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
                continue  # the timeout has passed already, and cleanup may still wait
            if still:
                timer.reschedule(self.latest)
                continue
            later = self._timers[timer] = due + gone
            timer.reschedule(later if self.latest is None else min(later, self.latest))


@contextmanager
def paused() -> Generator[None]:
    """Wait for a rate limit: the step's timer is paused."""
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
def running() -> Generator[None]:
    """Work, which runs the timer although another part of the step waits."""
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
def pausing(timer: asyncio.Timeout) -> Generator[None]:
    """Pause another timeout together with the step's timer."""
    clock = _current.get()
    if clock is None:
        yield
        return
    with clock.pausing(timer):
        yield


def record_usage(usage: Usage) -> None:
    """Record the usage of an attempt that is being cancelled."""
    clock = _current.get()
    if clock is not None:
        clock.spent = usage


def attach_usage(end: BaseException, usage: Usage) -> None:
    """Attach the usage of all attempts to a cancellation."""
    cast("Any", end).satchel_usage = usage


def attached_usage(end: BaseException) -> Usage:
    """The usage attached to a cancellation; none when it came from elsewhere."""
    return getattr(end, "satchel_usage", NO_USAGE)
