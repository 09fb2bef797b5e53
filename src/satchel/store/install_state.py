"""Installed skills, compared with the lockfile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.errors import SatchelError
from satchel.library.integrity import generated
from satchel.skill.file_tree import FolderTree, TreeDigest, digest_of, hash_tree
from satchel.store.signing import check_signature
from satchel.store.trees import HashedTree

if TYPE_CHECKING:
    from satchel.library.lockfile import LockEntry
    from satchel.store.workdir import Scope


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
