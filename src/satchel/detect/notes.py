"""Notes of a detector: messages with a code."""

from __future__ import annotations

from typing import Any, Self

from satchel._language import Message

TEMPLATES = {
    "unknown-skill": "There is no skill `{name}`",
    "unknown-skill-near": "There is no skill `{name}`; did you mean {names}?",
    "unknown-skills-more": "There are no skills of {count} other names that the request gives",
    "people-only": "`{name}` is there for people alone: no model may load it",
    "ruled-out": "`{name}` is left out: the request says not to use it",
    "unheard": "{count} characters amid the request were not searched for names of skills",
    "both": "`{name}` is asked for and ruled out in one request: it is left out",
    "never": "`{name}` is left out: it is set never to be chosen",
    "never-missing": "`{name}` is set never to be chosen, and there is no such skill",
    "use-missing": "`{name}` is set to be chosen, and there is no such skill",
    "model-failed": "The model failed, and the order of `{name}` stands: {reason}",
    "model-nonsense": (
        "The model gave no usable answer, and the order of `{name}` stands: {reason}"
    ),
    "model-strangers": "The model named {count} that were not on its list: they are left out",
    "model-kept": "The model was asked this before: its answer was kept",
    "model-cut": "The model was shown the first {count} characters of the request",
    "untrusted": "`{name}` is not trusted yet: run `satchel trust` in the project",
    "unpinned": "`{name}` is not offered: no lockfile pins it as it is",
    "blocked": "`{name}` is not offered: the scan blocks it; see `satchel scan {typed}`",
}
"""Code -> sentence."""


class Note(Message):
    """A message with a code of `TEMPLATES`."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str, **values: Any) -> Self:
        """Make the note with this code."""
        made = super().__new__(cls, TEMPLATES[code], **values)
        made.code = code
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """How it is copied and pickled."""
        return (self.code,), self.values


def code_of(note: str) -> str:
    """The code of a note; empty for the plain text of a user's detector."""
    return note.code if isinstance(note, Note) else ""
