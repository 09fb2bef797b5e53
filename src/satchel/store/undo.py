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
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel.errors import LockBroken, NotFound, Refused
from satchel.i18n import say
from satchel.store.disk_errors import changed_meanwhile, disk_errors_as_refusal
from satchel.store.history import read_history, replay
from satchel.store.journal import SkillChange
from satchel.store.recovery import apply_rows, edited_note, locked_scope, recover_locked
from satchel.store.transaction import PendingChange, commit_locked
from satchel.store.trees import digest_at, state_at
from satchel.store.workdir import check_scope, is_ours

if TYPE_CHECKING:
    from satchel.store.history import UndoState
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
    changes: tuple[SkillChange, ...] = ()


def history(scope: Scope) -> list[HistoryEntry]:
    """The completed changes, newest first.

    Raises:
        Refused: the history cannot be read.
    """
    with disk_errors_as_refusal(scope.part("history")):
        if not is_ours(scope):
            return []
        check_scope(scope)
        past = read_history(scope)
    undoable = replay(past.records)
    entries = [_history_entry(record, undoable) for record in past.records]
    reason = say("it is damaged, or was not written here")
    lost = (*past.damaged, *past.foreign)
    entries += [HistoryEntry(one, "", reason, "", (), "damaged") for one in lost]
    return sorted(entries, key=lambda entry: -entry.number)


def _history_entry(record: TransactionRecord, undoable: UndoState) -> HistoryEntry:
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
    with locked_scope(scope) as adopted:
        repaired = [*adopted, *recover_locked(scope)]
        edited: list[str] = []
        seen: dict[str, PathState] = {}
        with disk_errors_as_refusal(scope.part("history")):
            past, record = _next_record(scope, redo=redo)
            if number and record.number != number:
                raise changed_meanwhile(str(number))
            if record.op == "rebuild":
                raise Refused(
                    say("Writing the lockfile anew cannot be undone"),
                    say("The damaged one is kept in `{path}`", path=record.entry(scope)),
                )
            changes = [
                _restoring_change(scope, record, change, seen, edited) for change in record.changes
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
    kept = scope.part("history", str(receipt.number), "old")
    notes = [edited_note(one, os.path.join(kept, one)) for one in edited]
    return Undone(
        receipt.number,
        origin.op,
        origin.summary,
        record.ids,
        receipt.repaired,
        (*notes, *receipt.notes),
        receipt.trouble,
        tuple(changes),
    )


def _next_record(
    scope: Scope, *, redo: bool
) -> tuple[dict[int, TransactionRecord], TransactionRecord]:
    """The history by number, and the next record to undo or redo."""
    past = read_history(scope)
    state = replay(past.records)
    stack = state.undone if redo else state.done
    if not stack:
        hint = say("Run `satchel undo --list` to see what was changed")
        if state.undone:
            hint = say("Run `satchel undo --redo` to redo the last undone change")
        raise NotFound(
            say("There is nothing to do again") if redo else say("There is nothing to undo"), hint
        )
    if past.damaged and max(past.damaged) > stack[-1]:
        raise Refused(
            say("`{path}` is damaged", path=scope.part("history", str(max(past.damaged)))),
            say("Change it by hand"),
        )
    by_number = {record.number: record for record in past.records}
    return by_number, by_number[stack[-1]]


def _restoring_change(
    scope: Scope,
    record: TransactionRecord,
    change: SkillChange,
    seen: dict[str, PathState],
    edited: list[str],
) -> SkillChange:
    seen[change.id] = state_at(scope.target(change.id))
    now = seen[change.id].digest
    if now and now != change.after:
        edited.append(change.id)
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
        say("Run `{command}`", command="satchel install --frozen"),
    )  # fmt: skip
