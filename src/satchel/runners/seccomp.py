"""The seccomp filter: a BPF program, assembled by hand, that denies system calls.

One filter serves Python, Node and Go, so it lists what is denied, not what is allowed. System calls
newer than this list are answered with "no such call", as an older kernel would. The first
instruction checks the architecture, since numbers differ between them; x32 is denied for the same
reason.

    denied        EPERM, or ENOSYS where a library then takes another way (`clone3`), or
                  EAFNOSUPPORT for the network
    inspected     `clone`, `socket`, `socketpair`, `ioctl` and others: by their arguments
    ignored       in the Landlock tier, changes of modes and times: answered with success, nothing
                  done. Landlock cannot restrict them to own files, and `shutil.copy` must not fail

A filter cannot dereference pointers: paths and addresses are left to the two tiers.
"""

from __future__ import annotations

import errno
import struct
from typing import NamedTuple

_LD, _JEQ, _JGE, _JSET, _JA, _RET, _AND = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06, 0x54
_MAX_LINEAR_COUNT = 8
"""Numbers that are compared one after the other."""
_NR, _ARCH = 0, 4
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM = _ERRNO | errno.EPERM
_ENOSYS = _ERRNO | 38
_EAFNOSUPPORT = _ERRNO | 97
"""For internet sockets: the message "address family not supported" differs from that of every other
denial."""
_DONE = _ERRNO
"""Error 0: the caller sees success."""

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_STREAM, _SOCK_SEQPACKET = 1, 5
_NEW_NAMESPACES = 0x7E020080
"""Every `CLONE_NEW…` flag."""
_FIRST_UNKNOWN = 470
"""Newer numbers are unknown: Linux 6.18 ends at 469."""
_X32 = 0x40000000

_TTY_REQUESTS = (0x5412, 0x541C)
"""TIOCSTI types into a terminal, TIOCLINUX pastes into a console."""
_FLAG_REQUESTS = (0x40086602, 0x401C5820)
"""FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR change a file that may only be read."""


class Arch(NamedTuple):
    """One architecture: its audit constant and system call numbers."""

    audit: int
    numbers: dict[str, int]


# name: (x86_64, aarch64); -1 where an architecture never had it
_NUMBERS = {
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "acct": (163, 89), "adjtimex": (159, 171), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "delete_module": (176, 106),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "finit_module": (313, 273),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "init_module": (175, 105), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425), "ioperm": (173, -1), "iopl": (172, -1), "kcmp": (312, 272),
    "kexec_file_load": (320, 294), "kexec_load": (246, 104), "listmount": (458, 458),
    "lookup_dcookie": (212, 18), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "migrate_pages": (256, 238), "modify_ldt": (154, -1), "mount": (165, 40),
    "mount_setattr": (442, 442), "move_mount": (429, 429), "move_pages": (279, 239),
    "mq_getsetattr": (245, 185), "mq_notify": (244, 184), "mq_open": (240, 180),
    "mq_timedreceive": (243, 183), "mq_timedsend": (242, 182), "mq_unlink": (241, 181),
    "msgctl": (71, 187), "msgget": (68, 186), "msgrcv": (70, 188), "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "open_tree_attr": (467, 467), "perf_event_open": (298, 241), "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142),
    "semctl": (66, 191), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192),
    "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268),
    "settimeofday": (164, 170), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197),
    "shmget": (29, 194), "statmount": (457, 457), "swapoff": (168, 225), "swapon": (167, 224),
    "sysfs": (139, -1), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "uselib": (134, -1), "userfaultfd": (323, 282), "ustat": (136, -1), "vhangup": (153, 58),
    # inspected
    "clone": (56, 220), "clone3": (435, 435), "ioctl": (16, 29), "personality": (135, 92),
    "prlimit64": (302, 261), "socket": (41, 198), "socketpair": (53, 199),
    # relevant without a process namespace
    "ioprio_set": (251, 30), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "setpriority": (141, 140),
    # not covered by Landlock
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "fchown": (93, 55), "fchownat": (260, 54), "lchown": (94, -1),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466), "file_setattr": (469, 469), "inotify_add_watch": (254, 27),
    "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88),
}  # fmt: skip

_NAMES = tuple(_NUMBERS)
_REFUSED = _NAMES[: _NAMES.index("clone")]
"""Always denied: the first group of the table."""
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
"""The index of the mode argument."""
_TIMES = ("utime", "utimes", "futimesat", "utimensat")
_UNSEEN = (
    "chown", "fchown", "fchownat", "lchown", "setxattr", "lsetxattr", "fsetxattr", "setxattrat",
    "removexattr", "lremovexattr", "fremovexattr", "removexattrat", "file_setattr",
    "inotify_add_watch",
)  # fmt: skip
_OF_OTHERS = ("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")

ARCHES = {
    "x86_64": Arch(0xC000003E, {name: pair[0] for name, pair in _NUMBERS.items()}),
    "aarch64": Arch(0xC00000B7, {name: pair[1] for name, pair in _NUMBERS.items()}),
}


def build_filter(machine: str, *, network: bool = False, landlock: bool = False) -> bytes:
    """The program for one machine, as the kernel takes it.

    Unix sockets are denied: a bound or read-only workspace would still let a program connect to
    those of the user. Pairs of stream sockets are allowed: they lead nowhere else.

    Args:
        machine: `os.uname().machine`.
        network: Whether internet sockets are allowed.
        landlock: Also deny what a mount and a process namespace would have prevented.

    Raises:
        LookupError: the architecture is not supported.
    """
    arch = ARCHES[machine]
    code = _Code(arch)
    for name in _REFUSED:
        code.refuse(name)
    code.refuse("clone3", _ENOSYS)
    code.when("clone", (_test(0, _JSET, _NEW_NAMESPACES, _EPERM),))
    requests = _TTY_REQUESTS + (_FLAG_REQUESTS if landlock else ())
    code.when("ioctl", [_test(1, _JEQ, request, _EPERM) for request in requests])
    code.when(
        "personality",
        (_test(0, _JEQ, 0, _ALLOW), _test(0, _JEQ, 0xFFFFFFFF, _ALLOW)),
        otherwise=_EPERM,
    )
    code.when("prlimit64", (_test(0, _JEQ, 0, _ALLOW),), otherwise=_EPERM)
    families = (_AF_INET, _AF_INET6) if network else ()
    sockets = [_test(0, _JEQ, family, _ALLOW) for family in families]
    if network:  # to look up own addresses; changing them needs a capability
        sockets.append((*_argument(0), (_JEQ, 0, 3, _AF_NETLINK), *_argument(2),
                        (_JEQ, 0, 1, 0), (_RET, 0, 0, _ALLOW)))  # fmt: skip
    sockets.append(_test(0, _JEQ, _AF_UNIX, _EPERM))
    code.when("socket", sockets, otherwise=_EAFNOSUPPORT)
    # A datagram socket of a pair can send elsewhere; those of the other kinds cannot.
    pairs = [(*_argument(1), (_AND, 0, 0, 0xF), (_JEQ, 0, 1, kind), (_RET, 0, 0, _ALLOW))
             for kind in (_SOCK_STREAM, _SOCK_SEQPACKET)]  # fmt: skip
    code.when("socketpair", pairs, otherwise=_EPERM)
    if landlock:
        _without_namespaces(code)
    return code.assemble()


def _without_namespaces(code: _Code) -> None:
    """Deny calls that would reach the user's other processes and files."""
    for name in _UNSEEN:
        code.refuse(name)
    for name in _TIMES:
        code.refuse(name, _DONE)
    for name, position in _MODES.items():
        code.when(name, (_test(position, _JSET, 0o6000, _EPERM),), otherwise=_DONE)
    for name in _OF_OTHERS:
        code.when(name, (_test(0, _JEQ, 0, _ALLOW),), otherwise=_EPERM)
    for name in ("setpriority", "ioprio_set"):
        own_kind = 0 if name == "setpriority" else 1
        code.when(
            name,
            ((*_argument(0), (_JEQ, 0, 3, own_kind), *_argument(1), (_JEQ, 0, 1, 0),
              (_RET, 0, 0, _ALLOW)),),
            otherwise=_EPERM,
        )  # fmt: skip


_Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, value."""


def _argument(number: int) -> tuple[_Instruction, ...]:
    """Load the lower half of an argument: all those inspected have 32 bits."""
    return ((_LD, 0, 0, 16 + 8 * number),)


def _test(number: int, how: int, value: int, then: int) -> tuple[_Instruction, ...]:
    return (*_argument(number), (how, 0, 1, value), (_RET, 0, 0, then))


class _Code:
    def __init__(self, arch: Arch) -> None:
        self.arch = arch
        self.answers: dict[int, list[_Instruction]] = {}
        """The instructions for a number; they end with an answer."""

    def refuse(self, name: str, answer: int = _EPERM) -> None:
        """Always give one call this answer."""
        self.when(name, (), answer)

    def when(
        self,
        name: str,
        tests: list[tuple[_Instruction, ...]] | tuple[tuple[_Instruction, ...], ...],
        otherwise: int = _ALLOW,
    ) -> None:
        """Answer one call by the first matching test."""
        number = self.arch.numbers[name]
        if number >= 0:
            body = [line for test in tests for line in test]
            self.answers[number] = [*body, (_RET, 0, 0, otherwise)]

    def assemble(self) -> bytes:
        """The bytes; all other calls are allowed."""
        lines = [
            (_LD, 0, 0, _ARCH),
            (_JEQ, 1, 0, self.arch.audit),
            (_RET, 0, 0, _KILL),
            (_LD, 0, 0, _NR),
            (_JGE, 0, 1, _X32),
            (_RET, 0, 0, _EPERM),
            (_JGE, 0, 1, _FIRST_UNKNOWN),
            (_RET, 0, 0, _ENOSYS),
            *self._search(sorted(self.answers)),
        ]
        return b"".join(struct.pack("=HBBI", *line) for line in lines)

    def _search(self, numbers: list[int]) -> list[_Instruction]:
        """Binary search for the number, since the kernel runs this for every call."""
        if len(numbers) > _MAX_LINEAR_COUNT:
            middle = len(numbers) // 2
            low, high = self._search(numbers[:middle]), self._search(numbers[middle:])
            return [(_JGE, 0, 1, numbers[middle]), (_JA, 0, 0, len(low)), *low, *high]
        lines: list[_Instruction] = []
        for number in numbers:
            body = self.answers[number]
            lines += [(_JEQ, 0, len(body), number), *body]
        return [*lines, (_RET, 0, 0, _ALLOW)]
