"""Parses the text of a source; the sources `folder` and `archive`.

    acme/pdf-forms, acme/pdf-forms@^1.2
                                  a skill of a hub            kind `hub`
    ./skills                      a folder                    kind `folder`
    skills.zip, skills.tar.gz     an archive                  kind `archive`
    https://host/o/r[.git]        a repository                kind `git`
    ssh://…, git@host:o/r.git     the same
    git+PATH, PATH.git, PATH#ref  a repository on this machine
    …#ref  …#ref:sub/path  …#:sub/path
                                  a branch, tag or commit, and a folder within the source
    https://host/o/r/tree/REF/sub/path
                                  as a browser shows it; REF is one part, so write a branch with a
                                  slash as `#feature/x:sub/path`
    https://host/…/.well-known/agent-skills/index.json[#name]
                                  a discovery index           kind `discovery`

A path that exists is preferred to a hub's skill of that name. A local path near the lockfile is
recorded relative to it, so that it works in another checkout.
Older lockfiles have `~` for the home folder.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from satchel._fs import open_beneath
from satchel.errors import AccessDenied, InvalidInput, NotFound
from satchel.i18n import join_names, say
from satchel.library.lockfile import LockedSource
from satchel.skill.file_tree import IGNORED, TreeFile, main_file
from satchel.store.archive import open_archive
from satchel.store.archive.rules import WIDE, ListedTree, check_path, refuse, shown, unreadable
from satchel.store.sources.base import Bundle, parse_address, redacted
from satchel.store.sources.git import GitSource

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

    from satchel.skill.file_tree import Tree
    from satchel.store.archive.rules import ArchiveLimits
    from satchel.store.sources.base import HubFinder, Source

_CHUNK_BYTES = 1 << 20
_IGNORED = frozenset(name.casefold() for name in IGNORED)


class LocalTree(ListedTree):
    """The files below a folder; links are listed, not followed."""

    may_be_checkout = True

    def __init__(self, root: str, bounds: ArchiveLimits = WIDE) -> None:
        self.root = root
        self._ignored: list[str] = []
        self.ignored = self._ignored
        self._bounds = bounds
        try:
            super().__init__(self._list())
        except OSError as exc:
            raise unreadable(exc.filename or root, exc) from exc

    def _list(self) -> Iterator[TreeFile]:
        count = names = 0
        todo = [("", 0)]
        while todo:
            folder, depth = todo.pop()
            with os.scandir(os.path.join(self.root, folder) if folder else self.root) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.name.casefold() in _IGNORED:
                        self._ignored.append(path)
                        continue
                    count += 1
                    names += len(path)
                    if count > self._bounds.entries:
                        raise refuse("too-many-files", self.root, str(self._bounds.entries))
                    if names > self._bounds.names:
                        raise refuse("names-too-large", self.root)
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        if depth < 256:
                            todo.append((path, depth + 1))
                        else:
                            self.blocked[path] = "path-too-deep"
                    elif file := self._file(path, info):
                        yield file

    def _file(self, path: str, info: os.stat_result) -> TreeFile | None:
        if stat.S_ISLNK(info.st_mode):
            return TreeFile(path, info.st_size, "link")
        if stat.S_ISREG(info.st_mode):
            return TreeFile(path, info.st_size, "program" if info.st_mode & 0o100 else "file")
        self.blocked[path] = "special-file"
        return None

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content, a megabyte at a time; of a link, its target."""
        full = os.path.join(self.root, path)
        try:
            if os.path.islink(full):
                yield os.fsencode(os.readlink(full))
                return
            descriptor = open_beneath(self.root, path)
        except AccessDenied as exc:
            raise refuse("link-escapes", path) from exc
        except OSError as exc:
            raise unreadable(full, exc) from exc
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise refuse("changed-while-read", path)
            left = info.st_size
            while chunk := os.read(descriptor, _CHUNK_BYTES):
                left -= len(chunk)
                if left < 0:
                    break
                yield chunk
            if left:
                raise refuse("changed-while-read", path)
        except OSError as exc:
            raise unreadable(full, exc) from exc
        finally:
            os.close(descriptor)


class _PathSource:
    """A folder or an archive at `location`; `url` is its path as recorded in the lockfile."""

    kind = ""
    _repository_prefix = ""

    def __init__(self, location: str, url: str, path: str = "") -> None:
        self.location = location
        self.url = url
        self.path = path
        self.notes: tuple[str, ...] = ()
        """Notes about the choice of the source."""

    @contextmanager
    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> Generator[Bundle]:
        """List the files.

        Raises:
            NotFound: there is nothing.
            Unsafe: it breaks a rule, or is too large.
        """
        del progress
        if ref or commit:
            raise InvalidInput(
                say("`{path}` has no branches or tags", path=shown(self.location)),
                say("Write `{value}`", value=self._repository_prefix + shown(self.location)),
            )
        with self._open() as (tree, ignored, name):
            notes = self.notes
            if ignored:
                names = join_names(f"`{shown(one)}`" for one in ignored[:20])
                notes = (*notes, say("Left out: {names}", names=names))
            yield Bundle(LockedSource(self.kind, self.url, path=self.path), tree, notes, name)

    def _open(self) -> AbstractContextManager[tuple[Tree, Sequence[str], str]]:
        """The files, the ignored ones, and the id of a skill at the top."""
        raise NotImplementedError


class FolderSource(_PathSource):
    """Skills in a folder."""

    kind = "folder"
    _repository_prefix = "git+"

    @contextmanager
    def _open(self) -> Generator[tuple[Tree, Sequence[str], str]]:
        if not os.path.isdir(self.location):
            raise NotFound(
                say("There is no `{path}`", path=shown(self.location)), say("Check the path")
            )
        tree = LocalTree(self.location)
        yield tree, sorted(tree.ignored), os.path.basename(os.path.abspath(self.location))


ENDINGS = re.compile(
    r"\.(?:zip|skill|tar|tgz|tbz2?|txz|tzst|tar\.(?:gz|bz2|xz|zst)|7z|rar)\Z", re.IGNORECASE
)
"""File name endings of archives. The content decides which format it is."""


class ArchiveSource(_PathSource):
    """Skills in an archive."""

    kind = "archive"

    @contextmanager
    def _open(self) -> Generator[tuple[Tree, Sequence[str], str]]:
        with open_archive(self.location) as tree:
            yield tree, tree.ignored, ENDINGS.sub("", os.path.basename(self.location))


_MAX_PARENTS = 3
"""Paths with more `..` are recorded as absolute ones."""
_REMOTE = re.compile(r"(?:https?|ssh|git|file)://", re.IGNORECASE)
_SCP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:(?!//)[^\s:]")
_HUB_SKILL = re.compile(r"[a-z0-9-]+/[a-z0-9-]+(?:@\S*)?\Z")
_DISCOVERY = re.compile(r"https?://[^#?]+/\.well-known/agent-skills/index\.json\Z", re.IGNORECASE)
_OTHER_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:/|:)")
_BROWSER = re.compile(
    r"(?P<url>https?://[^/]+/[^/#?]+/[^#?]+?)(?:/-)?/(?P<kind>tree|blob|src/branch|src/tag|src/commit)"
    r"/(?P<ref>[^/#?]+)(?:/(?P<path>[^#?]*))?/?(?:[#?].*)?\Z"
)


def source_of(text: str, *, base: str, hubs: Callable[[], HubFinder] | None = None) -> Source:
    """Parse a source that the user typed. Relative paths start from the current folder.

    Args:
        text: One of the forms above.
        base: The folder of the lockfile.
        hubs: Returns the configured hubs; None uses none.

    Raises:
        Unsafe: it is an address that is never used, such as `ext::…` or one that begins with `-`.
        NotFound: there is nothing of that name on this machine.
        InvalidInput: it is not supported.
    """
    if not text.strip() or text.startswith("-") or not text.isprintable():
        raise refuse("git-address", redacted(text) or "-")
    word = text.removeprefix("git+")
    if _REMOTE.match(word) or _SCP.match(word):
        return _remote(word, base)
    found = hubs if hubs is not None and _HUB_SKILL.match(text) else None
    if word == text and os.path.lexists(_absolute_path(text)):
        source = _local(text, "", "", base)
        if found is not None and isinstance(source, _PathSource) and found().serves(text):
            note = say("`{path}` is here; the hub was not asked", path=shown(text))
            source.notes = (note,)
        return source
    if found is not None and (source := found().requested(text, base=base)) is not None:
        return source
    word, ref, path = _split(word)
    if os.path.lexists(_absolute_path(word)):
        return _local(word, ref, path, base, git=text.startswith("git+"))
    if _OTHER_SCHEME.match(text) and not re.match(r"[A-Za-z]:[\\/]", text):
        raise refuse("git-address", redacted(text))
    raise NotFound(
        say("There is no `{path}`", path=shown(redacted(text))),
        say("Give a folder, an archive, a git address, `PUBLISHER/SKILL` or `mcp:SERVER/SKILL`; "
            "without any, `satchel install` follows the lockfile"),
    )  # fmt: skip


def source_from(
    place: LockedSource, *, base: str, hubs: Callable[[], HubFinder] | None = None
) -> Source:
    """The source of a lockfile entry.

    Args:
        place: The recorded source.
        base: The folder of the lockfile.
        hubs: As in `source_of`.

    Raises:
        InvalidInput: its kind cannot be fetched, such as `new`.
        NotFound: its path does not exist here.
    """
    url = place.url
    if place.kind == "git":
        if _REMOTE.match(url) or _SCP.match(url):
            return GitSource(url, url, place.path, place.ref)
        full = _resolve_recorded(url, base)
        return GitSource(full, url, place.path, place.ref)
    if place.kind == "folder":
        return FolderSource(_resolve_recorded(url, base), url, place.path)
    if place.kind == "archive":
        return ArchiveSource(_resolve_recorded(url, base), url, place.path)
    if place.kind == "hub" and hubs is not None:
        return hubs().locked(place, base=base)
    if place.kind == "discovery":
        return _discovery(*url.partition("#")[::2])
    raise InvalidInput(
        say("A skill from `{kind}` cannot be fetched again", kind=shown(place.kind)),
        say("Give a folder, a `.zip`, a `.tar.gz` or the address of a git repository"),
    )


def _discovery(url: str, name: str) -> Source:
    from satchel.store.sources.discovery import DiscoverySource

    return DiscoverySource(url, name)


def _remote(word: str, base: str) -> Source:
    if _DISCOVERY.match(word.partition("#")[0]):
        word, ref, path = _split(word)
        return _discovery(word, ref or path)
    if shape := _BROWSER.match(word):
        path = unquote(shape["path"] or "").strip("/")
        if shape["kind"] == "blob":
            path = path.rpartition("/")[0]
        parse_address(shape["url"], word)
        return GitSource(shape["url"], "", _checked_subpath(path), unquote(shape["ref"]))
    if not word.lower().startswith("file://"):
        parse_address(word.partition("#")[0], word)
    word, ref, path = _split(word)
    if word.lower().startswith("file://"):
        full = unquote(urlsplit(word).path)
        return GitSource(full, recorded_path(full, base), path, ref)
    if ENDINGS.search(urlsplit(word).path) and "@" not in word.partition("://")[0]:
        raise InvalidInput(
            say("`{url}` is an archive on another machine", url=shown(redacted(word))),
            say("Give a folder, a `.zip`, a `.tar.gz` or the address of a git repository"),
        )
    return GitSource(word, "", path, ref)


def _local(word: str, ref: str, path: str, base: str, *, git: bool = False) -> Source:
    full = _absolute_path(word)
    url = recorded_path(full, base)
    if not os.path.isdir(full):
        if ref or git:
            raise InvalidInput(
                say("`{path}` has no branches or tags", path=shown(word)),
                say("Give a branch, a tag or a whole commit id"),
            )
        return ArchiveSource(full, url, path)
    bare = all(os.path.exists(os.path.join(full, part)) for part in ("HEAD", "objects", "refs"))
    if git or ref or (bare and not main_file(os.listdir(full))):
        return GitSource(full, url, path, ref)
    return FolderSource(full, url, path)


def _split(word: str) -> tuple[str, str, str]:
    """Split `address#ref:path`."""
    word, _, rest = word.partition("#")
    ref, _, path = rest.partition(":")
    return word, ref, _checked_subpath(path)


def _checked_subpath(path: str) -> str:
    path = path.strip("/")
    if path:
        check_path(path)
    return path


def _absolute_path(word: str) -> str:
    return os.path.abspath(os.path.expanduser(word))


def _resolve_recorded(url: str, base: str) -> str:
    full = os.path.normpath(os.path.join(base, os.path.expanduser(url)))
    if not os.path.lexists(full):
        raise NotFound(
            say("There is no `{path}`, which the lockfile names as the source", path=shown(full)),
            say("Put it there, or install the skill from another source"),
        )
    return full


def recorded_path(path: str, base: str) -> str:
    """A local path as recorded in the lockfile of the folder `base`: relative when it is near."""
    full = os.path.abspath(path)
    with suppress(ValueError):  # another drive
        near = os.path.relpath(full, base).replace(os.sep, "/")
        if near.split("/").count("..") <= _MAX_PARENTS:
            # `./` marks a path that would be parsed as an address.
            odd = near[0] == "~" or _REMOTE.match(near) or _SCP.match(near)
            return f"./{near}" if odd else near
    return full.replace(os.sep, "/")
