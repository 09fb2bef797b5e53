"""Timeouts of a step that pause while it waits for a rate limit.

The timeout of a step covers its work, not its time in a provider's queue. An attempt that is
cancelled returns no result: its usage is attached to the cancellation.
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


class StepTimer:
    """The timeouts of one attempt."""

    def __init__(self) -> None:
        self._ends: dict[asyncio.Timeout, float] = {}
        """Timeout -> when it ends, as far as the current pause is not counted."""
        self._waiting = 0
        self._paused_at = 0.0

    def make_current(self) -> None:
        """Use this timer for everything that the current task does from now on."""
        _current.set(self)

    def add(self, timeout: asyncio.Timeout) -> None:
        """Pause a running timeout together with the others."""
        due = timeout.when()
        if due is None:
            return
        if self._waiting:
            due += self._paused_at - asyncio.get_running_loop().time()
            timeout.reschedule(None)
        self._ends[timeout] = due

    def remove(self, timeout: asyncio.Timeout) -> None:
        """Forget a timeout."""
        self._ends.pop(timeout, None)

    def wait(self, more: int) -> None:
        """Change the number of requests that wait; the first one pauses, the last one resumes."""
        was, self._waiting = self._waiting, self._waiting + more
        if bool(was) == bool(self._waiting):
            return
        now = asyncio.get_running_loop().time()
        gone, self._paused_at = now - self._paused_at, now
        for timeout, due in self._ends.items():
            if timeout.expired():
                continue  # its cleanup may still wait
            if self._waiting:
                timeout.reschedule(None)
            else:
                self._ends[timeout] = due + gone
                timeout.reschedule(due + gone)


@contextmanager
def paused() -> Generator[None]:
    """Wait for a rate limit: the timeouts of the step are paused."""
    timer = _current.get()
    if timer is not None:
        timer.wait(1)
    try:
        yield
    finally:
        if timer is not None:
            timer.wait(-1)


@contextmanager
def pausing(timeout: asyncio.Timeout) -> Generator[None]:
    """Pause a running timeout while the step waits for a rate limit."""
    timer = _current.get()
    if timer is not None:
        timer.add(timeout)
    try:
        yield
    finally:
        if timer is not None:
            timer.remove(timeout)


def attach_usage(end: BaseException, usage: Usage) -> None:
    """Attach the usage of an attempt to the cancellation that ends it."""
    cast("Any", end).satchel_usage = usage


def attached_usage(end: BaseException | None) -> Usage:
    """The usage attached to a cancellation; none when it came from elsewhere."""
    return getattr(end, "satchel_usage", NO_USAGE)
