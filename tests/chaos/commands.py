"""The operations as the commands do them: `Store`, with sources, scans, bases and trust.

A version of a skill is a text that says how it came about, and so what it looks like:

    add beta 3              made here
    import alpha 12         from a source, in its version 12
    import alpha 12 > beta  the same after it was renamed
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from chaos import works
from satchel import Satchel
from satchel.errors import SatchelError
from satchel.library.ownership import load_or_create_key
from satchel.library.trust_store import TrustStore
from satchel.skill.file_tree import MemoryTree, hash_tree

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from satchel.store.store import Store
    from satchel.store.workdir import Scope

STATE = "state"
SOURCES = "sources"
OPS = ("add", "import", "update", "remove", "rename")


@contextmanager
def at_home(project: str) -> Iterator[Satchel]:
    """The skills of a project, for a user whose state folder is in it."""
    before = os.environ.get("SATCHEL_HOME")
    os.environ["SATCHEL_HOME"] = os.path.join(project, STATE)
    try:
        yield Satchel.for_project(project, builtin=False, trace="off", trust="ask")
    finally:
        if before is None:
            del os.environ["SATCHEL_HOME"]
        else:
            os.environ["SATCHEL_HOME"] = before


def store_of(project: str) -> Store:
    with at_home(project) as satchel:
        return satchel.store()


def scope_of(project: str) -> Scope:
    return store_of(project).scope


def make_key(project: str) -> None:
    """As a user has it who used Satchel before."""
    load_or_create_key(scope_of(project).marks)


def imported(skill: str, version: int) -> str:
    return f"import {skill} {version}"


def renamed(version: str, new: str) -> str:
    return f"{version.partition(' > ')[0]} > {new}"


@cache
def digest_of(skill: str, version: str) -> str:
    """What a skill of this version consists of."""
    if not version:
        return ""
    found = re.fullmatch(r"(add|import) (\S+) (\d+)(?: > (\S+))?", version)
    assert found is not None, version
    op, origin, number, name = found.groups()
    if op == "add":
        with tempfile.TemporaryDirectory() as scratch:
            store = store_of(scratch)
            with store.plan_add(origin, *_words(int(number))) as plan:
                assert plan.steps[0].tree_digest is not None
                staged = plan.steps[0].staged
                with open(os.path.join(staged, "SKILL.md"), "rb") as stream:
                    files = {"SKILL.md": stream.read()}
        programs: frozenset[str] = frozenset()
    else:
        files = works.content(origin, int(number))
        programs = frozenset((works.SCRIPT,))
    if name:
        text = files["SKILL.md"]
        files["SKILL.md"] = text.replace(
            b"name: %s\n" % origin.encode(), b"name: %s\n" % name.encode()
        )
    return hash_tree(MemoryTree(files, programs)).digest


def locked(skill: str, version: str) -> str:
    # What is made here is not locked: there is nothing to update it from.
    return "" if not version or version.startswith("add") else digest_of(skill, version)


def _words(number: int) -> tuple[str, str]:
    return "Tests. Use it for tests.", f"version {number}"


def ready(project: str, op: str, changes: works.Changes) -> None:
    """Write the source that an import or update reads."""
    if op not in ("import", "update"):
        return
    for skill, version in changes.items():
        folder = os.path.join(project, SOURCES, skill)
        # Anew: the files of a model project are linked, not copied.
        shutil.rmtree(folder, ignore_errors=True)
        for path, data in works.content(skill, int(version.split()[2])).items():
            full = os.path.join(folder, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as stream:
                stream.write(data)
            os.chmod(full, 0o755 if path == works.SCRIPT else 0o644)


def do(project: str, op: str, changes: works.Changes) -> None:
    """What the command of that name does."""
    store = store_of(project)
    if op == "undo":
        store.undo()
        return
    gone = [skill for skill, version in changes.items() if not version]
    skill = next((skill for skill, version in changes.items() if version), "")
    if op == "add":
        plan = store.plan_add(skill, *_words(int(changes[skill].split()[2])))
    elif op == "import":
        plan = store.plan_import(os.path.join(project, SOURCES, skill))
    elif op == "update":
        plan = store.plan_update([skill])
    elif op == "rename":
        plan = store.plan_rename(gone[0], skill)
    else:
        plan = store.plan_remove(gone)
    with plan:
        store.require_complete(plan)
        store.apply(plan)


def choose(chance: random.Random, state: works.Changes, version: int) -> tuple[str, works.Changes]:
    """What to do next."""
    there = [skill for skill, now in sorted(state.items()) if now]
    absent = [skill for skill, now in sorted(state.items()) if not now]
    pristine = [skill for skill in there if re.fullmatch(r"import \S+ \d+", state[skill])]
    op = chance.choice(OPS)
    if op == "update" and pristine:
        skill = chance.choice(pristine)
        return op, {skill: imported(skill, version)}
    if op == "remove" and len(there) > 1:
        return op, {chance.choice(there): ""}
    if op == "rename" and there and absent:
        old, new = chance.choice(there), chance.choice(absent)
        return op, {old: "", new: renamed(state[old], new)}
    if not absent:
        return "remove", {chance.choice(there): ""}
    skill = chance.choice(absent)
    if op == "add":
        return op, {skill: f"add {skill} {version}"}
    return "import", {skill: imported(skill, version)}


def look(project: str, state: works.Changes) -> list[str]:
    """Whether the trust file can be read, and every skill can be loaded as it is."""
    harm: list[str] = []
    with at_home(project) as satchel:
        try:
            TrustStore(os.path.join(satchel.settings.paths.state, "trust.json")).read()
            tools = satchel.tools()
            for skill, version in state.items():
                if not version:
                    continue
                reply = tools.call("Skill", {"name": skill})
                number = re.split(r" ", version)[2]
                if reply.error is not None:
                    harm.append(
                        f"`{skill}` cannot be loaded: {reply.error.code} {reply.text[:200]}"
                    )
                elif f"version {number}" not in reply.text:
                    harm.append(f"`{skill}` is loaded as something else than {version}")
        except SatchelError as exc:
            harm.append(exc.message)
    return harm


def rehearse(project: str) -> None:
    """Everything once, so that whatever is imported is imported."""
    state: works.Changes = dict.fromkeys(("warm", "cold"), "")
    for op, changes in (
        ("import", {"warm": imported("warm", 1)}),
        ("update", {"warm": imported("warm", 2)}),
        ("rename", {"warm": "", "cold": renamed(imported("warm", 2), "cold")}),
        ("remove", {"cold": ""}),
        ("add", {"warm": "add warm 3"}),
    ):
        ready(project, op, changes)
        do(project, op, changes)
        state.update(changes)
        assert look(project, state) == []
    do(project, "undo", {})
