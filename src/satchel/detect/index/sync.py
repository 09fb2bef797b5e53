"""Keeps an index up to date without blocking searches.

A few changed skills are indexed immediately. More are left to a thread, and the caller gets the old
index and the skills that it does not contain yet. The thread commits after every few thousand
skills and when the process ends, so the next one only does the rest. One process writes at a time.
A change by another process is visible in the index version before the next search.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import locked
from satchel._optional import available
from satchel.detect.index.base import file_stamp
from satchel.errors import Conflict, Refused, SatchelError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from satchel.detect.index.base import FieldIndex, IndexRow, Stamp
    from satchel.skill import Skill
    from satchel.skill.model import SkillOrigin

FORMAT_VERSION = 4
"""Part of the folder name. Increment it when the format or the tokenizer changes; the index is
rebuilt."""

MIN_TANTIVY_SKILLS = 250
"""From this size tantivy is faster than plain Python."""

_ENGINE_FOLDER = re.compile(r"(memory|fts5|tantivy)-(\d+)")


def choose_engine(folder: str | None, count: int) -> str:
    """`memory` or `tantivy`: what `open_index` takes."""
    if folder is None:
        return "memory"
    # Switching back requires half as many skills, which prevents flapping.
    started = os.path.isdir(os.path.join(folder, f"tantivy-{FORMAT_VERSION}"))
    least = MIN_TANTIVY_SKILLS // 2 if started else MIN_TANTIVY_SKILLS
    return "tantivy" if count >= least and available("tantivy") is not None else "memory"


def open_index(folder: str | None, count: int) -> FieldIndex:
    """Open the index in `folder`, or an empty one.

    tantivy is used from 250 skills on, if it is installed, and plain Python otherwise. Measured
    with real bodies, in a new process: opening and the first search take 14 ms with plain Python at
    100 skills, 22 at 300, 47 at 2,000, and 13 to 20 with tantivy at any of them.

    Args:
        folder: The folder for one set of skills; None keeps the index in memory.
        count: The number of skills.

    Raises:
        OSError: the folder cannot be made.
    """
    engine = choose_engine(folder, count)
    place = os.path.join(folder, f"{engine}-{FORMAT_VERSION}") if folder is not None else None
    if place is not None and engine == "tantivy":
        from satchel.detect.index.tantivy_index import TantivyIndex

        return TantivyIndex(place)
    from satchel.detect.index.memory import MemoryIndex

    if place is not None:
        os.makedirs(place, mode=0o700, exist_ok=True)
    return MemoryIndex(place)


def remove_indexes(folder: str, engine: str = "") -> None:
    """Remove the indexes in `folder` that a complete one of `engine` has replaced.

    Those are older formats, and the one in plain Python once tantivy has taken over. Without an
    engine, all of them are removed. A newer format stays: another installation uses it.
    """
    import shutil

    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        found = _ENGINE_FOLDER.fullmatch(name)
        if found is None or int(found[2]) > FORMAT_VERSION:
            continue
        is_replaced = found[1] == "memory" and engine != "memory"
        if not engine or int(found[2]) < FORMAT_VERSION or is_replaced:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


MAX_INLINE_SKILLS = 64
_REPORT_INTERVAL_S = 0.25
MIN_BATCH_SKILLS, MAX_BATCH_SKILLS = 500, 8_000
"""Skills per commit of the thread, doubled each time."""
BUILD_WAIT_S = 2.0
"""For the lock."""
THREAD_WAIT_S = 0.25
"""Between two checks for a stop while waiting for the lock."""
RETRY_AFTER_S = 30.0
MAX_REMEMBERED_LIBRARIES = 4
"""Users and models may see different skills."""
MAX_IN_MEMORY_SKILLS = 5_000
"""For an index that cannot be written."""
MAX_UNKNOWN_KEYS = 100_000
"""Whose files the thread or a build checks; a search checks `MAX_INLINE_SKILLS`."""


class IndexState(NamedTuple):
    """The searchable state."""

    ready: FieldIndex | None
    """None when nothing is indexed yet. May return keys of unknown skills."""
    unindexed: Sequence[Skill]
    """Skills whose current text is not indexed."""
    note: str
    """A note for the user: the index is being built, or why it cannot be; else empty."""


class _KnownSkills(NamedTuple):
    """The state of one skill sequence."""

    skills: tuple[Skill, ...]
    answer: IndexState
    complete: bool
    """Complete as long as the index has this version."""
    version: tuple[int, ...]
    retry_at: float


class IndexSync:
    """Keeps one index up to date with one library."""

    def __init__(
        self,
        folder: Callable[[], str] | str | None,
        make_row: Callable[[Skill], IndexRow],
        head_row: Callable[[Skill], IndexRow],
    ) -> None:
        """Create the synchroniser; nothing is opened.

        Args:
            folder: The index folder, one per set of skills, or a function that returns it; None
                keeps the
                index in memory.
            make_row: Reads and tokenises a skill.
            head_row: Tokenises a skill's header, for a skill that cannot be read.
        """
        self._where = folder
        self._make_row = make_row
        self._head_row = head_row
        self._start()

    @property
    def folder(self) -> str | None:
        """The index folder; None for memory."""
        if callable(self._where):
            self._where = self._where()
        return self._where

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._largest = 0
        """The largest number of skills seen: users and models share one engine."""
        self._index: FieldIndex | None = None
        self._seen: dict[int, _KnownSkills] = {}
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
    ) -> IndexState:
        """Return the searchable state; repeated calls with one sequence cost nothing.

        Args:
            skills: The library's skills.
            patience: Seconds to wait for work in the background: for a command that ends
                after the request.
            on_wait: Called while it waits, with how many are indexed, and of how many.
        """
        if self._pid != os.getpid():
            self._start()  # a fork must not use the parent's threads and locks
        skills = tuple(skills)  # identity holds for tuples only: a list may change
        seen = self._lookup(skills)
        end = time.monotonic() + patience
        while not seen.complete and (thread := self._thread) is not None:
            left = end - time.monotonic()
            if left <= 0:
                break
            thread.join(min(left, _REPORT_INTERVAL_S))
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
    ) -> IndexState:
        """Index all skills in the foreground and remove skills without a file.

        Args:
            skills: The library's skills.
            progress: Called with the number of indexed skills and the total.
            rebuild: Delete the index first.

        Raises:
            Conflict: another process is writing the index.
            Refused: the index cannot be written.
        """
        if self._pid != os.getpid():
            self._start()
        self._stop_thread()
        try:
            with self._writing(BUILD_WAIT_S):
                return self._build(tuple(skills), progress, rebuild=rebuild).answer
        except TimeoutError as exc:
            raise Conflict(say("Another process is writing the index"), say("Try again")) from exc
        except OSError as exc:
            raise Refused(
                say("The index cannot be written: {reason}", reason=_reason(exc)),
                say("Check the permissions"),
            ) from exc

    def _stop_thread(self) -> None:
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
    ) -> _KnownSkills:
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
            # Usually nothing is left; files in use that cannot be removed are replaced.
            todo = list(skills)
            gone = sorted(index.stamps().keys() - set(keys_of(skills)))
        else:
            todo, gone = self._difference(skills, index, MAX_UNKNOWN_KEYS)
        if todo or gone or not before:

            def report(done: int) -> None:
                if progress is not None:
                    progress(done, len(todo))

            index.update(map(self._row, todo), gone, report)
        with self._lock:
            return self._finish(index, skills)

    # --- looking --------------------------------------------------------------------------

    def _lookup(self, skills: tuple[Skill, ...]) -> _KnownSkills:
        """Return the state of these skills; compute it if necessary."""
        seen = self._remembered(skills)
        if seen is None:
            with self._lock:
                seen = self._remembered(skills) or self._compare(skills)
        return seen

    def _remembered(self, skills: tuple[Skill, ...]) -> _KnownSkills | None:
        seen = self._seen.get(id(skills))
        if seen is None or seen.skills is not skills:
            return None
        if seen.complete:
            index = seen.answer.ready
            return seen if index is None or index.version() == seen.version else None
        working = self._thread is not None or time.monotonic() < seen.retry_at
        return seen if working else None

    def _compare(self, skills: tuple[Skill, ...]) -> _KnownSkills:
        """Compare, index a few skills immediately, leave more to the thread."""
        todo: Sequence[Skill] = skills
        try:
            index = self._opened(len(skills))
            before = index.version()  # a change during the comparison is detected next time
            todo, gone = self._difference(skills, index, MAX_INLINE_SKILLS)
            if not todo and not gone:
                return self._remember(skills, (), before)
            if self._thread is None and len(todo) <= MAX_INLINE_SKILLS:
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
                atexit.register(self._stop_thread)  # saves what was read
        except Exception as exc:  # noqa: BLE001 - a search works without an index; the note contains the reason
            if (
                self.folder is not None
                and isinstance(exc, OSError)
                and len(skills) < MAX_IN_MEMORY_SKILLS
            ):
                self._unkept, self._where, self._index = _reason(exc), None, None
                return self._compare(skills)
            self._error = _reason(exc)
        return self._remember(skills, todo)

    def _difference(
        self, skills: Sequence[Skill], index: FieldIndex, most: int
    ) -> tuple[list[Skill], list[str]]:
        """Return new, changed and removed skills by their stamps.

        An unknown key is removed if its file is gone: the index may serve a user who sees more
        skills. With more than `most` unknown keys, their files are not checked.
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
    ) -> _KnownSkills:
        """Cache the state; `complete_at` is the version without pending work."""
        index = self._index
        usable = index if index is not None and index.version() else None
        complete = complete_at is not None and (usable is not None or not skills)
        if complete_at is not None and not complete:
            todo = skills  # the index was lost
        answer = IndexState(usable, todo, self._note(len(skills), len(todo)))
        retry_at = time.monotonic() + RETRY_AFTER_S if self._error else 0.0
        seen = _KnownSkills(skills, answer, complete, complete_at or (), retry_at)
        self._seen.pop(id(skills), None)
        self._seen[id(skills)] = seen
        while len(self._seen) > MAX_REMEMBERED_LIBRARIES:
            del self._seen[next(iter(self._seen))]
        return seen

    def _note(self, count: int, left: int) -> str:
        if self._error or self._unkept:
            reason = self._error or self._unkept
            return say("The index cannot be written: {reason}", reason=reason)
        if left:
            return say(
                "The index is being built: {done} of {count} skills",
                done=f"{count - left:,}",
                count=f"{count:,}",
            )
        if self._unread:
            path, reason = next(iter(self._unread.items()))
            return say(
                "Skills that could not be read: {count}, such as `{path}` ({reason})",
                count=len(self._unread),
                path=path,
                reason=reason,
            )
        return ""

    # --- working --------------------------------------------------------------------------

    def _work(self, skills: tuple[Skill, ...]) -> None:
        """Thread body: index all of these skills when no other process writes."""
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
        except Exception as exc:  # noqa: BLE001 - the note contains the reason
            with self._lock:
                self._error = _reason(exc)
                if (seen := self._seen.get(id(skills))) is not None:
                    self._remember(skills, seen.answer.unindexed)
        finally:
            with self._lock:
                self._thread = None

    def _index_batches(self, skills: tuple[Skill, ...], index: FieldIndex) -> None:
        todo, gone = self._difference(skills, index, MAX_UNKNOWN_KEYS)
        at, batch = 0, MIN_BATCH_SKILLS
        while True:
            end = at + batch
            if todo[at:end] or gone:
                rows = (self._row(skill) for skill in todo[at:end] if not self._stopping)
                index.update(rows, gone)
            with self._lock:
                if self._stopping or self._index is not index:
                    return
                self._error = ""
                if end >= len(todo):
                    self._finish(index, skills)
                    return
                if id(skills) in self._seen:
                    self._remember(skills, todo[end:])
            at, batch, gone = end, min(2 * batch, MAX_BATCH_SKILLS), []

    def _row(self, skill: Skill) -> IndexRow:
        """Return the row of a skill; of its header if the file cannot be read."""
        try:
            row = self._make_row(skill)
        except (SatchelError, OSError) as exc:
            self._unread[skill.path] = _reason(exc)
            return self._head_row(skill)
        self._unread.pop(row.key, None)
        return row

    def _opened(self, count: int) -> FieldIndex:
        """Return the index of the engine for this number of skills.

        Raises:
            OSError: its folder cannot be made.
        """
        index = self._index
        self._largest = max(self._largest, count)
        if index is not None and index.engine == choose_engine(self.folder, self._largest):
            return index
        self._index = open_index(self.folder, self._largest)
        self._seen = {}
        return self._index

    def _finish(self, index: FieldIndex, skills: tuple[Skill, ...]) -> _KnownSkills:
        """Mark the index as complete. Requires both locks."""
        self._error = ""
        if self.folder is not None:
            remove_indexes(self.folder, index.engine)
        return self._remember(skills, (), index.version())

    def _writing(self, patience: float) -> AbstractContextManager[None]:
        if self.folder is None:
            return nullcontext()
        return locked(os.path.join(self.folder, "writer.lock"), timeout=patience)


def keys_of(skills: Sequence[Skill]) -> list[str]:
    """Return the `path` of each skill; optimised, since a library may have a million."""
    places: dict[int, tuple[SkillOrigin, str]] = {}
    keys: list[str] = []
    for skill in skills:
        head, origin = skill.head, skill.origin
        place = places.get(id(origin))
        if place is None:
            place = places[id(origin)] = (origin, os.path.join(origin.root, ""))
        keys.append(f"{place[1]}{head.id}{os.sep}{head.file}" if head.id else place[1] + head.file)
    return keys


def _changed(
    skills: Sequence[Skill], keys: Sequence[str], stamps: Mapping[str, Stamp]
) -> list[Skill]:
    """Return skills whose text is not indexed."""
    pairs = zip(map(stamps.get, keys), skills, strict=True)
    return [skill for known, skill in pairs if known != file_stamp(skill)]


def _missing(keys: Iterable[str]) -> list[str]:
    return sorted(key for key in keys if not os.path.exists(key))


def _reason(exc: BaseException) -> str:
    if isinstance(exc, SatchelError):
        return exc.message
    said = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return said.strip().partition("\n")[0] or type(exc).__name__
