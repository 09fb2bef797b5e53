"""How much of the past is kept, and what can be undone?

The history is a list of transactions that only grows at its end: undoing is a transaction too.
Playing it from the start gives two piles: what can be undone, and what can be done again.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_odd, read_plain
from satchel.store import journal
from satchel.store.journal import ENTRY
from satchel.store.stage import remove_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.library.lockfile import Lock
    from satchel.store.journal import Record
    from satchel.store.scope import Scope

KEPT = 20
"""How many changes can be undone."""
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_MANY = 10**8
_BASE = re.compile(r"[0-9a-f]{64}\.zip")


class Piles(NamedTuple):
    """What can be undone and done again, by number; the next one last."""

    done: list[int]
    undone: list[int]


def numbers(scope: Scope) -> list[int]:
    """The numbers that are taken, in order."""
    try:
        names = os.listdir(scope.part("history"))
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))


def next_number(scope: Scope) -> int:
    """A number that is not taken, after all those that we gave.

    A stranger may have put an entry there with the highest number that there is.
    """
    taken = set(numbers(scope))
    number = max((one for one in taken if one < _MANY), default=0) + 1
    while number in taken:
        number += 1
    return number


class Past(NamedTuple):
    """What the history holds."""

    records: list[Record]
    """In order."""
    damaged: list[int]
    """Numbers of entries that say nothing any more."""
    foreign: list[int]
    """Numbers of entries that were not written here: another user's, or a stranger's."""


def read_past(scope: Scope) -> Past:
    """Every transaction that is kept.

    Raises:
        OSError: one cannot be read. That must not look as if it had never been.
    """
    past = Past([], [], [])
    for number in numbers(scope):
        path = scope.part("history", str(number), ENTRY)
        if not journal.is_plain(scope, path):
            past.damaged.append(number)
            continue
        try:
            record = journal.read(path, scope)
        except journal.Foreign:
            past.foreign.append(number)
            continue
        except ValueError:
            past.damaged.append(number)
            continue
        if record is None:
            continue
        if record.number == number:
            past.records.append(record)
        else:
            past.damaged.append(number)
    return past


def play(past: Sequence[Record]) -> Piles:
    """What can be undone and done again after all this."""
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
    return Piles(done, undone)


def prune(scope: Scope, lock: Lock) -> None:
    """Let go of what is too old to be undone, and of bases that nothing refers to.

    Called when a change is complete and acknowledged in the history. An entry is renamed away
    before it is deleted, so that a crash never leaves half of one.
    """
    taken = numbers(scope)
    if len(taken) > KEPT:
        past = read_past(scope).records
        piles = play(past)
        keep = {*taken[-KEPT:], *piles.done[-KEPT:], *piles.undone[-KEPT:]}
        # A damaged one is kept: somebody may still want to look at it.
        for record in past:
            if record.number not in keep:
                _discard(scope, scope.part("history", str(record.number)))
    _prune_bases(scope, lock)


def _prune_bases(scope: Scope, lock: Lock) -> None:
    wanted = {digest for entry in lock.values() for digest in (entry.tree, entry.upstream)}
    candidates = [
        name
        for name in os.listdir(scope.part("base"))
        if _BASE.fullmatch(name) and f"sha256:{name.removesuffix('.zip')}" not in wanted
    ]
    if not candidates:
        return
    texts: list[bytes] = []
    for number in numbers(scope):
        path = scope.part("history", str(number), ENTRY)
        try:
            texts.append(read_plain(path, journal.MAX_FILE))
        except FileNotFoundError:
            continue
        except OSError as exc:
            if not is_odd(exc):
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
