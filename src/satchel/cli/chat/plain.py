"""How is a turn written where there is nothing to redraw? As it comes, line after line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.cli.output import clean

if TYPE_CHECKING:
    from satchel.cli.output import Screen

_PATIENCE = 5.0
"""Seconds of silence before somebody is told that it goes on; then twice as many, and so on."""


class PlainBoard:
    """A board that only ever adds."""

    def __init__(self, screen: Screen, aside: Screen | None = None) -> None:
        """Write there.

        Args:
            screen: Where the turn is written.
            aside: Where it is said that somebody still waits; `screen` itself when None.
        """
        self._screen = screen
        self._aside = aside or screen
        self._ended = True
        self._since = time.monotonic()
        self._next = _PATIENCE

    @property
    def width(self) -> int:
        """Columns; 0 when there is no end."""
        return self._screen.width

    def paint(self, text: str, style: str) -> str:
        """`text` in a style, where colour is wanted."""
        return self._screen.paint(text, style)

    def text(self, delta: str) -> None:
        """Some more of the answer."""
        self._moved()
        self._screen.write(clean(delta))
        self._screen.stream.flush()
        self._ended = delta.endswith("\n")

    def line(self, text: str) -> None:
        """A line of its own."""
        self._moved()
        self.close()
        self._screen.write(f"{text}\n")
        self._screen.stream.flush()

    def busy(self, words: str) -> None:
        """Nothing: what was written stays."""

    def aside(self, text: str) -> None:
        """Something by the way, for people."""
        self.close()
        self._aside.line(text, "dim")
        self._aside.stream.flush()

    def tick(self) -> None:
        """Give a sign of life when nothing was written for long."""
        waited = time.monotonic() - self._since
        if waited >= self._next:
            self._next *= 2
            self.aside(say("still waiting ({count} s)", count=int(waited)))

    def open(self) -> None:
        """There is no frame; the wait begins."""
        self._moved()

    def _moved(self) -> None:
        self._since = time.monotonic()
        self._next = _PATIENCE

    def close(self) -> None:
        """End the line of the answer."""
        if not self._ended:
            self._screen.write("\n")
            self._screen.stream.flush()
        self._ended = True
