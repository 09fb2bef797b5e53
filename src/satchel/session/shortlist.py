"""Skills suggested next to one request.

Those that the detector chose, and one more that came close. An error never stops a turn: the block
is empty then, and the trace has the reason.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.catalogue.catalogue import ShortlistLine, write_shortlist
from satchel.detect.base import EXPLICIT, Detection
from satchel.errors import InvalidInput
from satchel.i18n import Message, join_messages
from satchel.tools.selection import annotate_notes, check_text, select, unavailable_skills

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.catalogue.catalogue import ShortlistBlock
    from satchel.detect.base import Match
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.library import Library, Snapshot
    from satchel.settings import Form, Settings
    from satchel.trace import Trace

_TEXTS = ("text", "input_text")
"""Types of text blocks: providers have two names for them."""
CLOSE_SCORE_RATIO = 0.8
"""Share of the weakest chosen skill's score that one more skill must reach."""
MAX_MENTIONED_SKILLS = 8
"""Skills mentioned by name that are listed, whatever the setting `shortlist` is."""


class Shortlist(NamedTuple):
    """The shortlist of one request. `str()` of it is its text; it is true when it has one."""

    text: str
    """To append to the user's message; empty when no skill fits."""
    answer: Detection | None = None
    """The detector's answer; None when it did not run or failed."""
    listed: tuple[str, ...] = ()
    """Names in the text, best first."""
    reason: str = ""
    """Why the text is empty, or which skills did not fit."""

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return bool(self.text)


def make_shortlist(
    library: Library,
    settings: Settings,
    detector: Callable[[], SelectionPipeline],
    goal_text: str,
    *,
    form: Form | None = None,
    record: bool = True,
    snapshot: Snapshot | None = None,
) -> Shortlist:
    """Build the shortlist for one request; never raises."""
    if not settings.shortlist:
        return Shortlist("", reason=Message("the setting `shortlist` is 0"))
    try:
        check_text(goal_text)
        if not goal_text.strip():
            return Shortlist("", reason=Message("the request is empty"))
        if snapshot is None:
            snapshot = library.refresh() if settings.refresh_on_call else library.snapshot()
        trace = library.trace if record else None
        return _make(settings, detector, goal_text, form or settings.form, snapshot, trace)
    except Exception as exc:  # noqa: BLE001 - a turn must go on, whatever happens
        reason = f"{type(exc).__name__}: {getattr(exc, 'message', exc)}"
        if record:
            with suppress(Exception):
                library.trace.record("failed", (), what="shortlist", reason=reason)
        return Shortlist("", reason=reason)


def _make(
    settings: Settings,
    detector: Callable[[], SelectionPipeline],
    goal_text: str,
    form: Form,
    snapshot: Snapshot,
    trace: Trace | None,
) -> Shortlist:
    if not snapshot.for_model:
        named = detector().named_among(goal_text, unavailable_skills(snapshot))
        empty = Detection([], [], 0.0, 0.0, "", 0.0, unavailable=named)
        found = annotate_notes(empty, snapshot, settings)
        return Shortlist("", reason=join_messages(found.notes) or Message("there are no skills"))
    block: ShortlistBlock | None = None
    over: list[str] = []

    def finish(answer: Detection) -> dict[str, Any]:
        nonlocal block
        chosen, cut = _chosen(answer.matches, snapshot, settings.shortlist)
        over.extend(match.name for match in cut)
        close = _closest(answer, chosen, snapshot)
        block = write_shortlist(_lines([*chosen, *close], snapshot), form)
        values: dict[str, Any] = {"listed": list(block.listed)}
        left_out = [*block.left_out, *over]
        return {**values, "no_room": left_out} if left_out else values

    answer = select(detector(), goal_text, snapshot, settings, trace, finish)
    assert block is not None  # noqa: S101 - `select` has called `finish`
    reason = _reason(answer, block, (*block.left_out, *over))
    return Shortlist(block.text, answer, block.listed, reason)


def _closest(answer: Detection, chosen: Sequence[Match], snapshot: Snapshot) -> list[Match]:
    """The best runner-up that came close, if any; none when the request names a skill."""
    if any(match.detector == EXPLICIT for match in chosen):
        return []
    rivals = [match for match in answer.runners_up if _may_load(match, snapshot)]
    if chosen:
        least = min(match.score for match in chosen)
    elif rivals and answer.fit >= answer.threshold > 0:
        # Confident enough, yet nothing was chosen: measure against the best of the others.
        least = rivals[0].score
    else:
        return []
    bar = least * CLOSE_SCORE_RATIO if least > 0 else least
    known = {match.name for match in chosen}.union(copy for copy, _ in answer.collapsed)
    return [match for match in rivals if match.score >= bar and match.name not in known][:1]


def append_shortlist(message: Any, make: Callable[[str], Shortlist]) -> Any:
    """Append the shortlist to a user's message; unchanged when there is none.

    Raises:
        InvalidInput: the message is something else.
    """
    if isinstance(message, str):
        block = make(message).text
        return f"{message}\n\n{block}" if block else message
    if not isinstance(message, list):
        raise _no_message(message)
    blocks = cast("list[Any]", message)
    texts: list[str] = []
    kind = "text"
    for one in blocks:
        if not isinstance(one, dict):
            raise _no_message(one)
        part = cast("dict[str, Any]", one)
        text: Any = part.get("text")
        # Files and tool results may have a text too, but contain no request.
        if isinstance(text, str) and part.get("type", kind) in _TEXTS:
            texts.append(text)
            kind = str(part.get("type", kind))
    block = make("\n".join(texts)).text
    return [*blocks, {"type": kind, "text": block}] if block else list(blocks)


def _no_message(message: object) -> InvalidInput:
    return InvalidInput(
        f"A `{type(message).__name__}` is no message",
        "Give the user's text, or its content blocks: a list of dicts such as "
        '`{"type": "text", "text": "…"}`',
    )


def _chosen(
    matches: Sequence[Match], snapshot: Snapshot, most: int
) -> tuple[list[Match], list[Match]]:
    """The skills mentioned by name and others up to `most`; and mentions beyond the limit."""
    found: dict[str, Match] = {}
    for match in matches:
        if _may_load(match, snapshot):
            found.setdefault(match.name, match)
    asked = [match for match in found.values() if match.detector == EXPLICIT]
    asked, over = asked[:MAX_MENTIONED_SKILLS], asked[MAX_MENTIONED_SKILLS:]
    others = [match for match in found.values() if match.detector != EXPLICIT]
    return [*asked, *others[: max(0, most - len(asked))]], over


def _may_load(match: Match, snapshot: Snapshot) -> bool:
    skill = snapshot.get(match.name)
    return skill is not None and skill.for_model


def _lines(matches: Sequence[Match], snapshot: Snapshot) -> list[ShortlistLine]:
    found = [(snapshot.get(match.name), match.detector == EXPLICIT) for match in matches]
    return [ShortlistLine(skill, asked) for skill, asked in found if skill is not None]


def _reason(answer: Detection, block: ShortlistBlock, left_out: Sequence[str]) -> str:
    if left_out:
        return Message("no room for {names}", names=[f"`{name}`" for name in left_out])
    if block.text:
        return ""
    if answer.matches:
        return Message("the chosen skills are not offered to models")
    if answer.detector == EXPLICIT and answer.notes:
        return join_messages(answer.notes)  # an unknown name, or a request for no skill
    if answer.fit >= answer.threshold:
        return Message("no skill fits")
    return Message(
        "no skill fits: the best is {fit} sure, below {threshold}",
        fit=f"{answer.fit:.2f}",
        threshold=f"{answer.threshold:.2f}",
    )
