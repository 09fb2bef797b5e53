"""Crash recovery: finishes the change of a journal, and removes what an interrupted command left.

Without a journal the old state is valid, and staging folders of dead processes are deleted.
Recovery compares digests at every step, so that an interrupted recovery can be repeated. Content
that other programs put there is never deleted: it moves into the history. A journal that was not
written here is set aside.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from satchel._fs import exchange, locked, make_folders, sync_folder, write_atomic
from satchel.errors import LockBroken, Refused
from satchel.i18n import join_names, say
from satchel.library.lockfile import read_lock, render_lock
from satchel.store import journal
from satchel.store.disk_errors import disk_errors_as_refusal, path_of_error, reason_of
from satchel.store.history import numbers
from satchel.store.journal import JOURNAL_FILE
from satchel.store.staging import remove_stale_stages, remove_tree
from satchel.store.trees import digest_at
from satchel.store.workdir import LOCK_TIMEOUT_S, is_moved, is_ours, prepare_scope

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from satchel.library.lockfile import Lock
    from satchel.store.journal import SkillChange, TransactionRecord
    from satchel.store.workdir import Scope


_TEMPORARY = re.compile(r"\.(?:journal\.json|entry\.new|satchel\.lock)\.[0-9]+\.[0-9a-f]{8}")
"""Unfinished files (`write_atomic`) that are written under the lock."""


def recover(scope: Scope) -> list[str]:
    """Finish or remove what an interrupted command left; returns what was done, for the user.

    Cheap when there is nothing.

    A work folder of another owner is left alone.

    Raises:
        AccessDenied: a link in the scope leads elsewhere.
        Refused: the disk reports an error, or another process holds the lock for too long.
    """
    with disk_errors_as_refusal(scope.work):
        if not is_moved(scope) and not (_has_leftovers(scope) and is_ours(scope)):
            return []
    with locked_scope(scope) as adopted:
        return [*adopted, *recover_locked(scope)]


@contextmanager
def locked_scope(scope: Scope, *, timeout: float = LOCK_TIMEOUT_S) -> Generator[list[str]]:
    """Hold the write lock of a scope; yields what was adopted, for the user."""
    with disk_errors_as_refusal(scope.part("lock")):
        adopted = prepare_scope(scope)
        held = locked(scope.part("lock"), timeout=timeout, private=False)
        held.__enter__()
    try:
        yield [adopted] if adopted else []
    finally:
        with suppress(OSError):  # the operating system releases it in any case
            held.__exit__(None, None, None)


def _has_leftovers(scope: Scope) -> bool:
    try:
        names = os.listdir(scope.work)
        return JOURNAL_FILE in names or any(_is_temporary(scope, name) for name in names) or any(
            os.listdir(scope.part(part)) for part in ("stage", "trash")
        )  # fmt: skip
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _is_temporary(scope: Scope, name: str) -> bool:
    return bool(_TEMPORARY.fullmatch(name)) and os.path.isfile(scope.part(name))


def recover_locked(scope: Scope) -> list[str]:
    """`recover` for a caller that holds the lock."""
    repairs: list[str] = []
    try:
        record = _read_or_set_aside(scope, repairs)
        if record is not None:
            repairs.append(_finish(scope, record))
        _remove_leftovers(scope, repairs)
    except OSError as exc:
        raise Refused(
            say("An interrupted change cannot be finished: `{path}`: {reason}",
                path=path_of_error(exc, scope.work), reason=reason_of(exc)),
            say("Try again"),
        ) from exc  # fmt: skip
    return repairs


def _read_or_set_aside(scope: Scope, repairs: list[str]) -> TransactionRecord | None:
    """Read the journal; one that cannot be used is renamed and reported."""
    path = scope.part(JOURNAL_FILE)
    try:
        return journal.read_journal(scope)
    except ValueError as exc:
        aside = _free_path(scope.part("journal-damaged.json"))
        os.rename(path, aside)
        sync_folder(scope.work)
        text = say(
            "The journal of an interrupted change cannot be used ({reason}); it was set aside as "
            "`{path}`; run `satchel verify` to see what it left",
            reason=exc,
            path=aside,
        )
        repairs.append(text)
        return None


def _finish(scope: Scope, record: TransactionRecord) -> str:
    """Roll a journal forward, from any state that a crash can leave."""
    make_folders(scope.folder)
    make_folders(os.path.join(record.entry(scope), "old"))
    notes: list[str] = []
    actual = tuple(_finish_change(scope, record, change, notes) for change in record.changes)
    sync_places(scope, record)
    pairs = zip(record.changes, actual, strict=True)
    failed = {wanted.id for wanted, now in pairs if wanted.after != now.after}
    if not record.changes or len(failed) < len(record.changes):
        _finish_lockfile(scope, record, failed, notes)
    if actual != record.changes:
        # The history records the actual content, for `undo`.
        record = record._replace(changes=tuple(_as_archived(c) for c in actual))
        write_atomic(scope.part("entry.new"), journal.render_record(record, scope))
        archive_journal(scope, record, "entry.new")
        os.unlink(scope.part(JOURNAL_FILE))
        sync_folder(scope.work)
    else:
        archive_journal(scope, record)
    names = join_names(f"`{name}`" for name in record.ids[:5]) + (
        " …" if len(record.ids) > 5 else ""
    )
    if failed and len(failed) == len(record.changes):
        text = say("The {op} of {names} was interrupted; the old state holds",
                   op=record.op, names=names)  # fmt: skip
    else:
        text = say("The {op} of {names} was interrupted; it was finished",
                   op=record.op, names=names)  # fmt: skip
    return "; ".join([text, *notes])


def _as_archived(change: SkillChange) -> SkillChange:
    return change if change.after else change._replace(staged="")


def _finish_change(
    scope: Scope, record: TransactionRecord, change: SkillChange, notes: list[str]
) -> SkillChange:
    """Finish the change of one skill; returns it with the actual digests before and after."""
    target, old = scope.target(change.id), record.old(scope, change.id)
    now = digest_at(target)
    if not change.after:
        if not now:
            return change._replace(before=digest_at(old))
        if os.path.lexists(old):
            notes.append(_left_note(change.id))
            return change._replace(before=digest_at(old))
        os.rename(target, old)
        if now != change.before:
            notes.append(edited_note(change.id, old))
        return change._replace(before=now)
    staged = scope.part(change.staged)
    waiting = digest_at(staged)
    before = ""
    if now != change.after and waiting == change.after:
        if now and now != change.before:
            notes.append(edited_note(change.id, old))
        swap_in(staged, target, old)
        before, now, waiting = now, change.after, digest_at(staged)
    if waiting and waiting != change.after:
        os.rename(staged, _free_path(old))
    if now != change.after:
        notes.append(_left_note(change.id))
    return change._replace(before=before or digest_at(old), after=now)


def edited_note(name: str, old: str) -> str:
    """The note about edits of a skill that a change moves into the history."""
    return say(
        "`{name}` was edited meanwhile; your edits are kept in `{path}`", name=name, path=old
    )


def _left_note(name: str) -> str:
    return say("`{name}` was changed meanwhile and was left as it is", name=name)


def swap_in(staged: str, target: str, old: str) -> None:
    """Move a staged folder into place; the replaced one is at `staged` or `old` afterwards."""
    if not os.path.lexists(target):
        os.rename(staged, target)
    elif not exchange(staged, target):
        # Without an atomic exchange the skill is missing for a moment, but never incomplete.
        os.rename(target, _free_path(old))
        os.rename(staged, target)


def sync_places(scope: Scope, record: TransactionRecord) -> None:
    """Sync the folders in which a record renames."""
    entry = record.entry(scope)
    folders = {scope.folder, os.path.join(entry, "old"), entry, scope.part("history")}
    folders |= {os.path.dirname(scope.part(c.staged)) for c in record.changes if c.staged}
    for folder in sorted(folders):
        if os.path.isdir(folder):
            sync_folder(folder)


def archive_journal(scope: Scope, record: TransactionRecord, name: str = JOURNAL_FILE) -> None:
    """Rename the journal into the history, which ends and records the transaction in one step."""
    os.rename(scope.part(name), os.path.join(record.entry(scope), journal.ENTRY_FILE))
    sync_folder(record.entry(scope))
    sync_folder(scope.work)


def write_lockfile(scope: Scope, lock: Lock) -> None:
    """Replace the lockfile; its temporary file is in the work folder."""
    write_atomic(scope.lock, render_lock(lock), through=scope.work)


def _finish_lockfile(
    scope: Scope, record: TransactionRecord, failed: set[str], notes: list[str]
) -> None:
    """Apply the lockfile entries of a record, except those of failed skills."""
    try:
        lock = read_lock(scope.lock)
        after = record.rows("after")
    except LockBroken as exc:
        if isinstance(exc.__cause__, OSError):
            raise exc.__cause__ from exc
        notes.append(_left_note(os.path.basename(scope.lock)))
        return
    changed = apply_rows(lock, (name for name in record.locked if name not in failed), after)
    if changed != lock:
        write_lockfile(scope, changed)


def apply_rows(lock: Lock, ids: Iterable[str], rows: Lock) -> Lock:
    """A lock with the entries `ids` taken from `rows`; those missing there are removed."""
    changed = dict(lock)
    for name in ids:
        if name in rows:
            changed[name] = rows[name]
        else:
            changed.pop(name, None)
    return changed


def _free_path(path: str) -> str:
    found, count = path, 1
    while os.path.lexists(found):
        count += 1
        found = f"{path}~{count}"
    return found


def _remove_leftovers(scope: Scope, repairs: list[str]) -> None:
    found = remove_stale_stages(scope)
    for name in os.listdir(scope.part("trash")):
        found = True
        remove_tree(scope.part("trash", name))
    for name in os.listdir(scope.work):
        if _is_temporary(scope, name):
            found = True
            os.unlink(scope.part(name))
    for number in numbers(scope):
        entry = scope.part("history", str(number))
        if not os.path.lexists(os.path.join(entry, journal.ENTRY_FILE)):
            # Prepared and never used. `rmdir` fails when there is anything in it.
            with suppress(OSError):
                os.rmdir(os.path.join(entry, "old"))
                os.rmdir(entry)
    if found and not repairs:
        text = say("What an interrupted command had left behind was removed; nothing was lost")
        repairs.append(text)
