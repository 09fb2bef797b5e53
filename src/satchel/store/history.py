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
from satchel.store.workdir import places_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.library.lockfile import Lock
    from satchel.store.journal import TransactionRecord
    from satchel.store.workdir import Scope


_NUMBER_NAME = re.compile(r"[1-9][0-9]{0,8}")
_MAX_OWN_NUMBER = 10**8


class UndoState(NamedTuple):
    """Numbers of the transactions that can be undone and redone; the next one last."""

    done: list[int]
    undone: list[int]


def numbers(scope: Scope) -> list[int]:
    """The numbers of all history folders, in order."""
    try:
        names = os.listdir(scope.part("history"))
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if _NUMBER_NAME.fullmatch(name))


def next_number(scope: Scope) -> int:
    """A free number above all that Satchel assigned.

    Numbers from `_MAX_OWN_NUMBER` up do not count: a folder that came with a project may have one.
    """
    taken = set(numbers(scope))
    number = max((one for one in taken if one < _MAX_OWN_NUMBER), default=0) + 1
    while number in taken:
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
    past, places = HistoryState([], [], []), places_of(scope)
    for number in numbers(scope):
        path = scope.part("history", str(number), ENTRY_FILE)
        plain = is_free_of_links(scope, path)
        try:
            record = read_record(path, scope, places) if plain else None
        except ForeignRecord:
            past.foreign.append(number)
        except ValueError:
            past.damaged.append(number)
        else:
            if record is not None and record.number == number:
                past.records.append(record)
            elif record is not None or not plain:
                past.damaged.append(number)
    return past


def replay(past: Sequence[TransactionRecord]) -> UndoState:
    """What can be undone and redone after these transactions."""
    done: list[int] = []
    undone: list[int] = []
    for record in past:
        if record.kind == "undo":
            done = [number for number in done if number != record.of]
            undone.append(record.number)
        elif record.kind == "redo":
            undone = [number for number in undone if number != record.of]
            done.append(record.number)
        else:
            done.append(record.number)
            undone.clear()
    return UndoState(done, undone)


MAX_UNDO_COUNT = 20


_BASE_NAME = re.compile(r"[0-9a-f]{64}\.zip")


def prune(scope: Scope, lock: Lock) -> None:
    """Delete history entries beyond `MAX_UNDO_COUNT`, and base archives without a reference.

    Called after the transaction is archived. An entry is renamed before it is deleted, so that a
    crash never leaves a partial one. Damaged entries stay, for inspection.
    """
    taken = numbers(scope)
    if len(taken) > MAX_UNDO_COUNT:
        past = read_history(scope).records
        state = replay(past)
        last = slice(-MAX_UNDO_COUNT, None)
        keep = {*taken[last], *state.done[last], *state.undone[last]}
        for record in past:
            if record.number not in keep:
                _discard(scope, scope.part("history", str(record.number)))
    _prune_bases(scope, lock)


def _prune_bases(scope: Scope, lock: Lock) -> None:
    wanted = {digest for entry in lock.values() for digest in (entry.tree, entry.upstream)}
    candidates = [
        name
        for name in os.listdir(scope.part("base"))
        if _BASE_NAME.fullmatch(name) and f"sha256:{name.removesuffix('.zip')}" not in wanted
    ]
    if not candidates:
        return
    texts: list[bytes] = []
    for number in numbers(scope):
        path = scope.part("history", str(number), ENTRY_FILE)
        try:
            texts.append(read_plain(path, MAX_RECORD_BYTES))
        except FileNotFoundError:
            continue
        except OSError as exc:
            if not is_wrong_kind(exc):
                raise
    for name in candidates:
        mark = os.fsencode(name.removesuffix(".zip"))
        if not any(mark in text for text in texts):
            path = scope.part("base", name)
            if os.path.islink(path) or not os.path.isdir(path):
                os.unlink(path)


def _discard(scope: Scope, path: str) -> None:
    away = scope.part("trash", f"{os.path.basename(path)}-{os.urandom(6).hex()}")
    os.rename(path, away)
    remove_tree(away)
