"""How does an index stay in step with the skills, without anybody waiting for it?

A few changed skills are indexed on the spot. More are left to a thread, and the caller gets what
there is: the old index, and the skills that it does not know yet. What is done is kept every few
seconds, so a process that ends early leaves the rest to the next one. One process writes at a time,
and lets go between two portions. What another process has done to the index is noticed by its
version, before the next search.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack, nullcontext
from itertools import compress, count, islice
from operator import is_, is_not, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import locked
from satchel._language import say
from satchel.detect.index.base import FIELDS, Row
from satchel.detect.index.open import FTS5_FROM, choose_engine, discard, open_index, sweep
from satchel.errors import Conflict, Refused, SatchelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from satchel.detect.index.base import FieldIndex, Stamp
    from satchel.skill import Skill
    from satchel.skill.model import Origin

FEW = 64
"""Changed skills that are indexed on the spot."""
_QUICK = 0.25
"""Seconds that reading them may take."""
_FIRST, _LONGEST = 0.5, 10.0
"""Seconds after which work in the background is kept: at first soon, then ever later."""
_BREATH = 0.05
"""Seconds between two portions, in which somebody else may get the right to write."""
_PATIENT = 2.0
"""Seconds that a build in the foreground waits for that right."""
_SLICE = 0.25
"""Seconds after which whoever waits in the background looks whether it is still wanted."""
_AGAIN = 30.0
"""Seconds until something that failed is tried again."""
_TURN = 600.0
"""Seconds that the background waits for another process to finish writing."""
_REMEMBERED = 4
"""Sequences of skills that are remembered: people and models may see different ones."""
_UNKEPT = FTS5_FROM
"""Skills up to which an index that cannot be kept is made in memory instead."""
_STRANGERS, _MANY_STRANGERS = 4_096, 100_000
"""Files of unknown keys that are looked for in the background, and by a build."""
_NEWER = 4_096
"""Skills that are newer in the index than in our snapshot, and are looked at one by one."""
_HEAD: Callable[[Skill], object] = itemgetter(0)
_ORIGIN: Callable[[Skill], object] = itemgetter(1)


class Current(NamedTuple):
    """What can be searched now."""

    ready: FieldIndex | None
    """None when nothing is indexed yet. It may find keys that are no skills of yours (any more)."""
    unindexed: Sequence[Skill]
    """Skills whose present text it does not know."""
    note: str
    """What a person should know: it is being built, or why it cannot be; empty when all is well."""


class _Seen(NamedTuple):
    """What was found out about one sequence of skills."""

    skills: Sequence[Skill]
    copy: tuple[Skill, ...]
    answer: Current
    complete: bool
    """Nothing is left to do for it, as long as the index has this version."""
    version: tuple[int, ...]
    retry_at: float


class Upkeep:
    """Keeps one index in step with one library."""

    def __init__(
        self,
        folder: Callable[[], str] | str | None,
        make_row: Callable[[Skill], Row],
        head_row: Callable[[Skill], Row] | None = None,
        *,
        few: int = FEW,
    ) -> None:
        """Open nothing yet.

        Args:
            folder: Where the index is kept, one for each set of skills; None keeps it in memory. A
                function is asked when it is needed.
            make_row: Reads a skill and cuts it into terms.
            head_row: The same from what the scan kept, for a skill that cannot be read.
            few: So many changed skills are indexed on the spot.
        """
        self._where = folder
        self._make_row = make_row
        self._head_row = head_row
        self._few = few
        self._tables: dict[int, tuple[Sequence[Skill], dict[str, Skill]]] = {}
        self._start()

    @property
    def folder(self) -> str | None:
        """Where the index is kept; None: in memory."""
        if callable(self._where):
            self._where = self._where()
        return self._where

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._epoch = 0
        """Raised to let go of work in the background."""
        self._largest = 0
        """The most skills that were seen: the engine suits those who see all of them."""
        self._index: FieldIndex | None = None
        self._seen: dict[int, _Seen] = {}
        self._wanted: Sequence[Skill] | None = None
        self._thread: threading.Thread | None = None
        self._unkept = ""
        self._error = ""
        self._unread: dict[str, str] = {}

    def current(self, skills: Sequence[Skill], patience: float = 0.0) -> Current:
        """What can be searched now; the same sequence again costs nothing.

        Args:
            skills: The library's skills.
            patience: Seconds to wait for work in the background; a command that ends right after
                may give it some.
        """
        if self._pid != os.getpid():
            self._start()  # a fork: threads and locks of the parent are not ours
        seen = self._holds(skills)
        if seen is None:
            with self._lock:
                seen = self._holds(skills) or self._look(skills)
        end = time.monotonic() + patience
        while not seen.complete and (thread := self._thread) is not None:
            left = end - time.monotonic()
            if left <= 0:
                break
            thread.join(left)
            with self._lock:
                seen = self._holds(skills) or self._look(skills)
        return seen.answer

    def build(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int, int], None] | None = None,
        *,
        rebuild: bool = False,
    ) -> Current:
        """Index everything now, in the foreground, and drop skills whose file is gone.

        Args:
            skills: The library's skills.
            progress: Told how many are done, and of how many.
            rebuild: Throw away what is there and begin anew.

        Raises:
            Conflict: another process is writing the index.
            Refused: it cannot be written.
        """
        if self._pid != os.getpid():
            self._start()
        with self._lock:
            self._wanted = None
            self._epoch += 1
        if (thread := self._thread) is not None:
            thread.join()
        try:
            with self._writing(_PATIENT):
                return self._build(skills, progress, rebuild=rebuild).answer
        except TimeoutError as exc:
            raise Conflict(
                say("Another process is writing the index"),
                say("Wait until it is done, then run `satchel index` again"),
            ) from exc
        except OSError as exc:
            raise Refused(
                say("The index cannot be written: {reason}", reason=_reason(exc)),
                say("Make the cache folder writable: `{path}`", path=self.folder or ""),
            ) from exc

    def _build(
        self,
        skills: Sequence[Skill],
        progress: Callable[[int, int], None] | None,
        *,
        rebuild: bool,
    ) -> _Seen:
        with self._lock:
            if rebuild:
                self._let_go()
                if self.folder is not None:
                    discard(self.folder)
            index = self._opened(len(skills))
        self._unread.clear()
        before = index.version()
        if rebuild:
            # Usually nothing is left; where files in use cannot be removed, all is replaced.
            todo = list(skills)
            gone = sorted(index.stamps().keys() - set(keys_of(skills)))
        else:
            todo, gone = self._difference(skills, index, _MANY_STRANGERS)
        if todo or gone or not before:
            tell = None if progress is None else _telling(progress, len(todo))
            index.update(map(self._row, todo), gone, tell)
        with self._lock:
            return self._finish(index, skills, before)

    def by_key(self, skills: Sequence[Skill]) -> Mapping[str, Skill]:
        """The skills by the keys that the index knows them by; made once for a sequence."""
        kept = self._tables.get(id(skills))
        if kept is not None and kept[0] is skills and isinstance(skills, tuple):
            return kept[1]
        table = dict(zip(keys_of(skills), skills, strict=True))
        with self._lock:
            self._tables[id(skills)] = (skills, table)
            _trim(self._tables)
        return table

    def close(self) -> None:
        """Let go of files. Work in the background ends with what it is at."""
        with self._lock:
            self._wanted = None
            self._epoch += 1
            self._tables = {}
            self._let_go()

    def _let_go(self) -> None:
        self._seen = {}
        if self._index is not None:
            self._index.close()
        self._index = None

    # --- looking --------------------------------------------------------------------------

    def _holds(self, skills: Sequence[Skill]) -> _Seen | None:
        """What was found out about these skills, if it is still so."""
        seen = self._seen.get(id(skills))
        if seen is None or seen.skills is not skills:
            return None
        if not isinstance(skills, tuple) and not (
            len(skills) == len(seen.copy) and all(map(is_, skills, seen.copy))
        ):
            return None  # a list may have changed under us
        if seen.complete:
            index = seen.answer.ready
            return seen if index is None or index.version() == seen.version else None
        working = self._thread is not None or time.monotonic() < seen.retry_at
        return seen if working else None

    def _look(self, skills: Sequence[Skill]) -> _Seen:
        """Compare, index a few on the spot, leave more to the thread."""
        todo: Sequence[Skill] = skills
        try:
            index = self._opened(len(skills))
            before = index.version()  # what is done to it while we compare is looked at next time
            todo, gone = self._changes(skills, index, before)
            if not todo and not gone:
                return self._remember(skills, (), before)
            if self._thread is None and len(todo) <= self._few:
                rows = self._quick_rows(todo)
                if rows is not None:
                    with self._writing(0.0):
                        if index.version() == before:
                            index.update(rows, gone)
                            return self._finish(index, skills, before)
        except TimeoutError:
            pass  # another process writes: the thread waits for its turn
        except Exception as exc:  # noqa: BLE001 - a search goes on without an index; the note tells why
            if self.folder is not None and isinstance(exc, OSError) and len(skills) < _UNKEPT:
                self._unkept, self._where, self._index = _reason(exc), None, None
                return self._look(skills)
            self._error = _reason(exc)
            return self._remember(skills, todo)
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="satchel-index", daemon=True)
            try:
                thread.start()  # it waits for our lock
            except RuntimeError as exc:  # there are too many threads, or the process ends
                self._error = _reason(exc)
                return self._remember(skills, todo)
            self._thread = thread
        self._wanted = skills
        return self._remember(skills, todo)

    def _changes(
        self, skills: Sequence[Skill], index: FieldIndex, version: tuple[int, ...]
    ) -> tuple[list[Skill], list[str]]:
        """What differs; when little has changed since a look, without asking for every stamp."""
        for seen in reversed(self._seen.values()):
            if not version or not seen.complete or seen.version != version:
                continue
            places = moved(seen.copy, skills)
            old, new = [seen.copy[at] for at in places[0]], [skills[at] for at in places[1]]
            before = {id(skill.head) for skill in old}
            others = [skill for skill in new if id(skill.head) not in before]
            if len(others) <= self._few:
                now = {id(skill.head) for skill in new}
                left = [skill for skill in old if id(skill.head) not in now]
                stamps = index.stamps(keys_of(others))
                todo = _changed(others, keys_of(others), stamps)
                if len(left) > self._few:
                    return todo, []
                return todo, _lost(set(keys_of(left)) - set(keys_of(others)))
        return self._difference(skills, index, self._few)

    def _difference(
        self, skills: Sequence[Skill], index: FieldIndex, most: int
    ) -> tuple[list[Skill], list[str]]:
        """What differs by the stamps of the index.

        A key that is no skill of ours is dropped if its file is gone: the same index may serve
        somebody who sees more skills. More than `most` are not looked for.
        """
        stamps = index.stamps()
        keys = keys_of(skills)
        todo = _changed(skills, keys, stamps)
        if len(stamps) == len(skills) - len(todo):
            return todo, []  # nobody else is in it
        strangers = stamps.keys() - set(keys)
        return todo, _lost(strangers) if len(strangers) <= most else []

    def _quick_rows(self, skills: Sequence[Skill]) -> list[Row] | None:
        """The rows of a few skills; None when reading them takes too long."""
        end = time.monotonic() + _QUICK
        rows: list[Row] = []
        for skill in skills:
            if time.monotonic() > end:
                return None
            rows.append(self._row(skill))
        return rows

    def _remember(
        self,
        skills: Sequence[Skill],
        todo: Sequence[Skill],
        complete_at: tuple[int, ...] | None = None,
    ) -> _Seen:
        """Keep what was found out; `complete_at` is the version that leaves nothing to do."""
        index = self._index
        usable = index if index is not None and index.is_sound() else None
        complete = complete_at is not None and (usable is not None or not skills)
        if complete_at is not None and not complete:
            todo = skills  # it was lost again
        answer = Current(usable, todo, self._note(len(skills), len(todo)))
        copy = skills if isinstance(skills, tuple) else tuple(skills)
        retry_at = time.monotonic() + _AGAIN if self._error else 0.0
        seen = _Seen(skills, copy, answer, complete, complete_at or (), retry_at)
        self._seen.pop(id(skills), None)
        self._seen[id(skills)] = seen
        _trim(self._seen)
        return seen

    def _note(self, count: int, left: int) -> str:
        if self._error or self._unkept:
            reason = self._error or self._unkept
            return say("The index of skills cannot be kept: {reason}", reason=reason)
        if left:
            return say(
                "The index of skills is being built: {done} of {count} are in it",
                done=f"{count - left:,}",
                count=f"{count:,}",
            )
        if self._unread:
            path, reason = next(iter(self._unread.items()))
            return say(
                "Skills that could not be read and are found by their description alone: {count}, "
                "such as `{path}` ({reason})",
                count=len(self._unread),
                path=path,
                reason=reason,
            )
        return ""

    # --- working --------------------------------------------------------------------------

    def _work(self) -> None:
        """What the thread does: until nobody wants anything."""
        while True:
            with self._lock:
                skills, self._wanted = self._wanted, None
                epoch = self._epoch
                if skills is None:
                    self._thread = None
                    return
            try:
                self._bring(skills, epoch)
            except Exception as exc:  # noqa: BLE001 - a thread has nobody to raise to; the note tells
                with self._lock:
                    if self._epoch != epoch:
                        continue
                    self._error = _reason(exc)
                    if (seen := self._seen.get(id(skills))) is not None:
                        self._remember(skills, seen.answer.unindexed)

    def _bring(self, skills: Sequence[Skill], epoch: int) -> None:
        """Bring the index up to date, keeping what is done from time to time."""
        with self._lock:
            if self._epoch != epoch:
                return
            index = self._opened(len(skills))
        todo: list[Skill] = []
        gone: list[str] = []
        at, patience = 0, _FIRST
        version: tuple[int, ...] | None = None
        while True:
            with ExitStack() as stack:
                if not self._take_turn(stack, epoch):
                    return
                before = index.version()
                if before != version:  # at first, and after somebody else had a turn
                    todo, gone = self._difference(skills, index, _STRANGERS)
                    at = 0
                if at < len(todo) or gone:
                    rows = _Portion(map(self._row, islice(todo, at, None)), patience)
                    index.update(rows, gone)
                    at += rows.count
                    gone = []
                version = index.version()
                with self._lock:
                    if self._epoch != epoch or self._index is not index:
                        return  # closed, built anew, or another engine took over
                    self._error = ""
                    if at >= len(todo):
                        self._finish(index, skills, before)
                        return
                    self._follow(before, version)
                    if id(skills) in self._seen:
                        self._remember(skills, todo[at:])
                    if self._wanted is not None and self._wanted is not skills:
                        return  # somebody has newer skills
            patience = min(2 * patience, _LONGEST)
            time.sleep(_BREATH)

    def _take_turn(self, stack: ExitStack, epoch: int) -> bool:
        """Wait for the right to write; False when the work is not wanted any more.

        Raises:
            TimeoutError: another process has it all the time.
        """
        end = time.monotonic() + _TURN
        while self._epoch == epoch:
            try:
                stack.enter_context(self._writing(_SLICE))
            except TimeoutError:
                if time.monotonic() > end:
                    raise
            else:
                return True
        return False

    def _row(self, skill: Skill) -> Row:
        """The row of a skill; one that cannot be read has what the scan kept."""
        try:
            row = self._make_row(skill)
        except (SatchelError, OSError) as exc:
            self._unread[skill.path] = _reason(exc)
            if self._head_row is not None:
                return self._head_row(skill)
            return Row(skill.path, _stamp(skill), ("",) * len(FIELDS))
        self._unread.pop(row.key, None)
        return row

    def _opened(self, count: int) -> FieldIndex:
        """The index, of the engine that suits so many skills.

        Raises:
            OSError: its folder cannot be made.
        """
        index = self._index
        # People and models see different numbers; one engine serves them both.
        self._largest = max(self._largest, count)
        if index is not None and index.engine == choose_engine(self.folder, self._largest):
            return index
        self._index = open_index(self.folder, self._largest)
        self._seen = {}
        return self._index

    def _finish(self, index: FieldIndex, skills: Sequence[Skill], before: tuple[int, ...]) -> _Seen:
        """All is in it. Needs our lock, and the right to write: nobody changes it meanwhile."""
        self._error = ""
        if self.folder is not None:
            sweep(self.folder, index.engine)
        after = index.version()
        self._follow(before, after)
        return self._remember(skills, (), after)

    def _follow(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Our own writing has taken nothing from the others that were complete."""
        for key, seen in self._seen.items():
            if seen.complete and seen.version == before:
                self._seen[key] = seen._replace(version=after)

    def _writing(self, patience: float) -> AbstractContextManager[None]:
        """The right to write, which one process has at a time."""
        if self.folder is None:
            return nullcontext()
        return locked(os.path.join(self.folder, "writer.lock"), timeout=patience)


class _Portion:
    """Rows for some seconds; at least one."""

    def __init__(self, rows: Iterator[Row], seconds: float) -> None:
        self._rows = rows
        self._end = time.monotonic() + seconds
        self.count = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.count += 1
            yield row
            if time.monotonic() > self._end:
                return


def keys_of(skills: Sequence[Skill]) -> list[str]:
    """The `path` of each skill, quickly: a library may have a million."""
    places: dict[int, tuple[Origin, str]] = {}
    keys: list[str] = []
    for skill in skills:
        head, origin = skill.head, skill.origin
        place = places.get(id(origin))
        if place is None:
            place = places[id(origin)] = (origin, os.path.join(origin.root, ""))
        keys.append(f"{place[1]}{head.id}{os.sep}{head.file}" if head.id else place[1] + head.file)
    return keys


def moved(old: Sequence[Skill], new: Sequence[Skill]) -> tuple[Sequence[int], Sequence[int]]:
    """At which places two states of a library differ, in the old one and in the new one.

    Nothing was done to a skill whose head and origin are the same objects. Of libraries of the same
    size the single places are told; of others two ranges, around which all is as it was.
    """
    if len(old) == len(new):
        places = sorted({*_differing(_HEAD, old, new), *_differing(_ORIGIN, old, new)})
        return places, places
    both = min(len(old), len(new))
    first = _first_differing(old, new, both)
    last = 0
    if first < both:  # else some were put behind all others, or taken from there
        last = min(both - first, _first_differing(old[::-1], new[::-1], both))
    return range(first, len(old) - last), range(first, len(new) - last)


def _first_differing(old: Sequence[Skill], new: Sequence[Skill], end: int) -> int:
    return min(next(_differing(what, old, new), end) for what in (_HEAD, _ORIGIN))


def _differing(
    what: Callable[[Skill], object], old: Sequence[Skill], new: Sequence[Skill]
) -> Iterator[int]:
    """The places where two sequences differ in something, as far as the shorter one goes.

    In C from end to end, for a library may have a million.
    """
    return compress(count(), map(is_not, map(what, old), map(what, new)))


def _stamp(skill: Skill) -> Stamp:
    head = skill[0]
    return (head.mtime_ns, head.ctime_ns, head.size)


def _changed(
    skills: Sequence[Skill], keys: Sequence[str], stamps: Mapping[str, Stamp]
) -> list[Skill]:
    """Those whose text is not indexed.

    Somebody whose snapshot is newer may have indexed a newer text than ours: it stays, or the two
    of us would undo each other's work with every search.
    """
    known = stamps.get
    pairs = zip(keys, skills, strict=True)
    todo = [(key, skill) for key, skill in pairs if known(key) != _stamp(skill)]
    if not stamps or len(todo) > _NEWER:
        return [skill for _, skill in todo]
    return [skill for key, skill in todo if not _is_newer(key, known(key), skill)]


def _is_newer(key: str, stamp: Stamp | None, skill: Skill) -> bool:
    """Whether the index has the text that is in the file now, and we an older one."""
    if stamp is None or stamp[1] <= skill.head.ctime_ns:
        return False
    try:
        info = os.stat(key)
    except OSError:
        return False
    return (info.st_mtime_ns, info.st_ctime_ns, info.st_size) == stamp


def _lost(keys: Iterable[str]) -> list[str]:
    """Those whose file is not there any more."""
    return sorted(key for key in keys if not os.path.exists(key))


def _telling(progress: Callable[[int, int], None], count: int) -> Callable[[int], None]:
    return lambda done: progress(done, count)


def _trim(kept: dict[int, Any]) -> None:
    while len(kept) > _REMEMBERED:
        del kept[next(iter(kept))]


def _reason(exc: BaseException) -> str:
    """The reason in one line."""
    if isinstance(exc, SatchelError):
        return exc.message
    said = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return said.strip().partition("\n")[0] or type(exc).__name__
