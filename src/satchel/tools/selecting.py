"""Which skills does a detector choose for a request, and who is told of the choice?

Everyone who chooses comes through `select`, and everyone who searches through `search`, so that
the trace and the spans say the same about every choice: who was chosen, by whom, how sure it was,
and who came next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel._language import Message, say
from satchel.errors import InvalidInput
from satchel.trace import span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.detect.base import Answer, BaseDetector, Match
    from satchel.skill import Skill
    from satchel.trace import Trace

SPAN = "satchel.select"
GOAL_IN_TRACE = 200
"""Characters of a request that a trace keeps."""


def select(
    detector: BaseDetector,
    goal_text: str,
    skills: Sequence[Skill],
    trace: Trace | None,
    more: Callable[[Answer], Mapping[str, Any]] | None = None,
    *,
    limit: int | None = None,
    amend: Callable[[Answer], Answer] | None = None,
) -> Answer:
    """Choose skills for a request, and record the choice.

    Args:
        detector: Who chooses.
        goal_text: What somebody wants.
        skills: What there is to choose from.
        trace: Where the choice is recorded; None only looks: no event, no span.
        more: What else is said about the choice, worked out from it before it is recorded.
        limit: How many are chosen at most, beside those that were called by name.
        amend: Puts right what the detector could not know, before the choice is recorded.

    Raises:
        InvalidInput: the request is no text, the limit is no number that is at least 1, or the
            detector returned something else than matches.
    """
    check_text(goal_text)
    if limit is not None:
        check_limit(limit)

    def ask() -> Answer:
        answer = detector.look(goal_text, skills, limit)
        return answer if amend is None else amend(answer)

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
