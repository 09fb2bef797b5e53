"""Whose turn is it? Calls wait per skill, and the skills take turns.

What holds:

- At most `slots` calls run, whoever they belong to; one skill has at most half of them.
- A free slot goes to the skill that has the fewest calls under way, and among those to the one
  that waited longest for its turn; the length of its queue does not count.
- A call that has run for `PATIENCE` seconds steps aside: it runs on, and its slot is given to
  others. So a skill that hangs costs others nothing after a moment. At most as many as there are
  slots step aside, which bounds the processes: `2 × slots` at any time.
- A call that waits can be taken back, and waits no longer than it is told to.

Threads wait here, on a lock each: nobody is woken for nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from satchel.runners.base import Cancel

Refusal = Literal["timeout", "cancelled", "closed"]
PATIENCE = 0.5
"""Seconds after which a running call steps aside while others wait."""
_TICK = 0.1


class Ticket:
    """One call's place: waiting, then running, perhaps aside, then gone."""

    since = 0.0
    """When it began to run, by `time.monotonic`; 0 while it waits."""
    waited = 0.0
    aside = False
    gate: threading.Lock | None = None
    waker = -1

    def __init__(self, skill: str, most: int) -> None:
        self.skill = skill
        self.most = most


class FairQueue:
    """Hands out turns."""

    def __init__(self, slots: int, patience: float = PATIENCE) -> None:
        """Give `slots` turns at a time.

        Args:
            slots: calls that run at once.
            patience: seconds after which a call steps aside.
        """
        self.slots = max(1, slots)
        self.share = max(1, self.slots // 2)
        """Calls that one skill may have under way."""
        self._patience = patience
        self._lock = threading.Lock()
        self._running: dict[Ticket, None] = {}
        """Oldest first, without those that stepped aside."""
        self._aside = 0
        self._of: dict[str, int] = {}
        """Calls under way of each skill, those aside counted too."""
        self._waiting: dict[str, deque[Ticket]] = {}
        """In the order in which the skills have their turn."""
        self._usher = False
        self._closed = False

    def enter(
        self, skill: str, wait: float, cancel: Cancel | None = None, most: int = 0
    ) -> Ticket | Refusal:
        """Wait for a turn; each ticket must be given back to `leave`.

        Args:
            skill: whose call it is.
            wait: seconds to wait at most.
            cancel: becomes readable when the call is taken back.
            most: calls of this skill at once, where it wants fewer than its share.
        """
        most = most if 0 < most < self.share else self.share
        ticket = Ticket(skill, most)
        now = time.monotonic()
        with self._lock:
            if self._closed:
                return "closed"
            under_way = self._of.get(skill, 0)
            # Whoever waits now could not run: a slot that is free is free for this call.
            if under_way < most and len(self._running) < self.slots:
                ticket.since = now
                self._running[ticket] = None
                self._of[skill] = under_way + 1
                return ticket
            ticket.gate = threading.Lock()
            ticket.gate.acquire()
            self._waiting.setdefault(skill, deque()).append(ticket)
            if not self._usher:
                self._usher = True
                threading.Thread(target=self._ush, name="satchel-queue", daemon=True).start()
        try:
            refusal = self._await(ticket, wait, cancel)
            ticket.waited = time.monotonic() - now
        except BaseException:  # an interrupt, too: nobody would ever give this place back
            self._abandon(ticket)
            raise
        return refusal or ticket

    def leave(self, ticket: Ticket) -> None:
        """Give a turn back."""
        with self._lock:
            if ticket.aside:
                self._aside -= 1
            else:
                del self._running[ticket]
            skill = ticket.skill
            left = self._of[skill] - 1
            if left:
                self._of[skill] = left
            else:
                del self._of[skill]
            if self._waiting:
                self._dispatch()

    def close(self) -> None:
        """Send everybody away who waits, and let nobody in any more."""
        with self._lock:
            self._closed = True
            for tickets in self._waiting.values():
                for ticket in tickets:
                    _wake(ticket)
            self._waiting.clear()

    def counts(self) -> tuple[int, int, int]:
        """How many run, run aside, wait."""
        with self._lock:
            waiting = sum(map(len, self._waiting.values()))
            return len(self._running), self._aside, waiting

    # --- waiting --------------------------------------------------------------------------

    def _await(self, ticket: Ticket, wait: float, cancel: Cancel | None) -> Refusal | None:
        cancelled = False
        if cancel is None:
            assert ticket.gate is not None  # noqa: S101 - made in `enter`
            ticket.gate.acquire(timeout=max(0.0, wait))
        else:
            cancelled = self._await_either(ticket, wait, cancel)
        with self._lock:
            if ticket.since:
                return None  # the turn may have come at the last moment
            if self._closed:
                return "closed"
            self._remove(ticket)
        return "cancelled" if cancelled else "timeout"

    def _abandon(self, ticket: Ticket) -> None:
        """Give up a place, whatever has become of it meanwhile."""
        with self._lock:
            self._remove(ticket)
            under_way = ticket.aside or ticket in self._running
        if under_way:
            self.leave(ticket)

    def _await_either(self, ticket: Ticket, wait: float, cancel: Cancel) -> bool:
        """Wait for a turn or for the call to be taken back; True for the latter."""
        woken, waker = os.pipe()
        try:
            with self._lock:
                if ticket.since or self._closed:
                    return False
                ticket.waker = waker
            poll = select.poll()
            poll.register(woken, select.POLLIN)
            poll.register(cancel.fileno(), select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(max(0.0, wait) * 1000)}
            return bool(ready) and woken not in ready
        finally:
            with self._lock:
                ticket.waker = -1
            os.close(woken)
            os.close(waker)

    # --- under the lock -------------------------------------------------------------------

    def _remove(self, ticket: Ticket) -> None:
        """Let it wait no longer, if it does."""
        tickets = self._waiting.get(ticket.skill)
        if tickets is not None and ticket in tickets:
            tickets.remove(ticket)
            if not tickets:
                del self._waiting[ticket.skill]

    def _dispatch(self) -> None:
        """Give free slots away, one skill after the other."""
        now = time.monotonic()
        while len(self._running) < self.slots:
            fewest, skill = self.share, ""
            for name, tickets in self._waiting.items():
                under_way = self._of.get(name, 0)
                if under_way < fewest and under_way < tickets[0].most:
                    fewest, skill = under_way, name
            if fewest == self.share:
                return
            tickets = self._waiting.pop(skill)
            ticket = tickets.popleft()
            if tickets:
                self._waiting[skill] = tickets  # its next turn comes after everybody else's
            ticket.since = now
            self._running[ticket] = None
            self._of[skill] = fewest + 1
            _wake(ticket)

    # --- stepping aside -------------------------------------------------------------------

    def _ush(self) -> None:
        """Runs in a thread of its own for as long as somebody waits."""
        while True:
            time.sleep(_TICK)
            with self._lock:
                if not self._waiting:
                    self._usher = False
                    return
                due = time.monotonic() - self._patience
                for ticket in list(self._running):
                    if ticket.since > due or self._aside >= self.slots:
                        break
                    del self._running[ticket]
                    ticket.aside = True
                    self._aside += 1
                self._dispatch()


def _wake(ticket: Ticket) -> None:
    if ticket.gate is not None:
        ticket.gate.release()
    if ticket.waker >= 0:
        with contextlib.suppress(OSError):
            os.write(ticket.waker, b"!")
