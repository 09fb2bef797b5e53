"""One location on disk -> its skills, read once and then only where something changed.

`read_shelf` walks everything. `revise_shelf` asks the operating system for the time stamps of what
it knows and reads what differs. Bounds, links and unreadable things become problems; nothing here
raises for what a skill's author did.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from satchel._fs import is_inside, is_really_inside
from satchel.library.shelf import Shelf
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from satchel.library.locations import Location
    from satchel.library.shelf import Bounds
    from satchel.skill.model import Head

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
    shelf.note("", Problem("outside-root", path, values={"target": os.path.realpath(path)}))


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
            values = {"reason": exc.strerror or str(exc)}
            shelf.note(folder, Problem("unreadable", shelf.path_of(folder), values=values))

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
            shelf.note(folder, Problem("outside-root", link, values={"target": target}))
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
