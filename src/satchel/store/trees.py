"""File trees and the digests that travel with them.

A folder is hashed once while a change is planned. `PathState` keeps the digest together with the
stat values of the files at that moment. While those are equal the digest is valid, and nothing is
read again; otherwise `has_changed` hashes the folder and compares digests.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import SatchelError
from satchel.library.fingerprint import is_settled, list_stamps
from satchel.skill.file_tree import FolderTree, MemoryTree, hash_tree, read_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from satchel.library.fingerprint import Survey
    from satchel.skill.file_tree import Tree, TreeDigest

NO_DIGEST = "unsealed"
"""The digest of a file, or of a folder that cannot be hashed. Part of the journal's format."""


class HashedTree:
    """A tree whose digest is computed at most once."""

    def __init__(self, tree: Tree, fingerprint: TreeDigest | None = None) -> None:
        """Wrap a tree; files that a given fingerprint lacks are left out."""
        self._tree = tree
        self._fingerprint = fingerprint
        self.files = tree.files
        if fingerprint is not None:
            self.files = tuple(file for file in tree.files if file.path in fingerprint.files)

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content of a file, piece by piece."""
        return self._tree.chunks(path)

    @property
    def fingerprint(self) -> TreeDigest:
        """The digests of the files and of the whole tree."""
        if self._fingerprint is None:
            self._fingerprint = hash_tree(self._tree)
        return self._fingerprint

    @property
    def digest(self) -> str:
        """The digest of the whole tree."""
        return self.fingerprint.digest


def digest_tree(tree: Tree) -> TreeDigest:
    """The digests of a tree; it is not read when it carries them."""
    return tree.fingerprint if isinstance(tree, HashedTree) else hash_tree(tree)


def copy_tree(tree: Tree, changes: Mapping[str, bytes] | None = None) -> MemoryTree:
    """Read a tree into memory; `changes` are files that are replaced or added."""
    modes = {file.path: file.mode for file in tree.files}
    content = {path: read_whole(tree, path) for path in modes}
    copy = MemoryTree({**content, **(changes or {})})
    copy.files = tuple(file._replace(mode=modes.get(file.path, "file")) for file in copy.files)
    return copy


class PathState(NamedTuple):
    """The content of a path at one moment."""

    digest: str
    """A tree's digest, `link:…`, `NO_DIGEST`, or empty when nothing is there."""
    fingerprint: TreeDigest | None = None
    """Of a folder that was hashed."""
    rows: Survey | None = None
    """Stat values of its files. None when a file changed so recently that a further change might
    not show in them."""


def state_at(path: str) -> PathState:
    """Hash what is at a path.

    Raises:
        OSError: it cannot be read. That never counts as nothing at the path.
    """
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return PathState("link:" + os.readlink(path))
        if not stat.S_ISDIR(mode):
            return PathState(NO_DIGEST)
        started_ns = time.time_ns()
        rows = list_stamps(path)  # before hashing: a file that changes later differs from its row
        tree_digest = hash_tree(FolderTree(path))
        return PathState(
            tree_digest.digest, tree_digest, rows if is_settled(rows, started_ns) else None
        )
    except (FileNotFoundError, NotADirectoryError):
        # It is not there, or is being changed right now.
        return PathState(NO_DIGEST if os.path.lexists(path) else "")
    except SatchelError:
        return PathState(NO_DIGEST)


def digest_at(path: str) -> str:
    """The digest of what is at a path; see `PathState.digest`."""
    return state_at(path).digest


def has_changed(path: str, state: PathState) -> bool:
    """Whether a path holds something else than it did.

    Raises:
        OSError: it cannot be read.
    """
    if state.rows is not None and not os.path.islink(path):
        with suppress(OSError, SatchelError):
            if list_stamps(path) == state.rows:
                return False
    return digest_at(path) != state.digest
