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
import signal
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
from satchel.store.sources.addresses import check_ref, is_commit, parse_address, redact_address
from satchel.store.sources.base import Bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from subprocess import Popen
    from typing import IO

    from satchel.skill.file_tree import Mode
    from satchel.store.archive.rules import ArchiveLimits

FETCH_TIMEOUT_S = 600.0
_CONNECTION_VARIABLES = frozenset((
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_SSH", "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY",
))  # fmt: skip
"""Variables that configure connections. All other GIT_* variables are dropped."""
_GIT_CONFIG = (
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
_CHECK_INTERVAL_S = 0.2
_TYPES_BY_MODE: dict[bytes, Mode] = {
    b"100644": "file",
    b"100664": "file",
    b"100755": "program",
    b"120000": "link",
}
_MAX_RECORD_BYTES = 8192
_DAMAGED_OBJECT = re.compile(
    rb"(?:error|fatal): .*(?:fsck error|object [0-9a-f]{40,64}: [a-zA-Z]+:)"
    rb"|did not receive expected object|is corrupt|unresolved delta|inflate returned|bad object"
)
_UNKNOWN_REF = re.compile(
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
    program = which("git")
    if not program:
        raise MissingExtra(
            say("`{name}` is not installed", name="git"),
            say("Run `{command}`", command="apt install git"),
        )
    return program


def environment() -> dict[str, str]:
    """The environment of git: no prompts, and only the variables that configure connections."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _CONNECTION_VARIABLES
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


def command(git: str, repository: str, *arguments: str) -> list[str]:
    """Return the command line of git for one repository."""
    options = [option for setting in _GIT_CONFIG for option in ("-c", setting)]
    return [git, *options, f"--git-dir={repository}", *arguments]


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

    def run(self, *arguments: str, progress: Callable[[str], None] | None = None) -> bytes:
        """Run a git command; returns its output.

        Raises:
            NoSuchRef: the repository has no such ref.
            NotFound: there is no such repository, or it cannot be reached.
            Unsafe: its objects are damaged, or it is too large.
        """
        import subprocess

        output_path = os.path.join(self.repository, "satchel.out")
        with open(self._log, "wb") as errors, open(output_path, "wb") as output:
            process = subprocess.Popen(  # noqa: S603 - the program is git, and no argument begins with -
                command(self.git, self.repository, *arguments),
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
            raise self._make_error(process.returncode)
        with open(output_path, "rb") as stream:
            return stream.read(1 << 20)

    def _watch(self, process: Popen[bytes], progress: Callable[[str], None] | None) -> None:
        """Wait for the process; raises when it takes too long, or writes too much."""
        from subprocess import TimeoutExpired

        started = time.monotonic()
        last_check = 0.0
        while True:
            try:
                process.wait(_CHECK_INTERVAL_S if last_check else _POLL_INTERVAL_S)
                return
            except TimeoutExpired:
                now = time.monotonic()
            if now - started > self._timeout:
                reason = say("it took longer than {seconds} seconds", seconds=round(self._timeout))
                raise Refused(
                    say("`{url}` cannot be fetched: {reason}",
                        url=shown(self._address), reason=reason),
                    say("Try again"),
                )  # fmt: skip
            if now - last_check > _CHECK_INTERVAL_S:
                last_check = now
                if _folder_bytes(self.repository) > BOUNDS.size:
                    raise refuse("too-large", self._address, f"{BOUNDS.size >> 20} MiB")
                if progress:
                    progress(self._last_line())

    def _last_line(self) -> str:
        with open(self._log, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 400))
            lines = re.split(rb"[\r\n]+", stream.read().strip())
        return self.clean_output(lines[-1])

    def clean_output(self, data: bytes) -> str:
        """Return output of git without secrets and control characters."""
        words = re.split(r"([\s'\"`]+)", data.decode(errors="replace"))
        return shown("".join(map(redact_address, words)).strip())

    def _make_error(self, exit_status: int) -> Exception:
        """Return the error for a command that failed, from what git printed."""
        with open(self._log, "rb") as stream:
            log = stream.read(64 << 10)
        lines = [line for line in re.split(rb"[\r\n]+", log) if line.strip()]
        errors = [line for line in lines if line.startswith((b"fatal:", b"error:", b"ERROR"))]
        reason = self.clean_output((errors or lines or [f"exit status {exit_status}".encode()])[0])
        url = shown(self._address)
        if _DAMAGED_OBJECT.search(log):
            return refuse("git-objects", self._address, reason)
        if _UNKNOWN_REF.search(log):
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
    for folder_path, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder_path, name)).st_size
            except OSError:
                continue
    return total


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
        self.notes: tuple[str, ...] = ()
        """Notes about the choice of the source."""
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
        for revision in (ref, commit):
            if revision:
                check_ref(revision)
        if commit and not is_commit(commit):
            raise refuse("git-ref", commit)
        folder = mkdtemp(prefix="satchel-git-")
        try:
            fetcher = Fetcher(os.path.join(folder, "r.git"), self._address, self._timeout)
            commit_id = self._fetch_commit(fetcher, commit or ref, progress)
            with GitTree(fetcher, commit_id, self.path) as tree:
                source = LockedSource(
                    kind="git",
                    url=self.url,
                    ref="" if is_commit(ref) else ref,
                    commit=commit_id,
                    path=self.path,
                )
                name = self.url.rstrip("/").rpartition("/")[2].removesuffix(".git")
                yield Bundle(source, tree, (*self.notes, *tree.notes), name.rpartition(":")[2])
        finally:
            rmtree(folder, ignore_errors=True)

    def _fetch_commit(
        self, fetcher: Fetcher, revision: str, progress: Callable[[str], None] | None
    ) -> str:
        """Fetch a revision, or the default branch when it is empty; returns the commit id."""
        fetcher.run("init", "--quiet", "--bare", "--template=", fetcher.repository)
        arguments = ["fetch", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"]
        arguments += ["--no-auto-maintenance", "--progress" if progress else "--quiet"]
        remote = self._address
        fetched_ref = "refs/satchel/wanted"
        try:
            refspec = f"+{revision or 'HEAD'}:{fetched_ref}"
            fetcher.run(*arguments, "--depth=1", "--", remote, refspec, progress=progress)
        except NoSuchRef:
            if not is_commit(revision):
                raise
            # Some servers only send what a branch or tag names: fetch all of those.
            refspecs = ("+refs/heads/*:refs/satchel/heads/*", "+refs/tags/*:refs/satchel/tags/*")
            fetcher.run(*arguments, "--", remote, *refspecs, progress=progress)
            fetched_ref = revision
        try:
            line = fetcher.run("rev-parse", "--verify", "--quiet", f"{fetched_ref}^{{commit}}")
        except NotFound as exc:
            raise NoSuchRef(
                say("`{url}` has no such branch, tag or commit: {reason}",
                    url=shown(remote), reason=shown(revision or "HEAD")),
                say("Give a branch, a tag or a whole commit id"),
            ) from exc  # fmt: skip
        commit_id = line.decode().strip()
        if is_commit(revision) and commit_id != revision:
            raise refuse("git-ref", revision, commit_id)
        return commit_id


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
            names = ", ".join(f"`{shown(path)}`" for path in list(self.blocked)[:20])
            self.notes = (say("Not read, because they are submodules: {names}", names=names),)

    def _list(self, commit: str, path: str) -> Iterator[TreeFile]:
        arguments = ["ls-tree", "-r", "-z", "-l", "--full-tree", commit]
        process = self._start(*arguments, *(("--", path) if path else ()))
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        path_bytes = total_size = 0
        try:
            for count, record in enumerate(_split_records(process.stdout)):
                if count >= self._bounds.entries:
                    raise refuse("too-many-files", found=str(self._bounds.entries))
                attributes, _, name = record.partition(b"\t")
                path_bytes += len(name)
                if path_bytes > self._bounds.names:
                    raise refuse("names-too-large")
                file = self._make_file(attributes.split(), os.fsdecode(name))
                if file is not None:
                    total_size += file.size
                    if total_size > self._bounds.size:
                        raise refuse("too-large", file.path, f"{self._bounds.size >> 20} MiB")
                    yield file
            if process.wait():
                raise refuse("git-objects", found="ls-tree")
        finally:
            _close(process)

    def _make_file(self, attributes: list[bytes], path: str) -> TreeFile | None:
        """Return a file from the attributes that `ls-tree` prints; None for a submodule."""
        mode, object_type, object_id, size = attributes
        if object_type == b"commit":
            self.blocked[path] = "submodule"
            return None
        if mode not in _TYPES_BY_MODE or object_type != b"blob" or not size.isdigit():
            raise refuse("special-file", path, mode.decode())
        self._objects[path] = object_id.decode()
        return TreeFile(path, int(size), _TYPES_BY_MODE[mode])

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content of a file, piece by piece; of a link, its target."""
        object_id = self._objects.get(path)
        if object_id is None:
            raise NotFound(f"There is no `{shown(path)}` in the repository")
        return self._read(path, object_id)

    def _read(self, path: str, object_id: str) -> Iterator[bytes]:
        process = self._process()
        assert process.stdin is not None  # noqa: S101 - pipes, all of them
        assert process.stdout is not None  # noqa: S101
        header: list[bytes] = []
        with suppress(BrokenPipeError):
            process.stdin.write(f"{object_id}\n".encode())
            process.stdin.flush()
            header = process.stdout.readline(200).split()
        if len(header) != 3 or header[1] != b"blob":
            raise refuse("git-objects", path)
        size = int(header[2])
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

    def _start(self, *arguments: str) -> Popen[bytes]:
        import subprocess

        fetcher = self._fetcher
        return subprocess.Popen(  # noqa: S603 - the program is git; the arguments are ours
            command(fetcher.git, fetcher.repository, "--literal-pathspecs", *arguments),
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


def _split_records(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the records of a stream, which end in NUL."""
    incomplete = b""
    while data := stream.read(64 << 10):
        *records, incomplete = (incomplete + data).split(b"\0")
        yield from records
        if len(incomplete) > _MAX_RECORD_BYTES:
            raise refuse("path-too-long")
    if incomplete:
        raise refuse("git-objects", found="ls-tree")


def _close(process: Popen[bytes]) -> None:
    stop(process)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except BrokenPipeError:
                continue
