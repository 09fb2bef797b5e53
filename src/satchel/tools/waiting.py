"""What should an answer say about skills that wait for somebody's trust?

A detector is given the offered skills alone. Whoever calls another one by its name is not to be
told that there is none, and whoever gets the second best should know that the best one waits. What
such a skill says of itself is only compared here: it is neither loaded nor shown.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from satchel.detect.notes import (
    CHANGED,
    CHANGED_FIRST,
    NEVER_THERE,
    UNTRUSTED,
    UNTRUSTED_FIRST,
)
from satchel.tools.selecting import ASKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.detect.base import Answer, Detector, Match
    from satchel.detect.explicit import ExplicitDetector
    from satchel.library import Snapshot
    from satchel.settings import Settings
    from satchel.skill import Skill

MOST = 200
"""Waiting skills that are compared."""
_BESIDE = 300
"""Offered skills up to which all are compared with them; of more only the best."""

_MISSING = "There is no skill `"
_SET = "set to be chosen"
"""The reason of whom somebody has chosen before the detector was asked."""


class Waiting:
    """Puts right what answers say, for one project."""

    def __init__(self, settings: Settings) -> None:
        """Take the settings; nothing is compared before there is something to compare."""
        self._step = settings.trust != "none"
        self._kept: tuple[Snapshot, Any, Sequence[Skill]] | None = None
        self._seen: tuple[Snapshot, tuple[Skill, ...]] | None = None
        self._explicit: ExplicitDetector | None = None

    def put_right(
        self,
        answer: Answer,
        goal_text: str,
        detector: Detector,
        look: Snapshot,
        never: Iterable[str | Skill] = (),
    ) -> Answer:
        """The answer with notes that are true of the whole library.

        Args:
            answer: What the detector said of the offered skills.
            goal_text: What somebody wants.
            detector: Who answered: one that hears no names is told of none, and only of ours is it
                known who would come first.
            look: The library.
            never: Whom somebody has ruled out: a name that nothing has rules out nobody.
        """
        notes = answer.notes
        if notes and look.withheld:
            from satchel.detect.explicit import set_right

            # A skill that only people may load is not missing.
            notes = set_right(notes, look.for_model, look.skills)
        if self._seen is None or self._seen[0] is not look:
            self._seen = (look, _waiting(look))
        waiting = self._seen[1]
        if waiting and hasattr(detector, "heard"):
            notes = self._told(answer, notes, goal_text, detector, look, waiting)
        names = (one for one in never if isinstance(one, str))
        notes += tuple(NEVER_THERE.format(name=name) for name in names if not look.find(name))
        return answer if notes == answer.notes else answer._replace(notes=notes)

    def _told(
        self,
        answer: Answer,
        notes: tuple[str, ...],
        goal_text: str,
        detector: Detector,
        look: Snapshot,
        waiting: tuple[Skill, ...],
    ) -> tuple[str, ...]:
        from satchel.detect.explicit import ExplicitDetector

        if any(match.reason == _SET for match in answer.matches):
            return notes
        if self._explicit is None:
            self._explicit = ExplicitDetector()
        heard = self._explicit.heard(goal_text, waiting)
        called = [one.skill for one in heard.wanted]
        if called:
            missing = tuple(f"{_MISSING}{skill.name}`".casefold() for skill in called)
            left = [note for note in notes if not note.casefold().startswith(missing)]
            return (*(self._note(skill, UNTRUSTED, CHANGED, look) for skill in called), *left)
        if heard.none or answer.detector == ASKED or not _is_ours(detector):
            return notes
        first = self._first(answer, goal_text, look, waiting)
        if first is None or first.name in heard.ruled_out:
            return notes
        return (*notes, self._note(first, UNTRUSTED_FIRST, CHANGED_FIRST, look))

    def _first(
        self, answer: Answer, goal_text: str, look: Snapshot, waiting: Sequence[Skill]
    ) -> Skill | None:
        """The waiting skill that would come first; None when an offered one is as good."""
        if len(look.for_model) <= _BESIDE:
            skills: Sequence[Skill] = (*look.for_model, *waiting)
            detector, skills = self._ready(look, skills)
        else:
            # Of thousands only the best are compared, and with those that fit at all.
            detector, skills = self._ready(look, waiting)
            fitting = [match.skill for match in detector.look(goal_text, skills).matches]
            best = (match.skill for match in (*answer.matches, *answer.runners_up))
            skills = (*best, *fitting)
            detector = _made(skills) if fitting else detector
        found = detector.look(goal_text, skills)
        if not found.matches:
            return None
        paths = {skill.path for skill in waiting}
        first: Match = found.matches[0]
        offered = {skill.name for skill in skills if skill.path not in paths}
        copies = {copy for copy, stands in found.collapsed if stands == first.name}
        others = (*found.matches, *found.runners_up)
        rivals = [one.score for one in others if one.skill.path not in paths]
        if first.skill.path not in paths or copies & offered:
            return None
        return first.skill if first.score > max(rivals, default=0.0) else None

    def _ready(self, look: Snapshot, skills: Sequence[Skill]) -> tuple[Any, Sequence[Skill]]:
        """A detector for these skills, kept as long as the library is the same."""
        if self._kept is None or self._kept[0] is not look:
            self._kept = (look, _made(skills), skills)
        return self._kept[1:]

    def _note(
        self, skill: Skill, fresh: tuple[str, str], changed: tuple[str, str], look: Snapshot
    ) -> str:
        text = (changed if skill.ref in look.asking else fresh)[self._step]
        return text.format(name=skill.name, typed=skill.typed)


def _made(skills: Sequence[Skill]) -> Any:
    """A detector in memory that knows what these skills say of themselves."""
    from satchel.detect.compose import WithExplicit
    from satchel.detect.hybrid import HybridDetector
    from satchel.detect.texts import head_row

    made = WithExplicit(HybridDetector(rows=head_row))
    made.prepare(skills)
    return made


def _waiting(look: Snapshot) -> tuple[Skill, ...]:
    """Those that would be offered if somebody trusted them; whose name is taken waits for more."""
    found = (
        skill
        for skill in look.hidden
        if skill.state == "untrusted"
        and skill.for_model
        and not skill.is_tool
        and look.get(skill.name) is None
    )
    return tuple(islice(found, MOST))


def _is_ours(detector: Any) -> bool:
    """Whether words and vectors decide, with or without somebody's say in it."""
    from satchel.detect.compose import Override, WithExplicit
    from satchel.detect.hybrid import HybridDetector

    while isinstance(detector, Override | WithExplicit):
        detector = detector.members[0]
    return isinstance(detector, HybridDetector)
