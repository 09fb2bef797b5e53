"""Which store may change a skill: one answer, whatever else is wrong."""

from __future__ import annotations

import pytest

from satchel.errors import AccessDenied, Refused
from satchel.facade import Satchel
from satchel.testing import make_skill


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def everywhere(tmp_path):
    """The user's own folder, for all projects."""
    return tmp_path / "home/.config/agents/skills"


def skills_of(project) -> tuple[Satchel, dict]:
    satchel = Satchel.for_project(project, trust="all", builtin=True)
    return satchel, {skill.name: skill for skill in satchel.list_skills(hidden=True)}


def test_a_skill_belongs_to_the_scope_it_lies_in(project, everywhere):
    make_skill(project / ".agents/skills", "here", "Here. Use when.")
    make_skill(everywhere, "mine", "Mine. Use when.")
    satchel, skills = skills_of(project)
    assert satchel.store_of(skills["here"]).scope.name == "project"
    assert satchel.store_of(skills["mine"]).scope.name == "global"


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("skills", "which Satchel does not write to"),
        (".agents/skills/group", "lies within another folder, `group/other`"),
    ],
)
def test_what_lies_elsewhere_is_refused(project, folder, words):
    make_skill(project / folder, "other", "Other. Use when.")
    satchel, skills = skills_of(project)
    with pytest.raises(Refused, match=words):
        satchel.store_of(skills["other"])


def test_another_scope_need_not_be_in_order(project, everywhere, tmp_path):
    make_skill(everywhere, "mine", "Mine. Use when.")
    (project / ".agents").mkdir()
    (project / ".agents/skills").symlink_to(tmp_path)
    satchel, skills = skills_of(project)
    assert satchel.store_of(skills["mine"]).scope.name == "global"
    with pytest.raises(AccessDenied):
        satchel.store("project")
