"""What was there before, and how does it come back?

Undoing is a change like any other: it puts the folders and the lines of the lockfile back that one
entry had replaced, and what is there now goes into the history in turn. So nothing is lost by
undoing, not even edits made since, and it can be done again.

    undo, undo     two steps back
    redo           one step forward again
    a new change   ends what could be done again; it stays in the history until it is too old
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import say
from satchel.errors import Conflict, LockBroken, NotFound, Refused
from satchel.store import journal
from satchel.store.journal import Change, standing
from satchel.store.scope import TIMEOUT, check_scope, is_ours, unchanged
from satchel.store.transaction import Draft, Repair, apply_rows, carry_out, recover_held, writing

if TYPE_CHECKING:
    from satchel.library.lockfile import Lock
    from satchel.store.journal import Record
    from satchel.store.scope import Scope

State = Literal["done", "undone", "past", "damaged"]


class Entry(NamedTuple):
    """One change of the past."""

    number: int
    op: str
    summary: str
    time: str
    """As `2030-01-31T12:00:00Z`."""
    ids: tuple[str, ...]
    """The skills that it touched."""
    state: State
    """`done`: it can be undone. `undone`: an undoing that can be taken back. `past`: neither.
    `damaged`: it cannot be read, or was not written here; `summary` says which."""
    changes: tuple[Change, ...] = ()
    of: int = 0
    """Which entry an undoing, or a doing again, is about; 0: it is neither."""


class Undone(NamedTuple):
    """What was undone, or done again."""

    number: int
    """Of the new entry in the history."""
    op: str
    """Of the change that was undone or done again."""
    summary: str
    ids: tuple[str, ...]
    repaired: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What else is worth saying, such as edits that went into the history."""
    trouble: tuple[str, ...] = ()
    """What of it could not be done, and what to do about that; empty when everything was."""


def history(scope: Scope) -> list[Entry]:
    """What was changed, the newest first.

    Raises:
        Refused: the disk says no.
    """
    with unchanged(scope.part("history")):
        if not is_ours(scope):
            return []
        check_scope(scope)
        past = journal.read_past(scope)
    piles = journal.play(past.records)
    entries = [_entry(record, piles) for record in past.records]
    entries += [
        Entry(number, "", say("it cannot be read"), "", (), "damaged") for number in past.damaged
    ]
    entries += [
        Entry(number, "", say("it was not written here"), "", (), "damaged")
        for number in past.foreign
    ]
    return sorted(entries, key=lambda entry: -entry.number)


def _entry(record: Record, piles: journal.Piles) -> Entry:
    state: State = "past"
    if record.number in piles.done:
        state = "done"
    elif record.number in piles.undone:
        state = "undone"
    return Entry(
        record.number, record.op, record.summary, record.time, record.ids, state, record.changes,
        record.of,
    )  # fmt: skip


def undo(
    scope: Scope,
    *,
    redo: bool = False,
    number: int = 0,
    timeout: float = TIMEOUT,
) -> Undone:
    """Bring back what the last change replaced; with `redo`, what the last undoing replaced.

    Args:
        scope: Where.
        redo: Take the last undoing back.
        number: Only if it is this entry's turn; whoever's turn it is when 0.
        timeout: Seconds that another writer may take.

    Raises:
        NotFound: there is nothing to undo.
        Conflict: it is another entry's turn.
        LockBroken: the lockfile is damaged.
        Refused: the disk says no, the old folder is not there any more, or it cannot be undone.
    """
    with writing(scope, timeout=timeout) as said:
        repaired = [*(Repair("", (), text) for text in said), *recover_held(scope)]
        notes: list[str] = []
        with unchanged(scope.part("history")):
            past, record = _next(scope, redo=redo)
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
            changes = [_back(scope, record, change, notes) for change in record.changes]
        try:
            rows = record.rows("before")
        except LockBroken as exc:
            raise _gone(record) from exc
        origin = _origin(record, past)

        def relock(lock: Lock) -> Lock:
            return apply_rows(lock, record.locked, rows)

        draft = Draft(
            "redo" if redo else "undo",
            origin.summary,
            changes,
            relock,
            kind="redo" if redo else "undo",
            of=record.number,
        )
        receipt = carry_out(scope, draft, repaired=repaired)
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
    """The newest lockfile entry of each skill that the history has.

    Raises:
        Refused: the disk says no.
    """
    with unchanged(scope.part("history")):
        if not is_ours(scope):
            return {}
        check_scope(scope)
        records = journal.read_past(scope).records
    lock: Lock = {}
    for record in records:
        with suppress(LockBroken):
            lock = apply_rows(lock, record.locked, record.rows("after"))
    return lock


def _next(scope: Scope, *, redo: bool) -> tuple[dict[int, Record], Record]:
    """The past, and what of it comes back next."""
    past = journal.read_past(scope)
    piles = journal.play(past.records)
    pile = piles.undone if redo else piles.done
    if not pile:
        raise NotFound(
            say("There is nothing to do again") if redo else say("There is nothing to undo"),
            say("Run `satchel undo --list` to see what was changed")
            if any(past)
            else say("Satchel has changed nothing in `{folder}` yet", folder=scope.folder),
        )
    if past.damaged and max(past.damaged) > pile[-1]:
        raise Refused(
            say("Change {number} of the history is damaged, so nobody knows what came before it; "
                "nothing was changed", number=max(past.damaged)),
            say("Look at `{path}`", path=scope.part("history", str(max(past.damaged)))),
        )  # fmt: skip
    by_number = {record.number: record for record in past.records}
    return by_number, by_number[pile[-1]]


def _back(scope: Scope, record: Record, change: Change, notes: list[str]) -> Change:
    """The change that brings one skill back."""
    now = standing(scope.target(change.id))
    if now and now != change.after:
        notes.append(
            say("`{name}` had been edited since: that is kept in the history", name=change.id)
        )
    elif now != change.after:
        notes.append(say("`{name}` had been removed since", name=change.id))
    if not change.before:
        return Change(change.id, "", now, "")
    staged = record.old(scope, change.id)
    found = standing(staged)
    if found != change.before:
        # Deleted, or somebody put something else there: that is not what is asked for.
        raise _gone(record)
    return Change(change.id, os.path.relpath(staged, scope.work).replace(os.sep, "/"), now, found)


def _origin(record: Record, past: dict[int, Record]) -> Record:
    """The change that an undoing, or a doing again, is about."""
    while record.kind != "do" and record.of in past:
        record = past[record.of]
    return record


def _gone(record: Record) -> Refused:
    return Refused(
        say("What change {number} replaced is not in the history any more; nothing was changed",
            number=record.number),
        say("Take it from version control, or install it again"),
    )  # fmt: skip
