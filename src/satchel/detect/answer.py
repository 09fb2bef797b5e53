"""How does any detector give a whole answer?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from satchel.detect.base import Answer, Match
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.detect.base import Detector, Looks
    from satchel.skill import Skill


def look(detector: Detector, goal_text: str, skills: Sequence[Skill]) -> Answer:
    """The detector's own answer, or one made of its list: a user's detector need know no more.

    Raises:
        InvalidInput: what the detector returned is no answer.
    """
    if hasattr(detector, "look"):
        return _checked(detector, cast("Looks", detector).look(goal_text, skills))
    began = time.perf_counter()
    found = only_matches(detector, detector.detect(goal_text, skills))
    took = (time.perf_counter() - began) * 1e3
    return Answer(found, [], 1.0 if found else 0.0, 0.0, _name_of(detector), took)


def only_matches(detector: object, found: Any) -> list[Match]:
    """What a detector returned, if it is a list of matches.

    Raises:
        InvalidInput: it is something else; the message names the detector.
    """
    if isinstance(found, Match) or not isinstance(found, list | tuple):
        raise _wrong(detector, f"returned {_kind(found)}, not a list of `Match` objects")
    rows = cast("list[Any]", found)
    for row in rows:
        if not isinstance(row, Match):
            raise _wrong(detector, f"returned a list with {_kind(row)} in it, not a `Match`")
    return list(rows)


def _checked(detector: object, answer: Any) -> Answer:
    if not isinstance(answer, Answer):
        raise _wrong(detector, f"returned {_kind(answer)} from `look`, not an `Answer`")
    only_matches(detector, answer.matches)
    only_matches(detector, answer.runners_up)
    return answer


def _wrong(detector: object, what: str) -> InvalidInput:
    return InvalidInput(
        f"The detector `{_name_of(detector)}` {what}",
        "Return `satchel.detect.Match(name, score, reason, evidence, skill)`, best first; "
        "an empty list when nothing fits",
    )


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a `{type(value).__name__}`"


def _name_of(detector: object) -> str:
    return str(getattr(detector, "name", type(detector).__name__))
