"""Is what is on disk what is locked? One answer for each skill, file by file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.errors import SatchelError
from satchel.library.seal import generated
from satchel.skill.tree import FolderTree, Seal, digest_of, seal
from satchel.store.merge import differing
from satchel.store.signing import check_signature

if TYPE_CHECKING:
    from satchel.library.lockfile import Locked
    from satchel.store.scope import Scope

State = Literal["intact", "edited", "missing", "unlocked", "unreadable"]


class Standing(NamedTuple):
    """How one skill stands against its lock."""

    id: str
    state: State
    """`edited`: other than what is locked. `unlocked`: made here, nothing to compare with."""
    entry: Locked | None = None
    seal: Seal | None = None
    """What is there, without what running it left behind."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    """Caches that running the skill left: removed before the next load."""
    reason: str = ""
    signature: str = "unsigned"
    """`unsigned`, `valid`, `unknown-signer` or `invalid`, checked now."""
    signer: str = ""
    """Who signed what is there now."""

    @property
    def drifted(self) -> bool:
        """Somebody should look."""
        return self.state in ("edited", "missing", "unreadable") or self.signature == "invalid"

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        entry = self.entry
        return {
            "id": self.id,
            "state": self.state,
            "tree": self.seal.digest if self.seal is not None else None,
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


def stand(scope: Scope, entry: Locked | None, skill_id: str = "") -> Standing:
    """Compare one skill with its entry."""
    skill_id = skill_id or (entry.id if entry is not None else "")
    folder = os.path.join(scope.folder, skill_id)
    if not os.path.lexists(folder):
        return Standing(skill_id, "missing", entry)
    try:
        tree = FolderTree(folder)
        here = seal(tree)
    except (SatchelError, OSError) as exc:
        return Standing(skill_id, "unreadable", entry, reason=str(exc).split("\n", 1)[0])
    locked = entry.files if entry is not None else {}
    left = tuple(path for path in here.files if path not in locked and generated(path, folder))
    if left:
        clean = {path: mark for path, mark in here.files.items() if path not in left}
        here = Seal(digest_of(clean), clean)
    signed = check_signature(tree, files=here.files)
    if entry is None:
        found = Standing(skill_id, "unlocked", None, here, generated=left)
    else:
        added, removed, changed = differing(Seal(entry.tree, entry.files), here)
        found = Standing(
            skill_id,
            "intact" if here.digest == entry.tree else "edited",
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
