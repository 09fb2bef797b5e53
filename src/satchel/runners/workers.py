"""Programs that are kept running and answer line after line.

A worker belongs to one call at a time. It is not used again after any fault, after `CALLS` calls or
`AGE` seconds, or when it holds more than `FULL` of the memory it may have.
"""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from satchel.runners.exchange import exchange, result_of

if TYPE_CHECKING:
    from satchel.runners.base import Cancel, Limits, Process, RunResult, Tier

CALLS = 1_000
"""Calls that one process serves."""
AGE = 600.0
"""Seconds that one process lives."""
FULL = 0.8
LOOK = 64
"""Calls between two looks at a worker's memory."""


class Gone(Exception):
    """The process was of no use when it was needed: nothing of the call was handed over.

    The text says why, in one sentence.
    """


class Worker:
    """A program that answers line after line."""

    __slots__ = ("_poll", "born", "calls", "idle_since", "process", "tier")

    def __init__(self, process: Process, tier: Tier) -> None:
        self.process = process
        self.tier: Tier = tier
        self.born = self.idle_since = time.monotonic()
        self.calls = 0
        self._poll = select.poll()
        os.set_blocking(process.stdin, False)
        for end in (process.stdout, process.stderr):
            os.set_blocking(end, False)
            self._poll.register(end, select.POLLIN)

    def ask(self, line: bytes, limits: Limits, cancel: Cancel | None, waited: float) -> RunResult:
        """Send the line of one call and read its answer.

        Args:
            line: the request, with its newline.
            limits: bounds of time, answer and standard error.
            cancel: becomes readable when the call is taken back.
            waited: milliseconds in the queue, for the result.

        Raises:
            Gone: it had ended before, or written what nobody asked for.
        """
        began = time.monotonic()
        if self.calls:  # a first call may meet a program that does not start: that is its fault
            self._look()
        self.calls += 1
        got = exchange(self.process, line, limits, began + limits.timeout, cancel, keep=True)
        now = self.idle_since = time.monotonic()
        return result_of(got, limits, self.tier, "warm")._replace(
            waited_ms=waited, ran_ms=(now - began) * 1000
        )

    def is_spent(self, limits: Limits) -> bool:
        """Whether it should be replaced after a call that went well."""
        if self.calls >= CALLS or self.idle_since - self.born >= AGE:
            return True
        return not self.calls % LOOK and bool(limits.memory) and self._is_full(limits.memory)

    def is_well(self) -> bool:
        """Whether it waits for a call, silently."""
        return all(end != self.process.stdout for end, _ in self._poll.poll(0))

    def close(self) -> None:
        """End it."""
        self.process.close()

    def _look(self) -> None:
        for end, event in self._poll.poll(0):
            if end == self.process.stdout:
                wrote = event & select.POLLIN
                raise Gone("it wrote more after a reply" if wrote else "it ended while it was idle")

    def _is_full(self, memory: int) -> bool:
        from satchel.runners import _census

        pids = [self.process.pid, *_census.below(self.process.pid)]
        return _census.held(pids, memory) > memory * FULL
