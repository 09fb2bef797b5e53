"""Files that a tool skill is given by name: inside the workspace, there, and not too large.

The sandbox shows a program nothing but the workspace anyway. This is asked before a process is
started, so that a model reads what is wrong in one sentence and not what an interpreter said.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Any

from satchel._fs import open_beneath
from satchel.errors import AccessDenied
from satchel.tools.packaged_record import ToolFailed
from satchel.tools.workspace import (
    LIMIT,
    NO_FILE,
    NOT_FOUND,
    NOT_READABLE,
    OUTSIDE,
    TOO_LARGE,
    Workspace,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.skill.manifest import Files


def check_files(
    files: Files, arguments: Mapping[str, Any], root: str, limit: int = LIMIT
) -> dict[str, Any]:
    """The arguments, with paths that are relative to the workspace.

    Args:
        files: Which parameters name files.
        arguments: Checked against the schema, defaults filled in.
        root: The workspace.
        limit: Bytes of a file that is read.

    Raises:
        ToolFailed: one leads outside, is not there, is no file, or is too large.
    """
    found = dict(arguments)
    place = Workspace(root, limit)
    for name in files.read:
        path = found.get(name)
        if isinstance(path, str) and path:  # an optional one that is left out is empty
            found[name] = check_source(place, path)
    for name in files.write:
        path = found.get(name)
        if isinstance(path, str) and path and name not in files.read:
            found[name] = place.check_target(path, overwrite=True)
    return found


def check_source(place: Workspace, path: str) -> str:
    """The path of a file that may be read, relative to the workspace.

    Raises:
        ToolFailed: it leads outside, is not there, is no file, or is too large.
    """
    wanted = place.relative(path)
    try:
        descriptor = open_beneath(place.root, wanted)
    except AccessDenied:
        raise ToolFailed(OUTSIDE, path=path) from None
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            raise ToolFailed(NOT_FOUND, path=path) from None
        odd = exc.errno in (errno.ELOOP, errno.ENXIO, errno.EINVAL)
        raise ToolFailed(NO_FILE if odd else NOT_READABLE, path=path) from None
    try:
        info = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(info.st_mode):
        raise ToolFailed(NO_FILE, path=path)
    if info.st_size > place.limit:
        size, limit = (f"{count / (1 << 20):.1f}" for count in (info.st_size, place.limit))
        raise ToolFailed(TOO_LARGE, path=path, size=size, limit=limit.removesuffix(".0"))
    return wanted
