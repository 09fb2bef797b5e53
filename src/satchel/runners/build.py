"""Builds of tool skills: a cache of finished entries, and build tools run in the sandbox.

    Workshop.make       a folder that is complete or absent, built once however many ask for it
    Workshop.run        one run of a build tool in the sandbox
    Workshop.ask        one question to a tool of the user, such as its version, without a sandbox
    Workshop.which      a program on PATH, never one of the current folder

A build tool may write the folder of its entry and its own download cache. It reads the system, its
toolchain, the user's configuration files for package indexes and the local paths these name, and
nothing else: no home, no workspace, no folder of a skill. The network is open only for the steps
that resolve or download.

The key of an entry says what it was built from, so an entry is never changed: other content is
another entry. Everything here is a cache and may be deleted.
"""

from __future__ import annotations

import mimetypes
import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from satchel._fs import locked, sync_tree, write_atomic
from satchel._language import say
from satchel.errors import BuildFailed
from satchel.runners.base import BuildStopped, CannotStart

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from satchel.runners.base import Cancel, Process, Tier

    Progress = Callable[[str], None]

MARKER = ".whole"
"""In every finished entry: the names inside it that must be there."""
HOME = ".home"
"""Inside an unfinished entry: home and temporary folder of the build tools."""
_LONGEST = 900.0
"""Seconds that one tool may take, and that another process may build the same thing."""
AT_ONCE = 2
"""Builds that one process has under way; a build keeps a machine busy."""
_SLICE = 0.1
"""Seconds between two checks whether a build that runs or waits is still wanted."""
_OUTPUT = 8 * 1024 * 1024
"""Bytes kept of each output of a tool."""
_DAY = 86_400.0
_KEPT = 30
"""Days that an entry stays without being used."""

_PASSED = re.compile(
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
"""Variables of the user that build tools get: where packages come from, and the way there."""
_CONFIGURATION = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/uv/uv.toml", "/etc/npmrc")
_READ_BY_PIP = (
    "/etc/os-release",
    "/etc/debian_version",
    "/etc/lsb-release",
    *map(str, mimetypes.knownfiles),
)
"""Files that may be missing for pip, but not unreadable."""
_PATHS = re.compile(r"(?:(?<=file://)|(?<![\w:/.~@-]))/[^\s'\",;\]]+")

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")
_NOISE = re.compile(
    r"^\s*$|^npm (?:warn|notice)|complete log of this run|_logs/|^\[notice\]|^WARNING:"
    r"|^go: (?:downloading|finding)"
)


class Workshop:
    """The folder in which skills' environments are built, and the tools that build them.

    Args:
        folder: The cache folder.
        env: The environment to find tools and their settings in; the process's own when None.
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

    def make(
        self,
        kind: str,
        key: str,
        build: Callable[[str, str], Sequence[str]],
        progress: Progress,
    ) -> str:
        """The folder of an entry, built when it is not there.

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
        if is_whole(path):
            _mark_used(path)
            return path
        if not self.folder:
            raise BuildFailed(
                say("There is no cache folder to build in"),
                say("Set `SATCHEL_HOME` to an absolute path"),
            )
        try:
            return self._make(kind, key, build, progress)
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
            os.makedirs(os.path.join(aside, HOME), 0o700)
            try:
                names = build(aside, path)
                if self._confirm is not None:
                    self._confirm()
                shutil.rmtree(os.path.join(aside, HOME), ignore_errors=True)
                _mark_programs(aside)
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
        """Raise when the build is no longer wanted.

        Raises:
            BuildStopped: it was cancelled, or took too long.
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
        """Be one of `AT_ONCE` builds. Taken before any lock, so that a lock is never held idle."""
        if not _builders.acquire(blocking=False):
            progress(say("Other skills are being prepared: waiting for them"))
            while not _builders.acquire(timeout=_SLICE):
                self.check()
        try:
            yield
        finally:
            _builders.release()

    @contextmanager
    def _held(self, path: str, progress: Progress) -> Generator[None]:
        """Hold a lock; report when another process has it."""
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

    @cached_property
    def _sources(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The user's settings of where packages come from: variables, and files to read."""
        env = {name: value for name, value in self.env.items() if _PASSED.fullmatch(name)}
        home = self.env.get("HOME") or os.path.expanduser("~")
        config = self.env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        upper = {name.upper() for name in env}
        for name, *places in (
            ("PIP_CONFIG_FILE", f"{config}/pip/pip.conf", f"{home}/.pip/pip.conf"),
            ("UV_CONFIG_FILE", f"{config}/uv/uv.toml"),
            ("NPM_CONFIG_USERCONFIG", f"{home}/.npmrc"),
        ):
            found = next(filter(os.path.isfile, places), "")
            if found and name not in upper:
                env[name] = found
        texts = [*env.values()]
        for path in (*_CONFIGURATION, *env.values()):
            if path.endswith((".conf", ".toml", "npmrc")):
                with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
                    texts.append(file.read())
        named = {path for text in texts for path in _PATHS.findall(text)}
        # The files of a local index lie beside its `simple` folder.
        named |= {os.path.dirname(path) for path in named if path.endswith("/simple")}
        seen = (*named, *_CONFIGURATION, *_READ_BY_PIP)
        return env, tuple(path for path in seen if os.path.exists(path))

    def ask(self, *argv: str) -> str:
        """What a tool of the user writes to stdout. For questions that no skill has a part in.

        Raises:
            ToolFailed: it did not answer.
        """
        import subprocess

        names = ("PATH", "HOME", "XDG_CONFIG_HOME")
        own = {"HOME": "/", **{name: self.env[name] for name in names if name in self.env}}
        try:
            done = subprocess.run(  # noqa: S603 - our own arguments, no shell
                argv, cwd="/", env={**self._sources[0], **own}, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=60, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise ToolFailed(str(exc)) from exc
        if done.returncode:
            raise ToolFailed(last_lines(done.stderr))
        return done.stdout.decode("utf-8", "replace")

    def run(
        self,
        argv: Sequence[str],
        aside: str,
        *,
        cwd: str = "",
        cache: str = "",
        network: bool = False,
        read: Sequence[str] = (),
        **more: str,
    ) -> str:
        """Run a build tool in the sandbox to its end and return what it wrote on stdout.

        Args:
            argv: The tool and its arguments.
            aside: The unfinished entry, which it may write.
            cwd: Its working folder, inside `aside`.
            cache: The name of its download cache, which it may write.
            network: Whether the network is open, with the user's settings of package indexes.
            read: What else it may read: its toolchain.
            more: Variables beside those settings.

        Raises:
            ToolFailed: it ended otherwise than with 0.
            BuildStopped: it was cancelled, or took too long.
        """
        from satchel.runners.dressing import dress_build
        from satchel.runners.launcher import launcher

        self.check()
        env, seen = self._sources if network else ({}, ())
        home = os.path.join(aside, HOME)
        env = {**env, "HOME": home, "TMPDIR": home, "NO_COLOR": "1", **more}
        write = (aside, self.cache(cache)) if cache else (aside,)
        for folder in (home, *write):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        launch = dress_build(
            tuple(argv), env, cwd or aside, (*seen, *read), write, network=network, tier=self.tier
        )
        try:
            process = launcher().start(launch)
        except CannotStart as exc:
            raise ToolFailed(str(exc)) from exc
        try:
            out, err = self._follow(process)
            ended = process.wait(_LONGEST)
        finally:
            process.close()
        if ended is None or ended.code or ended.reason:
            lines = last_lines(err) or last_lines(out)
            lines = lines.replace(aside + os.sep, "").replace(aside, ".")  # it is gone in a moment
            code = say("it ended with code {code}", code=ended.code if ended else "?")
            detail = (ended.detail or ended.reason) if ended else ""
            raise ToolFailed(lines or detail or code, out.decode("utf-8", "replace"))
        return out.decode("utf-8", "replace")

    def _follow(self, process: Process) -> tuple[bytes, bytes]:
        """What a tool writes, until it closes both outputs."""
        import select

        os.close(process.stdin)
        process.stdin = -1
        until = time.monotonic() + _LONGEST
        kept = {process.stdout: b"", process.stderr: b""}
        poll = select.poll()
        for end in kept:
            poll.register(end, select.POLLIN)
        left = len(kept)
        while left:
            for end, _ in poll.poll(_SLICE * 1000):
                if part := os.read(end, 1 << 16):
                    kept[end] = (kept[end] + part)[-_OUTPUT:]
                else:
                    poll.unregister(end)
                    left -= 1
            self.check()
            if time.monotonic() > until:
                raise ToolFailed(
                    say("it took longer than {seconds} seconds", seconds=round(_LONGEST))
                )
        out, err = kept.values()
        return out, err


class ToolFailed(Exception):
    """A build tool failed. Runtimes turn it into `BuildFailed` or `MissingRuntime`."""

    def __init__(self, words: str, output: str = "") -> None:
        super().__init__(words)
        self.words = words
        self.output = output
        """All that it wrote on stdout."""


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


def _mark_programs(folder: str) -> None:
    """Make programs executable: the tier `landlock` lets no build tool change modes."""
    import stat

    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for _, _, names, at in os.fwalk(folder):
        for name in names:
            with suppress(OSError), open(os.open(name, flags, dir_fd=at), "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                if stat.S_ISREG(mode) and file.read(4).startswith((b"#!", b"\x7fELF")):
                    os.fchmod(file.fileno(), stat.S_IMODE(mode) | 0o100)


def _drop_unused(kind: str) -> None:
    """Delete the entries of one kind that were not used for a long time."""
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
