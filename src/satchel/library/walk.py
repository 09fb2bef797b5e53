"""One location on disk -> its skills, read once and then only where something changed.

`read_shelf` walks everything. `revise_shelf` asks the operating system for the time stamps of what
it knows and reads what differs. Bounds, links and unreadable things become problems; nothing here
raises for what a skill's author did. `find_strays`, for `doctor` and `why`, finds what lies in a
location and looks like a skill, but is none.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._fs import RACY_NS, is_inside, is_really_inside
from satchel.skill.head import READ_FIRST, full_head, quick_head
from satchel.skill.problems import NO_PROBLEMS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from satchel.library.locations import Location
    from satchel.skill.model import Head

_MAX_HEAD = 68 * 1024
OPEN = os.O_RDONLY | sum(getattr(os, f"O_{n}", 0) for n in ("NONBLOCK", "CLOEXEC", "NOCTTY"))
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
            descriptor = os.open(path, OPEN)
        except OSError as exc:
            self.drop_skill(skill_id)
            if isinstance(exc, FileNotFoundError) and not os.path.islink(path):
                return False
            self._refuse(skill_id, file, (0, 0, 0), unreadable(path, exc))
            return True
        self.reads += 1
        try:
            info = os.fstat(descriptor)
            ctime = info.st_ctime_ns
            stamp = (info.st_mtime_ns, ctime if ctime <= self.settled else 0, info.st_size)
            if info.st_mode & _TYPE != _REGULAR:
                self._refuse(skill_id, file, stamp, not_a_file(path, file, info.st_mode))
                return True
            if self.guarded and self.escapes(path):
                self._refuse(skill_id, file, stamp, outside(path))
                return True
            data = os.read(descriptor, READ_FIRST)
            head = quick_head(data, skill_id, file, stamp) if skill_id else None
            if head is None:
                if len(data) == READ_FIRST and data.find(b"\n---", 3) < 0:
                    data += _read_on(descriptor)
                return self._read_fully(data, skill_id, path, file, stamp)
        except OSError as exc:
            self._refuse(skill_id, file, (0, 0, 0), unreadable(path, exc))
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

    def escapes(self, path: str) -> bool:
        """Whether a file of an untrusted location really lies elsewhere."""
        if not self.guarded or (not self.followed and not os.path.islink(path)):
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


def unreadable(path: str, exc: OSError) -> Problem:
    """The problem of a file that cannot be opened."""
    return Problem("unreadable", path, values={"reason": exc.strerror or str(exc)})


def outside(path: str) -> Problem:
    """The problem of a link that leads out of the project."""
    return Problem("outside-root", path, values={"target": os.path.realpath(path)})


def not_a_file(path: str, file: str, mode: int) -> Problem:
    """The problem of something that is no regular file."""
    from satchel.skill.tree import kind_of_mode

    return Problem("not-a-file", path, values={"file": file, "kind": kind_of_mode(mode)})


def _read_on(descriptor: int) -> bytes:
    """The rest of a long frontmatter, up to the bound."""
    parts: list[bytes] = []
    left = _MAX_HEAD
    while left > 0 and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


SKIPPED = frozenset((".git", "node_modules", "__pycache__", ".venv", "venv", ".hg", ".svn", ".tox"))
"""Folders that never hold skills and may be huge."""
OWN_FOLDERS = frozenset(("scripts", "references", "assets"))
"""A skill's own folders: a SKILL.md in there is material, not a skill."""
_MANY = 64
_MOST_COUNTED = 64_997
"""Subfolders beyond which ext4 does not count links."""


def read_shelf(location: Location, bounds: Bounds) -> Shelf:
    """Read a location from nothing."""
    shelf = Shelf(location, bounds)
    shelf.begin()
    if _leads_out(shelf):
        _refuse_all(shelf)
    elif location.single:
        _visit_single(shelf)
    else:
        _Walk(shelf, fresh=True).run([""])
    return shelf


def revise_shelf(shelf: Shelf) -> bool:
    """Bring a shelf up to date; True when something about its skills changed."""
    shelf.begin()
    out = _leads_out(shelf)
    if out or shelf.location.single:
        before = _state(shelf)
        if out:
            _refuse_all(shelf)
        else:
            shelf.notes.clear()
            _visit_single(shelf)
        return before != _state(shelf)
    root = _open_root(shelf.location.path)
    try:
        return _revise(shelf, root)
    finally:
        if root is not None:
            os.close(root)


def _revise(shelf: Shelf, root: int | None) -> bool:
    stale = _stale_folders(shelf, root)
    if len(stale) > max(_MANY, len(shelf.folders) // 10):
        # A checkout or a copy touched everything: one walk is cheaper than many repairs.
        before = _state(shelf)
        shelf.clear()
        _Walk(shelf, fresh=True).run([""])
        return before != _state(shelf)
    changed = False
    if stale:
        before = _state(shelf)
        _Walk(shelf, fresh=False).run(stale)
        changed = before != _state(shelf)
    for skill_id, file in _edited_files(shelf, root):
        changed |= _read_again(shelf, skill_id, file)
    return changed


def _open_root(path: str) -> int | None:
    """A folder to ask from: short paths are found sooner. None where that is not possible."""
    if os.stat not in os.supports_dir_fd:
        return None
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _leads_out(shelf: Shelf) -> bool:
    """Whether the location itself is a link that leads out of its project."""
    boundary = shelf.location.boundary
    return bool(boundary) and not is_really_inside(shelf.location.path, boundary)


def _refuse_all(shelf: Shelf) -> None:
    shelf.clear()
    path = shelf.location.path
    shelf.note("", outside(path))


def _stale_folders(shelf: Shelf, root: int | None) -> list[str]:
    """Folders whose entries changed, or that were too young to trust."""
    os_stat = os.stat
    base = shelf.location.path + "/" if root is None else ""
    stale: list[str] = []
    for folder, stamp in shelf.folders.items():
        try:
            if os_stat(base + folder or ".", dir_fd=root).st_ctime_ns != stamp:
                stale.append(folder)
        except OSError:
            stale.append(folder)
    return sorted(stale) if shelf.folders else [""]


def _edited_files(shelf: Shelf, root: int | None) -> list[tuple[str, str]]:
    """Files whose stamps differ from what was read."""
    os_stat = os.stat
    base = shelf.location.path + "/" if root is None else ""
    edited: list[tuple[str, str]] = []
    for skill_id, head in shelf.heads.items():
        file = head.file
        try:
            info = os_stat(f"{base}{skill_id}/{file}", dir_fd=root)
            if info.st_ctime_ns == head.ctime_ns and info.st_size == head.size:
                continue
        except OSError:
            pass
        edited.append((skill_id, file))
    for skill_id, item in shelf.broken.items():
        try:
            info = os_stat(f"{base}{skill_id}/{item.file}", dir_fd=root)
            if (info.st_mtime_ns, info.st_ctime_ns, info.st_size) == item.stamp:
                continue
        except OSError:
            pass
        edited.append((skill_id, item.file))
    return edited


def _read_again(shelf: Shelf, skill_id: str, file: str) -> bool:
    before = shelf.heads.get(skill_id)
    broken = shelf.broken.get(skill_id)
    shelf.read(skill_id, f"{shelf.path_of(skill_id)}/{file}", file)
    after = shelf.heads.get(skill_id)
    if before is not None and after is not None:
        return _meaning(before) != _meaning(after)
    now = shelf.broken.get(skill_id)
    return before is not after or (broken and broken.problems) != (now and now.problems)


def _meaning(head: Head) -> tuple[Any, ...]:
    """A Head without the stamp that only serves to notice changes."""
    return (*head[:5], *head[6:])


def _state(shelf: Shelf) -> tuple[Any, ...]:
    """What a change is measured by."""
    return (
        {key: _meaning(head) for key, head in shelf.heads.items()},
        {key: item.problems for key, item in shelf.broken.items()},
        {key: tuple(notes) for key, notes in shelf.notes.items()},
    )


def _visit_single(shelf: Shelf) -> None:
    """The location's folder is itself one skill."""
    for file in ("SKILL.md", "skill.md"):
        if shelf.read("", f"{shelf.location.path}/{file}", file):
            return


class _Walk:
    """One walk: folders waiting to be visited, and what helps to visit them quickly."""

    def __init__(self, shelf: Shelf, *, fresh: bool) -> None:
        self.shelf = shelf
        self.fresh = fresh
        """False: known subfolders keep their state and are not entered."""
        self.waiting: list[str] = []
        self.children: dict[str, set[str]] = {}
        """Known folder -> known folders right below it; made only for a repair."""
        if not fresh:
            for known in shelf.folders:
                if known:
                    self.children.setdefault(known.rpartition("/")[0], set()).add(known)
        self.device = -1
        """File system on which a link count of 2 is known to mean "no subfolders"."""

    def run(self, folders: list[str]) -> None:
        """Visit `folders` and what is below them."""
        shelf = self.shelf
        known, limit = shelf.folders, shelf.bounds.folders
        settled = shelf.settled
        base = shelf.location.path + "/"
        read, os_stat = shelf.read, os.stat
        waiting = self.waiting = folders[::-1]
        stale = frozenset(folders) if not self.fresh else frozenset[str]()
        while waiting:
            folder = waiting.pop()
            if folder in stale and folder and folder not in known:
                continue  # its parent was listed before it, and it is gone or a link now
            if len(known) >= limit and folder not in known:
                shelf.note("", Problem("too-many", base, values={"limit": str(limit)}))
                return
            path = base + folder
            try:
                info = os_stat(path)
            except OSError as exc:
                self._lost(folder, exc)
                continue
            if (
                # No subfolders: the one file that matters can be opened without listing.
                info.st_nlink == 2
                and info.st_dev == self.device
                and (self.fresh or folder not in shelf.notes)
                and read(folder, path + "/SKILL.md", "SKILL.md")
            ):
                stamp = info.st_ctime_ns
                known[folder] = stamp if stamp <= settled else 0
                if not self.fresh:
                    self._drop_missing(folder, set())
                continue
            self._list(folder, path if folder else shelf.location.path, info)

    def _lost(self, folder: str, exc: OSError) -> None:
        """A folder that cannot be visited. A missing one is empty, or simply gone."""
        shelf = self.shelf
        self._forget(folder)
        if not isinstance(exc, (FileNotFoundError, NotADirectoryError)):
            shelf.folders[folder] = 0
            shelf.note(folder, unreadable(shelf.path_of(folder), exc))

    def _list(self, folder: str, path: str, info: os.stat_result) -> None:
        """Look at the entries of a folder."""
        shelf = self.shelf
        shelf.notes.pop(folder, None)
        below: list[str] = []
        links: list[str] = []
        files: list[str] = []
        subfolders = 0
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = entry.name
                    if len(name) == 8 and name.lower() == "skill.md":
                        files.append(name)
                    if entry.is_dir(follow_symlinks=False):
                        subfolders += 1
                        if name not in SKIPPED and name not in files:
                            below.append(name)
                    elif entry.is_symlink() and name not in SKIPPED:
                        links.append(name)
        except OSError as exc:
            self._lost(folder, exc)
            return
        if not folder and subfolders and _counts_links(info.st_nlink, subfolders):
            self.device = info.st_dev
        stamp = info.st_ctime_ns
        shelf.folders[folder] = stamp if stamp <= shelf.settled else 0
        if files and folder:
            self._take(folder, path, files)
            below = [name for name in below if name not in OWN_FOLDERS]
        else:
            # Links inside a skill's folder are its own material; elsewhere they may be skills.
            below += [name for name in links if name not in files and self._follow(folder, name)]
            if folder in shelf.heads or folder in shelf.broken:
                shelf.drop_skill(folder)
        self._enter(folder, below)
        if not self.fresh:
            self._drop_missing(folder, set(below))

    def _take(self, folder: str, path: str, files: list[str]) -> None:
        """Read the SKILL.md of a folder; of several case variants the proper one."""
        file = "SKILL.md" if "SKILL.md" in files else min(files)
        shelf = self.shelf
        if len(files) > 1:
            other = next(name for name in sorted(files) if name != file)
            shelf.note(folder, Problem("two-files", path, values={"used": file, "other": other}))
        elif file != "SKILL.md":
            shelf.note(folder, Problem("file-case", f"{path}/{file}", values={"file": file}))
        head = shelf.heads.get(folder)
        if head is None or head.file != file or not _same(head, f"{path}/{file}"):
            shelf.read(folder, f"{path}/{file}", file)

    def _enter(self, folder: str, below: list[str]) -> None:
        """Put subfolders on the list of those to visit, in order."""
        if not below:
            return
        shelf = self.shelf
        if folder and folder.count("/") + 1 >= shelf.bounds.depth:
            values = {"limit": str(shelf.bounds.depth)}
            shelf.note(folder, Problem("too-deep", shelf.path_of(folder), values=values))
            return
        prefix = f"{folder}/" if folder else ""
        names = [prefix + name for name in sorted(below, reverse=True)]
        if not self.fresh:
            names = [name for name in names if name not in shelf.folders]
        self.waiting += names

    def _drop_missing(self, folder: str, below: set[str]) -> None:
        """Forget known subfolders that are gone."""
        size = len(folder) + 1 if folder else 0
        for known in list(self.children.get(folder, ())):
            if known[size:] not in below:
                self._forget(known)

    def _forget(self, folder: str) -> None:
        """Drop a folder and everything below it."""
        todo = [folder]
        while todo:
            one = todo.pop()
            self.shelf.forget(one)
            todo += self.children.pop(one, ())
        if folder:
            self.children.get(folder.rpartition("/")[0], set()).discard(folder)

    def _follow(self, folder: str, name: str) -> bool:
        """Whether a link leads to a folder that should be walked."""
        shelf = self.shelf
        via = f"{folder}/{name}" if folder else name
        link = shelf.path_of(via)
        if not os.path.isdir(link):
            if not os.path.exists(link):
                values = {"reason": "the link leads nowhere"}
                shelf.note(folder, Problem("unreadable", link, values=values))
            return False
        target, root = os.path.realpath(link), os.path.realpath(shelf.location.path)
        if shelf.guarded and not is_really_inside(target, shelf.location.boundary):
            shelf.note(folder, outside(link))
            return False
        seen = shelf.followed.get(target, via)
        if is_inside(target, root) or is_inside(root, target) or seen != via:
            shelf.note(folder, Problem("link-loop", link, values={"target": target}))
            return False
        # One target for one link: what it led to before must not lend it trust.
        for old in [known for known, by in shelf.followed.items() if by == via]:
            del shelf.followed[old]
        shelf.followed[target] = via
        return True


def _counts_links(links: int, subfolders: int) -> bool:
    """Whether this file system's link count of a folder tells how many subfolders it has."""
    # ext4 counts to 65,000 and then says 1. One that never counts says 1 of every folder, so that
    # none of them is taken for empty.
    return links == subfolders + 2 or (links == 1 and subfolders > _MOST_COUNTED)


def _same(head: Head, path: str) -> bool:
    try:
        info = os.stat(path)
    except OSError:
        return False
    return (info.st_mtime_ns, info.st_ctime_ns, info.st_size) == head[4:7]


_DOCUMENTS = frozenset((
    "agents", "changelog", "claude", "contributing", "index", "licence", "license", "readme",
))  # fmt: skip
"""Markdown files that belong beside skills."""


def find_strays(shelf: Shelf) -> Iterator[Problem]:
    """Folders that hold no skill, and Markdown files that lie beside the folders of skills."""
    if shelf.location.single or shelf.location.supplier is not None:
        return
    skills = {*shelf.heads, *shelf.broken}
    skills |= {one for one in shelf.folders if one and _has_manifest(shelf.path_of(one))}
    groups = {above for one in skills for above in folders_above(one)}
    for folder in sorted(shelf.folders):
        name = folder.rpartition("/")[2]
        if (
            folder in skills
            or name.startswith(".")
            or any(one in skills for one in folders_above(folder))
        ):
            continue
        if folder and folder not in groups:
            if folder.rpartition("/")[0] in groups | {""}:
                yield Problem("folder-without-skill", shelf.path_of(folder))
            continue
        for file in _markdown(shelf.path_of(folder)):
            stem = os.path.splitext(file)[0]
            values = {"folder": "NAME" if stem.lower() == "skill" else stem}
            yield Problem("loose-file", os.path.join(shelf.path_of(folder), file), values=values)


def _has_manifest(path: str) -> bool:
    return any(os.path.lexists(f"{path}/{name}") for name in ("skill.yaml", "skill.yml"))


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


def folders_above(folder: str) -> Iterator[str]:
    """The folders of a location that hold a folder, innermost first."""
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        yield folder
