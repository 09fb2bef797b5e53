"""The state of a scanned location: its folders, headers, manifests, broken files and problems.

`scanner` fills it and `scan_cache` saves it. Snapshots share its headers.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import RACY_NS, is_really_inside
from satchel.skill.problems import NO_PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from satchel.library.locations import Location
    from satchel.skill.document import SkillHeader
    from satchel.skill.manifest_parser import ManifestResult
    from satchel.skill.problems import Problem

Stamp = tuple[int, int, int]
"""mtime, ctime and size."""
UNKNOWN_STAMP: Stamp = (0, 0, 0)
"""The stamp of a file that must be read again."""
UNKNOWN_CTIME_NS = 0
"""The stamp of a folder that must be scanned again."""


class SkillKey(NamedTuple):
    """Identifies a skill in a library."""

    location: str
    """The path of its location."""
    skill_id: str

    @property
    def folder(self) -> str:
        """The skill's folder."""
        return os.path.join(*self)


class WalkLimits(NamedTuple):
    """Limits of a walk."""

    depth: int = 6
    folders: int = 500_000


class BrokenFile(NamedTuple):
    """A file that is no skill, and its problems."""

    id: str
    file: str
    stamp: Stamp
    problems: tuple[Problem, ...]


class ManifestFile(NamedTuple):
    """A skill.yaml."""

    stamp: Stamp = UNKNOWN_STAMP
    digest: str = ""
    """Hexadecimal SHA-256."""
    reading: ManifestResult | None = None
    header: SkillHeader | None = None
    """The header of a skill without a SKILL.md."""
    problems: tuple[Problem, ...] = NO_PROBLEMS
    """Why it could not be read."""

    @property
    def is_misnamed(self) -> bool:
        """Whether it is called `skill.yml`, and so is no tool skill."""
        return any(problem.code == "tool-file-name" for problem in self.problems)


class LocationState:
    """The result of scanning one location."""

    def __init__(self, location: Location, limits: WalkLimits) -> None:
        self.location = location
        self.limits = limits
        self.folders: dict[str, int] = {}
        """Folder (relative, `""` is the root) -> its ctime, or `UNKNOWN_CTIME_NS`."""
        self.headers: dict[str, SkillHeader] = {}
        self.broken: dict[str, BrokenFile] = {}
        self.manifests: dict[str, ManifestFile] = {}
        self.folder_problems: dict[str, list[Problem]] = {}
        """Folder -> problems of listing it."""
        self.link_by_target: dict[str, str] = {}
        """Link target -> the link, so that no target is walked twice."""
        self.reads = 0
        """SKILL.md files opened by the last scan."""
        self.is_confined = location.is_confined
        self.settled_ns = 0
        """Later changes of files with stamps up to this moment are detectable."""

    def start_scan(self) -> None:
        """Start a scan now."""
        self.reads = 0
        self.settled_ns = time.time_ns() - RACY_NS

    def settled_ctime(self, info: os.stat_result) -> int:
        """A ctime that every later change alters; `UNKNOWN_CTIME_NS` when it is too recent."""
        ctime = info.st_ctime_ns
        return ctime if ctime <= self.settled_ns else UNKNOWN_CTIME_NS

    def set_manifest(self, folder: str, *, exists: bool) -> None:
        """Record whether a folder has a skill.yaml, which is read after the walk."""
        if exists:
            self.manifests.setdefault(folder, ManifestFile())
        elif self.manifests:
            self.manifests.pop(folder, None)

    def header_of(self, skill_id: str) -> SkillHeader | None:
        """The header of a skill, from its SKILL.md or else its skill.yaml."""
        manifest = self.manifests.get(skill_id)
        return self.headers.get(skill_id) or (manifest.header if manifest is not None else None)

    def path_of(self, folder: str) -> str:
        """The absolute path of a folder of this location."""
        return f"{self.location.path}/{folder}" if folder else self.location.path

    def escapes(self, path: str) -> bool:
        """Whether the real path of a file lies outside the boundary of its untrusted location."""
        if not self.is_confined or (not self.link_by_target and not os.path.islink(path)):
            return False
        return not is_really_inside(path, self.location.boundary)

    def add_problem(self, folder: str, problem: Problem) -> None:
        """Add a problem of a folder, once."""
        problems = self.folder_problems.setdefault(folder, [])
        if problem not in problems:
            problems.append(problem)

    def add_broken(self, broken: BrokenFile) -> None:
        """Record a file that is no skill, in place of a skill that it was."""
        self.headers.pop(broken.id, None)
        self.broken[broken.id] = broken

    def add_link(self, target: str, link: str) -> None:
        """Record a link that is followed; a target that it had before does not count any more."""
        # One target per link: trust in an earlier target must not apply.
        self._remove_link(link)
        self.link_by_target[target] = link

    def clear(self) -> None:
        """Remove everything."""
        self.link_by_target.clear()
        for table in self._tables():
            table.clear()

    def remove_folder(self, folder: str) -> None:
        """Remove one folder, without those below it."""
        for table in self._tables():
            table.pop(folder, None)
        self._remove_link(folder)

    def remove_skill(self, skill_id: str) -> None:
        """Remove a skill whose SKILL.md does not exist any more."""
        self.headers.pop(skill_id, None)
        self.broken.pop(skill_id, None)

    def _remove_link(self, link: str) -> None:
        targets = [target for target, name in self.link_by_target.items() if name == link]
        for target in targets:
            del self.link_by_target[target]

    def _tables(self) -> tuple[dict[str, Any], ...]:
        return (self.folders, self.headers, self.broken, self.manifests, self.folder_problems)


class LocatedHeader(NamedTuple):
    """The header of a skill, and the location that has it."""

    state: LocationState
    header: SkillHeader

    @property
    def key(self) -> SkillKey:
        """Identifies the skill."""
        return SkillKey(self.state.location.path, self.header.id)


def stamp_of(info: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return info.st_mtime_ns, info.st_ctime_ns, info.st_size


def parent_folders(folder: str) -> Iterator[str]:
    """The parents of a folder of a location, innermost first."""
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        yield folder


def find_repeated(
    states: Sequence[LocationState], ids: Sequence[Iterable[str]]
) -> dict[int, set[str]]:
    """Index of a location -> its skills that links also put into an earlier one of equal trust."""
    repeated: dict[int, set[str]] = {}
    if not any(state.link_by_target for state in states):
        return repeated
    earlier_keys: set[tuple[str, bool | None]] = set()
    for index, state in enumerate(states):
        root = os.path.realpath(state.location.path)
        targets = {link: target for target, link in state.link_by_target.items()}
        for skill_id in ids[index]:
            link = skill_id
            while link and link not in targets:
                link = link.rpartition("/")[0]
            real_path = targets[link] + skill_id[len(link) :] if link else f"{root}/{skill_id}"
            key = (real_path, state.location.trusted)
            if key in earlier_keys:
                repeated.setdefault(index, set()).add(skill_id)
            earlier_keys.add(key)
    return repeated
