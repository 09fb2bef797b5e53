"""Supervisor process: starts a program, enforces memory and process limits, kills its process tree.

A supervisor is a fork of the launcher that runs one program. It is a subreaper: every descendant of
the program becomes its child when the descendant's parent ends, however often it forked and changed
its session. So having no child means that nothing is left.

It kills everything when the program has ended, when the host requests it, when the host is gone
(its end of the control socket closes, or its process ends, even by SIGKILL), when the program and
its descendants exceed their memory or their number, and when they write too much to an overlay.

Runs inside the launcher: standard library only.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # noqa: SIM114 - pyright supports no `or` here
    from satchel.runners import _launcher_child, _process_tree
elif __package__:  # imported by a test
    from satchel.runners import _launcher_child, _process_tree
else:
    import _launcher_child
    import _process_tree

if TYPE_CHECKING:
    import _socket
    from typing import Any

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

FIRST_CHECK_S = 0.010
"""Before the first memory check: most programs have ended by then."""
MIN_CHECK_INTERVAL_S, MAX_CHECK_INTERVAL_S = 0.005, 0.050
WALK_SHARE = 9
"""Pause between two walks over an upper folder, as a multiple of what the last one took."""
MAX_DEPTH = 128
"""Folders in each other that an upper folder may hold."""
MAX_GROWTH_BYTES_PER_S = 4e9
"""How fast a program may be able to fill memory."""
REMOVE_TIMEOUT_S = 0.1
"""For removing the scratch folder before the exit is reported; the rest is removed afterwards."""

libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Become the parent of descendants whose own parent ends."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def protect_memory() -> None:
    """Deny other processes of this user access to this one's memory, which holds secrets."""
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def load_landlock() -> None:
    """Import what only one tier needs; the child that needs it reports a failure."""
    try:  # noqa: SIM105  (contextlib would be copied by every fork)
        __import__("_landlock")
    except Exception:  # noqa: BLE001, S110
        pass


def serve(requests: _socket.socket, notice: int, ends: tuple[int, int]) -> None:
    """Serve one request: start a program and supervise it until nothing of it is left.

    Args:
        requests: socket of the host's messages, shared with other supervisors.
        notice: pipe to the launcher, for who is busy.
        ends: become readable when the host or the launcher has ended.
    """
    become_subreaper()
    os.umask(0o077)
    packet, descriptors, is_complete = _launcher_child.receive(requests)
    if not packet or not descriptors:
        return  # the host is gone
    os.write(notice, os.getpid().to_bytes(4, sys.byteorder) + packet[:1])
    control, *program_descriptors = descriptors
    scratch = ""
    spec: dict[str, Any] = {}
    try:
        spec = _launcher_child.read_spec(packet, program_descriptors, is_complete=is_complete)
        scratch: str = spec["scratch"]
        overlay = spec["overlay"]
        written = [overlay["upper"], overlay["scratch"]] if overlay else []
        tree = _ProgramTree(spec["limits"], written)
        tree.pid = _launcher_child.start(spec, program_descriptors, control)
    except BaseException as error:  # noqa: BLE001  (every failure is reported)
        refused = isinstance(error, _launcher_child.StartRefused)
        if scratch:
            remove(scratch, None)
        _launcher_child.send(
            control, f"failed {error if refused else f'the launcher failed: {error!r}'}"
        )
        return
    _launcher_child.send(control, f"started {tree.pid}")
    tree.watch(control, requests, *ends)
    tree.end()
    if not _launcher_child.program_started(spec) and tree.code == 1 and not tree.reason:
        tree.reason = "cannot-start"  # bwrap's message is on stderr
    gone = not scratch or remove(scratch, time.monotonic() + REMOVE_TIMEOUT_S)
    _launcher_child.send(control, f"exit {tree.code} {tree.peak} {tree.reason}")
    os.close(control)
    if not gone:
        remove(scratch, None)


class _ProgramTree:
    def __init__(self, limits: dict[str, Any], folders: list[str]) -> None:
        self.pid = 0
        self.folders = folders
        """Where it writes; each is limited."""
        self.written: int = limits["written"]
        self.changes: int = limits["changes"]
        self.memory: int = limits["memory"] or 1 << 62
        self.processes: int = limits["processes"] or 1 << 31
        self.code = 0
        self.peak = 0
        self.reason = ""

    def watch(self, control: int, requests: _socket.socket, host: int, launcher: int) -> None:
        """Return when the program has ended or must be killed."""
        ended = os.pidfd_open(self.pid)
        poll = select.poll()
        for descriptor in (control, ended, host, launcher):
            poll.register(descriptor, select.POLLIN)
        pause = FIRST_CHECK_S
        next_walk = 0.0
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(pause * 1000)}
            if ended in ready:
                break
            if launcher in ready:
                # Left open, it would receive requests without a reader.
                requests.close()
                poll.unregister(launcher)
                continue
            if ready:  # a `kill` message, or the end of the control socket or of the host
                self.reason = "killed"
                if control in ready:
                    os.read(control, 16)
                break
            pids = _process_tree.descendants(os.getpid())
            if len(pids) > self.processes:
                self.reason = "processes"
                break
            used_bytes = _process_tree.memory_of(pids, self.memory)
            self.peak = max(self.peak, used_bytes)
            if used_bytes > self.memory:
                self.reason = "memory"
                break
            began = time.monotonic()
            if self.folders and began >= next_walk:
                if any(_exceeds(folder, self.written, self.changes) for folder in self.folders):
                    self.reason = "written"
                    break
                ended_walk = time.monotonic()
                next_walk = ended_walk + (ended_walk - began) * WALK_SHARE
            pause = (self.memory - used_bytes) / MAX_GROWTH_BYTES_PER_S
            pause = min(max(pause, MIN_CHECK_INTERVAL_S), MAX_CHECK_INTERVAL_S)
        os.close(ended)

    def end(self) -> None:
        """Kill and reap all descendants.

        All are stopped before any is killed, so that none forks away from the list. One that still
        does becomes a child of this process: repeat until there is none.
        """
        pause = 0.0002
        while self._reap():
            stopped: set[int] = set()
            while new := [
                pid for pid in _process_tree.descendants(os.getpid()) if pid not in stopped
            ]:
                for pid in new:
                    _process_tree.send(pid, signal.SIGSTOP)
                stopped.update(new)
            for pid in stopped:
                _process_tree.send(pid, signal.SIGKILL)
            if not self._reap():
                return
            time.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _reap(self) -> bool:
        """Reap what has ended; False when there is no child left."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self.pid:
                    self.code = os.waitstatus_to_exitcode(status)
                    self.peak = max(self.peak, usage.ru_maxrss * 1024)
        except ChildProcessError:
            return False


# --- folders with untrusted content: without following links -------------------------------

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _exceeds(upper: str, max_bytes: int, max_entries: int) -> bool:
    """Whether a folder that a program is writing to holds too much."""
    size = entries = 0

    def walk(name: str, above: int | None, depth: int) -> bool:
        nonlocal size, entries
        try:
            folder = _open(name, above)
        except OSError:
            return False  # removed or closed meanwhile; what is there at the end is checked again
        try:
            for below in os.listdir(folder):
                try:
                    info = os.stat(below, dir_fd=folder, follow_symlinks=False)
                except OSError:
                    continue
                size += info.st_blocks * 512
                entries += 1
                if size > max_bytes or entries > max_entries or depth > MAX_DEPTH:
                    return True
                if stat.S_ISDIR(info.st_mode) and walk(below, folder, depth + 1):
                    return True
        finally:
            os.close(folder)
        return False

    return walk(upper, None, 0)


def remove(top: str, deadline: float | None) -> bool:
    """Remove a folder tree until the deadline; whether it is gone.

    The tree may be deeper than there are descriptors, so only one folder is open.
    """
    try:
        if os.path.islink(top):
            os.unlink(top)
            return True
        folder = _open(top, None)
        os.fchmod(folder, 0o700)
        if not _empty(folder, deadline):
            return False
        os.rmdir(top)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _empty(folder: int, deadline: float | None) -> bool:
    """Remove everything in an opened folder, and close it; False at the deadline."""
    try:
        way: list[tuple[str, list[str]]] = [("", _unlink_files(folder))]
        while way:
            name, folders = way[-1]
            if deadline is not None and time.monotonic() > deadline:
                return False
            if folders:
                below = folders.pop()
                folder = _move(folder, below)
                way.append((below, _unlink_files(folder)))
                continue
            way.pop()
            if name:
                folder = _move(folder, "..")
                os.rmdir(name, dir_fd=folder)
    finally:
        os.close(folder)
    return True


def _move(folder: int, name: str) -> int:
    opened = _open(name, folder)
    os.close(folder)
    if os.fstat(opened).st_mode & 0o700 != 0o700:
        os.fchmod(opened, 0o700)
    return opened


def _open(name: str, folder: int | None) -> int:
    """Open a folder, even if its program took away the right to list it."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        path_descriptor = os.open(name, _FOLDER | os.O_PATH, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{path_descriptor}", 0o700)
        return os.open(".", _FOLDER, dir_fd=path_descriptor)
    finally:
        os.close(path_descriptor)


def _unlink_files(folder: int) -> list[str]:
    """Unlink all but folders in a folder; returns the names of the folders."""
    with os.scandir(folder) as entries:
        inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in inside:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in inside if is_folder]
