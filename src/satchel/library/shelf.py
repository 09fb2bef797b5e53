"""What was seen in one location, and how one file is read into it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import RACY_NS, is_really_inside
from satchel.skill.head import READ_FIRST, full_head, quick_head
from satchel.skill.problems import NO_PROBLEMS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.library.locations import Location
    from satchel.skill.model import Head

_MAX_HEAD = 68 * 1024
_OPEN = os.O_RDONLY | sum(getattr(os, f"O_{n}", 0) for n in ("NONBLOCK", "CLOEXEC", "NOCTTY"))
_TYPE, _REGULAR = 0o170000, 0o100000


class Bounds(NamedTuple):
    """How far a walk goes."""

    depth: int = 6
    folders: int = 500_000


class Broken(NamedTuple):
    """A file that is no skill, and why."""

    id: str
    file: str
    stamp: tuple[int, int, int]
    problems: tuple[Problem, ...]


class Shelf:
    """What was seen in one location. A Library owns it; snapshots share only its Heads."""

    def __init__(self, location: Location, bounds: Bounds) -> None:
        self.location = location
        self.bounds = bounds
        self.folders: dict[str, int] = {}
        """Folder (relative, `""` is the root) -> its stamp; 0 means look again."""
        self.heads: dict[str, Head] = {}
        self.broken: dict[str, Broken] = {}
        self.notes: dict[str, list[Problem]] = {}
        """Folder -> what was odd while listing it."""
        self.followed: dict[str, str] = {}
        """Link target -> the folder that led there, so that no target is walked twice."""
        self.reads = 0
        """Files opened since the last look: tests count on it."""
        self.guarded = location.trusted is not True and bool(location.boundary)
        """Links may not lead out of the boundary."""
        self.settled = 0
        """Stamps up to this moment will not change without being noticed."""

    def begin(self) -> None:
        """A look at the disk begins now."""
        self.reads = 0
        self.settled = time.time_ns() - RACY_NS

    def path_of(self, folder: str) -> str:
        """The absolute path of a folder of this location."""
        return f"{self.location.path}/{folder}" if folder else self.location.path

    def note(self, folder: str, problem: Problem) -> None:
        """Remember something odd about a folder, once."""
        notes = self.notes.setdefault(folder, [])
        if problem not in notes:
            notes.append(problem)

    def clear(self) -> None:
        """Forget everything."""
        for table in (self.folders, self.heads, self.broken, self.notes, self.followed):
            table.clear()

    def forget(self, folder: str) -> None:
        """Drop one folder; what is below it is dropped by whoever knows its children."""
        for table in (self.folders, self.heads, self.broken, self.notes):
            table.pop(folder, None)
        if self.followed:
            for target, via in list(self.followed.items()):
                if via == folder:
                    del self.followed[target]

    def drop_skill(self, skill_id: str) -> None:
        """The folder holds no SKILL.md any more."""
        self.heads.pop(skill_id, None)
        self.broken.pop(skill_id, None)

    def read(self, skill_id: str, path: str, file: str) -> bool:
        """Read one file's head, as a skill or as broken; False when there is no such file."""
        try:
            descriptor = os.open(path, _OPEN)
        except OSError as exc:
            self.drop_skill(skill_id)
            if isinstance(exc, FileNotFoundError) and not os.path.islink(path):
                return False
            self._refuse(skill_id, file, (0, 0, 0), _unreadable(path, exc))
            return True
        self.reads += 1
        try:
            info = os.fstat(descriptor)
            ctime = info.st_ctime_ns
            stamp = (info.st_mtime_ns, ctime if ctime <= self.settled else 0, info.st_size)
            if info.st_mode & _TYPE != _REGULAR:
                self._refuse(skill_id, file, stamp, _not_a_file(path, file, info.st_mode))
                return True
            if self.guarded and self._escapes(path):
                values = {"target": os.path.realpath(path)}
                self._refuse(skill_id, file, stamp, Problem("outside-root", path, values=values))
                return True
            data = os.read(descriptor, READ_FIRST)
            head = quick_head(data, skill_id, file, stamp) if skill_id else None
            if head is None:
                if len(data) == READ_FIRST and data.find(b"\n---", 3) < 0:
                    data += _read_on(descriptor)
                return self._read_fully(data, skill_id, path, file, stamp)
        except OSError as exc:
            self._refuse(skill_id, file, (0, 0, 0), _unreadable(path, exc))
            return True
        finally:
            os.close(descriptor)
        self.heads[skill_id] = head
        if self.broken:
            self.broken.pop(skill_id, None)
        return True

    def _read_fully(
        self, data: bytes, skill_id: str, path: str, file: str, stamp: tuple[int, int, int]
    ) -> bool:
        """The real parser, for what is not simple."""
        named = skill_id or os.path.basename(self.location.path)
        head, problems = full_head(data, named, file, stamp)
        if head is None:
            self._refuse(skill_id, file, stamp, *(problem.at(path) for problem in problems))
        else:
            self.heads[skill_id] = head if skill_id else head._replace(id="")
            self.broken.pop(skill_id, None)
        return True

    def _refuse(
        self, skill_id: str, file: str, stamp: tuple[int, int, int], *problems: Problem
    ) -> None:
        self.heads.pop(skill_id, None)
        self.broken[skill_id] = Broken(skill_id, file, stamp, problems or NO_PROBLEMS)

    def _escapes(self, path: str) -> bool:
        """Whether a file of an untrusted location really lies elsewhere."""
        if not self.followed and not os.path.islink(path):
            return False
        return not is_really_inside(path, self.location.boundary)


def find_repeated(
    shelves: Sequence[Shelf], ids: Callable[[int], Iterable[str]]
) -> dict[int, set[str]]:
    """Skills that an earlier location of the same trust holds too: links lead to one folder.

    Args:
        shelves: The locations in their order.
        ids: The skills of the location at a position.

    Returns:
        Position of a location -> those of its skills.
    """
    found: dict[int, set[str]] = {}
    if not any(shelf.followed for shelf in shelves):
        return found
    seen: set[tuple[str, bool | None]] = set()
    for at, shelf in enumerate(shelves):
        root = os.path.realpath(shelf.location.path)
        targets = {via: target for target, via in shelf.followed.items()}
        for skill_id in ids(at):
            via = skill_id
            while via and via not in targets:
                via = via.rpartition("/")[0]
            real = targets[via] + skill_id[len(via) :] if via else f"{root}/{skill_id}"
            key = (real, shelf.location.trusted)
            if key in seen:
                found.setdefault(at, set()).add(skill_id)
            seen.add(key)
    return found


def without(ids: Iterable[str], left_out: set[str] | None) -> Iterable[str]:
    """The ids in their order, without some."""
    return [one for one in ids if one not in left_out] if left_out else ids


def _unreadable(path: str, exc: OSError) -> Problem:
    return Problem("unreadable", path, values={"reason": exc.strerror or str(exc)})


def _not_a_file(path: str, file: str, mode: int) -> Problem:
    from satchel.skill.file_kind import kind_of_mode

    return Problem("not-a-file", path, values={"file": file, "kind": kind_of_mode(mode)})


def _read_on(descriptor: int) -> bytes:
    """The rest of a long frontmatter, up to the bound."""
    parts: list[bytes] = []
    left = _MAX_HEAD
    while left > 0 and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
