"""Flash messages: shown on the page after a redirect.

A page that changes something redirects to another one. `AppState` stores the message under a key,
the URL carries the key in its query, and the layout shows it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Tone = Literal["good", "warn", "bad", "info"]


class Flash(NamedTuple):
    """A message about a change that was made. A page that is loaded again shows it again."""

    message: str
    details: tuple[str, ...] = ()
    tone: Tone = "good"
    scope: str = ""
    """Scope of the change: `project` or `global`."""
    number: int = 0
    """Number of the history entry that the button undoes; 0 for none."""
    is_undo: bool = False
    """Whether it was an undo: the button is a redo."""
    links: tuple[tuple[str, str], ...] = ()
    setting: tuple[str, str, str] | None = None
    """Name, previous value and scope of a setting that the button restores."""
