"""Where may this user make control groups, so that the kernel itself bounds a program's memory?

Version two first: the nearest group above this process that hands the memory controller down. Then
version one: the memory group of this process. It must be writable. Nowhere is an answer too: memory
is watched then (`_minder`), as it is anyway.
"""

from __future__ import annotations

import os

ROOT = "/sys/fs/cgroup"
OWN = "/proc/self/cgroup"


def find_folder(root: str = ROOT, own: str = OWN) -> str:
    """A folder in which groups can be made and joined; nothing when there is none."""
    return next((folder for folder in places(root, own) if _may_use(folder)), "")


def places(root: str, own: str) -> list[str]:
    """Folders that could serve, the best first; whether they may be written is another question."""
    try:
        with open(own, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    rows = {row[1]: row[2].lstrip("/") for row in lines if len(row) == 3}
    found: list[str] = []
    if "" in rows and os.path.exists(os.path.join(root, "cgroup.controllers")):
        folder = os.path.normpath(os.path.join(root, rows[""]))
        while folder.startswith(root):
            if "memory" in _read(os.path.join(folder, "cgroup.subtree_control")).split():
                found.append(folder)
                break
            folder = os.path.dirname(folder)
    for controllers, path in rows.items():
        if "memory" in controllers.split(","):
            folder = os.path.normpath(os.path.join(root, "memory", path))
            if os.path.isdir(folder):
                found.append(folder)
    return found


def _may_use(folder: str) -> bool:
    """Whether a group can be made there, and a process moved into it."""
    return os.access(folder, os.W_OK | os.X_OK) and os.access(
        os.path.join(folder, "cgroup.procs"), os.W_OK
    )


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096)
    except OSError:
        return ""
