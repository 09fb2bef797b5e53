"""What does building need: a place for the result, one builder at a time, tools, their failures?

    Workshop.make       a folder that is whole or not there, built once however many ask for it
    Workshop.run        one run of a build tool, in an environment made by allow-list
    Workshop.which      a program on PATH, never one of the current folder

The key of an entry says what it was built from, so an entry is never changed: other content is
another entry. Everything here is a cache; whoever deletes it pays with time only.
"""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from satchel._fs import locked, sync_tree, write_atomic
from satchel._language import say
from satchel.errors import BuildFailed
from satchel.runners.base import BuildStopped

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from satchel.runners.base import Cancel

    Progress = Callable[[str], None]

MARKER = ".whole"
"""In every finished entry: the names inside it that must be there."""
_LONGEST = 900.0
"""Seconds that one tool may take, and that another process may build the same thing."""
AT_ONCE = 2
"""Builds that one process has under way; a build keeps a machine busy."""
_SLICE = 0.1
"""Seconds after which a build that runs or waits looks whether it is still wanted."""
_DAY = 86_400.0
_KEPT = 30
"""Days that an entry stays without being used."""

_PASSED = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP",
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA",
    "USERPROFILE", "PROGRAMDATA", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "NETRC",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS", "GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB",
    "GOINSECURE", "GOENV",
))  # fmt: skip
_PASSED_FAMILIES = ("LC_", "PIP_", "UV_", "NPM_CONFIG_")
_NOT_PASSED = frozenset((
    "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_NO_BINARY", "PIP_REQUIREMENT",
    "PIP_EDITABLE", "PIP_PYTHON", "PIP_REQUIRE_VIRTUALENV",
    "UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_PROJECT_ENVIRONMENT", "UV_NO_BINARY", "UV_CONSTRAINT",
    "NPM_CONFIG_PREFIX", "NPM_CONFIG_GLOBAL", "NPM_CONFIG_IGNORE_SCRIPTS", "NPM_CONFIG_GIT",
    "NPM_CONFIG_SCRIPT_SHELL", "NPM_CONFIG_NODE_OPTIONS",
))  # fmt: skip
"""They would put things elsewhere, or let a package run something."""

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")
_NOISE = re.compile(
    r"^\s*$|^npm (?:warn|notice)|complete log of this run|_logs/|^\[notice\]|^WARNING:"
    r"|^go: (?:downloading|finding)"
)


class Workshop:
    """The folder in which skills' environments are built, and the tools that build them.

    Args:
        folder: Where.
        env: The environment to find tools in; the process's own when None.
        confirm: Asked after a build and before its result is kept; raises when what was built may
            not be what was asked for.
        cancel: Becomes readable when nobody waits for the result any more.
        seconds: That waiting and building may take; 0 leaves that to each tool's own bound.
    """

    def __init__(
        self,
        folder: str,
        env: Mapping[str, str] | None = None,
        *,
        confirm: Callable[[], None] | None = None,
        cancel: Cancel | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.folder = folder
        self._env = env
        self._confirm = confirm
        self._cancel = cancel
        self._deadline = time.monotonic() + seconds if seconds else 0.0

    @property
    def env(self) -> Mapping[str, str]:
        """The environment of whoever runs Satchel."""
        return os.environ if self._env is None else self._env

    def cache(self, tool: str) -> str:
        """Where a build tool keeps what it downloads: not in the user's home."""
        return os.path.join(self.folder, "downloads", tool)

    def path(self, kind: str, key: str) -> str:
        """Where an entry is, or would be."""
        return os.path.join(self.folder, kind, key)

    # --- entries --------------------------------------------------------------------------

    def make(
        self,
        kind: str,
        key: str,
        build: Callable[[str, str], Sequence[str]],
        progress: Progress,
    ) -> str:
        """The folder of an entry, built when it is not there.

        Args:
            kind: What it is, such as `python`.
            key: What it is made from.
            build: Builds into its first argument, which will be renamed to its second, and says
                which names inside make the entry whole.
            progress: Told when another process is at it already.

        Raises:
            BuildFailed: by `build`, or because the cache folder cannot be used.
            BuildStopped: it was taken back, or took too long.
        """
        path = self.path(kind, key)
        if is_whole(path):
            _mark_used(path)
            return path
        if not self.folder:
            raise BuildFailed(
                say("There is no cache folder to build in"),
                say("Set `SATCHEL_HOME` to an absolute path"),
            )
        try:
            try:
                return self._make(kind, key, build, progress)
            except (BuildFailed, FileNotFoundError):
                if os.path.isdir(os.path.join(self.folder, "unfinished")):
                    raise
                return self._make(kind, key, build, progress)  # the cache was deleted under us
        except OSError as exc:
            raise BuildFailed(
                say(
                    "The cache folder `{folder}` cannot be used: {reason}",
                    folder=self.folder,
                    reason=exc.strerror or str(exc),
                ),
                say("Free space there, or set `SATCHEL_HOME` to another folder"),
            ) from exc

    def _make(
        self,
        kind: str,
        key: str,
        build: Callable[[str, str], Sequence[str]],
        progress: Progress,
    ) -> str:
        import shutil

        path = self.path(kind, key)
        unfinished = os.path.join(self.folder, "unfinished")
        lock = os.path.join(self.folder, "locks", f"{kind}-{key}")
        with self._one_of_few(progress), self._held(lock, progress):
            if is_whole(path):
                return path
            os.makedirs(unfinished, mode=0o700, exist_ok=True)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            for name in os.listdir(unfinished):  # of builders that were killed
                if name.startswith(f"{kind}-{key}-"):
                    shutil.rmtree(os.path.join(unfinished, name), ignore_errors=True)
            aside = os.path.join(unfinished, f"{kind}-{key}-{os.urandom(4).hex()}")
            if os.path.lexists(path):
                os.rename(path, aside + "-old")
                shutil.rmtree(aside + "-old", ignore_errors=True)
            os.mkdir(aside, 0o700)
            try:
                names = build(aside, path)
                if self._confirm is not None:
                    self._confirm()
                # A marker on the disk before what it vouches for would outlive a power cut.
                sync_tree(aside)
                text = "".join(f"{name}\n" for name in names)
                write_atomic(os.path.join(aside, MARKER), text.encode())
                os.rename(aside, path)
                _drop_unused(os.path.dirname(path))
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
        return path

    # --- waiting --------------------------------------------------------------------------

    def check(self) -> None:
        """Go on only while somebody waits for it.

        Raises:
            BuildStopped: nobody does, or it took too long.
        """
        if self._cancel is not None:
            import select

            poll = select.poll()  # numbers of descriptors may be too high for `select`
            poll.register(self._cancel.fileno(), select.POLLIN)
            if poll.poll(0):
                raise BuildStopped("cancelled")
        if self._deadline and time.monotonic() > self._deadline:
            raise BuildStopped("timeout")

    @contextmanager
    def _one_of_few(self, progress: Progress) -> Generator[None]:
        """Be one of `AT_ONCE` builds; what a build builds on the way is part of it.

        Taken before any lock: whoever holds a lock has what it needs to get on.
        """
        if getattr(_building, "here", False):
            yield
            return
        few = _builders
        if not few.acquire(blocking=False):
            progress(say("Other skills are being prepared: waiting for them"))
            while not few.acquire(timeout=_SLICE):
                self.check()
        _building.here = True
        try:
            yield
        finally:
            _building.here = False
            few.release()

    @contextmanager
    def _held(self, path: str, progress: Progress) -> Generator[None]:
        """Hold a lock, with a word to whoever waits for it."""
        until = time.monotonic() + _LONGEST
        told = False
        while True:
            lock = locked(path, timeout=_SLICE if told else _SLICE / 2)
            try:
                lock.__enter__()
                break
            except TimeoutError:
                if time.monotonic() > until:
                    raise
            self.check()
            if not told:
                progress(say("Another process is preparing this already: waiting for it"))
                told = True
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    # --- tools ----------------------------------------------------------------------------

    def which(self, name: str) -> str | None:
        """A program on PATH. Folders that are not absolute would mean the current one."""
        import shutil

        path = self.env.get("PATH", os.defpath)
        folders = [part for part in path.split(os.pathsep) if os.path.isabs(part)]
        return shutil.which(name, path=os.pathsep.join(folders))

    def tool_env(self, **more: str) -> dict[str, str]:
        """The environment of a build tool: what was allowed, and what is set here."""
        passed = {
            name: value
            for name, value in self.env.items()
            if (name.upper() in _PASSED or name.upper().startswith(_PASSED_FAMILIES))
            and name.upper() not in _NOT_PASSED
        }
        return {**passed, "NO_COLOR": "1", **more}

    def run(self, argv: Sequence[str], cwd: str, stdin: str = "", **more: str) -> str:
        """Run a build tool to its end and return what it wrote on stdout.

        Args:
            argv: The tool and its arguments.
            cwd: Its working folder: never one of the skill.
            stdin: What it is told.
            more: Variables beside those that are allowed.

        Raises:
            ToolFailed: it ended otherwise than with 0.
            BuildStopped: nobody waits for it any more, or it took too long.
        """
        import signal
        import subprocess
        import tempfile

        self.check()
        until = time.monotonic() + _LONGEST
        try:
            # A file and not a pipe: a pipe that is not empty yet cannot be waited for in slices.
            with tempfile.TemporaryFile() as words:
                words.write(stdin.encode())
                words.seek(0)
                process = subprocess.Popen(  # noqa: S603 - our own arguments, no shell
                    list(argv),
                    cwd=cwd,
                    env=self.tool_env(**more),
                    stdin=words,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=os.name != "nt",
                )
        except OSError as exc:
            if not os.path.isdir(cwd):
                raise
            raise ToolFailed(os.path.basename(argv[0]), str(exc)) from exc
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=_SLICE)
                    break
                except subprocess.TimeoutExpired:
                    if time.monotonic() > until:
                        raise
                    self.check()
        except BaseException as exc:
            if os.name == "nt":
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(exc, subprocess.TimeoutExpired):
                words = say("it took longer than {seconds} seconds", seconds=round(_LONGEST))
                raise ToolFailed(os.path.basename(argv[0]), words) from exc
            raise
        if process.returncode:
            lines = last_lines(err) or last_lines(out)
            lines = lines.replace(cwd + os.sep, "").replace(cwd, ".")  # it is gone in a moment
            code = say("it ended with code {code}", code=process.returncode)
            raise ToolFailed(os.path.basename(argv[0]), lines or code)
        return out.decode("utf-8", "replace")


class ToolFailed(Exception):
    """A build tool said no. Never leaves this folder: runtimes say what could not be built."""

    def __init__(self, tool: str, words: str) -> None:
        super().__init__(words)
        self.tool = tool
        self.words = words


def is_whole(path: str) -> bool:
    """Whether an entry was finished and still has what it was finished with."""
    try:
        with open(os.path.join(path, MARKER), encoding="utf-8") as file:
            names = file.read().split("\n")
    except OSError:
        return False
    return all(os.path.exists(os.path.join(path, name)) for name in names if name)


def _mark_used(path: str) -> None:
    marker = os.path.join(path, MARKER)
    with suppress(OSError):
        if time.time() - os.stat(marker).st_mtime > _DAY:
            os.utime(marker)


def _drop_unused(kind: str) -> None:
    """Delete the entries of one kind that nobody has asked for in a long time."""
    import shutil

    for name in os.listdir(kind):
        path = os.path.join(kind, name)
        with suppress(OSError):
            if time.time() - os.stat(os.path.join(path, MARKER)).st_mtime > _KEPT * _DAY:
                shutil.rmtree(path, ignore_errors=True)


def last_lines(output: bytes, lines: int = 12, longest: int = 1600) -> str:
    """The end of what a tool wrote, without colours, logins and chatter."""
    text = _LOGIN.sub("", _COLOURS.sub("", output.decode("utf-8", "replace")))
    told = [line.rstrip() for line in text.splitlines() if not _NOISE.search(line)]
    return "\n".join(told[-lines:])[-longest:]


_builders = threading.BoundedSemaphore(AT_ONCE)
_building = threading.local()


def _after_fork() -> None:
    """In a child of the host: the builds under way are the parent's."""
    global _builders  # noqa: PLW0603
    _builders = threading.BoundedSemaphore(AT_ONCE)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
