"""Atomic changes of a scope.

    stage     new skills are written to a staging folder and synced to the disk
    lock      one writer at a time; what a crash left is finished first
    compare   targets and staged folders still hold what the plan saw, else `Conflict`
    journal   the change is on the disk: a crash from here on is rolled forward
    rename    staged folder and target are exchanged in one step; readers see old or new
    lockfile  replaced in one step
    history   replaced folders and the journal move there: the change is acknowledged

A crash leaves either the old state or a journal, which `recovery` finishes. An error is rolled back
at once.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import exchange, make_folders, sync_folder, sync_tree, write_atomic
from satchel.errors import InvalidInput, Refused
from satchel.i18n import say
from satchel.library.lockfile import read_lock, render_lock
from satchel.store import journal
from satchel.store.disk_errors import (
    changed_meanwhile,
    disk_errors_as_refusal,
    path_of_error,
    reason_of,
    to_refusal,
)
from satchel.store.history import next_number, prune
from satchel.store.journal import (
    ENTRY_FILE,
    JOURNAL_FILE,
    TransactionRecord,
    refuse_repository,
    relative_to_work,
)
from satchel.store.recovery import locked_scope, recover_locked, sync_places, write_lockfile
from satchel.store.trees import PathState, has_changed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.library.lockfile import Lock
    from satchel.store.journal import Kind, SkillChange
    from satchel.store.plan import ChangeStep
    from satchel.store.staging import StagingFolder
    from satchel.store.workdir import Scope


class Receipt(NamedTuple):
    """The result of a change."""

    number: int
    """Its number in the history; 0 when there was nothing to do."""
    repaired: tuple[str, ...] = ()
    """What recovery did before."""
    notes: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()
    """What could not be done or confirmed, and what to do; empty when complete."""
    done: tuple[ChangeStep, ...] = ()
    left: tuple[ChangeStep, ...] = ()
    """Steps that the scan blocked."""
    kept: tuple[ChangeStep, ...] = ()
    """Steps that the caller left out."""


class PendingChange(NamedTuple):
    """A change to commit."""

    op: str
    """The command."""
    summary: str
    """One line for the history."""
    changes: Sequence[SkillChange]
    """One for each skill."""
    relock: Callable[[Lock], Lock]
    """Returns the next lock for the present one; called under the lock."""
    bases: Mapping[str, str] = {}
    """Hexadecimal digest -> a staged archive with the pristine content of a skill."""
    seen: Mapping[str, PathState] = {}
    """Id -> the state of its folder when the plan was made. A folder without one is hashed, to
    compare it with `SkillChange.before`."""
    kind: Kind = "do"
    of: int = 0


def commit(scope: Scope, pending: PendingChange, stage: StagingFolder | None = None) -> Receipt:
    """Apply a change, completely or not at all.

    Raises:
        InvalidInput: a skill occurs twice, or is staged elsewhere.
        Conflict: a skill, or what was staged for it, changed since the plan was made.
        LockBroken: the lockfile is damaged.
        Refused: the disk reports an error. The old state is valid, unless the message says that
            the rollback failed.
    """
    try:
        pending = pending._replace(changes=relative_to_work(scope, pending.changes))
    except ValueError as exc:
        raise InvalidInput(str(exc)) from exc
    with disk_errors_as_refusal(scope.root):
        if stage is not None and (any(one.staged for one in pending.changes) or pending.bases):
            sync_tree(stage.path)
            sync_folder(scope.part("stage"))
    with locked_scope(scope) as adopted:
        before = stage.repaired if stage is not None else ()
        repaired = [*before, *adopted, *recover_locked(scope)]
        try:
            return commit_locked(scope, pending, stage, repaired)
        except BaseException as exc:
            for text in repaired:
                exc.add_note(text)
            raise


def commit_locked(
    scope: Scope,
    pending: PendingChange,
    stage: StagingFolder | None = None,
    repaired: Sequence[str] = (),
) -> Receipt:
    """`commit` under the lock (`locked_scope`), with staged paths relative to the work folder."""
    texts = tuple(repaired)
    with disk_errors_as_refusal(scope.root):
        for change in pending.changes:
            target = scope.target(change.id)
            refuse_repository(target)
            if has_changed(target, pending.seen.get(change.id, PathState(change.before))):
                raise changed_meanwhile(change.id)
            if change.staged and stage is not None and stage.has_changed(change.id, change.after):
                raise changed_meanwhile(change.id)
        lock = read_lock(scope.lock)
        after = pending.relock(dict(lock))
        record = _record(scope, pending, lock, after)
        if pending.kind == "do" and not (record.changes or record.locked):
            return Receipt(0, texts)
        make_folders(scope.folder)
        os.makedirs(os.path.join(record.entry(scope), "old"))
        _keep_bases(scope, pending.bases)
    trouble = _execute(scope, record, stage, None if lock == after else after)
    notes: tuple[str, ...] = ()
    try:
        prune(scope, after)
    except OSError as exc:
        notes = (_done_but(exc, scope),)
    return Receipt(record.number, texts, notes, trouble)


def _record(scope: Scope, pending: PendingChange, lock: Lock, after: Lock) -> TransactionRecord:
    ids = sorted(name for name in {*lock, *after} if lock.get(name) != after.get(name))
    before_rows = {name: lock[name] for name in ids if name in lock}
    after_rows = {name: after[name] for name in ids if name in after}
    return TransactionRecord(
        next_number(scope),
        pending.op,
        pending.summary,
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        # A folder that would be replaced by an equal one stays.
        tuple(change for change in pending.changes if change.before != change.after),
        tuple(ids),
        render_lock(before_rows).decode() if ids else "",
        render_lock(after_rows).decode() if ids else "",
        pending.kind,
        pending.of,
    )


def _keep_bases(scope: Scope, bases: Mapping[str, str]) -> None:
    """Keep pristine copies. An unused one is pruned later."""
    for digest, path in bases.items():
        os.replace(path, scope.part("base", f"{digest}.zip"))
    if bases:
        sync_folder(scope.part("base"))


def _execute(
    scope: Scope, record: TransactionRecord, stage: StagingFolder | None, lock: Lock | None
) -> tuple[str, ...]:
    """Run the transaction from journal to history, or roll it back; returns `Receipt.trouble`."""
    done: list[Callable[[], object]] = []
    try:
        journal.write_journal(scope, record)
        for change in record.changes:
            _execute_change(scope, record, change, done)
        sync_places(scope, record)
        if lock is not None:
            _replace_lockfile(scope, lock, done)
        os.rename(scope.part(JOURNAL_FILE), os.path.join(record.entry(scope), ENTRY_FILE))
    except OSError as exc:
        _roll_back(scope, record, stage, done, exc)
        raise to_refusal(exc, scope.root) from exc
    except BaseException:
        # Interrupted by the user, or out of memory: the next command recovers, as after a crash.
        if stage is not None:
            stage.detach()
        raise
    try:
        sync_folder(record.entry(scope))
        sync_folder(scope.work)
    except OSError as exc:
        return _done_but(exc, scope), say("Run `{command}`", command="satchel verify")
    return ()


def _done_but(exc: OSError, scope: Scope) -> str:
    reason = f"`{path_of_error(exc, scope.work)}`: {reason_of(exc)}"
    return say("The change was made, but: {reason}", reason=reason)


def _execute_change(
    scope: Scope, record: TransactionRecord, change: SkillChange, done: list[Callable[[], object]]
) -> None:
    """Move one skill into place and the old one into the history; appends the inverse to `done`."""
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
        # Without an atomic exchange the skill is missing for a moment, but never incomplete.
        _move(target, old, done)
        _move(staged, target, done)


def _move(one: str, other: str, done: list[Callable[[], object]]) -> None:
    os.rename(one, other)
    done.append(lambda: os.rename(other, one))


def _replace_lockfile(scope: Scope, lock: Lock, done: list[Callable[[], object]]) -> None:
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

    # Registered first: an error may come after the replacement.
    done.append(back)
    write_lockfile(scope, lock)


def _roll_back(
    scope: Scope,
    record: TransactionRecord,
    stage: StagingFolder | None,
    done: list[Callable[[], object]],
    why: OSError,
) -> None:
    """Undo the steps so far.

    Raises:
        Refused: that failed; the next command finishes the change.
    """
    try:
        for step in reversed(done):
            step()
        if done:
            sync_places(scope, record)
        with suppress(FileNotFoundError):
            os.unlink(scope.part(JOURNAL_FILE))
    except OSError as exc:
        if stage is not None:
            stage.detach()
        raise Refused(
            say("`{path}`: {reason}; the change is incomplete and could not be taken back: "
                "the next command will finish it",
                path=path_of_error(why, scope.root), reason=reason_of(why)),
            say("Try again"),
        ) from exc  # fmt: skip
    with suppress(OSError):  # the old state is in place, confirmed or not
        sync_folder(scope.work)
    with suppress(OSError):
        os.rmdir(os.path.join(record.entry(scope), "old"))
        os.rmdir(record.entry(scope))
