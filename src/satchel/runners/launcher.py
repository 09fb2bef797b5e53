"""How the host has a program started, and how nothing of it is left behind.

The work is done in a process of its own, the launcher (`_launcher_main`), which is started at the
first call and forks a minder (`_minder`) for each program. What holds:

- A program gets the descriptors 0, 1 and 2; nothing else.
- When it ends, is killed, or the host ends, even by SIGKILL, all its descendants are ended too.
- A launcher that dies takes no program with it: their minders live on. The next start has a new
  launcher.
- After a fork of the host the child has no part in the parent's programs: it closes its copies of
  their descriptors and starts a launcher of its own.

Any thread may start programs; a `Process` belongs to one thread, but anyone may kill it.
"""

from __future__ import annotations

import atexit
import contextlib
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Literal

from satchel._language import Message
from satchel.runners.base import CannotStart, Exit

if TYPE_CHECKING:
    from satchel.runners.base import Launch, Limits


# --- without the launcher -----------------------------------------------------------------
# For systems that are not Linux, where only tier `none` exists. What ends is the process group: a
# descendant that left it (`setsid`) lives on, which is why the tier says so in every result.
# Memory and the number of processes are not watched, and a killed host leaves the program behind
# until that finds its pipes closed.


class PlainProcess:
    """A program in a process group of its own: what `base.Process` asks for."""

    def __init__(self, process: subprocess.Popen[bytes], scratch: str) -> None:
        pipes = (process.stdin, process.stdout, process.stderr)
        self.stdin, self.stdout, self.stderr = (
            os.dup(pipe.fileno()) if pipe is not None else -1 for pipe in pipes
        )
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
        self.pid = process.pid
        self._process = process
        self._scratch = scratch
        self._killed = False
        self._exit: Exit | None = None

    def kill(self) -> None:
        """End it and its group at once; safe to call twice."""
        self._killed = self._killed or self._process.poll() is None
        self._end_group()

    def wait(self, timeout: float) -> Exit | None:
        """How it ended, when it has; None when time is up."""
        if self._exit is None:
            try:
                code = self._process.wait(max(timeout, 0.0))
            except subprocess.TimeoutExpired:
                return None
            self._end_group()
            if self._scratch:
                shutil.rmtree(self._scratch, ignore_errors=True)
            self._exit = Exit(code, reason="killed" if self._killed else "")
        return self._exit

    def close(self) -> None:
        """Kill it, and give back every descriptor."""
        self.kill()
        self.wait(5)
        ends = (self.stdin, self.stdout, self.stderr)
        self.stdin = self.stdout = self.stderr = -1
        for end in ends:
            if end >= 0:
                os.close(end)

    def _end_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class PlainLauncher:
    """Starts programs as children of the host."""

    def start(self, launch: Launch) -> PlainProcess:
        """Start a program.

        Raises:
            CannotStart: When it is to be held in a sandbox, or cannot be run.
        """
        if launch.tier != "none":
            launch.give_up()
            raise CannotStart(Message("there is no sandbox on this system"))
        try:
            process = subprocess.Popen(  # noqa: S603
                _limited(launch.argv, launch.limits),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=launch.cwd,
                env=dict(launch.env),
                start_new_session=True,
                umask=0o077,
            )
        except OSError as error:
            launch.give_up()
            raise CannotStart(
                Message("the program cannot be started: {reason}", reason=str(error))
            ) from error
        return PlainProcess(process, launch.scratch)

    def close(self) -> None:
        """Nothing is kept."""


def _limited(argv: tuple[str, ...], limits: Limits) -> list[str]:
    """The command with limits set by a shell, since Python between fork and exec is unsafe."""
    blocks = limits.file_size // 512  # the unit that POSIX gives `ulimit -f`
    settings = f"ulimit -c 0; ulimit -f {blocks}; ulimit -n {limits.open_files}; "
    return ["/bin/sh", "-c", settings + 'exec "$@"', "sh", *argv]


# --- control groups -----------------------------------------------------------------------
# They let the kernel bound a program's memory. Version two first: the nearest group above this
# process that hands the memory controller down. Then version one: the memory group of this
# process. It must be writable. Without any, memory is watched (`_minder`), as it is anyway.

_CGROUPS = "/sys/fs/cgroup"
_OWN_CGROUP = "/proc/self/cgroup"


def find_cgroup_folder(root: str = _CGROUPS, own: str = _OWN_CGROUP) -> str:
    """A folder in which groups can be made and joined; nothing when there is none."""
    return next((folder for folder in cgroup_places(root, own) if _may_use(folder)), "")


def cgroup_places(root: str, own: str) -> list[str]:
    """Folders that could serve, the best first; whether they may be written is another question."""
    try:
        with open(own, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    rows = {row[1]: row[2].lstrip("/") for row in lines if len(row) == 3}
    found: list[str] = []
    if "" in rows and os.path.exists(os.path.join(root, "cgroup.controllers")):
        folder = os.path.normpath(os.path.join(root, rows[""]))
        while folder.startswith(root):
            if "memory" in _read(os.path.join(folder, "cgroup.subtree_control")).split():
                found.append(folder)
                break
            folder = os.path.dirname(folder)
    for controllers, path in rows.items():
        if "memory" in controllers.split(","):
            folder = os.path.normpath(os.path.join(root, "memory", path))
            if os.path.isdir(folder):
                found.append(folder)
    return found


def _may_use(folder: str) -> bool:
    """Whether a group can be made there, and a process moved into it."""
    return os.access(folder, os.W_OK | os.X_OK) and os.access(
        os.path.join(folder, "cgroup.procs"), os.W_OK
    )


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096)
    except OSError:
        return ""


_MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_launcher_main.py")
_PACKET = 128 * 1024
"""Bytes of a description that travel in the message itself; a longer one goes in a memory file."""
_PATIENCE = 10.0
"""Seconds for the launcher to say that a program is started, on the busiest machine."""
_DEATHS = 3
"""Launchers that may die over one request."""
_SIGNALS = 64


class LaunchedProcess:
    """A program that a launcher started: what `base.Process` asks for.

    `wait` may also say that the program never ran: `reason` is `cannot-start` then.
    """

    def __init__(self, control: socket.socket, ends: tuple[int, int, int], tier: str) -> None:
        self.stdin, self.stdout, self.stderr = ends
        self.pid = 0
        self._control = control
        self._tier = tier
        self._exit: Exit | None = None
        self._failure = ""
        self._again = False
        _alive.add(self)

    def fileno(self) -> int:
        """A descriptor that becomes readable when the program has ended."""
        return self._control.fileno()

    def kill(self) -> None:
        """End it and every descendant at once; safe to call twice."""
        with contextlib.suppress(OSError):
            self._control.send(b"kill", socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)

    def wait(self, timeout: float) -> Exit | None:
        """How it ended, when it has and no descendant is left; None when time is up."""
        deadline = time.monotonic() + timeout
        while self._exit is None and self._hear(deadline):
            pass
        return self._exit

    def close(self) -> None:
        """Kill it, and give back every descriptor."""
        self._control.close()  # its minder takes that for `kill`
        ends = (self.stdin, self.stdout, self.stderr)
        self.stdin = self.stdout = self.stderr = -1
        for end in ends:
            if end >= 0:
                os.close(end)
        _alive.discard(self)

    def await_start(self, deadline: float) -> Literal["started", "again", "lost"]:
        """What the launcher says to the request: done or refused, ask again, or nothing at all.

        Raises:
            CannotStart: When time was up.
        """
        while not self.pid and self._exit is None:
            if not self._hear(deadline):
                raise CannotStart(Message("the launcher did not answer in time"))
        if self._exit is not None and self._exit.reason == "lost":
            return "again" if self._again else "lost"
        return "started"

    def _hear(self, deadline: float) -> bool:
        """Take one message of the minder; False when time is up."""
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
            return True  # the minder did not read our last word; its own is still there
        except OSError:
            packet = b""
        word, _, rest = packet.decode("utf-8", "replace").partition(" ")
        if word == "started":
            self.pid = int(rest)
        elif word == "failed":
            self._failure = rest
            if not self.pid:  # it never was: no more is said
                self._exit = Exit(127, reason="cannot-start", detail=rest)
        elif word == "exit":
            code, peak, reason = rest.split(" ")
            self._exit = self._judge(int(code), int(peak), reason)
        else:
            self._again = word == "again"  # that minder is bound by another program's limits
            self._exit = Exit(-9, reason="lost")
        return True

    def _judge(self, code: int, peak: int, reason: Any) -> Exit:
        if self._failure:
            return Exit(127, reason="cannot-start", detail=self._failure)
        if self._tier == "bwrap" and 128 < code <= 128 + _SIGNALS:
            code = 128 - code  # bwrap tells by a high exit code which signal ended its program
        return Exit(code, peak, reason)


class Launcher:
    """Starts programs. One for the whole host is enough: see `launcher()`.

    Args:
        cgroup: a folder of control groups that is delegated to this user, with the memory
            controller on. The kernel bounds memory there, files in memory included; elsewhere it
            is watched alone.
    """

    def __init__(self, cgroup: str = "") -> None:
        self._cgroup = cgroup
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._host = 0
        self._generation = 0
        _launchers.add(self)

    def start(self, launch: Launch) -> LaunchedProcess:
        """Start a program.

        That its file is missing or cannot be run is told by `wait`, since it is not known yet.

        Args:
            launch: what to start.

        Raises:
            CannotStart: When no launcher or no descriptors are to be had.
        """
        try:
            return self._start(launch)
        except BaseException:
            launch.give_up()  # nobody else will see to it
            raise

    def _start(self, launch: Launch) -> LaunchedProcess:
        packet = _describe(launch)
        deaths = 0
        while deaths < _DEATHS:
            try:
                process, generation = self._ask(packet, launch.tier)
            except OSError as error:
                raise CannotStart(
                    Message("the program cannot be started: {reason}", reason=error.strerror)
                ) from error
            if process is not None:
                try:
                    answer = process.await_start(time.monotonic() + _PATIENCE)
                except BaseException:
                    process.close()
                    raise
                if answer == "started":
                    return process
                process.close()
                if answer == "again":
                    continue
            deaths += 1
            self._forget(generation)
        raise CannotStart(Message("the launcher dies whenever it is asked for something"))

    @property
    def pid(self) -> int:
        """The launcher's own process; 0 while there is none."""
        process = self._process
        return process.pid if process is not None and self._host == os.getpid() else 0

    def close(self) -> None:
        """End the launcher. Programs that still run go on until they are closed."""
        with self._lock:
            self._end()

    def _ask(self, packet: bytes, tier: str) -> tuple[LaunchedProcess | None, int]:
        """Send a request to the launcher, started if there is none; None when it is dead."""
        with self._lock:  # held while sending, so that nobody closes the socket under it
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
                [*command, str(far.fileno()), str(os.getpid()), self._cgroup],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=kept,  # the host's environment is nobody's business
                cwd="/",
                pass_fds=(far.fileno(),),
                start_new_session=True,  # a terminal's Ctrl-C is for the host
            )
        except OSError as error:
            near.close()
            raise CannotStart(
                Message("the launcher cannot be started: {reason}", reason=str(error))
            ) from error
        finally:
            far.close()
        self._socket = near
        self._host = os.getpid()
        self._generation += 1

    def _forget(self, generation: int) -> None:
        """Give up a launcher that died, unless another thread has done so already."""
        with self._lock:
            if self._generation == generation:
                self._end()

    def _end(self) -> None:
        """Close the way to the launcher and take back its process."""
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
        """In a child of the host: the launcher is the parent's."""
        self._lock = threading.Lock()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for
            self._process = None


def launcher() -> Launcher | PlainLauncher:
    """Who starts programs for this host; one is enough for all threads."""
    global _shared  # noqa: PLW0603
    with _guard:
        if _shared is None:
            _shared = Launcher(find_cgroup_folder()) if is_supported() else PlainLauncher()
            atexit.register(_shared.close)
        return _shared


def is_supported() -> bool:
    """Whether this system has what the launcher is made of."""
    return all(hasattr(os, name) for name in ("memfd_create", "pidfd_open")) and bool(
        sys.executable
    )


def _describe(launch: Launch) -> bytes:
    """The message that starts a program; its first letter tells the launcher what to load."""
    spec = launch._asdict()
    spec["limits"] = launch.limits._asdict()
    spec["env"] = dict(launch.env)
    for name in ("argv", "read", "write"):
        spec[name] = list(spec[name])
    return (b"L" if launch.tier == "landlock" else b"S") + marshal.dumps(spec)


def _ask(request: socket.socket, packet: bytes, tier: str) -> LaunchedProcess:
    """Send a description with its descriptors, and keep the near ends."""
    far: list[int] = []
    near: list[int] = []
    control, distant = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        for output in (False, True, True):
            reading, writing = os.pipe()
            near.append(reading if output else writing)
            far.append(writing if output else reading)
        given = [distant.fileno(), *far]
        if len(packet) > _PACKET:
            far.append(_memory_file(packet[1:]))
            given.append(far[-1])
            packet = packet[:1]
        _send(request, packet, given)
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


def _send(request: socket.socket, packet: bytes, given: list[int]) -> None:
    import errno

    for _ in range(1000):
        try:
            socket.send_fds(request, [packet], given, socket.MSG_NOSIGNAL)
        except OSError as error:
            # The kernel bounds how many descriptors a user may have under way.
            if error.errno != errno.ETOOMANYREFS:
                raise
            time.sleep(0.005)
        else:
            return
    raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("satchel", os.MFD_CLOEXEC)
    with open(os.dup(descriptor), "wb") as file:
        file.write(content)
    return descriptor


def _after_fork() -> None:
    """In a child of the host: let go of everything that belongs to the parent's programs."""
    global _guard  # noqa: PLW0603
    _guard = threading.Lock()
    for process in list(_alive):
        process.close()
    for each in list(_launchers):
        each.after_fork()


_guard = threading.Lock()
_shared: Launcher | PlainLauncher | None = None
_launchers: weakref.WeakSet[Launcher] = weakref.WeakSet()
_alive: weakref.WeakSet[LaunchedProcess] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
