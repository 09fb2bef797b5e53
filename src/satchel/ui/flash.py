"""Flash messages: shown once, on the page after a redirect.

A page that changes something redirects to another one. The message is stored under a key, the URL
carries the key in its query, and the layout shows it.
"""

from __future__ import annotations

import secrets
import threading
from typing import Literal, NamedTuple

Tone = Literal["good", "warn", "bad", "info"]
MAX_FLASH_MESSAGES = 64
"""The oldest is dropped first."""


class Flash(NamedTuple):
    """A message about a change that was made."""

    words: str
    more: tuple[str, ...] = ()
    tone: Tone = "good"
    scope: str = ""
    """Scope of the change: `project` or `global`."""
    number: int = 0
    """Number of the history entry that the button undoes; 0 for none."""
    undone: bool = False
    """It was an undo: the button is a redo."""
    links: tuple[tuple[str, str], ...] = ()


class FlashMessages:
    """Pending messages. A page that is loaded again shows its message again."""

    def __init__(self) -> None:
        self._notes: dict[str, Flash] = {}
        self._hold = threading.Lock()

    def add(self, note: Flash) -> str:
        """Store a message; returns its key."""
        key = secrets.token_urlsafe(9)
        with self._hold:
            self._notes[key] = note
            while len(self._notes) > MAX_FLASH_MESSAGES:
                del self._notes[next(iter(self._notes))]
        return key

    def get(self, key: str) -> Flash | None:
        """Return the message with that key."""
        return self._notes.get(key)
