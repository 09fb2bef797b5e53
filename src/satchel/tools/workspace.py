"""File access for packaged tools, limited to the project and to a size.

A packaged tool gets a `Workspace` and no other access to files. Each refusal is one of `failures`;
a tool lists `READING` or `WRITING` among its own.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside, open_beneath, read_small
from satchel.errors import AccessDenied
from satchel.tools.failures import (
    EXISTS,
    NOT_A_FILE,
    NOT_FOUND,
    NOT_READABLE,
    NOT_WRITABLE,
    OUTSIDE,
    READING,
    TOO_LARGE,
    WRITING,
    WRONG_KIND,
    ToolFailed,
)
from satchel.tools.framing import encodable, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


__all__ = ["READING", "WRITING", "Workspace", "Written", "named_paths"]

MAX_FILE_BYTES = 20 * 1024 * 1024
_MAX_PATH_CHARS = 1_000
_MAX_ENTRIES = 5_000
"""The largest named folder; a larger one needs `files: read`."""
_VISIBLE_DOTFILES = frozenset((".DS_Store", ".gitattributes", ".gitignore", ".gitkeep", ".keep"))
_HAS_DIR_FD = os.open in os.supports_dir_fd


class Written(NamedTuple):
    """The result of `Workspace.write`."""

    path: str
    """Relative to the project."""
    replaced: bool
    """Whether there was such a file."""


class Workspace:
    """Reads and writes files of a project; paths that lead outside are refused.

    Example:
        from satchel.tools.workspace import Workspace

        workspace = Workspace(".")
        workspace.write("notes.txt", b"three short words", overwrite=False)
        assert workspace.read("notes.txt", (".txt",)).split()[0] == b"three"
    """

    def __init__(self, root: str, limit: int = MAX_FILE_BYTES) -> None:
        self.root = root
        self.limit = limit

    def relative(self, path: str, kinds: Sequence[str] = ()) -> str:
        """The path relative to the project, checked without touching a file.

        Raises:
            ToolFailed: the path is outside the project, or of another kind.
        """
        stripped = path.strip()
        if not stripped or "\0" in stripped:
            raise ToolFailed(OUTSIDE, path=stripped or "(empty)")
        if kinds and not stripped.lower().endswith(tuple(kinds)):
            raise ToolFailed(WRONG_KIND, path=stripped, kinds=", ".join(kinds))
        if os.path.isabs(stripped):
            stripped = os.path.normpath(stripped)
            for base in (self.root, os.path.realpath(self.root)):
                if is_inside(stripped, base) and stripped != base:
                    return os.path.relpath(stripped, base).replace(os.sep, "/")
            raise ToolFailed(OUTSIDE, path=path)
        return stripped.replace("\\", "/") if os.name == "nt" else stripped

    def read(self, path: str, kinds: Sequence[str] = ()) -> bytes:
        """Read a whole file.

        Args:
            path: The path, relative to the project.
            kinds: Endings that are supported, such as `.txt`; all of them when empty.

        Raises:
            ToolFailed: one of `READING`.
        """
        descriptor = self._open_file(path, self.relative(path, kinds))
        try:
            return read_small(descriptor, self.limit)
        except OSError as exc:
            if exc.errno == errno.EFBIG:  # it grew meanwhile
                raise self.too_large(path, self.limit + 1) from None
            raise self._cannot_read(exc, path) from None
        finally:
            os.close(descriptor)

    def check_source(self, path: str) -> str:
        """Check that a file can be read; returns its path relative to the project.

        Args:
            path: The path, relative to the project.

        Raises:
            ToolFailed: one of `READING`.
        """
        relative = self.relative(path)
        os.close(self._open_file(path, relative))
        return relative

    def _open_file(self, path: str, relative: str) -> int:
        try:
            descriptor = open_beneath(self.root, relative)
        except AccessDenied:
            raise ToolFailed(OUTSIDE, path=path) from None
        except OSError as exc:
            raise self._cannot_read(exc, path) from None
        info = os.fstat(descriptor)
        is_file = stat.S_ISREG(info.st_mode)
        if is_file and info.st_size <= self.limit:
            return descriptor
        os.close(descriptor)
        if not is_file:
            raise ToolFailed(NOT_A_FILE, path=path)
        raise self.too_large(path, info.st_size)

    def check_target(self, path: str, kinds: Sequence[str] = (), *, overwrite: bool) -> str:
        """Check that a file may be written, before anything is created; returns its path.

        Args:
            path: The path, relative to the project.
            kinds: Endings that are supported; all of them when empty.
            overwrite: Whether a file that exists may be replaced.

        Raises:
            ToolFailed: one of `WRITING`.
        """
        relative = self.relative(path, kinds)
        # `..` is never needed to name a target, and is used in attacks.
        parts = [part for part in relative.split("/") if part not in ("", ".")]
        if ".." in parts or not parts:
            raise ToolFailed(OUTSIDE, path=path)
        try:
            descriptor = open_beneath(self.root, "/".join(parts[:-1]) or ".")
        except AccessDenied:
            raise ToolFailed(OUTSIDE, path=path) from None
        except FileNotFoundError:
            return "/".join(parts)  # its folder will be created
        except OSError:
            raise ToolFailed(NOT_WRITABLE, path=path) from None
        try:
            self._stat_target(descriptor, parts, path, overwrite=overwrite)
        finally:
            os.close(descriptor)
        return "/".join(parts)

    def write(self, path: str, data: bytes, *, overwrite: bool) -> Written:
        """Write a whole file, and its folder where missing; a replaced one is replaced atomically.

        Args:
            path: The path, relative to the project.
            data: The whole content.
            overwrite: Whether a file that exists may be replaced.

        Raises:
            ToolFailed: one of `WRITING`.
        """
        relative = self.check_target(path, overwrite=overwrite)
        if len(data) > self.limit:
            raise self.too_large(path, len(data))
        parent, _, name = relative.rpartition("/")
        parts = relative.split("/")
        try:
            parent_fd = self._open_or_create_folder(parent)
            try:
                previous = self._stat_target(parent_fd, parts, path, overwrite=overwrite)
                mode = stat.S_IMODE(previous.st_mode) if previous else 0
                target_folder = _OpenFolder(parent_fd, os.path.join(self.root, parent))
                _write_file(target_folder, name, data, mode, overwrite=overwrite)
            finally:
                os.close(parent_fd)
        except FileExistsError:
            raise ToolFailed(EXISTS, path=path) from None
        except AccessDenied:
            raise ToolFailed(OUTSIDE, path=path) from None
        except OSError:
            raise ToolFailed(NOT_WRITABLE, path=path) from None
        return Written(encodable(printable(relative)), previous is not None)

    def _stat_target(
        self, parent_fd: int, parts: list[str], path: str, *, overwrite: bool
    ) -> os.stat_result | None:
        if not stat.S_ISDIR(os.fstat(parent_fd).st_mode):
            raise ToolFailed(NOT_WRITABLE, path=path)
        try:
            if _HAS_DIR_FD:
                info = os.stat(parts[-1], dir_fd=parent_fd, follow_symlinks=False)
            else:
                info = os.lstat(os.path.join(self.root, *parts))
        except FileNotFoundError:
            return None
        except OSError:
            raise ToolFailed(NOT_WRITABLE, path=path) from None
        if not stat.S_ISREG(info.st_mode):
            raise ToolFailed(NOT_A_FILE, path=path)  # links too: they may lead anywhere
        if not overwrite:
            raise ToolFailed(EXISTS, path=path)
        return info

    def _open_or_create_folder(self, path: str) -> int:
        try:
            return open_beneath(self.root, path or ".")
        except FileNotFoundError:
            parent, _, name = path.rpartition("/")
        parent_fd = self._open_or_create_folder(parent)
        try:
            if _HAS_DIR_FD:
                os.mkdir(name, dir_fd=parent_fd)
            else:
                os.mkdir(os.path.join(self.root, path))
        except FileExistsError:
            pass  # created concurrently; a dangling link fails below
        finally:
            os.close(parent_fd)
        return open_beneath(self.root, path)

    def too_large(self, path: str, size: int) -> ToolFailed:
        """The failure for a file of this size."""
        mb = 1024 * 1024
        return ToolFailed(
            TOO_LARGE, path=path, size=f"{size / mb:.1f}", limit=f"{self.limit / mb:g}"
        )

    def _cannot_read(self, exc: OSError, path: str) -> ToolFailed:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR):
            return ToolFailed(NOT_FOUND, path=path)
        is_not_a_file = exc.errno in (errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ENXIO)
        return ToolFailed(NOT_A_FILE if is_not_a_file else NOT_READABLE, path=path)


def named_paths(
    root: str,
    values: Iterable[object],
    is_hidden: Callable[[str], bool],
    limit: int = MAX_FILE_BYTES,
) -> tuple[str, ...]:
    """The real paths of the files and folders of a workspace that arguments name.

    Only these are shown to a program that declares no files. A value counts when it is the relative
    path of something that is there. It does not count when it is the workspace itself, leads out of
    it or through a link, or when it is or contains a hidden file such as `.env` or `.git`.

    Raises:
        ToolFailed: a file is too large.
    """
    real_root = os.path.realpath(root)
    paths: dict[str, None] = {}
    for value in values:
        path = _named_path(real_root, value)
        if not path:
            continue
        try:
            info = os.lstat(path)
            if os.path.realpath(path) != path or is_hidden(path):
                continue
            if stat.S_ISREG(info.st_mode):
                if info.st_size > limit:
                    raise Workspace(root, limit).too_large(str(value), info.st_size)
                paths[path] = None
            elif stat.S_ISDIR(info.st_mode) and _has_no_hidden_file(path):
                paths[path] = None
        except (OSError, ValueError):  # a NUL, or characters that no path has
            continue
    return tuple(paths)


def _named_path(root: str, value: object) -> str:
    """The path that a value names below a folder; empty for anything else."""
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_PATH_CHARS or value[0] == "/":
        return ""
    parts = [part for part in value.split("/") if part not in ("", ".")]
    if not parts or any(map(_is_hidden_name, parts)):  # with `..`
        return ""
    return os.path.join(root, *parts)


def _is_hidden_name(name: str) -> bool:
    return name.startswith(".") and name not in _VISIBLE_DOTFILES


def _has_no_hidden_file(folder: str) -> bool:
    """Whether a folder is small enough to be searched, and has no hidden file."""
    count = 0
    for _, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count > _MAX_ENTRIES or any(map(_is_hidden_name, (*folders, *files))):
            return False
    return True


class _OpenFolder(NamedTuple):
    """An open folder, or its path where the system has no `dir_fd`."""

    descriptor: int
    path: str

    def at(self, name: str) -> str:
        return name if _HAS_DIR_FD else os.path.join(self.path, name)

    @property
    def fd(self) -> int | None:
        return self.descriptor if _HAS_DIR_FD else None


def _write_file(folder: _OpenFolder, name: str, data: bytes, mode: int, *, overwrite: bool) -> None:
    """Write a file of an open folder; mode 0 stands for the usual mode of a new file."""
    if not overwrite:
        _create(folder, name, data, mode)  # fails when it exists
        return
    temporary = f".{name[:80]}.{os.getpid()}.{os.urandom(4).hex()}"
    _create(folder, temporary, data, mode)
    source, fd = folder.at(temporary), folder.fd
    try:
        os.replace(source, folder.at(name), src_dir_fd=fd, dst_dir_fd=fd)
    except OSError:
        os.unlink(source, dir_fd=fd)
        raise


def _create(folder: _OpenFolder, name: str, data: bytes, mode: int) -> None:
    """Create a file with all of the data, synced; nothing is left on failure."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(folder.at(name), flags, 0o666, dir_fd=folder.fd)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            if mode and hasattr(os, "fchmod"):
                os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
    except BaseException:
        os.unlink(folder.at(name), dir_fd=folder.fd)
        raise
