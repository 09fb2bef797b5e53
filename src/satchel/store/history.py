"""The history on disk: numbered entries, what can be undone and redone, and retention.

The history only grows at its end: an undo is a transaction too. Replaying it from the start gives
two stacks, one for undo and one for redo.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_wrong_kind, read_plain
from satchel.store.journal import (
    ENTRY_FILE,
    MAX_RECORD_BYTES,
    ForeignRecord,
    is_free_of_links,
    read_record,
)
from satchel.store.staging import remove_tree
from satchel.store.workdir import find_owned_paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.library.lockfile import Lock
    from satchel.store.journal import TransactionRecord
    from satchel.store.workdir import Scope


_ENTRY_NAME = re.compile(r"[1-9][0-9]{0,8}")
_MAX_OWN_NUMBER = 10**8
MAX_UNDO_COUNT = 20
_BASE_ARCHIVE = re.compile(r"[0-9a-f]{64}\.zip")


class UndoState(NamedTuple):
    """Numbers of the transactions that can be undone and redone; the next one last."""

    done: list[int]
    undone: list[int]


def list_numbers(scope: Scope) -> list[int]:
    """Return the numbers of all history folders, in order."""
    try:
        names = os.listdir(scope.part("history"))
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if _ENTRY_NAME.fullmatch(name))


def next_number(scope: Scope) -> int:
    """A free number above all that Satchel assigned.

    Numbers from `_MAX_OWN_NUMBER` up do not count: a folder that came with a project may have one.
    """
    used_numbers = set(list_numbers(scope))
    number = max((number for number in used_numbers if number < _MAX_OWN_NUMBER), default=0) + 1
    while number in used_numbers:
        number += 1
    return number


class HistoryState(NamedTuple):
    """The content of the history."""

    records: list[TransactionRecord]
    """In order."""
    damaged: list[int]
    """Numbers of entries that cannot be parsed."""
    foreign: list[int]
    """Numbers of entries that are not signed with this user's key."""


def read_history(scope: Scope) -> HistoryState:
    """Read all transactions of the history.

    Raises:
        OSError: one cannot be read.
    """
    state, signing_paths = HistoryState([], [], []), find_owned_paths(scope)
    for number in list_numbers(scope):
        path = scope.part("history", str(number), ENTRY_FILE)
        has_no_links = is_free_of_links(scope, path)
        try:
            record = read_record(path, scope, signing_paths) if has_no_links else None
        except ForeignRecord:
            state.foreign.append(number)
        except ValueError:
            state.damaged.append(number)
        else:
            if record is not None and record.number == number:
                state.records.append(record)
            elif record is not None or not has_no_links:
                state.damaged.append(number)
    return state


def replay(records: Sequence[TransactionRecord]) -> UndoState:
    """Return what can be undone and redone after these transactions."""
    undoable: list[int] = []
    redoable: list[int] = []
    for record in records:
        if record.kind == "undo":
            undoable = [earlier for earlier in undoable if earlier != record.of]
            redoable.append(record.number)
        elif record.kind == "redo":
            redoable = [earlier for earlier in redoable if earlier != record.of]
            undoable.append(record.number)
        else:
            undoable.append(record.number)
            redoable.clear()
    return UndoState(undoable, redoable)


def prune(scope: Scope, lock: Lock) -> None:
    """Delete history entries beyond `MAX_UNDO_COUNT`, and base archives without a reference.

    Called after the transaction is archived. An entry is renamed before it is deleted, so that a
    crash never leaves a partial one. Damaged entries stay, for inspection.
    """
    entry_numbers = list_numbers(scope)
    if len(entry_numbers) > MAX_UNDO_COUNT:
        records = read_history(scope).records
        state = replay(records)
        newest = slice(-MAX_UNDO_COUNT, None)
        retained = {*entry_numbers[newest], *state.done[newest], *state.undone[newest]}
        for record in records:
            if record.number not in retained:
                _delete_entry(scope, scope.part("history", str(record.number)))
    _prune_bases(scope, lock)


def _prune_bases(scope: Scope, lock: Lock) -> None:
    locked_digests = {digest for entry in lock.values() for digest in (entry.tree, entry.upstream)}
    candidates = [
        name
        for name in os.listdir(scope.part("base"))
        if _BASE_ARCHIVE.fullmatch(name)
        and f"sha256:{name.removesuffix('.zip')}" not in locked_digests
    ]
    if not candidates:
        return
    record_contents = list(_read_record_contents(scope))
    for name in candidates:
        digest = os.fsencode(name.removesuffix(".zip"))
        if not any(digest in content for content in record_contents):
            path = scope.part("base", name)
            if os.path.islink(path) or not os.path.isdir(path):
                os.unlink(path)


def _read_record_contents(scope: Scope) -> Iterator[bytes]:
    """The content of all records of the history that can be read."""
    for number in list_numbers(scope):
        path = scope.part("history", str(number), ENTRY_FILE)
        try:
            yield read_plain(path, MAX_RECORD_BYTES)
        except FileNotFoundError:
            continue
        except OSError as exc:
            if not is_wrong_kind(exc):
                raise


def _delete_entry(scope: Scope, path: str) -> None:
    trash_path = scope.part("trash", f"{os.path.basename(path)}-{os.urandom(6).hex()}")
    os.rename(path, trash_path)
    remove_tree(trash_path)
