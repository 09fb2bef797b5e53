"""A change of a description that helps, as it is told to the author."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

Kind = Literal["add", "drop"]
DENSE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Scripts that write no spaces."""


class Change(NamedTuple):
    """Words to put into a description, or to take out of it."""

    kind: Kind
    words: str

    def made_in(self, text: str) -> str:
        """The description with the change."""
        if self.kind == "add":
            return f"{text.rstrip()} {self.words}."
        return " ".join(as_word(self.words).sub(" ", text).split())


class Advice(NamedTuple):
    """A change that was tried and helps."""

    change: Change
    before: int
    """How many prompts of the skill passed."""
    after: int
    of: int
    prompts: tuple[str, ...]
    """Those that pass with it."""

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {
            self.change.kind: self.change.words,
            "passed_before": self.before,
            "passed": self.after,
            "of": self.of,
            "prompts": list(self.prompts),
        }


def as_word(words: str) -> re.Pattern[str]:
    """Finds words where they stand whole; scripts that write no spaces have no borders to see."""
    before = r"(?<!\w)" if not DENSE.match(words) else ""
    after = r"(?!\w)" if not DENSE.match(words[-1:]) else ""
    return re.compile(rf"{before}{re.escape(words)}{after}", re.IGNORECASE)
