"""What is done to skills while things go wrong: the ways of writing, and the skills themselves.

A way does an operation and returns when the change is acknowledged. `store` (`commands.py`) is what
the commands do. `transactions` is the part of it that moves folders, quicker and without scan and
trust. `in_place` is how it must not be done, and is there to show that the checks can fail.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import Conflict
from satchel.library.lockfile import LockedSource, LockEntry, read_lock, render_lock
from satchel.skill.file_tree import FolderTree, MemoryTree, hash_tree
from satchel.store.disk_errors import disk_errors_as_refusal
from satchel.store.journal import SkillChange
from satchel.store.staging import StagingFolder
from satchel.store.transaction import PendingChange, commit
from satchel.store.trees import digest_at
from satchel.store.undo import undo
from satchel.store.workdir import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Satchel's own way."""
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


def in_place(project: str, op: str, skill: str, version: int) -> None:
    """As many tools do it: over the old files, then the lockfile. The negative control."""
    scope = scope_of(project)
    target = scope.target(skill)
    lock = read_lock(scope.lock)
    if op == "remove":
        shutil.rmtree(target)
        lock.pop(skill, None)
    else:
        found = seal_of(skill, version)
        for path in set(_files(target)) - set(found.files):
            os.unlink(os.path.join(target, path))
        for path, data in content(skill, version).items():
            full = os.path.join(target, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(full, 0o755 if path == SCRIPT else 0o644)
        lock[skill] = entry_of(skill, found)
    with open(scope.lock, "wb") as stream:
        stream.write(render_lock(lock))
        os.fsync(stream.fileno())


def _files(folder: str) -> list[str]:
    return [file.path for file in FolderTree(folder).files] if os.path.isdir(folder) else []


Changes = dict[str, Any]
"""Skill -> the version that it will have, 0 for none. What a version is, the way knows."""


class Way(NamedTuple):
    """One way of writing."""

    do: Callable[[str, str, Changes], None]
    """Project, operation, changes: returns when they are acknowledged."""
    choose: Callable[[random.Random, Changes, int], tuple[str, Changes]]
    """What to do next, for what there is now."""
    digest: Callable[[str, Any], str]
    """Of a skill's version; empty of no version."""
    locked: Callable[[str, Any], str]
    """The digest in the lockfile."""
    scope: Callable[[str], Scope]
    ready: Callable[[str, str, Changes], None] = lambda _project, _op, _changes: None
    """Put what an operation needs in its place, such as the source; not part of the operation."""
    look: Callable[[str, Changes], list[str]] = lambda _project, _state: []
    """What else is wrong, when everything should be in order."""


def choose(chance: random.Random, state: Changes, version: int) -> tuple[str, Changes]:
    """What to do next."""
    op = chance.choice(OPS)
    there = [skill for skill, now in sorted(state.items()) if now]
    absent = [skill for skill, now in sorted(state.items()) if not now]
    if op in ("add", "import") and absent:
        return op, {chance.choice(absent): version}
    if op == "remove" and len(there) > 1:
        return op, {chance.choice(there): 0}
    return ("update", {chance.choice(there): version}) if there else ("add", {absent[0]: version})


def _one(do: Callable[[str, str, str, int], None]) -> Callable[[str, str, Changes], None]:
    def run(project: str, op: str, changes: Changes) -> None:
        for skill, version in changes.items():
            do(project, op, skill, version)

    return run


def ways() -> dict[str, Way]:
    """All of them, by name."""
    from chaos import commands

    return {
        "store": commands.WAY,
        "transactions": Way(_one(transactions), choose, digest_of, digest_of, scope_of),
        "in_place": Way(_one(in_place), choose, digest_of, digest_of, scope_of),
    }


def dump(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
