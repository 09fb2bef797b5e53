"""Reads the SKILL.md and the skill.yaml of a folder into the state of its location.

Files that cannot be read become problems; nothing here raises for a skill's content.
"""

from __future__ import annotations

import os
import stat
from functools import partial
from typing import TYPE_CHECKING

from satchel.library.location_state import UNKNOWN_STAMP, BrokenFile, ManifestFile, stamp_of
from satchel.skill.document import MANIFEST
from satchel.skill.header import SCAN_BYTES, scan_header
from satchel.skill.problems import NO_PROBLEMS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.library.location_state import LocationState, Stamp

MISNAMED_MANIFEST = "skill.yml"
"""A common wrong name of a skill.yaml."""
_MAX_HEADER_BYTES = 68 * 1024
_OPEN_FLAGS = os.O_RDONLY | sum(
    getattr(os, f"O_{name}", 0) for name in ("NONBLOCK", "CLOEXEC", "NOCTTY")
)


def read_header_file(
    state: LocationState, skill_id: str, file: str, root_fd: int | None = None
) -> bool:
    """Read a SKILL.md; returns whether the file exists, be it a skill or broken.

    Args:
        state: The state of the location.
        skill_id: The folder of the file.
        file: The name of the file.
        root_fd: The open folder of the location, which makes opening faster.
    """
    name = f"{state.path_of(skill_id) if root_fd is None else skill_id}/{file}"
    try:
        descriptor = os.open(name, _OPEN_FLAGS, dir_fd=root_fd)
    except OSError as exc:
        state.remove_skill(skill_id)
        is_missing = isinstance(exc, FileNotFoundError)
        if is_missing and not os.path.islink(_file_path(state, skill_id, file)):
            return False
        problem = partial(unreadable_problem, exc=exc)
        _add_broken(state, skill_id, file, UNKNOWN_STAMP, problem)
        return True
    state.reads += 1
    try:
        _read_open_file(state, skill_id, file, descriptor)
    except OSError as exc:
        problem = partial(unreadable_problem, exc=exc)
        _add_broken(state, skill_id, file, UNKNOWN_STAMP, problem)
    finally:
        os.close(descriptor)
    return True


def _read_open_file(state: LocationState, skill_id: str, file: str, descriptor: int) -> None:
    info = os.fstat(descriptor)
    stamp = (info.st_mtime_ns, state.settled_ctime(info), info.st_size)
    if not stat.S_ISREG(info.st_mode):
        problem = partial(not_a_file_problem, file=file, mode=info.st_mode)
        _add_broken(state, skill_id, file, stamp, problem)
        return
    if state.is_confined and state.escapes(_file_path(state, skill_id, file)):
        _add_broken(state, skill_id, file, stamp, outside_problem)
        return
    data = os.read(descriptor, SCAN_BYTES)
    header = scan_header(data, skill_id, file, stamp) if skill_id else None
    if header is None:
        if len(data) == SCAN_BYTES and data.find(b"\n---", 3) < 0:
            data += _read_rest(descriptor)
        _parse_header(state, data, skill_id, file, stamp)
        return
    state.headers[skill_id] = header
    if state.broken:
        state.broken.pop(skill_id, None)


def _parse_header(
    state: LocationState, data: bytes, skill_id: str, file: str, stamp: Stamp
) -> None:
    """Read a header with YAML, where `scan_header` is not enough."""
    from satchel.skill.reader import read_header

    folder_name = skill_id or os.path.basename(state.location.path)
    header, problems = read_header(data, folder_name, file, stamp)
    if header is None:
        _add_broken(state, skill_id, file, stamp, *(problem.at for problem in problems))
    else:
        state.headers[skill_id] = header if skill_id else header._replace(id="")
        state.broken.pop(skill_id, None)


def _add_broken(
    state: LocationState,
    skill_id: str,
    file: str,
    stamp: Stamp,
    *problems: Callable[[str], Problem],
) -> None:
    path = _file_path(state, skill_id, file)
    located = tuple(problem(path) for problem in problems)
    state.add_broken(BrokenFile(skill_id, file, stamp, located or NO_PROBLEMS))


def _file_path(state: LocationState, folder: str, file: str) -> str:
    return f"{state.path_of(folder)}/{file}"


def _read_rest(descriptor: int) -> bytes:
    parts: list[bytes] = []
    remaining = _MAX_HEADER_BYTES
    while remaining > 0 and (part := os.read(descriptor, remaining)):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)


def read_manifest_file(state: LocationState, folder: str, previous: ManifestFile) -> ManifestFile:
    """Read the skill.yaml of a folder; the same objects when it did not change."""
    # Without tool skills, YAML and hashes are not imported.
    from hashlib import sha256

    from satchel.skill.manifest_parser import MAX_FILE_BYTES, read_manifest, tool_header

    path = _file_path(state, folder, MANIFEST)
    try:
        info = os.stat(path)
        if any(previous.stamp) and stamp_of(info) == previous.stamp:
            return previous
        descriptor = os.open(path, _OPEN_FLAGS)
        try:
            info = os.fstat(descriptor)
            is_file = stat.S_ISREG(info.st_mode)
            data = os.read(descriptor, MAX_FILE_BYTES + 1) if is_file else None
        finally:
            os.close(descriptor)
    except OSError as exc:
        misnamed_path = _file_path(state, folder, MISNAMED_MANIFEST)
        if os.path.exists(misnamed_path) and not os.path.lexists(path):
            return ManifestFile(problems=(Problem("tool-file-name", misnamed_path),))
        return ManifestFile(problems=(unreadable_problem(path, exc),))
    if data is None:
        return ManifestFile(problems=(not_a_file_problem(path, MANIFEST, info.st_mode),))
    if state.escapes(path):
        return ManifestFile(problems=(outside_problem(path),))
    current_stamp = stamp_of(info)
    stamp = current_stamp if state.settled_ctime(info) else UNKNOWN_STAMP
    digest = sha256(data).hexdigest()
    if previous.reading is not None and previous.digest == digest:
        return previous._replace(stamp=stamp)
    reading = read_manifest(data, folder.rpartition("/")[2])
    header = tool_header(reading, data, folder, current_stamp)
    return ManifestFile(stamp, digest, reading, header)


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
