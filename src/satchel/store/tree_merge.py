"""Three-way merges of skills, and the comparison of installed skills with the lockfile.

A merge has three versions of each file: the one that was installed (base), the one on disk (mine)
and the new one (theirs). Where one side changed, that side wins; where both changed different
lines, both are kept. Where both changed the same lines, the file is a conflict.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.errors import SatchelError
from satchel.library.integrity import generated
from satchel.skill.file_tree import FolderTree, TreeDigest, digest_of, hash_tree, read_whole
from satchel.store.signing import check_signature
from satchel.store.trees import ComposedTree, HashedTree, digest_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.library.lockfile import LockEntry
    from satchel.skill.file_tree import Mode, Tree
    from satchel.store.workdir import Scope

_MAX_MERGE_LINES = 4_000
"""The comparison is quadratic; a longer text that both sides changed is a conflict."""


class Merged(NamedTuple):
    """The result of a merge."""

    tree: Tree | None
    """None when there are conflicts."""
    conflicts: tuple[str, ...]
    """Files that both sides changed in the same lines, or that one side changed and one removed."""
    kept: tuple[str, ...]
    """Files with edits of the user."""


class _Side(NamedTuple):
    tree: Tree
    marks: dict[str, str]
    modes: dict[str, Mode]

    def content(self, path: str) -> bytes:
        return read_whole(self.tree, path)


def merge_trees(base: Tree, mine: Tree, theirs: Tree) -> Merged:
    """Merge the user's edits and an update."""
    sides = [
        _Side(tree, digest_tree(tree).files, {file.path: file.mode for file in tree.files})
        for tree in (base, mine, theirs)
    ]
    old, own, new = sides
    content: dict[str, tuple[bytes, Mode]] = {}
    conflicts: list[str] = []
    kept: list[str] = []
    for path in sorted({*old.marks, *own.marks, *new.marks}, key=os.fsencode):
        was, is_now, will_be = (side.marks.get(path) for side in sides)
        if is_now in (was, will_be):
            if will_be is not None:
                content[path] = new.content(path), new.modes[path]
        elif will_be == was:
            kept.append(path)
            if is_now is not None:
                content[path] = own.content(path), own.modes[path]
        else:
            kept.append(path)
            both = _both_changed(path, old, own, new)
            if both is None:
                conflicts.append(path)
                continue
            content[path] = both, _mode(path, old, own, new)
    if conflicts:
        return Merged(None, tuple(conflicts), tuple(kept))
    return Merged(ComposedTree(content), (), tuple(kept))


def _mode(path: str, old: _Side, own: _Side, new: _Side) -> Mode:
    """The mode of a merged file: the user's where the user changed it."""
    mine = own.modes[path]
    return mine if mine != old.modes.get(path, "file") else new.modes[path]


def _both_changed(path: str, old: _Side, own: _Side, new: _Side) -> bytes | None:
    """Merge one file that both sides changed; None for a conflict."""
    marks = [side.marks.get(path) for side in (old, own, new)]
    if marks[1] is None or marks[2] is None or any((m or "").startswith("link:") for m in marks):
        return None
    base = old.content(path) if marks[0] is not None else b""
    return merge_text(base, own.content(path), new.content(path))


def merge_text(base: bytes, mine: bytes, theirs: bytes) -> bytes | None:
    """Merge three versions of a text; None for a conflict, or when it is binary."""
    if b"\0" in base + mine + theirs:
        return None
    texts = [text.splitlines(keepends=True) for text in (base, mine, theirs)]
    if max(map(len, texts)) > _MAX_MERGE_LINES:
        return None
    merged: list[bytes] = []
    at = [0, 0, 0]
    for start, own, new, length in _common_runs(*texts):
        piece = _merge_run(texts[0][at[0] : start], texts[1][at[1] : own], texts[2][at[2] : new])
        if piece is None:
            return None
        merged += piece
        merged += texts[0][start : start + length]
        at = [start + length, own + length, new + length]
    return b"".join(merged)


def _merge_run(
    base: Sequence[bytes], mine: Sequence[bytes], theirs: Sequence[bytes]
) -> Sequence[bytes] | None:
    if mine in (base, theirs):
        return theirs
    return mine if theirs == base else None


def _common_runs(
    base: list[bytes], mine: list[bytes], theirs: list[bytes]
) -> Iterator[tuple[int, int, int, int]]:
    """Runs of lines common to all three: the start in each, and the length. Ends with the end."""
    from difflib import SequenceMatcher

    own = SequenceMatcher(None, base, mine, autojunk=False).get_matching_blocks()
    new = SequenceMatcher(None, base, theirs, autojunk=False).get_matching_blocks()
    first = second = 0
    while first < len(own) and second < len(new):
        here, there = own[first], new[second]
        start = max(here.a, there.a)
        end = min(here.a + here.size, there.a + there.size)
        if start < end:
            yield start, here.b + start - here.a, there.b + start - there.a, end - start
        if here.a + here.size < there.a + there.size:
            first += 1
        else:
            second += 1
    yield len(base), len(mine), len(theirs), 0


def changed_files(before: TreeDigest, after: TreeDigest) -> tuple[list[str], list[str], list[str]]:
    """The paths that were added, removed and changed between two versions."""
    added = [path for path in after.files if path not in before.files]
    removed = [path for path in before.files if path not in after.files]
    changed = [path for path, mark in after.files.items() if before.files.get(path, mark) != mark]
    return added, removed, changed


State = Literal["intact", "modified", "missing", "unlocked", "unreadable"]


class InstallState(NamedTuple):
    """An installed skill, compared with its lockfile entry."""

    id: str
    state: State
    """`modified`: differs from the lockfile. `unlocked`: has no entry."""
    entry: LockEntry | None = None
    tree_digest: TreeDigest | None = None
    """The content on disk without generated files."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    """Caches, which are removed before the next load."""
    reason: str = ""
    signature: str = "unsigned"
    """`unsigned`, `valid`, `unknown-signer` or `invalid`."""
    signer: str = ""

    @property
    def drifted(self) -> bool:
        """Whether it is not what was locked or signed."""
        return self.state in ("modified", "missing", "unreadable") or self.signature == "invalid"

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        entry = self.entry
        return {
            "id": self.id,
            "state": self.state,
            "tree": self.tree_digest.digest if self.tree_digest is not None else None,
            "locked": entry.tree if entry is not None else None,
            "source": entry.place._asdict() if entry is not None else None,
            "signature": self.signature,
            "signer": self.signer or None,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": list(self.changed),
            "generated": list(self.generated),
            "reason": self.reason or None,
        }


def verify_one(scope: Scope, entry: LockEntry | None, skill_id: str) -> InstallState:
    """Compare one installed skill with its lockfile entry."""
    folder = scope.target(skill_id)
    if not os.path.lexists(folder):
        return InstallState(skill_id, "missing", entry)
    try:
        tree = FolderTree(folder)
        here = hash_tree(tree)
    except (SatchelError, OSError) as exc:
        return InstallState(skill_id, "unreadable", entry, reason=str(exc).split("\n", 1)[0])
    locked = entry.files if entry is not None else {}
    left = tuple(path for path in here.files if path not in locked and generated(path, folder))
    if left:
        clean = {path: mark for path, mark in here.files.items() if path not in left}
        here = TreeDigest(digest_of(clean), clean)
    signed = check_signature(HashedTree(tree, here))
    if entry is None:
        found = InstallState(skill_id, "unlocked", None, here, generated=left)
    else:
        added, removed, changed = changed_files(TreeDigest(entry.tree, entry.files), here)
        found = InstallState(
            skill_id,
            "intact" if here.digest == entry.tree else "modified",
            entry,
            here,
            tuple(added),
            tuple(removed),
            tuple(changed),
            left,
        )
    return found._replace(
        signature=signed.state,
        signer=signed.identity,
        reason=signed.reason if signed.state == "invalid" else "",
    )
