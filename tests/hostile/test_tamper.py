"""One changed byte, anywhere: it must be noticed before anything of the skill reaches a model."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from satchel.library import Library, TrustStore
from satchel.library.lockfile import LockedSource, LockEntry, lock_path, render_lock
from satchel.settings import load_settings
from satchel.skill.file_tree import FolderTree, hash_tree
from satchel.testing import make_skill
from sizes import sized
from talking import session_over

if TYPE_CHECKING:
    from satchel.session.session import Session

FLIPS = sized(500, 10_000)
SEED = 20_31
SKILLS = 12


class Shop(NamedTuple):
    """A folder with installed skills, and the tools over it."""

    folder: str
    library: Library
    tools: Session

    def files(self) -> list[str]:
        """Every file of every skill."""
        return [
            os.path.join(here, name) for here, _, names in os.walk(self.folder) for name in names
        ]

    def load(self, skill_id: str):
        """Load the skill in a folder, under whatever name it has now."""
        found = self.library.refresh().find(skill_id)
        name = found[0].name if found else skill_id
        return self.tools.call("Skill", {"name": name})


def _fill(folder: str) -> None:
    dice = random.Random(SEED)
    for number in range(SKILLS):
        name = f"skill-{number:02d}"
        make_skill(folder, name, f"Does the {number} thing. Use it for that.", body="Steps.\n" * 9)
        base = os.path.join(folder, name)
        more = {
            "SKILL.sig": b"-----BEGIN SSH SIGNATURE-----\n" + dice.randbytes(120).hex().encode(),
            "scripts/run.py": b"import helper\nprint(helper.answer())\n",
            "scripts/helper.py": b"def answer():\n    return 42\n",
            "references/notes.md": b"# Notes\n" + b"One more line.\n" * number,
            "assets/picture.bin": dice.randbytes(300),
            "empty.txt": b"",
        }
        for path, data in more.items():
            full = os.path.join(base, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as file:
                file.write(data)


def _lock(folder: str) -> None:
    rows = {}
    for name in os.listdir(folder):
        sealed = hash_tree(FolderTree(os.path.join(folder, name)))
        place = LockedSource("git", "https://example.org/skills", "main", "0" * 40, name)
        rows[name] = LockEntry(name, name, place, "MIT", sealed.digest, sealed.files)
    with open(lock_path(folder), "wb") as file:
        file.write(render_lock(rows))


def _open(folder: str, project: str, *, locked: bool = True) -> Shop:
    settings = load_settings(project, env={"SATCHEL_HOME": project}, trace="off")
    library = Library([folder], trust=TrustStore(None, locked=locked))
    return Shop(folder, library, session_over(library, settings))


def _flip(path: str, dice: random.Random) -> bytes:
    """Change one byte of a file in place; returns the content as it was."""
    with open(path, "rb") as file:
        before = file.read()
    at = dice.randrange(len(before))
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes([before[at] ^ dice.randrange(1, 256)]))
    return before


def _restore(path: str, before: bytes) -> None:
    with open(path, "r+b") as file:
        file.write(before)


def _unnoticed(shop: Shop, paths: list[str], count: int) -> list[str]:
    """Flip bytes in files, one at a time; those after which the skill was loaded all the same."""
    dice = random.Random(SEED)
    missed = []
    for number in range(count):
        path = paths[number % len(paths)]
        skill_id = os.path.relpath(path, shop.folder).split(os.sep)[0]
        before = _flip(path, dice)
        reply = shop.load(skill_id)
        if reply.error is None:
            missed.append(path)
        else:
            assert "Steps." not in reply.text
        _restore(path, before)
    return missed


@pytest.fixture
def skills(tmp_path):
    folder = str(tmp_path / ".agents/skills")
    _fill(folder)
    return folder


def _not_empty(shop: Shop) -> list[str]:
    return sorted(path for path in shop.files() if os.path.getsize(path))


def test_every_changed_byte_of_a_locked_skill_is_noticed(skills, tmp_path):
    _lock(skills)
    shop = _open(skills, str(tmp_path))
    assert _unnoticed(shop, _not_empty(shop), FLIPS * 9 // 10) == []
    assert all(shop.load(name).error is None for name in os.listdir(skills))


def test_every_changed_byte_of_a_lockfile_is_noticed(skills, tmp_path):
    _lock(skills)
    shop = _open(skills, str(tmp_path))
    lock = lock_path(skills)
    dice = random.Random(SEED)
    names = sorted(os.listdir(skills))
    for number in range(FLIPS // 10):
        before = _flip(lock, dice)
        reply = shop.load(names[number % len(names)])
        assert reply.error is not None
        assert "Steps." not in reply.text
        assert "lock-broken" in {problem.code for problem in shop.library.snapshot().problems}
        _restore(lock, before)
    assert shop.load(names[0]).error is None


def test_where_locks_do_not_count_the_same_flips_go_unnoticed(skills, tmp_path):
    shop = _open(skills, str(tmp_path), locked=False)
    others = [path for path in _not_empty(shop) if not path.endswith("SKILL.md")]
    assert len(_unnoticed(shop, others, FLIPS // 20)) == FLIPS // 20
