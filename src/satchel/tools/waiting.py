"""Notes about skills that a detector is not given: untrusted, blocked, or for people alone.

A detector is given the offered skills only. A request that names another one gets a note that says
why it is not offered, not that there is none. Such a skill is neither loaded nor shown.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from satchel.detect.notes import Note

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.detect.base import Answer
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.library import Snapshot
    from satchel.settings import Settings
    from satchel.skill import Skill

MOST = 200
"""Waiting skills that are compared with the names in a request."""

_MISSING = ("unknown-skill", "unknown-skill-near")
"""Codes of the notes about a name that no offered skill has."""


def put_right(
    answer: Answer,
    goal_text: str,
    detector: SelectionPipeline,
    look: Snapshot,
    settings: Settings,
    never: Iterable[str | Skill] = (),
) -> Answer:
    """The answer with notes that are true of the whole library.

    Args:
        answer: What the detector said of the offered skills.
        goal_text: What is wanted.
        detector: The detector; one that hears no names gets no notes about them.
        look: The library.
        settings: What the setting `trust` is.
        never: Skills that were ruled out: a name that no skill has rules out nothing.
    """
    from satchel.detect.pipeline import OVERRIDE

    notes = answer.notes
    if notes and look.withheld:
        # A skill that only people may load is not missing.
        notes = tuple(_corrected(note, look) for note in notes)
    if detector.mentions and answer.detector != OVERRIDE:
        called = _called(goal_text, look)
        names = {skill.name.casefold() for skill in called}
        left = [note for note in notes if _missing(note).casefold() not in names]
        locked = settings.trust == "locked" and not settings.asks
        notes = (*(_note(skill, locked=locked) for skill in called), *left)
    missing = (one for one in never if isinstance(one, str) and not look.find(one))
    notes += tuple(Note("never-missing", name=name) for name in missing)
    return answer if notes == answer.notes else answer._replace(notes=notes)


def _called(goal_text: str, look: Snapshot) -> list[Skill]:
    """The waiting skills that a request calls by name."""
    waiting = _waiting(look)
    if not waiting:
        return []
    from satchel.detect.mentions import NameTable, parse_mentions

    return [one.skill for one in parse_mentions(goal_text, NameTable(waiting)).wanted]


def _note(skill: Skill, *, locked: bool) -> Note:
    if skill.state == "blocked":
        return Note("blocked", name=skill.name, typed=skill.typed)
    return Note("unpinned" if locked else "untrusted", name=skill.name)


def _missing(note: str) -> str:
    """The name that a note says no skill has; empty for other notes."""
    return str(note.values["name"]) if isinstance(note, Note) and note.code in _MISSING else ""


def _corrected(note: str, look: Snapshot) -> str:
    """A note about a missing skill, unless the library has it for people alone."""
    name = _missing(note)
    if not name:
        return note
    from satchel.detect.mentions import NameTable

    people_only = [skill for skill in look.skills if not skill.for_model]
    skill = NameTable(people_only).exact(name)
    return note if skill is None else Note("people-only", name=skill.name)


def _waiting(look: Snapshot) -> tuple[Skill, ...]:
    """Those that would be offered if somebody trusted them; whose name is taken waits for more."""
    found = (
        skill
        for skill in look.hidden
        if skill.state in ("untrusted", "blocked")
        and skill.for_model
        and not skill.is_tool
        and look.get(skill.name) is None
    )
    return tuple(islice(found, MOST))
