"""How does a change happen completely or not at all?

    stage     the new skills are written beside their places and brought to the disk
    lock      from here on there is one writer; what a crash left is finished first
    compare   each place still holds what the plan saw, else `Conflict`
    journal   what will be done is on the disk: a crash from here on is finished, not undone
    rename    staged folder and place change places in one step; readers see old or new
    lockfile  replaced in one step
    history   what was replaced goes there, and with it the journal: the change is acknowledged

A crash leaves either the old state or a journal. An error is rolled back at once, and says so.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import exchange, make_folders, sync_folder, sync_tree, write_atomic
from satchel._language import say
from satchel.errors import InvalidInput, LockBroken, Refused
from satchel.library.lockfile import read_lock, render_lock
from satchel.store import journal
from satchel.store.journal import (
    ENTRY,
    NAME,
    Change,
    Record,
    refuse_repository,
    relative,
    standing,
)
from satchel.store.keeping import next_number, prune
from satchel.store.recovery import (
    Repair,
    recover,
    recover_held,
    sync_places,
    write_lock,
    writing,
)
from satchel.store.scope import check_id
from satchel.store.stage import Stage, stage
from satchel.store.trouble import hint, meanwhile, named, reason, refusal, unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.library.lockfile import Lock
    from satchel.store.journal import Kind
    from satchel.store.scope import Scope

__all__ = ["Change", "Receipt", "Repair", "Stage", "commit", "present", "recover", "stage"]


class Receipt(NamedTuple):
    """A change that is complete and on the disk."""

    number: int
    """Its number in the history; 0 when there was nothing to do."""
    repaired: tuple[str, ...] = ()
    """What was finished or cleared away of an interrupted command before."""
    notes: tuple[str, ...] = ()
    """What else is worth saying."""
    trouble: tuple[str, ...] = ()
    """Why nobody knows whether a power cut now would undo it, and what to do; else empty."""


class Draft(NamedTuple):
    """A change that is wanted."""

    op: str
    summary: str
    changes: Sequence[Change]
    """With `staged` relative to the work area."""
    relock: Callable[[Lock], Lock]
    bases: Mapping[str, str] = {}
    kind: Kind = "do"
    of: int = 0
    rebuild: bool = False
    """A damaged lockfile counts as empty."""


def present(scope: Scope, skill_id: str) -> str:
    """What is in a skill's place now, for `Change.before`; see `standing`.

    Raises:
        Refused: the disk does not say.
    """
    target = scope.target(check_id(skill_id))
    with unchanged(target):
        return standing(target)


def commit(
    scope: Scope,
    stage: Stage | None,
    changes: Sequence[Change],
    *,
    relock: Callable[[Lock], Lock],
    op: str,
    summary: str,
    bases: Mapping[str, str] | None = None,
    rebuild: bool = False,
) -> Receipt:
    """Carry out a change, completely or not at all.

    Args:
        scope: Where.
        stage: What holds the staged folders; None when nothing is staged.
        changes: What happens to which skill, each once.
        relock: Gives the next lock for the present one; called when nobody else writes.
        op: Which command this is.
        summary: One line for the history.
        bases: Digest in hexadecimal -> a staged file with the pristine content of a skill.
        rebuild: A damaged lockfile counts as empty; it is kept in the history.

    Raises:
        InvalidInput: a skill is there twice, or staged somewhere else.
        Conflict: a skill is not what `before` says any more.
        LockBroken: the lockfile is damaged.
        Refused: the disk says no. The message says whether the old state holds, which it does
            unless even putting it back failed.
    """
    bases = bases or {}
    try:
        moves = relative(scope, changes)
    except ValueError as exc:
        raise InvalidInput(say("The change cannot be made: {reason}", reason=exc)) from exc
    with unchanged(scope.root):
        if stage is not None and (any(change.staged for change in moves) or bases):
            sync_tree(stage.path)
            sync_folder(scope.part("stage"))
    draft = Draft(op, summary, moves, relock, bases, rebuild=rebuild)
    with writing(scope) as said:
        found = dict.fromkeys((*(stage.notes if stage is not None else ()), *said))
        repaired = [*(Repair("", (), text) for text in found), *recover_held(scope)]
        try:
            return carry_out(scope, draft, stage, repaired)
        except BaseException as exc:
            for repair in repaired:
                exc.add_note(repair.text)
            raise


def carry_out(
    scope: Scope, draft: Draft, stage: Stage | None = None, repaired: Sequence[Repair] = ()
) -> Receipt:
    """The part of `commit` that needs to be alone; call it while `writing`."""
    said = tuple(repair.text for repair in repaired)
    with unchanged(scope.root):
        for change in draft.changes:
            refuse_repository(scope.target(change.id))
            if standing(scope.target(change.id)) != change.before:
                raise meanwhile(change.id)
        broken = b""
        try:
            lock = read_lock(scope.lock)
        except LockBroken:
            if not draft.rebuild:
                raise
            with open(scope.lock, "rb") as stream:
                broken = stream.read()
            lock = {}
        after = draft.relock(dict(lock))
        record = _record(scope, draft, lock, after)
        if draft.kind == "do" and not (record.changes or record.locked or broken):
            return Receipt(0, said)
        make_folders(scope.folder)
        os.makedirs(os.path.join(record.entry(scope), "old"))
        if broken:
            write_atomic(os.path.join(record.entry(scope), "satchel.lock.damaged"), broken)
        _keep_bases(scope, draft.bases)
    trouble = _do(scope, record, stage, None if lock == after and not broken else after)
    notes: tuple[str, ...] = ()
    try:
        prune(scope, after)
    except OSError as exc:
        text = say("The change is complete, but the old history could not be cleared: `{path}`: "
                   "{reason}", path=named(exc, scope.work), reason=reason(exc))  # fmt: skip
        notes = (text,)
    return Receipt(record.number, said, notes, trouble)


def _record(scope: Scope, draft: Draft, lock: Lock, after: Lock) -> Record:
    import time

    ids = sorted(name for name in {*lock, *after} if lock.get(name) != after.get(name))
    before_rows = {name: lock[name] for name in ids if name in lock}
    after_rows = {name: after[name] for name in ids if name in after}
    return Record(
        next_number(scope),
        draft.op,
        draft.summary,
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        # What would be replaced by the same is left alone.
        tuple(change for change in draft.changes if change.before != change.after),
        tuple(ids),
        render_lock(before_rows).decode() if ids else "",
        render_lock(after_rows).decode() if ids else "",
        draft.kind,
        draft.of,
    )


def _keep_bases(scope: Scope, bases: Mapping[str, str]) -> None:
    """Put pristine copies where merges look for them. One too many does no harm."""
    for digest, path in bases.items():
        os.replace(path, scope.part("base", f"{digest}.zip"))
    if bases:
        sync_folder(scope.part("base"))


def _do(scope: Scope, record: Record, stage: Stage | None, lock: Lock | None) -> tuple[str, ...]:
    """From the journal to the history, or back; gives what the disk did not confirm of it."""
    done: list[Callable[[], object]] = []
    try:
        journal.write(scope, record)
        for change in record.changes:
            _put(scope, record, change, done)
        sync_places(scope, record)
        if lock is not None:
            _relock(scope, lock, done)
        os.rename(scope.part(NAME), os.path.join(record.entry(scope), ENTRY))
    except OSError as exc:
        _put_back(scope, record, stage, done, exc)
        raise refusal(exc, scope.root) from exc
    except BaseException:
        # Interrupted by the user, or out of memory: as after a crash, the next command goes on.
        if stage is not None:
            stage.leave()
        raise
    try:
        sync_folder(record.entry(scope))
        sync_folder(scope.work)
    except OSError as exc:
        return (
            say("The change was made, but the disk did not confirm it: `{path}`: {reason}",
                path=named(exc, scope.work), reason=reason(exc)),
            say("Run `satchel verify`, and look after the disk"),
        )  # fmt: skip
    return ()


def _put(scope: Scope, record: Record, change: Change, done: list[Callable[[], object]]) -> None:
    """Put one skill in its place, what was there into the history; `done` gets the way back."""
    target, old = scope.target(change.id), record.old(scope, change.id)
    if not change.after:
        _move(target, old, done)
        return
    staged = scope.part(change.staged)
    if not change.before:
        _move(staged, target, done)
    elif exchange(staged, target):
        done.append(lambda: exchange(staged, target))
        _move(staged, old, done)
    else:
        # For a moment there is no skill at all, but never half of one.
        _move(target, old, done)
        _move(staged, target, done)


def _move(one: str, other: str, done: list[Callable[[], object]]) -> None:
    os.rename(one, other)
    done.append(lambda: os.rename(other, one))


def _relock(scope: Scope, lock: Lock, done: list[Callable[[], object]]) -> None:
    try:
        with open(scope.lock, "rb") as stream:
            old = stream.read()
    except FileNotFoundError:
        old = None

    def back() -> None:
        if old is None:
            with suppress(FileNotFoundError):
                os.unlink(scope.lock)
            sync_folder(scope.root)
        else:
            write_atomic(scope.lock, old, through=scope.work)

    # First the way back: an error may come after the replacement.
    done.append(back)
    write_lock(scope, lock)


def _put_back(
    scope: Scope,
    record: Record,
    stage: Stage | None,
    done: list[Callable[[], object]],
    why: OSError,
) -> None:
    """Undo what was done so far; without that, say that the next command goes on."""
    try:
        for step in reversed(done):
            step()
        if done:
            sync_places(scope, record)
        with suppress(FileNotFoundError):
            os.unlink(scope.part(NAME))
    except OSError as exc:
        if stage is not None:
            stage.leave()
        raise Refused(
            say("`{path}`: {reason}; the change is incomplete and could not be taken back: "
                "the next command will finish it", path=named(why, scope.root), reason=reason(why)),
            hint(why),
        ) from exc  # fmt: skip
    with suppress(OSError):  # the old state holds, whether or not the disk confirms it
        sync_folder(scope.work)
    with suppress(OSError):
        os.rmdir(os.path.join(record.entry(scope), "old"))
        os.rmdir(record.entry(scope))
