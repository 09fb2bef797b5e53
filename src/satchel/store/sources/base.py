"""The Source protocol, git addresses, and the skills in a source.

A `Source` is an address. Fetching it gives a `Bundle`: all its files as one tree, and the
`LockedSource` for the lockfile. Nothing is written to the skills folder. `subtree` checks the files
of one skill: names, size limits, and links, which become copies of their targets inside the skill
or are refused.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from satchel.errors import NotFound
from satchel.i18n import join_names, say
from satchel.library.scanner import SKIPPED_FOLDERS
from satchel.skill.document import MANIFEST
from satchel.skill.file_tree import LIMITS
from satchel.store.archive.rules import (
    ListedTree,
    TreeNames,
    check_path,
    ignored_part,
    refuse,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
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


class Address(NamedTuple):
    """A repository's address."""

    clean: str
    """Without secrets: for the lockfile, messages and git's arguments."""
    user: str = ""
    """The user name; a part of `clean` where it is not secret, as in `ssh://git@…`."""
    password: str | None = None
    """None when there is none; an empty one may follow a token."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not be shown: plain and percent-encoded."""
        plain = self.password is not None or self.clean.startswith("ssh:")
        word = self.password if plain else self.user  # a user without a password is a token
        return tuple(dict.fromkeys((word, quote(word, safe="")))) if word else ()

    @property
    def site(self) -> str:
        """The site that the user name and the password are for."""
        parts = urlsplit(self.clean)
        return f"{parts.scheme}://{parts.netloc}"


def parse_address(text: str, whole: str = "") -> Address:
    """Check an address and split the secrets off. A local path is returned unchanged.

    A query is refused: a secret in it would be visible in the arguments of git.

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
        return Address(text)
    if _SCP.match(text):
        return Address(text)
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
    user = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    plain = scheme == "ssh" and bool(user) and password is None
    if user is not None and not plain and "@" in parts.path:
        # A password with a `/` ends the host part early: the rest of it would be shown.
        raise refuse("git-address", refused, say("write `/` and `@` in a password as %2F and %40"))
    if not f"{user}{password}".isprintable() or (user or "").startswith("-"):
        raise refuse("git-address", refused)
    keep = f"{parts.username}@" if scheme == "ssh" and parts.username else ""
    place = f"{keep}{written}" + (f":{port}" if port is not None else "")
    return Address(urlunsplit((scheme, place, parts.path, "", "")), user or "", password)


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
        raise NotFound(
            say("There is no `{path}`", path=shown(path)),
            say("Check the path"),
        )
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
    from satchel.skill.header import scan_header
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
        raise NotFound(
            say("There is no `{path}`", path=shown(path)),
            say("Check the path"),
        )
    return SubTree(tree, path, own, limits)


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
        expansion = Expansion(kept, self._target, limits)
        self._origin = expansion.origin
        self.files = self._checked(expansion.files, limits)
        self.ignored = tuple(ignored)
        self.notes = tuple(self._notes(expansion.copied))

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content of a file, piece by piece."""
        return self._tree.chunks(self._start + self._origin.get(path, path))

    def _target(self, file: TreeFile) -> str:
        if file.size > 4096:
            raise refuse("link-broken", file.path)
        return os.fsdecode(b"".join(self._tree.chunks(self._start + file.path)))

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

    def _notes(self, copied: dict[str, str]) -> Iterator[str]:
        if self.ignored:
            yield say(
                "Left out: {names}", names=join_names(f"`{shown(one)}`" for one in self.ignored)
            )
        for link, target in copied.items():
            yield say(
                "The link `{link}` became a copy of `{target}`",
                link=shown(link),
                target=shown(target),
            )


_MAX_LINK_HOPS = 40


class Expansion:
    """The files of a skill, each link replaced by a copy of its target."""

    def __init__(
        self, files: Iterable[TreeFile], target_of: Callable[[TreeFile], str], limits: TreeLimits
    ) -> None:
        self._limits = limits
        self._plain = {file.path: file for file in files if file.mode != "link"}
        links = [file for file in files if file.mode == "link"]
        self._links = {file.path: target_of(file) for file in links}
        self._folders: dict[str, dict[str, None]] = {}
        self.files: list[TreeFile] = list(self._plain.values())
        self.origin: dict[str, str] = {}
        """Path of a copy -> path of the original."""
        self.copied: dict[str, str] = {}
        """Link -> target, for notes."""
        if links:
            for path in (*self._plain, *self._links):
                folder, _, last = path.rpartition("/")
                while last not in (inside := self._folders.setdefault(folder, {})):
                    inside[last] = None
                    if not folder:
                        break
                    folder, _, last = folder.rpartition("/")
        for link in sorted(self._links):
            self.copied[link] = self._resolve(link)
            self._copy(link, link, ())

    def _copy(self, link: str, name: str, active: tuple[str, ...]) -> None:
        """Add the target of `link` as `name`."""
        if link in active or len(active) > self._limits.depth:
            raise refuse("link-loop", link)
        target = self._resolve(link)
        if not target or link.startswith(f"{target}/"):
            raise refuse("link-loop", link)
        self._place(target, name, (*active, link))

    def _place(self, target: str, name: str, active: tuple[str, ...]) -> None:
        if target in self._plain:
            if len(self.files) >= self._limits.files:
                raise refuse("too-many-files", name, str(self._limits.files))
            self.files.append(self._plain[target]._replace(path=name))
            self.origin[name] = target
        elif target in self._links:
            self._copy(target, name, active)
        elif name.count("/") > self._limits.depth:
            raise refuse("path-too-deep", name)
        else:
            for last in self._folders[target]:
                self._place(f"{target}/{last}", f"{name}/{last}", active)

    def _resolve(self, link: str) -> str:
        """The final target of a link; empty for the skill's own folder."""
        here: list[str] = link.split("/")[:-1]
        todo = self._steps(link)
        hops = 1
        while todo:
            part = todo.pop()
            if part == "..":
                if not here:
                    raise refuse("link-escapes", link, self._links[link])
                here.pop()
                continue
            path = "/".join((*here, part))
            if path in self._links:
                hops += 1
                if hops > _MAX_LINK_HOPS:
                    raise refuse("link-loop", link)
                todo += self._steps(path)
                continue
            if path not in self._folders and (todo or path not in self._plain):
                raise refuse("link-broken", link, self._links[link])
            here.append(part)
        return "/".join(here)

    def _steps(self, link: str) -> list[str]:
        """The parts of a link's text, last one first."""
        text = self._links[link]
        if text.startswith(("/", "\\")) or "\0" in text or text[1:2] == ":":
            raise refuse("link-escapes", link, text)
        return [part for part in text.split("/") if part not in {"", "."}][::-1]
