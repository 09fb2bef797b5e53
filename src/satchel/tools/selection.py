"""Chooses skills with a detector, records the choice, and completes its notes.

All choices go through `select` and all searches through `search`, so that trace and spans have the
same fields for each. A detector gets the offered skills only; `annotate_notes` adds why a skill
that a request names is not offered: untrusted, blocked, or for people only.

"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from satchel.catalogue.render import xml_text
from satchel.detect.base import EXPLICIT, DetectorNote, Match
from satchel.detect.mentions import NameTable
from satchel.errors import InvalidInput
from satchel.i18n import Message, say
from satchel.tools.base import Tool
from satchel.tools.framing import encodable, one_line, plural
from satchel.trace import span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from satchel.detect.base import BaseDetector, Detection
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.settings import Settings
    from satchel.skill import Skill
    from satchel.tools.base import ToolCall
    from satchel.trace import Trace

SPAN = "satchel.select"
MAX_GOAL_CHARS_IN_TRACE = 200


def select(  # noqa: PLR0913
    detector: SelectionPipeline,
    goal_text: str,
    snapshot: Snapshot,
    settings: Settings,
    trace: Trace | None,
    extra_values: Callable[[Detection], Mapping[str, Any]] | None = None,
    *,
    limit: int | None = None,
    never: Iterable[str | Skill] = (),
    waiting: str = "",
    none: bool = False,
) -> Detection:
    """Choose skills for a request, and record the choice.

    Args:
        detector: The detector.
        goal_text: The request.
        snapshot: The snapshot to choose from.
        settings: Settings of the project.
        trace: Where the choice is recorded; no event and no span when None.
        extra_values: Gives further values to record, computed from the detection.
        limit: Maximum number of skills, besides those mentioned by name.
        never: Excluded skills.
        waiting: `Library.untrusted_notice`, to add as a note.
        none: Nothing can be loaded, so there is nothing to choose from.

    Raises:
        InvalidInput: the request is no text, the limit is below 1, or the detector did not return
            matches.
    """
    check_text(goal_text)
    if limit is not None:
        check_limit(limit)

    def ask() -> Detection:
        skills = () if none else snapshot.for_model
        hidden = partial(unavailable_skills, snapshot)
        answer = detector.look(goal_text, skills, limit, hidden=hidden)
        return annotate_notes(answer, snapshot, settings, never, waiting)

    if trace is None:
        answer = ask()
        if extra_values is not None:
            extra_values(answer)
        return answer
    with span(SPAN, **{"satchel.detector": detector.name}) as note:
        answer = ask()
        values = dict(extra_values(answer)) if extra_values is not None else {}
        _annotate(note, answer, values)
    record_selection(trace, goal_text, answer, **values)
    return answer


def check_text(text: object) -> None:
    """Check that a request is a text.

    Raises:
        InvalidInput: it is something else.
    """
    if not isinstance(text, str):
        raise InvalidInput(
            say("`{value}` is not valid", value=type(text).__name__),
            say("Give what is wanted as a `str`"),
        )


def check_limit(limit: object) -> None:
    """Check a number of skills.

    Raises:
        InvalidInput: it is no number of at least 1.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InvalidInput(
            say("`{value}` is not valid", value=f"limit={limit!r}"),
            say("Give a whole number that is at least 1"),
        )


def record_selection(trace: Trace, goal_text: str, answer: Detection, **extra: Any) -> None:
    """Record a choice: matches, detector, reasons and runners-up."""
    values: dict[str, Any] = {
        "detector": answer.detector,
        "by": [match.detector or answer.detector for match in answer.matches],
        "scores": [_number(match.score) for match in answer.matches],
        "reasons": [match.reason for match in answer.matches],
        "fit": _number(answer.fit),
        "threshold": _number(answer.threshold),
        "runners_up": [[match.name, _number(match.score)] for match in answer.runners_up],
        "goal": goal_text[:MAX_GOAL_CHARS_IN_TRACE],
        "notes": list(answer.notes),
        "took_ms": round(float(answer.took_ms), 3),
    }
    if answer.collapsed:
        values["collapsed"] = [list(pair) for pair in answer.collapsed]
    if answer.cost is not None:
        values["cost"] = {key: float(value) for key, value in answer.cost.items()}
    trace.record("selected", [match.name for match in answer.matches], **values, **extra)


def search(
    detector: BaseDetector,
    words: str,
    skills: Sequence[Skill],
    limit: int,
    called: Skill | None = None,
    *,
    reasons: bool = True,
) -> list[Match]:
    """Rank skills for some words, without a threshold.

    Raises:
        InvalidInput: the words are no text, the limit is below 1, or the detector did not return
            matches.
    """
    check_text(words)
    check_limit(limit)
    matches = detector.rank(words, skills, limit, reasons=reasons)
    if called is not None and (not matches or matches[0].name != called.name):
        first = next((match for match in matches if match.name == called.name), None)
        if first is None:
            evidence = (f"name: {called.name}",)
            first = Match(
                called.name, 0.0, Message("called by its name"), evidence, called, EXPLICIT
            )
        best = max([first.score, *(match.score for match in matches)])
        matches = [
            first.replace(score=best),
            *(match for match in matches if match.name != called.name),
        ]
    return matches[:limit]


def _annotate(
    note: Callable[[str, Any], None], answer: Detection, extra: Mapping[str, Any]
) -> None:
    """Add the choice to a span, without the request and texts that may quote it.

    Spans are exported to other machines. Reasons and notes quote the request, so they are in the
    trace only.
    """
    note("satchel.detector", answer.detector)
    note("satchel.selected", [match.name for match in answer.matches])
    note("satchel.scores", [_number(match.score) for match in answer.matches])
    note("satchel.fit", _number(answer.fit))
    note("satchel.threshold", _number(answer.threshold))
    note("satchel.runners_up", [match.name for match in answer.runners_up])
    note("satchel.took_ms", float(answer.took_ms))
    note("satchel.notes", len(answer.notes))
    for key, value in (answer.cost or {}).items():
        note(f"satchel.cost.{key}", float(value))
    for key, value in extra.items():
        note(f"satchel.{key}", value)


def _number(value: float) -> float:
    """A plain float: detectors may return other number types."""
    return round(float(value), 6)


_MAX_HIDDEN_COMPARED = 200
"""Untrusted and blocked skills that are compared with the names in a request."""
_MISSING = ("unknown-skill", "unknown-skill-near")
"""Codes of notes about a name that no offered skill has."""


def annotate_notes(
    answer: Detection,
    snapshot: Snapshot,
    settings: Settings,
    never: Iterable[str | Skill] = (),
    waiting: str = "",
) -> Detection:
    """Correct and complete the notes of a detection for the whole library."""
    notes = answer.notes
    if notes and snapshot.withheld:
        # A skill for people only is not missing.
        notes = tuple(_corrected(note, snapshot) for note in notes)
    if answer.unavailable:
        locked = settings.trust == "locked" and not settings.asks
        notes = _with_unavailable(notes, answer.unavailable, locked=locked)
    missing = (name for name in never if isinstance(name, str) and not snapshot.find(name))
    notes += tuple(DetectorNote("never-missing", name=name) for name in missing)
    notes += (waiting,) if waiting else ()
    return answer if notes == answer.notes else answer._replace(notes=notes)


def _with_unavailable(
    notes: Iterable[str], skills: Sequence[Skill], *, locked: bool
) -> tuple[str, ...]:
    """Say why each of the skills is not offered, in place of notes that it is missing."""
    names = {skill.name.casefold() for skill in skills}
    others = (note for note in notes if _missing_name(note).casefold() not in names)
    return (*(hidden_skill_note(skill, locked=locked) for skill in skills), *others)


def hidden_skill_note(skill: Skill, *, locked: bool) -> DetectorNote:
    """The note why a skill of `unavailable_skills` is not offered."""
    code = skill.problem_code(unpinned=locked)
    problem = skill.setup_problem
    missing = {"what": problem.values["what"]} if problem else {}
    return DetectorNote(code, name=skill.name, typed=skill.reference, **missing)


def _missing_name(note: str) -> str:
    return (
        str(note.values["name"]) if isinstance(note, DetectorNote) and note.code in _MISSING else ""
    )


def _corrected(note: str, snapshot: Snapshot) -> str:
    """The note, or its replacement when the skill is for people only."""
    name = _missing_name(note)
    if not name:
        return note
    people_only = [skill for skill in snapshot.skills if not skill.for_model]
    skill = NameTable(people_only).exact(name)
    return note if skill is None else DetectorNote("people-only", name=skill.name)


def unavailable_skills(snapshot: Snapshot) -> tuple[Skill, ...]:
    """The skills that a person can make usable; not those whose name is taken."""
    skills = (
        skill
        for skill in snapshot.hidden
        if skill.state in ("untrusted", "blocked", "unverified", "needs setup")
        and skill.for_model
        and not skill.is_tool
        and snapshot.get(skill.name) is None
    )
    return tuple(islice(skills, _MAX_HIDDEN_COMPARED))


DEFAULT_RESULT_COUNT = 10
MAX_RESULT_COUNT = 50
_MAX_DESCRIPTION_CHARS = 200
_MAX_QUERY_CHARS_IN_TRACE = 200


class SearchTool(Tool):
    """Finds skills by words about the task."""

    name = "SkillSearch"
    about_skills = True
    description = (
        "Find skills by a few words about the task, also those that are not listed. "
        "Returns names and descriptions; load one with Skill."
    )
    parameters: dict[str, Any] = {  # noqa: RUF012 - read only
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "A few words that say what is to be done, or a skill's name",
                "minLength": 1,
                "maxLength": 2000,
            },
            "limit": {
                "type": "integer",
                "description": f"How many to return; {DEFAULT_RESULT_COUNT} if left out",
                "minimum": 1,
                "maximum": MAX_RESULT_COUNT,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(
        self, library: Library, detector: Callable[[], SelectionPipeline], trace: Trace
    ) -> None:
        self._library = library
        self._detector = detector
        self._trace = trace

    def run(self, call: ToolCall) -> Envelope:
        """Run the call."""
        query = str(call.arguments["query"])
        limit = int(call.arguments.get("limit", DEFAULT_RESULT_COUNT))
        snapshot = call.resolved.snapshot
        skills = snapshot.for_model
        called = snapshot.get(query.strip())
        if called is not None and not called.for_model:
            called = None
        detector = self._detector()
        matches = search(detector, query, skills, limit, called)
        self._trace.record(
            "searched",
            [match.name for match in matches],
            query=query[:_MAX_QUERY_CHARS_IN_TRACE],
            detector=detector.name,
            reasons=[match.reason for match in matches],
        )
        rows: list[dict[str, Any]] = []
        lines: list[str] = []
        for number, match in enumerate(matches, 1):
            description = one_line(match.skill.description, _MAX_DESCRIPTION_CHARS)
            reason = one_line(match.reason, _MAX_DESCRIPTION_CHARS)
            rows.append(
                {
                    "name": encodable(match.name),
                    "description": description,
                    "score": float(match.score),
                    "reason": reason,
                }
            )
            origin = match.skill.origin.remote
            if origin:
                rows[-1]["origin"] = encodable(origin)
            name = one_line(match.name, _MAX_DESCRIPTION_CHARS) + (
                f" [{one_line(origin)}]" if origin else ""
            )
            why = f" ({reason})" if reason.strip() else ""
            # Escaped: it is not in a frame and must not contain tags.
            lines.append(f"{number}. {xml_text(f'{name}: {description}{why}')}")
        stats = {"searched": len(skills), "matches": len(rows)}
        asked = one_line(query, 100)
        waiting = self._library.untrusted_notice()
        data = {"matches": rows, "notes": [waiting]} if waiting else {"matches": rows}
        notes = (f"{waiting}.",) if waiting else ()
        if not rows:
            text = (
                f"None of {plural(len(skills), 'skill')} has a word of `{asked}`. Try other or "
                "fewer words, or go on without a skill."
            )
            return call.answer("\n".join((text, *notes)), data, stats=stats)
        head = f"{plural(len(rows), 'skill')} of {len(skills):,} for `{asked}`, best first. "
        text = "\n".join((f"{head}Load one with Skill and its name.", *lines, *notes))
        return call.answer(text, data, stats=stats)
