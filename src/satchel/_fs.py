"""Files without surprises: reading below a root, and writing all or nothing.

`open_beneath` never leaves its root, whatever links or `..` a path holds. On Linux the kernel
enforces it (`openat2`); elsewhere each step is opened without following links, and links are
resolved by hand against the root.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from satchel._language import Message
from satchel.errors import AccessDenied

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_OPENAT2 = 437
_MAX_LINKS = 40
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# A named pipe must not make us wait, a terminal must not become ours.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)

RACY_NS = 50_000_000
"""What changed this recently may change again without its time stamps showing it."""

_kernel: Callable[[int, bytes], tuple[int, int]] | None = None
_kernel_helps: bool | None = None


def open_beneath(root: str, path: str) -> int:
    """Open `path`, relative to `root`, for reading; return a descriptor.

    Raises:
        AccessDenied: the path leads outside the root.
        OSError: it is not there, or may not be read.
    """
    if "\0" in path:
        raise AccessDenied("The path contains a NUL character")
    if os.path.isabs(path):
        raise AccessDenied(f"`{path}` is absolute", "Give a path relative to the project")
    if not path:
        raise _error(errno.ENOENT, path)
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as exc:
        raise _error(errno.EINVAL, path) from exc
    if _kernel_helps is not False:
        base = os.open(root, _FOLDER)
        try:
            descriptor = _open_by_kernel(base, path, encoded)
        finally:
            os.close(base)
        if descriptor is not None:
            return descriptor
    if os.open in os.supports_dir_fd:
        return _open_by_steps(root, path)
    return _open_by_name(root, path)


def _open_by_kernel(base: int, path: str, encoded: bytes) -> int | None:
    """The descriptor, or None when this system has no `openat2`."""
    global _kernel, _kernel_helps  # noqa: PLW0603 - asked once per process
    if _kernel is None:
        _kernel = _find_openat2()
    for _ in range(16):  # EAGAIN means that a rename raced with the look-up
        found, code = _kernel(base, encoded)
        if found >= 0:
            _kernel_helps = True
            return found
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    else:
        raise _error(errno.EAGAIN, path)
    if code in (errno.ENOSYS, errno.EPERM) and not _kernel_helps:
        _kernel_helps = False
        return None
    if code == errno.EXDEV:
        raise _outside(path)
    raise _error(code, path)


def _find_openat2() -> Callable[[int, bytes], tuple[int, int]]:
    """The system call as a function: a descriptor or -1, and the error number."""
    import sys

    if sys.platform != "linux":
        return lambda _base, _path: (-1, errno.ENOSYS)
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (
            ("flags", ctypes.c_uint64),
            ("mode", ctypes.c_uint64),
            ("resolve", ctypes.c_uint64),
        )

    how = OpenHow(_FLAGS, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    syscall: Any = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    number = ctypes.c_long(_OPENAT2)

    def openat2(base: int, path: bytes) -> tuple[int, int]:
        found = syscall(number, ctypes.c_int(base), path, ctypes.byref(how), size)
        return found, 0 if found >= 0 else ctypes.get_errno()

    return openat2


def _open_by_steps(root: str, path: str) -> int:
    """Walk one component at a time, so that no link is followed unseen."""
    nofollow = getattr(os, "O_NOFOLLOW", 0)
    folders = [os.open(root, _FOLDER)]
    todo = _parts(path)
    links = 0
    try:
        while todo:
            part = todo.pop()
            if part == "..":
                if len(folders) == 1:
                    raise _outside(path)
                os.close(folders.pop())
                continue
            info = os.stat(part, dir_fd=folders[-1], follow_symlinks=False)
            if stat.S_ISLNK(info.st_mode):
                links += 1
                if links > _MAX_LINKS:
                    raise _error(errno.ELOOP, path)
                target = os.readlink(part, dir_fd=folders[-1])
                if os.path.isabs(target):
                    raise _outside(path)
                todo += _parts(target)
                continue
            if (todo or path.endswith("/")) and not stat.S_ISDIR(info.st_mode):
                raise _error(errno.ENOTDIR, path)
            descriptor = os.open(part, _FLAGS | nofollow, dir_fd=folders[-1])
            if not todo:
                return descriptor
            folders.append(descriptor)
        return os.dup(folders[-1])
    finally:
        for folder in folders:
            os.close(folder)


def _parts(path: str) -> list[str]:
    """The steps of a path, the last one first."""
    return [part for part in path.split("/") if part not in ("", ".")][::-1]


def _open_by_name(root: str, path: str) -> int:
    """Where folders cannot be held open (Windows): compare the real names, before and after.

    Links and `..` are caught. Somebody who exchanges folders for links at the right moments is not:
    only the other two ways stop that.
    """
    base = os.path.realpath(root)
    full = os.path.realpath(os.path.join(base, path))
    if not is_inside(full, base):
        raise _outside(path)
    descriptor = os.open(full, _FLAGS)
    try:
        same = os.path.samestat(os.stat(full), os.fstat(descriptor))
        same = same and os.path.realpath(full) == full
    except OSError:
        same = False
    if not same:
        os.close(descriptor)
        raise _error(errno.EAGAIN, path)
    return descriptor


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _outside(path: str) -> AccessDenied:
    return AccessDenied(
        Message("`{path}` leads outside the project", path=path), "Give a path inside the project"
    )


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies below it. Resolve links first: this compares names."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def is_really_inside(path: str, folder: str) -> bool:
    """The same with every link resolved."""
    return is_inside(os.path.realpath(path), os.path.realpath(folder))


def read_small(descriptor: int, limit: int) -> bytes:
    """Read an opened regular file of at most `limit` bytes.

    Raises:
        OSError: it is no regular file, or larger.
    """
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    data = b""
    while len(data) <= limit and (part := os.read(descriptor, limit + 1 - len(data))):
        data += part
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes")
    return data


def read_plain(path: str, limit: int) -> bytes:
    """Read a small file that must be one itself: no link, pipe or device is opened or waited for.

    Raises:
        OSError: it is something else, or larger (`is_odd`); or it cannot be read.
    """
    # Where links cannot be refused while opening (Windows), look first.
    if not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):
        raise _error(errno.ELOOP, path)
    try:
        descriptor = os.open(path, _FLAGS | getattr(os, "O_NOFOLLOW", 0))
    except OSError as exc:
        if exc.errno in (errno.ENXIO, errno.EMLINK):  # a socket; a link, as BSD says it
            raise _error(errno.ELOOP, path) from exc
        raise
    try:
        return read_small(descriptor, limit)
    except OSError as exc:
        if exc.filename is None:
            exc.filename = path
        raise
    finally:
        os.close(descriptor)


def is_odd(exc: OSError) -> bool:
    """Whether `read_plain` refused something for what it is, not because the disk failed."""
    return exc.errno in (errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.EISDIR)


@contextmanager
def locked(path: str, *, timeout: float = 60.0, private: bool = True) -> Generator[None]:
    """Hold a lock file, so that two processes do not undo each other's changes.

    The system lets go of it when its holder dies, so a crash never locks anybody out. It is not
    for reading: readers see whole files and whole folders without it.

    Args:
        path: The lock file. It stays.
        timeout: How many seconds somebody else may hold it.
        private: Only the user may take it.

    Raises:
        TimeoutError: somebody else held it all the time.
        OSError: it cannot be made, or a link or something else is there.
    """
    os.makedirs(os.path.dirname(path), mode=0o700 if private else 0o777, exist_ok=True)
    check_lock_file(path)
    from filelock import FileLock, Timeout

    # Short and uneven naps: dozens of writers share the lock without waiting in step.
    nap = 0.004 + os.urandom(1)[0] / 32_000
    if private:
        lock = FileLock(path, timeout=timeout, poll_interval=nap, thread_local=False, mode=0o600)
    else:
        lock = FileLock(path, timeout=timeout, poll_interval=nap, thread_local=False)
    try:
        lock.acquire()
    except Timeout as exc:
        reason = f"another process has held it for {timeout:g} seconds"
        raise TimeoutError(errno.ETIMEDOUT, reason, path) from exc
    try:
        yield
    finally:
        lock.release()


def check_lock_file(path: str) -> None:
    """Nothing is opened through a link, whichever version of `filelock` opens it.

    Raises:
        OSError: something that is no plain file is there.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)


def write_atomic(
    path: str, data: bytes, *, private: bool = False, durable: bool = True, through: str = ""
) -> None:
    """Replace `path` by `data`, or leave it as it was. Creates its folder.

    When the disk fails in the very last step, after the replacement, an error is raised although
    the new content is there.

    Args:
        path: The file.
        data: Its new content.
        private: Only the user may read it.
        durable: Wait until it is on the disk; a cache need not.
        through: Where the unfinished file stands; beside `path` when empty. A crash leaves it.
    """
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700 if private else 0o777, exist_ok=True)
    temporary = os.path.join(
        through or folder, f".{os.path.basename(path)}.{os.getpid()}.{os.urandom(4).hex()}"
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(temporary, flags, 0o600 if private else 0o644)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    if durable:
        sync_folder(folder)


def sync_folder(path: str) -> None:
    """Wait until the names in a folder are on the disk. Windows does that by itself."""
    if os.name == "nt":
        return
    descriptor = os.open(path, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: str) -> None:
    """Make a folder and those above it, and wait until they are on the disk."""
    missing: list[str] = []
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise
        sync_folder(os.path.dirname(folder))


def make_private(path: str) -> None:
    """Let only its owner read a database that is new; SQLite gives its other files the same mode.

    One that is there stays as it is: opening it here and closing it would take away the locks
    that this process may have on it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def sync_tree(folder: str, few: int = 64) -> None:
    """Wait until everything below a folder is on the disk.

    A few files are asked for one by one. For many it is quicker to ask once for the whole file
    system, where the system can do that.
    """
    files: list[str] = []
    folders = [folder]
    many = False
    for here in folders:  # grows while it is walked
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    files.append(entry.path)
        if len(files) > few and not many:
            if _sync_file_system(folder):
                return
            many = True  # it was asked once and cannot
    for path in files:
        descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for path in reversed(folders):
        sync_folder(path)


def _sync_file_system(path: str) -> bool:
    """Write out the file system that holds `path`; False when this system cannot."""
    import sys

    if sys.platform != "linux":
        return False
    import ctypes

    syncfs: Any = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return False
    descriptor = os.open(path, _FOLDER)
    try:
        if syncfs(ctypes.c_int(descriptor)) == 0:
            return True
        code = ctypes.get_errno()
    finally:
        os.close(descriptor)
    if code in _CANNOT:
        return False
    raise _error(code, path)


def exchange(one: str, other: str) -> bool:
    """Let two paths change places in one step; False when this system cannot.

    Linux (`renameat2`) and macOS (`renamex_np`) can, on most file systems. Elsewhere two renames
    do it, and for a moment one of the names is not there.
    """
    global _swap  # noqa: PLW0603 - looked up once per process
    if _swap is None:
        _swap = _find_swap()
    code = _swap(os.fsencode(one), os.fsencode(other))
    if code in _CANNOT:
        return False
    if code:
        raise OSError(code, os.strerror(code), one, None, other)
    return True


_swap: Callable[[bytes, bytes], int] | None = None
_CANNOT = frozenset((errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP))


def _find_swap() -> Callable[[bytes, bytes], int]:
    """The system call as a function that gives an error number, 0 when it went well."""
    import sys

    if sys.platform not in ("linux", "darwin"):
        return lambda _one, _other: errno.ENOSYS
    import ctypes

    name = "renameat2" if sys.platform == "linux" else "renamex_np"
    call: Any = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is None:
        return lambda _one, _other: errno.ENOSYS
    here = ctypes.c_int(-100)  # AT_FDCWD
    swapping = ctypes.c_uint(2)  # RENAME_EXCHANGE, and RENAME_SWAP of macOS

    def swap(one: bytes, other: bytes) -> int:
        if sys.platform == "linux":
            result = call(here, one, here, other, swapping)
        else:
            result = call(one, other, swapping)
        return 0 if result == 0 else ctypes.get_errno()

    return swap
