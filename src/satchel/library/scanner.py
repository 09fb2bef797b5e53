"""Scans one location on disk for skills: folders with a SKILL.md, a skill.yaml or both.

`scan_location` walks all folders. `rescan_location` compares timestamps and reads only changes.
Limits, links and unreadable files become problems; nothing here raises for a skill's content.
`find_strays`, for `doctor` and `why`, finds files and folders that look like skills and are none.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import RACY_NS, is_inside, is_really_inside
from satchel.skill.document import MANIFEST
from satchel.skill.header import SCAN_BYTES, scan_header
from satchel.skill.problems import NO_PROBLEMS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from satchel.library.locations import Location
    from satchel.skill.document import SkillHeader
    from satchel.skill.manifest_parser import ManifestResult

Stamp = tuple[int, int, int]
"""mtime, ctime and size."""
_MAX_HEADER_BYTES = 68 * 1024
OPEN_FLAGS = os.O_RDONLY | sum(getattr(os, f"O_{n}", 0) for n in ("NONBLOCK", "CLOEXEC", "NOCTTY"))
_TYPE, _REGULAR = 0o170000, 0o100000


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

    stamp: Stamp = (0, 0, 0)
    """All zero when it must be read again."""
    digest: str = ""
    """Hexadecimal SHA-256."""
    reading: ManifestResult | None = None
    head: SkillHeader | None = None
    """The header of a skill without a SKILL.md."""
    problems: tuple[Problem, ...] = NO_PROBLEMS
    """Why it could not be read."""

    @property
    def misnamed(self) -> bool:
        """Whether it is called `skill.yml`, and so is no tool skill."""
        return any(one.code == "tool-file-name" for one in self.problems)


class LocationState:
    """The result of scanning one location. Snapshots share its headers."""

    def __init__(self, location: Location, bounds: WalkLimits) -> None:
        self.location = location
        self.bounds = bounds
        self.folders: dict[str, int] = {}
        """Folder (relative, `""` is the root) -> its stamp; 0 means scan again."""
        self.heads: dict[str, SkillHeader] = {}
        self.broken: dict[str, BrokenFile] = {}
        self.manifests: dict[str, ManifestFile] = {}
        self.notes: dict[str, list[Problem]] = {}
        """Folder -> problems of listing it."""
        self.followed: dict[str, str] = {}
        """Link target -> the link, so that no target is walked twice."""
        self.reads = 0
        """SKILL.md files opened by the last scan."""
        self.guarded = location.trusted is not True and bool(location.boundary)
        """Links may not lead out of the boundary."""
        self.settled = 0
        """Later changes of files with stamps up to this moment are detectable."""

    def start_scan(self) -> None:
        """Start a scan now."""
        self.reads = 0
        self.settled = time.time_ns() - RACY_NS

    def set_manifest(self, folder: str, *, exists: bool) -> None:
        """Record whether a folder has a skill.yaml, which is read after the walk."""
        if exists:
            self.manifests.setdefault(folder, ManifestFile())
        elif self.manifests:
            self.manifests.pop(folder, None)

    def head(self, skill_id: str) -> SkillHeader | None:
        """The header of a skill, from its SKILL.md or else its skill.yaml."""
        manifest = self.manifests.get(skill_id)
        return self.heads.get(skill_id) or (manifest.head if manifest is not None else None)

    def path_of(self, folder: str) -> str:
        """The absolute path of a folder of this location."""
        return f"{self.location.path}/{folder}" if folder else self.location.path

    def note(self, folder: str, problem: Problem) -> None:
        """Add a problem of a folder, once."""
        notes = self.notes.setdefault(folder, [])
        if problem not in notes:
            notes.append(problem)

    def clear(self) -> None:
        """Remove everything."""
        self.followed.clear()
        for table in self._tables():
            table.clear()

    def forget(self, folder: str) -> None:
        """Remove one folder, without those below it."""
        for table in self._tables():
            table.pop(folder, None)
        if self.followed:
            for target, via in list(self.followed.items()):
                if via == folder:
                    del self.followed[target]

    def _tables(self) -> tuple[dict[str, Any], ...]:
        return (self.folders, self.heads, self.broken, self.manifests, self.notes)

    def drop_skill(self, skill_id: str) -> None:
        """Remove a skill whose SKILL.md does not exist any more."""
        self.heads.pop(skill_id, None)
        self.broken.pop(skill_id, None)

    def read(self, skill_id: str, file: str, root: int | None = None) -> bool:
        """Read the header of one file, below the open folder `root`; False when there is none."""
        try:
            name = f"{self.path_of(skill_id) if root is None else skill_id}/{file}"
            descriptor = os.open(name, OPEN_FLAGS, dir_fd=root)
        except OSError as exc:
            self.drop_skill(skill_id)
            if isinstance(exc, FileNotFoundError) and not os.path.islink(
                self._path(skill_id, file)
            ):
                return False
            self._refuse(skill_id, file, (0, 0, 0), partial(unreadable_problem, exc=exc))
            return True
        self.reads += 1
        try:
            info = os.fstat(descriptor)
            ctime = info.st_ctime_ns
            stamp = (info.st_mtime_ns, ctime if ctime <= self.settled else 0, info.st_size)
            if info.st_mode & _TYPE != _REGULAR:
                problem = partial(not_a_file_problem, file=file, mode=info.st_mode)
                self._refuse(skill_id, file, stamp, problem)
                return True
            if self.guarded and self.escapes(self._path(skill_id, file)):
                self._refuse(skill_id, file, stamp, outside_problem)
                return True
            data = os.read(descriptor, SCAN_BYTES)
            head = scan_header(data, skill_id, file, stamp) if skill_id else None
            if head is None:
                if len(data) == SCAN_BYTES and data.find(b"\n---", 3) < 0:
                    data += _read_rest(descriptor)
                return self._read_fully(data, skill_id, file, stamp)
        except OSError as exc:
            self._refuse(skill_id, file, (0, 0, 0), partial(unreadable_problem, exc=exc))
            return True
        finally:
            os.close(descriptor)
        self.heads[skill_id] = head
        if self.broken:
            self.broken.pop(skill_id, None)
        return True

    def _read_fully(self, data: bytes, skill_id: str, file: str, stamp: Stamp) -> bool:
        from satchel.skill.reader import read_header

        named = skill_id or os.path.basename(self.location.path)
        head, problems = read_header(data, named, file, stamp)
        if head is None:
            self._refuse(skill_id, file, stamp, *(problem.at for problem in problems))
        else:
            self.heads[skill_id] = head if skill_id else head._replace(id="")
            self.broken.pop(skill_id, None)
        return True

    def _refuse(
        self, skill_id: str, file: str, stamp: Stamp, *problems: Callable[[str], Problem]
    ) -> None:
        self.heads.pop(skill_id, None)
        path = self._path(skill_id, file)
        found = tuple(problem(path) for problem in problems)
        self.broken[skill_id] = BrokenFile(skill_id, file, stamp, found or NO_PROBLEMS)

    def _path(self, skill_id: str, file: str) -> str:
        return f"{self.path_of(skill_id)}/{file}"

    def escapes(self, path: str) -> bool:
        """Whether the real path of a file lies outside the boundary of its untrusted location."""
        if not self.guarded or (not self.followed and not os.path.islink(path)):
            return False
        return not is_really_inside(path, self.location.boundary)


def find_repeated(
    states: Sequence[LocationState], ids: Sequence[Iterable[str]]
) -> dict[int, set[str]]:
    """Index of a location -> its skills that links also put into an earlier one of equal trust."""
    found: dict[int, set[str]] = {}
    if not any(state.followed for state in states):
        return found
    seen: set[tuple[str, bool | None]] = set()
    for at, state in enumerate(states):
        root = os.path.realpath(state.location.path)
        targets = {via: target for target, via in state.followed.items()}
        for skill_id in ids[at]:
            via = skill_id
            while via and via not in targets:
                via = via.rpartition("/")[0]
            real = targets[via] + skill_id[len(via) :] if via else f"{root}/{skill_id}"
            key = (real, state.location.trusted)
            if key in seen:
                found.setdefault(at, set()).add(skill_id)
            seen.add(key)
    return found


def unreadable_problem(path: str, exc: OSError) -> Problem:
    """The problem of a file that cannot be opened."""
    return Problem("unreadable", path, values={"reason": exc.strerror or str(exc)})


def outside_problem(path: str) -> Problem:
    """The problem of a link that leads out of the project."""
    return Problem("outside-root", path, values={"target": os.path.realpath(path)})


def not_a_file_problem(path: str, file: str, mode: int) -> Problem:
    """The problem of something that is no regular file."""
    from satchel.skill.file_tree import kind_of_mode

    return Problem("not-a-file", path, values={"file": file, "kind": kind_of_mode(mode)})


def _read_rest(descriptor: int) -> bytes:
    parts: list[bytes] = []
    left = _MAX_HEADER_BYTES
    while left > 0 and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


SKIPPED_FOLDERS = frozenset(
    (".git", "node_modules", "__pycache__", ".venv", "venv", ".hg", ".svn", ".tox")
)
"""Folders without skills that may be huge."""
OWN_FOLDERS = frozenset(("scripts", "references", "assets"))
"""A skill's own folders: a SKILL.md in there is no skill."""
_WRONG_MANIFEST = "skill.yml"
"""A common wrong name."""
_MAX_FOLDERS_REPAIRED = 64
_MAX_LINKS_COUNTED = 64_997
"""ext4 does not count more subfolders."""


def scan_location(location: Location, bounds: WalkLimits) -> LocationState:
    """Scan a location for the first time."""
    state = LocationState(location, bounds)
    state.start_scan()
    if _escapes_project(state):
        _refuse_all(state)
    elif location.single:
        _scan_single(state)
    else:
        with _open_root(location.path) as root:
            _LocationWalk(state, fresh=True).run([""], root)
        _read_manifests(state)
    return state


def rescan_location(state: LocationState) -> bool:
    """Rescan a location; True when its skills changed."""
    state.start_scan()
    out = _escapes_project(state)
    if out or state.location.single:
        before = _comparable(state)
        if out:
            _refuse_all(state)
        else:
            state.notes.clear()
            _scan_single(state)
        return before != _comparable(state)
    with _open_root(state.location.path) as root:
        return _rescan(state, root)


def _rescan(state: LocationState, root: int | None) -> bool:
    stale = _stale_folders(state, root)
    if len(stale) > max(_MAX_FOLDERS_REPAIRED, len(state.folders) // 10):
        # A checkout or a copy changed everything: one walk is cheaper than many repairs.
        before, known = _comparable(state), dict(state.manifests)
        state.clear()
        _LocationWalk(state, fresh=True).run([""], root)
        state.manifests = {one: known.get(one, item) for one, item in state.manifests.items()}
        return (before != _comparable(state)) | _read_manifests(state)
    changed = False
    if stale:
        before = _comparable(state)
        _LocationWalk(state, fresh=False).run(stale, root)
        changed = before != _comparable(state)
    for skill_id, file in _edited_files(state, root):
        changed |= _reread(state, skill_id, file)
    return changed | _read_manifests(state)


def _read_manifests(state: LocationState) -> bool:
    """Read every new or edited skill.yaml; True when one changed."""
    changed = False
    for folder, known in state.manifests.items():
        item = state.manifests[folder] = _read_manifest(state, folder, known)
        changed |= (item.digest, item.problems) != (known.digest, known.problems)
    return changed


def _read_manifest(state: LocationState, folder: str, known: ManifestFile) -> ManifestFile:
    """Read the skill.yaml of a folder; the same objects when it did not change."""
    # Without tool skills, YAML and hashes are not imported.
    from hashlib import sha256

    from satchel.skill.manifest_parser import MAX_FILE_BYTES, read_manifest, tool_header

    path = f"{state.path_of(folder)}/{MANIFEST}"
    try:
        info = os.stat(path)
        if any(known.stamp) and _stamp(info) == known.stamp:
            return known
        descriptor = os.open(path, OPEN_FLAGS)
        try:
            info = os.fstat(descriptor)
            regular = info.st_mode & _TYPE == _REGULAR
            data = os.read(descriptor, MAX_FILE_BYTES + 1) if regular else None
        finally:
            os.close(descriptor)
    except OSError as exc:
        wrong = f"{state.path_of(folder)}/{_WRONG_MANIFEST}"
        if os.path.exists(wrong) and not os.path.lexists(path):
            return ManifestFile(problems=(Problem("tool-file-name", wrong),))
        return ManifestFile(problems=(unreadable_problem(path, exc),))
    if data is None:
        return ManifestFile(problems=(not_a_file_problem(path, MANIFEST, info.st_mode),))
    if state.escapes(path):
        return ManifestFile(problems=(outside_problem(path),))
    stamp = (0, 0, 0) if info.st_ctime_ns > state.settled else _stamp(info)
    digest = sha256(data).hexdigest()
    if known.reading is not None and known.digest == digest:
        return known._replace(stamp=stamp)
    reading = read_manifest(data, folder.rpartition("/")[2])
    return ManifestFile(stamp, digest, reading, tool_header(reading, data, folder, _stamp(info)))


def _stamp(info: os.stat_result) -> Stamp:
    return info.st_mtime_ns, info.st_ctime_ns, info.st_size


@contextmanager
def _open_root(path: str) -> Generator[int | None]:
    """A descriptor for relative paths, which resolve faster; None where not supported."""
    root = None
    if os.stat in os.supports_dir_fd:
        with suppress(OSError):
            root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield root
    finally:
        if root is not None:
            os.close(root)


def _escapes_project(state: LocationState) -> bool:
    path, boundary = state.location.path, state.location.boundary
    return bool(boundary) and os.path.exists(path) and not is_really_inside(path, boundary)


def _refuse_all(state: LocationState) -> None:
    state.clear()
    path = state.location.path
    state.note("", outside_problem(path))


def _stale_folders(state: LocationState, root: int | None) -> list[str]:
    """Folders whose entries changed, or whose stamps were too recent."""
    os_stat = os.stat
    base = state.location.path + "/" if root is None else ""
    stale: list[str] = []
    for folder, stamp in state.folders.items():
        try:
            if os_stat(base + folder or ".", dir_fd=root).st_ctime_ns != stamp:
                stale.append(folder)
        except OSError:
            stale.append(folder)
    return sorted(stale) if state.folders else [""]


def _edited_files(state: LocationState, root: int | None) -> list[tuple[str, str]]:
    os_stat = os.stat
    base = state.location.path + "/" if root is None else ""
    edited: list[tuple[str, str]] = []
    for skill_id, head in state.heads.items():
        file = head.file
        try:
            info = os_stat(f"{base}{skill_id}/{file}", dir_fd=root)
            if info.st_ctime_ns == head.ctime_ns and info.st_size == head.size:
                continue
        except OSError:
            pass
        edited.append((skill_id, file))
    for skill_id, item in state.broken.items():
        try:
            info = os_stat(f"{base}{skill_id}/{item.file}", dir_fd=root)
            if (info.st_mtime_ns, info.st_ctime_ns, info.st_size) == item.stamp:
                continue
        except OSError:
            pass
        edited.append((skill_id, item.file))
    return edited


def _reread(state: LocationState, skill_id: str, file: str) -> bool:
    before = state.heads.get(skill_id)
    broken = state.broken.get(skill_id)
    state.read(skill_id, file)
    after = state.heads.get(skill_id)
    if before is not None and after is not None:
        return _without_ctime(before) != _without_ctime(after)
    now = state.broken.get(skill_id)
    return before is not after or (broken and broken.problems) != (now and now.problems)


def _without_ctime(head: SkillHeader) -> tuple[Any, ...]:
    """A header without the ctime, which only serves to detect changes."""
    return (*head[:5], *head[6:])


def _comparable(state: LocationState) -> tuple[Any, ...]:
    return (
        {key: _without_ctime(head) for key, head in state.heads.items()},
        {key: item.problems for key, item in state.broken.items()},
        {key: item.digest for key, item in state.manifests.items()},
        {key: tuple(notes) for key, notes in state.notes.items()},
    )


def _scan_single(state: LocationState) -> None:
    for file in ("SKILL.md", "skill.md"):
        if state.read("", file):
            return


class _LocationWalk:
    """One walk over the folders of a location."""

    def __init__(self, state: LocationState, *, fresh: bool) -> None:
        self.state = state
        self.fresh = fresh
        """False: known subfolders keep their state and are not entered."""
        self.waiting: list[str] = []
        self.children: dict[str, set[str]] = {}
        """Known folder -> known folders directly below it; used only for a repair."""
        if not fresh:
            for known in state.folders:
                if known:
                    self.children.setdefault(known.rpartition("/")[0], set()).add(known)
        self.device = -1
        """File system on which a link count of 2 means "no subfolders"."""

    def run(self, folders: list[str], root: int | None) -> None:
        """Visit `folders` and what is below them."""
        state = self.state
        known, limit = state.folders, state.bounds.folders
        settled = state.settled
        base = state.location.path + "/"
        start = base if root is None else ""
        read, os_stat, exists = state.read, os.stat, os.access
        waiting = self.waiting = folders[::-1]
        stale = frozenset(folders) if not self.fresh else frozenset[str]()
        while waiting:
            folder = waiting.pop()
            if folder in stale and folder and folder not in known:
                continue  # removed or replaced by a link when its parent was listed
            if len(known) >= limit and folder not in known:
                state.note("", Problem("too-many", base, values={"limit": str(limit)}))
                return
            try:
                info = os_stat(start + folder or ".", dir_fd=root)
            except OSError as exc:
                self._handle_missing(folder, exc)
                continue
            if (
                # Without subfolders, SKILL.md can be opened without listing the folder.
                info.st_nlink == 2
                and info.st_dev == self.device
                and (self.fresh or folder not in state.notes)
                and read(folder, "SKILL.md", root)
            ):
                stamp = info.st_ctime_ns
                known[folder] = stamp if stamp <= settled else 0
                is_tool = exists(f"{start}{folder}/{MANIFEST}", os.F_OK, dir_fd=root)
                state.set_manifest(folder, exists=is_tool)
                if not self.fresh:
                    self._drop_missing(folder, set())
                continue
            self._list(folder, state.path_of(folder), info)

    def _handle_missing(self, folder: str, exc: OSError) -> None:
        """Handle a folder that cannot be visited; a missing one is no problem."""
        state = self.state
        self._forget(folder)
        if not isinstance(exc, (FileNotFoundError, NotADirectoryError)):
            state.folders[folder] = 0
            state.note(folder, unreadable_problem(state.path_of(folder), exc))

    def _list(self, folder: str, path: str, info: os.stat_result) -> None:
        state = self.state
        state.notes.pop(folder, None)
        below: list[str] = []
        links: list[str] = []
        files: list[str] = []
        manifests: list[str] = []
        subfolders = 0
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = entry.name
                    if len(name) == 8 and name.lower() == "skill.md":
                        files.append(name)
                    elif name in (MANIFEST, _WRONG_MANIFEST):
                        manifests.append(name)
                    if entry.is_dir(follow_symlinks=False):
                        subfolders += 1
                        if name not in SKIPPED_FOLDERS and name not in (*files, *manifests):
                            below.append(name)
                    elif entry.is_symlink() and name not in SKIPPED_FOLDERS:
                        links.append(name)
        except OSError as exc:
            self._handle_missing(folder, exc)
            return
        if not folder and subfolders and _counts_links(info.st_nlink, subfolders):
            self.device = info.st_dev
        stamp = info.st_ctime_ns
        state.folders[folder] = stamp if stamp <= state.settled else 0
        if folder and self._read_skill(folder, path, files, manifests):
            # Links inside a skill's folder belong to the skill; elsewhere they may be skills.
            below = [name for name in below if name not in OWN_FOLDERS]
        else:
            others = [name for name in links if name not in (*files, *manifests)]
            below += [name for name in others if self._follow(folder, name)]
        self._queue(folder, below)
        if not self.fresh:
            self._drop_missing(folder, set(below))

    def _read_skill(self, folder: str, path: str, files: list[str], manifests: list[str]) -> bool:
        """Read the files of a skill; False when the folder has neither."""
        state = self.state
        is_tool = MANIFEST in manifests
        state.set_manifest(folder, exists=is_tool or bool(manifests and not files))
        if files:
            self._read_document(folder, path, files)
        else:
            state.drop_skill(folder)
        return is_tool or bool(files)

    def _read_document(self, folder: str, path: str, files: list[str]) -> None:
        """Read the SKILL.md of a folder; of several case variants the exact name."""
        file = "SKILL.md" if "SKILL.md" in files else min(files)
        state = self.state
        if len(files) > 1:
            other = next(name for name in sorted(files) if name != file)
            state.note(folder, Problem("two-files", path, values={"used": file, "other": other}))
        elif file != "SKILL.md":
            state.note(folder, Problem("file-case", f"{path}/{file}", values={"file": file}))
        head = state.heads.get(folder)
        if head is None or head.file != file or not _is_unchanged(head, f"{path}/{file}"):
            state.read(folder, file)

    def _queue(self, folder: str, below: list[str]) -> None:
        if not below:
            return
        state = self.state
        if folder and folder.count("/") + 1 >= state.bounds.depth:
            values = {"limit": str(state.bounds.depth)}
            state.note(folder, Problem("too-deep", state.path_of(folder), values=values))
            return
        prefix = f"{folder}/" if folder else ""
        names = [prefix + name for name in sorted(below, reverse=True)]
        if not self.fresh:
            names = [name for name in names if name not in state.folders]
        self.waiting += names

    def _drop_missing(self, folder: str, below: set[str]) -> None:
        size = len(folder) + 1 if folder else 0
        for known in list(self.children.get(folder, ())):
            if known[size:] not in below:
                self._forget(known)

    def _forget(self, folder: str) -> None:
        todo = [folder]
        while todo:
            one = todo.pop()
            self.state.forget(one)
            todo += self.children.pop(one, ())
        if folder:
            self.children.get(folder.rpartition("/")[0], set()).discard(folder)

    def _follow(self, folder: str, name: str) -> bool:
        state = self.state
        via = f"{folder}/{name}" if folder else name
        link = state.path_of(via)
        if not os.path.isdir(link):
            if not os.path.exists(link):
                values = {"reason": "the link leads nowhere"}
                state.note(folder, Problem("unreadable", link, values=values))
            return False
        target, root = os.path.realpath(link), os.path.realpath(state.location.path)
        if state.guarded and not is_really_inside(target, state.location.boundary):
            state.note(folder, outside_problem(link))
            return False
        seen = state.followed.get(target, via)
        if is_inside(target, root) or is_inside(root, target) or seen != via:
            state.note(folder, Problem("link-loop", link, values={"target": target}))
            return False
        # One target per link: trust in an earlier target must not apply.
        for old in [known for known, by in state.followed.items() if by == via]:
            del state.followed[old]
        state.followed[target] = via
        return True


def _counts_links(links: int, subfolders: int) -> bool:
    """Whether the link count of a folder reflects its number of subfolders."""
    # ext4 reports 1 beyond 65,000. A file system that never counts reports 1 for every folder, so
    # that no folder is assumed to be empty.
    return links == subfolders + 2 or (links == 1 and subfolders > _MAX_LINKS_COUNTED)


def _is_unchanged(head: SkillHeader, path: str) -> bool:
    try:
        info = os.stat(path)
    except OSError:
        return False
    return (info.st_mtime_ns, info.st_ctime_ns, info.st_size) == head[4:7]


_DOCUMENTS = frozenset((
    "agents", "changelog", "claude", "contributing", "index", "licence", "license", "readme",
))  # fmt: skip
"""Markdown files that may lie beside skills."""


def find_strays(state: LocationState) -> Iterator[Problem]:
    """Folders without a skill, and Markdown files beside the folders of skills."""
    if state.location.single or state.location.supplier is not None:
        return
    skills = {*state.heads, *state.broken, *state.manifests}
    groups = {above for one in skills for above in parent_folders(one)}
    for folder in sorted(state.folders):
        name = folder.rpartition("/")[2]
        if (
            folder in skills
            or name.startswith(".")
            or any(one in skills for one in parent_folders(folder))
        ):
            continue
        if folder and folder not in groups:
            if folder.rpartition("/")[0] in groups | {""}:
                yield Problem("folder-without-skill", state.path_of(folder))
            continue
        for file in _markdown(state.path_of(folder)):
            stem = os.path.splitext(file)[0]
            values = {"folder": "NAME" if stem.lower() == "skill" else stem}
            yield Problem("loose-file", os.path.join(state.path_of(folder), file), values=values)


def _markdown(path: str) -> list[str]:
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return []  # reported by the walk
    return [
        name
        for name in names
        if name.lower().endswith(".md")
        and not name.startswith(".")
        and os.path.splitext(name)[0].lower() not in _DOCUMENTS
        and os.path.isfile(os.path.join(path, name))
    ]


def parent_folders(folder: str) -> Iterator[str]:
    """The parents of a folder of a location, innermost first."""
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        yield folder
