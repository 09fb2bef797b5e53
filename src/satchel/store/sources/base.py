"""The Source protocol, git addresses, and the skills in a source.

A `Source` is an address. Fetching it gives a `Bundle`: all its files as one tree, and the
`LockedSource` for the lockfile. Nothing is written to the skills folder. `subtree` checks the files
of one skill: names, size limits, and links, which become copies of files inside the skill or are
refused.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from satchel.errors import NotFound
from satchel.i18n import join_names, say
from satchel.library.scanner import SKIPPED_FOLDERS
from satchel.skill.document import MANIFEST
from satchel.skill.file_tree import LIMITS, VERSION_CONTROL, find_repository
from satchel.skill.header import scan_header
from satchel.store.archive.rules import (
    MAX_PATH_BYTES,
    ListedTree,
    TreeNames,
    check_path,
    ignored_part,
    refuse,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from satchel.library.lockfile import LockedSource
    from satchel.skill.file_tree import Tree, TreeFile, TreeLimits


class Bundle(NamedTuple):
    """The present content of a source. Open until the `with` block ends."""

    place: LockedSource
    """The source for the lockfile. `path` is the requested folder within it."""
    tree: Tree
    """Every file of the source. Links are still links; `subtree` resolves them for one skill."""
    notes: tuple[str, ...] = ()
    """Notes for the user, such as files that were left out."""
    name: str = ""
    """The id of a skill at the top, which has no folder of its own."""

    def place_of(self, path: str) -> LockedSource:
        """The place of one skill within the source."""
        return self.place._replace(path=path)


class Source(Protocol):
    """A source of skills."""

    @property
    def kind(self) -> str:
        """As in `LockedSource.kind`."""
        ...

    @property
    def url(self) -> str:
        """As in `LockedSource.url`: never with a password."""
        ...

    def fetch(
        self, *, ref: str = "", commit: str = "", progress: Callable[[str], None] | None = None
    ) -> AbstractContextManager[Bundle]:
        """Fetch the present content, or that of `ref` or `commit`.

        Raises:
            Unsafe: it contains something that is never unpacked.
            NotFound: it does not exist, or has no such ref.
        """
        ...


class HubFinder(Protocol):
    """Finds skills in the configured hubs (`store/hub_client/hubs.py`)."""

    def serves(self, text: str) -> bool:
        """Whether a text is a request that some hub could answer."""
        ...

    def requested(self, text: str, *, base: str) -> Source | None:
        """The source that the user requested as `publisher/skill@range`; None for other texts."""
        ...

    def locked(self, place: LockedSource, *, base: str) -> Source:
        """The source of a lockfile entry."""
        ...


_SCHEMES = frozenset(("https", "http", "ssh", "git"))
_SCP = re.compile(
    r"(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)"
    r":(?P<path>[A-Za-z0-9~_/.][^\s]*)\Z"
)
_HOST = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])\Z")
_REF = re.compile(r"(?!-)(?!.*(?:\.\.|@\{|//|\.lock(?:/|\Z)))[^\x00-\x20\x7f~^:?*\[\\]{1,250}\Z")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:{1,2}//+")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_PASSWORD = re.compile(r"[^/@:\[\]]*:")
_PORT = re.compile(r"[0-9]*(?:[/?#]|\Z)")
_COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")


def parse_address(text: str, whole: str = "") -> str:
    """Check an address and normalise it. A local path is returned unchanged.

    Secrets are refused: they would be visible in the arguments of git, and end in the lockfile.

    Args:
        text: The address.
        whole: The full text that it is a part of, for messages: a password may contain the
            separator.

    Raises:
        Unsafe: it is not a plain address.
    """
    refused = redacted(whole or text) or "-"
    if not text or text.startswith("-") or not text.isprintable():
        raise refuse("git-address", refused)
    if text.startswith("/") or _DRIVE.match(text):
        return text
    if _SCP.match(text):
        return text
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as exc:
        raise refuse("git-address", refused) from exc
    scheme = parts.scheme.lower()
    written = f"[{host}]" if ":" in host else host
    if scheme not in _SCHEMES or not _HOST.match(written) or not parts.path.strip("/"):
        raise refuse("git-address", refused)
    if parts.query:
        raise refuse("git-address", refused, say("it is not valid"))
    keep = f"{parts.username}@" if scheme == "ssh" and parts.username else ""
    if parts.password is not None or (parts.username is not None and not keep):
        why = say("it has a user or a password: use ssh, or a credential helper of git")
        raise refuse("git-address", refused, why)
    if unquote(keep).startswith("-") or not unquote(keep).isprintable():
        raise refuse("git-address", refused)
    place = f"{keep}{written}" + (f":{port}" if port is not None else "")
    return urlunsplit((scheme, place, parts.path, "", ""))


def redacted(text: str) -> str:
    """The text of a source without possible secrets, for messages.

    Everything up to the last `@`, a port that is not a number, and a query may be secret.
    """
    scheme = _SCHEME.match(text)
    start, rest = (scheme.group(), text[scheme.end() :]) if scheme else ("", text)
    if scheme and "@" in rest.partition("?")[2]:
        rest = "…"  # it may be in the middle of a password
    elif "@" in rest and (scheme or (_PASSWORD.match(rest) and not _DRIVE.match(rest))):
        rest = "…@" + rest.rpartition("@")[2]
    elif scheme and (user := _PASSWORD.match(rest)) and not _PORT.match(rest, user.end()):
        rest = "…"
    return start + (rest.partition("?")[0] + "?…" if scheme and "?" in rest else rest)


def check_ref(ref: str) -> None:
    """Refuse a ref that git would interpret in another way.

    Raises:
        Unsafe: it is not a plain name.
    """
    if not _REF.match(ref) or ref.startswith("/") or ref.endswith(("/", ".")) or ref == "@":
        raise refuse("git-ref", ref)


def is_commit(ref: str) -> bool:
    """Whether a ref is a full commit id."""
    return bool(_COMMIT.match(ref))


_FILE = "skill.md"
_RUNTIME = re.compile(rb"(?m)^runtime[ \t]*:")
"""Distinguishes a manifest from other files of that name."""
_MAX_HEAD_BYTES = 256 << 10


_LFS = b"version https://git-lfs.github.com/spec/"
_LFS_POINTER_BYTES = range(100, 1025)


class FoundSkill(NamedTuple):
    """One skill in a source."""

    path: str
    """Its folder within the source; empty at the top."""
    id: str
    """The name of the folder to install it in."""
    name: str
    """From the frontmatter, else the id."""
    file: str = "SKILL.md"
    """Its SKILL.md, in any case, or the `skill.yaml` of a tool skill."""
    description: str = ""
    """From the frontmatter; empty when that cannot be read."""


def find_skills(tree: Tree, path: str = "", *, name: str = "") -> list[FoundSkill]:
    """The skills of a source, in the order of their paths.

    With a SKILL.md in `path` itself: that one skill. Else every folder below it with a SKILL.md,
    except inside another skill or in folders that a library skips (`node_modules`). A folder with
    only a skill.yaml counts too, unless skills with a SKILL.md are below it.

    Args:
        tree: All files of the source.
        path: The folder to search; it may be the SKILL.md or the skill.yaml itself.
        name: The id of a skill at the top, which has no folder of its own.

    Raises:
        NotFound: there is no such folder.
    """
    path = path.strip("/")
    last = path.rpartition("/")[2]
    if last.lower() == _FILE or last == MANIFEST:
        path = path.rpartition("/")[0]
    files = _files_below(tree, path)
    if path and not files:
        raise NotFound(say("There is no `{path}`", path=shown(path)), say("Check the path"))
    folders: dict[str, str] = {}
    tools: list[str] = []
    for file in files:
        folder, _, last = file.path.rpartition("/")
        if last.lower() == _FILE and (folder not in folders or last == "SKILL.md"):
            folders[folder] = last
        elif last == MANIFEST:
            tools.append(folder)
    if tools:
        folders.update(_tool_skills(tree, tools, folders, path))
    return [
        _read_found(tree, folder, folders[folder], name)
        for folder in sorted(_outermost(folders, path))
    ]


def _tool_skills(
    tree: Tree, tools: list[str], folders: dict[str, str], start: str
) -> dict[str, str]:
    """Folders that are skills by their skill.yaml alone."""
    around = {""}  # folders with a skill below them
    for folder in folders:
        above = folder
        while above and above not in around:
            around.add(above)
            above = above.rpartition("/")[0]
    found: dict[str, str] = {}
    for folder in tools:
        if folder in folders or (folder in around and folders):
            continue
        data = _read_head(tree, f"{folder}/{MANIFEST}" if folder else MANIFEST)
        if folder == start or _RUNTIME.search(data):
            found[folder] = MANIFEST
    return found


def _outermost(folders: dict[str, str], start: str) -> Iterator[str]:
    if start in folders:
        yield start
        return
    for folder in folders:
        above = folder
        parts = folder[len(start) :].strip("/").split("/")
        if SKIPPED_FOLDERS.intersection(parts):
            continue
        while above:
            above = above.rpartition("/")[0]
            if above in folders and len(above) >= len(start):
                break
        else:
            yield folder


def _read_found(tree: Tree, folder: str, file: str, fallback: str) -> FoundSkill:
    from satchel.skill.metadata import slug
    from satchel.skill.reader import read_header

    full = f"{folder}/{file}" if folder else file
    own = folder.rpartition("/")[2]
    data = _read_head(tree, full)
    stamp = (0, 0, len(data))
    if file == MANIFEST:
        head = read_header(data, own or slug(fallback), file, stamp)[0]
    else:
        head = scan_header(data, own, file, stamp) or read_header(data, own, file, stamp)[0]
    name = head.name if head else ""
    word = own or fallback or name
    about = head.description if head else ""
    return FoundSkill(folder, slug(word), name or slug(word), file, about)


def _read_head(tree: Tree, path: str) -> bytes:
    data = b""
    for chunk in tree.chunks(path):
        data += chunk
        if len(data) >= _MAX_HEAD_BYTES:
            break
    return data[:_MAX_HEAD_BYTES]


def _files_below(tree: Tree, path: str) -> tuple[TreeFile, ...]:
    if isinstance(tree, ListedTree):
        return tree.below(path)
    start = f"{path}/" if path else ""
    return tuple(file for file in tree.files if file.path.startswith(start))


def subtree(tree: Tree, path: str = "", limits: TreeLimits = LIMITS) -> SubTree:
    """The files of one skill, with paths relative to its folder.

    Raises:
        Unsafe: something in it breaks a rule.
        NotFound: there is nothing at `path`.
    """
    path = path.strip("/")
    start = len(path) + 1 if path else 0
    if isinstance(tree, ListedTree):
        for other, rule in tree.blocked.items():
            if not path or other == path or other.startswith(f"{path}/"):
                raise refuse(rule, other)
    own = [file._replace(path=file.path[start:]) for file in _files_below(tree, path)]
    if not own:
        raise NotFound(say("There is no `{path}`", path=shown(path)), say("Check the path"))
    if planted := find_repository(_names_below(tree, path, own)):
        raise refuse("repository", f"{path}/{planted}" if path else planted)
    return SubTree(tree, path, own, limits)


def _names_below(tree: Tree, path: str, own: list[TreeFile]) -> Iterator[str]:
    """Relative paths of all files below a folder, also of those that are left out."""
    checkout = True
    names = (file.path for file in own)
    if isinstance(tree, ListedTree):
        checkout = tree.may_be_checkout
        start = f"{path}/" if path else ""
        out = (one.removeprefix(start) for one in tree.ignored if one.startswith(start))
        names = (*names, *out)
    for name in names:
        if not checkout or name.partition("/")[0] not in VERSION_CONTROL:
            yield name


class SubTree:
    """The files of one skill in a larger tree: checked, within the limits, links resolved."""

    def __init__(self, tree: Tree, path: str, own: list[TreeFile], limits: TreeLimits) -> None:
        self._tree = tree
        self._start = f"{path}/" if path else ""
        self._names = TreeNames()
        kept: list[TreeFile] = []
        ignored: dict[str, None] = {}
        for file in own:
            part = ignored_part(file.path)
            if part:
                ignored[part] = None
            else:
                kept.append(file)
        self._origin: dict[str, str] = {}
        """Path of a link -> path of the file that it leads to."""
        self.files = self._checked(self._with_copies(kept), limits)
        self.ignored = tuple(ignored)
        self.notes = tuple(self._notes())

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content of a file, piece by piece."""
        return self._tree.chunks(self._start + self._origin.get(path, path))

    def _with_copies(self, files: list[TreeFile]) -> list[TreeFile]:
        """The files, each link replaced by a copy of the file that it leads to."""
        plain = {file.path: file for file in files if file.mode != "link"}
        for link in (file for file in files if file.mode == "link"):
            text = ""
            if link.size <= MAX_PATH_BYTES:
                text = os.fsdecode(b"".join(self._tree.chunks(self._start + link.path)))
            target = posixpath.normpath(posixpath.join(posixpath.dirname(link.path), text))
            if target not in plain:
                raise refuse("link-escapes", link.path, text)
            self._origin[link.path] = target
        copies = [plain[target]._replace(path=link) for link, target in self._origin.items()]
        return [*plain.values(), *copies]

    def _checked(self, files: list[TreeFile], limits: TreeLimits) -> tuple[TreeFile, ...]:
        total = 0
        for at, file in enumerate(files, 1):
            check_path(file.path)
            self._names.add(file.path)
            total += file.size
            if at > limits.files:
                raise refuse("too-many-files", self._start or file.path, str(limits.files))
            if total > limits.size:
                raise refuse("too-large", file.path, f"{limits.size >> 20} MiB")
            if file.path.count("/") > limits.depth:
                raise refuse("path-too-deep", file.path)
        return tuple(sorted(files, key=lambda file: os.fsencode(file.path)))

    def _notes(self) -> Iterator[str]:
        for file in self.files:
            if file.size not in _LFS_POINTER_BYTES:
                continue
            if next(self.chunks(file.path), b"").startswith(_LFS):
                text = "`{path}` is a pointer of Git LFS: its content is not part of the source"
                yield say(text, path=shown(file.path))
        if self.ignored:
            yield say(
                "Left out: {names}", names=join_names(f"`{shown(one)}`" for one in self.ignored)
            )
        for link, target in self._origin.items():
            yield say(
                "The link `{link}` became a copy of `{target}`",
                link=shown(link),
                target=shown(target),
            )
