"""The seccomp filter, executed by a small BPF machine."""

from __future__ import annotations

import os
import re
import struct

import pytest

from satchel.runners.seccomp import _NUMBERS, ARCHES, build_filter

ALLOW, EPERM, ENOSYS, DONE, KILL = 0x7FFF0000, 0x50001, 0x50026, 0x50000, 0x80000000
EAFNOSUPPORT = 0x50061
NEWUSER = 0x10000000


def decide(code: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the filter answers to one call."""
    data = struct.pack("<IIQ6Q", number, audit, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    lines = list(struct.iter_unpack("<HBBI", code))
    at = accumulator = 0
    while True:
        how, yes, no, value = lines[at]
        at += 1
        if how == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif how == 0x06:
            return value
        elif how == 0x05:
            at += value
        elif how == 0x54:
            accumulator &= value
        else:
            met = {0x15: accumulator == value, 0x35: accumulator >= value}.get(
                how, bool(accumulator & value)
            )
            at += yes if met else no


class Filter:
    def __init__(self, machine: str, **options: bool):
        self.arch = ARCHES[machine]
        self.code = build_filter(machine, **options)

    def __call__(self, name: str, *arguments: int) -> int:
        return decide(self.code, self.arch.audit, self.arch.numbers[name], *arguments)


@pytest.fixture(params=sorted(ARCHES))
def machine(request):
    return request.param


NEVER = (
    "ptrace", "bpf", "io_uring_setup", "keyctl", "mount", "unshare", "setns", "userfaultfd",
    "process_vm_readv", "open_by_handle_at", "shmget", "mq_open", "memfd_create", "pidfd_getfd",
    "chroot", "perf_event_open",
)  # fmt: skip
NAMESPACES = (NEWUSER, 0x20000, 0x40000000, 0x20000000, 0x08000000, 0x04000000, 0x02000000)
CLOSE_ON_EXEC, NON_BLOCKING = 0o2000000, 0o4000
DECISIONS = [
    *((name, (), EPERM) for name in NEVER),
    ("clone", (0x3D0F00,), ALLOW),  # what a thread is made with
    ("clone", (17,), ALLOW),
    *(("clone", (flag | 17,), EPERM) for flag in NAMESPACES),
    ("clone3", (), ENOSYS),  # so that libraries take `clone`
    # A pair of sockets leads nowhere else, except one of datagrams.
    *(("socketpair", (1, kind | extra), EPERM if kind == 2 else ALLOW)
      for kind in (1, 2, 5) for extra in (0, CLOSE_ON_EXEC, NON_BLOCKING)),
    ("prlimit64", (0,), ALLOW),
    ("prlimit64", (4242,), EPERM),
    ("ioctl", (0, 0x5412), EPERM),
    ("ioctl", (0, 0x1_0000_5412), EPERM),  # the kernel drops the upper half
    ("ioctl", (0, 0x5401), ALLOW),
    ("personality", (0xFFFFFFFF,), ALLOW),
    ("personality", (0x40000,), EPERM),
    ("sched_setaffinity", (0,), ALLOW),
    ("sched_setaffinity", (4242,), EPERM),
    ("setpriority", (0, 0), ALLOW),
    ("setpriority", (0, 4242), EPERM),
    ("setpriority", (2, 0), EPERM),
]  # fmt: skip


def test_calls_are_refused_or_judged_by_their_arguments(machine):
    asked = Filter(machine, landlock=True)
    assert [asked(name, *given) for name, given, _ in DECISIONS] == [row[2] for row in DECISIONS]


@pytest.mark.parametrize(("options", "allowed"), [({}, set()), ({"network": True}, {2, 10})])
def test_socket_families(machine, options, allowed):
    asked = Filter(machine, **options)
    families = {family for family in range(46) if asked("socket", family, 1, 7) == ALLOW}
    assert families == allowed
    assert (asked("socket", 16, 3, 0) == ALLOW) is ("network" in options)  # routes, read only
    assert asked("socket", 17, 3, 0) == EAFNOSUPPORT
    assert asked("socket", 1, 1, 0) == EPERM


def test_without_a_mount_namespace_modes_and_times_do_not_change(machine):
    asked = Filter(machine, landlock=True)
    assert asked("fchmod", 3, 0o644) == DONE
    assert asked("fchmod", 3, 0o4755) == EPERM
    assert asked("fchmodat", 3, 0, 0o2755) == EPERM
    assert asked("utimensat") == DONE
    for name in ("fchownat", "setxattr", "inotify_add_watch", "file_setattr"):
        assert asked(name) == EPERM
        assert Filter(machine)(name) == ALLOW, "bwrap has a mount namespace for that"


def test_numbers_of_another_world_are_refused(machine):
    arch = ARCHES[machine]
    code = build_filter(machine)
    other = next(item.audit for name, item in ARCHES.items() if name != machine)
    assert decide(code, other, 0) == KILL
    assert decide(code, 0x40000003, 20) == KILL  # i386
    assert decide(code, arch.audit, 0x40000000 | 101) == EPERM  # x32
    assert decide(code, arch.audit, 470) == ENOSYS  # not yet invented
    assert decide(code, arch.audit, 0xFFFFFFFF) == EPERM


def test_ordinary_calls_pass(machine):
    named = set(ARCHES[machine].numbers.values())
    code = build_filter(machine, landlock=True)
    for number in range(470):
        if number not in named:
            assert decide(code, ARCHES[machine].audit, number) == ALLOW


@pytest.mark.parametrize(
    ("which", "header"),
    [
        (0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        (1, "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_numbers_are_the_kernels(which, header):
    if not os.path.exists(header):
        pytest.skip("no kernel headers here")
    with open(header, encoding="utf-8") as file:
        found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", file.read())
    theirs = {name: int(number) for name, number in found}
    ours = {name: pair[which] for name, pair in _NUMBERS.items()}
    assert {n: v for n, v in ours.items() if theirs.get(n, v) != v} == {}


def test_another_machine_has_no_filter():
    with pytest.raises(LookupError):
        build_filter("sparc64")
