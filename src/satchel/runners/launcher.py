"""Host side of the launcher: starts programs and leaves no process behind.

The work is done in a process of its own (`_launcher_main`), which is started at the first call and
forks a supervisor (`_supervisor`) for each program. Invariants:

- A program inherits the descriptors 0, 1 and 2 only.
- When it ends, is killed, or the host ends, even by SIGKILL, all its descendants are killed.
- A launcher that dies takes no program with it: the supervisors live on, and the next start makes a
  new launcher.
- After a fork of the host the child has no part in the parent's programs: it closes its copies of
  their descriptors and starts a launcher of its own.

Any thread may start programs; a `Process` belongs to one thread, but any thread may kill it.
"""

from __future__ import annotations

import atexit
import contextlib
import marshal
import os
import select
import socket
import subprocess
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from satchel.i18n import Message
from satchel.runners.base import CannotStart, Exit

if TYPE_CHECKING:
    from satchel.runners.base import Launch


_MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_launcher_main.py")
_MAX_INLINE_BYTES = 128 * 1024
"""Of a spec in the message itself; a longer one goes into a memory file."""
_START_TIMEOUT_S = 10.0
_MAX_LAUNCHER_DEATHS = 3
"""For one request."""
_SIGNAL_COUNT = 64


class LaunchedProcess:
    """A program that a launcher started. Its descriptors belong to the caller.

    `wait` also reports that the program never ran, with the reason `cannot-start`.
    """

    def __init__(self, control: socket.socket, ends: tuple[int, int, int], tier: str) -> None:
        self.stdin, self.stdout, self.stderr = ends
        self.pid = 0
        self._control = control
        self._tier = tier
        self._exit: Exit | None = None
        self._failure = ""
        _alive.add(self)

    def fileno(self) -> int:
        """The control socket, readable when the program has ended."""
        return self._control.fileno()

    def kill(self) -> None:
        """Kill it and every descendant; idempotent."""
        with contextlib.suppress(OSError):
            self._control.send(b"kill", socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)

    def wait(self, timeout: float) -> Exit | None:
        """How it ended, once it has with all descendants; None at the timeout."""
        deadline = time.monotonic() + timeout
        while self._exit is None and self._receive(deadline):
            pass
        return self._exit

    def close(self) -> None:
        """Kill it, and close every descriptor."""
        self._control.close()  # the supervisor treats that as `kill`
        ends = (self.stdin, self.stdout, self.stderr)
        self.stdin = self.stdout = self.stderr = -1
        for end in ends:
            if end >= 0:
                os.close(end)
        _alive.discard(self)

    def await_start(self, deadline: float) -> bool:
        """Wait for the launcher's answer; False when the launcher is gone.

        Raises:
            CannotStart: at the deadline.
        """
        while not self.pid and self._exit is None:
            if not self._receive(deadline):
                raise CannotStart(_cannot_start("the launcher did not answer"))
        return self._exit is None or self._exit.reason != "lost"

    def _receive(self, deadline: float) -> bool:
        """Handle one message of the supervisor; False at the deadline."""
        if self._control.fileno() < 0:
            self._exit = Exit(-9, reason="killed")
            return True
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return False
        try:
            packet = self._control.recv(65536)
        except ConnectionResetError:
            return True  # the supervisor did not read our last message; its own is still there
        except OSError:
            packet = b""
        word, _, rest = packet.decode("utf-8", "replace").partition(" ")
        if word == "started":
            self.pid = int(rest)
        elif word == "failed":
            self._failure = rest
            if not self.pid:  # it never started: this is the last message
                self._exit = Exit(127, reason="cannot-start", detail=rest)
        elif word == "exit":
            code, peak, reason = rest.split(" ")
            self._exit = self._make_exit(int(code), int(peak), reason)
        else:
            self._exit = Exit(-9, reason="lost")
        return True

    def _make_exit(self, code: int, peak: int, reason: Any) -> Exit:
        if self._failure:
            return Exit(127, reason="cannot-start", detail=self._failure)
        if self._tier == "bwrap" and 128 < code <= 128 + _SIGNAL_COUNT:
            code = 128 - code  # bwrap reports a signal of its program as a high exit code
        return Exit(code, peak, reason)


class Launcher:
    """Starts programs. One is enough for the whole host: see `launcher()`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._host = 0
        self._generation = 0
        _launchers.add(self)

    def start(self, launch: Launch) -> LaunchedProcess:
        """Start a program.

        A missing or unusable program file is reported by `wait`, since it is not known yet.

        Raises:
            CannotStart: no launcher or no descriptors are available.
        """
        try:
            return self._start(launch)
        except BaseException:
            launch.discard()
            raise

    def _start(self, launch: Launch) -> LaunchedProcess:
        packet = _describe(launch)
        for _ in range(_MAX_LAUNCHER_DEATHS):
            try:
                process, generation = self._ask(packet, launch.tier)
            except OSError as error:
                raise CannotStart(_cannot_start(str(error))) from error
            if process is not None:
                try:
                    started = process.await_start(time.monotonic() + _START_TIMEOUT_S)
                except BaseException:
                    process.close()
                    raise
                if started:
                    return process
                process.close()
            self._abandon(generation)
        raise CannotStart(_cannot_start("the launcher died"))

    @property
    def pid(self) -> int:
        """The pid of the launcher process; 0 when there is none."""
        process = self._process
        return process.pid if process is not None and self._host == os.getpid() else 0

    def close(self) -> None:
        """End the launcher. Running programs go on until they are closed."""
        with self._lock:
            self._end()

    def _ask(self, packet: bytes, tier: str) -> tuple[LaunchedProcess | None, int]:
        """Send a request to the launcher, started if necessary; None when it is dead."""
        with self._lock:  # held while sending, so that no thread closes the socket meanwhile
            if self._socket is None or self._host != os.getpid():
                self._begin()
            assert self._socket is not None  # noqa: S101
            try:
                return _ask(self._socket, packet, tier), self._generation
            except ConnectionError:
                return None, self._generation

    def _begin(self) -> None:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-I", "-S", _MAIN]
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603
                [*command, str(far.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=kept,  # the host's environment may hold secrets
                cwd="/",
                pass_fds=(far.fileno(),),
                start_new_session=True,  # a terminal's Ctrl-C is for the host
            )
        except OSError as error:
            near.close()
            raise CannotStart(_cannot_start(str(error))) from error
        finally:
            far.close()
        self._socket = near
        self._host = os.getpid()
        self._generation += 1

    def _abandon(self, generation: int) -> None:
        """Give up a launcher that died, unless another thread has done so."""
        with self._lock:
            if self._generation == generation:
                self._end()

    def _end(self) -> None:
        request, self._socket = self._socket, None
        process, self._process = self._process, None
        if request is not None:
            request.close()
        if process is None or self._host != os.getpid():
            return
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def after_fork(self) -> None:
        """Drop the parent's launcher in a child of the host."""
        self._lock = threading.Lock()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.returncode = 0  # the parent's child
            self._process = None


def _cannot_start(reason: str) -> Message:
    return Message("the program cannot be started: {reason}", reason=reason)


def launcher() -> Launcher:
    """The launcher shared by all threads of this host.

    Raises:
        CannotStart: this system is not Linux.
    """
    global _shared  # noqa: PLW0603
    with _guard:
        if _shared is None:
            if not is_supported():
                raise CannotStart(_cannot_start("Linux"))
            _shared = Launcher()
            atexit.register(_shared.close)
        return _shared


def is_supported() -> bool:
    """Whether this system has what the launcher needs."""
    return all(hasattr(os, name) for name in ("memfd_create", "pidfd_open")) and bool(
        sys.executable
    )


def _describe(launch: Launch) -> bytes:
    """The message that starts a program; its first letter is what the launcher must load."""
    spec = launch._asdict()
    spec["limits"] = launch.limits._asdict()
    spec["env"] = dict(launch.env)
    for name in ("argv", "read", "write"):
        spec[name] = list(spec[name])
    return (b"L" if launch.tier == "landlock" else b"S") + marshal.dumps(spec)


def _ask(request: socket.socket, packet: bytes, tier: str) -> LaunchedProcess:
    """Send a spec with its descriptors, and keep the near ends."""
    far: list[int] = []
    near: list[int] = []
    control, distant = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        for output in (False, True, True):
            reading, writing = os.pipe()
            near.append(reading if output else writing)
            far.append(writing if output else reading)
        given = [distant.fileno(), *far]
        if len(packet) > _MAX_INLINE_BYTES:
            far.append(_memory_file(packet[1:]))
            given.append(far[-1])
            packet = packet[:1]
        socket.send_fds(request, [packet], given, socket.MSG_NOSIGNAL)
        return LaunchedProcess(control, (near[0], near[1], near[2]), tier)
    except BaseException:
        control.close()
        for end in near:
            os.close(end)
        raise
    finally:
        distant.close()
        for end in far:
            os.close(end)


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("satchel", os.MFD_CLOEXEC)
    with open(os.dup(descriptor), "wb") as file:
        file.write(content)
    return descriptor


def _after_fork() -> None:
    global _guard  # noqa: PLW0603
    _guard = threading.Lock()
    for process in list(_alive):
        process.close()
    for each in list(_launchers):
        each.after_fork()


_guard = threading.Lock()
_shared: Launcher | None = None
_launchers: weakref.WeakSet[Launcher] = weakref.WeakSet()
_alive: weakref.WeakSet[LaunchedProcess] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
