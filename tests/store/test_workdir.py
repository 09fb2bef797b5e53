"""Scopes: where they are, which skills belong to them, and links that lead elsewhere."""

from __future__ import annotations

import os

import pytest

from chaos import works
from satchel.errors import AccessDenied, Refused
from satchel.satchel import Satchel
from satchel.settings import load_settings
from satchel.store.workdir import scope_of
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
        (".agents/skills/group", "is in `group/other`"),
    ],
)
def test_a_folder_elsewhere_is_refused(project, folder, words):
    make_skill(project / folder, "other", "Other. Use when.")
    satchel, skills = skills_of(project)
    with pytest.raises(Refused, match=words):
        satchel.store_of(skills["other"])


@pytest.mark.parametrize("link", [".agents", ".agents/skills"])
def test_a_link_out_of_the_project_is_refused(tmp_path, link):
    project, outside = tmp_path / "project", tmp_path / "outside"
    outside.mkdir()
    (project / link).parent.mkdir(parents=True)
    (project / link).symlink_to(outside)
    with pytest.raises(AccessDenied, match="outside"):
        scope_of(load_settings(str(project)), "project")
    with pytest.raises(AccessDenied, match="outside"):
        works.transactions(str(project), "add", "alpha", 1)
    assert os.listdir(outside) == []


def test_the_work_area_is_never_a_link(tmp_path):
    project, elsewhere = tmp_path / "project", tmp_path / "project/elsewhere"
    elsewhere.mkdir(parents=True)
    link = project / ".agents/.satchel"
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(AccessDenied, match="not what Satchel puts there"):
        works.transactions(str(project), "add", "alpha", 1)
    assert os.listdir(elsewhere) == []
