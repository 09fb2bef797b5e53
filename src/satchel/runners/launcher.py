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

from satchel.runners.base import Exit
from satchel.runners.plain_launcher import (
    PlainLauncher,
    PlainProcess,
    close_descriptors,
    open_standard_pipes,
    start_error,
)

if TYPE_CHECKING:
    from satchel.runners.base import Launch
    from satchel.runners.plain_launcher import Pipe


_MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_launcher_main.py")
_MAX_INLINE_BYTES = 128 * 1024
"""The longest spec in the message itself; a longer one goes into a memory file."""
_START_TIMEOUT_S = 10.0
_MAX_LAUNCHER_DEATHS = 3
"""After so many deaths of the launcher, a request fails."""
_SIGNAL_COUNT = 64

_shared_lock = threading.Lock()
_shared_launcher: Launcher | PlainLauncher | None = None
_launchers: weakref.WeakSet[Launcher] = weakref.WeakSet()
_launched_processes: weakref.WeakSet[LaunchedProcess] = weakref.WeakSet()


class LaunchedProcess:
    """A program that a launcher started. Its descriptors belong to the caller.

    `wait` also reports that the program never ran, with the reason `cannot-start`.
    """

    def __init__(
        self, control: socket.socket, descriptors: tuple[int, int, int], tier: str
    ) -> None:
        self.stdin, self.stdout, self.stderr = descriptors
        self.pid = 0
        self._control = control
        self._tier = tier
        self._exit: Exit | None = None
        self._failure = ""
        _launched_processes.add(self)

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
        descriptors = (self.stdin, self.stdout, self.stderr)
        self.stdin = self.stdout = self.stderr = -1
        close_descriptors(descriptors)
        _launched_processes.discard(self)

    def await_start(self, deadline: float) -> bool:
        """Wait for the launcher's answer; False when the launcher is gone.

        Raises:
            CannotStart: at the deadline.
        """
        while not self.pid and self._exit is None:
            if not self._receive(deadline):
                raise start_error("the launcher did not answer")
        return self._exit is None or self._exit.reason != "lost"

    def _receive(self, deadline: float) -> bool:
        """Handle one message of the supervisor; False at the deadline.

        The messages are `started PID`, `failed REASON` and `exit CODE PEAK_MEMORY REASON`.
        """
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
        message_kind, _, arguments = packet.decode("utf-8", "replace").partition(" ")
        if message_kind == "started":
            self.pid = int(arguments)
        elif message_kind == "failed":
            self._failure = arguments
            if not self.pid:  # it never started: this is the last message
                self._exit = Exit(127, reason="cannot-start", detail=arguments)
        elif message_kind == "exit":
            code, peak_memory, reason = arguments.split(" ")
            self._exit = self._make_exit(int(code), int(peak_memory), reason)
        else:
            self._exit = Exit(-9, reason="lost")
        return True

    def _make_exit(self, code: int, peak_memory: int, reason: Any) -> Exit:
        if self._failure:
            return Exit(127, reason="cannot-start", detail=self._failure)
        if self._tier == "bwrap" and 128 < code <= 128 + _SIGNAL_COUNT:
            code = 128 - code  # bwrap reports a signal of its program as a high exit code
        return Exit(code, peak_memory, reason)


class Launcher:
    """Starts programs. One is enough for the whole host: see `launcher()`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._host_pid = 0
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
                process, generation = self._request_start(packet, launch.tier)
            except OSError as exc:
                raise start_error(str(exc)) from exc
            if process is not None:
                try:
                    started = process.await_start(time.monotonic() + _START_TIMEOUT_S)
                except BaseException:
                    process.close()
                    raise
                if started:
                    return process
                process.close()
            self._stop_generation(generation)
        raise start_error("the launcher died")

    @property
    def pid(self) -> int:
        """The pid of the launcher process; 0 when there is none."""
        process = self._process
        return process.pid if process is not None and self._host_pid == os.getpid() else 0

    def close(self) -> None:
        """End the launcher. Running programs go on until they are closed."""
        with self._lock:
            self._stop_launcher()

    def _request_start(self, packet: bytes, tier: str) -> tuple[LaunchedProcess | None, int]:
        """Send a request to the launcher, started if necessary; None when it is dead."""
        with self._lock:  # held while sending, so that no thread closes the socket meanwhile
            if self._socket is None or self._host_pid != os.getpid():
                self._start_launcher()
            assert self._socket is not None  # noqa: S101
            try:
                return _send_request(self._socket, packet, tier), self._generation
            except ConnectionError:
                return None, self._generation

    def _start_launcher(self) -> None:
        host_socket, launcher_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-I", "-S", _MAIN]
        env = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603
                [*command, str(launcher_socket.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=env,  # the host's environment may hold secrets
                cwd="/",
                pass_fds=(launcher_socket.fileno(),),
                start_new_session=True,  # a terminal's Ctrl-C is for the host
            )
        except OSError as exc:
            host_socket.close()
            raise start_error(str(exc)) from exc
        finally:
            launcher_socket.close()
        self._socket = host_socket
        self._host_pid = os.getpid()
        self._generation += 1

    def _stop_generation(self, generation: int) -> None:
        """Give up a launcher that died, unless another thread has done so."""
        with self._lock:
            if self._generation == generation:
                self._stop_launcher()

    def _stop_launcher(self) -> None:
        launcher_socket, self._socket = self._socket, None
        process, self._process = self._process, None
        if launcher_socket is not None:
            launcher_socket.close()
        if process is None or self._host_pid != os.getpid():
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


RunningProgram = LaunchedProcess | PlainProcess


def launcher() -> Launcher | PlainLauncher:
    """The launcher shared by all threads of this host; outside Linux it has no supervisors."""
    global _shared_launcher  # noqa: PLW0603
    with _shared_lock:
        if _shared_launcher is None:
            _shared_launcher = Launcher() if is_supported() else PlainLauncher()
            atexit.register(_shared_launcher.close)
        return _shared_launcher


def is_supported() -> bool:
    """Whether this system has what the launcher needs."""
    return all(hasattr(os, name) for name in ("memfd_create", "pidfd_open")) and bool(
        sys.executable
    )


def _describe(launch: Launch) -> bytes:
    """The message that starts a program; its first byte is `L` to load Landlock, else `S`."""
    spec = launch._asdict()
    spec["limits"] = launch.limits._asdict()
    spec["env"] = dict(launch.env)
    spec["overlay"] = launch.overlay._asdict() if launch.overlay is not None else {}
    for name in ("argv", "read", "write"):
        spec[name] = list(spec[name])
    return (b"L" if launch.tier == "landlock" else b"S") + marshal.dumps(spec)


def _send_request(launcher_socket: socket.socket, packet: bytes, tier: str) -> LaunchedProcess:
    """Send a spec with the program's ends of its descriptors, and keep the host's ends."""
    pipes: list[Pipe] = []
    memory_file = -1
    control, remote_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        open_standard_pipes(pipes)
        descriptors = [remote_control.fileno(), *(pipe.program_end for pipe in pipes)]
        if len(packet) > _MAX_INLINE_BYTES:
            memory_file = _memory_file(packet[1:])
            descriptors.append(memory_file)
            packet = packet[:1]
        socket.send_fds(launcher_socket, [packet], descriptors, socket.MSG_NOSIGNAL)
        stdin, stdout, stderr = (pipe.host_end for pipe in pipes)
        return LaunchedProcess(control, (stdin, stdout, stderr), tier)
    except BaseException:
        control.close()
        close_descriptors(pipe.host_end for pipe in pipes)
        raise
    finally:
        remote_control.close()
        close_descriptors(pipe.program_end for pipe in pipes)
        close_descriptors((memory_file,))


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("satchel", os.MFD_CLOEXEC)
    with open(os.dup(descriptor), "wb") as file:
        file.write(content)
    return descriptor


def _after_fork() -> None:
    global _shared_lock  # noqa: PLW0603
    _shared_lock = threading.Lock()
    for process in list(_launched_processes):
        process.close()
    for launcher_of_parent in list(_launchers):
        launcher_of_parent.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
