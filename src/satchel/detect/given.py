"""What becomes of a detector that the user brings?

Whoever is called by name wins there too, so it is put behind `WithExplicit`; ours are left as they
are. It stands alone: where it fails, nobody else's answer can stand, so its error is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.detect.compose import Override, WithExplicit
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.detect.base import Answer, Detector
    from satchel.skill import Skill


def given(detector: Detector, *, explicit: bool = True) -> Detector:
    """The detector, hearing names unless `explicit` is False.

    Raises:
        InvalidInput: it is none.
    """
    if isinstance(detector, type) or not callable(getattr(detector, "detect", None)):
        raise InvalidInput(
            f"`{_kind(detector)}` is no detector",
            "Give an object with a method `detect(goal_text, skills)` that returns `Match` objects",
        )
    if not explicit:
        return detector
    ours = type(detector).__module__.partition(".")[0] == __name__.partition(".")[0]
    return detector if ours or hasattr(detector, "heard") else _Hearing(detector)


def overruled(
    detector: Detector, use: Iterable[str | Skill], never: Iterable[str | Skill]
) -> Detector:
    """The detector, where somebody has decided about some skills.

    Raises:
        InvalidInput: a skill is in both lists.
    """
    wanted, barred = _several(use), _several(never)
    if not wanted and not barred:
        return detector
    names = {_name(one) for one in barred}
    both = next((_name(one) for one in wanted if _name(one) in names), None)
    if both is not None:
        raise InvalidInput(
            f"`{both}` is to be chosen and never to be chosen", "Leave one of the two out"
        )
    return _Overruled(detector, wanted, barred)


class _Hearing(WithExplicit):
    """`WithExplicit` whose member's error is an error."""

    def look(self, goal_text: str, skills: Sequence[Skill]) -> Answer:
        answer, error = self._timed(goal_text, skills)
        if error is not None:
            raise error
        return answer


class _Overruled(Override):
    """`Override` whose member's error is an error."""

    def look(self, goal_text: str, skills: Sequence[Skill]) -> Answer:
        answer, error = self._timed(goal_text, skills)
        if error is not None:
            raise error
        return answer


def _several(names: Iterable[str | Skill]) -> tuple[str | Skill, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _name(one: str | Skill) -> str:
    return one if isinstance(one, str) else one.name


def _kind(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__
