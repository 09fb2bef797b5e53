"""How a folder that a stranger filled is removed: without following, without recursion.

A program may nest folders deeper than any path is long, take its own rights away, or plant links.
So the way down is walked one step at a time, by changing the working folder, and nobody may be
running in it any more.

Runs inside the launcher: standard library only.
"""

from __future__ import annotations

import os
import time


def remove(top: str, deadline: float | None) -> bool:
    """Remove `top` with everything in it. Changes the working folder.

    Args:
        top: the folder.
        deadline: when to stop, by `time.monotonic`; the rest stays for a later call.

    Returns:
        Whether it is gone.
    """
    try:
        if os.path.islink(top):
            os.unlink(top)
            return True
        _enter(top)
        if not _empty(deadline):
            return False
        os.chdir("/")
        os.rmdir(top)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    finally:
        os.chdir("/")
    return True


def _empty(deadline: float | None) -> bool:
    """Remove everything in the working folder; False when time is up."""
    way: list[tuple[str, list[str]]] = [("", _unlink_files())]
    while way:
        name, folders = way[-1]
        if deadline is not None and time.monotonic() > deadline:
            return False
        if not folders:
            way.pop()
            if name:
                os.chdir("..")
                os.rmdir(name)
            continue
        folder = folders.pop()
        _enter(folder)
        way.append((folder, _unlink_files()))
    return True


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
        os.chmod(".", 0o700)
    except PermissionError:
        os.chmod(folder, 0o700)
        os.chdir(folder)


def _unlink_files() -> list[str]:
    """Unlink what is no folder in the working folder; the names of those that are."""
    with os.scandir(".") as entries:
        inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in inside:
        if not is_folder:
            os.unlink(name)
    return [name for name, is_folder in inside if is_folder]
