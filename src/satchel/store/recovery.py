"""What does the next command do after a crash?

A journal on the disk means that the change was decided: it is finished. Without one the old state
holds, and what was staged by dead processes is removed. Every step looks at what is there, by
digest, so a recovery that is itself interrupted is simply done again. Nothing that somebody else
put there is ever deleted: it goes into the history, and that is said. A journal that was not
written here is none: it is set aside.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import exchange, locked, make_folders, sync_folder, write_atomic
from satchel._language import listed, say
from satchel.errors import LockBroken, Refused
from satchel.library.lockfile import read_lock, render_lock
from satchel.store import journal
from satchel.store.area import is_ours, prepare_scope
from satchel.store.journal import NAME, standing
from satchel.store.keeping import numbers
from satchel.store.scope import TIMEOUT
from satchel.store.stage import remove_tree, sweep
from satchel.store.trouble import hint, named, reason, unchanged

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from satchel.library.lockfile import Lock
    from satchel.store.journal import Change, Record
    from satchel.store.scope import Scope

_TEMPORARY = re.compile(r"\.(?:journal\.json|entry\.new|satchel\.lock)\.[0-9]+\.[0-9a-f]{8}")
"""Unfinished files (`write_atomic`) of whoever holds the lock."""
_EARLY = re.compile(r"\.(?:owner|\.gitignore)\.[0-9]+\.[0-9a-f]{8}")
"""The same of whoever makes the work area, without a lock: somebody may be at it this moment."""
_EARLY_SECONDS = 600


class Repair(NamedTuple):
    """Something that an interrupted command had left behind."""

    op: str
    """Which command it was; empty when nobody knows."""
    ids: tuple[str, ...]
    text: str
    """What was done about it, for people."""


def recover(scope: Scope, *, timeout: float = TIMEOUT) -> list[Repair]:
    """Finish or clear away what an interrupted command left; cheap when there is nothing.

    A work area of another owner is left alone.

    Raises:
        AccessDenied: something in the scope leads elsewhere.
        Refused: the disk says no, or another process is at work for too long.
    """
    with unchanged(scope.work):
        if not _left(scope) or not is_ours(scope):
            return []
    with writing(scope, timeout=timeout) as said:
        return [*(Repair("", (), text) for text in said), *recover_held(scope)]


@contextmanager
def writing(scope: Scope, *, timeout: float = TIMEOUT) -> Generator[list[str]]:
    """Be the only writer of a scope; gives what there is to say about its work area."""
    with unchanged(scope.part("lock")):
        said = prepare_scope(scope)
        held = locked(scope.part("lock"), timeout=timeout, private=False)
        held.__enter__()
    try:
        yield said
    finally:
        with suppress(OSError):  # the system lets go of it in any case
            held.__exit__(None, None, None)


def _left(scope: Scope) -> bool:
    """Whether there is anything to look at: a journal, a stage, a temporary file."""
    try:
        names = os.listdir(scope.work)
        return NAME in names or any(_is_temporary(scope, name) for name in names) or any(
            os.listdir(scope.part(part)) for part in ("stage", "trash")
        )  # fmt: skip
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _is_temporary(scope: Scope, name: str) -> bool:
    """Whether something in the work area is a file of ours that was never finished."""
    early = bool(_EARLY.fullmatch(name))
    if not early and not _TEMPORARY.fullmatch(name):
        return False
    import time

    try:
        info = os.lstat(scope.part(name))
    except FileNotFoundError:
        return False
    old = time.time() - info.st_mtime > _EARLY_SECONDS
    return stat.S_ISREG(info.st_mode) and (old or not early)


def recover_held(scope: Scope) -> list[Repair]:
    """The same while `writing`."""
    repairs: list[Repair] = []
    try:
        record = _journal(scope, repairs)
        if record is not None:
            repairs.append(_finish(scope, record))
        _clear(scope, repairs)
    except OSError as exc:
        raise Refused(
            say("An interrupted change cannot be finished: `{path}`: {reason}",
                path=named(exc, scope.work), reason=reason(exc)),
            hint(exc),
        ) from exc  # fmt: skip
    return repairs


def _journal(scope: Scope, repairs: list[Repair]) -> Record | None:
    """The journal; a damaged one is set aside, because nobody knows what it wanted."""
    path = scope.part(NAME)
    try:
        return journal.read_journal(scope)
    except ValueError as exc:
        aside = _free(scope.part("journal-damaged.json"))
        os.rename(path, aside)
        sync_folder(scope.work)
        text = say(
            "The journal of an interrupted change cannot be used ({reason}); it was set aside as "
            "`{path}`; run `satchel verify` to see what it left",
            reason=exc,
            path=aside,
        )
        repairs.append(Repair("", (), text))
        return None


def _finish(scope: Scope, record: Record) -> Repair:
    """Roll a journal forward, from whatever state it was left in."""
    make_folders(scope.folder)
    make_folders(os.path.join(record.entry(scope), "old"))
    notes: list[str] = []
    actual = tuple(_settle(scope, record, change, notes) for change in record.changes)
    sync_places(scope, record)
    pairs = zip(record.changes, actual, strict=True)
    failed = {wanted.id for wanted, now in pairs if wanted.after != now.after}
    if not record.changes or len(failed) < len(record.changes):
        _relock(scope, record, failed, notes)
    if actual != record.changes:
        # Recorded as it is now, so that `undo` knows the truth; `after` decided and is kept above.
        record = record._replace(changes=tuple(_kept(c) for c in actual))
        write_atomic(scope.part("entry.new"), journal.render(record, scope))
        archive(scope, record, "entry.new")
        os.unlink(scope.part(NAME))
        sync_folder(scope.work)
    else:
        archive(scope, record)
    names = listed(f"`{name}`" for name in record.ids[:5]) + (" …" if len(record.ids) > 5 else "")
    if failed and len(failed) == len(record.changes):
        text = say("The {op} of {names} was interrupted; the old state holds",
                   op=record.op, names=names)  # fmt: skip
    else:
        text = say("The {op} of {names} was interrupted; it was finished",
                   op=record.op, names=names)  # fmt: skip
    return Repair(record.op, record.ids, "; ".join([text, *notes]))


def _kept(change: Change) -> Change:
    """A change as the history keeps it: what was staged is in its place now."""
    return change if change.after else change._replace(staged="")


def _settle(scope: Scope, record: Record, change: Change, notes: list[str]) -> Change:
    """Bring one skill to its end; returns what was there and what is there now."""
    target, old = scope.target(change.id), record.old(scope, change.id)
    now = standing(target)
    if not change.after:
        if not now:
            return change._replace(before=standing(old))
        if os.path.lexists(old):
            notes.append(say("`{name}` is there again and was left as it is", name=change.id))
            return change._replace(before=standing(old))
        os.rename(target, old)
        if now != change.before:
            notes.append(_moved(change.id, old))
        return change._replace(before=now)
    staged = scope.part(change.staged)
    waiting = standing(staged)
    before = ""
    if now != change.after and waiting == change.after:
        if now and now != change.before:
            notes.append(_moved(change.id, old))
        place(staged, target, old)
        before, now, waiting = now, change.after, standing(staged)
    if waiting and waiting != change.after:
        os.rename(staged, _free(old))
    if now != change.after:
        notes.append(say("`{name}` was changed meanwhile and was left as it is", name=change.id))
    return change._replace(before=before or standing(old), after=now)


def _moved(name: str, old: str) -> str:
    return say("`{name}` had been edited meanwhile: that is kept in `{path}`", name=name, path=old)


def place(staged: str, target: str, old: str) -> None:
    """Put a staged folder in its place; what was there is at `staged` or `old` afterwards."""
    if not os.path.lexists(target):
        os.rename(staged, target)
    elif not exchange(staged, target):
        # Two steps where the system has no exchange: for a moment there is no skill, but never
        # half of one.
        os.rename(target, _free(old))
        os.rename(staged, target)


def sync_places(scope: Scope, record: Record) -> None:
    """Wait until the renames of a record are on the disk."""
    entry = record.entry(scope)
    folders = {scope.folder, os.path.join(entry, "old"), entry, scope.part("history")}
    folders |= {os.path.dirname(scope.part(c.staged)) for c in record.changes if c.staged}
    for folder in sorted(folders):
        if os.path.isdir(folder):
            sync_folder(folder)


def archive(scope: Scope, record: Record, name: str = NAME) -> None:
    """Rename the journal into the history: the transaction is over and recorded in one step."""
    os.rename(scope.part(name), os.path.join(record.entry(scope), journal.ENTRY))
    sync_folder(record.entry(scope))
    sync_folder(scope.work)


def write_lock(scope: Scope, lock: Lock) -> None:
    """Replace the lockfile. An unfinished one stands in the work area, out of the user's sight."""
    write_atomic(scope.lock, render_lock(lock), through=scope.work)


def _relock(scope: Scope, record: Record, failed: set[str], notes: list[str]) -> None:
    """Bring the lockfile to what the record says, for every skill that got there."""
    try:
        lock = read_lock(scope.lock)
        after = record.rows("after")
    except LockBroken as exc:
        if isinstance(exc.__cause__, OSError):
            raise exc.__cause__ from exc
        notes.append(say("the lockfile is damaged and was left as it is"))
        return
    changed = apply_rows(lock, (name for name in record.locked if name not in failed), after)
    if changed != lock:
        write_lock(scope, changed)


def apply_rows(lock: Lock, ids: Iterable[str], rows: Lock) -> Lock:
    """A lock in which some entries are as in `rows`; those that `rows` lacks are gone."""
    changed = dict(lock)
    for name in ids:
        if name in rows:
            changed[name] = rows[name]
        else:
            changed.pop(name, None)
    return changed


def _free(path: str) -> str:
    """A path that nothing is at yet."""
    found, count = path, 1
    while os.path.lexists(found):
        count += 1
        found = f"{path}~{count}"
    return found


def _clear(scope: Scope, repairs: list[Repair]) -> None:
    """Remove what nobody will ask for again."""
    found = sweep(scope)
    for name in os.listdir(scope.part("trash")):
        found = True
        remove_tree(scope.part("trash", name))
    for name in os.listdir(scope.work):
        if _is_temporary(scope, name):
            found = True
            os.unlink(scope.part(name))
    for number in numbers(scope):
        entry = scope.part("history", str(number))
        if not os.path.lexists(os.path.join(entry, journal.ENTRY)):
            # Made ready and never used. Anything in it keeps it.
            with suppress(OSError):
                os.rmdir(os.path.join(entry, "old"))
                os.rmdir(entry)
    if found and not repairs:
        text = say("What an interrupted command had left behind was removed; nothing was lost")
        repairs.append(Repair("", (), text))
