"""The journal of a change that is under way, and the history of those that are done.

`journal.json` exists only while a transaction is carried out. It says everything that is needed to
finish the work: which folders take which places, and the lines of the lockfile before and after.
When the work is done the same file is renamed into the history, so that one step both ends the
transaction and records it. It carries a seal (`library/trust.py`): one that somebody else put there
is not believed.

The history only grows at its end: undoing is a transaction too. Playing it from the start gives two
piles: what can be undone, and what can be done again.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from satchel._fs import is_odd, read_plain, write_atomic
from satchel._language import say
from satchel.errors import Refused, SatchelError
from satchel.library.trust import RECORD, SEAL, is_sealed, own_key, seal_of
from satchel.skill.tree import VERSION_CONTROL, FolderTree, seal
from satchel.store.scope import check_id
from satchel.store.stage import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.library.lockfile import Lock
    from satchel.store.scope import Scope

Kind = Literal["do", "undo", "redo"]

NAME = "journal.json"
ENTRY = "entry.json"
VERSION = 1
UNSEALED = "unsealed"
"""Stands for something that is there and has no digest: a file, or a folder of odd things."""
_STAGED = re.compile(r"(?:stage/[0-9a-f-]+/new|history/[0-9]+/old)/([^/]+)")
MAX_FILE = 64 << 20


class Foreign(ValueError):
    """A record that was not written here."""


class Change(NamedTuple):
    """What happens to one skill."""

    id: str
    staged: str
    """The folder that takes its place; empty when the skill goes."""
    before: str
    """What is there now: a tree's digest, or empty for nothing. See `standing`."""
    after: str
    """What will be there; empty when the skill goes."""


class Record(NamedTuple):
    """One transaction, under way or done."""

    number: int
    op: str
    """Which command."""
    summary: str
    time: str
    """When, as `2030-01-31T12:00:00Z`."""
    changes: tuple[Change, ...]
    """With `staged` relative to the work area."""
    locked: tuple[str, ...] = ()
    """Ids whose entries in the lockfile change."""
    lock_before: str = ""
    """The entries of the lockfile that change, as they were, written as a lockfile."""
    lock_after: str = ""
    """The same entries as they become."""
    kind: Kind = "do"
    of: int = 0
    """Which transaction is undone or done again."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Every skill that it touches, on disk or in the lockfile."""
        return tuple(sorted({change.id for change in self.changes}.union(self.locked)))

    def rows(self, side: Literal["before", "after"]) -> Lock:
        """The entries of the lockfile that change."""
        from satchel.library.lockfile import parse_lock

        text = self.lock_before if side == "before" else self.lock_after
        return parse_lock(text.encode(), NAME) if text else {}

    def entry(self, scope: Scope) -> str:
        """Its folder in the history."""
        return scope.part("history", str(self.number))

    def old(self, scope: Scope, skill_id: str) -> str:
        """Where a folder goes that was replaced or removed."""
        return scope.part("history", str(self.number), "old", skill_id)


def standing(path: str) -> str:
    """What is at a path: a digest, `link:…`, `UNSEALED`, or empty for nothing.

    Raises:
        OSError: the system does not say. That is never taken for an answer.
    """
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return "link:" + os.readlink(path)
        return seal(FolderTree(path)).digest if stat.S_ISDIR(mode) else UNSEALED
    except (FileNotFoundError, NotADirectoryError):
        # It is not there, or somebody is just changing it.
        return UNSEALED if os.path.lexists(path) else ""
    except SatchelError:
        return UNSEALED


def refuse_repository(path: str) -> None:
    """Refuse to change a skill's folder that holds a repository: no digest covers it.

    Raises:
        Refused: there is a `.git`, or another tool's folder of that kind, at any depth.
        OSError: the disk says no.
    """
    todo = [path] if os.path.isdir(path) and not os.path.islink(path) else []
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                if entry.name in VERSION_CONTROL:
                    raise Refused(
                        say("`{path}` is a repository within a skill, which Satchel does not move",
                            path=entry.path),
                        say("Change the skill with your own tools, or move the repository away"),
                    )  # fmt: skip
                todo.append(entry.path)


def render(record: Record, scope: Scope | None = None) -> bytes:
    """A record as a file, sealed for a scope that asks for it.

    Raises:
        OSError: the key cannot be read.
    """
    import json

    table: dict[str, Any] = {"version": VERSION, **record._asdict()}
    table["changes"] = [change._asdict() for change in record.changes]
    if scope is not None and scope.marks:
        table[SEAL] = seal_of(table, own_key(scope.marks)[0], scope.work, RECORD)
    # ASCII only: names that are not UTF-8 come back as they were.
    return (json.dumps(table, indent=1) + "\n").encode()


def parse(data: bytes, scope: Scope | None = None) -> Record:
    """A record from a file. It may have come with somebody's project, so nothing in it is believed.

    Raises:
        Foreign: it was not written here.
        ValueError: it is damaged, or names a path outside the work area.
        OSError: the key cannot be read.
    """
    import json

    try:
        table = cast("dict[str, Any]", json.loads(data))
        if (
            scope is not None
            and scope.marks
            and not is_sealed(table, scope.marks, scope.work, RECORD)
        ):
            raise Foreign(say("it was not written here"))
        if table["version"] != VERSION:
            raise ValueError(f"its version is {table['version']!r}")
        changes = tuple(
            Change(*(str(row[field]) for field in Change._fields)) for row in table["changes"]
        )
        record = Record(
            int(table["number"]),
            str(table["op"]),
            str(table["summary"]),
            str(table["time"]),
            changes,
            tuple(map(str, table["locked"])),
            str(table["lock_before"]),
            str(table["lock_after"]),
            table["kind"],
            int(table["of"]),
        )
        if record.kind not in ("do", "undo", "redo") or record.number < 1:
            raise ValueError("it has a kind or a number that does not exist")
        _check(record.changes)
    except (KeyError, TypeError, AttributeError, RecursionError, SatchelError) as exc:
        raise ValueError(str(exc) or type(exc).__name__) from exc
    return record


def _check(changes: Iterable[Change]) -> None:
    """Every path is where Satchel puts things, and each skill occurs once."""
    seen: set[str] = set()
    for change in changes:
        check_id(change.id)
        found = _STAGED.fullmatch(change.staged)
        if change.id in seen or bool(change.staged) != bool(change.after):
            raise ValueError(f"it says two things about `{change.id}`")
        if change.staged and (found is None or found.group(1) != change.id):
            raise ValueError(f"`{change.staged}` is no place for a staged skill")
        seen.add(change.id)


def relative(scope: Scope, changes: Iterable[Change]) -> list[Change]:
    """The changes with their staged folders relative to the work area.

    Raises:
        ValueError: one is somewhere else, or a skill is there twice.
    """
    moves: list[Change] = []
    for change in changes:
        staged = change.staged and os.path.relpath(change.staged, scope.work).replace(os.sep, "/")
        moves.append(change._replace(staged=staged))
    _check(moves)
    return moves


def is_plain(scope: Scope, path: str) -> bool:
    """Whether no folder between the work area and a path is a link to somewhere else."""
    while path != scope.work:
        path = os.path.dirname(path)
        if os.path.islink(path) or len(path) < len(scope.work):
            return False
    return True


def read(path: str, scope: Scope | None = None) -> Record | None:
    """A journal or an entry of the history; None when there is none.

    Raises:
        Foreign: it was not written here.
        ValueError: it is damaged, or no plain file.
        OSError: it cannot be read.
    """
    try:
        data = read_plain(path, MAX_FILE)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if is_odd(exc):
            raise ValueError(exc.strerror or str(exc)) from exc
        raise
    return parse(data, scope)


def read_journal(scope: Scope) -> Record | None:
    """The journal, when nothing in it leads elsewhere.

    Raises:
        ValueError: it is damaged, or something does, or it was not written here.
        OSError: it cannot be read.
    """
    record = read(scope.part(NAME), scope)
    if record is not None:
        places = [record.old(scope, "x"), *(scope.part(c.staged) for c in record.changes)]
        if not all(is_plain(scope, place) for place in places):
            raise ValueError("a folder in it is a link")
    return record


def write(scope: Scope, record: Record) -> None:
    """Put the journal on the disk: from here on the change will be made, whatever happens."""
    write_atomic(scope.part(NAME), render(record, scope))


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
        if not is_plain(scope, path):
            past.damaged.append(number)
            continue
        try:
            record = read(path, scope)
        except Foreign:
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
            texts.append(read_plain(path, MAX_FILE))
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
