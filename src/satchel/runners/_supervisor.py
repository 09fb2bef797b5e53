"""Supervisor process: starts a program, enforces memory and process limits, kills its process tree.

A supervisor is a fork of the launcher. It runs one program at a time, and is reused only if that
one ended by itself and left nothing. It is a subreaper: every descendant of the program becomes its
child when the descendant's parent ends, however often it forked and changed its session. So having
no child means that nothing is left.

It kills everything when the program has ended, when the host requests it, when the host is gone
(its end of the control socket closes, or its process ends, even by SIGKILL), and when the program
and its descendants exceed their memory or their number.

Runs inside the launcher: standard library only.
"""

from __future__ import annotations

import _socket
import ctypes
import marshal
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # noqa: SIM114 - pyright supports no `or` here
    from satchel.runners import _cgroup, _launcher_child, _process_tree
elif __package__:  # imported by a test
    from satchel.runners import _cgroup, _launcher_child, _process_tree
else:
    import _cgroup
    import _launcher_child
    import _process_tree

if TYPE_CHECKING:
    from typing import Any

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

FIRST_CHECK_S = 0.010
"""Before the first memory check: most programs have ended by then."""
MIN_CHECK_INTERVAL_S, MAX_CHECK_INTERVAL_S = 0.005, 0.050
MAX_GROWTH_BYTES_PER_S = 4e9
"""How fast a program may be able to fill memory."""
MAX_PROGRAM_COUNT = 100
"""Programs that one supervisor runs before it is replaced."""
MAX_IDLE_COUNT = 4
KILLED = (-9, 137)
"""Exit codes of a killed program: its own, or as reported by bwrap."""
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


def warm_up() -> None:
    """Run through a whole request once.

    A fork shares its memory until it writes to it, and Python writes to whatever it touches. These
    pages are copied now instead of during a request.
    """
    _process_tree.memory_of(_process_tree.descendants(os.getpid()), 0)
    near, far = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    limits = {"file_size": 0, "open_files": 0, "address_space": 0, "memory": 0, "processes": 0}
    spec = {"argv": ["/"], "env": {"A": "B"}, "cwd": "/", "tier": "bwrap", "limits": limits}
    spec |= {"arguments": b"", "seccomp": b"", "scratch": ""}
    given = b"".join(each.to_bytes(4, sys.byteorder) for each in (near.fileno(), 0, 1, 2))
    near.sendmsg([b"S" + marshal.dumps(spec)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, given)])
    packet, (control, *given), whole = _launcher_child.receive(far)
    spec = _launcher_child.read_spec(packet, given, whole=whole)
    try:
        _launcher_child.start(spec, given, control)
    except _launcher_child.StartRefused:
        pass  # a folder is no program
    finally:
        _launcher_child.program_started(spec)
    _launcher_child.own_limits.clear()
    _launcher_child.send(control, f"exit {os.getpid()}")
    os.close(control)
    near.close()
    far.close()


def serve(requests: _socket.socket, notice: int, ends: tuple[int, int], cgroup: str) -> None:
    """Serve requests: start a program and supervise it until nothing of it is left.

    Args:
        requests: socket of the host's messages, shared with other supervisors.
        notice: pipe to the launcher for who is busy and who is idle.
        ends: become readable when the host or the launcher has ended.
        cgroup: a folder for control groups, if there is one.
    """
    become_subreaper()
    os.umask(0o077)
    group = _cgroup.enter(cgroup)
    poll = select.poll()
    poll.register(requests.fileno(), select.POLLIN)
    if not poll.poll(0):  # no request waits
        warm_up()
    own = os.getpid().to_bytes(4, sys.byteorder)
    for _ in range(MAX_PROGRAM_COUNT):
        while True:
            try:
                packet, descriptors, whole = _launcher_child.receive(requests)
            except BlockingIOError:
                if _process_tree.idle_count[0] > MAX_IDLE_COUNT:
                    return  # no longer needed
            else:
                break
        if not packet or not descriptors:
            return  # the host is gone
        os.write(notice, own + packet[:1])
        served = _LaunchService(requests, ends, group)
        if not served.one(packet, descriptors, whole=whole):
            return
        if _process_tree.idle_count[0] >= MAX_IDLE_COUNT:
            return
        if group is not None:
            group.enter()  # on failure this process ends: it holds no request and is replaced
        os.write(notice, own + b"F")


class _LaunchService:
    def __init__(
        self, requests: _socket.socket, ends: tuple[int, int], group: _cgroup.ControlGroup | None
    ) -> None:
        self.requests = requests
        self.ends = ends
        self.group = group

    def one(self, packet: bytes, descriptors: list[int], *, whole: bool) -> bool:
        """Serve one request; returns whether this process may be reused."""
        control, *given = descriptors
        scratch = ""
        spec: dict[str, Any] = {}
        try:
            spec = _launcher_child.read_spec(packet, given, whole=whole)
            scratch: str = spec["scratch"]
            limits = spec["limits"]
            if self.group is not None:
                self.group.limit(limits["memory"], limits["processes"])
            tree = _ProgramTree(limits, self.group)
            tree.pid = _launcher_child.start(spec, given, control)
        except _launcher_child.TryAnother:
            _launcher_child.program_started(spec)
            _launcher_child.send(control, "again")
            return False
        except BaseException as error:  # noqa: BLE001  (every failure is reported)
            refused = isinstance(error, _launcher_child.StartRefused)
            _launcher_child.program_started(spec)
            if scratch:
                remove(scratch, None)
            _launcher_child.send(
                control, f"failed {error if refused else f'the launcher failed: {error!r}'}"
            )
            return False
        _launcher_child.send(control, f"started {tree.pid}")
        if self.group is not None:
            self.group.leave()
        tree.watch(control, self.requests, *self.ends)
        tree.end()
        if not _launcher_child.program_started(spec) and tree.code == 1 and not tree.reason:
            tree.reason = "cannot-start"  # bwrap's message is on stderr
        gone = not scratch or remove(scratch, time.monotonic() + REMOVE_TIMEOUT_S)
        _launcher_child.send(control, f"exit {tree.code} {tree.peak} {tree.reason}")
        os.close(control)
        if not gone:
            remove(scratch, None)
        return gone and not tree.reason and self.requests.fileno() >= 0


class _ProgramTree:
    def __init__(self, limits: dict[str, Any], group: _cgroup.ControlGroup | None) -> None:
        self.pid = 0
        self.group = group
        self.kills = group.kills() if group is not None else 0
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
            held = _process_tree.memory_of(pids, self.memory)
            self.peak = max(self.peak, held)
            if held > self.memory or self._out_of_memory():
                self.reason = "memory"
                break
            pause = (self.memory - held) / MAX_GROWTH_BYTES_PER_S
            pause = min(max(pause, MIN_CHECK_INTERVAL_S), MAX_CHECK_INTERVAL_S)
        os.close(ended)

    def _out_of_memory(self) -> bool:
        return self.group is not None and self.group.kills() > self.kills

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
                    if not self.reason and self.code in KILLED and self._out_of_memory():
                        self.reason = "memory"
                    self.peak = max(self.peak, usage.ru_maxrss * 1024)
        except ChildProcessError:
            return False


# --- removing a folder with untrusted content: without following links, with a deadline ---------


def remove(top: str, deadline: float | None) -> bool:
    """Remove a folder tree until the deadline; whether it is gone. Changes the working folder."""
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
    """Remove everything in the working folder; False at the deadline."""
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
    """Unlink all but folders in the working folder; returns the names of the folders."""
    with os.scandir(".") as entries:
        inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in inside:
        if not is_folder:
            os.unlink(name)
    return [name for name, is_folder in inside if is_folder]
