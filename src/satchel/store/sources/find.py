"""Which skills does a source hold, and which files belong to one of them?

`subtree` is the last gate before anything is staged: the rules for names, the limits of one skill,
and links, which become copies of what they lead to inside the skill or are refused.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import listed, say
from satchel.errors import NotFound
from satchel.library.walk import SKIPPED
from satchel.skill.model import MANIFEST
from satchel.skill.tree import LIMITS
from satchel.store.archive.rules import Names, check_path, ignored_part, refuse, shown
from satchel.store.archive.tree import Listing
from satchel.store.sources.base import blocked_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from satchel.skill.tree import File, Limits, Tree

_FILE = "skill.md"
_RUNTIME = re.compile(rb"(?m)^runtime[ \t]*:")
"""How a skill.yaml is told from other files of that name."""
_HEAD = 256 << 10
_POINTER = b"version https://git-lfs.github.com/spec/"
_POINTER_SIZES = range(100, 1025)


class Found(NamedTuple):
    """One skill in a source."""

    path: str
    """Its folder within the source; empty at the top."""
    id: str
    """The folder it would be installed in."""
    name: str
    """As its frontmatter says, else the id."""
    file: str = "SKILL.md"
    """What its SKILL.md is called, since some write `skill.md`; `skill.yaml` of a tool skill."""
    description: str = ""
    """As its frontmatter says; empty when that cannot be read."""


def find_skills(tree: Tree, path: str = "", *, name: str = "") -> list[Found]:
    """The skills of a source, in the order of their paths.

    A SKILL.md in `path` itself: that one skill. Else every folder below it with a SKILL.md, but
    none inside another skill, and none where a library does not look either (`node_modules`). A
    folder with a skill.yaml alone counts too, unless skills with a SKILL.md lie below it.

    Args:
        tree: All files of the source.
        path: Where to look; it may be the SKILL.md or the skill.yaml itself.
        name: The id of a skill at the very top, which has no folder to be called after.

    Raises:
        NotFound: there is no such folder.
    """
    path = path.strip("/")
    last = path.rpartition("/")[2]
    if last.lower() == _FILE or last == MANIFEST:
        path = path.rpartition("/")[0]
    files = _below(tree, path)
    if path and not files:
        raise NotFound(
            say("There is no folder `{path}` in the source", path=shown(path)),
            say("Leave the path out to see which skills there are"),
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
        _found(tree, folder, folders[folder], name) for folder in sorted(_outermost(folders, path))
    ]


def _tool_skills(
    tree: Tree, tools: list[str], folders: dict[str, str], start: str
) -> dict[str, str]:
    """Folders that are skills by their skill.yaml alone."""
    around = {""}  # what has a skill somewhere below it
    for folder in folders:
        above = folder
        while above and above not in around:
            around.add(above)
            above = above.rpartition("/")[0]
    found: dict[str, str] = {}
    for folder in tools:
        if folder in folders or (folder in around and folders):
            continue
        data = _beginning(tree, f"{folder}/{MANIFEST}" if folder else MANIFEST)
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
        if SKIPPED.intersection(parts):
            continue
        while above:
            above = above.rpartition("/")[0]
            if above in folders and len(above) >= len(start):
                break
        else:
            yield folder


def _found(tree: Tree, folder: str, file: str, fallback: str) -> Found:
    from satchel.skill.head import quick_head
    from satchel.skill.interpret import slug
    from satchel.skill.load import read_head

    full = f"{folder}/{file}" if folder else file
    own = folder.rpartition("/")[2]
    data = _beginning(tree, full)
    stamp = (0, 0, len(data))
    if file == MANIFEST:
        head = read_head(data, own or slug(fallback), file, stamp)[0]
    else:
        head = quick_head(data, own, file, stamp) or read_head(data, own, file, stamp)[0]
    name = head.name if head else ""
    word = own or fallback or name
    about = head.description if head else ""
    return Found(folder, slug(word), name or slug(word), file, about)


def _beginning(tree: Tree, path: str) -> bytes:
    data = b""
    for chunk in tree.chunks(path):
        data += chunk
        if len(data) >= _HEAD:
            break
    return data[:_HEAD]


def _below(tree: Tree, path: str) -> tuple[File, ...]:
    if isinstance(tree, Listing):
        return tree.below(path)
    start = f"{path}/" if path else ""
    return tuple(file for file in tree.files if file.path.startswith(start))


def subtree(tree: Tree, path: str = "", limits: Limits = LIMITS) -> SubTree:
    """The files of one skill, with paths relative to its folder.

    Raises:
        Unsafe: something in it breaks a rule.
        NotFound: there is nothing at `path`.
    """
    path = path.strip("/")
    start = len(path) + 1 if path else 0
    for other, rule in blocked_paths(tree).items():
        if not path or other == path or other.startswith(f"{path}/"):
            raise refuse(rule, other)
    own = [file._replace(path=file.path[start:]) for file in _below(tree, path)]
    if not own:
        raise NotFound(
            say("There is no folder `{path}` in the source", path=shown(path)),
            say("Leave the path out to see which skills there are"),
        )
    return SubTree(tree, path, own, limits)


class SubTree:
    """The files of one skill in a larger tree: checked, within the limits, without links."""

    def __init__(self, tree: Tree, path: str, own: list[File], limits: Limits) -> None:
        self._tree = tree
        self._start = f"{path}/" if path else ""
        self._names = Names()
        kept: list[File] = []
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

    def _target(self, file: File) -> str:
        """Where a link leads, as it is written."""
        if file.size > 4096:
            raise refuse("link-broken", file.path)
        return os.fsdecode(b"".join(self._tree.chunks(self._start + file.path)))

    def _checked(self, files: list[File], limits: Limits) -> tuple[File, ...]:
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
            yield say("Left out: {names}", names=listed(f"`{shown(one)}`" for one in self.ignored))
        for link, target in copied.items():
            yield say(
                "The link `{link}` became a copy of `{target}`",
                link=shown(link),
                target=shown(target),
            )
        for file in self.files:
            if file.size in _POINTER_SIZES and self._is_pointer(file.path):
                yield say(
                    "`{path}` is a pointer of Git LFS: its content is not part of the source",
                    path=shown(file.path),
                )

    def _is_pointer(self, path: str) -> bool:
        return next(self.chunks(path), b"").startswith(_POINTER)


_MAX_HOPS = 40


class Expansion:
    """The files of a skill, each link replaced by what it leads to."""

    def __init__(
        self, files: Iterable[File], target_of: Callable[[File], str], limits: Limits
    ) -> None:
        self._limits = limits
        self._plain = {file.path: file for file in files if file.mode != "link"}
        links = [file for file in files if file.mode == "link"]
        self._links = {file.path: target_of(file) for file in links}
        self._folders: dict[str, dict[str, None]] = {}
        self.files: list[File] = list(self._plain.values())
        self.origin: dict[str, str] = {}
        """Copy -> the file it is a copy of."""
        self.copied: dict[str, str] = {}
        """Link -> where it leads; for people."""
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
        """Put what `link` leads to in place at `name`."""
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
        """The path a link finally leads to; empty for the skill's own folder."""
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
                if hops > _MAX_HOPS:
                    raise refuse("link-loop", link)
                todo += self._steps(path)
                continue
            if path not in self._folders and (todo or path not in self._plain):
                raise refuse("link-broken", link, self._links[link])
            here.append(part)
        return "/".join(here)

    def _steps(self, link: str) -> list[str]:
        """The parts of a link's text, the last one first."""
        text = self._links[link]
        if text.startswith(("/", "\\")) or "\0" in text or text[1:2] == ":":
            raise refuse("link-escapes", link, text)
        return [part for part in text.split("/") if part not in {"", "."}][::-1]
