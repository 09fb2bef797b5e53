"""Installed skills, compared with the lockfile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.errors import SatchelError
from satchel.library.generated_files import find_generated_files
from satchel.skill.file_tree import FolderTree, TreeDigest, hash_tree
from satchel.store.merge import find_marked_files

if TYPE_CHECKING:
    from satchel.library.lockfile import LockEntry
    from satchel.store.workdir import Scope

State = Literal["intact", "modified", "missing", "unlocked", "unreadable"]


def changed_files(before: TreeDigest, after: TreeDigest) -> tuple[list[str], list[str], list[str]]:
    """The paths that were added, removed and changed between two versions."""
    added = [path for path in after.files if path not in before.files]
    removed = [path for path in before.files if path not in after.files]
    changed = [
        path for path, digest in after.files.items() if before.files.get(path, digest) != digest
    ]
    return added, removed, changed


class InstallState(NamedTuple):
    """An installed skill, compared with its lockfile entry."""

    id: str
    """The id of the skill."""
    state: State
    """`modified`: differs from the lockfile. `unlocked`: has no entry."""
    entry: LockEntry | None = None
    """Its lockfile entry; None without one."""
    tree_digest: TreeDigest | None = None
    """The content on disk without generated files."""
    added: tuple[str, ...] = ()
    """Paths of files that are not locked."""
    removed: tuple[str, ...] = ()
    """Paths of locked files that are missing."""
    changed: tuple[str, ...] = ()
    """Paths of files with another content."""
    generated: tuple[str, ...] = ()
    """Caches, which are removed before the next load."""
    reason: str = ""
    """Why it is `unreadable`."""
    revoked: str = ""
    """Why its hub revoked it, as far as is known here."""
    marked: tuple[str, ...] = ()
    """Paths of files with conflict marks."""

    @property
    def drifted(self) -> bool:
        """Whether it is not what was locked, or must not be used any more."""
        is_changed = self.state in ("modified", "missing", "unreadable")
        return is_changed or bool(self.revoked or self.marked)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        entry = self.entry
        return {
            "id": self.id,
            "state": self.state,
            "tree": self.tree_digest.digest if self.tree_digest is not None else None,
            "locked": entry.tree if entry is not None else None,
            "source": entry.place._asdict() if entry is not None else None,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": list(self.changed),
            "generated": list(self.generated),
            "reason": self.reason or None,
            "revoked": self.revoked or None,
            "marked": list(self.marked),
        }


def verify_skill(scope: Scope, entry: LockEntry | None, skill_id: str) -> InstallState:
    """Compare one installed skill with its lockfile entry."""
    folder = scope.target(skill_id)
    if not os.path.lexists(folder):
        return InstallState(skill_id, "missing", entry)
    try:
        installed = hash_tree(FolderTree(folder))
    except (SatchelError, OSError) as exc:
        return InstallState(skill_id, "unreadable", entry, reason=str(exc).split("\n", 1)[0])
    locked = entry.files if entry is not None else {}
    generated_paths = tuple(find_generated_files(installed.files, locked, folder))
    installed = installed.without(generated_paths)
    is_intact = entry is not None and installed.digest == entry.tree
    marked = () if is_intact else find_marked_files(FolderTree(folder))
    if entry is None:
        return InstallState(
            skill_id, "unlocked", None, installed, generated=generated_paths, marked=marked
        )
    added, removed, changed = changed_files(TreeDigest(entry.tree, entry.files), installed)
    return InstallState(
        id=skill_id,
        state="intact" if is_intact else "modified",
        entry=entry,
        tree_digest=installed,
        added=tuple(added),
        removed=tuple(removed),
        changed=tuple(changed),
        generated=generated_paths,
        marked=marked,
    )
