"""Control groups: lets the kernel bound the memory of a program, where a delegated folder exists.

Watching resident pages from outside misses files in memory; a control group counts them. Such
folders have one owner each (systemd, a container engine), so one is used only when the launcher
gets it: `Launcher(cgroup=…)`. Both versions of the interface are supported. Watching goes on as
well.

A supervisor creates a group and enters it before there is work; what it starts is in it from the
beginning. Then the supervisor leaves: otherwise the kernel might kill it for lack of memory, and
the cause would be lost.

Runs inside the launcher: standard library only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # noqa: SIM114 - pyright supports no `or` here
    from satchel.runners import _process_tree
elif __package__:  # imported by a test
    from satchel.runners import _process_tree
else:
    import _process_tree

NAME = "satchel-"
SUPERVISORS = "satchel-minders"
"""The unbounded group of supervisors whose programs run."""
MEMORY_RATIO = 2
"""The kernel's bound as a multiple of the limit: the supervisor should act first, since it reports
which limit was exceeded."""


class ControlGroup:
    """The control group of the programs of one supervisor."""

    def __init__(self, folder: str) -> None:
        self.folder = f"{folder}/{NAME}{os.getpid()}"
        self._outside = f"{folder}/{SUPERVISORS}"
        self._limits = (0, 0)
        try:
            os.mkdir(self.folder)
        except FileExistsError:  # left by a killed process with the same number
            os.rmdir(self.folder)
            os.mkdir(self.folder)
        try:
            self.enter()
        except OSError:
            os.rmdir(self.folder)
            raise
        self._second = os.path.exists(f"{self.folder}/memory.max")

    def enter(self) -> None:
        """Move this process into the group, and so everything it starts.

        Raises:
            OSError: it could not.
        """
        _write(f"{self.folder}/cgroup.procs", os.getpid())

    def leave(self) -> None:
        """Move this process, without its children, out of the group where possible.

        Called when no request waits: it takes the kernel some milliseconds.
        """
        for _ in range(2):  # the last supervisor of another launcher removes the folder
            try:
                if not os.path.isdir(self._outside):
                    os.mkdir(self._outside)
                _write(f"{self._outside}/cgroup.procs", os.getpid())
                return
            except OSError:
                pass

    def limit(self, memory: int, processes: int) -> None:
        """Bound the group; 0 is no bound."""
        if (memory, processes) == self._limits:
            return
        self._limits = (memory, processes)
        memory *= MEMORY_RATIO
        if self._second:
            self._write("memory.max", memory or "max")
            self._try("memory.swap.max", 0)
            # One more, since the supervisor is in it when it starts a program.
            self._try("pids.max", processes + 1 if processes else "max")
        else:
            # Memory and swap together may not be less than memory: raise the wider bound first.
            self._try("memory.memsw.limit_in_bytes", -1)
            self._write("memory.limit_in_bytes", memory or -1)
            self._try("memory.memsw.limit_in_bytes", memory or -1)

    def kills(self) -> int:
        """How many processes the kernel has killed for lack of memory."""
        name = "memory.events" if self._second else "memory.oom_control"
        for line in _process_tree.read(f"{self.folder}/{name}").splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
        return 0

    def _write(self, name: str, value: int | str) -> None:
        _write(f"{self.folder}/{name}", value)

    def _try(self, name: str, value: int | str) -> None:
        """Write a file that not every kernel has."""
        try:  # noqa: SIM105  (contextlib would be copied by every fork)
            self._write(name, value)
        except OSError:
            pass


def _write(path: str, value: int | str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def enter(folder: str) -> ControlGroup | None:
    """Move this process into a group of its own; None where that is impossible."""
    if not folder:
        return None
    try:
        return ControlGroup(folder)
    except OSError:
        return None


def discard(folder: str, supervisors: set[int]) -> None:
    """Remove the groups of ended supervisors; a group that is still in use stays in the set."""
    for pid in tuple(supervisors):
        if _remove(f"{folder}/{NAME}{pid}"):
            supervisors.discard(pid)


def discard_all(folder: str) -> None:
    """Remove the group of all supervisors, if it is empty."""
    _remove(f"{folder}/{SUPERVISORS}")


def _remove(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
