"""Which skills are named beside one request?

Those that the detector chose, and in one more place a skill that was never loaded, if one came
close: what nobody ever tries is never used, and stays so. Whatever goes wrong here, the model is
told what it would have been told without: the block is empty, and the trace says why.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import Message, several
from satchel.catalogue.build import Line, write_shortlist
from satchel.detect.base import EXPLICIT
from satchel.errors import InvalidInput
from satchel.tools.selecting import check_text, put_right, select

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.catalogue.build import Block
    from satchel.detect.base import Answer, Match
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.library import Library, Snapshot
    from satchel.settings import Form, Settings
    from satchel.trace import Event, Trace

_TEXTS = ("text", "input_text")
"""Blocks of what a user wrote: providers have two words for them."""
CLOSE = 0.8
"""A skill that was never loaded gets its place when it has this share of the weakest chosen one's
score."""
MOST_ASKED = 8
"""Skills called by name that are listed, whatever the setting `shortlist` says."""


class Shortlist(NamedTuple):
    """What is said beside one request. `str()` of it is its text; it is true when it has one.

    `block` and `never_used`, as `satchel which --block --json` has them, are other words for `text`
    and `explored`.
    """

    text: str
    """For the prompt, behind the user's message; empty when there is nothing to say."""
    answer: Answer | None = None
    """What the detector said; None when it was not asked or failed."""
    listed: tuple[str, ...] = ()
    """Whose names are in the text, best first."""
    explored: str = ""
    """Which of them has its place because it was never loaded."""
    reason: str = ""
    """Why the text is empty, or who had no room in it."""

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return bool(self.text)

    @property
    def block(self) -> str:
        """The text, by the word that `--json` has for it."""
        return self.text

    @property
    def never_used(self) -> str:
        """Who was never loaded, by the word that `--json` has for it."""
        return self.explored


class Shortlister:
    """Makes the shortlists of one project."""

    def __init__(
        self,
        library: Library,
        settings: Settings,
        detector: Callable[[], SelectionPipeline],
        trace: Trace,
    ) -> None:
        """Read nothing yet.

        Args:
            library: Which skills there are.
            settings: How many are named, and in which form.
            detector: Gives who chooses, when it is needed: what goes wrong then stops no turn.
            trace: Where choices are recorded, and who knows what was ever loaded.
        """
        self._library = library
        self._settings = settings
        self._detector = detector
        self._trace = trace
        self._usage = Usage(trace)

    def make(
        self,
        goal_text: str,
        *,
        form: Form | None = None,
        record: bool = True,
        look: Snapshot | None = None,
    ) -> Shortlist:
        """The shortlist for one request. It never raises.

        Args:
            goal_text: What the user wrote.
            form: How the block is written; as the catalogue when None.
            record: Whether the choice goes into the trace.
            look: The skills to choose from; what there is now when None.
        """
        try:
            return self._make(goal_text, form or self._settings.form, look, record=record)
        except Exception as exc:  # noqa: BLE001 - a turn must go on, whatever happens
            reason = f"{type(exc).__name__}: {getattr(exc, 'message', exc)}"
            if record:
                with suppress(Exception):
                    self._trace.record("failed", (), what="shortlist", reason=reason)
            return Shortlist("", reason=reason)

    def _make(
        self, goal_text: str, form: Form, look: Snapshot | None, *, record: bool
    ) -> Shortlist:
        if not self._settings.shortlist:
            return Shortlist("", reason=Message("the setting `shortlist` is 0"))
        check_text(goal_text)
        if not goal_text.strip():
            return Shortlist("", reason=Message("the request is empty"))
        if look is None:
            fresh = self._settings.refresh_on_call
            look = self._library.refresh() if fresh else self._library.snapshot()
        now = look
        if not look.for_model:
            from satchel.detect.base import Answer as Made

            empty = Made([], [], 0.0, 0.0, "", 0.0)
            told = put_right(empty, goal_text, self._detector(), look, self._settings).notes
            return Shortlist("", reason=several(told) or Message("there are no skills"))
        block: Block | None = None
        explored = ""
        over: list[str] = []

        def finish(answer: Answer) -> dict[str, Any]:
            nonlocal block, explored
            chosen, cut = _chosen(answer.matches, now, self._settings.shortlist)
            over.extend(match.name for match in cut)
            extra = self._explore(answer, chosen, now)
            explored = extra.name if extra is not None else ""
            named = chosen if extra is None else [*chosen, extra]
            block = write_shortlist(_lines(named, now), form)
            if explored not in block.listed:
                explored = ""
            told: dict[str, Any] = {"listed": list(block.listed), "explored": explored}
            return {**told, "no_room": [*block.left_out, *over]} if over else told

        trace = self._trace if record else None
        answer = select(self._detector(), goal_text, look, self._settings, trace, finish)
        assert block is not None  # noqa: S101 - `select` has called `finish`
        reason = _reason(answer, block, (*block.left_out, *over))
        return Shortlist(block.text, answer, block.listed, explored, reason)

    def _explore(self, answer: Answer, chosen: Sequence[Match], look: Snapshot) -> Match | None:
        """The best runner-up that was never loaded and came close; None when there is none.

        A request that names a skill has decided: then no other is put forward.
        """
        if any(match.detector == EXPLICIT for match in chosen):
            return None
        rivals = [match for match in answer.runners_up if _may_load(match, look)]
        if chosen:
            least = min(match.score for match in chosen)
        elif rivals and answer.fit >= answer.threshold > 0:
            # Sure enough, and yet nobody was chosen: the best of the others is the measure.
            least = rivals[0].score
        else:
            return None
        bar = least * CLOSE if least > 0 else least
        known = {match.name for match in chosen}.union(copy for copy, _ in answer.collapsed)
        close = (
            match
            for match in rivals
            if match.score >= bar and match.name not in known and self._usage.never(match.name)
        )
        return next(close, None)


def put_behind(message: Any, make: Callable[[str], Shortlist]) -> Any:
    """A user's message with its shortlist at the end; the same message when there is none.

    Args:
        message: A text, or a list of content blocks: dicts with a `type`.
        make: Gives the shortlist for the text of it.

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
        # A file or a tool's answer may have a text too: nobody asks for anything in those.
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


def _chosen(matches: Sequence[Match], look: Snapshot, most: int) -> tuple[list[Match], list[Match]]:
    """Who is named: those who were called by name, and others up to the setting.

    The second list are those who were called and are too many.
    """
    found: dict[str, Match] = {}
    for match in matches:
        if _may_load(match, look):
            found.setdefault(match.name, match)
    asked = [match for match in found.values() if match.detector == EXPLICIT]
    asked, over = asked[:MOST_ASKED], asked[MOST_ASKED:]
    others = [match for match in found.values() if match.detector != EXPLICIT]
    return [*asked, *others[: max(0, most - len(asked))]], over


def _may_load(match: Match, look: Snapshot) -> bool:
    """Whether a model that calls Skill with this name gets this skill."""
    skill = look.get(match.name)
    return skill is not None and skill.for_model


def _lines(matches: Sequence[Match], look: Snapshot) -> list[Line]:
    found = [(look.get(match.name), match.detector == EXPLICIT) for match in matches]
    return [Line(skill, asked) for skill, asked in found if skill is not None]


def _reason(answer: Answer, block: Block, left_out: Sequence[str]) -> str:
    if left_out:
        return Message("no room for {names}", names=[f"`{name}`" for name in left_out])
    if block.text:
        return ""
    if answer.matches:
        return Message("the chosen skills are not offered to models")
    if answer.detector == EXPLICIT and answer.notes:
        return several(answer.notes)  # a name that no skill has, or the wish for none
    if answer.fit >= answer.threshold:
        return Message("no skill fits")
    return Message(
        "no skill fits: the best is {fit} sure, below {threshold}",
        fit=f"{answer.fit:.2f}",
        threshold=f"{answer.threshold:.2f}",
    )


class Usage:
    """The names of all skills that were ever loaded here: read once, then kept by listening."""

    def __init__(self, trace: Trace) -> None:
        """Read nothing yet."""
        self._trace = trace
        self._loaded: set[str] | None = None
        self._heard: set[str] = set()
        self._reading = Lock()
        self._listens = False

    def never(self, name: str) -> bool:
        """Whether the trace knows of no load. Where nothing is recorded nobody can say: False."""
        if not self._trace.enabled:
            return False
        if self._loaded is None:
            self._read()
        return name not in self._heard and name not in (self._loaded or ())

    def _read(self) -> None:
        """Read the past. Whoever asks meanwhile waits: half of it looks as if nobody was loaded."""
        with self._reading:
            if self._loaded is not None:
                return
            if not self._listens:
                # Listen first: what is loaded while the file is read is not missed.
                self._trace.listen(self._hear)
                self._listens = True
            self._loaded = self._trace.ever("loaded")

    def _hear(self, event: Event) -> None:
        if event.kind == "loaded":
            self._heard.update(event.skills)
