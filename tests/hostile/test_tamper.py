"""One changed byte, anywhere: it must be noticed before anything of the skill reaches a model."""

from __future__ import annotations

import os
import random

import pytest

from satchel.library import Library, TrustStore
from satchel.library.lockfile import LockedSource, LockEntry, lock_path, render_lock
from satchel.settings import load_settings
from satchel.skill.file_tree import FolderTree, hash_tree
from satchel.testing import make_skill
from sizes import sized
from talking import session_over

pytestmark = pytest.mark.timeout(300)
FLIPS = sized(450, 9_000)
SKILLS = 12


def fill(folder: str, dice: random.Random) -> list[str]:
    """Write and lock some skills; returns their files that are not empty."""
    rows, files = {}, []
    for number in range(SKILLS):
        name = f"skill-{number:02d}"
        files.append(make_skill(folder, name, f"Does the {number} thing.", body="Steps.\n" * 9))
        for path, data in {
            "SKILL.sig": b"-----BEGIN SSH SIGNATURE-----\n" + dice.randbytes(120).hex().encode(),
            "scripts/run.py": b"import helper\nprint(helper.answer())\n",
            "references/notes.md": b"# Notes\n" + b"One more line.\n" * number,
            "assets/picture.bin": dice.randbytes(300),
        }.items():
            files.append(os.path.join(folder, name, path))
            os.makedirs(os.path.dirname(files[-1]), exist_ok=True)
            with open(files[-1], "wb") as file:
                file.write(data)
        found = hash_tree(FolderTree(os.path.join(folder, name)))
        place = LockedSource("git", "https://example.org/skills", "main", "0" * 40, name)
        rows[name] = LockEntry(name, name, place, "MIT", found.digest, found.files)
    with open(lock_path(folder), "wb") as file:
        file.write(render_lock(rows))
    return files


def test_every_changed_byte_of_a_locked_skill_is_noticed(tmp_path):
    folder, dice = str(tmp_path / ".agents/skills"), random.Random(20_31)
    paths = fill(folder, dice)
    settings = load_settings(str(tmp_path), env={"SATCHEL_HOME": str(tmp_path)}, trace="off")
    library = Library([folder], trust=TrustStore(None, locked=True))
    session = session_over(library, settings)

    def load(skill_id: str):
        """Load the skill in a folder, under whatever name it has now."""
        found = library.refresh().find(skill_id)
        return session.call("Skill", {"name": found[0].name if found else skill_id})

    for number in range(FLIPS):
        path = paths[number % len(paths)]
        with open(path, "r+b") as file:
            before = file.read()
            at = dice.randrange(len(before))
            file.seek(at)
            file.write(bytes([before[at] ^ dice.randrange(1, 256)]))
        reply = load(os.path.relpath(path, folder).split(os.sep)[0])
        assert reply.error is not None, path
        assert "Steps." not in reply.text
        with open(path, "r+b") as file:
            file.write(before)
    assert all(load(name).error is None for name in os.listdir(folder))
