"""What should an answer say about skills that wait for somebody's trust?

A detector is given the offered skills alone. Whoever calls another one by its name is not to be
told that there is none, and whoever gets the second best should know that the best one waits. What
such a skill says of itself is only compared here: it is neither loaded nor shown.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from satchel.detect.base import EXPLICIT
from satchel.detect.notes import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.detect.base import Answer, Match
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.library import Snapshot
    from satchel.settings import Settings
    from satchel.skill import Skill

MOST = 200
"""Waiting skills that are compared."""
_BESIDE = 300
"""Offered skills up to which all are compared with them; of more only the best."""

_MISSING = ("unknown-skill", "unknown-skill-near")
"""Codes of the notes about a name that no offered skill has."""


class Waiting:
    """Puts right what answers say, for one project."""

    def __init__(self, settings: Settings) -> None:
        """Take the settings; nothing is compared before there is something to compare."""
        self._step = settings.trust != "none"
        self._kept: tuple[Snapshot, Any, Sequence[Skill]] | None = None
        self._seen: tuple[Snapshot, tuple[Skill, ...]] | None = None

    def put_right(
        self,
        answer: Answer,
        goal_text: str,
        detector: SelectionPipeline,
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
            # A skill that only people may load is not missing.
            notes = tuple(_corrected(note, look) for note in notes)
        if self._seen is None or self._seen[0] is not look:
            self._seen = (look, _waiting(look))
        waiting = self._seen[1]
        if waiting and detector.mentions:
            notes = self._told(answer, notes, goal_text, detector, look, waiting)
        names = (one for one in never if isinstance(one, str))
        notes += tuple(Note("never-missing", name=name) for name in names if not look.find(name))
        return answer if notes == answer.notes else answer._replace(notes=notes)

    def _told(
        self,
        answer: Answer,
        notes: tuple[str, ...],
        goal_text: str,
        detector: SelectionPipeline,
        look: Snapshot,
        waiting: tuple[Skill, ...],
    ) -> tuple[str, ...]:
        from satchel.detect.hybrid import HybridDetector
        from satchel.detect.mentions import parse_mentions
        from satchel.detect.names import NameTable
        from satchel.detect.pipeline import OVERRIDE

        if answer.detector == OVERRIDE:
            return notes
        found = parse_mentions(goal_text, NameTable(waiting))
        called = [one.skill for one in found.wanted]
        if called:
            names = {skill.name.casefold() for skill in called}
            left = [note for note in notes if _missing(note).casefold() not in names]
            return (*(self._note(skill, "", look) for skill in called), *left)
        if answer.detector == EXPLICIT or not isinstance(detector.detector, HybridDetector):
            return notes
        first = self._first(answer, goal_text, look, waiting)
        if first is None or first.name in found.ruled_out:
            return notes
        return (*notes, self._note(first, "-first", look))

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

    def _note(self, skill: Skill, first: str, look: Snapshot) -> Note:
        state = "changed" if skill.ref in look.asking else "untrusted"
        if self._step:
            return Note(f"{state}{first}-step", name=skill.name, typed=skill.typed)
        return Note(f"{state}{first}", name=skill.name)


def _missing(note: str) -> str:
    """The name that a note says no skill has; empty for other notes."""
    return str(note.values["name"]) if isinstance(note, Note) and note.code in _MISSING else ""


def _corrected(note: str, look: Snapshot) -> str:
    """A note about a missing skill, unless the library has it for people alone."""
    name = _missing(note)
    if not name:
        return note
    from satchel.detect.names import NameTable

    people_only = [skill for skill in look.skills if not skill.for_model]
    skill = NameTable(people_only).exact(name)
    return note if skill is None else Note("people-only", name=skill.name)


def _made(skills: Sequence[Skill]) -> Any:
    """A detector in memory that knows what these skills say of themselves."""
    from satchel.detect.hybrid import HybridDetector
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.detect.texts import head_row

    made = SelectionPipeline(HybridDetector(rows=head_row))
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
