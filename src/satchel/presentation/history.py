"""The history of changes for a page and for the terminal."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel.errors import Refused
from satchel.i18n import say
from satchel.presentation.change_words import change_label, history_state_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.presentation.skill_lookup import ScopeView
    from satchel.store.undo import HistoryEntry

_STATE_TONES = {"done": "good", "undone": "warn", "past": "", "damaged": "bad"}


class PastChange(NamedTuple):
    """One entry of the history."""

    number: int
    local_time: str
    utc_time: str
    action: str
    ids: tuple[str, ...]
    state: str
    tone: str
    next_op: Literal["", "undo", "redo"]
    """What can be done with it now."""
    next_number: int
    """The history entry that `next_op` applies to."""


class History(NamedTuple):
    """The changes of one scope, newest first."""

    scope: str
    title: str
    folder: str
    rows: tuple[PastChange, ...]
    trouble: str
    hint: str


def show_history(scope: ScopeView) -> History:
    """Return the history of one scope."""
    trouble, hint = scope.trouble, scope.hint
    entries: list[HistoryEntry] = []
    try:
        entries = scope.store.history() if scope.store is not None else []
    except Refused as exc:
        trouble, hint = exc.message, exc.hint
    return History(scope.name, scope.title, scope.folder, past_changes(entries), trouble, hint)


def past_changes(entries: Sequence[HistoryEntry]) -> tuple[PastChange, ...]:
    """Return one row for each change, newest first; an undo is part of the row of its change."""
    undo_number = next((entry.number for entry in entries if entry.state == "done"), 0)
    redo_number = next((entry.number for entry in entries if entry.state == "undone"), 0)
    latest: dict[int, HistoryEntry] = {}
    by_number = {entry.number: entry for entry in entries}
    for entry in reversed(entries):
        latest[_original_number(entry, by_number)] = entry
    return tuple(
        _past_change(entry, latest[entry.number], undo_number, redo_number)
        for entry in entries
        if _original_number(entry, by_number) == entry.number
    )


def _original_number(entry: HistoryEntry, by_number: dict[int, HistoryEntry]) -> int:
    """Return the number of the change that a chain of undo and redo entries is about."""
    while entry.of in by_number:
        entry = by_number[entry.of]
    return entry.number


def _past_change(
    entry: HistoryEntry, latest: HistoryEntry, undo_number: int, redo_number: int
) -> PastChange:
    """Return the row of a change, of which `latest` is the last undo or redo."""
    if latest.op == "undo":
        state, tone = say("Undone"), "warn"
    elif latest.op == "redo":
        state, tone = say("Done"), "good"
    else:
        state, tone = history_state_labels()[entry.state], _STATE_TONES[entry.state]
    next_op: Literal["", "undo", "redo"] = ""
    if latest.number == undo_number and entry.op != "rebuild":
        next_op = "undo"
    elif latest.number == redo_number:
        next_op = "redo"
    return PastChange(
        number=entry.number,
        local_time=_format_local(entry.time),
        utc_time=entry.time.replace("T", " ").replace("Z", " UTC"),
        action=change_label(entry.op) if entry.op else entry.summary,
        ids=entry.ids,
        state=state,
        tone=tone,
        next_op=next_op,
        next_number=latest.number,
    )


def _format_local(time: str) -> str:
    """Format an ISO time in local time; without the date when it is today."""
    try:
        local_time = datetime.fromisoformat(time).astimezone()
    except ValueError:
        return time
    is_today = local_time.date() == datetime.now().astimezone().date()
    return local_time.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M")
