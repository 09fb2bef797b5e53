"""Mounts an overlay over a workspace, for the launcher's child, before it becomes the program.

The child gets a mount namespace of its own, as an ordinary user inside a user namespace. There the
workspace is covered by an overlay of itself: the program sees its own writes, which land in the
upper folder, and the workspace stays as it is. The namespace ends with its last process.

Runs inside the launcher: standard library only.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 1, 2, 4, 8
_REMOUNT, _BIND, _RECURSIVE, _SLAVE = 0x20, 0x1000, 0x4000, 1 << 19
_PR_SET_DUMPABLE = 4
_FOLDER = (
    getattr(os, "O_PATH", 0) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)  # fmt: skip

EMPTY_FILE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "py.typed")

_libc = ctypes.CDLL(None, use_errno=True)


def mount_overlay(workspace: str, upper: str, work: str) -> None:
    """Cover the workspace in a new mount namespace of this process.

    Paths go to the kernel as descriptors: any name is possible, and no link is followed.

    Raises:
        OSError: it failed; the process may be half prepared and must not go on.
    """
    _unshare()
    _call("mount", b"none", b"/", None, _RECURSIVE | _SLAVE, None)
    # Opened after the new namespace began: the kernel refuses folders of another one.
    folders = [os.open(path, _FOLDER) for path in (workspace, upper, work)]
    lower, above, beside = (f"/proc/self/fd/{folder}" for folder in folders)
    # `volatile`: nothing is synced when the namespace ends; what is applied is synced then.
    options = f"lowerdir={lower},upperdir={above},workdir={beside},userxattr,volatile"
    flags = _NO_SUID | _NO_DEVICES
    try:
        _call("mount", b"overlay", lower.encode(), b"overlay", flags, options.encode())
    finally:
        for folder in folders:
            os.close(folder)


def cover_files(paths: list[str]) -> None:
    """Cover files and folders by empty ones that cannot be written; after `mount_overlay`.

    Raises:
        OSError: it failed; the process may be half prepared and must not go on.
    """
    closed = _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES | _NO_PROGRAMS
    for path in map(os.fsencode, paths):
        if os.path.isdir(path):
            _call("mount", b"none", path, b"tmpfs", closed & ~(_REMOUNT | _BIND), b"size=4k")
            continue
        _call("mount", os.fsencode(EMPTY_FILE), path, None, _BIND, None)
        _call("mount", b"none", path, None, closed, None)


def _unshare() -> None:
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        try:
            _call("unshare", _NEW_MOUNTS)
        except PermissionError:
            pass  # root without its capabilities, as in a container
        else:
            return
    _call("unshare", _NEW_MOUNTS | _NEW_USERS)
    # The launcher is not dumpable, which makes these files root's.
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    try:
        for name, text in _identity(uid, gid):
            file = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(file, text.encode())
            finally:
                os.close(file)
    finally:
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _identity(uid: int, gid: int) -> Iterator[tuple[str, str]]:
    yield "setgroups", "deny"
    yield "uid_map", f"{uid} {uid} 1"
    yield "gid_map", f"{gid} {gid} 1"


def _call(name: str, *values: int | bytes | None) -> None:
    if getattr(_libc, name)(*values) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
