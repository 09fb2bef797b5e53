"""How is a program asked that is kept running? A line goes down its pipe, a line comes back.

The way from an idle worker to its answer is short on purpose: a look at the pipes, a write, a wait,
a read. Whatever is not that (a reply in pieces, something on standard error, silence) is left to
`exchange`, which knows every fault.

A worker belongs to one call at a time. It is not used again after any fault, after `CALLS` calls or
`AGE` seconds, or when it holds more than `FULL` of the memory it may have.
"""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from satchel.runners.base import RunResult
from satchel.runners.exchange import exchange, result_of, resume
from satchel.runners.reply import read_usual

if TYPE_CHECKING:
    from satchel.runners.base import Cancel, Limits, Process, Tier

CALLS = 1_000
"""Calls that one process serves."""
AGE = 600.0
"""Seconds that one process lives."""
FULL = 0.8
LOOK = 64
"""Calls between two looks at a worker's memory."""
_CHUNK = 1 << 16


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
        process, poll = self.process, self._poll
        output = process.stdout
        before = poll.poll(0)
        calls = self.calls
        if before and calls:
            self._look(before)
        self.calls = calls + 1
        if before or not calls:
            # A first call may meet a program that does not start; later ones what it wrote on
            # standard error since the last: that is said with this one.
            got = exchange(process, line, limits, began + limits.timeout, cancel, keep=True)
        else:
            written = self._write(line)
            begun = b""
            if cancel is not None:
                poll.register(cancel.fileno(), select.POLLIN)
            if written == len(line):
                ready = poll.poll(limits.timeout * 1000)
                if len(ready) == 1 and ready[0][0] == output:
                    begun = os.read(output, _CHUNK)
            if cancel is not None:
                poll.unregister(cancel.fileno())
            # The usual case: one line, whole, and nothing else.
            if begun.find(b"\n") == len(begun) - 1 <= limits.reply:
                usual = read_usual(begun, limits.output)
                if usual is not None:
                    now = self.idle_since = time.monotonic()
                    ran = (now - began) * 1000
                    return RunResult(
                        usual[0], usual[1], None, None, "", 0, self.tier, "warm", (), "", None, 0,
                        waited, ran,
                    )  # fmt: skip
            rest = line[written:]
            got = resume(process, rest, begun, limits, began + limits.timeout, cancel)
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

    def _look(self, ready: list[tuple[int, int]]) -> None:
        for end, event in ready:
            if end == self.process.stdout:
                wrote = event & select.POLLIN
                raise Gone("it wrote more after a reply" if wrote else "it ended while it was idle")

    def _write(self, line: bytes) -> int:
        try:
            return os.write(self.process.stdin, line)
        except BlockingIOError:
            return 0
        except OSError:
            raise Gone("it ended while it was idle") from None

    def _is_full(self, memory: int) -> bool:
        from satchel.runners import _census

        pids = [self.process.pid, *_census.below(self.process.pid)]
        return _census.held(pids, memory) > memory * FULL
