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
from satchel.errors import InvalidInput, Refused, SatchelError
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
from satchel.store.record_files import sync_folders, write_lockfile
from satchel.store.recovery import recover_locked
from satchel.store.scope_lock import locked_scope
from satchel.store.trees import PathState, has_changed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.library.lockfile import Lock
    from satchel.store.journal import Kind, SkillChange
    from satchel.store.plan import ChangeStep
    from satchel.store.staging import StagingFolder
    from satchel.store.workdir import Scope


class Receipt(NamedTuple):
    """The result of `Store.apply`."""

    number: int
    """Its number in the history; 0 when there was nothing to do."""
    repaired: tuple[str, ...] = ()
    """What recovery did before."""
    notes: tuple[str, ...] = ()
    """Remarks for the user."""
    trouble: tuple[str, ...] = ()
    """What could not be done or confirmed, and what to do; empty when complete."""
    done: tuple[ChangeStep, ...] = ()
    """The steps that were applied."""
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
    """Whether it is a change of its own, an undo or a redo."""
    of: int = 0
    """The number of the change that it undoes or redoes."""
    settle: Callable[[Sequence[SkillChange]], object] | None = None
    """Saves the trust that belongs to changed folders. Called before the change is acknowledged,
    and for a change that a crash left; a second call with the same changes does nothing."""


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
        if stage is not None and (
            any(change.staged for change in pending.changes) or pending.bases
        ):
            sync_tree(stage.path)
            sync_folder(scope.part("stage"))
    with locked_scope(scope) as lock_repairs:
        stage_repairs = stage.repaired if stage is not None else ()
        repaired = [*stage_repairs, *lock_repairs, *recover_locked(scope, pending.settle)]
        try:
            return commit_locked(scope, pending, stage, repaired)
        except BaseException as exc:
            for repair in repaired:
                exc.add_note(repair)
            raise


def commit_locked(
    scope: Scope,
    pending: PendingChange,
    stage: StagingFolder | None = None,
    repaired: Sequence[str] = (),
) -> Receipt:
    """`commit` under the lock (`locked_scope`), with staged paths relative to the work folder."""
    repairs = tuple(repaired)
    with disk_errors_as_refusal(scope.root):
        for change in pending.changes:
            target = scope.target(change.id)
            refuse_repository(target)
            if has_changed(target, pending.seen.get(change.id, PathState(change.before))):
                raise changed_meanwhile(change.id)
            if change.staged and stage is not None and stage.has_changed(change.id, change.after):
                raise changed_meanwhile(change.id)
        lock_before = read_lock(scope.lock)
        lock_after = pending.relock(dict(lock_before))
        record = _make_record(scope, pending, lock_before, lock_after)
        if pending.kind == "do" and not (record.changes or record.locked):
            return Receipt(0, repairs)
        make_folders(scope.folder)
        os.makedirs(os.path.join(record.entry(scope), "old"))
        _keep_bases(scope, pending.bases)
    new_lock = lock_after if lock_after != lock_before else None
    trouble = _execute(scope, record, stage, new_lock, pending.settle)
    notes: tuple[str, ...] = ()
    try:
        prune(scope, lock_after)
    except OSError as exc:
        notes = (_partial_success_note(exc, scope),)
    return Receipt(record.number, repairs, notes, trouble)


def _make_record(
    scope: Scope, pending: PendingChange, lock_before: Lock, lock_after: Lock
) -> TransactionRecord:
    ids = sorted(
        skill_id
        for skill_id in {*lock_before, *lock_after}
        if lock_before.get(skill_id) != lock_after.get(skill_id)
    )
    entries_before = {
        skill_id: lock_before[skill_id] for skill_id in ids if skill_id in lock_before
    }
    entries_after = {skill_id: lock_after[skill_id] for skill_id in ids if skill_id in lock_after}
    return TransactionRecord(
        number=next_number(scope),
        op=pending.op,
        summary=pending.summary,
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        # A folder that would be replaced by an equal one stays.
        changes=tuple(change for change in pending.changes if change.before != change.after),
        locked=tuple(ids),
        lock_before=render_lock(entries_before).decode() if ids else "",
        lock_after=render_lock(entries_after).decode() if ids else "",
        kind=pending.kind,
        of=pending.of,
    )


def _keep_bases(scope: Scope, bases: Mapping[str, str]) -> None:
    """Keep pristine copies. An unused one is pruned later."""
    for digest, path in bases.items():
        os.replace(path, scope.part("base", f"{digest}.zip"))
    if bases:
        sync_folder(scope.part("base"))


def _execute(
    scope: Scope,
    record: TransactionRecord,
    stage: StagingFolder | None,
    new_lock: Lock | None,
    settle: Callable[[Sequence[SkillChange]], object] | None,
) -> tuple[str, ...]:
    """Run the transaction from journal to history, or roll it back; returns `Receipt.trouble`."""
    undo_actions: list[Callable[[], object]] = []
    try:
        journal.write_journal(scope, record)
        for change in record.changes:
            _execute_change(scope, record, change, undo_actions)
        sync_folders(scope, record)
        if new_lock is not None:
            _replace_lockfile(scope, new_lock, undo_actions)
        if settle is not None:
            _settle(settle, record, undo_actions)
        os.rename(scope.part(JOURNAL_FILE), os.path.join(record.entry(scope), ENTRY_FILE))
    except OSError as exc:
        _roll_back(scope, record, stage, undo_actions, exc)
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
        return _partial_success_note(exc, scope), say("Run `{command}`", command="satchel verify")
    return ()


def _settle(
    settle: Callable[[Sequence[SkillChange]], object],
    record: TransactionRecord,
    undo_actions: list[Callable[[], object]],
) -> None:
    """Save the trust that belongs to a change; the caller reports what fails."""
    reverse = [
        change._replace(before=change.after, after=change.before) for change in record.changes
    ]

    def take_back() -> None:
        with suppress(SatchelError):
            settle(reverse)

    undo_actions.append(take_back)
    with suppress(SatchelError):
        settle(record.changes)


def _partial_success_note(exc: OSError, scope: Scope) -> str:
    reason = f"`{path_of_error(exc, scope.work)}`: {reason_of(exc)}"
    return say("The change was made, but: {reason}", reason=reason)


def _execute_change(
    scope: Scope,
    record: TransactionRecord,
    change: SkillChange,
    undo_actions: list[Callable[[], object]],
) -> None:
    """Move one skill into place and the old one into the history; records the inverse."""
    target, old = scope.target(change.id), record.old(scope, change.id)
    if not change.after:
        _move(target, old, undo_actions)
        return
    staged = scope.part(change.staged)
    if not change.before:
        _move(staged, target, undo_actions)
    elif exchange(staged, target):
        undo_actions.append(lambda: exchange(staged, target))
        _move(staged, old, undo_actions)
    else:
        # Without an atomic exchange the skill is missing for a moment, but never incomplete.
        _move(target, old, undo_actions)
        _move(staged, target, undo_actions)


def _move(source: str, target: str, undo_actions: list[Callable[[], object]]) -> None:
    os.rename(source, target)
    undo_actions.append(lambda: os.rename(target, source))


def _replace_lockfile(
    scope: Scope, new_lock: Lock, undo_actions: list[Callable[[], object]]
) -> None:
    try:
        with open(scope.lock, "rb") as stream:
            old_content = stream.read()
    except FileNotFoundError:
        old_content = None

    def restore_lockfile() -> None:
        if old_content is None:
            with suppress(FileNotFoundError):
                os.unlink(scope.lock)
            sync_folder(scope.root)
        else:
            write_atomic(scope.lock, old_content, through=scope.work)

    # Registered first: an error may come after the replacement.
    undo_actions.append(restore_lockfile)
    write_lockfile(scope, new_lock)


def _roll_back(
    scope: Scope,
    record: TransactionRecord,
    stage: StagingFolder | None,
    undo_actions: list[Callable[[], object]],
    cause: OSError,
) -> None:
    """Undo the steps so far.

    Raises:
        Refused: that failed; the next command finishes the change.
    """
    try:
        for undo_action in reversed(undo_actions):
            undo_action()
        if undo_actions:
            sync_folders(scope, record)
        with suppress(FileNotFoundError):
            os.unlink(scope.part(JOURNAL_FILE))
    except OSError as exc:
        if stage is not None:
            stage.detach()
        raise Refused(
            say("`{path}`: {reason}; the change is incomplete and could not be taken back: "
                "the next command will finish it",
                path=path_of_error(cause, scope.root), reason=reason_of(cause)),
            say("Try again"),
        ) from exc  # fmt: skip
    with suppress(OSError):  # the old state is in place, confirmed or not
        sync_folder(scope.work)
    with suppress(OSError):
        os.rmdir(os.path.join(record.entry(scope), "old"))
        os.rmdir(record.entry(scope))
