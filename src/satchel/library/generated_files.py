"""Files that programs make in the folders of skills, and that no lockfile lists.

Python writes bytecode caches beside the modules that it imports, and macOS writes its metadata into
every folder that it shows.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel._fs import open_beneath
from satchel.errors import SatchelError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

_DESKTOP_FILE = ".DS_Store"
"""The file that macOS writes into folders."""
_DESKTOP_MAGIC = b"\0\0\0\x01Bud1"
"""The first bytes of that file."""
_MAX_DESKTOP_FILE_BYTES = 1 << 20


def find_generated_files(paths: Iterable[str], locked: Container[str], root: str) -> list[str]:
    """Find the files of a skill that programs made and that are not locked.

    Args:
        paths: The files of the skill, relative to its folder.
        locked: The paths that its lock entry lists.
        root: Its folder.
    """
    return [path for path in paths if path not in locked and is_generated(path, root)]


def is_generated(path: str, root: str = "") -> bool:
    """Whether an unlisted file is a bytecode cache or the metadata of macOS.

    Bytecode caches are recognised by their path. The file of macOS is recognised by name and first
    bytes, so never without `root`.

    Args:
        path: Relative to the skill's folder, with `/`.
        root: That folder.
    """
    if path.rpartition("/")[2] == _DESKTOP_FILE:
        return bool(root) and _is_regular_file(root, path) and _has_desktop_magic(root, path)
    return is_bytecode_cache(path) and (not root or _is_regular_file(root, path))


def is_bytecode_cache(path: str) -> bool:
    """Whether a path is a bytecode file, or a temporary one while it is written."""
    folder, _, name = path.rpartition("/")
    stem, extension, suffix = name.rpartition(".pyc")
    is_temporary = suffix.startswith(".") and suffix[1:].isdecimal()
    is_bytecode = bool(stem and extension) and (not suffix or is_temporary)
    return is_bytecode and folder.rpartition("/")[2] == "__pycache__"


def delete_generated_files(root: str, paths: Iterable[str]) -> None:
    """Delete files below a folder, and their folders if these are empty then.

    Links that lead out of the folder are not followed.

    Raises:
        OSError: a file cannot be deleted.
        SatchelError: the same, since a link leads out of the folder.
    """
    folders: set[str] = set()
    for path in paths:
        _unlink_beneath(root, path)
        folders.add(os.path.dirname(path))
    for folder in folders:
        with suppress(OSError):  # not empty
            os.rmdir(os.path.join(root, folder))


def _is_regular_file(root: str, path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(os.path.join(root, path)).st_mode)
    except OSError:
        return False


def _has_desktop_magic(root: str, path: str) -> bool:
    try:
        descriptor = open_beneath(root, path)
    except (OSError, SatchelError):
        return False
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _MAX_DESKTOP_FILE_BYTES:
            return False
        return os.read(descriptor, 16).startswith(_DESKTOP_MAGIC)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _unlink_beneath(root: str, path: str) -> None:
    folder, name = os.path.split(path)
    if os.unlink not in os.supports_dir_fd:
        os.unlink(os.path.join(root, path))
        return
    descriptor = open_beneath(root, folder or ".")
    try:
        os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
