"""What is kept of a stream that may never end: its beginning, its end, and how much was between.

The beginning tells what a program was about to do, the end why it stopped.
"""

from __future__ import annotations

_SLACK = 1 << 16


class Tail:
    """The first quarter and the last three quarters of `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._first = limit // 4
        self._last = limit - self._first
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        room = self._first - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._last + _SLACK:
            self._cut()

    def text(self) -> str:
        """What was kept, with a note where something is missing."""
        self._cut()
        if not self._dropped:
            return (self._head + self._tail).decode("utf-8", "replace")
        head, tail = (part.decode("utf-8", "replace") for part in (self._head, self._tail))
        return f"{head}\n… [{self._dropped:,} bytes were dropped] …\n{tail}"

    def _cut(self) -> None:
        over = len(self._tail) - self._last
        if over > 0:
            self._dropped += over
            del self._tail[:over]
