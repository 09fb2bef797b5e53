"""Undo and redo.

An undo is a transaction: it restores the folders and lockfile entries that a change replaced, and
the present ones move into the history. So an undo loses nothing, not even later edits, and can be
undone itself.

    undo, undo     two steps back
    redo           one step forward again
    a new change   clears the redo stack; its entries stay in the history until they are pruned
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel.errors import Conflict, LockBroken, NotFound, Refused
from satchel.i18n import say
from satchel.store import history_log
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.journal import SkillChange
from satchel.store.recovery import Repair, apply_rows, locked_scope, recover_locked
from satchel.store.transaction import PendingChange, commit_locked
from satchel.store.trees import digest_at, state_at
from satchel.store.workdir import check_scope, is_ours

if TYPE_CHECKING:
    from satchel.library.lockfile import Lock
    from satchel.store.journal import TransactionRecord
    from satchel.store.trees import PathState
    from satchel.store.workdir import Scope

State = Literal["done", "undone", "past", "damaged"]


class HistoryEntry(NamedTuple):
    """A completed change."""

    number: int
    op: str
    summary: str
    time: str
    """`2030-01-31T12:00:00Z`."""
    ids: tuple[str, ...]
    """The skills that it changed."""
    state: State
    """`done`: can be undone. `undone`: an undo that can be redone. `past`: neither. `damaged`: it
    cannot be read, or was not written here; the reason is in `summary`."""
    changes: tuple[SkillChange, ...] = ()
    of: int = 0
    """The number of the entry that an undo or redo is about, else 0."""


class Undone(NamedTuple):
    """The result of an undo or redo."""

    number: int
    """Of the new entry in the history."""
    op: str
    """Of the change that was undone or redone."""
    summary: str
    ids: tuple[str, ...]
    repaired: tuple[str, ...] = ()
    """What recovery did before."""
    notes: tuple[str, ...] = ()
    """Such as edits that moved into the history."""
    trouble: tuple[str, ...] = ()
    """What could not be done or confirmed, and what to do; empty when complete."""


def history(scope: Scope) -> list[HistoryEntry]:
    """The completed changes, newest first.

    Raises:
        Refused: the history cannot be read.
    """
    with disk_errors_as_refusal(scope.part("history")):
        if not is_ours(scope):
            return []
        check_scope(scope)
        past = history_log.read_history(scope)
    undoable = history_log.replay(past.records)
    entries = [_history_entry(record, undoable) for record in past.records]
    for numbers, reason in (
        (past.damaged, say("it cannot be read")),
        (past.foreign, say("it was not written here")),
    ):
        entries += [HistoryEntry(one, "", reason, "", (), "damaged") for one in numbers]
    return sorted(entries, key=lambda entry: -entry.number)


def _history_entry(record: TransactionRecord, undoable: history_log.UndoState) -> HistoryEntry:
    state: State = "past"
    if record.number in undoable.done:
        state = "done"
    elif record.number in undoable.undone:
        state = "undone"
    return HistoryEntry(
        record.number, record.op, record.summary, record.time, record.ids, state, record.changes,
        record.of,
    )  # fmt: skip


def undo(scope: Scope, *, redo: bool = False, number: int = 0) -> Undone:
    """Restore what the last change replaced; with `redo`, what the last undo replaced.

    Args:
        scope: The scope.
        redo: Redo the last undo.
        number: Undo only if this entry is the next one; any when 0.

    Raises:
        NotFound: there is nothing to undo.
        Conflict: another entry is the next one.
        LockBroken: the lockfile is damaged.
        Refused: the disk reports an error, the old folder is missing, or it cannot be undone.
    """
    with locked_scope(scope) as work_notes:
        repaired = [*(Repair("", (), text) for text in work_notes), *recover_locked(scope)]
        notes: list[str] = []
        seen: dict[str, PathState] = {}
        with disk_errors_as_refusal(scope.part("history")):
            past, record = _next_record(scope, redo=redo)
            if number and record.number != number:
                raise Conflict(
                    say("Something else was changed since; nothing was undone"),
                    say("Look at the history, then decide"),
                )
            if record.op == "rebuild":
                raise Refused(
                    say("Writing the lockfile anew cannot be undone"),
                    say("The damaged one is kept in `{path}`", path=record.entry(scope)),
                )
            changes = [
                _restoring_change(scope, record, change, seen, notes) for change in record.changes
            ]
        try:
            rows = record.rows("before")
        except LockBroken as exc:
            raise _not_kept(record) from exc
        origin = _origin(record, past)

        kind = "redo" if redo else "undo"
        pending = PendingChange(
            kind,
            origin.summary,
            changes,
            partial(apply_rows, ids=record.locked, rows=rows),
            seen=seen,
            kind=kind,
            of=record.number,
        )
        receipt = commit_locked(scope, pending, repaired=repaired)
    return Undone(
        receipt.number,
        origin.op,
        origin.summary,
        record.ids,
        receipt.repaired,
        (*notes, *receipt.notes),
        receipt.trouble,
    )


def last_locked(scope: Scope) -> Lock:
    """The newest lockfile entry of each skill in the history.

    Raises:
        Refused: the history cannot be read.
    """
    with disk_errors_as_refusal(scope.part("history")):
        if not is_ours(scope):
            return {}
        check_scope(scope)
        records = history_log.read_history(scope).records
    lock: Lock = {}
    for record in records:
        with suppress(LockBroken):
            lock = apply_rows(lock, record.locked, record.rows("after"))
    return lock


def _next_record(
    scope: Scope, *, redo: bool
) -> tuple[dict[int, TransactionRecord], TransactionRecord]:
    """The history by number, and the next record to undo or redo."""
    past = history_log.read_history(scope)
    state = history_log.replay(past.records)
    stack = state.undone if redo else state.done
    if not stack:
        raise NotFound(
            say("There is nothing to do again") if redo else say("There is nothing to undo"),
            say("Run `satchel undo --list` to see what was changed")
            if any(past)
            else say("Satchel has changed nothing in `{folder}` yet", folder=scope.folder),
        )
    if past.damaged and max(past.damaged) > stack[-1]:
        raise Refused(
            say("Change {number} of the history is damaged, so nobody knows what came before it; "
                "nothing was changed", number=max(past.damaged)),
            say("Look at `{path}`", path=scope.part("history", str(max(past.damaged)))),
        )  # fmt: skip
    by_number = {record.number: record for record in past.records}
    return by_number, by_number[stack[-1]]


def _restoring_change(
    scope: Scope,
    record: TransactionRecord,
    change: SkillChange,
    seen: dict[str, PathState],
    notes: list[str],
) -> SkillChange:
    seen[change.id] = state_at(scope.target(change.id))
    now = seen[change.id].digest
    if now and now != change.after:
        notes.append(
            say("`{name}` had been edited since: that is kept in the history", name=change.id)
        )
    elif now != change.after:
        notes.append(say("`{name}` had been removed since", name=change.id))
    if not change.before:
        return SkillChange(change.id, "", now, "")
    staged = record.old(scope, change.id)
    found = digest_at(staged)
    if found != change.before:
        # Deleted or replaced in the history's folder.
        raise _not_kept(record)
    return SkillChange(
        change.id, os.path.relpath(staged, scope.work).replace(os.sep, "/"), now, found
    )


def _origin(record: TransactionRecord, past: dict[int, TransactionRecord]) -> TransactionRecord:
    """The change that a chain of undo and redo is about."""
    while record.kind != "do" and record.of in past:
        record = past[record.of]
    return record


def _not_kept(record: TransactionRecord) -> Refused:
    return Refused(
        say("What change {number} replaced is not in the history any more; nothing was changed",
            number=record.number),
        say("Take it from version control, or install it again"),
    )  # fmt: skip
