"""Keeps an index in step with the skills, without a search waiting for it.

A few changed skills are indexed on the spot. More are left to a thread, and the caller gets what
there is: the old index, and the skills that it does not hold yet. The thread commits after every
few thousand skills, so a process that ends early leaves the rest to the next one. One process
writes at a time. A change by another process shows in the index's version before the next search.
"""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import locked
from satchel._language import say
from satchel._optional import available
from satchel.errors import Conflict, Refused, SatchelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from satchel.detect.index.base import FieldIndex, Row, Stamp
    from satchel.skill import Skill
    from satchel.skill.model import Origin

FORMAT = 3
"""Part of the folder's name. Raise it when an engine keeps something else, or texts are cut
otherwise: the index is rebuilt."""

TANTIVY_FROM = 250
"""Skills from which tantivy is faster than plain Python."""
UNUSED_S = 90 * 86_400.0
"""Seconds without use after which the index of another project is removed."""

_ENGINE_FOLDER = re.compile(r"(memory|fts5|tantivy)-(\d+)")
_PROJECT_FOLDER = re.compile("[0-9a-f]{16}")


def choose_engine(folder: str | None, count: int) -> str:
    """`memory` or `tantivy`: what `open_index` takes."""
    if folder is None:
        return "memory"
    # Once tantivy is in use it stays until the number has halved: no switching back and forth.
    started = os.path.isdir(os.path.join(folder, f"tantivy-{FORMAT}"))
    least = TANTIVY_FROM // 2 if started else TANTIVY_FROM
    return "tantivy" if count >= least and available("tantivy") is not None else "memory"


def open_index(folder: str | None, count: int) -> FieldIndex:
    """Open the index that `folder` keeps, or an empty one.

    tantivy is used from 250 skills on, if it is installed, and plain Python otherwise. Measured
    with real bodies, in a new process: opening and the first search take 14 ms with plain Python at
    100 skills, 22 at 300, 47 at 2,000, and 13 to 20 with tantivy at any of them.

    Args:
        folder: Where it is kept, for one set of skills; None keeps it in memory.
        count: How many skills there are.

    Raises:
        OSError: the folder cannot be made.
    """
    engine = choose_engine(folder, count)
    place = os.path.join(folder, f"{engine}-{FORMAT}") if folder is not None else None
    if place is not None and engine == "tantivy":
        from satchel.detect.index.tantivy_engine import TantivyIndex

        return TantivyIndex(place)
    from satchel.detect.index.memory import MemoryIndex

    if place is not None:
        os.makedirs(place, mode=0o700, exist_ok=True)
    return MemoryIndex(place)


def remove_indexes(folder: str, engine: str = "") -> None:
    """Remove the indexes in `folder` that a finished one of `engine` has replaced.

    Those are older formats, and the one in plain Python once tantivy has taken over. Without an
    engine, all of them are removed. A newer format stays: another installation uses it.
    """
    import shutil

    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        found = _ENGINE_FOLDER.fullmatch(name)
        if found is None or int(found[2]) > FORMAT:
            continue
        is_replaced = found[1] == "memory" and engine != "memory"
        if not engine or int(found[2]) < FORMAT or is_replaced:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def remove_unused(shelf: str) -> None:
    """Remove the index folders of projects in `shelf` that were not used for 90 days."""
    import shutil

    oldest = time.time() - UNUSED_S
    for name in os.listdir(shelf) if os.path.isdir(shelf) else ():
        folder = os.path.join(shelf, name)
        if _PROJECT_FOLDER.fullmatch(name) and _last_use(folder) < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def mark_used(folder: str) -> None:
    """Note that an index is in use; `remove_unused` reads it from the folder's time."""
    from contextlib import suppress

    with suppress(OSError):
        os.utime(folder)


def _last_use(folder: str) -> float:
    """The newest time of a project's folder and of those in it."""
    try:
        inner = [one.path for one in os.scandir(folder)]
        return max(os.stat(path).st_mtime for path in (folder, *inner))
    except OSError:
        return time.time()


FEW = 64
"""Changed skills that are indexed on the spot."""
_TICK_S = 0.25
"""Seconds between two reports of who waits."""
FIRST_BATCH, LARGEST_BATCH = 500, 8_000
"""Skills that the thread indexes before it commits: few at first, then twice as many each time."""
BUILD_WAIT_S = 2.0
"""Seconds that a build in the foreground waits for the lock."""
THREAD_WAIT_S = 0.25
"""Seconds after which the thread, waiting for the lock, checks whether it should stop."""
RETRY_AFTER_S = 30.0
"""Seconds until something that failed is tried again."""
MAX_REMEMBERED = 4
"""Sequences of skills that are remembered: users and models may see different ones."""
MAX_IN_MEMORY = 5_000
"""Skills up to which an index that cannot be written is made in memory instead."""
MAX_UNKNOWN = 100_000
"""Unknown keys whose files the thread or a build looks for; a search looks for `FEW`."""


class Current(NamedTuple):
    """What can be searched now."""

    ready: FieldIndex | None
    """None when nothing is indexed yet. It may find keys that are no skills of yours (any more)."""
    unindexed: Sequence[Skill]
    """Skills whose present text it does not hold."""
    note: str
    """What a person should know: it is being built, or why it cannot be; empty when all is well."""


class _Seen(NamedTuple):
    """What is known about one sequence of skills."""

    skills: tuple[Skill, ...]
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
        head_row: Callable[[Skill], Row],
    ) -> None:
        """Open nothing yet.

        Args:
            folder: Where the index is kept, one for each set of skills; None keeps it in memory. A
                function is called when it is needed.
            make_row: Reads a skill and cuts it into terms.
            head_row: The same from what the scan kept, for a skill that cannot be read.
        """
        self._where = folder
        self._make_row = make_row
        self._head_row = head_row
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
        self._largest = 0
        """The most skills that were seen: users and models share one engine."""
        self._index: FieldIndex | None = None
        self._seen: dict[int, _Seen] = {}
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._unkept = ""
        self._error = ""
        self._unread: dict[str, str] = {}

    def current(
        self,
        skills: Sequence[Skill],
        patience: float = 0.0,
        on_wait: Callable[[int, int], None] | None = None,
    ) -> Current:
        """What can be searched now; the same sequence again costs nothing.

        Args:
            skills: The library's skills.
            patience: Seconds to wait for work in the background: for a command that ends right
                after it.
            on_wait: Called while it waits, with how many are indexed, and of how many.
        """
        if self._pid != os.getpid():
            self._start()  # a fork: threads and locks of the parent are not ours
        skills = tuple(skills)  # the same one, if it is a tuple: a list may change
        seen = self._lookup(skills)
        end = time.monotonic() + patience
        while not seen.complete and (thread := self._thread) is not None:
            left = end - time.monotonic()
            if left <= 0:
                break
            thread.join(min(left, _TICK_S))
            seen = self._lookup(skills)
            if on_wait is not None:
                on_wait(len(skills) - len(seen.answer.unindexed), len(skills))
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
            progress: Called with how many are done, and of how many.
            rebuild: Remove what is there and begin again.

        Raises:
            Conflict: another process is writing the index.
            Refused: it cannot be written.
        """
        if self._pid != os.getpid():
            self._start()
        self._stop_thread()
        try:
            with self._writing(BUILD_WAIT_S):
                return self._build(tuple(skills), progress, rebuild=rebuild).answer
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

    def _stop_thread(self) -> None:
        """End the work in the background after the batch at hand."""
        self._stopping = True
        if (thread := self._thread) is not None:
            thread.join()
        self._stopping = False

    def _build(
        self,
        skills: tuple[Skill, ...],
        progress: Callable[[int, int], None] | None,
        *,
        rebuild: bool,
    ) -> _Seen:
        with self._lock:
            if rebuild:
                self._seen = {}
                self._index = None
                if self.folder is not None:
                    remove_indexes(self.folder)
            index = self._opened(len(skills))
        self._unread.clear()
        before = index.version()
        if rebuild:
            # Usually nothing is left; where files in use cannot be removed, all is replaced.
            todo = list(skills)
            gone = sorted(index.stamps().keys() - set(keys_of(skills)))
        else:
            todo, gone = self._difference(skills, index, MAX_UNKNOWN)
        if todo or gone or not before:

            def tell(done: int) -> None:
                if progress is not None:
                    progress(done, len(todo))

            index.update(map(self._row, todo), gone, tell)
        self._remove_unused()
        with self._lock:
            return self._finish(index, skills)

    # --- looking --------------------------------------------------------------------------

    def _lookup(self, skills: tuple[Skill, ...]) -> _Seen:
        """What is known about these skills, found out now where it has to be."""
        seen = self._remembered(skills)
        if seen is None:
            with self._lock:
                seen = self._remembered(skills) or self._look(skills)
        return seen

    def _remembered(self, skills: tuple[Skill, ...]) -> _Seen | None:
        """What is known about these skills, if it is still so."""
        seen = self._seen.get(id(skills))
        if seen is None or seen.skills is not skills:
            return None
        if seen.complete:
            index = seen.answer.ready
            return seen if index is None or index.version() == seen.version else None
        working = self._thread is not None or time.monotonic() < seen.retry_at
        return seen if working else None

    def _look(self, skills: tuple[Skill, ...]) -> _Seen:
        """Compare, index a few on the spot, leave more to the thread."""
        todo: Sequence[Skill] = skills
        try:
            index = self._opened(len(skills))
            before = index.version()  # a change during the comparison is seen the next time
            todo, gone = self._difference(skills, index, FEW)
            if not todo and not gone:
                return self._remember(skills, (), before)
            if self._thread is None and len(todo) <= FEW:
                try:
                    with self._writing(0.0):
                        if index.version() == before:
                            index.update([self._row(skill) for skill in todo], gone)
                            return self._finish(index, skills)
                except TimeoutError:
                    pass  # another process writes: the thread waits for its turn
            if self._thread is None:
                thread = threading.Thread(
                    target=self._work, args=(skills,), name="satchel-index", daemon=True
                )
                thread.start()  # it waits for our lock
                self._thread = thread
        except Exception as exc:  # noqa: BLE001 - a search works without an index; the note says why
            if self.folder is not None and isinstance(exc, OSError) and len(skills) < MAX_IN_MEMORY:
                self._unkept, self._where, self._index = _reason(exc), None, None
                return self._look(skills)
            self._error = _reason(exc)
        return self._remember(skills, todo)

    def _difference(
        self, skills: Sequence[Skill], index: FieldIndex, most: int
    ) -> tuple[list[Skill], list[str]]:
        """What differs by the stamps of the index.

        A key that is no skill here is dropped if its file is gone: the same index may serve a user
        who sees more skills. If there are more than `most` of them, their files are not looked for.
        """
        stamps = index.stamps()
        keys = keys_of(skills)
        todo = _changed(skills, keys, stamps)
        if len(stamps) == len(skills) - len(todo):
            return todo, []  # no other keys are in it
        unknown = stamps.keys() - set(keys)
        return todo, _missing(unknown) if len(unknown) <= most else []

    def _remember(
        self,
        skills: tuple[Skill, ...],
        todo: Sequence[Skill],
        complete_at: tuple[int, ...] | None = None,
    ) -> _Seen:
        """Keep what was found out; `complete_at` is the version that leaves nothing to do."""
        index = self._index
        usable = index if index is not None and index.version() else None
        complete = complete_at is not None and (usable is not None or not skills)
        if complete_at is not None and not complete:
            todo = skills  # it was lost again
        answer = Current(usable, todo, self._note(len(skills), len(todo)))
        retry_at = time.monotonic() + RETRY_AFTER_S if self._error else 0.0
        seen = _Seen(skills, answer, complete, complete_at or (), retry_at)
        self._seen.pop(id(skills), None)
        self._seen[id(skills)] = seen
        while len(self._seen) > MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]
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

    def _work(self, skills: tuple[Skill, ...]) -> None:
        """What the thread does: index all of these skills, once no other process writes."""
        try:
            with self._lock:
                index = self._opened(len(skills))
            while not self._stopping:
                try:
                    with self._writing(THREAD_WAIT_S):
                        self._index_batches(skills, index)
                        break
                except TimeoutError:
                    continue
        except Exception as exc:  # noqa: BLE001 - the note says why
            with self._lock:
                self._error = _reason(exc)
                if (seen := self._seen.get(id(skills))) is not None:
                    self._remember(skills, seen.answer.unindexed)
        finally:
            with self._lock:
                self._thread = None

    def _index_batches(self, skills: tuple[Skill, ...], index: FieldIndex) -> None:
        todo, gone = self._difference(skills, index, MAX_UNKNOWN)
        at, batch = 0, FIRST_BATCH
        while True:
            end = at + batch
            if todo[at:end] or gone:
                index.update(map(self._row, todo[at:end]), gone)
            with self._lock:
                if self._stopping or self._index is not index:
                    return
                self._error = ""
                if end >= len(todo):
                    self._remove_unused()
                    self._finish(index, skills)
                    return
                if id(skills) in self._seen:
                    self._remember(skills, todo[end:])
            at, batch, gone = end, min(2 * batch, LARGEST_BATCH), []

    def _row(self, skill: Skill) -> Row:
        """The row of a skill; one that cannot be read has what the scan kept."""
        try:
            row = self._make_row(skill)
        except (SatchelError, OSError) as exc:
            self._unread[skill.path] = _reason(exc)
            return self._head_row(skill)
        self._unread.pop(row.key, None)
        return row

    def _opened(self, count: int) -> FieldIndex:
        """The index, of the engine that suits so many skills.

        Raises:
            OSError: its folder cannot be made.
        """
        index = self._index
        self._largest = max(self._largest, count)
        if index is not None and index.engine == choose_engine(self.folder, self._largest):
            return index
        self._index = open_index(self.folder, self._largest)
        self._seen = {}
        if self.folder is not None:
            mark_used(self.folder)
        return self._index

    def _finish(self, index: FieldIndex, skills: tuple[Skill, ...]) -> _Seen:
        """All skills are in it. Needs our lock and the writer lock: nothing changes meanwhile."""
        self._error = ""
        if self.folder is not None:
            remove_indexes(self.folder, index.engine)
        return self._remember(skills, (), index.version())

    def _remove_unused(self) -> None:
        """Remove the indexes of other projects that were not used for a long time."""
        if self.folder is not None:
            remove_unused(os.path.dirname(os.path.dirname(self.folder)))

    def _writing(self, patience: float) -> AbstractContextManager[None]:
        """The writer lock, which one process has at a time."""
        if self.folder is None:
            return nullcontext()
        return locked(os.path.join(self.folder, "writer.lock"), timeout=patience)


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


def _stamp(skill: Skill) -> Stamp:
    head = skill[0]
    return (head.mtime_ns, head.ctime_ns, head.size)


def _changed(
    skills: Sequence[Skill], keys: Sequence[str], stamps: Mapping[str, Stamp]
) -> list[Skill]:
    """Those whose text is not indexed.

    A process with a newer snapshot may have indexed a newer text than ours: it stays, or the two
    would undo each other's work with every search.
    """
    known = stamps.get
    pairs = zip(keys, skills, strict=True)
    todo = [(key, skill) for key, skill in pairs if known(key) != _stamp(skill)]
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


def _missing(keys: Iterable[str]) -> list[str]:
    """Those whose file is not there any more."""
    return sorted(key for key in keys if not os.path.exists(key))


def _reason(exc: BaseException) -> str:
    """The reason in one line."""
    if isinstance(exc, SatchelError):
        return exc.message
    said = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return said.strip().partition("\n")[0] or type(exc).__name__
