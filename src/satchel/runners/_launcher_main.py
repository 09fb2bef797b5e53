"""How programs are started: the launcher, a small process of its own with a single thread.

The host starts it as `python -I -S _launcher_main.py SOCKET HOST CGROUP` and asks over a socket
that keeps messages apart. The launcher itself never reads from it: it keeps a few forks of itself
ready, the minders (`_minder`). One that is free takes the next message, starts the program
(`_child`) and looks after it to the end. So nothing has to be forked between a request and its
program, and a bad request is the trouble of one minder only.

Why not start programs from the host itself: forking a large process with many threads is slow,
running Python between fork and exec is unsafe there, and a host that is killed cannot clean up.

Standard library only, few modules: what is imported here is copied by every fork.
"""

from __future__ import annotations

import _socket
import gc
import os
import resource
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # noqa: SIM114 - pyright understands no `or` here
    from satchel.runners import _census, _cgroup, _minder
elif __package__:  # a test looks at it
    from satchel.runners import _census, _cgroup, _minder
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # which -I keeps off the path
    import _census
    import _cgroup
    import _minder

READY, ENOUGH = _minder.PLENTY, 2
"""Minders kept in stock; with fewer than enough of them there is no waiting for a good moment."""
LATER = 0.05
"""Seconds before the stock is filled up while there are enough: most come back by themselves."""
IDLE = 3
"""Seconds after which a minder that waits asks itself whether it is still needed."""
PATIENCE = 5.0
"""Seconds to wait, when the host is gone, for minders whose groups must be removed."""
NOTICE = 5
"""Bytes of what a minder says: its number, and `F` for free or a letter of its request."""


def main() -> None:
    """Keep minders ready until the host is gone."""
    requests = _socket.socket(fileno=int(sys.argv[1]))
    host, cgroup = int(sys.argv[2]), sys.argv[3]
    os.set_inheritable(requests.fileno(), False)  # noqa: FBT003
    requests.setsockopt(
        _socket.SOL_SOCKET, _socket.SO_RCVTIMEO, IDLE.to_bytes(8, sys.byteorder) + bytes(8)
    )
    watch, own = os.pidfd_open(host), os.pidfd_open(os.getpid())
    if os.getppid() != host:
        return  # it died before it could ask
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each program gets its own
    _minder.hide()
    _minder.adopt()  # a minder that is killed leaves its program to this process
    wake, woken = os.pipe()
    notices, notice = os.pipe()
    for end in (wake, woken, notices):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    poll = select.poll()
    for descriptor in (wake, notices, watch):
        poll.register(descriptor, select.POLLIN)
    poll.register(requests.fileno(), 0)  # only its end is of interest
    _minder.rehearse()
    gc.collect()
    gc.disable()
    gc.freeze()  # a collection in a fork would copy every page it touches
    stock: set[int] = set()
    groups: set[int] = set()
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(_pause(stock))}
        if watch in ready or requests.fileno() in ready:
            break
        ended = _reap() if wake in ready and _read_all(wake) else set[int]()
        _count(stock, _read_all(notices))
        stock -= ended  # after their last words
        if cgroup:
            groups |= ended
            _cgroup.discard(cgroup, groups)
        while len(stock) < READY and (not ready or len(stock) < ENOUGH):
            pid = _fork()
            if pid == 0:
                _become_minder(requests, notice, (watch, own), cgroup)
            if pid < 0:
                break
            stock.add(pid)
        _census.stock[0] = min(len(stock), 255)
    requests.close()
    if cgroup:
        _tidy(cgroup, groups)


def _tidy(cgroup: str, groups: set[int]) -> None:
    """Wait a moment for minders that still have a program: their groups outlive them."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        groups |= _reap()
        _cgroup.discard(cgroup, groups)
        if not groups and not _census.children_of(os.getpid()):
            _cgroup.discard_all(cgroup)
            break
        time.sleep(0.01)


def _fork() -> int:
    """Fork; below 0 when there are too many processes. Then the next event, or time, helps."""
    try:
        return os.fork()
    except OSError:
        return -1


def _pause(stock: set[int]) -> float | None:
    """Milliseconds to wait for events; None: until there is one."""
    if len(stock) >= READY:
        return None
    return LATER * 1000 if len(stock) >= ENOUGH else 50.0


def _become_minder(
    requests: _socket.socket, notice: int, ends: tuple[int, int], cgroup: str
) -> None:
    """Run in the fork; never comes back."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _minder.serve(requests, notice, ends, cgroup)
    finally:
        os._exit(0)


def _count(stock: set[int], notices: bytes) -> None:
    """Note which minders were taken and which are free again."""
    for at in range(0, len(notices), NOTICE):
        minder = int.from_bytes(notices[at : at + NOTICE - 1], sys.byteorder)
        letter = notices[at + NOTICE - 1 : at + NOTICE]
        if letter == b"F":
            stock.add(minder)
        else:
            stock.discard(minder)
        if letter == b"L":
            _minder.load_confine()  # once, here: each later fork has it then


def _reap() -> set[int]:
    """Take back minders that ended, and end what a killed one left behind."""
    ended: set[int] = set()
    abnormal = False
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended.add(pid)
            abnormal = abnormal or os.WIFSIGNALED(status)
    except ChildProcessError:
        return ended
    if abnormal:
        # Minders stay in this session; a program is always in one of its own.
        own = os.getsid(0)
        for child in _census.children_of(os.getpid()):
            if _census.session(child) not in {own, 0}:
                for pid in (child, *_census.below(child)):
                    _census.send(pid, signal.SIGKILL)
    return ended


def _read_all(descriptor: int) -> bytes:
    data = b""
    try:
        while part := os.read(descriptor, 4096 // NOTICE * NOTICE):
            data += part
    except BlockingIOError:
        pass
    return data


if __name__ == "__main__":
    main()
