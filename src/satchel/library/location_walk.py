"""Walks over the folders of one location and reads the skills in them.

Limits, links and unreadable folders become problems.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside, is_really_inside
from satchel.library.location_state import UNKNOWN_CTIME_NS, stamp_of
from satchel.library.skill_files import (
    MISNAMED_MANIFEST,
    outside_problem,
    read_header_file,
    unreadable_problem,
)
from satchel.skill.document import MANIFEST
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from satchel.library.location_state import LocationState
    from satchel.skill.document import SkillHeader

SKIPPED_FOLDERS = frozenset(
    (".git", "node_modules", "__pycache__", ".venv", "venv", ".hg", ".svn", ".tox")
)
"""Folders without skills that may be huge."""
OWN_FOLDERS = frozenset(("scripts", "references", "assets"))
"""A skill's own folders: a SKILL.md in there is no skill."""
_MAX_LINKS_COUNTED = 64_997
"""ext4 does not count more subfolders."""


class _FolderListing(NamedTuple):
    """Names in a folder that matter to the scan."""

    skill_md_names: list[str]
    """`SKILL.md`, in any case."""
    manifests: list[str]
    folders: list[str]
    """Subfolders that are entered."""
    links: list[str]
    subfolder_count: int
    """All subfolders, also those that are not entered."""


def _list_folder(path: str) -> _FolderListing:
    """Sort the names in a folder by what they mean to the scan."""
    skill_md_names: list[str] = []
    manifests: list[str] = []
    folders: list[str] = []
    links: list[str] = []
    subfolder_count = 0
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if len(name) == 8 and name.lower() == "skill.md":
                skill_md_names.append(name)
            elif name in (MANIFEST, MISNAMED_MANIFEST):
                manifests.append(name)
            if entry.is_dir(follow_symlinks=False):
                subfolder_count += 1
                if name not in SKIPPED_FOLDERS and name not in (*skill_md_names, *manifests):
                    folders.append(name)
            elif entry.is_symlink() and name not in SKIPPED_FOLDERS:
                links.append(name)
    return _FolderListing(skill_md_names, manifests, folders, links, subfolder_count)


class LocationWalk:
    """One walk over the folders of a location."""

    def __init__(self, state: LocationState, *, is_full: bool) -> None:
        self.state = state
        self.is_full = is_full
        """False: known subfolders keep their state and are not entered."""
        self.pending_folders: list[str] = []
        self.known_subfolders: dict[str, set[str]] = {}
        """Known folder -> known folders directly below it; used only for a repair."""
        if not is_full:
            for subfolder in state.folders:
                if subfolder:
                    parent = subfolder.rpartition("/")[0]
                    self.known_subfolders.setdefault(parent, set()).add(subfolder)
        self.link_counting_device = -1
        """File system on which a link count of 2 means "no subfolders"."""

    def run(self, folders: list[str], root_fd: int | None) -> None:
        """Visit `folders` and what is below them.

        Args:
            folders: Relative to the location; the location itself is an empty string.
            root_fd: The opened folder of the location, to which paths are then relative.
        """
        known_folders = self.state.folders
        max_folder_count = self.state.limits.folders
        revisited_folders = frozenset[str]() if self.is_full else frozenset(folders)
        self.pending_folders = folders[::-1]
        while self.pending_folders:
            folder = self.pending_folders.pop()
            is_known = folder in known_folders
            if folder and folder in revisited_folders and not is_known:
                continue  # removed or replaced by a link when its parent was listed
            if len(known_folders) >= max_folder_count and not is_known:
                values = {"limit": str(max_folder_count)}
                location_path = f"{self.state.location.path}/"
                self.state.add_problem("", Problem("too-many", location_path, values=values))
                return
            self._visit(folder, root_fd)

    def _visit(self, folder: str, root_fd: int | None) -> None:
        """Read the skill of a folder, and queue its subfolders."""
        path = f"{self.state.location.path}/{folder}" if root_fd is None else folder
        try:
            info = os.stat(path or ".", dir_fd=root_fd)
        except OSError as exc:
            self._handle_missing(folder, exc)
            return
        # Without subfolders, SKILL.md can be opened without listing the folder.
        is_leaf = info.st_nlink == 2 and info.st_dev == self.link_counting_device
        if not (is_leaf and self._read_leaf(path, folder, info, root_fd)):
            self._visit_listed(folder, self.state.path_of(folder), info)

    def _read_leaf(self, path: str, folder: str, info: os.stat_result, root_fd: int | None) -> bool:
        """Read the skill of a folder without subfolders; False when there is no SKILL.md."""
        state = self.state
        if not self.is_full and folder in state.folder_problems:
            return False
        if not read_header_file(state, folder, "SKILL.md", root_fd):
            return False
        state.folders[folder] = state.settled_ctime(info)
        is_tool = os.access(f"{path}/{MANIFEST}", os.F_OK, dir_fd=root_fd)
        state.set_manifest(folder, exists=is_tool)
        if not self.is_full:
            self._drop_missing(folder, set())
        return True

    def _handle_missing(self, folder: str, exc: OSError) -> None:
        """Handle a folder that cannot be visited; a missing one is no problem."""
        state = self.state
        self._remove_subtree(folder)
        if not isinstance(exc, (FileNotFoundError, NotADirectoryError)):
            state.folders[folder] = UNKNOWN_CTIME_NS
            state.add_problem(folder, unreadable_problem(state.path_of(folder), exc))

    def _visit_listed(self, folder: str, path: str, info: os.stat_result) -> None:
        """List a folder, read its skill, and queue its subfolders."""
        state = self.state
        state.folder_problems.pop(folder, None)
        try:
            listing = _list_folder(path)
        except OSError as exc:
            self._handle_missing(folder, exc)
            return
        subfolder_count = listing.subfolder_count
        if not folder and subfolder_count and _counts_links(info.st_nlink, subfolder_count):
            self.link_counting_device = info.st_dev
        state.folders[folder] = state.settled_ctime(info)
        if folder and self._read_skill(folder, path, listing.skill_md_names, listing.manifests):
            # Links inside a skill's folder belong to the skill; elsewhere they may be skills.
            subfolders = [name for name in listing.folders if name not in OWN_FOLDERS]
        else:
            file_names = (*listing.skill_md_names, *listing.manifests)
            links = [name for name in listing.links if name not in file_names]
            accepted_links = [name for name in links if self._accept_link(folder, name)]
            subfolders = [*listing.folders, *accepted_links]
        self._queue_subfolders(folder, subfolders)
        if not self.is_full:
            self._drop_missing(folder, set(subfolders))

    def _read_skill(
        self, folder: str, path: str, skill_md_names: list[str], manifests: list[str]
    ) -> bool:
        """Read the files of a skill; False when the folder has neither."""
        state = self.state
        is_tool = MANIFEST in manifests
        state.set_manifest(folder, exists=is_tool or bool(manifests and not skill_md_names))
        if skill_md_names:
            self._read_document(folder, path, skill_md_names)
        else:
            state.remove_skill(folder)
        return is_tool or bool(skill_md_names)

    def _read_document(self, folder: str, path: str, skill_md_names: list[str]) -> None:
        """Read the SKILL.md of a folder; of several case variants the exact name."""
        file = "SKILL.md" if "SKILL.md" in skill_md_names else min(skill_md_names)
        state = self.state
        if len(skill_md_names) > 1:
            other = next(name for name in sorted(skill_md_names) if name != file)
            values = {"used": file, "other": other}
            state.add_problem(folder, Problem("two-files", path, values=values))
        elif file != "SKILL.md":
            state.add_problem(folder, Problem("file-case", f"{path}/{file}", values={"file": file}))
        header = state.headers.get(folder)
        if header is None or header.file != file or not _is_unchanged(header, f"{path}/{file}"):
            read_header_file(state, folder, file)

    def _queue_subfolders(self, folder: str, subfolders: list[str]) -> None:
        """Queue subfolders for a visit, unless they are too deep or known already."""
        if not subfolders:
            return
        state = self.state
        if folder and folder.count("/") + 1 >= state.limits.depth:
            values = {"limit": str(state.limits.depth)}
            state.add_problem(folder, Problem("too-deep", state.path_of(folder), values=values))
            return
        prefix = f"{folder}/" if folder else ""
        names = [prefix + name for name in sorted(subfolders, reverse=True)]
        if not self.is_full:
            names = [name for name in names if name not in state.folders]
        self.pending_folders += names

    def _drop_missing(self, folder: str, names: set[str]) -> None:
        """Remove known subfolders of a folder that are not among the names."""
        prefix_length = len(folder) + 1 if folder else 0
        for subfolder in list(self.known_subfolders.get(folder, ())):
            if subfolder[prefix_length:] not in names:
                self._remove_subtree(subfolder)

    def _remove_subtree(self, folder: str) -> None:
        pending_folders = [folder]
        while pending_folders:
            current = pending_folders.pop()
            self.state.remove_folder(current)
            pending_folders += self.known_subfolders.pop(current, ())
        if folder:
            self.known_subfolders.get(folder.rpartition("/")[0], set()).discard(folder)

    def _accept_link(self, folder: str, name: str) -> bool:
        """Accept a link in a folder as a subfolder; False when it is not entered."""
        state = self.state
        link = f"{folder}/{name}" if folder else name
        link_path = state.path_of(link)
        if not os.path.isdir(link_path):
            if not os.path.exists(link_path):
                values = {"reason": "the link leads nowhere"}
                state.add_problem(folder, Problem("unreadable", link_path, values=values))
            return False
        target, root = os.path.realpath(link_path), os.path.realpath(state.location.path)
        if state.is_confined and not is_really_inside(target, state.location.boundary):
            state.add_problem(folder, outside_problem(link_path))
            return False
        known_link = state.link_by_target.get(target, link)
        if is_inside(target, root) or is_inside(root, target) or known_link != link:
            state.add_problem(folder, Problem("link-loop", link_path, values={"target": target}))
            return False
        state.add_link(target, link)
        return True


def _counts_links(links: int, subfolders: int) -> bool:
    """Whether the link count of a folder reflects its number of subfolders."""
    # ext4 reports 1 beyond 65,000. A file system that never counts reports 1 for every folder, so
    # that no folder is assumed to be empty.
    return links == subfolders + 2 or (links == 1 and subfolders > _MAX_LINKS_COUNTED)


def _is_unchanged(header: SkillHeader, path: str) -> bool:
    try:
        info = os.stat(path)
    except OSError:
        return False
    return stamp_of(info) == header.stamp
