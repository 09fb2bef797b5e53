"""A change happens completely or not at all, also across a crash.

    stage     the new skills are written beside their places and brought to the disk
    lock      from here on there is one writer; what a crash left is finished first
    compare   each place still holds what the plan saw, else `Conflict`
    journal   what will be done is on the disk: a crash from here on is finished, not undone
    rename    staged folder and place change places in one step; readers see old or new
    lockfile  replaced in one step
    history   what was replaced goes there, and with it the journal: the change is acknowledged

A crash leaves either the old state or a journal. An error is rolled back at once, and says so.

`recover` does what is left after a crash. A journal on the disk means that the change was decided:
it is finished. Without one the old state holds, and what dead processes staged is removed. Every
step looks at what is there, by digest, so an interrupted recovery is simply done again. What others
put there is never deleted: it goes into the history. A journal that was not written here is set
aside.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import exchange, locked, make_folders, sync_folder, sync_tree, write_atomic
from satchel._language import listed, say
from satchel.errors import InvalidInput, LockBroken, Refused
from satchel.library.lockfile import read_lock, render_lock
from satchel.store import journal
from satchel.store.journal import (
    ENTRY,
    NAME,
    Change,
    Record,
    next_number,
    numbers,
    prune,
    refuse_repository,
    relative,
    standing,
)
from satchel.store.scope import (
    TIMEOUT,
    check_id,
    hint,
    is_ours,
    meanwhile,
    named,
    prepare_scope,
    reason,
    refusal,
    unchanged,
)
from satchel.store.stage import Stage, remove_tree, stage, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from satchel.library.lockfile import Lock
    from satchel.store.journal import Kind
    from satchel.store.plan import Step
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
        _finish_lock(scope, record, failed, notes)
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


def _finish_lock(scope: Scope, record: Record, failed: set[str], notes: list[str]) -> None:
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


__all__ = ["Change", "Receipt", "Repair", "Stage", "commit", "present", "recover", "stage"]


class Receipt(NamedTuple):
    """A change that is complete and on the disk."""

    number: int
    """Its number in the history; 0 when there was nothing to do."""
    repaired: tuple[str, ...] = ()
    """What was finished or cleared away of an interrupted command before."""
    notes: tuple[str, ...] = ()
    """What else is worth saying."""
    trouble: tuple[str, ...] = ()
    """What of it could not be done or confirmed, and what to do; empty when everything was."""
    done: tuple[Step, ...] = ()
    left: tuple[Step, ...] = ()
    """Steps that the scan blocked and nobody accepted."""
    kept: tuple[Step, ...] = ()
    """Steps that were not wanted (`leave`): what is there stays as it is."""


class Draft(NamedTuple):
    """A change that is wanted."""

    op: str
    summary: str
    changes: Sequence[Change]
    """With `staged` relative to the work area."""
    relock: Callable[[Lock], Lock]
    bases: Mapping[str, str] = {}
    kind: Kind = "do"
    of: int = 0
    rebuild: bool = False
    """A damaged lockfile counts as empty."""


def present(scope: Scope, skill_id: str) -> str:
    """What is in a skill's place now, for `Change.before`; see `standing`.

    Raises:
        Refused: the disk does not say.
    """
    target = scope.target(check_id(skill_id))
    with unchanged(target):
        return standing(target)


def commit(
    scope: Scope,
    stage: Stage | None,
    changes: Sequence[Change],
    *,
    relock: Callable[[Lock], Lock],
    op: str,
    summary: str,
    bases: Mapping[str, str] | None = None,
    rebuild: bool = False,
) -> Receipt:
    """Carry out a change, completely or not at all.

    Args:
        scope: Where.
        stage: What holds the staged folders; None when nothing is staged.
        changes: What happens to which skill, each once.
        relock: Gives the next lock for the present one; called when nobody else writes.
        op: Which command this is.
        summary: One line for the history.
        bases: Digest in hexadecimal -> a staged file with the pristine content of a skill.
        rebuild: A damaged lockfile counts as empty; it is kept in the history.

    Raises:
        InvalidInput: a skill is there twice, or staged somewhere else.
        Conflict: a skill is not what `before` says any more.
        LockBroken: the lockfile is damaged.
        Refused: the disk says no. The message says whether the old state holds, which it does
            unless even putting it back failed.
    """
    bases = bases or {}
    try:
        moves = relative(scope, changes)
    except ValueError as exc:
        raise InvalidInput(say("The change cannot be made: {reason}", reason=exc)) from exc
    with unchanged(scope.root):
        if stage is not None and (any(change.staged for change in moves) or bases):
            sync_tree(stage.path)
            sync_folder(scope.part("stage"))
    draft = Draft(op, summary, moves, relock, bases, rebuild=rebuild)
    with writing(scope) as said:
        found = dict.fromkeys((*(stage.notes if stage is not None else ()), *said))
        repaired = [*(Repair("", (), text) for text in found), *recover_held(scope)]
        try:
            return carry_out(scope, draft, stage, repaired)
        except BaseException as exc:
            for repair in repaired:
                exc.add_note(repair.text)
            raise


def carry_out(
    scope: Scope, draft: Draft, stage: Stage | None = None, repaired: Sequence[Repair] = ()
) -> Receipt:
    """The part of `commit` that needs to be alone; call it while `writing`."""
    said = tuple(repair.text for repair in repaired)
    with unchanged(scope.root):
        for change in draft.changes:
            refuse_repository(scope.target(change.id))
            if standing(scope.target(change.id)) != change.before:
                raise meanwhile(change.id)
        broken = b""
        try:
            lock = read_lock(scope.lock)
        except LockBroken:
            if not draft.rebuild:
                raise
            with open(scope.lock, "rb") as stream:
                broken = stream.read()
            lock = {}
        after = draft.relock(dict(lock))
        record = _record(scope, draft, lock, after)
        if draft.kind == "do" and not (record.changes or record.locked or broken):
            return Receipt(0, said)
        make_folders(scope.folder)
        os.makedirs(os.path.join(record.entry(scope), "old"))
        if broken:
            write_atomic(os.path.join(record.entry(scope), "satchel.lock.damaged"), broken)
        _keep_bases(scope, draft.bases)
    trouble = _do(scope, record, stage, None if lock == after and not broken else after)
    notes: tuple[str, ...] = ()
    try:
        prune(scope, after)
    except OSError as exc:
        text = say("The change is complete, but the old history could not be cleared: `{path}`: "
                   "{reason}", path=named(exc, scope.work), reason=reason(exc))  # fmt: skip
        notes = (text,)
    return Receipt(record.number, said, notes, trouble)


def _record(scope: Scope, draft: Draft, lock: Lock, after: Lock) -> Record:
    import time

    ids = sorted(name for name in {*lock, *after} if lock.get(name) != after.get(name))
    before_rows = {name: lock[name] for name in ids if name in lock}
    after_rows = {name: after[name] for name in ids if name in after}
    return Record(
        next_number(scope),
        draft.op,
        draft.summary,
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        # What would be replaced by the same is left alone.
        tuple(change for change in draft.changes if change.before != change.after),
        tuple(ids),
        render_lock(before_rows).decode() if ids else "",
        render_lock(after_rows).decode() if ids else "",
        draft.kind,
        draft.of,
    )


def _keep_bases(scope: Scope, bases: Mapping[str, str]) -> None:
    """Put pristine copies where merges look for them. One too many does no harm."""
    for digest, path in bases.items():
        os.replace(path, scope.part("base", f"{digest}.zip"))
    if bases:
        sync_folder(scope.part("base"))


def _do(scope: Scope, record: Record, stage: Stage | None, lock: Lock | None) -> tuple[str, ...]:
    """From the journal to the history, or back; gives what the disk did not confirm of it."""
    done: list[Callable[[], object]] = []
    try:
        journal.write(scope, record)
        for change in record.changes:
            _put(scope, record, change, done)
        sync_places(scope, record)
        if lock is not None:
            _relock(scope, lock, done)
        os.rename(scope.part(NAME), os.path.join(record.entry(scope), ENTRY))
    except OSError as exc:
        _put_back(scope, record, stage, done, exc)
        raise refusal(exc, scope.root) from exc
    except BaseException:
        # Interrupted by the user, or out of memory: as after a crash, the next command goes on.
        if stage is not None:
            stage.leave()
        raise
    try:
        sync_folder(record.entry(scope))
        sync_folder(scope.work)
    except OSError as exc:
        return (
            say("The change was made, but the disk did not confirm it: `{path}`: {reason}",
                path=named(exc, scope.work), reason=reason(exc)),
            say("Run `satchel verify`, and look after the disk"),
        )  # fmt: skip
    return ()


def _put(scope: Scope, record: Record, change: Change, done: list[Callable[[], object]]) -> None:
    """Put one skill in its place, what was there into the history; `done` gets the way back."""
    target, old = scope.target(change.id), record.old(scope, change.id)
    if not change.after:
        _move(target, old, done)
        return
    staged = scope.part(change.staged)
    if not change.before:
        _move(staged, target, done)
    elif exchange(staged, target):
        done.append(lambda: exchange(staged, target))
        _move(staged, old, done)
    else:
        # For a moment there is no skill at all, but never half of one.
        _move(target, old, done)
        _move(staged, target, done)


def _move(one: str, other: str, done: list[Callable[[], object]]) -> None:
    os.rename(one, other)
    done.append(lambda: os.rename(other, one))


def _relock(scope: Scope, lock: Lock, done: list[Callable[[], object]]) -> None:
    try:
        with open(scope.lock, "rb") as stream:
            old = stream.read()
    except FileNotFoundError:
        old = None

    def back() -> None:
        if old is None:
            with suppress(FileNotFoundError):
                os.unlink(scope.lock)
            sync_folder(scope.root)
        else:
            write_atomic(scope.lock, old, through=scope.work)

    # First the way back: an error may come after the replacement.
    done.append(back)
    write_lock(scope, lock)


def _put_back(
    scope: Scope,
    record: Record,
    stage: Stage | None,
    done: list[Callable[[], object]],
    why: OSError,
) -> None:
    """Undo what was done so far; without that, say that the next command goes on."""
    try:
        for step in reversed(done):
            step()
        if done:
            sync_places(scope, record)
        with suppress(FileNotFoundError):
            os.unlink(scope.part(NAME))
    except OSError as exc:
        if stage is not None:
            stage.leave()
        raise Refused(
            say("`{path}`: {reason}; the change is incomplete and could not be taken back: "
                "the next command will finish it", path=named(why, scope.root), reason=reason(why)),
            hint(why),
        ) from exc  # fmt: skip
    with suppress(OSError):  # the old state holds, whether or not the disk confirms it
        sync_folder(scope.work)
    with suppress(OSError):
        os.rmdir(os.path.join(record.entry(scope), "old"))
        os.rmdir(record.entry(scope))
