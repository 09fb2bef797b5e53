"""A git repository as a source, read without a checkout.

One commit is fetched into a bare repository that lives as long as the bundle. Files come straight
from its objects: no hook, filter, submodule or link of the repository ever acts on the disk.
A temporary repository, not a cache: nothing to lock, to clean or to mistrust next time.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from satchel._language import say
from satchel.errors import NotFound
from satchel.library.lockfile import Place
from satchel.skill.tree import File
from satchel.store.archive.rules import WIDE, refuse, shown
from satchel.store.archive.tree import Listing
from satchel.store.sources.base import Bundle, check_ref, is_commit, parse_address
from satchel.store.sources.git_program import TIMEOUT, Fetcher, NoSuchRef, command, stop

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from subprocess import Popen
    from typing import IO

    from satchel.store.archive.rules import Bounds

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
