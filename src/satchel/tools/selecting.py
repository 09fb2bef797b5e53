"""Chooses skills with a detector, records the choice, and puts its notes right.

All choices go through `select` and all searches through `search`, so that the trace and the spans
say the same about every one: who was chosen, by whom, how sure it was, and who came next. A
detector is given the offered skills only; `put_right` adds why a skill that a request names is not
offered: untrusted, blocked, or for people alone.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from satchel._language import Message, say
from satchel.catalogue.render import xml_text
from satchel.detect.base import Note
from satchel.errors import InvalidInput
from satchel.tools.frame import encodable, one_line, plural
from satchel.trace import span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from satchel.detect.base import Answer, BaseDetector, Match
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.settings import Settings
    from satchel.skill import Skill
    from satchel.tools.base import Call
    from satchel.trace import Trace

SPAN = "satchel.select"
GOAL_IN_TRACE = 200
"""Characters of a request that a trace keeps."""


def select(  # noqa: PLR0913 - all that a choice depends on
    detector: SelectionPipeline,
    goal_text: str,
    look: Snapshot,
    settings: Settings,
    trace: Trace | None,
    more: Callable[[Answer], Mapping[str, Any]] | None = None,
    *,
    limit: int | None = None,
    never: Iterable[str | Skill] = (),
    waiting: str = "",
    none: bool = False,
) -> Answer:
    """Choose skills for a request, and record the choice.

    Args:
        detector: Who chooses.
        goal_text: What somebody wants.
        look: The library to choose from.
        settings: What the setting `trust` is.
        trace: Where the choice is recorded; None only looks: no event, no span.
        more: What else is said about the choice, worked out from it before it is recorded.
        limit: How many are chosen at most, beside those that were called by name.
        never: Skills that were ruled out.
        waiting: What `waiting_line` says, where it is to be a note.
        none: Nothing can be loaded here, so there is nothing to choose from.

    Raises:
        InvalidInput: the request is no text, the limit is no number that is at least 1, or the
            detector returned something else than matches.
    """
    check_text(goal_text)
    if limit is not None:
        check_limit(limit)

    def ask() -> Answer:
        answer = detector.look(goal_text, () if none else look.for_model, limit)
        return put_right(answer, goal_text, detector, look, settings, never, waiting)

    if trace is None:
        answer = ask()
        if more is not None:
            more(answer)
        return answer
    with span(SPAN, **{"satchel.detector": detector.name}) as note:
        answer = ask()
        values = dict(more(answer)) if more is not None else {}
        _annotate(note, answer, values)
    tell_selection(trace, goal_text, answer, **values)
    return answer


def check_text(text: object) -> None:
    """Make sure that somebody gave a text.

    Raises:
        InvalidInput: it is something else.
    """
    if not isinstance(text, str):
        raise InvalidInput(
            say("A `{kind}` is no request", kind=type(text).__name__),
            say("Give what is wanted as a `str`"),
        )


def check_limit(limit: object) -> None:
    """Make sure that somebody gave a number of skills.

    Raises:
        InvalidInput: it is none, or below 1.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InvalidInput(
            say("`limit` is {value}", value=repr(limit)),
            say("Give a whole number that is at least 1"),
        )


def tell_selection(trace: Trace, goal_text: str, answer: Answer, **more: Any) -> None:
    """Record a choice: who was chosen, by which detector, why, and who came next."""
    values: dict[str, Any] = {
        "detector": answer.detector,
        "by": [match.detector or answer.detector for match in answer.matches],
        "scores": [_number(match.score) for match in answer.matches],
        "reasons": [match.reason for match in answer.matches],
        "fit": _number(answer.fit),
        "threshold": _number(answer.threshold),
        "runners_up": [[match.name, _number(match.score)] for match in answer.runners_up],
        "goal": goal_text[:GOAL_IN_TRACE],
        "notes": list(answer.notes),
        "took_ms": round(float(answer.took_ms), 3),
    }
    if answer.collapsed:
        values["collapsed"] = [list(pair) for pair in answer.collapsed]
    if answer.cost is not None:
        values["cost"] = {key: float(value) for key, value in answer.cost.items()}
    trace.record("selected", [match.name for match in answer.matches], **values, **more)


def search(
    detector: BaseDetector,
    words: str,
    skills: Sequence[Skill],
    limit: int,
    called: Skill | None = None,
    *,
    reasons: bool = True,
) -> list[Match]:
    """The best skills for some words, whether they fit or not: a search is not cut to three.

    Args:
        detector: Who ranks.
        words: What is looked for.
        skills: What there is to find.
        limit: How many at most.
        called: The skill that has `words` for its name, if there is one. It comes first, whatever
            the detector thinks of it.
        reasons: Whether matches say why; without, a detector may answer sooner.

    Raises:
        InvalidInput: the words are no text, the limit is no number that is at least 1, or the
            detector returned something else than matches.
    """
    check_text(words)
    check_limit(limit)
    found = detector.rank(words, skills, limit, reasons=reasons)
    if called is not None and (not found or found[0].name != called.name):
        first = next((match for match in found if match.name == called.name), None)
        if first is None:
            from satchel.detect.base import EXPLICIT, Match

            evidence = (f"name: {called.name}",)
            first = Match(
                called.name, 0.0, Message("called by its name"), evidence, called, EXPLICIT
            )
        best = max([first.score, *(match.score for match in found)])
        found = [first._replace(score=best), *(one for one in found if one.name != called.name)]
    return found[:limit]


def _annotate(note: Callable[[str, Any], None], answer: Answer, more: Mapping[str, Any]) -> None:
    """Put the choice on a span, without the request and whatever repeats words of it.

    Spans go to other machines; what somebody wrote stays on this one. Reasons and notes do repeat
    words, and stand in the trace.
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
    for key, value in more.items():
        note(f"satchel.{key}", value)


def _number(value: float) -> float:
    """A plain float, whatever kind of number a detector computes with."""
    return round(float(value), 6)


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
    waiting: str = "",
) -> Answer:
    """The answer with notes that are true of the whole library.

    Args:
        answer: What the detector said of the offered skills.
        goal_text: What is wanted.
        detector: The detector; one that hears no names gets no notes about them.
        look: The library.
        settings: What the setting `trust` is.
        never: Skills that were ruled out: a name that no skill has rules out nothing.
        waiting: What `waiting_line` says, where it is to be a note.
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
        notes = (*(note_of(skill, locked=locked) for skill in called), *left)
    missing = (one for one in never if isinstance(one, str) and not look.find(one))
    notes += tuple(Note("never-missing", name=name) for name in missing)
    notes += (waiting,) if waiting else ()
    return answer if notes == answer.notes else answer._replace(notes=notes)


def _called(goal_text: str, look: Snapshot) -> list[Skill]:
    """The waiting skills that a request calls by name."""
    waiting = _waiting(look)
    if not waiting:
        return []
    from satchel.detect.mentions import NameTable, parse_mentions

    return [one.skill for one in parse_mentions(goal_text, NameTable(waiting)).wanted]


def note_of(skill: Skill, *, locked: bool) -> Note:
    """Why an untrusted or blocked skill is not offered."""
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


DEFAULT_LIMIT = 10
MAX_LIMIT = 50
_DESCRIPTION = 200
_QUERY_IN_TRACE = 200


class SearchTool:
    """Finds skills by words about the task."""

    name = "SkillSearch"
    about_skills = True
    description = (
        "Find skills by a few words about the task, also those that are not listed. "
        "Returns names and descriptions; load one with Skill."
    )
    aliases: dict[str, str] = {}  # noqa: RUF012 - read only, as the protocol says
    parameters: dict[str, Any] = {  # noqa: RUF012 - same
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
                "description": f"How many to return; {DEFAULT_LIMIT} if left out",
                "minimum": 1,
                "maximum": MAX_LIMIT,
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

    def run(self, call: Call) -> Envelope:
        """Search."""
        query = str(call.arguments["query"])
        limit = int(call.arguments.get("limit", DEFAULT_LIMIT))
        look = call.resolved.look if call.resolved is not None else self._library.snapshot()
        skills = look.for_model
        called = look.get(query.strip())
        if called is not None and not called.for_model:
            called = None
        detector = self._detector()
        found = search(detector, query, skills, limit, called)
        self._trace.record(
            "searched",
            [match.name for match in found],
            query=query[:_QUERY_IN_TRACE],
            detector=detector.name,
            reasons=[match.reason for match in found],
        )
        rows: list[dict[str, Any]] = []
        lines: list[str] = []
        for number, match in enumerate(found, 1):
            description = one_line(match.skill.description, _DESCRIPTION)
            reason = one_line(match.reason, _DESCRIPTION)
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
            name = one_line(match.name, _DESCRIPTION) + (f" [{one_line(origin)}]" if origin else "")
            why = f" ({reason})" if reason.strip() else ""
            # Not in a frame, so it must not look like one.
            lines.append(f"{number}. {xml_text(f'{name}: {description}{why}')}")
        stats = {"searched": len(skills), "matches": len(rows)}
        asked = one_line(query, 100)
        waiting = self._library.waiting_line()
        data = {"matches": rows, "notes": [waiting]} if waiting else {"matches": rows}
        more = (f"{waiting}.",) if waiting else ()
        if not rows:
            text = (
                f"None of {plural(len(skills), 'skill')} has a word of `{asked}`. Try other or "
                "fewer words, or go on without a skill."
            )
            return call.answer("\n".join((text, *more)), data, stats=stats)
        head = f"{plural(len(rows), 'skill')} of {len(skills):,} for `{asked}`, best first. "
        text = "\n".join((f"{head}Load one with Skill and its name.", *lines, *more))
        return call.answer(text, data, stats=stats)
