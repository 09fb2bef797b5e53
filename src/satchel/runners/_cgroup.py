"""How the kernel itself bounds the memory of a program, where a folder of control groups is ours.

Looking at resident pages from outside misses what is in no process's memory map: files in memory.
A control group counts them. But such folders have one owner each (systemd, a container engine), and
nobody may write into another's. So Satchel uses one only when told which: `Launcher(cgroup=…)`.

A minder makes a group and moves into it before there is anything to do; what it starts is in it
from the beginning. Then the minder leaves: files in memory are in nobody's pages, so for want of
memory the kernel might end whoever minds the program, and nobody could say what happened. Both
versions of the interface are known. Watching goes on as well.

Runs inside the launcher: standard library only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # noqa: SIM114 - pyright understands no `or` here
    from satchel.runners import _census
elif __package__:  # a test looks at it
    from satchel.runners import _census
else:
    import _census

NAME = "satchel-"
MINDERS = "satchel-minders"
"""The group of minders whose programs run; it has no bound."""
ROOM = 2
"""The kernel's bound is this many times the limit: whoever watches should be first, since they know
whose limit it was."""


class Group:
    """The control group of the programs of one minder."""

    def __init__(self, folder: str) -> None:
        self.folder = f"{folder}/{NAME}{os.getpid()}"
        self._outside = f"{folder}/{MINDERS}"
        self._limits = (0, 0)
        try:
            os.mkdir(self.folder)
        except FileExistsError:  # of one that had this number before, and was killed
            os.rmdir(self.folder)
            os.mkdir(self.folder)
        try:
            self.enter()
        except OSError:
            os.rmdir(self.folder)
            raise
        self._second = os.path.exists(f"{self.folder}/memory.max")

    def enter(self) -> None:
        """What this process starts from now on is in the group.

        Raises:
            OSError: it is not.
        """
        _put(f"{self.folder}/cgroup.procs", os.getpid())

    def leave(self) -> None:
        """What was started stays there; where this process may not go out, it stays as well.

        The kernel takes some milliseconds for it, so it is done when nobody waits.
        """
        for _ in range(2):  # the last minder of another launcher takes the folder with it
            try:
                if not os.path.isdir(self._outside):
                    os.mkdir(self._outside)
                _put(f"{self._outside}/cgroup.procs", os.getpid())
                return
            except OSError:
                pass

    def limit(self, memory: int, processes: int) -> None:
        """Bound what comes; 0 is no bound."""
        if (memory, processes) == self._limits:
            return
        self._limits = (memory, processes)
        memory *= ROOM
        if self._second:
            self._put("memory.max", memory or "max")
            self._try("memory.swap.max", 0)
            # One more, since the minder is in it when it starts a program.
            self._try("pids.max", processes + 1 if processes else "max")
        else:
            # Memory and swap together may not be less than memory: the wider bound goes first.
            self._try("memory.memsw.limit_in_bytes", -1)
            self._put("memory.limit_in_bytes", memory or -1)
            self._try("memory.memsw.limit_in_bytes", memory or -1)

    def kills(self) -> int:
        """How many processes the kernel has ended for want of memory."""
        name = "memory.events" if self._second else "memory.oom_control"
        for line in _census.read(f"{self.folder}/{name}").splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
        return 0

    def _put(self, name: str, value: int | str) -> None:
        _put(f"{self.folder}/{name}", value)

    def _try(self, name: str, value: int | str) -> None:
        """Set what not every kernel has."""
        try:  # noqa: SIM105  (contextlib would be copied by every fork)
            self._put(name, value)
        except OSError:
            pass


def _put(path: str, value: int | str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def enter(folder: str) -> Group | None:
    """Move this process into a group of its own; None where that is not possible."""
    if not folder:
        return None
    try:
        return Group(folder)
    except OSError:
        return None


def discard(folder: str, minders: set[int]) -> None:
    """Remove the groups of minders that have ended from the disk and from the list.

    One that a program is still in stays on the list.
    """
    for pid in tuple(minders):
        if _is_gone(f"{folder}/{NAME}{pid}"):
            minders.discard(pid)


def discard_all(folder: str) -> None:
    """Remove the group of all minders, if none is in it."""
    _is_gone(f"{folder}/{MINDERS}")


def _is_gone(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
