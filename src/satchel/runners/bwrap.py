"""How is a program held by bubblewrap? The list of options, given over by a descriptor.

bwrap itself is started with an empty environment: `--clearenv` would leave the caller's whole
environment readable in `/proc/1/environ`. Options, and with them secrets, never stand on a command
line. What is not bound does not exist inside: no home, no `/run`, no `/var`, no `/sys`.

Time goes into making namespaces (about 2 ms); each bind costs about 0.03 ms, so the list is short
but not shorter than it should be.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLACES = ("/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin")
"""Not PATH: a project may have put a folder of its own there."""
_INSIDE = "1000"
"""Who root is inside: an ordinary user. Everybody else keeps their number."""
_HOLD = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
    "--cap-drop", "ALL", "--hostname", "sandbox",
)  # fmt: skip
_DEVICES = ("null", "zero", "random", "urandom")


class View(NamedTuple):
    """What a program gets to see; every path is absolute."""

    read: tuple[str, ...]
    """Folders and files, at their own places."""
    links: tuple[tuple[str, str], ...] = ()
    """Links of the system: what they say, where they are."""
    write: tuple[str, ...] = ()
    guard: tuple[str, ...] = ()
    """Inside what may be written, and yet only to be read."""
    scratch: str = "/tmp"  # noqa: S108 - a place inside the sandbox, in memory
    cwd: str = "/"
    scratch_size: int = 0
    network: bool = False
    env: tuple[tuple[str, str], ...] = ()


def find_bwrap() -> str:
    """Where bubblewrap is installed; nothing when it is not."""
    for folder in _PLACES:
        path = os.path.join(folder, "bwrap")
        if os.access(path, os.X_OK):
            return path
    return ""


def command(bwrap: str, argv: Iterable[str]) -> tuple[str, ...]:
    """The command line. The launcher adds which descriptors hold the options and the filter."""
    return (bwrap, "--", *argv)


def options(view: View) -> bytes:
    """The options, each ended by NUL."""
    words = [*_HOLD]
    if view.network:
        words.append("--share-net")
    if os.geteuid() == 0:
        words += ["--uid", _INSIDE, "--gid", _INSIDE]
    for said, place in view.links:
        words += ["--symlink", said, place]
    words += ["--proc", "/proc", *_devices(view.scratch)]
    words += ["--size", str(view.scratch_size), "--perms", "0700", "--tmpfs", view.scratch]
    words += _binds(view)
    # The root is memory, too: without this it could be filled without a limit. And root of the
    # host, whatever its number inside, would still own the files below `/proc/sys`.
    words += ["--remount-ro", "/proc", "--remount-ro", "/", "--chdir", view.cwd]
    for name, value in view.env:
        words += ["--setenv", name, value]
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def _devices(scratch: str) -> list[str]:
    words = ["--dir", "/dev", "--symlink", scratch, "/dev/shm"]  # noqa: S108 - inside
    words += ["--symlink", "/proc/self/fd", "/dev/fd"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        words += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
    for name in _DEVICES:
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return words


def _binds(view: View) -> list[str]:
    """Shallow paths first, so that a deeper one is not covered; reading wins over writing."""
    how = dict.fromkeys(view.write, "--bind")
    for path in view.guard:
        # A folder above a guarded one could be renamed away, and another put in its place: a
        # mount point cannot.
        above = os.path.dirname(path)
        while any(above.startswith(root + "/") for root in view.write):
            how.setdefault(above, "--bind")
            above = os.path.dirname(above)
    how.update(dict.fromkeys(view.read, "--ro-bind-try"))
    how.update(dict.fromkeys(view.guard, "--ro-bind"))
    words: list[str] = []
    for path in sorted(how, key=lambda path: path.count("/")):
        words += [how[path], path, path]
    return words
