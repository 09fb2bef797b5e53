"""Starts a program from a request: descriptors, limits, confinement, exec.

Descriptors of the program: 0, 1 and 2. For bwrap three more follow, and their options are put
before its other arguments here: its options (`--args`) and the filter (`--seccomp`), each a new
memory file that bwrap reads and closes; and a pipe on which bwrap reports its status
(`--json-status-fd`), which the program does not inherit.

There are two ways. Mostly the supervisor sets the limits for itself and spawns the program, which
is fast, since no memory is copied. Where a process needs a mount namespace (an overlay over the
workspace), or must drop rights that its supervisor needs (Landlock, few open files), it is forked
and does so before exec.

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

    from satchel.runners import _overlay_mount
elif __package__:  # imported by a test
    from satchel.runners import _overlay_mount
else:
    import _overlay_mount

MAX_PACKET_BYTES = 192 * 1024
"""Of one message; a longer spec comes in a memory file."""
MAX_DESCRIPTOR_COUNT = 253
"""The kernel's limit for one message."""
INT_BYTES = 4
MAX_MESSAGE_CHARS = 4096
MIN_OPEN_FILES = 64
"""Open files that a supervisor itself may need."""

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores and its children should not."""

libc = ctypes.CDLL(None, use_errno=True)


class StartRefused(Exception):
    """The program cannot be started; the message is the reason in one sentence."""


def send(control: int, message: str) -> None:
    """Send the host a message."""
    line = _socket.socket(fileno=control)
    try:
        line.send(
            message[:MAX_MESSAGE_CHARS].encode("utf-8", "replace"),
            _socket.MSG_NOSIGNAL | _socket.MSG_DONTWAIT,
        )
    except OSError:
        pass  # the host is gone, which the supervisor notices by itself
    finally:
        line.detach()


def receive(requests: _socket.socket) -> tuple[bytes, list[int], bool]:
    """The next message, its descriptors, and whether it is complete."""
    packet, ancillary, flags, _ = requests.recvmsg(
        MAX_PACKET_BYTES,
        _socket.CMSG_SPACE(MAX_DESCRIPTOR_COUNT * INT_BYTES),
        _socket.MSG_CMSG_CLOEXEC,
    )
    descriptors = [
        int.from_bytes(data[start : start + INT_BYTES], sys.byteorder)
        for _, _, data in ancillary
        for start in range(0, len(data) - INT_BYTES + 1, INT_BYTES)
    ]
    return packet, descriptors, not flags & (_socket.MSG_CTRUNC | _socket.MSG_TRUNC)


def read_spec(packet: bytes, descriptors: list[int], *, is_complete: bool) -> dict[str, Any]:
    """The spec, from the message or from the last descriptor."""
    if not is_complete or len(descriptors) < 3:
        raise StartRefused("the launcher has too many open files")
    if len(packet) == 1:
        packet += _read_file(descriptors.pop())
    return marshal.loads(packet[1:])  # noqa: S302  (from the host)


def start(spec: dict[str, Any], descriptors: list[int], control: int) -> int:
    """Start the program and return its pid. All of `descriptors` are closed.

    Raises:
        StartRefused: it cannot be started. A fork reports that on `control` instead.
    """
    argv: list[str] = spec["argv"]
    if spec["tier"] == "bwrap":
        options: list[str] = []
        for option, content in (("--args", spec["arguments"]), ("--seccomp", spec["seccomp"])):
            if content:
                options += [option, str(len(descriptors))]
                descriptors.append(_memory_file(content))
        spec["status"], theirs = os.pipe()
        options += ["--json-status-fd", str(len(descriptors))]
        descriptors.append(theirs)
        argv[1:1] = options
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        raise StartRefused(f"the working folder cannot be entered: {error.strerror}") from None
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, len(descriptors)) for each in descriptors]
    for each in descriptors:
        os.close(each)
    try:
        return _fork(spec, moved, control) if _must_fork(spec) else _spawn(spec, moved)
    except OSError as error:
        raise StartRefused(_explain(error, spec)) from None
    finally:
        for each in moved:
            os.close(each)
        os.chdir("/")


def program_started(spec: dict[str, Any]) -> bool:
    """Whether bwrap started its program, once all have ended; its status pipe is closed.

    bwrap reports an exit code only if there was a program. Otherwise stderr is bwrap's own.
    """
    status: int = spec.pop("status", -1)
    if status < 0:
        return True
    status_text = b""
    os.set_blocking(status, False)
    try:
        while part := os.read(status, 4096):
            status_text += part
    except OSError:
        pass  # another process holds its other end
    os.close(status)
    return b'"exit-code"' in status_text


def _must_fork(spec: dict[str, Any]) -> bool:
    """Whether the program needs limits or mounts that its supervisor could not work with."""
    few_files = 0 < spec["limits"]["open_files"] < MIN_OPEN_FILES
    return spec["tier"] == "landlock" or few_files or _mounts_overlay(spec)


def _mounts_overlay(spec: dict[str, Any]) -> bool:
    return bool(spec["overlay"]) and spec["overlay"]["mounted_by"] == "launcher"


def _set_limits(spec: dict[str, Any]) -> None:
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
    """Whether it is a set-user-id bwrap, which drops what it gains itself.

    Nothing else may gain rights from a file: the supervisor could not kill it.
    """
    return spec["tier"] == "bwrap" and bool(os.stat(spec["argv"][0]).st_mode & stat.S_ISUID)


def _spawn(spec: dict[str, Any], moved: list[int]) -> int:
    _set_limits(spec)
    places = [(os.POSIX_SPAWN_DUP2, each, place) for place, each in enumerate(moved)]
    argv: list[str] = spec["argv"]
    return os.posix_spawn(
        argv[0], argv, spec["env"], file_actions=places, setsid=True, setsigdef=IGNORED
    )


def _fork(spec: dict[str, Any], moved: list[int], control: int) -> int:
    supervisor = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(127)  # it died before PDEATHSIG was set
        for place, each in enumerate(moved):
            os.dup2(each, place)
        for number in IGNORED:
            signal.signal(number, signal.SIG_DFL)
        if _mounts_overlay(spec):
            _mount_overlay(spec)
        _set_limits(spec)
        if spec["tier"] == "landlock":
            if TYPE_CHECKING:
                from satchel.runners._landlock import confine
            else:
                from _landlock import confine

            confine(spec)
        os.execve(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606
    except BaseException as error:  # noqa: BLE001  (every failure is reported)
        send(control, f"failed {_explain(error, spec)}")
    finally:
        os._exit(127)


def _mount_overlay(spec: dict[str, Any]) -> None:
    overlay: dict[str, Any] = spec["overlay"]
    try:
        _overlay_mount.mount_overlay(overlay["workspace"], overlay["upper"], overlay["work"])
        _overlay_mount.cover_files(overlay["hidden"])
    except OSError as error:
        raise StartRefused(f"no overlay over the workspace: {error.strerror}") from None
    os.chdir(spec["cwd"])  # it may lie in what is covered now


def _explain(error: BaseException, spec: dict[str, Any]) -> str:
    if isinstance(error, StartRefused):
        return str(error)
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
    parts: list[bytes] = []
    while part := os.pread(descriptor, 1 << 20, sum(map(len, parts))):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts)


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("satchel", os.MFD_CLOEXEC)
    written = 0
    while written < len(content):
        written += os.write(descriptor, content[written:])
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
