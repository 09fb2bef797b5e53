"""Attempts to leave the sandbox, made by a program inside it. Standard library only.

Started as `python -I -S _probes.py TARGETS`, where TARGETS is a JSON object of texts: paths, ports
and numbers that `ProbeStage` set up outside. Writes one line for each attempt: its name, a
tab, and `escaped` or what stopped it. An attempt that succeeds does no harm.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_SEIZE, _NEWUSER = 0x4206, 0x10000000
_T: dict[str, str] = {}
"""The targets."""


def _call(name: str, *values: int | None) -> None:
    library = ctypes.CDLL(None, use_errno=True)  # here: Windows cannot open it
    if getattr(library, name)(*values) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _in_child(function: Callable[[], None]) -> None:
    """Run a function that changes its process in a fork; raise its error here."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            function()
            code = 0
        except OSError as exc:
            code = exc.errno or 254
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(max(code, 0) or errno.EPERM, "it failed in a child")


def _read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(64)


def _make(folder: str) -> None:
    os.close(os.open(os.path.join(folder, "planted"), os.O_CREAT | os.O_WRONLY))


def _find_descriptor() -> None:
    for descriptor in range(3, 200):
        try:
            if os.pread(descriptor, 6, 0) == b"canary":
                return
        except OSError:
            continue
    raise OSError(errno.EBADF, "no descriptor of the host")


def _connect(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)


def _send() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", int(_T["udp"])))


PROBES: dict[str, Callable[[], object]] = {
    "read-secret": lambda: _read(_T["secret"]),
    "write-skill": lambda: _make(_T["skill"]),
    "write-workspace": lambda: _make(_T["workspace"]),
    "host-environ": lambda: _read(f"/proc/{_T['host']}/environ"),
    "inherited-descriptor": _find_descriptor,
    "trace-host": lambda: _in_child(lambda: _call("ptrace", _SEIZE, int(_T["host"]), None, None)),
    "signal-host": lambda: os.kill(int(_T["host"]), signal.SIGCONT),
    "tcp-connect": lambda: socket.create_connection(("127.0.0.1", int(_T["tcp"])), 2).close(),
    "udp-send": _send,
    "unix-socket": lambda: _connect(_T["unix"]),
    "abstract-socket": lambda: _connect("\0" + _T["abstract"]),
    "user-namespace": lambda: _in_child(lambda: _call("unshare", _NEWUSER)),
}
"""Attempts by name; each raises `OSError` when it is denied."""


def main() -> None:
    """Run all attempts."""
    _T.update(json.loads(sys.argv[1]))
    for name, attempt in PROBES.items():
        result = "escaped"
        try:
            attempt()
        except OSError as exc:
            result = errno.errorcode.get(exc.errno or 0, "") or str(exc)
        except Exception as exc:  # noqa: BLE001 - one attempt must not hide another
            result = f"{type(exc).__name__}: {exc}"
        sys.stdout.write(f"{name}\t{result}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
