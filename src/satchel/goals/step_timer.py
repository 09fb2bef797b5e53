"""Timeouts of a step that pause while it waits for a rate limit.

The timeout of a step covers its work, not its time in a provider's queue. An attempt that is
cancelled returns no result: its usage is attached to the cancellation.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from satchel.goals.model import NO_USAGE

if TYPE_CHECKING:
    from collections.abc import Generator

    from satchel.goals.model import Usage


class _PausedTimeout:
    """A timeout of the current attempt, and how many of its requests wait and work."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self.timeout = timeout
        self.waiting = self.working = 0
        self.left: float | None = None
        """Seconds left when it was paused."""
        self.still = False


_running: ContextVar[tuple[_PausedTimeout, ...]] = ContextVar("satchel_timeouts", default=())


@contextmanager
def paused() -> Generator[None]:
    """Wait for a rate limit: the timeouts of the step are paused while no other request works."""
    _count(waiting=1)
    try:
        yield
    finally:
        _count(waiting=-1)


@contextmanager
def running() -> Generator[None]:
    """Work, for which the timeouts of the step run although another request waits."""
    _count(working=1)
    try:
        yield
    finally:
        _count(working=-1)


def _count(*, waiting: int = 0, working: int = 0) -> None:
    now = asyncio.get_running_loop().time()
    for one in _running.get():
        one.waiting += waiting
        one.working += working
        still = one.waiting > 0 and not one.working
        if still == one.still:
            continue
        one.still = still
        if still:
            due = one.timeout.when()
            one.left = None if due is None else due - now
            _reschedule(one.timeout, None)
        elif one.left is not None:
            _reschedule(one.timeout, now + one.left)


def _reschedule(timeout: asyncio.Timeout, due: float | None) -> None:
    with suppress(RuntimeError):  # it has expired, and the step is cleaning up
        timeout.reschedule(due)


@contextmanager
def pausing(timeout: asyncio.Timeout) -> Generator[None]:
    """Pause a running timeout while the step waits for a rate limit."""
    token = _running.set((*_running.get(), _PausedTimeout(timeout)))
    try:
        yield
    finally:
        _running.reset(token)


def attach_usage(end: BaseException, usage: Usage) -> None:
    """Attach the usage of an attempt to the cancellation that ends it."""
    cast("Any", end).satchel_usage = usage


def attached_usage(end: BaseException | None) -> Usage:
    """The usage attached to a cancellation; none when it came from elsewhere."""
    return getattr(end, "satchel_usage", NO_USAGE)
