"""Builds of tool skills: a cache of finished entries, and build tools run in the sandbox.

    BuildCache.get_or_build  a folder that is complete or absent, built once for all callers
    BuildCache.run           one run of a build tool in the sandbox
    BuildCache.query_tool    one query to a tool of the user, such as its version, unsandboxed
    BuildCache.which         a program on PATH, never one of the current folder

A build tool may write the folder of its entry and its own download cache. It reads the system, its
toolchain, the user's configuration files for package indexes and the local paths these name, and
nothing else: no home, no workspace, no folder of a skill. The network is open only for the steps
that resolve or download.

The key of an entry is a digest of what it was built from, so an entry never changes: other content
is another entry. Everything here is a cache and may be deleted.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
import re
import select
import shutil
import stat
import threading
import time
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from satchel._fs import locked, open_beneath, read_small, sync_tree, write_atomic
from satchel.errors import AccessDenied, BuildFailed
from satchel.i18n import say
from satchel.runners.base import BuildStopped, CannotStart, is_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from satchel.runners.base import Cancel, Tier
    from satchel.runners.launcher import RunningProgram

    Progress = Callable[[str], None]

MARKER_FILE = ".whole"
"""In every complete entry: the names inside it that must exist."""
HOME_FOLDER = ".home"
"""Inside an unfinished entry: home and temporary folder of the build tools."""
_TOOL_TIMEOUT_S = 900.0
"""For one tool, and for another process that builds the same entry."""
MAX_CONCURRENT_BUILDS = 2
_CHECK_INTERVAL_S = 0.1
"""Between two checks whether a running or waiting build is still wanted."""
_MAX_OUTPUT_BYTES = 8 * 1024 * 1024
"""Of each output of a tool."""
_DAY_S = 86_400.0
_MAX_UNUSED_DAYS = 30
"""After which an entry is deleted."""

_PASSED_VARIABLES = re.compile(
    r"LANG|LANGUAGE|LC_\w+|TZ|NETRC|(?:HTTPS?|ALL|NO)_PROXY"
    r"|SSL_CERT_(?:FILE|DIR)|(?:REQUESTS|CURL)_CA_BUNDLE|NODE_EXTRA_CA_CERTS"
    r"|PIP_(?:CONFIG_FILE|(?:EXTRA_)?INDEX_URL|FIND_LINKS|NO_INDEX|TRUSTED_HOST|(?:CLIENT_)?CERT"
    r"|PROXY|(?:DEFAULT_)?TIMEOUT|RETRIES)"
    r"|UV_(?:CONFIG_FILE|(?:DEFAULT_|EXTRA_)?INDEX(?:_\w+)?|FIND_LINKS|NO_INDEX|INSECURE_HOST"
    r"|HTTP_TIMEOUT|NATIVE_TLS|SYSTEM_CERTS|OFFLINE|EXCLUDE_NEWER)"
    r"|NPM_CONFIG_(?:USERCONFIG|GLOBALCONFIG|(?:@.+:)?REGISTRY|CA|CAFILE|CERT|KEY|STRICT_SSL"
    r"|(?:HTTPS?_|NO)?PROXY|//.+)"
    r"|GO(?:NO)?PROXY|GO(?:NO)?SUMDB|GOPRIVATE|GOINSECURE",
    re.IGNORECASE,
)
"""Variables of the user that build tools get: package indexes, and how to reach them."""
_INDEX_CONFIG_FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/uv/uv.toml", "/etc/npmrc")
_READ_BY_PIP = (
    "/etc/os-release",
    "/etc/debian_version",
    "/etc/lsb-release",
    *map(str, mimetypes.knownfiles),
)
"""Files that may be missing, but not unreadable, for pip."""
_ABSOLUTE_PATH = re.compile(r"(?:(?<=file://)|(?<![\w:/.~@-]))/[^\s'\",;\]]+")

_ANSI_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_URL_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")
_NOISE_LINE = re.compile(
    r"^\s*$|^npm (?:warn|notice)|complete log of this run|_logs/|^\[notice\]|^WARNING:"
    r"|^go: (?:downloading|finding)"
)


class BuildCache:
    """The folder in which skills' environments are built, and the tools that build them.

    Args:
        folder: The cache folder.
        env: The environment for tools and their settings; the process's own when None.
        choose: Chooses the sandbox; called before the first tool runs, and raises where there is
            none and the settings do not allow builds without one.
        confirm: Called after a build and before its result is kept; raises when the source of the
            build has changed.
        cancel: Becomes readable when the build is cancelled.
        seconds: That waiting and building may take; 0 leaves that to each tool's own limit.
    """

    def __init__(
        self,
        folder: str,
        env: Mapping[str, str] | None = None,
        *,
        choose: Callable[[], Tier],
        confirm: Callable[[], None] | None = None,
        cancel: Cancel | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.folder = folder
        self.env = os.environ if env is None else env
        self._choose = choose
        self._confirm = confirm
        self._cancel = cancel
        self._deadline = time.monotonic() + seconds if seconds else 0.0

    @cached_property
    def tier(self) -> Tier:
        """The sandbox of the build tools."""
        return self._choose()

    def path(self, kind: str, key: str) -> str:
        """The path of an entry, built or not."""
        return os.path.join(self.folder, kind, key)

    def cache(self, tool: str) -> str:
        """The download cache of a build tool."""
        return os.path.join(self.folder, "downloads", tool)

    # --- entries --------------------------------------------------------------------------

    def get_or_build(
        self, kind: str, key: str, build: Callable[[str, str], Sequence[str]], progress: Progress
    ) -> str:
        """The folder of an entry, built where missing.

        Args:
            kind: Such as `python`.
            key: Digest of what it is made from.
            build: Builds into its first argument, which will be renamed to its second, and returns
                the names inside that make the entry complete.
            progress: Called with a line when another process builds the same entry.

        Raises:
            BuildFailed: by `build`, or because the cache folder cannot be used.
            BuildStopped: it was cancelled, or took too long.
        """
        path = self.path(kind, key)
        if is_complete(path):
            _mark_used(path)
            return path
        if not self.folder:
            raise BuildFailed(say("There is no home folder"), say("Set `HOME` or `SATCHEL_HOME`"))
        try:
            return self._build_entry(kind, key, build, progress)
        except OSError as exc:
            raise BuildFailed(
                say(
                    "`{path}` cannot be used: {reason}",
                    path=self.folder,
                    reason=exc.strerror or str(exc),
                ),
                say("Set `HOME` or `SATCHEL_HOME`"),
            ) from exc

    def _build_entry(
        self, kind: str, key: str, build: Callable[[str, str], Sequence[str]], progress: Progress
    ) -> str:
        path = self.path(kind, key)
        unfinished = os.path.join(self.folder, "unfinished")
        lock = os.path.join(self.folder, "locks", f"{kind}-{key}")
        with self._build_slot(progress), self._locked(lock, progress):
            if is_complete(path):
                return path
            os.makedirs(unfinished, mode=0o700, exist_ok=True)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            for name in os.listdir(unfinished):  # left by killed builders
                if name.startswith(f"{kind}-{key}-"):
                    shutil.rmtree(os.path.join(unfinished, name), ignore_errors=True)
            staging = os.path.join(unfinished, f"{kind}-{key}-{os.urandom(4).hex()}")
            if os.path.lexists(path):
                os.rename(path, staging + "-old")
                shutil.rmtree(staging + "-old", ignore_errors=True)
            os.makedirs(os.path.join(staging, HOME_FOLDER), 0o700)
            try:
                names = build(staging, path)
                if self._confirm is not None:
                    self._confirm()
                shutil.rmtree(os.path.join(staging, HOME_FOLDER), ignore_errors=True)
                _mark_programs(staging)
                # A marker that is on disk before the rest would survive a power failure.
                sync_tree(staging)
                text = "".join(f"{name}\n" for name in names)
                write_atomic(os.path.join(staging, MARKER_FILE), text.encode())
                os.rename(staging, path)
                _drop_unused(os.path.dirname(path))
            except BaseException:
                shutil.rmtree(staging, ignore_errors=True)
                raise
        return path

    # --- waiting --------------------------------------------------------------------------

    def raise_if_stopped(self) -> None:
        """Raise when the build is no longer wanted.

        Raises:
            BuildStopped: it was cancelled, or took too long.
        """
        if self._cancel is not None and is_cancelled(self._cancel):
            raise BuildStopped("cancelled")
        if self._deadline and time.monotonic() > self._deadline:
            raise BuildStopped("timeout")

    @contextmanager
    def _build_slot(self, progress: Progress) -> Generator[None]:
        """Limit concurrent builds. Acquired before any lock, so that no lock is held idle."""
        if not _build_slots.acquire(blocking=False):
            progress(say("Waiting for other builds"))
            while not _build_slots.acquire(timeout=_CHECK_INTERVAL_S):
                self.raise_if_stopped()
        try:
            yield
        finally:
            _build_slots.release()

    @contextmanager
    def _locked(self, path: str, progress: Progress) -> Generator[None]:
        until = time.monotonic() + _TOOL_TIMEOUT_S
        reported = False
        while True:
            lock = locked(path, timeout=_CHECK_INTERVAL_S if reported else _CHECK_INTERVAL_S / 2)
            try:
                lock.__enter__()
                break
            except TimeoutError:
                if time.monotonic() > until:
                    raise
            self.raise_if_stopped()
            if not reported:
                progress(say("Waiting for other builds"))
                reported = True
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    # --- tools ----------------------------------------------------------------------------

    def which(self, name: str) -> str | None:
        """A program on PATH, ignoring relative folders."""
        path = self.env.get("PATH", os.defpath)
        folders = [part for part in path.split(os.pathsep) if os.path.isabs(part)]
        return shutil.which(name, path=os.pathsep.join(folders))

    @cached_property
    def _sources(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The user's settings of package indexes: variables, and files to read."""
        env = self._index_variables()
        texts = [*env.values()]
        for path in (*_INDEX_CONFIG_FILES, *env.values()):
            if path.endswith((".conf", ".toml", "npmrc")):
                with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
                    texts.append(file.read())
        named = {path for text in texts for path in _ABSOLUTE_PATH.findall(text)}
        # The files of a local index are next to its `simple` folder.
        named |= {os.path.dirname(path) for path in named if path.endswith("/simple")}
        candidates = (*named, *_INDEX_CONFIG_FILES, *_READ_BY_PIP)
        return env, tuple(path for path in candidates if os.path.exists(path))

    def _index_variables(self) -> dict[str, str]:
        """The user's variables for package indexes, with those of the usual configuration files."""
        env = {name: value for name, value in self.env.items() if _PASSED_VARIABLES.fullmatch(name)}
        home = self.env.get("HOME") or os.path.expanduser("~")
        config = self.env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        upper = {name.upper() for name in env}
        for name, *places in (
            ("PIP_CONFIG_FILE", f"{config}/pip/pip.conf", f"{home}/.pip/pip.conf"),
            ("UV_CONFIG_FILE", f"{config}/uv/uv.toml"),
            ("NPM_CONFIG_USERCONFIG", f"{home}/.npmrc"),
        ):
            config_file = next(filter(os.path.isfile, places), "")
            if config_file and name not in upper:
                env[name] = config_file
        return env

    def query_tool(self, *argv: str) -> str:
        """The stdout of a tool of the user, for queries that involve nothing of a skill.

        Raises:
            BuildToolFailed: it failed.
        """
        import subprocess

        names = ("PATH", "HOME", "XDG_CONFIG_HOME")
        user_variables = {
            "HOME": "/",
            **{name: self.env[name] for name in names if name in self.env},
        }
        try:
            completed = subprocess.run(  # noqa: S603 - our own arguments, no shell
                argv, cwd="/", env={**self._sources[0], **user_variables}, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=60, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise BuildToolFailed(str(exc)) from exc
        if completed.returncode:
            raise BuildToolFailed(last_lines(completed.stderr))
        return completed.stdout.decode("utf-8", "replace")

    def run(
        self,
        argv: Sequence[str],
        staging: str,
        *,
        cwd: str = "",
        cache: str = "",
        network: bool = False,
        read: Sequence[str] = (),
        **variables: str,
    ) -> str:
        """Run a build tool in the sandbox to its end; returns its stdout.

        Args:
            argv: The tool and its arguments.
            staging: The unfinished entry, which it may write.
            cwd: Its working folder, inside `staging`.
            cache: The name of its download cache, which it may write.
            network: Whether the network is open, with the user's settings of package indexes.
            read: Further paths that it may read: its toolchain.
            variables: Further variables.

        Raises:
            BuildToolFailed: it ended with another status than 0.
            BuildStopped: it was cancelled, or took too long.
        """
        from satchel.runners.launcher import launcher
        from satchel.runners.sandbox import sandboxed_build

        self.raise_if_stopped()
        env, index_files = self._sources if network else ({}, ())
        home = os.path.join(staging, HOME_FOLDER)
        env = {**env, "HOME": home, "TMPDIR": home, "NO_COLOR": "1", **variables}
        write = (staging, self.cache(cache)) if cache else (staging,)
        for folder in (home, *write):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        launch = sandboxed_build(
            tuple(argv),
            env,
            cwd or staging,
            read=(*index_files, *read),
            write=write,
            network=network,
            tier=self.tier,
        )
        try:
            process = launcher().start(launch)
        except CannotStart as exc:
            raise BuildToolFailed(str(exc)) from exc
        try:
            out, err = self._read_outputs(process)
            ended = process.wait(_TOOL_TIMEOUT_S)
        finally:
            process.close()
        if ended is None or ended.code or ended.reason:
            lines = last_lines(err) or last_lines(out)
            lines = lines.replace(staging + os.sep, "").replace(staging, ".")  # will be deleted
            code = f"status {ended.code if ended else '?'}"
            detail = (ended.detail or ended.reason) if ended else ""
            raise BuildToolFailed(lines or detail or code, out.decode("utf-8", "replace"))
        return out.decode("utf-8", "replace")

    def _read_outputs(self, process: RunningProgram) -> tuple[bytes, bytes]:
        os.close(process.stdin)
        process.stdin = -1
        until = time.monotonic() + _TOOL_TIMEOUT_S
        outputs = {process.stdout: b"", process.stderr: b""}
        poll = select.poll()
        for descriptor in outputs:
            poll.register(descriptor, select.POLLIN)
        open_count = len(outputs)
        while open_count:
            for descriptor, _ in poll.poll(_CHECK_INTERVAL_S * 1000):
                if chunk := os.read(descriptor, 1 << 16):
                    outputs[descriptor] = (outputs[descriptor] + chunk)[-_MAX_OUTPUT_BYTES:]
                else:
                    poll.unregister(descriptor)
                    open_count -= 1
            self.raise_if_stopped()
            if time.monotonic() > until:
                raise BuildToolFailed(
                    say("it took longer than {seconds} seconds", seconds=round(_TOOL_TIMEOUT_S))
                )
        out, err = outputs.values()
        return out, err


class BuildToolFailed(Exception):
    """A build tool failed. Runtimes turn it into `BuildFailed` or `MissingRuntime`."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.output = output
        """Its whole stdout."""


def cannot_build(skill: str, message: str) -> BuildFailed:
    """The failure of a skill whose build tool failed with this message."""
    headline = say("`{skill}` cannot be built", skill=skill)
    return BuildFailed(f"{headline}:\n{message}", say("Correct it"))


def unpublished_error(file: str, entries: Iterable[str]) -> BuildFailed:
    """The failure of a file that names something else than packages of an index."""
    message = say("`{file}` may only name published packages. It has something else:", file=file)
    return BuildFailed(
        "\n".join((message, *entries)),
        say("Addresses, paths and options are refused: delete them, or name a published package"),
    )


def is_complete(path: str) -> bool:
    """Whether an entry was finished and still has everything it was finished with."""
    try:
        with open(os.path.join(path, MARKER_FILE), encoding="utf-8") as file:
            names = file.read().split("\n")
    except OSError:
        return False
    return all(os.path.exists(os.path.join(path, name)) for name in names if name)


def _mark_used(path: str) -> None:
    marker = os.path.join(path, MARKER_FILE)
    with suppress(OSError):
        if time.time() - os.stat(marker).st_mtime > _DAY_S:
            os.utime(marker)


def _mark_programs(folder: str) -> None:
    """Make programs executable: in the tier `landlock` build tools cannot change modes."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for _, _, names, folder_descriptor in os.fwalk(folder):
        for name in names:
            with (
                suppress(OSError),
                open(os.open(name, flags, dir_fd=folder_descriptor), "rb") as file,
            ):
                mode = os.fstat(file.fileno()).st_mode
                if stat.S_ISREG(mode) and file.read(4).startswith((b"#!", b"\x7fELF")):
                    os.fchmod(file.fileno(), stat.S_IMODE(mode) | 0o100)


def _drop_unused(kind: str) -> None:
    for name in os.listdir(kind):
        path = os.path.join(kind, name)
        with suppress(OSError):
            age = time.time() - os.stat(os.path.join(path, MARKER_FILE)).st_mtime
            if age > _MAX_UNUSED_DAYS * _DAY_S:
                shutil.rmtree(path, ignore_errors=True)


def last_lines(output: bytes, lines: int = 12, max_chars: int = 1600) -> str:
    """The end of a tool's output, without colours, logins and progress messages."""
    text = _URL_LOGIN.sub("", _ANSI_CODE.sub("", output.decode("utf-8", "replace")))
    kept_lines = [line.rstrip() for line in text.splitlines() if not _NOISE_LINE.search(line)]
    return "\n".join(kept_lines[-lines:])[-max_chars:]


_build_slots = threading.BoundedSemaphore(MAX_CONCURRENT_BUILDS)


# --- contents of a skill's folder ---------------------------------------------------------

_IGNORED_NAMES = frozenset((".git", "__pycache__", ".DS_Store", "node_modules"))
MAX_SOURCE_BYTES = 64 * 1024 * 1024
"""Of one file."""


def stamp(path: str) -> tuple[int, int, int, int]:
    """The stamp of one file, following links; zeros when it is missing."""
    try:
        info = os.stat(path)
    except OSError:
        return (0, 0, 0, 0)
    return (info.st_mtime_ns, info.st_size, info.st_ino, info.st_dev)


def list_files(folder: str) -> list[str]:
    """The regular files below a folder, relative, with `/`, sorted; without `node_modules`."""
    paths: list[str] = []
    todo = [""]
    while todo:
        current = todo.pop()
        with os.scandir(os.path.join(folder, current)) as entries:
            for entry in entries:
                if entry.name in _IGNORED_NAMES:
                    continue
                inside = f"{current}/{entry.name}" if current else entry.name
                if entry.is_dir(follow_symlinks=False):
                    todo.append(inside)
                elif entry.is_file(follow_symlinks=False):
                    paths.append(inside)
    return sorted(paths)


def read_inside(
    folder: str, path: str, limit: int = MAX_SOURCE_BYTES, first_bytes: int | None = None
) -> bytes | None:
    """Read a file of the skill, or its first `first_bytes` bytes; None when it is missing.

    Raises:
        BuildFailed: it leads outside the folder, is no regular file, or is too large.
    """
    try:
        descriptor = open_beneath(folder, path)
    except FileNotFoundError:
        return None
    except (AccessDenied, OSError) as exc:
        raise _unreadable(path, exc) from exc
    try:
        if first_bytes is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.read(descriptor, first_bytes)
        return read_small(descriptor, limit)
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    finally:
        os.close(descriptor)


def _unreadable(path: str, exc: Exception) -> BuildFailed:
    reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return BuildFailed(
        say("`{path}` cannot be read: {reason}", path=path, reason=reason.split("\n")[0]),
        say("Check the path"),
    )


def digest_files(folder: str, paths: Iterable[str]) -> str:
    """A digest of names and contents."""
    total = hashlib.sha256()
    for path in paths:
        data = read_inside(folder, path) or b""
        total.update(f"{path}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
        total.update(data)
    return total.hexdigest()


def digest(*parts: object) -> str:
    """A short digest of the inputs of a build."""
    text = "\0".join(str(part) for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]
