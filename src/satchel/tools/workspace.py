"""File access for packaged tools, limited to the project and to a size.

A packaged tool gets a `Workspace` and no other access to files. Each refusal is a `Failure` with
sentences in both languages; a tool lists `READING` or `WRITING` among its own.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import is_inside, open_beneath, read_small
from satchel.errors import AccessDenied, SatchelError
from satchel.tools.framing import encodable, one_line, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from satchel.envelope import ErrorCode


class Text(NamedTuple):
    """One sentence in English and Chinese."""

    en: str
    zh: str = ""
    """Falls back to English when empty."""

    def to(self, language: str) -> str:
        """The sentence in a language."""
        return self.zh if language == "zh" and self.zh else self.en


class Failure(NamedTuple):
    """One declared failure, rendered as `<problem>: <value> — <what to do>`."""

    id: str
    code: ErrorCode
    problem: Text
    value: Text
    """Template such as `{path}` after the colon; may be empty."""
    remedy: Text
    """The next step, in the imperative; may have fields too."""

    def message(
        self,
        language: str = "en",
        values: Mapping[str, object] | None = None,
        *,
        short: bool = False,
    ) -> str:
        """The whole message; `short` omits the remedy. Without values the fields stay visible."""
        parts = [one.to(language) for one in (self.problem, self.value, self.remedy)]
        if values is not None:
            parts = [part.format(**values) for part in parts]
        problem, value, remedy = parts
        said = f"{problem}: {value}" if value else problem
        return said if short else f"{said} — {remedy}"


class ToolFailed(SatchelError):
    """A packaged tool refuses a call; `PackageTool` turns it into an envelope."""

    def __init__(self, failure: Failure, **values: object) -> None:
        self.failure = failure
        # Values may be untrusted text: one line cannot open a frame.
        self.values = {name: one_line(str(value), 300) for name, value in values.items()}
        self.code = failure.code
        super().__init__(failure.message("en", self.values))


MAX_FILE_BYTES = 20 * 1024 * 1024
MAX_TEXT_CHARS = 8_000
"""Of a tool's answer."""

OUTSIDE = Failure(
    "outside",
    "ACCESS_DENIED",
    Text("The path leads outside the project", "路径超出工作区"),
    Text("{path}"),
    Text("Give a path relative to the project", "请使用相对工作区的路径"),
)
NOT_FOUND = Failure(
    "not-found",
    "NOT_FOUND",
    Text("There is no such file", "文件不存在"),
    Text("{path}"),
    Text(
        "Call ReadFile on its folder to see what is there",
        "请先用 ReadFile 查看所在文件夹以确认路径",
    ),
)
NO_FILE = Failure(
    "no-file",
    "IS_DIRECTORY",
    Text("That is a folder or a special file", "该路径是文件夹或特殊文件"),
    Text("{path}"),
    Text("Give the path of a file", "请给出文件的路径"),
)
WRONG_KIND = Failure(
    "wrong-kind",
    "INVALID_PARAM",
    Text("The file is of a kind that is not supported", "不支持的文件类型"),
    Text("{path}"),
    Text("Give a file that ends in {kinds}", "请给出以 {kinds} 结尾的文件"),
)
TOO_LARGE = Failure(
    "too-large",
    "INVALID_PARAM",
    Text("The file is too large", "文件过大"),
    Text("{path} ({size} MB, limit {limit} MB)", "{path} ({size}MB)，超过 {limit}MB 上限"),
    Text("Split it and work on the parts", "请拆分后分批处理"),
)
NOT_READABLE = Failure(
    "not-readable",
    "PERMISSION_DENIED",
    Text("The file cannot be read", "文件无法读取"),
    Text("{path}"),
    Text("Ask the user to check its permissions", "请让用户检查文件权限"),
)
EXISTS = Failure(
    "exists",
    "CONFLICT",
    Text("The file exists already", "文件已存在"),
    Text("{path}"),
    Text(
        "Give another path, or ask the user and set `overwrite` to true to replace it",
        "请换一个路径，或征得用户同意后将 `overwrite` 设为 true 以替换",
    ),
)
NOT_WRITABLE = Failure(
    "not-writable",
    "PERMISSION_DENIED",
    Text("The file cannot be written", "文件无法写入"),
    Text("{path}"),
    Text(
        "Give another path, or ask the user to check the folder",
        "请换一个路径，或让用户检查该文件夹",
    ),
)
READING = (WRONG_KIND, OUTSIDE, NOT_FOUND, NO_FILE, TOO_LARGE, NOT_READABLE)
"""Failures of `read`."""
WRITING = (WRONG_KIND, OUTSIDE, NO_FILE, EXISTS, TOO_LARGE, NOT_WRITABLE)
"""Failures of `check_target` and `write`."""

_BY_FOLDER = os.open in os.supports_dir_fd


class Written(NamedTuple):
    """The result of `Workspace.write`."""

    path: str
    """Relative to the project."""
    replaced: bool


class Workspace:
    """Access to the files of a project."""

    def __init__(self, root: str, limit: int = MAX_FILE_BYTES) -> None:
        self.root = root
        self.limit = limit

    def relative(self, path: str, kinds: Sequence[str] = ()) -> str:
        """The path relative to the project, checked without touching a file.

        Raises:
            ToolFailed: the path is outside the project, or of another kind.
        """
        given = path.strip()
        if not given or "\0" in given:
            raise ToolFailed(OUTSIDE, path=given or "(empty)")
        if kinds and not given.lower().endswith(tuple(kinds)):
            raise ToolFailed(WRONG_KIND, path=given, kinds=", ".join(kinds))
        if os.path.isabs(given):
            given = os.path.normpath(given)
            for base in (self.root, os.path.realpath(self.root)):
                if is_inside(given, base) and given != base:
                    return os.path.relpath(given, base).replace(os.sep, "/")
            raise ToolFailed(OUTSIDE, path=path)
        return given.replace("\\", "/") if os.name == "nt" else given

    def read(self, path: str, kinds: Sequence[str] = ()) -> bytes:
        """Read a whole file.

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

        Raises:
            ToolFailed: one of `READING`.
        """
        wanted = self.relative(path)
        os.close(self._open_file(path, wanted))
        return wanted

    def _open_file(self, path: str, wanted: str) -> int:
        try:
            descriptor = open_beneath(self.root, wanted)
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
            raise ToolFailed(NO_FILE, path=path)
        raise self.too_large(path, info.st_size)

    def check_target(self, path: str, kinds: Sequence[str] = (), *, overwrite: bool) -> str:
        """Check that a file may be written, before anything is created; returns its path.

        Raises:
            ToolFailed: one of `WRITING`.
        """
        wanted = self.relative(path, kinds)
        # `..` is never needed to name a target, and is used in attacks.
        parts = [part for part in wanted.split("/") if part not in ("", ".")]
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

        Raises:
            ToolFailed: one of `WRITING`.
        """
        wanted = self.check_target(path, overwrite=overwrite)
        if len(data) > self.limit:
            raise self.too_large(path, len(data))
        head, _, name = wanted.rpartition("/")
        try:
            folder = self._open_folder(head)
            try:
                before = self._stat_target(folder, wanted.split("/"), path, overwrite=overwrite)
                mode = stat.S_IMODE(before.st_mode) if before else 0
                held = _HeldFolder(folder, os.path.join(self.root, head))
                _write_file(held, name, data, mode, overwrite=overwrite)
            finally:
                os.close(folder)
        except FileExistsError:
            raise ToolFailed(EXISTS, path=path) from None
        except AccessDenied:
            raise ToolFailed(OUTSIDE, path=path) from None
        except OSError:
            raise ToolFailed(NOT_WRITABLE, path=path) from None
        return Written(encodable(printable(wanted)), before is not None)

    def _stat_target(
        self, folder: int, parts: list[str], path: str, *, overwrite: bool
    ) -> os.stat_result | None:
        if not stat.S_ISDIR(os.fstat(folder).st_mode):
            raise ToolFailed(NOT_WRITABLE, path=path)
        try:
            if _BY_FOLDER:
                info = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
            else:
                info = os.lstat(os.path.join(self.root, *parts))
        except FileNotFoundError:
            return None
        except OSError:
            raise ToolFailed(NOT_WRITABLE, path=path) from None
        if not stat.S_ISREG(info.st_mode):
            raise ToolFailed(NO_FILE, path=path)  # links too: they may lead anywhere
        if not overwrite:
            raise ToolFailed(EXISTS, path=path)
        return info

    def _open_folder(self, path: str) -> int:
        try:
            return open_beneath(self.root, path or ".")
        except FileNotFoundError:
            above, _, name = path.rpartition("/")
        outer = self._open_folder(above)
        try:
            if _BY_FOLDER:
                os.mkdir(name, dir_fd=outer)
            else:
                os.mkdir(os.path.join(self.root, path))
        except FileExistsError:
            pass  # created concurrently; a dangling link fails below
        finally:
            os.close(outer)
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
        odd = exc.errno in (errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.ENXIO)
        return ToolFailed(NO_FILE if odd else NOT_READABLE, path=path)


_HARMLESS = frozenset((".DS_Store", ".gitattributes", ".gitignore", ".gitkeep", ".keep"))
_MAX_PATH_CHARS = 1_000
_MAX_ENTRIES = 5_000
"""Of a named folder; a larger one needs `files: read`."""


def named_paths(
    root: str,
    values: Iterable[object],
    hidden: Callable[[str], bool],
    limit: int = MAX_FILE_BYTES,
) -> tuple[str, ...]:
    """The real paths of the files and folders of a workspace that arguments name.

    Only these are shown to a program that declares no files. A value counts when it is the relative
    path of something that is there. It does not count when it is the workspace itself, leads out of
    it or through a link, or when it is or contains a hidden file such as `.env` or `.git`.

    Raises:
        ToolFailed: a file is too large.
    """
    real = os.path.realpath(root)
    paths: dict[str, None] = {}
    for value in values:
        if not isinstance(value, str) or not 0 < len(value) <= _MAX_PATH_CHARS or value[0] == "/":
            continue
        parts = [part for part in value.split("/") if part not in ("", ".")]
        path = os.path.join(real, *parts)
        if not parts or any(map(_is_private, parts)):  # with `..`
            continue
        try:
            info = os.lstat(path)
            if os.path.realpath(path) != path or hidden(path):
                continue
            if stat.S_ISREG(info.st_mode):
                if info.st_size > limit:
                    raise Workspace(root, limit).too_large(value, info.st_size)
                paths[path] = None
            elif stat.S_ISDIR(info.st_mode) and _is_public(path):
                paths[path] = None
        except (OSError, ValueError):  # a NUL, or characters that no path has
            continue
    return tuple(paths)


def _is_private(name: str) -> bool:
    return name.startswith(".") and name not in _HARMLESS


def _is_public(folder: str) -> bool:
    """Whether a folder is small enough to be searched, and has no hidden file."""
    count = 0
    for _, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count > _MAX_ENTRIES or any(map(_is_private, (*folders, *files))):
            return False
    return True


class _HeldFolder(NamedTuple):
    """An open folder, or its path where the system has no `dir_fd`."""

    descriptor: int
    path: str

    def at(self, name: str) -> str:
        return name if _BY_FOLDER else os.path.join(self.path, name)

    @property
    def fd(self) -> int | None:
        return self.descriptor if _BY_FOLDER else None


def _write_file(folder: _HeldFolder, name: str, data: bytes, mode: int, *, overwrite: bool) -> None:
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


def _create(folder: _HeldFolder, name: str, data: bytes, mode: int) -> None:
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
