"""File access below a root directory, atomic writes, locks and syncing.

`open_beneath` never leaves its root, whatever links or `..` a path contains. On Linux the kernel
enforces it (`openat2`); elsewhere each component is opened without following links, and links are
resolved against the root in Python.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from satchel.errors import AccessDenied
from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_OPENAT2_NUMBER = 437
_MAX_SYMLINKS = 40
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# Opening a named pipe must not block; opening a terminal must not make it the controlling one.
_FILE_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)

RACY_NS = 50_000_000
"""A file changed this recently may change again within the same timestamp."""

_UNSUPPORTED_CODES = frozenset((errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP))
"""Error numbers of a system or file system that does not have a call."""
_MAX_OPEN_TRIES = 16

_kernel: Callable[[int, bytes], tuple[int, int]] | None = None
"""The call `openat2`, as `_find_openat2` returns it; None before the first use."""
_kernel_helps: bool | None = None
"""Whether the kernel has that call; None before the first use."""
_swap: Callable[[bytes, bytes], int] | None = None
"""Returned by `_find_swap`; None before the first use."""


def open_beneath(root: str, path: str) -> int:
    """Open `path`, relative to `root`, for reading; return a descriptor.

    Raises:
        AccessDenied: the path leads outside the root.
        OSError: it does not exist or cannot be read.
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
        base = os.open(root, _FOLDER_FLAGS)
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
    """Return the descriptor, or None when the system has no `openat2`."""
    global _kernel, _kernel_helps  # noqa: PLW0603 - determined once per process
    if _kernel is None:
        _kernel = _find_openat2()
    for _ in range(_MAX_OPEN_TRIES):  # EAGAIN: a rename raced with the lookup
        file, code = _kernel(base, encoded)
        if file >= 0:
            _kernel_helps = True
            return file
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
    """Return a function that returns the descriptor or -1, and the error number."""
    if sys.platform != "linux":
        return lambda _base, _path: (-1, errno.ENOSYS)
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (
            ("flags", ctypes.c_uint64),
            ("mode", ctypes.c_uint64),
            ("resolve", ctypes.c_uint64),
        )

    how = OpenHow(_FILE_FLAGS, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    syscall: Any = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    number = ctypes.c_long(_OPENAT2_NUMBER)

    def openat2(base: int, path: bytes) -> tuple[int, int]:
        file = syscall(number, ctypes.c_int(base), path, ctypes.byref(how), size)
        return file, 0 if file >= 0 else ctypes.get_errno()

    return openat2


def _open_by_steps(root: str, path: str) -> int:
    """Open one component at a time, resolving links against the root."""
    nofollow = getattr(os, "O_NOFOLLOW", 0)
    folders = [os.open(root, _FOLDER_FLAGS)]
    pending_names = _split_reversed(path)
    link_count = 0
    try:
        while pending_names:
            name = pending_names.pop()
            if name == "..":
                if len(folders) == 1:
                    raise _outside(path)
                os.close(folders.pop())
                continue
            info = os.stat(name, dir_fd=folders[-1], follow_symlinks=False)
            if stat.S_ISLNK(info.st_mode):
                link_count += 1
                if link_count > _MAX_SYMLINKS:
                    raise _error(errno.ELOOP, path)
                target = os.readlink(name, dir_fd=folders[-1])
                if os.path.isabs(target):
                    raise _outside(path)
                pending_names += _split_reversed(target)
                continue
            if (pending_names or path.endswith("/")) and not stat.S_ISDIR(info.st_mode):
                raise _error(errno.ENOTDIR, path)
            descriptor = os.open(name, _FILE_FLAGS | nofollow, dir_fd=folders[-1])
            if not pending_names:
                return descriptor
            folders.append(descriptor)
        return os.dup(folders[-1])
    finally:
        for folder in folders:
            os.close(folder)


def _split_reversed(path: str) -> list[str]:
    """Return the names in a path in reverse order."""
    return [name for name in path.split("/") if name not in ("", ".")][::-1]


def _open_by_name(root: str, path: str) -> int:
    """Compare real paths before and after opening, where directories cannot be held open (Windows).

    This detects links and `..`, but not a race that replaces folders with links; the other two
    ways prevent that too.
    """
    base = os.path.realpath(root)
    full_path = os.path.realpath(os.path.join(base, path))
    if not is_inside(full_path, base):
        raise _outside(path)
    descriptor = os.open(full_path, _FILE_FLAGS)
    try:
        is_same = os.path.samestat(os.stat(full_path), os.fstat(descriptor))
        is_same = is_same and os.path.realpath(full_path) == full_path
    except OSError:
        is_same = False
    if not is_same:
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
    """Whether a path is a folder or lies below it. Compares names: resolve links first."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def is_really_inside(path: str, folder: str) -> bool:
    """Whether a path lies in a folder, with all links resolved."""
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
    """Read a small regular file; links, pipes and devices are refused without blocking.

    Raises:
        OSError: it is something else, or larger (`is_wrong_kind`); or it cannot be read.
    """
    # Windows cannot refuse links while opening.
    if not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):
        raise _error(errno.ELOOP, path)
    try:
        descriptor = os.open(path, _FILE_FLAGS | getattr(os, "O_NOFOLLOW", 0))
    except OSError as exc:
        if exc.errno in (errno.ENXIO, errno.EMLINK):  # a socket; a link on BSD
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


def is_wrong_kind(exc: OSError) -> bool:
    """Whether `read_plain` refused the kind or size of a file, rather than the disk failing."""
    return exc.errno in (errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.EISDIR)


@contextmanager
def locked(path: str, *, timeout: float = 60.0, private: bool = True) -> Generator[None]:
    """Hold a lock file while changing something that other processes change too.

    The system releases it when its holder dies. Readers need no lock: they see whole files and
    folders without it.

    Args:
        path: The lock file. It is not deleted.
        timeout: Seconds to wait for another holder.
        private: Only the user may acquire it.

    Raises:
        TimeoutError: another process held it all the time.
        OSError: it cannot be created, or something that is no regular file is in its place.
    """
    os.makedirs(os.path.dirname(path), mode=0o700 if private else 0o777, exist_ok=True)
    check_lock_file(path)
    from filelock import FileLock, Timeout

    # Short, randomised intervals keep dozens of writers from polling in step.
    interval_s = 0.004 + os.urandom(1)[0] / 32_000
    if private:
        lock = FileLock(
            path, timeout=timeout, poll_interval=interval_s, thread_local=False, mode=0o600
        )
    else:
        lock = FileLock(path, timeout=timeout, poll_interval=interval_s, thread_local=False)
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
    """Refuse a link at the path of a lock file: some versions of `filelock` follow it.

    Raises:
        OSError: it exists and is no regular file.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)


def write_atomic(
    path: str,
    data: bytes,
    *,
    private: bool = False,
    durable: bool = True,
    replace: bool = True,
    through: str = "",
) -> None:
    """Replace a file atomically, creating its folder.

    If syncing the folder fails after the replacement, an error is raised although the new content
    is in place.

    Args:
        path: The file.
        data: Its new content.
        private: Only the user may read it.
        durable: Sync to disk; not needed for a cache.
        replace: Replace an older file; otherwise an older file raises `FileExistsError`.
        through: Folder of the temporary file; that of `path` when empty. A crash leaves the file.
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
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
            os.unlink(temporary)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    if durable:
        sync_folder(folder)


def sync_folder(path: str) -> None:
    """Sync the entries of a folder to disk. Windows does so itself."""
    if os.name == "nt":
        return
    descriptor = os.open(path, _FOLDER_FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: str) -> None:
    """Create a folder and its parents, and sync them to disk."""
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
        sync_folder(os.path.dirname(folder) or ".")  # of a bare name: the working folder


def make_private(path: str) -> None:
    """Create a database file readable by its owner only; SQLite copies the mode to its other files.

    An existing file is not opened: closing it would release the locks of this process on it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def sync_tree(folder: str, max_single_files: int = 64) -> None:
    """Sync everything below a folder to disk.

    Up to `max_single_files` files are synced one by one; more by one `syncfs` of the file system,
    where the system has it. What another process removes meanwhile is left out.
    """
    files: list[str] = []
    folders = [folder]
    has_tried_syncfs = False
    for current in folders:  # grows while it is walked
        with suppress(FileNotFoundError), os.scandir(current) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    files.append(entry.path)
        if len(files) > max_single_files and not has_tried_syncfs:
            if _sync_file_system(folder):
                return
            has_tried_syncfs = True
    for path in files:
        with suppress(FileNotFoundError):
            _sync_file(path)
    for path in reversed(folders):
        with suppress(FileNotFoundError):
            sync_folder(path)


def _sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_system(path: str) -> bool:
    """Sync the file system that holds `path`; False when not supported."""
    if sys.platform != "linux":
        return False
    import ctypes

    syncfs: Any = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return False
    descriptor = os.open(path, _FOLDER_FLAGS)
    try:
        if syncfs(ctypes.c_int(descriptor)) == 0:
            return True
        code = ctypes.get_errno()
    finally:
        os.close(descriptor)
    if code in _UNSUPPORTED_CODES:
        return False
    raise _error(code, path)


def exchange(first: str, other: str) -> bool:
    """Swap two paths atomically; False when not supported.

    Linux (`renameat2`) and macOS (`renamex_np`) support it on most file systems.
    """
    global _swap  # noqa: PLW0603 - determined once per process
    if _swap is None:
        _swap = _find_swap()
    code = _swap(os.fsencode(first), os.fsencode(other))
    if code in _UNSUPPORTED_CODES:
        return False
    if code:
        raise OSError(code, os.strerror(code), first, None, other)
    return True


def _find_swap() -> Callable[[bytes, bytes], int]:
    """Return a function that returns an error number, 0 on success."""
    if sys.platform not in ("linux", "darwin"):
        return lambda _one, _other: errno.ENOSYS
    import ctypes

    name = "renameat2" if sys.platform == "linux" else "renamex_np"
    call: Any = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is None:
        return lambda _one, _other: errno.ENOSYS
    working_folder = ctypes.c_int(-100)  # AT_FDCWD
    swapping = ctypes.c_uint(2)  # RENAME_EXCHANGE, and RENAME_SWAP of macOS

    def swap(first: bytes, other: bytes) -> int:
        if sys.platform == "linux":
            result = call(working_folder, first, working_folder, other, swapping)
        else:
            result = call(first, other, swapping)
        return 0 if result == 0 else ctypes.get_errno()

    return swap
