"""When may a skill that comes with Satchel take a request? When the request is about its subject.

Shipped skills are in every library, and are about skills: "write an API" has the verb of
`write-a-skill` and nothing else of it. In a small library nobody else may have that word. So the
request must have more of the name than the verb that it begins with: the thing that is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.detect.idle import LINKS
from satchel.detect.stems import stem
from satchel.detect.terms import pieces_of
from satchel.skill.model import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.skill import Skill

_SOURCE = Origin._fields.index("source")
_ELSEWHERE = {"skill": ("技能", "スキル", "스킬"), "tool": ("工具", "ツール", "도구")}
"""The same things in scripts that write no spaces."""


def off_subject(goal: str, keys: Iterable[str], by_key: Mapping[str, Skill]) -> frozenset[str]:
    """Which of some keys are of skills that are shipped, and that the goal is not about."""
    # By position, for every search comes here: the source of a skill's origin.
    shipped = [key for key in keys if by_key[key][1][_SOURCE] == "builtin"]
    if not shipped:
        return frozenset()
    said = {stem(piece) for piece in pieces_of(goal)}
    said |= {word for word, others in _ELSEWHERE.items() if any(one in goal for one in others)}
    return frozenset(key for key in shipped if said.isdisjoint(_subject(by_key[key].name)))


def _subject(name: str) -> list[str]:
    """The words of a name, without the verb and what links them."""
    words = [stem(word) for word in pieces_of(name) if word not in LINKS]
    return words[1:] or words
