"""Finds the lock entries of skills, in the lockfiles of a library's locations."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import RACY_NS
from satchel.errors import LockBroken
from satchel.library.lockfile import read_lock
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.library.locations import Location
    from satchel.library.lockfile import Lock, LockEntry
    from satchel.library.verdict_cache import VerdictCache
    from satchel.skill.model import Skill, SkillOrigin

_MAX_QUICK_LOCK_BYTES = 128 * 1024
"""Larger lockfiles are not read during a refresh, unless they changed."""
_NO_LOCK: Lock = {}


class _FileStamp(NamedTuple):
    """The values of a file's status that a change of the file alters."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int


class _CachedLock(NamedTuple):
    """A lockfile as it was read."""

    stamp: _FileStamp | None
    """None for a file that was written just before: a later change may not alter its stamp."""
    lock: Lock
    error: LockBroken | None


class LockedSkills:
    """The lock entries of the skills of a library; a lockfile is read again when it changed."""

    def __init__(
        self, locations_by_origin: Mapping[SkillOrigin, Location], scans: VerdictCache
    ) -> None:
        """Wrap the lockfiles of locations.

        Args:
            locations_by_origin: The locations by the origin of their skills.
            scans: Remembers which large lockfiles are valid.
        """
        self._locations_by_origin = locations_by_origin
        self._scans = scans
        self._locks_by_path: dict[str, _CachedLock] = {}

    def find_entry(self, skill: Skill) -> LockEntry | None:
        """The lock entry of a skill, or of the skill around it.

        Raises:
            LockBroken: its lockfile is damaged.
        """
        location = self._locations_by_origin.get(skill.origin)
        path = location.lock if location is not None else ""
        lock = self._read(path) if path else _NO_LOCK
        skill_id = skill.head.id
        while lock and skill_id:
            entry = lock.get(skill_id)
            if entry is not None:
                return entry
            skill_id = skill_id.rpartition("/")[0]
        return None

    def find_problem(self, path: str, *, deep: bool = False) -> Problem | None:
        """The problem of a damaged lockfile; a large one is read once, and again when `deep`."""
        stamp = _read_stamp(path)
        if stamp is None:
            return None
        is_large = stamp.size > _MAX_QUICK_LOCK_BYTES
        cache_key = f"lock {path} {tuple(stamp)}" if is_large and not deep else ""
        if cache_key and self._scans.has_text(cache_key):
            return None
        try:
            self._read(path)
        except LockBroken as exc:
            return Problem("lock-broken", path, values={"reason": exc.why, "fix": exc.hint})
        if cache_key and _is_settled(stamp):
            self._scans.add_text(cache_key)
        return None

    def _read(self, path: str) -> Lock:
        stamp = _read_stamp(path)
        if stamp is None:
            return _NO_LOCK
        cached = self._locks_by_path.get(path)
        if cached is None or cached.stamp != stamp:
            cached = self._locks_by_path[path] = _load(path, stamp)
        if cached.error is not None:
            raise LockBroken(cached.error.message, cached.error.hint)
        return cached.lock


def locked_files(entry: LockEntry, skill: Skill) -> Mapping[str, str]:
    """The locked files of a skill, whose folder may lie inside that of a locked skill."""
    inner_folder = skill.head.id[len(entry.id) + 1 :]
    if not inner_folder:
        return entry.files
    prefix = f"{inner_folder}/"
    return {
        path.removeprefix(prefix): digest
        for path, digest in entry.files.items()
        if path.startswith(prefix)
    }


def _load(path: str, stamp: _FileStamp) -> _CachedLock:
    lock, error = _NO_LOCK, None
    try:
        lock = read_lock(path)
    except LockBroken as exc:
        error = exc
    return _CachedLock(stamp if _is_settled(stamp) else None, lock, error)


def _read_stamp(path: str) -> _FileStamp | None:
    try:
        info = os.lstat(path)  # links are not followed
    except OSError:
        return None
    return _FileStamp(info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino)


def _is_settled(stamp: _FileStamp) -> bool:
    """Whether a later change of a file is sure to alter its stamp."""
    return time.time_ns() - stamp.ctime_ns >= RACY_NS
