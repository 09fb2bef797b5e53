"""How does a sub-agent with a part of a large library search it, without an index of its own?

The whole is searched and what lies outside the part is left out. One index serves the agent and all
its sub-agents then; handed a part each time, it would be made anew for whoever asks next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.detect.base import Answer, Detector, Match
    from satchel.library.narrowed import NarrowedLibrary
    from satchel.skill import Skill

SMALL = 2_000
"""Skills up to which a part is searched alone: its index is made in no time."""
_CLOSE = 0.5
"""Who has this share of the best one's score takes the place of one outside the part."""
_WIDER = 8
"""So many times more are ranked in the whole, to have enough of the part."""


def part_detector(detector: Detector, library: NarrowedLibrary) -> Detector:
    """The detector for a part: the same one, unless it keeps an index and the whole is large."""
    indexed = hasattr(detector, "rank") and hasattr(detector, "prepare")
    if not indexed or len(library.whole.snapshot().for_model) <= SMALL:
        return detector
    return PartDetector(detector, library)


class PartDetector:
    """Searches the whole library for a part of it."""

    def __init__(self, detector: Any, library: NarrowedLibrary) -> None:
        self._detector = detector
        self._library = library
        self.name = str(getattr(detector, "name", type(detector).__name__))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_detector"], name)

    def detect(self, goal_text: str, skills: Sequence[Skill]) -> list[Match]:
        """Who fits, of the part."""
        return self.look(goal_text, skills).matches

    def look(self, goal_text: str, skills: Sequence[Skill]) -> Answer:
        """The answer about the whole, without what is not in the part.

        A place that becomes free goes to who came next and was nearly as good.
        """
        from satchel.detect.answer import look

        answer = look(self._detector, goal_text, self._library.whole.snapshot().for_model)
        mine = {skill.name: skill for skill in skills}
        chosen: list[Match] = []
        free = 0
        copies = list(answer.collapsed)
        for match in answer.matches:
            if match.name in mine:
                chosen.append(match)
                continue
            copy = next((one for one, of in copies if of == match.name and one in mine), None)
            if copy is not None:
                chosen.append(match._replace(name=copy, skill=mine[copy]))
            else:
                free += 1
        rest = [match for match in answer.runners_up if match.name in mine]
        least = max((match.score for match in answer.matches), default=0.0) * _CLOSE
        near = [match for match in rest if match.score >= least][:free]
        known = {match.name for match in chosen}
        return answer._replace(
            matches=[*chosen, *near],
            runners_up=rest[len(near) :],
            collapsed=tuple(
                (one, of) for one, of in copies if one in mine and of in mine and one not in known
            ),
        )

    def rank(self, goal_text: str, skills: Sequence[Skill], limit: int = 50) -> list[Match]:
        """The best of the part, whether they fit or not."""
        whole = self._library.whole.snapshot().for_model
        mine = {skill.name for skill in skills}
        found: list[Match] = []
        for most in (limit * _WIDER, len(whole)):
            ranked: list[Match] = self._detector.rank(goal_text, whole, most)
            found = [match for match in ranked if match.name in mine]
            if len(found) >= limit or len(ranked) < most:
                break
        return found[:limit]
