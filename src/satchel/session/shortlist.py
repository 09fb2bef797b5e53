"""Skills suggested next to one request.

Those that the detector chose, and one more that came close. An error never stops a turn: the block
is empty then, and the trace has the reason.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.catalogue.catalogue import ShortlistBlock, ShortlistLine, write_shortlist
from satchel.detect.base import EXPLICIT, Detection
from satchel.errors import InvalidInput
from satchel.i18n import Message, join_messages
from satchel.tools.selection import annotate_notes, check_text, select, unavailable_skills

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.detect.base import Match
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.library import Library, Snapshot
    from satchel.settings import Form, Settings
    from satchel.trace import Trace

_TEXT_BLOCK_TYPES = ("text", "input_text")
"""Providers have two names for them."""
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
    open_detector: Callable[[], SelectionPipeline],
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
        return _select_and_write(
            settings, open_detector, goal_text, form or settings.form, snapshot, trace
        )
    except Exception as exc:  # noqa: BLE001 - a turn must go on, whatever happens
        reason = f"{type(exc).__name__}: {getattr(exc, 'message', exc)}"
        if record:
            with suppress(Exception):
                library.trace.record("failed", (), what="shortlist", reason=reason)
        return Shortlist("", reason=reason)


class _BlockWriter:
    """Writes the block of a detection, for the answer and for the trace."""

    def __init__(self, snapshot: Snapshot, limit: int, form: Form) -> None:
        self._snapshot = snapshot
        self._limit = limit
        self._form: Form = form
        self.block = ShortlistBlock("", ())
        self.left_out: list[str] = []
        """Chosen skills for which there was no room."""

    def write(self, detection: Detection) -> dict[str, Any]:
        """Write the block; returns what the trace records of it."""
        matches, excess_mentions = _limit_matches(detection.matches, self._snapshot, self._limit)
        runner_up = _close_runner_up(detection, matches, self._snapshot)
        self.block = write_shortlist(_lines([*matches, *runner_up], self._snapshot), self._form)
        self.left_out = [*self.block.left_out, *(match.name for match in excess_mentions)]
        values: dict[str, Any] = {"listed": list(self.block.listed)}
        return {**values, "no_room": self.left_out} if self.left_out else values


def _select_and_write(
    settings: Settings,
    open_detector: Callable[[], SelectionPipeline],
    goal_text: str,
    form: Form,
    snapshot: Snapshot,
    trace: Trace | None,
) -> Shortlist:
    if not snapshot.for_model:
        return Shortlist(
            "", reason=_empty_library_reason(settings, open_detector, goal_text, snapshot)
        )
    writer = _BlockWriter(snapshot, settings.shortlist, form)
    detection = select(open_detector(), goal_text, snapshot, settings, trace, writer.write)
    reason = _reason(detection, writer.block, writer.left_out)
    return Shortlist(writer.block.text, detection, writer.block.listed, reason)


def _empty_library_reason(
    settings: Settings,
    open_detector: Callable[[], SelectionPipeline],
    goal_text: str,
    snapshot: Snapshot,
) -> str:
    """Return why there is no skill to list, with notes on unavailable skills that are named."""
    unavailable = open_detector().named_among(goal_text, unavailable_skills(snapshot))
    detection = Detection(
        matches=[],
        runners_up=[],
        fit=0.0,
        threshold=0.0,
        detector="",
        took_ms=0.0,
        unavailable=unavailable,
    )
    notes = annotate_notes(detection, snapshot, settings).notes
    return join_messages(notes) or Message("there are no skills")


def _close_runner_up(
    detection: Detection, matches: Sequence[Match], snapshot: Snapshot
) -> list[Match]:
    """The best runner-up that came close, if any; none when the request names a skill."""
    if any(match.detector == EXPLICIT for match in matches):
        return []
    runners_up = [match for match in detection.runners_up if _may_load(match, snapshot)]
    if matches:
        reference_score = min(match.score for match in matches)
    elif runners_up and detection.fit >= detection.threshold > 0:
        # Confident enough, yet nothing was chosen: measure against the best of the others.
        reference_score = runners_up[0].score
    else:
        return []
    min_score = reference_score
    if reference_score > 0:
        min_score *= CLOSE_SCORE_RATIO
    listed = {match.name for match in matches}
    listed.update(duplicate for duplicate, _ in detection.collapsed)
    close = [match for match in runners_up if match.score >= min_score and match.name not in listed]
    return close[:1]


def append_shortlist(message: Any, make: Callable[[str], Shortlist]) -> Any:
    """Append the shortlist to a user's message; unchanged when there is none.

    Raises:
        InvalidInput: the message is something else.
    """
    if isinstance(message, str):
        shortlist_text = make(message).text
        return f"{message}\n\n{shortlist_text}" if shortlist_text else message
    if not isinstance(message, list):
        raise _message_error(message)
    blocks = cast("list[Any]", message)
    texts: list[str] = []
    block_type = "text"
    for content_block in blocks:
        if not isinstance(content_block, dict):
            raise _message_error(content_block)
        block = cast("dict[str, Any]", content_block)
        text: Any = block.get("text")
        # Files and tool results may have a text too, but contain no request.
        if isinstance(text, str) and block.get("type", block_type) in _TEXT_BLOCK_TYPES:
            texts.append(text)
            block_type = str(block.get("type", block_type))
    shortlist_text = make("\n".join(texts)).text
    if not shortlist_text:
        return list(blocks)
    return [*blocks, {"type": block_type, "text": shortlist_text}]


def _message_error(message: object) -> InvalidInput:
    return InvalidInput(
        f"A `{type(message).__name__}` is no message",
        "Give the user's text, or its content blocks: a list of dicts such as "
        '`{"type": "text", "text": "…"}`',
    )


def _limit_matches(
    matches: Sequence[Match], snapshot: Snapshot, limit: int
) -> tuple[list[Match], list[Match]]:
    """The skills mentioned by name and others up to `limit`; and mentions beyond the limit."""
    by_name: dict[str, Match] = {}
    for match in matches:
        if _may_load(match, snapshot):
            by_name.setdefault(match.name, match)
    mentioned = [match for match in by_name.values() if match.detector == EXPLICIT]
    excess_mentions = mentioned[MAX_MENTIONED_SKILLS:]
    mentioned = mentioned[:MAX_MENTIONED_SKILLS]
    others = [match for match in by_name.values() if match.detector != EXPLICIT]
    return [*mentioned, *others[: max(0, limit - len(mentioned))]], excess_mentions


def _may_load(match: Match, snapshot: Snapshot) -> bool:
    skill = snapshot.get(match.name)
    return skill is not None and skill.for_model


def _lines(matches: Sequence[Match], snapshot: Snapshot) -> list[ShortlistLine]:
    skills = [(snapshot.get(match.name), match.detector == EXPLICIT) for match in matches]
    return [ShortlistLine(skill, is_named) for skill, is_named in skills if skill is not None]


def _reason(detection: Detection, block: ShortlistBlock, left_out: Sequence[str]) -> str:
    if left_out:
        return Message("no room for {names}", names=[f"`{name}`" for name in left_out])
    if block.text:
        return ""
    if detection.matches:
        return Message("the chosen skills are not offered to models")
    if detection.detector == EXPLICIT and detection.notes:
        return join_messages(detection.notes)  # an unknown name, or a request for no skill
    if detection.fit >= detection.threshold:
        return Message("no skill fits")
    return Message(
        "no skill fits: the best is {fit} sure, below {threshold}",
        fit=f"{detection.fit:.2f}",
        threshold=f"{detection.threshold:.2f}",
    )
