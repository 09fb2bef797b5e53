"""How a request becomes a running program: descriptors, limits, bounds, exec.

Descriptors of the program: 0, 1 and 2. For bwrap three more follow, put before its other arguments
here: the options (`--args`) and the filter (`--seccomp`), each a fresh file in memory, which bwrap
reads and closes; and a pipe on which bwrap itself says how it went (`--json-status-fd`), which the
program does not get.

There are two ways. Mostly the minder takes the limits itself and spawns the program: no memory is
copied, so that is fast. Where a process must give up powers that its minder needs (Landlock, a
small address space), it is forked, and gives them up before it becomes the program.

Runs inside the launcher: standard library only.
"""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import marshal
import os
import resource
import signal
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PACKET = 192 * 1024
"""Bytes of the longest message; a longer description comes in a file in memory."""
DESCRIPTORS = 253
"""What the kernel lets one message carry."""
INT = 4
MESSAGE = 4096
"""Characters of the longest word to the host."""
FEW = 64
"""Open files that a minder itself may come to need."""

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""What Python ignores, and its children should not."""

libc = ctypes.CDLL(None, use_errno=True)
taken: list[tuple[int, int, bool]] = []
"""The limits that this process has taken for its programs."""


class Refused(Exception):
    """Says in one sentence why the program does not start."""


class Again(Exception):
    """This process cannot start that program; another will."""


def tell(control: int, message: str) -> None:
    """Send the host a message."""
    line = _socket.socket(fileno=control)
    try:
        line.send(
            message[:MESSAGE].encode("utf-8", "replace"),
            _socket.MSG_NOSIGNAL | _socket.MSG_DONTWAIT,
        )
    except OSError:
        pass  # nobody listens any more: the minder hears that too
    finally:
        line.detach()


def take(requests: _socket.socket) -> tuple[bytes, list[int], bool]:
    """The next message, its descriptors, and whether nothing of it was lost."""
    packet, ancillary, flags, _ = requests.recvmsg(
        PACKET, _socket.CMSG_SPACE(DESCRIPTORS * INT), _socket.MSG_CMSG_CLOEXEC
    )
    descriptors = [
        int.from_bytes(data[at : at + INT], sys.byteorder)
        for _, _, data in ancillary
        for at in range(0, len(data) - INT + 1, INT)
    ]
    return packet, descriptors, not flags & (_socket.MSG_CTRUNC | _socket.MSG_TRUNC)


def read_spec(packet: bytes, given: list[int], *, whole: bool) -> dict[str, Any]:
    """The description, from the message or from the last descriptor."""
    if not whole or len(given) < 3:
        raise Refused("the launcher has too many open files")
    if len(packet) == 1:
        packet += _read_file(given.pop())
    return marshal.loads(packet[1:])  # noqa: S302  (the host's own words)


def start(spec: dict[str, Any], given: list[int], control: int) -> int:
    """Start the program and return its number. All of `given` is closed.

    Raises:
        Refused: When it cannot be started. In a fork that is told on `control` instead.
        Again: When another minder must do it.
    """
    argv: list[str] = spec["argv"]
    if spec["tier"] == "bwrap":
        options: list[str] = []
        for option, content in (("--args", spec["arguments"]), ("--seccomp", spec["seccomp"])):
            if content:
                options += [option, str(len(given))]
                given.append(_memory_file(content))
        spec["status"], theirs = os.pipe()
        options += ["--json-status-fd", str(len(given))]
        given.append(theirs)
        argv[1:1] = options
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        raise Refused(f"the working folder cannot be entered: {error.strerror}") from None
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, len(given)) for each in given]
    for each in given:
        os.close(each)
    try:
        way = _way(spec)
        if way == "none":
            raise Again
        return _spawn(spec, moved) if way == "spawn" else _fork(spec, moved, control)
    except OSError as error:
        raise Refused(_explain(error, spec)) from None
    finally:
        for each in moved:
            os.close(each)
        os.chdir("/")


def was_reached(spec: dict[str, Any]) -> bool:
    """Whether bwrap came as far as its program, once all have ended; its pipe is closed.

    bwrap speaks of an exit only if there was a program: what stands on stderr is a program's word
    then, whoever it says it is.
    """
    status: int = spec.pop("status", -1)
    if status < 0:
        return True
    told = b""
    os.set_blocking(status, False)
    try:
        while part := os.read(status, 4096):
            told += part
    except OSError:
        pass  # somebody holds its other end: what was said is here
    os.close(status)
    return b'"exit-code"' in told


def _way(spec: dict[str, Any]) -> str:
    """How a program can be started from this process: `spawn`, `fork` or not at all.

    Limits that a minder took for its programs cannot be taken back. It may spawn those that have
    the same, and fork those that have less.
    """
    limits = spec["limits"]
    wanted = (limits["file_size"], limits["open_files"], not _gains_rights(spec))
    held = spec["tier"] == "landlock" or limits["address_space"]
    may_spawn = not held and not 0 < limits["open_files"] < FEW
    if not taken:
        if may_spawn:
            taken.append(wanted)
            _bound(spec)
        return "spawn" if may_spawn else "fork"
    if may_spawn and taken[0] == wanted:
        return "spawn"
    lower = all(_within(wanted[at], taken[0][at]) for at in (0, 1))
    return "fork" if lower and wanted[2] >= taken[0][2] else "none"


def _within(wanted: int, limit: int) -> bool:
    """Whether a limit lies within another, where 0 is none."""
    return not limit or 0 < wanted <= limit


def _bound(spec: dict[str, Any]) -> None:
    _at_most(resource.RLIMIT_CORE, 0)
    for kind, name in (
        (resource.RLIMIT_FSIZE, "file_size"),
        (resource.RLIMIT_NOFILE, "open_files"),
    ):
        if spec["limits"][name]:
            _at_most(kind, spec["limits"][name])
    if not _gains_rights(spec):
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _gains_rights(spec: dict[str, Any]) -> bool:
    """Whether it is a bwrap that needs its set-user-id bit, and gives up what it gains itself.

    Nothing else may gain rights by such a file: the minder could not end it.
    """
    return spec["tier"] == "bwrap" and bool(os.stat(spec["argv"][0]).st_mode & stat.S_ISUID)


def _spawn(spec: dict[str, Any], moved: list[int]) -> int:
    places = [(os.POSIX_SPAWN_DUP2, each, place) for place, each in enumerate(moved)]
    argv: list[str] = spec["argv"]
    return os.posix_spawn(
        argv[0], argv, spec["env"], file_actions=places, setsid=True, setsigdef=IGNORED
    )


def _fork(spec: dict[str, Any], moved: list[int], control: int) -> int:
    minder = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != minder:
            os._exit(127)  # it died before this one could be tied to it
        for place, each in enumerate(moved):
            os.dup2(each, place)
        for number in IGNORED:
            signal.signal(number, signal.SIG_DFL)
        _bound(spec)
        if spec["limits"]["address_space"]:
            _at_most(resource.RLIMIT_AS, spec["limits"]["address_space"])
        if spec["tier"] == "landlock":
            if TYPE_CHECKING:
                from satchel.runners._confine import confine
            else:
                from _confine import confine

            confine(spec)
        os.execve(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606
    except BaseException as error:  # noqa: BLE001  (also what nobody foresaw must be told)
        tell(control, f"failed {_explain(error, spec)}")
    finally:
        os._exit(127)


def _explain(error: BaseException, spec: dict[str, Any]) -> str:
    """Why the program did not start, in one sentence."""
    if isinstance(error, OSError) and error.filename == spec["argv"][0]:
        return f"`{error.filename}` cannot be started: {error.strerror}"
    if isinstance(error, OSError) and error.strerror:
        return f"the program cannot be started: {error.strerror}"
    return f"the program cannot be started: {error!r}"


def _at_most(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _read_file(descriptor: int) -> bytes:
    """What is in a memory file, which is closed."""
    parts: list[bytes] = []
    while part := os.pread(descriptor, 1 << 20, sum(map(len, parts))):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts)


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("satchel", os.MFD_CLOEXEC)
    at = 0
    while at < len(content):
        at += os.write(descriptor, content[at:])
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
