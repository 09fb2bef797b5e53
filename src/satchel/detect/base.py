"""What a detector is: it reads a goal and names the skills that fit, best first, and says why.

Any object with this one method can take the place of ours: embeddings, a model that is asked, or
a user's own rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.skill import Skill


class Match(NamedTuple):
    """One skill that fits."""

    name: str
    score: float
    """Comparable within one answer only."""
    reason: str
    """Why, in one line."""
    evidence: tuple[str, ...]
    """What was seen where: `name: review`, `description: pull`."""
    skill: Skill


class Detector(Protocol):
    """Finds the skills that fit a goal."""

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Return matches, best first; nothing fits means an empty list.

        The same goal and skills give the same answer, in any process.
        """
        ...
