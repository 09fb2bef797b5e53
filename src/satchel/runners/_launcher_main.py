"""The launcher: a small single-threaded process that starts programs.

The host starts it as `python -I -S _launcher_main.py SOCKET HOST` and sends requests over a
SEQPACKET socket. The launcher itself never reads from it: it keeps a few forks of itself ready, the
supervisors (`_supervisor`). An idle one receives the next message, starts the program
(`_launcher_child`) and watches it until it ends. So nothing has to be forked between a request and
its program, and a bad request affects one supervisor only.

Programs are not started from the host itself: forking a large process with many threads is slow,
running Python between fork and exec is unsafe there, and a host that is killed cannot clean up.

Standard library only, few modules: every fork copies what is imported here.
"""

from __future__ import annotations

import _socket
import gc
import os
import resource
import select
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # noqa: SIM114 - pyright supports no `or` here
    from satchel.runners import _process_tree, _supervisor
elif __package__:  # imported by a test
    from satchel.runners import _process_tree, _supervisor
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # not on the path with -I
    import _process_tree
    import _supervisor

MAX_IDLE, MIN_IDLE = 4, 2
"""Supervisors kept ready; below the minimum they are forked without waiting for a quiet moment."""
REFILL_DELAY_S = 0.05
"""Quiet time before more are forked."""
NOTICE_BYTES = 5
"""Of a supervisor's notice: its pid, and the letter of its request."""


def main() -> None:
    """Keep supervisors ready until the host is gone."""
    requests = _socket.socket(fileno=int(sys.argv[1]))
    host = int(sys.argv[2])
    os.set_inheritable(requests.fileno(), False)  # noqa: FBT003
    watch, launcher = os.pidfd_open(host), os.pidfd_open(os.getpid())
    if os.getppid() != host:
        return  # it died before `watch` was open
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # programs get their own limit
    _supervisor.protect_memory()
    _supervisor.become_subreaper()  # inherits the program of a killed supervisor
    wake, woken = os.pipe()
    notices, notice = os.pipe()
    for end in (wake, woken, notices):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    poll = select.poll()
    for descriptor in (wake, notices, watch):
        poll.register(descriptor, select.POLLIN)
    poll.register(requests.fileno(), 0)  # only for its hang-up
    gc.collect()
    gc.disable()
    gc.freeze()  # a collection in a fork would copy every page it touches
    stock: set[int] = set()
    while True:
        pause_ms = None if len(stock) >= MAX_IDLE else REFILL_DELAY_S * 1000
        ready = {descriptor for descriptor, _ in poll.poll(pause_ms)}
        if watch in ready or requests.fileno() in ready:
            break
        ended = _reap() if wake in ready and _read_all(wake) else set[int]()
        _count(stock, _read_all(notices))
        stock -= ended  # after their last notices
        count = MIN_IDLE if ready else MAX_IDLE
        _refill(stock, count, requests, notice, ends=(watch, launcher))
    requests.close()


def _refill(
    stock: set[int], count: int, requests: _socket.socket, notice: int, *, ends: tuple[int, int]
) -> None:
    """Fork supervisors until `count` are idle, or there are too many processes."""
    while len(stock) < count:
        pid = _fork()
        if pid == 0:
            _become_supervisor(requests, notice, ends)
        if pid < 0:
            break
        stock.add(pid)


def _fork() -> int:
    """Fork; negative when there are too many processes, and a later event retries."""
    try:
        return os.fork()
    except OSError:
        return -1


def _become_supervisor(requests: _socket.socket, notice: int, ends: tuple[int, int]) -> None:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _supervisor.serve(requests, notice, ends)
    finally:
        os._exit(0)


def _count(stock: set[int], notices: bytes) -> None:
    for start in range(0, len(notices), NOTICE_BYTES):
        supervisor = int.from_bytes(notices[start : start + NOTICE_BYTES - 1], sys.byteorder)
        letter = notices[start + NOTICE_BYTES - 1 : start + NOTICE_BYTES]
        stock.discard(supervisor)
        if letter == b"L":
            _supervisor.load_landlock()  # once, here: later forks inherit it


def _reap() -> set[int]:
    """Reap ended supervisors, and kill what a killed one left behind."""
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
        # Supervisors stay in this session; a program always has its own.
        own_session = os.getsid(0)
        for child in _process_tree.children_of(os.getpid()):
            if _process_tree.session(child) not in {own_session, 0}:
                for pid in (child, *_process_tree.descendants(child)):
                    _process_tree.send(pid, signal.SIGKILL)
    return ended


def _read_all(descriptor: int) -> bytes:
    data = b""
    try:
        while part := os.read(descriptor, 4096 // NOTICE_BYTES * NOTICE_BYTES):
            data += part
    except BlockingIOError:
        pass
    return data


if __name__ == "__main__":
    main()
