"""Problems of files are kept by the digest of the content, and found again when it changes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from satchel import Satchel
from satchel.diagnosis import file_problems
from satchel.i18n import set_language
from satchel.testing import make_skill

if TYPE_CHECKING:
    from pathlib import Path

BODY = "```bash\npython scripts/missing.py\n```\n"


@pytest.fixture
def skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    folder = tmp_path / "project/.agents/skills/tool"
    make_skill(folder.parent, "tool", body=BODY)
    (folder / "scripts").mkdir()
    (folder / "scripts/load.py").write_text("import unknown_of_all\n")
    (folder / "scripts/other.rb").write_text("#!/usr/bin/env absent\n")
    (folder / "scripts/other.rb").chmod(0o755)
    return folder


def diagnose(skill: Path) -> dict[str, str]:
    """Code and file of each problem, and its sentence, in a new process's state."""
    satchel = Satchel.for_project(skill.parents[2], trust="all", builtin=False, packaged=False)
    problems = satchel.problems(deep=True)
    return {f"{one.code} {one.values.get('file', '')}".strip(): one.message for one in problems}


def test_unchanged_content_is_not_read_again(skill, monkeypatch):
    first = diagnose(skill)
    assert {"script-plan scripts/load.py", "file-missing scripts/missing.py"} <= {*first}
    monkeypatch.setattr(file_problems, "find_file_problems", None)
    assert diagnose(skill) == first


@pytest.mark.parametrize("where", ["script", "program", "folder above", "language"])
def test_a_change_is_noticed(skill, tmp_path, where):
    first = diagnose(skill)
    if where == "script":
        (skill / "scripts/load.py").write_text("import json\n")
        changed = "script-plan scripts/load.py"
    elif where == "program":
        (tmp_path / "bin/absent").write_text("#!/bin/sh\n")
        (tmp_path / "bin/absent").chmod(0o755)
        changed = "script-plan scripts/other.rb"
    elif where == "folder above":
        os.makedirs(skill.parents[2] / "scripts")
        (skill.parents[2] / "scripts/missing.py").write_text("pass\n")
        changed = "file-missing scripts/missing.py"
    else:
        set_language("zh")
        try:
            second = diagnose(skill)
        finally:
            set_language("")
        key = "script-plan scripts/other.rb"
        assert second[key] != first[key]
        return
    assert {*first} - {*diagnose(skill)} == {changed}
