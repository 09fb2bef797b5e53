"""Who looks after one program: starts it, watches it, ends it with all its descendants, reports.

A minder is a fork of the launcher. It looks after one program at a time, and is used again only if
that one ended by itself and left nothing. It is a subreaper: whatever the program starts comes back
to it when its parent ends, however often it forked and changed its session. So "no child is left"
is something that the minder can know.

It ends everything when the program itself has ended, when the host says so, when the host is gone
(its end of the control socket closes, or its process ends, even by SIGKILL), and when the program
and its descendants hold more memory, or are more, than they may.

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
if TYPE_CHECKING:  # noqa: SIM114 - pyright understands no `or` here
    from satchel.runners import _census, _cgroup, _child, _remove
elif __package__:  # a test looks at it
    from satchel.runners import _census, _cgroup, _child, _remove
else:
    import _census
    import _cgroup
    import _child
    import _remove

if TYPE_CHECKING:
    from typing import Any

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

FIRST_LOOK = 0.010
"""Seconds before the first look at memory: most programs have ended by then."""
SHORTEST, LONGEST = 0.005, 0.050
"""Seconds between looks."""
FASTEST_GROWTH = 4e9
"""Bytes a second that a program may be able to fill."""
REUSE = 100
"""Programs that one minder sees after at most."""
PLENTY = 4
"""Minders that wait for work: one more is not needed."""
KILLED = (-9, 137)
"""How a program ends that was killed: itself, or by what bwrap says of it."""
TIDY = 0.1
"""Seconds for removing the scratch folder before the end is reported; the rest comes after."""

libc = ctypes.CDLL(None, use_errno=True)


def adopt() -> None:
    """Become the parent of descendants whose own parent ends."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def hide() -> None:
    """Keep other processes of this user out of this one's memory, which holds secrets."""
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def load_confine() -> None:
    """Import the code that only one tier needs; a failure is told by the child that needs it."""
    try:  # noqa: SIM105  (contextlib would be copied by every fork)
        __import__("_confine")
    except Exception:  # noqa: BLE001, S110
        pass


def rehearse() -> None:
    """Go through all of it once before it counts.

    A fork shares its memory until it writes to it, and Python writes to whatever it touches. Done
    now, those copies are not made while somebody waits.
    """
    _census.held(_census.below(os.getpid()), 0)
    near, far = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    limits = {"file_size": 0, "open_files": 0, "address_space": 0, "memory": 0, "processes": 0}
    spec = {"argv": ["/"], "env": {"A": "B"}, "cwd": "/", "tier": "bwrap", "limits": limits}
    spec |= {"arguments": b"", "seccomp": b"", "scratch": ""}
    given = b"".join(each.to_bytes(4, sys.byteorder) for each in (near.fileno(), 0, 1, 2))
    near.sendmsg([b"S" + marshal.dumps(spec)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, given)])
    packet, (control, *given), whole = _child.take(far)
    spec = _child.read_spec(packet, given, whole=whole)
    try:
        _child.start(spec, given, control)
    except _child.Refused:
        pass  # a folder is no program
    finally:
        _child.was_reached(spec)
    _child.taken.clear()
    _child.tell(control, f"exit {os.getpid()}")
    os.close(control)
    near.close()
    far.close()


def serve(requests: _socket.socket, notice: int, ends: tuple[int, int], cgroup: str) -> None:
    """Take a request, start its program and look after it until nothing of it is left; again.

    Args:
        requests: where the host's messages come from, shared with other minders.
        notice: where the launcher hears who is taken and who is free.
        ends: tell, by becoming readable, that the host or the launcher has ended.
        cgroup: a folder for control groups, if there is one.
    """
    adopt()
    os.umask(0o077)
    group = _cgroup.enter(cgroup)
    poll = select.poll()
    poll.register(requests.fileno(), select.POLLIN)
    if not poll.poll(0):  # nobody waits
        rehearse()
    own = os.getpid().to_bytes(4, sys.byteorder)
    for _ in range(REUSE):
        while True:
            try:
                packet, descriptors, whole = _child.take(requests)
            except BlockingIOError:
                if _census.stock[0] > PLENTY:
                    return  # many were needed, and are not any more
            else:
                break
        if not packet or not descriptors:
            return  # the host is gone
        os.write(notice, own + packet[:1])
        served = _Service(requests, ends, group)
        if not served.one(packet, descriptors, whole=whole):
            return
        if _census.stock[0] >= PLENTY:
            return
        if group is not None:
            group.enter()  # or this process ends: it holds no request, and another takes its place
        os.write(notice, own + b"F")


class _Service:
    """What serving a request needs beside the request."""

    def __init__(
        self, requests: _socket.socket, ends: tuple[int, int], group: _cgroup.Group | None
    ) -> None:
        self.requests = requests
        self.ends = ends
        self.group = group

    def one(self, packet: bytes, descriptors: list[int], *, whole: bool) -> bool:
        """Serve one; whether all went so smoothly that this process may be used again."""
        control, *given = descriptors
        scratch = ""
        spec: dict[str, Any] = {}
        try:
            spec = _child.read_spec(packet, given, whole=whole)
            scratch: str = spec["scratch"]
            limits = spec["limits"]
            if self.group is not None:
                self.group.limit(limits["memory"], limits["processes"])
            ward = _Ward(limits, self.group)
            ward.pid = _child.start(spec, given, control)
        except _child.Again:
            _child.was_reached(spec)
            _child.tell(control, "again")
            return False
        except BaseException as error:  # noqa: BLE001  (also what nobody foresaw must be told)
            refused = isinstance(error, _child.Refused)
            _child.was_reached(spec)
            if scratch:
                _remove.remove(scratch, None)
            _child.tell(
                control, f"failed {error if refused else f'the launcher failed: {error!r}'}"
            )
            return False
        _child.tell(control, f"started {ward.pid}")
        if self.group is not None:
            self.group.leave()
        ward.watch(control, self.requests, *self.ends)
        ward.end()
        if not _child.was_reached(spec) and ward.code == 1 and not ward.reason:
            ward.reason = "cannot-start"  # what bwrap complains of stands on stderr
        gone = not scratch or _remove.remove(scratch, time.monotonic() + TIDY)
        _child.tell(control, f"exit {ward.code} {ward.peak} {ward.reason}")
        os.close(control)
        if not gone:
            _remove.remove(scratch, None)
        return gone and not ward.reason and self.requests.fileno() >= 0


class _Ward:
    """The program and its descendants."""

    def __init__(self, limits: dict[str, Any], group: _cgroup.Group | None) -> None:
        self.pid = 0
        self.group = group
        self.kills = group.kills() if group is not None else 0
        self.memory: int = limits["memory"] or 1 << 62
        self.processes: int = limits["processes"] or 1 << 31
        self.code = 0
        self.peak = 0
        self.reason = ""

    def watch(self, control: int, requests: _socket.socket, host: int, launcher: int) -> None:
        """Return when the program has ended or must end."""
        ended = os.pidfd_open(self.pid)
        poll = select.poll()
        for descriptor in (control, ended, host, launcher):
            poll.register(descriptor, select.POLLIN)
        pause = FIRST_LOOK
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(pause * 1000)}
            if ended in ready:
                break
            if launcher in ready:
                # Held open here, it would take requests that nobody serves.
                requests.close()
                poll.unregister(launcher)
                continue
            if ready:  # `kill`, the control socket's end, or the host's end: all mean the same
                self.reason = "killed"
                if control in ready:
                    os.read(control, 16)
                break
            pids = _census.below(os.getpid())
            if len(pids) > self.processes:
                self.reason = "processes"
                break
            held = _census.held(pids, self.memory)
            self.peak = max(self.peak, held)
            if held > self.memory or self._choked():
                self.reason = "memory"
                break
            pause = min(max((self.memory - held) / FASTEST_GROWTH, SHORTEST), LONGEST)
        os.close(ended)

    def _choked(self) -> bool:
        """Whether the kernel has ended one of them for want of memory."""
        return self.group is not None and self.group.kills() > self.kills

    def end(self) -> None:
        """End all descendants and take back each of them.

        All are stopped before any is killed, so that none can fork away from the list. Whoever
        still does comes back here as a child: the round is repeated until there is none.
        """
        pause = 0.0002
        while self._take_back():
            stopped: set[int] = set()
            while new := [pid for pid in _census.below(os.getpid()) if pid not in stopped]:
                for pid in new:
                    _census.send(pid, signal.SIGSTOP)
                stopped.update(new)
            for pid in stopped:
                _census.send(pid, signal.SIGKILL)
            if not self._take_back():
                return
            time.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _take_back(self) -> bool:
        """Reap what has ended. False: there is no child any more."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self.pid:
                    self.code = os.waitstatus_to_exitcode(status)
                    if not self.reason and self.code in KILLED and self._choked():
                        self.reason = "memory"
                    self.peak = max(self.peak, usage.ru_maxrss * 1024)
        except ChildProcessError:
            return False
