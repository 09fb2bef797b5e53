"""What is done to skills while things go wrong: the ways of writing, and the skills themselves.

Each way is a function `(project, op, skill, version) -> None` that returns when the change is
acknowledged. `transactions` is Satchel's; `in_place` is how it must not be done, and is there to
show that the checks can fail.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from typing import TYPE_CHECKING

from satchel.errors import Conflict
from satchel.library.lockfile import Locked, Place, read_lock, render_lock
from satchel.skill.tree import FolderTree, MemoryTree, seal
from satchel.store.history import undo
from satchel.store.scope import Scope
from satchel.store.transaction import Change, commit, present, stage
from satchel.store.trouble import unchanged

if TYPE_CHECKING:
    from satchel.library.lockfile import Lock
    from satchel.skill.tree import Seal

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


_seals: dict[tuple[str, int], Seal] = {}


def seal_of(skill: str, version: int) -> Seal:
    key = skill, version
    if key not in _seals:
        _seals[key] = seal(tree_of(skill, version))
    return _seals[key]


def digest_of(skill: str, version: int) -> str:
    """The digest of a version; none of no version."""
    return seal_of(skill, version).digest if version else ""


def entry_of(skill: str, found: Seal) -> Locked:
    return Locked(skill, skill, Place("folder", "../source"), "MIT", found.digest, found.files)


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

        commit(scope, None, [Change(skill, "", before, "")], relock=without, op=op, summary=skill)
        return
    with stage(scope) as here:
        found = here.write_tree(skill, tree_of(skill, version))
        base = os.path.join(here.path, f"{found.digest[7:]}.zip")
        with unchanged(base), open(base, "wb") as stream:
            stream.write(b"the pristine content of %d" % version)

        def relock(lock: Lock) -> Lock:
            return {**lock, skill: entry_of(skill, found)}

        change = Change(skill, here.folder(skill), before, found.digest)
        bases = {found.digest[7:]: base}
        commit(scope, here, [change], relock=relock, op=op, summary=skill, bases=bases)


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


WAYS = {"transactions": transactions, "in_place": in_place}


def choose(chance: random.Random, state: dict[str, int], version: int) -> tuple[str, str, int]:
    """What to do next: an operation, a skill, and the version it will have (0 for none)."""
    op = chance.choice(OPS)
    there = [skill for skill, now in sorted(state.items()) if now]
    absent = [skill for skill, now in sorted(state.items()) if not now]
    if op in ("add", "import") and absent:
        return op, chance.choice(absent), version
    if op == "remove" and len(there) > 1:
        return op, chance.choice(there), 0
    return ("update", chance.choice(there), version) if there else ("add", absent[0], version)


def dump(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
