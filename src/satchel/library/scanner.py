"""Scans one location on disk for skills: folders with a SKILL.md, a skill.yaml or both.

`scan_location` walks all folders (`location_walk`, which reads `skill_files`). `rescan_location`
compares timestamps and reads only changes. `find_strays`, for `doctor` and `why`, finds files and
folders that look like skills and are none.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from satchel._fs import is_really_inside
from satchel.library.location_state import LocationState, parent_folders, stamp_of
from satchel.library.location_walk import LocationWalk
from satchel.library.skill_files import outside_problem, read_header_file, read_manifest_file
from satchel.skill.document import SkillHeader
from satchel.skill.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from satchel.library.location_state import WalkLimits
    from satchel.library.locations import Location

_MAX_FOLDERS_REPAIRED = 64
_NEIGHBOUR_DOCUMENTS = frozenset((
    "agents", "changelog", "claude", "contributing", "index", "licence", "license", "readme",
))  # fmt: skip
"""Markdown files that may lie beside skills."""
_SOURCES_WITHOUT_STRAYS = frozenset(("server", "code", "package", "plugin"))
_without_ctime = attrgetter(*(field for field in SkillHeader._fields if field != "ctime_ns"))
"""The values of a header without the ctime, which only serves to detect changes."""


def scan_location(location: Location, limits: WalkLimits) -> LocationState:
    """Scan a location for the first time."""
    state = LocationState(location, limits)
    state.start_scan()
    if _is_outside_project(state):
        _set_outside(state)
    elif location.single:
        _scan_single(state)
    else:
        with _open_root(location.path) as root_fd:
            LocationWalk(state, is_full=True).run([*location.folders], root_fd)
        _read_manifests(state)
    return state


def rescan_location(state: LocationState) -> bool:
    """Rescan a location; True when its skills changed."""
    state.start_scan()
    is_outside = _is_outside_project(state)
    if is_outside or state.location.single:
        before = _fingerprint(state)
        if is_outside:
            _set_outside(state)
        else:
            state.folder_problems.clear()
            _scan_single(state)
        return before != _fingerprint(state)
    with _open_root(state.location.path) as root_fd:
        return _rescan(state, root_fd)


def _rescan(state: LocationState, root_fd: int | None) -> bool:
    stale_folders = _stale_folders(state, root_fd)
    if len(stale_folders) > max(_MAX_FOLDERS_REPAIRED, len(state.folders) // 10):
        # A checkout or a copy changed everything: one walk is cheaper than many repairs.
        return _rewalk(state, root_fd)
    changed = False
    if stale_folders:
        before = _fingerprint(state)
        LocationWalk(state, is_full=False).run(stale_folders, root_fd)
        changed = before != _fingerprint(state)
    for skill_id, file in _edited_files(state, root_fd):
        changed |= _reread(state, skill_id, file)
    changed |= _read_manifests(state)
    return changed


def _rewalk(state: LocationState, root_fd: int | None) -> bool:
    """Walk over the whole location again; manifests that did not change are not parsed again."""
    before, known_manifests = _fingerprint(state), dict(state.manifests)
    state.clear()
    LocationWalk(state, is_full=True).run([*state.location.folders], root_fd)
    state.manifests = {
        folder: known_manifests.get(folder, manifest)
        for folder, manifest in state.manifests.items()
    }
    changed = before != _fingerprint(state)
    changed |= _read_manifests(state)
    return changed


def _read_manifests(state: LocationState) -> bool:
    """Read every new or edited skill.yaml; True when one changed."""
    changed = False
    for folder, previous in state.manifests.items():
        manifest = state.manifests[folder] = read_manifest_file(state, folder, previous)
        changed |= (manifest.digest, manifest.problems) != (previous.digest, previous.problems)
    return changed


@contextmanager
def _open_root(path: str) -> Generator[int | None]:
    """A descriptor for relative paths, which resolve faster; None where not supported."""
    root_fd = None
    if os.stat in os.supports_dir_fd:
        with suppress(OSError):
            root_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield root_fd
    finally:
        if root_fd is not None:
            os.close(root_fd)


def _is_outside_project(state: LocationState) -> bool:
    path, boundary = state.location.path, state.location.boundary
    return bool(boundary) and os.path.exists(path) and not is_really_inside(path, boundary)


def _set_outside(state: LocationState) -> None:
    """Leave nothing of a location but the problem that it leads out of the project."""
    state.clear()
    state.add_problem("", outside_problem(state.location.path))


def _stale_folders(state: LocationState, root_fd: int | None) -> list[str]:
    """Folders whose entries changed, or whose stamps were too recent."""
    prefix = state.location.path + "/" if root_fd is None else ""
    stale_folders: list[str] = []
    for folder, ctime in state.folders.items():
        try:
            if os.stat(prefix + folder or ".", dir_fd=root_fd).st_ctime_ns != ctime:
                stale_folders.append(folder)
        except OSError:
            stale_folders.append(folder)
    return sorted(stale_folders) if state.folders else [*state.location.folders]


def _edited_files(state: LocationState, root_fd: int | None) -> list[tuple[str, str]]:
    """Folder and name of each SKILL.md that was edited, or whose stamp was too recent."""
    prefix = state.location.path + "/" if root_fd is None else ""
    edited_files: list[tuple[str, str]] = []
    for file in chain(state.headers.values(), state.broken.values()):
        try:
            info = os.stat(f"{prefix}{file.id}/{file.file}", dir_fd=root_fd)
        except OSError:
            edited_files.append((file.id, file.file))
            continue
        if stamp_of(info) != file.stamp:
            edited_files.append((file.id, file.file))
    return edited_files


def _reread(state: LocationState, skill_id: str, file: str) -> bool:
    """Read a SKILL.md again; True when its skill or its problems changed."""
    header_before = state.headers.get(skill_id)
    broken_before = state.broken.get(skill_id)
    read_header_file(state, skill_id, file)
    header_after = state.headers.get(skill_id)
    if header_before is not None and header_after is not None:
        return _without_ctime(header_before) != _without_ctime(header_after)
    broken_after = state.broken.get(skill_id)
    problems_before = broken_before and broken_before.problems
    problems_after = broken_after and broken_after.problems
    return header_before is not header_after or problems_before != problems_after


def _fingerprint(state: LocationState) -> tuple[Any, ...]:
    """What is compared before and after a rescan."""
    return (
        {skill_id: _without_ctime(header) for skill_id, header in state.headers.items()},
        {skill_id: broken.problems for skill_id, broken in state.broken.items()},
        {folder: manifest.digest for folder, manifest in state.manifests.items()},
        {folder: tuple(problems) for folder, problems in state.folder_problems.items()},
    )


def _scan_single(state: LocationState) -> None:
    for file in ("SKILL.md", "skill.md"):
        if read_header_file(state, "", file):
            return


def find_strays(state: LocationState) -> Iterator[Problem]:
    """Folders without a skill, and Markdown files beside the folders of skills."""
    if state.location.single or state.location.source in _SOURCES_WITHOUT_STRAYS:
        return
    skills = {*state.headers, *state.broken, *state.manifests}
    groups = {parent for skill_id in skills for parent in parent_folders(skill_id)}
    for folder in sorted(state.folders):
        is_in_skill = folder in skills or any(parent in skills for parent in parent_folders(folder))
        if is_in_skill or folder.rpartition("/")[2].startswith("."):
            continue
        if folder and folder not in groups:
            if folder.rpartition("/")[0] in groups | {""}:
                yield Problem("folder-without-skill", state.path_of(folder))
            continue
        for file in _stray_documents(state.path_of(folder)):
            stem = os.path.splitext(file)[0]
            values = {"folder": "NAME" if stem.lower() == "skill" else stem}
            yield Problem("loose-file", os.path.join(state.path_of(folder), file), values=values)


def _stray_documents(path: str) -> list[str]:
    """The Markdown files of a folder that may be meant as skills."""
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return []  # reported by the walk
    return [
        name
        for name in names
        if name.lower().endswith(".md")
        and not name.startswith(".")
        and os.path.splitext(name)[0].lower() not in _NEIGHBOUR_DOCUMENTS
        and os.path.isfile(os.path.join(path, name))
    ]
