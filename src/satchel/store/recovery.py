"""Crash recovery: finishes the change of a journal, and removes what an interrupted command left.

Without a journal the old state is valid, and staging folders of dead processes are deleted.
Recovery compares digests at every step, so that an interrupted recovery can be repeated. Content
that other programs put there is never deleted: it moves into the history. A journal that was not
written here is set aside.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel._fs import exchange, make_folders, sync_folder, write_atomic
from satchel.errors import LockBroken, Refused, SatchelError
from satchel.i18n import join_names, say
from satchel.library.lockfile import read_lock
from satchel.store import journal
from satchel.store.disk_errors import disk_errors_as_refusal, path_of_error, reason_of
from satchel.store.history import list_numbers
from satchel.store.journal import JOURNAL_FILE
from satchel.store.record_files import (
    apply_entries,
    archive_journal,
    edited_note,
    sync_folders,
    write_lockfile,
)
from satchel.store.scope_lock import locked_scope
from satchel.store.staging import remove_stale_stages, remove_tree
from satchel.store.trees import digest_at
from satchel.store.workdir import is_moved, is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from satchel.store.journal import SkillChange, TransactionRecord
    from satchel.store.workdir import Scope

    Settle = Callable[[Sequence[SkillChange]], object]


_TEMPORARY_FILE = re.compile(r"\.(?:journal\.json|entry\.new|satchel\.lock)\.[0-9]+\.[0-9a-f]{8}")
"""Unfinished files (`write_atomic`) that are written under the lock."""


def recover(scope: Scope, settle: Settle | None = None) -> list[str]:
    """Finish or remove what an interrupted command left; returns what was done, for the user.

    `settle` saves the trust that belongs to changed folders, as in `PendingChange`.

    Cheap when there is nothing.

    A work folder of another owner is left alone.

    Raises:
        AccessDenied: a link in the scope leads elsewhere.
        Refused: the disk reports an error, or another process holds the lock for too long.
    """
    with disk_errors_as_refusal(scope.work):
        if not is_moved(scope) and not (_has_leftovers(scope) and is_ours(scope)):
            return []
    with locked_scope(scope) as adoption_notes:
        return [*adoption_notes, *recover_locked(scope, settle)]


def _has_leftovers(scope: Scope) -> bool:
    try:
        names = os.listdir(scope.work)
        if JOURNAL_FILE in names or any(_is_temporary(scope, name) for name in names):
            return True
        return any(os.listdir(scope.part(folder)) for folder in ("stage", "trash"))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _is_temporary(scope: Scope, name: str) -> bool:
    return bool(_TEMPORARY_FILE.fullmatch(name)) and os.path.isfile(scope.part(name))


def recover_locked(scope: Scope, settle: Settle | None = None) -> list[str]:
    """`recover` for a caller that holds the lock."""
    repairs: list[str] = []
    try:
        record = _read_usable_journal(scope, repairs)
        if record is not None:
            repairs.append(_roll_forward(scope, record, settle))
        _remove_leftovers(scope, repairs)
    except OSError as exc:
        raise Refused(
            say("An interrupted change cannot be finished: `{path}`: {reason}",
                path=path_of_error(exc, scope.work), reason=reason_of(exc)),
            say("Try again"),
        ) from exc  # fmt: skip
    return repairs


def _read_usable_journal(scope: Scope, repairs: list[str]) -> TransactionRecord | None:
    """Read the journal; one that cannot be used is renamed and reported."""
    path = scope.part(JOURNAL_FILE)
    try:
        return journal.read_journal(scope)
    except ValueError as exc:
        new_path = _unused_path(scope.part("journal-damaged.json"))
        os.rename(path, new_path)
        sync_folder(scope.work)
        note = say(
            "The journal of an interrupted change cannot be used ({reason}); it was set aside as "
            "`{path}`; run `satchel verify` to see what it left",
            reason=exc,
            path=new_path,
        )
        repairs.append(note)
        return None


def _roll_forward(scope: Scope, record: TransactionRecord, settle: Settle | None) -> str:
    """Roll a journal forward, from any state that a crash can leave; returns a note."""
    make_folders(scope.folder)
    make_folders(os.path.join(record.entry(scope), "old"))
    notes: list[str] = []
    actual_changes = tuple(
        _roll_change_forward(scope, record, change, notes) for change in record.changes
    )
    sync_folders(scope, record)
    change_pairs = zip(record.changes, actual_changes, strict=True)
    failed_ids = {
        planned_change.id
        for planned_change, actual_change in change_pairs
        if planned_change.after != actual_change.after
    }
    if not record.changes or len(failed_ids) < len(record.changes):
        _roll_lockfile_forward(scope, record, failed_ids, notes)
    if settle is not None:
        try:
            settle([change for change in actual_changes if change.id not in failed_ids])
        except SatchelError as exc:
            notes.append(exc.message)
    if actual_changes != record.changes:
        # The history records the actual content, for `undo`.
        record = record._replace(changes=tuple(map(_make_archived, actual_changes)))
        write_atomic(scope.part("entry.new"), journal.render_record(record, scope))
        archive_journal(scope, record, "entry.new")
        os.unlink(scope.part(JOURNAL_FILE))
        sync_folder(scope.work)
    else:
        archive_journal(scope, record)
    has_failed = bool(failed_ids) and len(failed_ids) == len(record.changes)
    return "; ".join([_describe_outcome(record, has_failed=has_failed), *notes])


def _describe_outcome(record: TransactionRecord, *, has_failed: bool) -> str:
    names = join_names(f"`{name}`" for name in record.ids[:5])
    if len(record.ids) > 5:
        names += " …"
    if has_failed:
        return say("The {op} of {names} was interrupted; the old state holds",
                   op=record.op, names=names)  # fmt: skip
    return say("The {op} of {names} was interrupted; it was finished",
               op=record.op, names=names)  # fmt: skip


def _make_archived(change: SkillChange) -> SkillChange:
    """Return a change for the history, where a removal has no staged folder."""
    return change if change.after else change._replace(staged="")


def _roll_change_forward(
    scope: Scope, record: TransactionRecord, change: SkillChange, notes: list[str]
) -> SkillChange:
    """Finish the change of one skill; returns it with the actual digests before and after."""
    target_path, old_path = scope.target(change.id), record.old(scope, change.id)
    if change.after:
        staged_path = scope.part(change.staged)
        return _finish_replacement(
            change,
            target_path=target_path,
            staged_path=staged_path,
            old_path=old_path,
            notes=notes,
        )
    return _finish_removal(change, target_path, old_path, notes)


def _finish_removal(
    change: SkillChange, target_path: str, old_path: str, notes: list[str]
) -> SkillChange:
    """Move a removed skill into the history.

    Digests of the target, and what is at the old path -> what is done:

        none, any        nothing: it was moved before the crash
        any, present     nothing: the target came after the move
        before, none     the target is moved
        other, none      the target is moved, with a note that it was edited
    """
    target_digest = digest_at(target_path)
    if not target_digest:
        return change._replace(before=digest_at(old_path))
    if os.path.lexists(old_path):
        notes.append(_untouched_note(change.id))
        return change._replace(before=digest_at(old_path))
    os.rename(target_path, old_path)
    if target_digest != change.before:
        notes.append(edited_note(change.id, old_path))
    return change._replace(before=target_digest)


def _finish_replacement(
    change: SkillChange,
    *,
    target_path: str,
    staged_path: str,
    old_path: str,
    notes: list[str],
) -> SkillChange:
    """Move the new version of a skill into place, and the old one into the history.

    Digests of the target and of the staged folder -> what is done:

        after, none      nothing: the change was finished before the crash
        after, other     the old version, which is staged, moves into the history
        none, after      the new version moves into place
        before, after    they are swapped, and the old version moves into the history
        other, after     the same, with a note that the target was edited
        else             the target is left, with a note; what is staged moves into the history
    """
    target_digest = digest_at(target_path)
    staged_digest = digest_at(staged_path)
    replaced_digest = ""
    if target_digest != change.after and staged_digest == change.after:
        if target_digest and target_digest != change.before:
            notes.append(edited_note(change.id, old_path))
        swap_in(staged_path, target_path, old_path)
        replaced_digest = target_digest
        target_digest = change.after
        staged_digest = digest_at(staged_path)
    if staged_digest and staged_digest != change.after:
        os.rename(staged_path, _unused_path(old_path))
    if target_digest != change.after:
        notes.append(_untouched_note(change.id))
    return change._replace(before=replaced_digest or digest_at(old_path), after=target_digest)


def _untouched_note(name: str) -> str:
    return say("`{name}` was changed meanwhile and was left as it is", name=name)


def swap_in(staged_path: str, target_path: str, old_path: str) -> None:
    """Move a staged folder into place; the replaced one is in one of the other two afterwards."""
    if not os.path.lexists(target_path):
        os.rename(staged_path, target_path)
    elif not exchange(staged_path, target_path):
        # Without an atomic exchange the skill is missing for a moment, but never incomplete.
        os.rename(target_path, _unused_path(old_path))
        os.rename(staged_path, target_path)


def _roll_lockfile_forward(
    scope: Scope, record: TransactionRecord, failed_ids: set[str], notes: list[str]
) -> None:
    """Apply the lockfile entries of a record, except those of failed skills."""
    try:
        lock = read_lock(scope.lock)
        new_entries = record.rows("after")
    except LockBroken as exc:
        if isinstance(exc.__cause__, OSError):
            raise exc.__cause__ from exc
        notes.append(_untouched_note(os.path.basename(scope.lock)))
        return
    finished_ids = [skill_id for skill_id in record.locked if skill_id not in failed_ids]
    new_lock = apply_entries(lock, finished_ids, new_entries)
    if new_lock != lock:
        write_lockfile(scope, new_lock)


def _unused_path(path: str) -> str:
    """Return a path, with a number if there is something at it."""
    candidate, count = path, 1
    while os.path.lexists(candidate):
        count += 1
        candidate = f"{path}~{count}"
    return candidate


def _remove_leftovers(scope: Scope, repairs: list[str]) -> None:
    has_leftovers = remove_stale_stages(scope)
    for name in os.listdir(scope.part("trash")):
        has_leftovers = True
        remove_tree(scope.part("trash", name))
    for name in os.listdir(scope.work):
        if _is_temporary(scope, name):
            has_leftovers = True
            os.unlink(scope.part(name))
    for number in list_numbers(scope):
        entry = scope.part("history", str(number))
        if not os.path.lexists(os.path.join(entry, journal.ENTRY_FILE)):
            # Prepared and never used. `rmdir` fails when there is anything in it.
            with suppress(OSError):
                os.rmdir(os.path.join(entry, "old"))
                os.rmdir(entry)
    if has_leftovers and not repairs:
        note = say("What an interrupted command had left behind was removed; nothing was lost")
        repairs.append(note)
