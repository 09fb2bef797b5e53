"""The source `git`: a repository, read without a checkout.

One commit is fetched into a temporary bare repository that lives as long as the bundle. Files are
read from its objects: no hook, filter, submodule or link of the repository acts on the disk. A
temporary repository, unlike a cache, needs no locking, cleaning or verification. `git` runs without
hooks, prompts, other transports and the caller's repository variables; objects are checked as they
arrive, and its output is shown without secrets.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager, suppress
from shutil import rmtree, which
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Self

from satchel.errors import MissingExtra, NotFound, Refused
from satchel.i18n import say
from satchel.library.lockfile import LockedSource
from satchel.skill.file_tree import LIMITS, TreeFile
from satchel.store.archive.rules import BOUNDS, WIDE, ListedTree, refuse, shown
from satchel.store.sources.base import Bundle, check_ref, is_commit, parse_address, redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from subprocess import Popen
    from typing import IO

    from satchel.store.archive.rules import ArchiveLimits

FETCH_TIMEOUT_S = 600.0
_KEPT_VARIABLES = frozenset((
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_SSH", "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY",
))  # fmt: skip
"""Variables that configure connections. All other GIT_* variables are dropped."""
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
_POLL_INTERVAL_S = 0.02
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
    """The repository has no such branch, tag or commit."""


def find_git() -> str:
    """The path of the program `git`.

    Raises:
        MissingExtra: it is not installed.
    """
    found = which("git")
    if not found:
        raise MissingExtra(
            say("`{name}` is not installed", name="git"),
            say("Run `{command}`", command="apt install git"),
        )
    return found


def environment() -> dict[str, str]:
    """The environment of git: no prompts, and only the variables that configure connections."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _KEPT_VARIABLES
    }
    return env | {
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


def command(git: str, repository: str, *words: str) -> list[str]:
    """The command line of git for one repository."""
    options = [part for setting in _CONFIG for part in ("-c", setting)]
    return [git, *options, f"--git-dir={repository}", *words]


class Fetcher:
    """Runs git for one temporary repository."""

    def __init__(self, repository: str, address: str, timeout: float = FETCH_TIMEOUT_S) -> None:
        self.git = find_git()
        self.repository = repository
        self.env = environment()
        self._address = address
        self._timeout = timeout
        self._log = os.path.join(repository, "satchel.log")
        os.makedirs(repository, mode=0o700, exist_ok=True)

    def run(self, *words: str, progress: Callable[[str], None] | None = None) -> bytes:
        """Run a git command; returns its output.

        Raises:
            NoSuchRef: the repository has no such ref.
            NotFound: there is no such repository, or it cannot be reached.
            Unsafe: its objects are damaged, or it is too large.
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
        checked = 0.0
        while True:
            try:
                process.wait(_POLL_INTERVAL_S if checked == 0 else 0.2)
                return
            except TimeoutExpired:
                now = time.monotonic()
            if now - began > self._timeout:
                reason = say("it took longer than {seconds} seconds", seconds=round(self._timeout))
                raise Refused(
                    say("`{url}` cannot be fetched: {reason}",
                        url=shown(self._address), reason=reason),
                    say("Try again"),
                )  # fmt: skip
            if now - checked > 0.2:
                checked = now
                if _folder_bytes(self.repository) > BOUNDS.size:
                    raise refuse("too-large", self._address, f"{BOUNDS.size >> 20} MiB")
                if progress:
                    progress(self._last_line())

    def _last_line(self) -> str:
        with open(self._log, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 400))
            lines = re.split(rb"[\r\n]+", stream.read().strip())
        return self.cleaned(lines[-1])

    def cleaned(self, data: bytes) -> str:
        """Output of git without secrets and control characters."""
        words = re.split(r"([\s'\"`]+)", data.decode(errors="replace"))
        return shown("".join(map(redacted, words)).strip())

    def _failure(self, code: int) -> Exception:
        with open(self._log, "rb") as stream:
            log = stream.read(64 << 10)
        lines = [line for line in re.split(rb"[\r\n]+", log) if line.strip()]
        errors = [line for line in lines if line.startswith((b"fatal:", b"error:", b"ERROR"))]
        reason = self.cleaned((errors or lines or [f"exit status {code}".encode()])[0])
        url = shown(self._address)
        if _FSCK.search(log):
            return refuse("git-objects", self._address, reason)
        if _NO_REF.search(log):
            return NoSuchRef(
                say("`{url}` has no such branch, tag or commit: {reason}", url=url, reason=reason),
                say("Give a branch, a tag or a whole commit id"),
            )
        return NotFound(
            say("`{url}` cannot be fetched: {reason}", url=url, reason=reason),
            say("Run `{command}`", command=f"git ls-remote {url}"),
        )


def stop(process: Popen[bytes]) -> None:
    """Kill a process and its group, if it still runs."""
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


def _folder_bytes(folder: str) -> int:
    total = 0
    for here, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(here, name)).st_size
            except OSError:
                continue
    return total


_MODES = {b"100644": "file", b"100664": "file", b"100755": "program", b"120000": "link"}
_MAX_ROW_BYTES = 8192


class GitSource:
    """Skills in a repository.

    Args:
        location: The address for git, or an absolute path.
        url: The recorded address; the address itself when empty.
        path: A folder within the repository.
        ref: The default branch, tag or commit of `fetch`.
        timeout: Seconds.
    """

    kind = "git"

    def __init__(
        self,
        location: str,
        url: str = "",
        path: str = "",
        ref: str = "",
        *,
        timeout: float = FETCH_TIMEOUT_S,
    ) -> None:
        self._address = parse_address(location)
        self.url = url if url and os.path.isabs(location) else self._address
        self.path = path
        self.ref = ref
        self._timeout = timeout
        if ref:
            check_ref(ref)

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """Fetch one commit.

        Args:
            ref: A branch, a tag or a full commit id; the source's own when empty.
            commit: Exactly this commit; `ref` is then only recorded.
            progress: Called with the last line that git printed.

        Raises:
            NotFound: there is no such repository or ref.
            Unsafe: the content breaks a rule.
            MissingExtra: `git` is not installed.
        """
        ref = ref or self.ref
        for word in (ref, commit):
            if word:
                check_ref(word)
        if commit and not is_commit(commit):
            raise refuse("git-ref", commit)
        folder = mkdtemp(prefix="satchel-git-")
        try:
            fetcher = Fetcher(os.path.join(folder, "r.git"), self._address, self._timeout)
            found = self._get(fetcher, commit or ref, progress)
            with GitTree(fetcher, found, self.path) as tree:
                place = LockedSource(
                    "git", self.url, "" if is_commit(ref) else ref, found, self.path
                )
                name = self.url.rstrip("/").rpartition("/")[2].removesuffix(".git")
                yield Bundle(place, tree, tree.notes, name.rpartition(":")[2])
        finally:
            rmtree(folder, ignore_errors=True)

    def _get(self, fetcher: Fetcher, wanted: str, progress: Callable[[str], None] | None) -> str:
        fetcher.run("init", "--quiet", "--bare", "--template=", fetcher.repository)
        words = ["fetch", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"]
        words += ["--no-auto-maintenance", "--progress" if progress else "--quiet"]
        remote = self._address
        mine = "refs/satchel/wanted"
        try:
            fetcher.run(
                *words, "--depth=1", "--", remote, f"+{wanted or 'HEAD'}:{mine}", progress=progress
            )
        except NoSuchRef:
            if not is_commit(wanted):
                raise
            # Some servers only send what a branch or tag names: fetch all of those.
            every = ("+refs/heads/*:refs/satchel/heads/*", "+refs/tags/*:refs/satchel/tags/*")
            fetcher.run(*words, "--", remote, *every, progress=progress)
            mine = wanted
        try:
            line = fetcher.run("rev-parse", "--verify", "--quiet", f"{mine}^{{commit}}")
        except NotFound as exc:
            raise NoSuchRef(
                say("`{url}` has no such branch, tag or commit: {reason}",
                    url=shown(remote), reason=shown(wanted or "HEAD")),
                say("Give a branch, a tag or a whole commit id"),
            ) from exc  # fmt: skip
        found = line.decode().strip()
        if is_commit(wanted) and found != wanted:
            raise refuse("git-ref", wanted, found)
        return found


class GitTree(ListedTree):
    """The files of one commit. Links are listed as links, submodules as blocked paths."""

    def __init__(
        self, fetcher: Fetcher, commit: str, path: str, bounds: ArchiveLimits = WIDE
    ) -> None:
        self._fetcher = fetcher
        self._bounds = bounds
        self._objects: dict[str, str] = {}
        self._batch: Popen[bytes] | None = None
        self.notes: tuple[str, ...] = ()
        super().__init__(self._list(commit, path))
        if self.blocked:
            names = ", ".join(f"`{shown(one)}`" for one in list(self.blocked)[:20])
            self.notes = (say("Not read, because they are submodules: {names}", names=names),)

    def _list(self, commit: str, path: str) -> Iterator[TreeFile]:
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
            _close(process)

    def _file(self, about: list[bytes], path: str) -> TreeFile | None:
        mode, kind, name, size = about
        if kind == b"commit":
            self.blocked[path] = "submodule"
            return None
        if mode not in _MODES or kind != b"blob" or not size.isdigit():
            raise refuse("special-file", path, mode.decode())
        self._objects[path] = name.decode()
        if mode == b"120000":
            return TreeFile(path, int(size), "link")
        return TreeFile(path, int(size), "program" if mode == b"100755" else "file")

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content of a file, piece by piece; of a link, its target."""
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
        if size > LIMITS.size:
            raise refuse("too-large", path, f"{LIMITS.size >> 20} MiB")
        data = process.stdout.read(size + 1)
        if len(data) != size + 1:
            raise refuse("git-objects", path)
        yield data[:-1]

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
            _close(self._batch)
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
        if len(rest) > _MAX_ROW_BYTES:
            raise refuse("path-too-long")
    if rest:
        raise refuse("git-objects", found="ls-tree")


def _close(process: Popen[bytes]) -> None:
    stop(process)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except BrokenPipeError:
                continue
