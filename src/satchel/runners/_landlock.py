"""Confines the current process with Landlock and seccomp, before it becomes the program.

One file with the standard library only, for `python -I -S`. It is used in two ways:

    `confine(spec)`          tier "landlock", in the launcher's child between fork and exec: no new
                             privileges, no capabilities, Landlock, seccomp. It leaves the process
                             confined or raises `OSError`; the caller must not exec then
    `_landlock.py PATH -- …`  tier "bwrap", inside its namespaces: denies writing outside of PATH,
                             then starts the program. A read-only mount permits writing to a FIFO,
                             Landlock does not

Landlock controls which files may be opened. It does not cover modes, owners, times, watches, unix
sockets and System V memory: the BPF program of `seccomp.py` does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

MIN_LANDLOCK_ABI = 6
"""Linux 6.12: earlier versions do not restrict signals to the user's other processes."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_BLOCK, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 14, 1 << 15
_HANDLED_FS = (1 << 16) - 1
"""All sixteen rights of ABI 5 and later."""
_HANDLED_NET = 3
"""Binding and connecting TCP."""
_SCOPED = 3
"""Abstract sockets and signals stay within the sandbox."""
_MAY_READ = _EXECUTE | _READ_FILE | _READ_DIR
_MAY_WRITE = _HANDLED_FS & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

_PR_SET_SECCOMP, _PR_SET_SECUREBITS = 22, 28
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_SECCOMP_MODE_FILTER = 2
_SECUREBITS = 0b11101111
"""Uid 0 has no privileges, irrevocably; KEEP_CAPS only locked."""
_CAPABILITIES_V3 = 0x20080522


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # the default for packed structures; Python 3.14 requires it
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


_libc = ctypes.CDLL(None, use_errno=True)
# Looked up before any fork: the child only calls.
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = (ctypes.c_long,) * 5
_prctl = _libc.prctl
_prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
_capset, _capget = _libc.capset, _libc.capget
_capset.argtypes = _capget.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
# Allocated before any fork: a page that a forked child writes to is copied first, which takes
# longer than the calls themselves.
_attr, _rule, _program = _RulesetAttr(), _PathBeneath(), _SockFprog()
_header, _capabilities = _CapHeader(_CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)()
_at_attr, _at_rule, _at_program = map(ctypes.addressof, (_attr, _rule, _program))
_at_header, _at_capabilities = map(ctypes.addressof, (_header, _capabilities))
_O_PATH = getattr(os, "O_PATH", 0) | getattr(os, "O_CLOEXEC", 0)


def confine(spec: Mapping[str, Any]) -> None:
    """Drop irrevocably what `spec` does not grant.

    Raises:
        OSError: it failed; the process may be half confined and must not go on.
    """
    if not spec["seccomp"]:
        raise OSError(errno.EINVAL, "the sandbox has no BPF program")
    _no_new_privileges()
    _drop_capabilities()
    abi = landlock_abi()
    if abi < MIN_LANDLOCK_ABI:
        raise OSError(
            errno.EOPNOTSUPP, f"Landlock {MIN_LANDLOCK_ABI} is needed, this kernel has {abi}"
        )
    net = 0 if spec.get("network") else _HANDLED_NET
    granted = ((_MAY_READ, spec["read"]), (_MAY_WRITE, spec["write"]))
    _restrict(_HANDLED_FS, net, _SCOPED, granted)
    _load_seccomp(spec["seccomp"])


def landlock_abi() -> int:
    """The Landlock version of this kernel; 0 when there is none, or it is disabled."""
    return max(int(_syscall(_CREATE_RULESET, 0, 0, _VERSION_FLAG, 0)), 0)


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _no_new_privileges() -> None:
    _checked(_prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _drop_capabilities() -> None:
    """Drop all capabilities, also those that root would regain by exec."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    # Needs a capability; without one there is nothing to drop. The bounding set stays: with
    # no_new_privs nothing is gained by exec.
    _prctl(_PR_SET_SECUREBITS, _SECUREBITS, 0, 0, 0)
    _header.version = _CAPABILITIES_V3
    for index in range(6):
        _capabilities[index] = 0
    _checked(_capset(_at_header, _at_capabilities), "dropping capabilities")
    _checked(_capget(_at_header, _at_capabilities), "reading capabilities")
    if any(_capabilities):
        raise OSError(errno.EPERM, "capabilities could not be dropped")


def _restrict(fs: int, net: int, scoped: int, granted: Iterable[tuple[int, list[str]]]) -> None:
    _attr.handled_access_fs, _attr.handled_access_net, _attr.scoped = fs, net, scoped
    ruleset_or_error = _syscall(_CREATE_RULESET, _at_attr, ctypes.sizeof(_attr), 0, 0)
    ruleset = _checked(ruleset_or_error, "a Landlock ruleset")
    try:
        for rights, paths in granted:
            for path in paths:
                _grant(ruleset, path, rights)
        _checked(_syscall(_RESTRICT_SELF, ruleset, 0, 0, 0), "Landlock")
    finally:
        os.close(ruleset)


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, _O_PATH)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # what is missing, or not accessible to the user, needs no right
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_A_FILE
        _rule.allowed_access, _rule.parent_fd = rights, fd
        added = _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, _at_rule, 0)
        if added < 0:
            _checked(added, f"a Landlock rule for {path}")
    finally:
        os.close(fd)


def _load_seccomp(code: bytes) -> None:
    if len(code) % 8 or not code:
        raise OSError(errno.EINVAL, "the BPF program is damaged")
    _program.len, _program.filter = len(code) // 8, code
    _checked(_prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _at_program, 0, 0), "seccomp")


if __name__ == "__main__":
    _at = sys.argv.index("--")
    _no_new_privileges()
    _restrict(_WRITE_FILE, 0, 0, ((_WRITE_FILE, sys.argv[1:_at]),))
    os.execv(sys.argv[_at + 1], sys.argv[_at + 1 :])  # noqa: S606
