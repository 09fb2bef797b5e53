"""Retention of the undo history: deletes old entries and unused base archives."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from satchel._fs import is_wrong_kind, read_plain
from satchel.store.staging import remove_tree

if TYPE_CHECKING:
    from satchel.library.lockfile import Lock
    from satchel.store.workdir import Scope
from satchel.store.journal import ENTRY_FILE, MAX_RECORD_BYTES, numbers, read_history, replay

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
