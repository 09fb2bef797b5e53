"""Skills to change while things go wrong, and bare transactions, without scan and trust."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

from satchel.errors import Conflict
from satchel.library.lockfile import LockedSource, LockEntry
from satchel.skill.file_tree import MemoryTree, hash_tree
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.journal import SkillChange
from satchel.store.staging import StagingFolder
from satchel.store.transaction import PendingChange, commit
from satchel.store.trees import digest_at
from satchel.store.undo import undo
from satchel.store.workdir import Scope

if TYPE_CHECKING:
    from satchel.library.lockfile import Lock
    from satchel.skill.file_tree import TreeDigest

SCRIPT = "scripts/run.sh"
OPS = ("add", "import", "update", "remove")


def scope_of(project: str) -> Scope:
    return Scope("project", os.path.join(project, ".agents", "skills"), project)


def content(skill: str, version: int) -> dict[str, bytes]:
    """The files of one version: every one carries its number."""
    chance = random.Random(f"{skill} {version}")
    files = {
        "SKILL.md": f"---\nname: {skill}\ndescription: Tests.\n---\nversion {version}\n".encode(),
        SCRIPT: f"#!/bin/sh\n# version {version}\n".encode(),
        "data/table.bin": b"version %d\n" % version + chance.randbytes(chance.randrange(40_000)),
    }
    for number in range(chance.randrange(6)):
        files[f"references/{number}.md"] = f"version {version}\n".encode() * 20
    return files


def tree_of(skill: str, version: int) -> MemoryTree:
    return MemoryTree(content(skill, version), frozenset((SCRIPT,)))


_digests: dict[tuple[str, int], TreeDigest] = {}


def seal_of(skill: str, version: int) -> TreeDigest:
    key = skill, version
    if key not in _digests:
        _digests[key] = hash_tree(tree_of(skill, version))
    return _digests[key]


def digest_of(skill: str, version: int) -> str:
    """The digest of a version; none of no version."""
    return seal_of(skill, version).digest if version else ""


def entry_of(skill: str, found: TreeDigest) -> LockEntry:
    return LockEntry(
        skill, skill, LockedSource("folder", "../source"), "MIT", found.digest, found.files
    )


def present(scope: Scope, skill: str) -> str:
    """The digest of what is in a skill's place."""
    return digest_at(scope.target(skill))


def transactions(project: str, op: str, skill: str, version: int) -> None:
    """Move the folders of a skill as the store does."""
    scope = scope_of(project)
    if op == "undo":
        undo(scope)
        return
    before = present(scope, skill)
    if op == "remove":
        if not before:
            raise Conflict(f"`{skill}` is gone")

        def without(lock: Lock) -> Lock:
            return {name: entry for name, entry in lock.items() if name != skill}

        commit(scope, PendingChange(op, skill, [SkillChange(skill, "", before, "")], without))
        return
    with StagingFolder(scope) as here:
        found = here.write_tree(skill, tree_of(skill, version))
        base = os.path.join(here.path, f"{found.digest[7:]}.zip")
        with disk_errors_as_refusal(base), open(base, "wb") as stream:
            stream.write(b"the pristine content of %d" % version)

        def relock(lock: Lock) -> Lock:
            return {**lock, skill: entry_of(skill, found)}

        change = SkillChange(skill, here.folder(skill), before, found.digest)
        bases = {found.digest[7:]: base}
        commit(scope, PendingChange(op, skill, [change], relock, bases), here)


Changes = dict[str, Any]
"""Skill -> the version that it will have; empty for none."""


def dump(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
