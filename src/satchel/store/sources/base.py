"""The Source protocol, and the files of one skill in a source.

A `Source` is an address. Fetching it gives a `Bundle`: all its files as one tree, and the
`LockedSource` for the lockfile. Nothing is written to the skills folder. `subtree` checks the files
of one skill: names, size limits, and links, which become copies of files inside the skill or are
refused.
"""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING, NamedTuple, Protocol

from satchel.errors import NotFound
from satchel.i18n import join_names, say
from satchel.skill.file_tree import LIMITS, VERSION_CONTROL, find_repository
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
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from satchel.library.lockfile import LockedSource
    from satchel.skill.file_tree import Tree, TreeFile, TreeLimits

_LFS_PREFIX = b"version https://git-lfs.github.com/spec/"
_LFS_POINTER_BYTES = range(100, 1025)
"""Sizes of the files that Git LFS puts in place of others."""


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
    news: tuple[str, ...] = ()
    """Those of the notes that the user must see even if no file is new."""

    def place_of(self, path: str) -> LockedSource:
        """Return the source of one skill for the lockfile.

        Args:
            path: The folder of the skill within the source.
        """
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

    def locked(
        self,
        source: LockedSource,
        *,
        base: str,
        find_kept: Callable[[str], Tree | None] | None = None,
    ) -> Source:
        """The source of a lockfile entry; `find_kept` as in `source_from`."""
        ...

    def refuse_revoked(self, source: LockedSource, tree: str, *, base: str) -> None:
        """Refuse locked content that its hub revoked; a hub that does not answer is passed over."""
        ...

    def revoked(self, source: LockedSource, *, base: str) -> Mapping[str, str]:
        """The digests that the hub of a lockfile entry revoked, with the reasons."""
        ...


def files_below(tree: Tree, path: str) -> tuple[TreeFile, ...]:
    """Return the files of a folder; all when the path is empty."""
    if isinstance(tree, ListedTree):
        return tree.below(path)
    prefix = f"{path}/" if path else ""
    return tuple(file for file in tree.files if file.path.startswith(prefix))


def subtree(tree: Tree, path: str = "", limits: TreeLimits = LIMITS) -> SubTree:
    """Return the files of one skill, with paths relative to its folder.

    Raises:
        Unsafe: something in it breaks a rule.
        NotFound: there is nothing at `path`.
    """
    path = path.strip("/")
    prefix_size = len(path) + 1 if path else 0
    if isinstance(tree, ListedTree):
        for blocked_path, rule in tree.blocked.items():
            if not path or blocked_path == path or blocked_path.startswith(f"{path}/"):
                raise refuse(rule, blocked_path)
    files = [file._replace(path=file.path[prefix_size:]) for file in files_below(tree, path)]
    if not files:
        raise NotFound(say("There is no `{path}`", path=shown(path)), say("Check the path"))
    if repository := find_repository(_paths_below(tree, path, files)):
        raise refuse("repository", f"{path}/{repository}" if path else repository)
    return SubTree(tree, path, files, limits)


def _paths_below(tree: Tree, path: str, files: list[TreeFile]) -> Iterator[str]:
    """Yield the relative paths of all files below a folder, also of those that are left out.

    What is in a `.git` of the folder itself is skipped, where the user works on a checkout.
    """
    may_be_checkout = True
    paths = [file.path for file in files]
    if isinstance(tree, ListedTree):
        may_be_checkout = tree.may_be_checkout
        prefix = f"{path}/" if path else ""
        paths += [
            ignored_path.removeprefix(prefix)
            for ignored_path in tree.ignored
            if ignored_path.startswith(prefix)
        ]
    for relative_path in paths:
        if not may_be_checkout or relative_path.partition("/")[0] not in VERSION_CONTROL:
            yield relative_path


class SubTree:
    """The files of one skill in a larger tree: checked, within the limits, links resolved."""

    def __init__(self, tree: Tree, path: str, files: list[TreeFile], limits: TreeLimits) -> None:
        self._tree = tree
        self._prefix = f"{path}/" if path else ""
        self._names = TreeNames()
        included: list[TreeFile] = []
        ignored: dict[str, None] = {}
        for file in files:
            part = ignored_part(file.path)
            if part:
                ignored[part] = None
            else:
                included.append(file)
        self._link_targets: dict[str, str] = {}
        """Path of a link -> path of the file that it leads to."""
        self.files = self._check_files(self._copy_linked(included), limits)
        self.ignored = tuple(ignored)
        self.notes = tuple(self._make_notes())

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content of a file, piece by piece."""
        return self._tree.chunks(self._prefix + self._link_targets.get(path, path))

    def _copy_linked(self, files: list[TreeFile]) -> list[TreeFile]:
        """Return the files, each link replaced by a copy of the file that it leads to."""
        plain_files = {file.path: file for file in files if file.mode != "link"}
        for link in (file for file in files if file.mode == "link"):
            link_text = ""
            if link.size <= MAX_PATH_BYTES:
                link_text = os.fsdecode(b"".join(self._tree.chunks(self._prefix + link.path)))
            target = posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link_text))
            if target not in plain_files:
                raise refuse("link-escapes", link.path, link_text)
            self._link_targets[link.path] = target
        copies = [
            plain_files[target]._replace(path=link) for link, target in self._link_targets.items()
        ]
        return [*plain_files.values(), *copies]

    def _check_files(self, files: list[TreeFile], limits: TreeLimits) -> tuple[TreeFile, ...]:
        """Check names and sizes; returns the files in the order of their paths."""
        total = 0
        for count, file in enumerate(files, 1):
            check_path(file.path)
            self._names.add(file.path)
            total += file.size
            if count > limits.files:
                raise refuse("too-many-files", self._prefix or file.path, str(limits.files))
            if total > limits.size:
                raise refuse("too-large", file.path, f"{limits.size >> 20} MiB")
            if file.path.count("/") > limits.depth:
                raise refuse("path-too-deep", file.path)
        return tuple(sorted(files, key=lambda file: os.fsencode(file.path)))

    def _make_notes(self) -> Iterator[str]:
        for file in self.files:
            if file.size not in _LFS_POINTER_BYTES:
                continue
            if next(self.chunks(file.path), b"").startswith(_LFS_PREFIX):
                text = "`{path}` is a pointer of Git LFS: its content is not part of the source"
                yield say(text, path=shown(file.path))
        if self.ignored:
            yield say(
                "Left out: {names}", names=join_names(f"`{shown(path)}`" for path in self.ignored)
            )
        for link, target in self._link_targets.items():
            yield say(
                "The link `{link}` became a copy of `{target}`",
                link=shown(link),
                target=shown(target),
            )
