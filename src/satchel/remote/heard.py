"""How much is listened to on one connection, and what was heard that explains a failure?

One of these belongs to each connection: what carries the bytes counts them here, and whoever has to
say why nothing came finds the reason.
"""

from __future__ import annotations

MAX_SAID = 2048
"""Bytes that are kept of what a program writes for people."""
MAX_ITEMS = 2_000_000
"""Values in one answer of a list: a few bytes each on the wire, and a hundred in memory."""


class Heard:
    """What came over one connection so far."""

    def __init__(self, limit: int) -> None:
        """Begin with nothing heard.

        Args:
            limit: Bytes of one answer.
        """
        self.limit = limit
        self.listing = False
        """A list is being read: its values are counted, too."""
        self.total = 0
        """Bytes since somebody set it to nought."""
        self.why = ""
        """Why nothing more is listened to."""
        self._said = bytearray()

    def take(self, data: bytes, size: int, items: int) -> int:
        """Count what came, as a part of one answer.

        Args:
            data: What came.
            size: Bytes of this answer, with these.
            items: Its values before these.

        Returns:
            Its values now.

        Raises:
            ValueError: it is too much.
        """
        self.total += len(data)
        if size > self.limit:
            self.why = f"the answer has more than {self.limit} bytes"
            raise ValueError(self.why)
        if self.listing:
            items += data.count(b",") + data.count(b"[") + data.count(b"{")
            if items > MAX_ITEMS:
                self.why = f"the answer has more than {MAX_ITEMS} values"
                raise ValueError(self.why)
        return items

    def say(self, data: bytes) -> None:
        """Keep the end of what a program writes for people."""
        self._said += data
        del self._said[:-MAX_SAID]

    @property
    def said(self) -> str:
        """The end of what a program wrote for people."""
        return self._said.decode("utf-8", "replace")
