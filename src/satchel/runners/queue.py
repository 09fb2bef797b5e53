"""Lets calls in: a bounded number at once, first come first served.

- At most `slots` calls run; one skill has at most half of them, so that a skill that hangs leaves
  the other half free.
- A free slot goes to the call that waited longest and whose skill may have one more.
- A call that waits can be cancelled, and waits no longer than it asked to.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from satchel.runners.base import Cancel

Refusal = Literal["timeout", "cancelled", "closed"]


class Ticket:
    """The place of one call."""

    waited = 0.0
    """Seconds."""

    def __init__(self, skill: str, most: int) -> None:
        self.skill = skill
        self.most = most
        self.running = False
        self.wake = -1
        """While it waits: written to when its turn has come or the queue is closed."""


class CallQueue:
    """Hands out turns to the threads of a host."""

    def __init__(self, slots: int) -> None:
        """Let at most `slots` calls run at once."""
        self.slots = max(1, slots)
        self._share = max(1, self.slots // 2)
        """Calls that one skill may have at once."""
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        """Calls of each skill."""
        self._waiting: list[Ticket] = []
        self._closed = False

    def enter(
        self, skill: str, wait: float, cancel: Cancel | None = None, most: int = 0
    ) -> Ticket | Refusal:
        """Wait for a turn; each ticket must be given back to `leave`.

        Args:
            skill: The skill that is called.
            wait: Seconds to wait at most.
            cancel: Becomes readable when the call is taken back.
            most: Calls of this skill at once, where it wants fewer than its share.
        """
        ticket = Ticket(skill, min(most or self._share, self._share))
        came = time.monotonic()
        with self._lock:
            if self._closed:
                return "closed"
            self._waiting.append(ticket)
            self._dispatch()
            if ticket.running:
                return ticket
            woken, ticket.wake = os.pipe()
        try:
            cancelled = _await(woken, wait, cancel)
        except BaseException:  # an interrupt must not keep the place
            self._give_up(ticket)
            raise
        finally:
            with self._lock:
                os.close(ticket.wake)
                ticket.wake = -1
            os.close(woken)
        ticket.waited = time.monotonic() - came
        with self._lock:
            if ticket.running:
                return ticket  # the turn may have come at the last moment
            if self._closed:
                return "closed"
            self._waiting.remove(ticket)
        return "cancelled" if cancelled else "timeout"

    def leave(self, ticket: Ticket) -> None:
        """Give a turn back."""
        with self._lock:
            self._running[ticket.skill] -= 1
            if not self._running[ticket.skill]:
                del self._running[ticket.skill]
            self._dispatch()

    def close(self) -> None:
        """Refuse every call that waits, and every later one."""
        with self._lock:
            self._closed = True
            for ticket in self._waiting:
                _wake(ticket)
            self._waiting.clear()

    def counts(self) -> tuple[int, int]:
        """How many calls run, and how many wait."""
        with self._lock:
            return self._running.total(), len(self._waiting)

    def _give_up(self, ticket: Ticket) -> None:
        with self._lock:
            if not ticket.running:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                return
        self.leave(ticket)

    def _dispatch(self) -> None:
        """Give free slots away; the lock is held."""
        for ticket in list(self._waiting):
            if self._running.total() >= self.slots:
                return
            if self._running[ticket.skill] < ticket.most:
                self._waiting.remove(ticket)
                self._running[ticket.skill] += 1
                ticket.running = True
                _wake(ticket)


def _wake(ticket: Ticket) -> None:
    if ticket.wake >= 0:
        os.write(ticket.wake, b"!")


def _await(woken: int, wait: float, cancel: Cancel | None) -> bool:
    """Wait for the turn, the time or the cancellation; whether it was the last alone."""
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    if cancel is not None:
        poll.register(cancel.fileno(), select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(max(0.0, wait) * 1000)}
    return bool(ready) and woken not in ready
