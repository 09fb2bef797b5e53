"""The listing of a skill's folder is the same, whether it is walked or known from a check."""

from __future__ import annotations

import os
import random

import pytest

from satchel.library.survey import survey
from satchel.tools.skill_tool import folder_of, list_folder

NAMES = ["a", "b", "a-b", "a.b", "B", "é", "scripts", "references", "a b", "\x01", "z"]


@pytest.mark.parametrize("seed", range(40))
def test_both_ways_list_the_same(tmp_path, seed):
    dice = random.Random(seed)
    base = tmp_path / "skill"
    base.mkdir()
    (base / "SKILL.md").write_text("x")
    for _ in range(dice.randrange(1, 80)):
        folder = base.joinpath(*dice.choices(NAMES, k=dice.randrange(4)))
        if any(part.is_file() for part in (folder, *folder.parents)):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (dice.choice(NAMES) + dice.choice(["", ".md", ".py"]))
        if not path.exists():
            path.write_bytes(b"x" * dice.randrange(9))
    known = folder_of(survey(str(base)), "SKILL.md")
    assert known == list_folder(str(base), "SKILL.md")


@pytest.mark.parametrize(
    "path", ["inner/skill.md", "node_modules/x/index.js", "link.md", "a/b/c/d/e/f/g/h/x"]
)
def test_what_is_not_simple_is_walked(tmp_path, path):
    (tmp_path / "SKILL.md").write_text("x")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    if path == "link.md":
        os.symlink("SKILL.md", tmp_path / path)
    else:
        (tmp_path / path).write_text("")
    assert folder_of(survey(str(tmp_path)), "SKILL.md") is None
