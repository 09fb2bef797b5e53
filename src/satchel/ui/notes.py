"""What was just done, said on the next page: a sentence, where to go, and how to take it back.

A page that changes something sends the reader on to another one, which may be anybody's. So the
sentence waits here under a key, the address has the key (`?told=…`), and the frame shows it.
"""

from __future__ import annotations

import secrets
import threading
from typing import Literal, NamedTuple

MOST = 64
"""Notes that wait at a time; the oldest gives way."""
Tone = Literal["good", "warn", "bad", "info"]


class Note(NamedTuple):
    """Something that was done."""

    words: str
    more: tuple[str, ...] = ()
    """What else is worth knowing, a line each."""
    tone: Tone = "good"
    scope: str = ""
    """Whose change it was: `project` or `global`."""
    number: int = 0
    """Its place in the history, for the button that takes it back; 0: there is none."""
    undone: bool = False
    """It was an undoing: the button does it again."""
    links: tuple[tuple[str, str], ...] = ()
    """Words and address of where to go on."""


class Notes:
    """Notes that wait to be shown. A page that is loaded again shows its note again."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}
        self._hold = threading.Lock()

    def put(self, note: Note) -> str:
        """Keep a note; returns its key."""
        key = secrets.token_urlsafe(9)
        with self._hold:
            self._notes[key] = note
            while len(self._notes) > MOST:
                del self._notes[next(iter(self._notes))]
        return key

    def look(self, key: str) -> Note | None:
        """The note of that key, if it still waits."""
        return self._notes.get(key)
