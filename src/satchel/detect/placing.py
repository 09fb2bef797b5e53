"""Where does one skill stand for a goal, whatever the detector can tell?"""

from __future__ import annotations

import os
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, cast

from satchel.detect.base import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.detect.base import Detector, Match, Places
    from satchel.skill import Skill

_RIVALS = 3
"""How many of those that are ahead are named."""


def place(detector: Detector, goal_text: str, skills: Sequence[Skill], skill: Skill) -> Place:
    """The detector's own account, or a rank in its list: a user's detector need know no more.

    Args:
        detector: Who ranks.
        goal_text: What is wanted.
        skills: The offered skills.
        skill: The one that is asked about; one that is not offered is ranked as if it were.
    """
    if not _has(skills, skill):
        skills = (*skills, skill)
    if hasattr(detector, "place"):
        return cast("Places", detector).place(goal_text, skills, skill)
    rank = getattr(detector, "rank", None)
    found: list[Match] = (
        rank(goal_text, skills, len(skills))
        if rank is not None
        else detector.detect(goal_text, skills)
    )
    for at, match in enumerate(found):
        if match.skill.path == skill.path:
            ahead = [(one, dict[str, float]()) for one in found[:at][:_RIVALS]]
            return Place(at + 1, len(skills), match, {}, ahead, ())
    return Place(0, len(skills), None, {}, [(one, {}) for one in found[:_RIVALS]], ())


def _has(skills: Sequence[Skill], skill: Skill) -> bool:
    """Whether a skill is among some: itself, or as it was at another look. Of a million, too."""
    if any(map(is_, skills, repeat(skill))):
        return True
    path, folder = skill.path, os.path.basename(skill.base_dir)
    # A path is made of its parts whenever it is asked for: few are that could be this one.
    return any(
        one.path == path for one in skills if not (own := one.head.id) or own.endswith(folder)
    )
