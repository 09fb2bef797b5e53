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
import shutil
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import locked
from satchel._optional import available
from satchel.detect.index import file_stamp
from satchel.errors import Conflict, Refused, SatchelError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from satchel.detect.index import FieldIndex, IndexRow, Stamp
    from satchel.skill import Skill
    from satchel.skill.model import SkillOrigin

FORMAT_VERSION = 5
"""Part of the folder name. Increment it when the format or the tokenizer changes; the index is
rebuilt."""

MIN_TANTIVY_SKILLS = 250
"""From this size tantivy is faster than plain Python."""
_ENGINE_FOLDER = re.compile(r"(memory|fts5|tantivy)-(\d+)")
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


def choose_engine(folder: str | None, count: int) -> str:
    """Return `memory` or `tantivy`: the engine that `open_index` uses."""
    if folder is None:
        return "memory"
    # Switching back requires half as many skills, which prevents flapping.
    uses_tantivy = os.path.isdir(os.path.join(folder, f"tantivy-{FORMAT_VERSION}"))
    min_skills = MIN_TANTIVY_SKILLS // 2 if uses_tantivy else MIN_TANTIVY_SKILLS
    return "tantivy" if count >= min_skills and available("tantivy") is not None else "memory"


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
    location = os.path.join(folder, f"{engine}-{FORMAT_VERSION}") if folder is not None else None
    if location is not None and engine == "tantivy":
        from satchel.detect.index.tantivy_index import TantivyIndex

        return TantivyIndex(location)
    from satchel.detect.index.memory import MemoryIndex

    if location is not None:
        os.makedirs(location, mode=0o700, exist_ok=True)
    return MemoryIndex(location)


def remove_indexes(folder: str, engine: str = "") -> None:
    """Remove the indexes in `folder` that a complete one of `engine` has replaced.

    Those are older formats, and the one in plain Python once tantivy has taken over. Without an
    engine, all of them are removed. A newer format stays: another installation uses it.
    """
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        match = _ENGINE_FOLDER.fullmatch(name)
        if match is None or int(match[2]) > FORMAT_VERSION:
            continue
        is_replaced = match[1] == "memory" and engine != "memory"
        if not engine or int(match[2]) < FORMAT_VERSION or is_replaced:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


class IndexState(NamedTuple):
    """The searchable state."""

    field_index: FieldIndex | None
    """None when nothing is indexed yet. May return keys of unknown skills."""
    unindexed: Sequence[Skill]
    """Skills whose current text is not indexed."""
    note: str
    """A note for the user: the index is being built, or why it cannot be; else empty."""


class _SyncedSkills(NamedTuple):
    """The state of one skill sequence."""

    skills: tuple[Skill, ...]
    state: IndexState
    is_complete: bool
    """Complete as long as the index has this version."""
    version: tuple[int, ...]
    retry_at: float


class IndexSync:
    """Keeps one index up to date with one library."""

    def __init__(
        self,
        folder: Callable[[], str] | str | None,
        make_row: Callable[[Skill], IndexRow],
        make_header_row: Callable[[Skill], IndexRow],
    ) -> None:
        """Create the synchroniser; nothing is opened.

        Args:
            folder: The index folder, one per set of skills, or a function that returns it; None
                keeps the index in memory.
            make_row: Reads and tokenises a skill.
            make_header_row: Tokenises a skill's header, for a skill that cannot be read.
        """
        self._folder_source = folder
        self._make_row = make_row
        self._make_header_row = make_header_row
        self._reset_state()

    @property
    def folder(self) -> str | None:
        """The index folder; None for memory."""
        if callable(self._folder_source):
            self._folder_source = self._folder_source()
        return self._folder_source

    def _reset_state(self) -> None:
        """Forget everything: at the start, and in a process that was forked."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._max_skill_count = 0
        """The largest number of skills seen: users and models share one engine."""
        self._index: FieldIndex | None = None
        self._synced: dict[int, _SyncedSkills] = {}
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._open_error = ""
        self._write_error = ""
        self._unread_reasons: dict[str, str] = {}

    def current(
        self,
        skills: Sequence[Skill],
        timeout_s: float = 0.0,
        on_wait: Callable[[int, int], None] | None = None,
    ) -> IndexState:
        """Return the searchable state; repeated calls with one sequence cost nothing.

        Args:
            skills: The library's skills.
            timeout_s: Seconds to wait for work in the background: for a command that ends
                after the request.
            on_wait: Called while it waits, with how many are indexed, and of how many.
        """
        if self._pid != os.getpid():
            self._reset_state()  # a fork must not use the parent's threads and locks
        skills = tuple(skills)  # identity holds for tuples only: a list may change
        synced = self._state_for(skills)
        end = time.monotonic() + timeout_s
        while not synced.is_complete and (thread := self._thread) is not None:
            remaining_s = end - time.monotonic()
            if remaining_s <= 0:
                break
            thread.join(min(remaining_s, _REPORT_INTERVAL_S))
            synced = self._state_for(skills)
            if on_wait is not None:
                on_wait(len(skills) - len(synced.state.unindexed), len(skills))
        return synced.state

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
            self._reset_state()
        self._stop_thread()
        try:
            with self._lock_for_writing(BUILD_WAIT_S):
                return self._build(tuple(skills), progress, rebuild=rebuild).state
        except TimeoutError as exc:
            raise Conflict(say("Another process is writing the index"), say("Try again")) from exc
        except OSError as exc:
            raise Refused(
                say("The index cannot be written: {reason}", reason=_describe_error(exc)),
                say("Check the permissions"),
            ) from exc

    def _stop_thread(self) -> None:
        self._is_stopping = True
        if (thread := self._thread) is not None:
            thread.join()
        self._is_stopping = False

    def _build(
        self,
        skills: tuple[Skill, ...],
        progress: Callable[[int, int], None] | None,
        *,
        rebuild: bool,
    ) -> _SyncedSkills:
        with self._lock:
            if rebuild:
                self._synced = {}
                self._index = None
                if self.folder is not None:
                    remove_indexes(self.folder)
            index = self._open_index(len(skills))
        self._unread_reasons.clear()
        version_before = index.version()
        if rebuild:
            # Usually nothing is left; files in use that cannot be removed are replaced.
            pending = list(skills)
            removed_keys = sorted(index.stamps().keys() - set(list_keys(skills)))
        else:
            pending, removed_keys = self._find_changes(skills, index, MAX_UNKNOWN_KEYS)
        if pending or removed_keys or not version_before:

            def report(indexed_count: int) -> None:
                if progress is not None:
                    progress(indexed_count, len(pending))

            index.update(map(self._make_row_or_header, pending), removed_keys, report)
        with self._lock:
            return self._mark_complete(index, skills)

    # --- looking --------------------------------------------------------------------------

    def _state_for(self, skills: tuple[Skill, ...]) -> _SyncedSkills:
        """Return the state of these skills; compute it if necessary."""
        synced = self._recall(skills)
        if synced is None:
            with self._lock:
                synced = self._recall(skills) or self._synchronise(skills)
        return synced

    def _recall(self, skills: tuple[Skill, ...]) -> _SyncedSkills | None:
        synced = self._synced.get(id(skills))
        if synced is None or synced.skills is not skills:
            return None
        if synced.is_complete:
            index = synced.state.field_index
            return synced if index is None or index.version() == synced.version else None
        is_waiting = self._thread is not None or time.monotonic() < synced.retry_at
        return synced if is_waiting else None

    def _synchronise(self, skills: tuple[Skill, ...]) -> _SyncedSkills:
        """Compare, index a few skills immediately, leave more to the thread."""
        pending: Sequence[Skill] = skills
        try:
            index = self._open_index(len(skills))
            version_before = index.version()  # a change during the comparison is detected next time
            pending, removed_keys = self._find_changes(skills, index, MAX_INLINE_SKILLS)
            if not pending and not removed_keys:
                return self._remember(skills, (), version_before)
            if self._thread is None:
                if len(pending) <= MAX_INLINE_SKILLS:
                    synced = self._try_inline(
                        skills,
                        index,
                        pending=pending,
                        removed_keys=removed_keys,
                        version_before=version_before,
                    )
                    if synced is not None:
                        return synced
                self._start_thread(skills)
        except Exception as exc:  # noqa: BLE001 - a search works without an index; the note contains the reason
            if self._fall_back_to_memory(exc, len(skills)):
                return self._synchronise(skills)
            self._write_error = _describe_error(exc)
        return self._remember(skills, pending)

    def _try_inline(
        self,
        skills: tuple[Skill, ...],
        index: FieldIndex,
        *,
        pending: Sequence[Skill],
        removed_keys: Sequence[str],
        version_before: tuple[int, ...],
    ) -> _SyncedSkills | None:
        """Index a few skills at once; returns None when another process writes or has written."""
        try:
            with self._lock_for_writing(0.0):
                if index.version() != version_before:
                    return None
                index.update([self._make_row_or_header(skill) for skill in pending], removed_keys)
                return self._mark_complete(index, skills)
        except TimeoutError:
            return None  # the thread waits for its turn

    def _start_thread(self, skills: tuple[Skill, ...]) -> None:
        """Leave these skills to a thread, which waits for our lock."""
        thread = threading.Thread(
            target=self._run_thread, args=(skills,), name="satchel-index", daemon=True
        )
        thread.start()
        self._thread = thread
        atexit.register(self._stop_thread)  # saves what was read

    def _fall_back_to_memory(self, exc: Exception, skill_count: int) -> bool:
        """Keep the index of a few skills in memory when the disk refuses it; returns whether."""
        is_disk_error = self.folder is not None and isinstance(exc, OSError)
        if not is_disk_error or skill_count >= MAX_IN_MEMORY_SKILLS:
            return False
        self._open_error = _describe_error(exc)
        self._folder_source = None
        self._index = None
        return True

    def _find_changes(
        self, skills: Sequence[Skill], index: FieldIndex, max_unknown: int
    ) -> tuple[list[Skill], list[str]]:
        """Return new, changed and removed skills by their stamps.

        An unknown key is removed if its file is gone: the index may serve a user who sees more
        skills. With more than `max_unknown` unknown keys, their files are not checked.
        """
        stamps = index.stamps()
        keys = list_keys(skills)
        pending = _select_changed(skills, keys, stamps)
        if len(stamps) == len(skills) - len(pending):
            return pending, []  # no other keys are in it
        unknown_keys = stamps.keys() - set(keys)
        return pending, _select_missing(unknown_keys) if len(unknown_keys) <= max_unknown else []

    def _remember(
        self,
        skills: tuple[Skill, ...],
        pending: Sequence[Skill],
        complete_version: tuple[int, ...] | None = None,
    ) -> _SyncedSkills:
        """Cache the state; `complete_version` is the version without pending work."""
        index = self._index
        usable_index = index if index is not None and index.version() else None
        is_complete = complete_version is not None and (usable_index is not None or not skills)
        if complete_version is not None and not is_complete:
            pending = skills  # the index was lost
        state = IndexState(usable_index, pending, self._describe_state(len(skills), len(pending)))
        retry_at = time.monotonic() + RETRY_AFTER_S if self._write_error else 0.0
        synced = _SyncedSkills(skills, state, is_complete, complete_version or (), retry_at)
        self._synced.pop(id(skills), None)
        self._synced[id(skills)] = synced
        while len(self._synced) > MAX_REMEMBERED_LIBRARIES:
            del self._synced[next(iter(self._synced))]
        return synced

    def _describe_state(self, count: int, unindexed_count: int) -> str:
        if self._write_error or self._open_error:
            reason = self._write_error or self._open_error
            return say("The index cannot be written: {reason}", reason=reason)
        if unindexed_count:
            return say(
                "The index is being built: {done} of {count} skills",
                done=f"{count - unindexed_count:,}",
                count=f"{count:,}",
            )
        if self._unread_reasons:
            path, reason = next(iter(self._unread_reasons.items()))
            return say(
                "Skills that could not be read: {count}, such as `{path}` ({reason})",
                count=len(self._unread_reasons),
                path=path,
                reason=reason,
            )
        return ""

    # --- working --------------------------------------------------------------------------

    def _run_thread(self, skills: tuple[Skill, ...]) -> None:
        """Thread body: index all of these skills when no other process writes."""
        try:
            with self._lock:
                index = self._open_index(len(skills))
            while not self._is_stopping:
                try:
                    with self._lock_for_writing(THREAD_WAIT_S):
                        self._index_batches(skills, index)
                        break
                except TimeoutError:
                    continue
        except Exception as exc:  # noqa: BLE001 - the note contains the reason
            with self._lock:
                self._write_error = _describe_error(exc)
                if (synced := self._synced.get(id(skills))) is not None:
                    self._remember(skills, synced.state.unindexed)
        finally:
            with self._lock:
                self._thread = None

    def _index_batches(self, skills: tuple[Skill, ...], index: FieldIndex) -> None:
        pending, removed_keys = self._find_changes(skills, index, MAX_UNKNOWN_KEYS)
        start, batch_size = 0, MIN_BATCH_SKILLS
        while True:
            end = start + batch_size
            if pending[start:end] or removed_keys:
                rows = (
                    self._make_row_or_header(skill)
                    for skill in pending[start:end]
                    if not self._is_stopping
                )
                index.update(rows, removed_keys)
            with self._lock:
                if self._is_stopping or self._index is not index:
                    return
                self._write_error = ""
                if end >= len(pending):
                    self._mark_complete(index, skills)
                    return
                if id(skills) in self._synced:
                    self._remember(skills, pending[end:])
            start, removed_keys = end, []
            batch_size = min(2 * batch_size, MAX_BATCH_SKILLS)

    def _make_row_or_header(self, skill: Skill) -> IndexRow:
        """Return the row of a skill; of its header if the file cannot be read."""
        try:
            row = self._make_row(skill)
        except (SatchelError, OSError) as exc:
            self._unread_reasons[skill.path] = _describe_error(exc)
            return self._make_header_row(skill)
        self._unread_reasons.pop(row.key, None)
        return row

    def _open_index(self, count: int) -> FieldIndex:
        """Return the index of the engine for this number of skills.

        Raises:
            OSError: its folder cannot be made.
        """
        index = self._index
        self._max_skill_count = max(self._max_skill_count, count)
        if index is not None and index.engine == choose_engine(self.folder, self._max_skill_count):
            return index
        self._index = open_index(self.folder, self._max_skill_count)
        self._synced = {}
        return self._index

    def _mark_complete(self, index: FieldIndex, skills: tuple[Skill, ...]) -> _SyncedSkills:
        """Mark the index as complete. Requires both locks."""
        self._write_error = ""
        if self.folder is not None:
            remove_indexes(self.folder, index.engine)
        return self._remember(skills, (), index.version())

    def _lock_for_writing(self, timeout_s: float) -> AbstractContextManager[None]:
        if self.folder is None:
            return nullcontext()
        return locked(os.path.join(self.folder, "writer.lock"), timeout=timeout_s)


def list_keys(skills: Sequence[Skill]) -> list[str]:
    """Return the `path` of each skill; optimised, since a library may have a million."""
    origins: dict[int, tuple[SkillOrigin, str]] = {}
    keys: list[str] = []
    for skill in skills:
        head, origin = skill.head, skill.origin
        cached = origins.get(id(origin))
        if cached is None:
            cached = origins[id(origin)] = (origin, os.path.join(origin.root, ""))
        root = cached[1]
        keys.append(f"{root}{head.id}{os.sep}{head.file}" if head.id else root + head.file)
    return keys


def _select_changed(
    skills: Sequence[Skill], keys: Sequence[str], stamps: Mapping[str, Stamp]
) -> list[Skill]:
    """Return skills whose text is not indexed."""
    pairs = zip(map(stamps.get, keys), skills, strict=True)
    return [skill for stamp, skill in pairs if stamp != file_stamp(skill)]


def _select_missing(keys: Iterable[str]) -> list[str]:
    return sorted(key for key in keys if not os.path.exists(key))


def _describe_error(exc: BaseException) -> str:
    if isinstance(exc, SatchelError):
        return exc.message
    text = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return text.strip().partition("\n")[0] or type(exc).__name__
