"""Can a program get out? This is the program that tries, in Python, on the standard library alone.

Started as `python -I -S _escapes.py TARGETS`, where TARGETS is a JSON object of texts: paths,
ports and numbers that `selfcheck.Stage` set up outside. For each attempt it writes a line, the name
and then `escaped` or what stopped it. It does no harm where it succeeds: what it overwrites was
laid out for it, and what it opens it closes.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_T: dict[str, str] = {}
"""The targets."""
_ATTEMPTS: dict[str, Callable[[], object]] = {}

_NEWUSER, _NEWNS = 0x10000000, 0x00020000


def _attempt(function: Callable[[], object]) -> Callable[[], object]:
    _ATTEMPTS[function.__name__.replace("_", "-")] = function
    return function


def _call(name: str, *values: object) -> int:
    """A raw system call, by its number on this machine."""
    number = json.loads(_T["numbers"])[name]
    result = _libc.syscall(number, *(ctypes.c_long(v) if isinstance(v, int) else v for v in values))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


def _in_child(function: Callable[[], object]) -> None:
    """For what changes the process that does it. Raises what was raised there."""
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
    status = os.waitpid(pid, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    if code:
        text = signal.Signals(-code).name if code < 0 else os.strerror(code)
        raise OSError(max(code, 0) or errno.EPERM, text)


def _read(path: str) -> bool:
    with open(path, "rb") as file:
        return bool(file.read(4096))


def _own(name: str) -> str:
    return os.path.join(os.environ.get("SATCHEL_SCRATCH") or os.getcwd(), name)


# --- files ---------------------------------------------------------------------------------


@_attempt
def read_secret() -> object:
    return _read(_T["secret"])


@_attempt
def list_home() -> object:
    return os.listdir(_T["home"])


@_attempt
def watch_home() -> object:
    fd = _libc.inotify_init()
    path = os.fsencode(_T["home"])
    return _call("inotify_add_watch", fd, ctypes.c_char_p(path), 0x100)


@_attempt
def read_other_skill() -> object:
    return _read(os.path.join(_T["other"], "SKILL.md"))


@_attempt
def read_undeclared_workspace() -> object:
    return _read(os.path.join(_T["outside"], "notes.txt"))


@_attempt
def read_accounts() -> object:
    return _read("/etc/passwd")


@_attempt
def read_shared_memory_file() -> object:
    return _read(_T["shm_file"])


@_attempt
def list_host_tmp() -> object:
    return "outside" in os.listdir(_T["root"]) or _stopped()


@_attempt
def list_sys() -> object:
    return os.listdir("/sys/class")


@_attempt
def write_skill() -> object:
    os.close(os.open(os.path.join(_T["skill"], "planted"), os.O_CREAT | os.O_WRONLY))
    return True


@_attempt
def change_skill() -> object:
    with open(os.path.join(_T["skill"], "data.txt"), "a", encoding="utf-8") as file:
        file.write("changed")
    return True


@_attempt
def chmod_skill() -> object:
    return _changed_mode(os.path.join(_T["skill"], "data.txt"))


@_attempt
def xattr_skill() -> object:
    os.setxattr(os.path.join(_T["skill"], "data.txt"), "user.satchel", b"x")
    return True


@_attempt
def chmod_secret() -> object:
    return _changed_mode(_T["secret"])


def _changed_mode(path: str) -> bool:
    before = os.stat(path).st_mode
    os.chmod(path, before ^ 0o044)
    return os.stat(path).st_mode != before or _stopped()


def _stopped() -> bool:
    """The call came back as if it had worked, and nothing has changed."""
    raise OSError(errno.EPERM, "nothing happened")


@_attempt
def touch_secret() -> object:
    os.utime(_T["secret"], (1, 1))
    return os.stat(_T["secret"]).st_mtime == 1 or _stopped()


@_attempt
def write_workspace() -> object:
    os.close(os.open(os.path.join(_T["workspace"], "planted"), os.O_CREAT | os.O_WRONLY))
    return True


@_attempt
def delete_in_workspace() -> object:
    os.unlink(os.path.join(_T["workspace"], "old.txt"))
    return True


@_attempt
def write_through_link() -> object:
    link = _own("link")
    os.symlink(os.path.join(_T["outside"], "through"), link)
    os.close(os.open(link, os.O_CREAT | os.O_WRONLY))
    return True


@_attempt
def hard_link_secret() -> object:
    os.link(_T["secret"], _own("linked"))
    return _read(_own("linked"))


@_attempt
def rename_over() -> object:
    own = _own("mine")
    os.close(os.open(own, os.O_CREAT | os.O_WRONLY))
    os.rename(own, os.path.join(_T["outside"], "notes.txt"))
    return True


@_attempt
def take_outside_file() -> object:
    os.rename(os.path.join(_T["outside"], "taken.txt"), _own("taken"))
    return True


@_attempt
def run_outside_program() -> object:
    pid = os.posix_spawn(os.path.join(_T["outside"], "tool"), ["tool"], {})
    return os.waitpid(pid, 0)[1] == 0 or _stopped()


@_attempt
def set_user_id_program() -> object:
    reading, writing = os.pipe()
    path = os.path.join(_T["skill"], "whoami")
    pid = os.posix_spawn(path, [path], {}, file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)])
    os.close(writing)
    os.waitpid(pid, 0)
    said = os.read(reading, 100)
    os.close(reading)
    return int(said) != os.geteuid() or _stopped()


@_attempt
def handle_of_secret() -> object:
    buffer = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    mount = ctypes.c_int()
    path = ctypes.c_char_p(os.fsencode(_T["secret"]))
    return _call("name_to_handle_at", -100, path, buffer, ctypes.byref(mount), 0) == 0


@_attempt
def make_device() -> object:
    os.mknod(_own("mem"), 0o600 | 0o020000, os.makedev(1, 1))
    return True


@_attempt
def open_device() -> object:
    os.close(os.open(_T["device"], os.O_RDONLY | os.O_NONBLOCK))
    return True


@_attempt
def write_core_pattern() -> object:
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return True


@_attempt
def write_release_agent() -> object:
    os.close(os.open(_T["release_agent"], os.O_WRONLY))
    return True


# --- what belongs to other processes -------------------------------------------------------


@_attempt
def env_secret() -> object:
    return "SATCHEL_ESCAPE_CANARY" in os.environ or _stopped()


@_attempt
def host_environ() -> object:
    return _read(f"/proc/{_T['host']}/environ")


@_attempt
def host_cmdline() -> object:
    return _read(f"/proc/{_T['host']}/cmdline")


@_attempt
def any_environ() -> object:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if _read(f"/proc/{name}/environ"):
                    return True
            except OSError:
                continue
    return _stopped()


@_attempt
def host_root() -> object:
    return _read(f"/proc/{_T['host']}/root{_T['secret']}")


@_attempt
def own_root() -> object:
    return _read(f"/proc/self/root{_T['secret']}")


@_attempt
def own_cwd() -> object:
    up = "/".join([".."] * 16)
    return _read(f"/proc/self/cwd/{up}{_T['secret']}")


@_attempt
def host_cwd() -> object:
    return os.listdir(f"/proc/{_T['host']}/cwd")


@_attempt
def host_descriptor() -> object:
    return _read(f"/proc/{_T['host']}/fd/{_T['host_fd']}")


@_attempt
def host_memory_file() -> object:
    with open(f"/proc/{_T['host']}/mem", "rb", buffering=0) as file:
        file.seek(int(_T["address"]))
        return file.read(8)


@_attempt
def inherited_descriptor() -> object:
    for fd in range(3, 200):
        try:
            if os.pread(fd, 6, 0) == b"canary":
                return True
        except OSError:
            continue
    return _stopped()


@_attempt
def host_memory() -> object:
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("PN", ctypes.addressof(buffer), 8)
    remote = struct.pack("PN", int(_T["address"]), 8)
    return _call("process_vm_readv", int(_T["host"]), local, 1, remote, 1, 0)


@_attempt
def trace_host() -> object:
    # PTRACE_SEIZE; the end of the child lets go.
    return _in_child(lambda: _call("ptrace", 0x4206, int(_T["host"]), 0, 0)) is None


@_attempt
def signal_host() -> object:
    os.kill(int(_T["host"]), signal.SIGCONT)
    return True


@_attempt
def signal_host_by_descriptor() -> object:
    fd = os.pidfd_open(int(_T["host"]))
    signal.pidfd_send_signal(fd, signal.SIGCONT)
    return True


@_attempt
def limit_host() -> object:
    core = ctypes.create_string_buffer(16)
    return _call("prlimit64", int(_T["host"]), 4, 0, core) == 0


@_attempt
def slow_host() -> object:
    os.setpriority(os.PRIO_PROCESS, int(_T["host"]), os.getpriority(os.PRIO_PROCESS, 0))
    return True


@_attempt
def host_shared_memory() -> object:
    return _call("shmat", int(_T["shm_id"]), 0, 0o10000)


# --- network and sockets -------------------------------------------------------------------


@_attempt
def tcp_connect() -> object:
    socket.create_connection(("127.0.0.1", int(_T["tcp"])), 2).close()
    return True


@_attempt
def tcp_listen() -> object:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen()
    return True


@_attempt
def udp_send() -> object:
    with socket.socket(type=socket.SOCK_DGRAM) as own:
        return own.sendto(b"x", ("127.0.0.1", int(_T["udp"])))


@_attempt
def dns_query() -> object:
    # The resolver's own way: a datagram, connected first, to what plays the name server.
    with socket.socket(type=socket.SOCK_DGRAM) as own:
        own.connect(("127.0.0.1", int(_T["udp"])))
        return own.send(b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1")


@_attempt
def netlink_socket() -> object:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()
    return True


@_attempt
def unix_socket() -> object:
    with socket.socket(socket.AF_UNIX) as own:
        own.connect(_T["unix"])
    return True


@_attempt
def unix_datagram() -> object:
    # Made as a pair, so that no socket has to be asked for.
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with own, other:
        return own.sendto(b"x", _T["unix_datagram"])


@_attempt
def abstract_socket() -> object:
    with socket.socket(socket.AF_UNIX) as own:
        own.connect("\0" + _T["abstract"])
    return True


# --- the kernel ----------------------------------------------------------------------------


@_attempt
def user_namespace() -> object:
    return _in_child(lambda: _call("unshare", _NEWUSER)) is None


@_attempt
def user_namespace_by_clone() -> object:
    def clone() -> None:
        if _call("clone", _NEWUSER | signal.SIGCHLD, 0, 0, 0, 0) == 0:
            os._exit(0)

    return _in_child(clone) is None


@_attempt
def mount_something() -> object:
    def mount() -> None:
        _call("unshare", _NEWUSER | _NEWNS)
        _call("mount", ctypes.c_char_p(b"none"), ctypes.c_char_p(os.fsencode(os.getcwd())),
              ctypes.c_char_p(b"tmpfs"), 0, None)  # fmt: skip

    return _in_child(mount) is None


@_attempt
def change_root() -> object:
    def chroot() -> None:
        if os.geteuid():
            _call("unshare", _NEWUSER)
        os.chroot("/usr")

    return _in_child(chroot) is None


@_attempt
def io_uring() -> object:
    os.close(_call("io_uring_setup", 4, ctypes.create_string_buffer(256)))
    return True


@_attempt
def kernel_keys() -> object:
    return _call("add_key", ctypes.c_char_p(b"user"), ctypes.c_char_p(b"satchel-escape"),
                 ctypes.c_char_p(b"x"), 1, -3)  # fmt: skip


@_attempt
def bpf() -> object:
    attributes = struct.pack("IIII", 2, 4, 4, 1) + bytes(112)  # an array of one
    os.close(_call("bpf", 0, attributes, len(attributes)))
    return True


@_attempt
def userfaultfd() -> object:
    os.close(_call("userfaultfd", 1 | os.O_CLOEXEC))
    return True


@_attempt
def perf_event() -> object:
    attributes = struct.pack("IIQQQQQ", 1, 112, 0, 0, 0, 0, 0x61) + bytes(64)
    os.close(_call("perf_event_open", attributes, 0, -1, -1, 0))
    return True


@_attempt
def memory_file() -> object:
    os.close(_call("memfd_create", ctypes.c_char_p(b"x"), 0))
    return True


@_attempt
def fixed_addresses() -> object:
    return _in_child(lambda: _call("personality", 0x0040000)) is None


@_attempt
def kernel_log() -> object:
    return _call("syslog", 10, 0, 0)  # how large it is


@_attempt
def foreign_architecture() -> object:
    """A call in the 32-bit numbering, where the filter's numbers mean something else."""
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, "another machine")
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xb8\x14\0\0\0\xcd\x80\xc3")  # mov eax, getpid; int 0x80; ret
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))

    def go() -> None:
        if call() <= 0:
            raise OSError(errno.ENOSYS, "not in this kernel")

    return _in_child(go) is None


@_attempt
def type_into_terminal() -> object:
    def type_it() -> None:
        import fcntl
        import termios

        master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(master, 0x40045431, struct.pack("i", 0))  # unlock
        number = struct.unpack("i", fcntl.ioctl(master, 0x80045430, bytes(4)))[0]
        os.setsid()
        slave = os.open(f"/dev/pts/{number}", os.O_RDWR)
        fcntl.ioctl(slave, termios.TIOCSTI, b"x")

    return _in_child(type_it) is None


def main() -> None:
    """Try everything, or what `only` names."""
    _T.update(json.loads(sys.argv[1]))
    only = _T.get("only", "").split(",") if _T.get("only") else list(_ATTEMPTS)
    for name in only:
        try:
            said = "escaped" if _ATTEMPTS[name]() else "nothing"
        except OSError as exc:
            said = errno.errorcode.get(exc.errno or 0, "") or str(exc)
        except Exception as exc:  # noqa: BLE001 - one attempt must not hide another
            said = f"{type(exc).__name__}: {exc}"
        sys.stdout.write(f"{name}\t{said}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
