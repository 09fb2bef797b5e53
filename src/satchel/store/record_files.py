"""Writes what a transaction and its recovery share: the history entry and the lockfile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from satchel._fs import sync_folder, write_atomic
from satchel.i18n import say
from satchel.library.lockfile import render_lock
from satchel.store import journal
from satchel.store.journal import JOURNAL_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.library.lockfile import Lock
    from satchel.store.journal import TransactionRecord
    from satchel.store.workdir import Scope


def sync_folders(scope: Scope, record: TransactionRecord) -> None:
    """Sync the folders in which a record renames."""
    entry = record.entry(scope)
    folders = {scope.folder, os.path.join(entry, "old"), entry, scope.part("history")}
    folders |= {
        os.path.dirname(scope.part(change.staged)) for change in record.changes if change.staged
    }
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


def apply_entries(lock: Lock, ids: Iterable[str], entries: Lock) -> Lock:
    """Return a lock with `ids` taken from `entries`; those missing there are removed."""
    changed = dict(lock)
    for skill_id in ids:
        if skill_id in entries:
            changed[skill_id] = entries[skill_id]
        else:
            changed.pop(skill_id, None)
    return changed


def edited_note(skill_id: str, old_path: str) -> str:
    """The note about edits of a skill that a change moves into the history."""
    return say(
        "`{name}` was edited meanwhile; your edits are kept in `{path}`",
        name=skill_id,
        path=old_path,
    )
