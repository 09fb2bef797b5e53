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
from satchel.store.record_files import apply_entries, edited_note
from satchel.store.recovery import recover_locked
from satchel.store.scope_lock import locked_scope
from satchel.store.transaction import PendingChange, commit_locked
from satchel.store.trees import digest_at, state_at
from satchel.store.workdir import check_scope, is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.store.history import UndoState
    from satchel.store.journal import TransactionRecord
    from satchel.store.trees import PathState
    from satchel.store.workdir import Scope

State = Literal["done", "undone", "past", "damaged"]


class HistoryEntry(NamedTuple):
    """One entry of `Store.history`.

    Example:
        from satchel import Satchel

        for entry in Satchel.for_project(".").store().history():
            print(entry.number, entry.op, entry.summary, entry.state)
    """

    number: int
    """Its number in the history."""
    op: str
    """What was done: `import`, `update`, `remove` and others."""
    summary: str
    """One line for people."""
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
    """The result of `Store.undo`."""

    number: int
    """Of the new entry in the history."""
    op: str
    """Of the change that was undone or redone."""
    summary: str
    """One line about that change."""
    ids: tuple[str, ...]
    """The skills that it changed."""
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
        history_state = read_history(scope)
    undoable = replay(history_state.records)
    entries = [_history_entry(record, undoable) for record in history_state.records]
    reason = say("it is damaged, or was not written here")
    unusable_numbers = (*history_state.damaged, *history_state.foreign)
    entries += [
        HistoryEntry(number=number, op="", summary=reason, time="", ids=(), state="damaged")
        for number in unusable_numbers
    ]
    return sorted(entries, key=lambda entry: -entry.number)


def _history_entry(record: TransactionRecord, undoable: UndoState) -> HistoryEntry:
    state: State = "past"
    if record.number in undoable.done:
        state = "done"
    elif record.number in undoable.undone:
        state = "undone"
    return HistoryEntry(
        number=record.number,
        op=record.op,
        summary=record.summary,
        time=record.time,
        ids=record.ids,
        state=state,
        changes=record.changes,
        of=record.of,
    )


def undo(
    scope: Scope,
    *,
    redo: bool = False,
    number: int = 0,
    settle: Callable[[Sequence[SkillChange]], object] | None = None,
) -> Undone:
    """Restore what the last change replaced; with `redo`, what the last undo replaced.

    Args:
        scope: The scope.
        redo: Redo the last undo.
        number: Undo only if this entry is the next one; any when 0.
        settle: As in `PendingChange`.

    Raises:
        NotFound: there is nothing to undo.
        Conflict: another entry is the next one.
        LockBroken: the lockfile is damaged.
        Refused: the disk reports an error, the old folder is missing, or it cannot be undone.
    """
    with locked_scope(scope) as adoption_notes:
        repaired = [*adoption_notes, *recover_locked(scope, settle)]
        edited: list[str] = []
        states: dict[str, PathState] = {}
        with disk_errors_as_refusal(scope.part("history")):
            records_by_number, record = _find_next_record(scope, redo=redo)
            if number and record.number != number:
                raise changed_meanwhile(str(number))
            if record.op == "rebuild":
                raise Refused(
                    say("Writing the lockfile anew cannot be undone"),
                    say("The damaged one is kept in `{path}`", path=record.entry(scope)),
                )
            changes = [
                _make_restoring_change(scope, record, change, states, edited)
                for change in record.changes
            ]
        try:
            entries = record.rows("before")
        except LockBroken as exc:
            raise _not_kept_error(record) from exc
        original = _find_original(record, records_by_number)

        kind = "redo" if redo else "undo"
        pending = PendingChange(
            kind,
            original.summary,
            changes,
            partial(apply_entries, ids=record.locked, entries=entries),
            seen=states,
            kind=kind,
            of=record.number,
            settle=settle,
        )
        receipt = commit_locked(scope, pending, repaired=repaired)
    old_folder = scope.part("history", str(receipt.number), "old")
    notes = [edited_note(skill_id, os.path.join(old_folder, skill_id)) for skill_id in edited]
    return Undone(
        number=receipt.number,
        op=original.op,
        summary=original.summary,
        ids=record.ids,
        repaired=receipt.repaired,
        notes=(*notes, *receipt.notes),
        trouble=receipt.trouble,
        changes=tuple(changes),
    )


def _find_next_record(
    scope: Scope, *, redo: bool
) -> tuple[dict[int, TransactionRecord], TransactionRecord]:
    """Return the history by number, and the next record to undo or redo."""
    history_state = read_history(scope)
    state = replay(history_state.records)
    stack = state.undone if redo else state.done
    if not stack:
        hint = say("Run `satchel undo --list` to see what was changed")
        if state.undone:
            hint = say("Run `satchel undo --redo` to redo the last undone change")
        raise NotFound(
            say("There is nothing to do again") if redo else say("There is nothing to undo"), hint
        )
    if history_state.damaged and max(history_state.damaged) > stack[-1]:
        raise Refused(
            say("`{path}` is damaged", path=scope.part("history", str(max(history_state.damaged)))),
            say("Change it by hand"),
        )
    by_number = {record.number: record for record in history_state.records}
    return by_number, by_number[stack[-1]]


def _make_restoring_change(
    scope: Scope,
    record: TransactionRecord,
    change: SkillChange,
    states: dict[str, PathState],
    edited: list[str],
) -> SkillChange:
    states[change.id] = state_at(scope.target(change.id))
    present_digest = states[change.id].digest
    if present_digest and present_digest != change.after:
        edited.append(change.id)
    if not change.before:
        return SkillChange(change.id, "", present_digest, "")
    staged = record.old(scope, change.id)
    staged_digest = digest_at(staged)
    if staged_digest != change.before:
        # Deleted or replaced in the history's folder.
        raise _not_kept_error(record)
    return SkillChange(
        change.id,
        os.path.relpath(staged, scope.work).replace(os.sep, "/"),
        present_digest,
        staged_digest,
    )


def _find_original(
    record: TransactionRecord, records_by_number: dict[int, TransactionRecord]
) -> TransactionRecord:
    """The change that a chain of undo and redo is about."""
    while record.kind != "do" and record.of in records_by_number:
        record = records_by_number[record.of]
    return record


def _not_kept_error(record: TransactionRecord) -> Refused:
    return Refused(
        say("What change {number} replaced is not in the history any more; nothing was changed",
            number=record.number),
        say("Run `{command}`", command="satchel install --frozen"),
    )  # fmt: skip
