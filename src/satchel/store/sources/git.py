"""A git repository as a source, read without a checkout.

One commit is fetched into a bare repository that lives as long as the bundle. Files come straight
from its objects: no hook, filter, submodule or link of the repository ever acts on the disk.
A temporary repository, not a cache: nothing to lock, to clean or to mistrust next time. `git` runs
without hooks, prompts, other transports and the caller's repository variables; objects are checked
as they arrive, and what it prints is shown without secrets.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from satchel._language import say
from satchel.errors import MissingExtra, NotFound, Refused
from satchel.library.lockfile import Place
from satchel.skill.tree import File
from satchel.store.archive.rules import BOUNDS, WIDE, Listing, refuse, shown
from satchel.store.sources.base import Bundle, check_ref, is_commit, parse_address, redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from subprocess import Popen
    from typing import IO

    from satchel.store.archive.rules import Bounds
    from satchel.store.sources.base import Address

TIMEOUT = 600.0
"""Seconds a fetch may take."""
_PINS = (2, 37)
"""The first git that can be told the addresses of a host."""
_KEPT = frozenset((
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_SSH", "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY",
))  # fmt: skip
"""Variables that say how this machine reaches others. All the rest of GIT_* is dropped."""
_CONFIG = (
    f"core.hooksPath={os.devnull}",
    f"core.attributesFile={os.devnull}",
    "core.fsmonitor=false",
    "core.bigFileThreshold=8m",
    "core.packedGitLimit=64m",
    "pack.windowMemory=32m",
    "pack.threads=1",
    "core.deltaBaseCacheLimit=16m",
    "fetch.fsckObjects=true",
    "transfer.fsckObjects=true",
    "transfer.unpackLimit=1",
    "protocol.ext.allow=never",
    "credential.interactive=never",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "fetch.writeCommitGraph=false",
)
_USER = "SATCHEL_GIT_USER"
_SECRET = "SATCHEL_GIT_PASSWORD"  # noqa: S105 - the name of a variable
_HELPER = (
    f"""!f() {{ if test "$1" = get; then printf 'username=%s\\npassword=%s\\n' """
    f""""${_USER}" "${_SECRET}"; fi; }}; f"""
)
_POLL = 0.02
_PERSONAL = frozenset((
    "HOME", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CERT",
    "GIT_SSL_KEY", "KRB5CCNAME", "KRB5_CONFIG",
))  # fmt: skip
"""Variables that say who this user is."""
_NOBODY = (("http.followRedirects", "false"), ("http.emptyAuth", "false"))
"""Settings of an errand for somebody else: no other address, and no ticket of this user's."""
_FSCK = re.compile(
    rb"(?:error|fatal): .*(?:fsck error|object [0-9a-f]{40,64}: [a-zA-Z]+:)"
    rb"|did not receive expected object|is corrupt|unresolved delta|inflate returned|bad object"
)
_NO_REF = re.compile(
    rb"couldn't find remote ref|not our ref|no such remote ref|does not allow request for"
    rb"|unadvertised object|remote error: upload-pack: not our ref",
    re.IGNORECASE,
)


class NoSuchRef(NotFound):
    """The repository is there, and has no such branch, tag or commit to give."""


def find_git() -> str:
    """The program.

    Raises:
        MissingExtra: there is none.
    """
    from shutil import which

    found = which("git")
    if not found:
        raise MissingExtra(
            say("Reading a repository needs the program `git`, which is not installed"),
            say("Install git, or download the repository as a zip and import that"),
        )
    return found


def environment(address: Address, pinned: Sequence[str] = ()) -> dict[str, str]:
    """The environment that git runs in; with `pinned` it reaches no other addresses than these.

    Then it is somebody else's errand: nothing that this user configured counts, no password, no
    key, no other name for an address, and no proxy, which would ask for the address anew.

    Raises:
        Refused: git cannot be kept to them.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _KEPT
    }
    env |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GCM_INTERACTIVE": "never",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
        "LC_ALL": "C",
        "LANGUAGE": "",
    }
    if not {"GIT_SSH", "GIT_SSH_COMMAND"} & env.keys():
        env["GIT_SSH_COMMAND"] = f"{_own_ssh(address, env) or 'ssh'} -oBatchMode=yes"
    settings: list[tuple[str, str]] = []
    if pinned:
        settings = _pins(address, pinned)
        env = {name: text for name, text in env.items() if not _is_personal(name)}
        env |= {
            "GIT_ALLOW_PROTOCOL": "http:https",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": os.devnull,  # no `.netrc` is below it
        }
    told = _credentials(address)
    settings += told
    if settings:
        env["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (key, value) in enumerate(settings):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    if told and address.password is not None:
        env |= {_USER: address.user, _SECRET: address.password}
    return env


def _pins(address: Address, pinned: Sequence[str]) -> list[tuple[str, str]]:
    """Settings with which git asks nobody for the host's addresses, and follows no redirect.

    Raises:
        Refused: another program than git would ask, or git is too old to be told.
    """
    parts = urlsplit(address.clean)
    if parts.scheme not in {"http", "https"}:
        raise Refused(
            say("From elsewhere a repository is fetched only over http or https"),
            say("Give its `https://…` address, or import it in a terminal of this machine"),
        )
    if _git_version() < _PINS:
        raise Refused(
            say("This machine's git is too old to fetch for people who are elsewhere"),
            say("Install git 2.37 or later, or send a zip"),
        )
    host = parts.hostname or ""
    if ":" in host or host in pinned:  # it is its own address: nobody is asked
        return [*_NOBODY]
    port = parts.port or (443 if parts.scheme == "https" else 80)
    every = ",".join(f"[{one}]" if ":" in one else one for one in pinned)
    return [*_NOBODY, ("http.curloptResolve", f"{host}:{port}:{every}")]


def _is_personal(name: str) -> bool:
    """Whether a variable says who this user is to other machines, or how they are reached."""
    return name.lower().endswith("_proxy") or name in _PERSONAL


def _git_version() -> tuple[int, ...]:
    import subprocess

    done = subprocess.run(  # noqa: S603 - the program is git
        [find_git(), "version"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    found = re.search(rb"(\d+)\.(\d+)", done.stdout)
    return tuple(int(part) for part in found.groups()) if found else ()


def _credentials(address: Address) -> list[tuple[str, str]]:
    """How git learns a user and a password: from its environment, for that one machine.

    Arguments are seen by everybody on the machine, and git hands an address with its password to
    another program as an argument. So the address stays clean, and git asks a helper of ours. No
    other helper hears of a password that was typed, so none keeps it.
    """
    if not address.clean.startswith(("http:", "https:")):
        return []
    section = f"credential.{address.site}"
    if address.password is not None:
        return [(f"{section}.helper", ""), (f"{section}.helper", _HELPER)]
    return [(f"{section}.username", address.user)] if address.user else []


def _own_ssh(address: Address, env: dict[str, str]) -> str:
    """The user's `core.sshCommand`, which the variable that we set would hide."""
    import subprocess

    if not address.clean.startswith("ssh:") and "@" not in address.clean:
        return ""
    done = subprocess.run(  # noqa: S603 - the program is git
        [find_git(), "config", "--global", "--get", "core.sshCommand"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.stdout.decode(errors="replace").strip()


def command(git: str, repository: str, *words: str) -> list[str]:
    """The command line of git for one repository."""
    options = [part for setting in _CONFIG for part in ("-c", setting)]
    return [git, *options, f"--git-dir={repository}", *words]


class Fetcher:
    """Runs git for one repository that was made for the occasion."""

    def __init__(
        self,
        repository: str,
        address: Address,
        timeout: float = TIMEOUT,
        pinned: Sequence[str] = (),
    ) -> None:
        self.git = find_git()
        self.repository = repository
        self.env = environment(address, pinned)
        self._address = address
        self._timeout = timeout
        self._log = os.path.join(repository, "satchel.log")
        os.makedirs(repository, mode=0o700, exist_ok=True)

    def run(self, *words: str, progress: Callable[[str], None] | None = None) -> bytes:
        """Run a git command to its end; returns what it printed.

        Raises:
            NoSuchRef: the repository does not have what was asked for.
            NotFound: there is no such repository, or it cannot be reached.
            Unsafe: its objects are damaged or hostile, or it is too large.
        """
        import subprocess

        out = os.path.join(self.repository, "satchel.out")
        with open(self._log, "wb") as errors, open(out, "wb") as output:
            process = subprocess.Popen(  # noqa: S603 - the program is git, and no word begins with -
                command(self.git, self.repository, *words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=self.env,
                cwd=self.repository,
                start_new_session=True,
            )
            try:
                self._watch(process, progress)
            finally:
                stop(process)
        if process.returncode:
            raise self._failure(process.returncode)
        with open(out, "rb") as stream:
            return stream.read(1 << 20)

    def _watch(self, process: Popen[bytes], progress: Callable[[str], None] | None) -> None:
        from subprocess import TimeoutExpired

        began = time.monotonic()
        told = 0.0
        while True:
            try:
                process.wait(_POLL if told == 0 else 0.2)
                return
            except TimeoutExpired:
                now = time.monotonic()
            if now - began > self._timeout:
                raise Refused(
                    say(
                        "`{url}` did not answer within {seconds} seconds",
                        url=shown(self._address.clean),
                        seconds=round(self._timeout),
                    ),
                    say("Try again, or clone it yourself and import the folder"),
                )
            if now - told > 0.2:
                told = now
                if _size(self.repository) > BOUNDS.size:
                    raise refuse("too-large", self._address.clean, f"{BOUNDS.size >> 20} MiB")
                if progress:
                    progress(self._last_line())

    def _last_line(self) -> str:
        with open(self._log, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 400))
            lines = re.split(rb"[\r\n]+", stream.read().strip())
        return self.cleaned(lines[-1])

    def cleaned(self, data: bytes) -> str:
        """What git printed, without secrets and control characters."""
        text = data.decode(errors="replace")
        for secret in self._address.secrets:
            text = text.replace(secret, "…")
        words = re.split(r"([\s'\"`]+)", text)
        return shown("".join(map(redacted, words)).strip())

    def _failure(self, code: int) -> Exception:
        with open(self._log, "rb") as stream:
            log = stream.read(64 << 10)
        lines = [line for line in re.split(rb"[\r\n]+", log) if line.strip()]
        telling = [line for line in lines if line.startswith((b"fatal:", b"error:", b"ERROR"))]
        said = self.cleaned((telling or lines or [f"exit status {code}".encode()])[0])
        url = shown(self._address.clean)
        if _FSCK.search(log):
            return refuse("git-objects", self._address.clean, said)
        if _NO_REF.search(log):
            return NoSuchRef(
                say("`{url}` has no such branch, tag or commit: {reason}", url=url, reason=said),
                say("Check the ref; a commit must be given with all its digits"),
            )
        return NotFound(
            say("`{url}` cannot be fetched: {reason}", url=url, reason=said),
            say("Check the address, and that `git ls-remote` reaches it without asking"),
        )


def stop(process: Popen[bytes]) -> None:
    """End a process that may still run, and everything it started."""
    if process.poll() is not None:
        return
    import signal

    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except ProcessLookupError:
        pass
    process.wait()


def _size(folder: str) -> int:
    total = 0
    for here, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(here, name)).st_size
            except OSError:
                continue
    return total


_MODES = {b"100644": "file", b"100664": "file", b"100755": "program", b"120000": "link"}
_SMALL = 1 << 20
_CHUNK = 1 << 20
_MAX_ROW = 8192


class GitSource:
    """Skills in a repository.

    Args:
        location: The address as git gets it, or an absolute path.
        url: How it is written down; empty: the address without its secrets.
        path: A folder within the repository.
        ref: The branch, tag or commit to take when `fetch` is not told another.
        timeout: Seconds that a fetch may take.
    """

    kind = "git"

    def __init__(
        self,
        location: str,
        url: str = "",
        path: str = "",
        ref: str = "",
        *,
        timeout: float = TIMEOUT,
    ) -> None:
        self._address = parse_address(location)
        self.url = url if url and os.path.isabs(location) else self._address.clean
        self.path = path
        self.ref = ref
        self.pinned: tuple[str, ...] = ()
        """Addresses of its host that were looked at. With some, git goes nowhere else: not where
        the server points to, and not where the host's name leads a moment later."""
        self._timeout = timeout
        if ref:
            check_ref(ref)

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """Fetch one commit.

        Args:
            ref: A branch, a tag or a whole commit id; empty: the source's own, else the default.
            commit: Exactly this commit; `ref` is then only written down.
            progress: Is told now and then what git is doing.

        Raises:
            NotFound: the repository or the ref is not there.
            Unsafe: what is there breaks a rule.
            MissingExtra: there is no program `git`.
        """
        from shutil import rmtree
        from tempfile import mkdtemp

        ref = ref or self.ref
        for word in (ref, commit):
            if word:
                check_ref(word)
        if commit and not is_commit(commit):
            raise refuse("git-ref", commit)
        folder = mkdtemp(prefix="satchel-git-")
        try:
            fetcher = Fetcher(
                os.path.join(folder, "r.git"), self._address, self._timeout, self.pinned
            )
            found = self._get(fetcher, commit or ref, progress)
            with GitTree(fetcher, found, self.path) as tree:
                place = Place("git", self.url, "" if is_commit(ref) else ref, found, self.path)
                name = self.url.rstrip("/").rpartition("/")[2].removesuffix(".git")
                yield Bundle(place, tree, tree.notes, name.rpartition(":")[2])
        finally:
            rmtree(folder, ignore_errors=True)

    def _get(self, fetcher: Fetcher, wanted: str, progress: Callable[[str], None] | None) -> str:
        fetcher.run("init", "--quiet", "--bare", "--template=", fetcher.repository)
        words = ["fetch", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"]
        words += ["--no-auto-maintenance", "--progress" if progress else "--quiet"]
        remote = self._address.clean
        mine = "refs/satchel/wanted"
        try:
            fetcher.run(
                *words, "--depth=1", "--", remote, f"+{wanted or 'HEAD'}:{mine}", progress=progress
            )
        except NoSuchRef:
            if not is_commit(wanted):
                raise
            # Some servers give only what a branch or tag names: take those, and look inside.
            every = ("+refs/heads/*:refs/satchel/heads/*", "+refs/tags/*:refs/satchel/tags/*")
            fetcher.run(*words, "--", remote, *every, progress=progress)
            mine = wanted
        try:
            line = fetcher.run("rev-parse", "--verify", "--quiet", f"{mine}^{{commit}}")
        except NotFound as exc:
            raise NoSuchRef(
                say(
                    "`{url}` has no commit `{ref}`", url=shown(remote), ref=shown(wanted or "HEAD")
                ),
                say("Check the ref; a commit must be given with all its digits"),
            ) from exc
        found = line.decode().strip()
        if is_commit(wanted) and found != wanted:
            raise refuse("git-ref", wanted, found)
        return found


class GitTree(Listing):
    """The files of one commit. Links are listed as links, submodules as blocked paths."""

    def __init__(self, fetcher: Fetcher, commit: str, path: str, bounds: Bounds = WIDE) -> None:
        self._fetcher = fetcher
        self._bounds = bounds
        self._objects: dict[str, str] = {}
        self._batch: Popen[bytes] | None = None
        self.blocked: dict[str, str] = {}
        self.notes: tuple[str, ...] = ()
        super().__init__(self._list(commit, path))
        if self.blocked:
            names = ", ".join(f"`{shown(one)}`" for one in list(self.blocked)[:20])
            self.notes = (say("Not read, because they are submodules: {names}", names=names),)

    def _list(self, commit: str, path: str) -> Iterator[File]:
        words = ["ls-tree", "-r", "-z", "-l", "--full-tree", commit]
        process = self._start(*words, *(("--", path) if path else ()))
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        names = total = 0
        try:
            for count, row in enumerate(_rows(process.stdout)):
                if count >= self._bounds.entries:
                    raise refuse("too-many-files", found=str(self._bounds.entries))
                about, _, name = row.partition(b"\t")
                names += len(name)
                if names > self._bounds.names:
                    raise refuse("names-too-large")
                file = self._file(about.split(), os.fsdecode(name))
                if file is not None:
                    total += file.size
                    if total > self._bounds.size:
                        raise refuse("too-large", file.path, f"{self._bounds.size >> 20} MiB")
                    yield file
            if process.wait():
                raise refuse("git-objects", found="ls-tree")
        finally:
            _end(process)

    def _file(self, about: list[bytes], path: str) -> File | None:
        mode, kind, name, size = about
        if kind == b"commit":
            self.blocked[path] = "submodule"
            return None
        if mode not in _MODES or kind != b"blob" or not size.isdigit():
            raise refuse("special-file", path, mode.decode())
        self._objects[path] = name.decode()
        if mode == b"120000":
            return File(path, int(size), "link")
        return File(path, int(size), "program" if mode == b"100755" else "file")

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content of a file, piece by piece; of a link, where it leads."""
        found = self._objects.get(path)
        if found is None:
            raise NotFound(f"There is no `{shown(path)}` in the repository")
        return self._read(path, found)

    def _read(self, path: str, name: str) -> Iterator[bytes]:
        process = self._process()
        assert process.stdin is not None  # noqa: S101 - pipes, all of them
        assert process.stdout is not None  # noqa: S101
        head: list[bytes] = []
        with suppress(BrokenPipeError):
            process.stdin.write(f"{name}\n".encode())
            process.stdin.flush()
            head = process.stdout.readline(200).split()
        if len(head) != 3 or head[1] != b"blob":
            raise refuse("git-objects", path)
        size = int(head[2])
        if size <= _SMALL:
            data = process.stdout.read(size + 1)
            if len(data) != size + 1:
                raise refuse("git-objects", path)
            yield data[:-1]
            return
        # A large file is the business of this process alone: whoever stops halfway ends it.
        self._batch = None
        try:
            while size:
                data = process.stdout.read(min(_CHUNK, size))
                if not data:
                    raise refuse("git-objects", path)
                size -= len(data)
                yield data
        finally:
            _end(process)

    def _process(self) -> Popen[bytes]:
        if self._batch is None or self._batch.poll() is not None:
            self._batch = self._start("cat-file", "--batch")
        return self._batch

    def _start(self, *words: str) -> Popen[bytes]:
        import subprocess

        fetcher = self._fetcher
        return subprocess.Popen(  # noqa: S603 - the program is git; the words are ours
            command(fetcher.git, fetcher.repository, "--literal-pathspecs", *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=fetcher.env,
            cwd=fetcher.repository,
            start_new_session=True,
        )

    def close(self) -> None:
        """End the process that reads objects."""
        if self._batch is not None:
            _end(self._batch)
            self._batch = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rows(stream: IO[bytes]) -> Iterator[bytes]:
    """Records that end in NUL."""
    rest = b""
    while data := stream.read(64 << 10):
        *rows, rest = (rest + data).split(b"\0")
        yield from rows
        if len(rest) > _MAX_ROW:
            raise refuse("path-too-long")
    if rest:
        raise refuse("git-objects", found="ls-tree")


def _end(process: Popen[bytes]) -> None:
    stop(process)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except BrokenPipeError:
                continue
