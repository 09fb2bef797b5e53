"""Skills that came with somebody else's repository are known, shown, and not offered."""

from __future__ import annotations

import os

import pytest

from satchel import Library, Location, Satchel
from satchel.errors import NotFound, SettingsError
from satchel.testing import make_skill


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SATCHEL_BUILTIN", "false")
    folder = tmp_path / "cloned"
    make_skill(folder / ".agents/skills", "theirs")
    make_skill(folder / "skills", "other")
    return folder


def offered(project) -> list[str]:
    return [skill.name for skill in Satchel.for_project(project).list_skills()]


def test_a_cloned_project_offers_nothing_until_trusted(project):
    satchel = Satchel.for_project(project)
    assert satchel.list_skills() == []
    assert {skill.state for skill in satchel.list_skills(hidden=True)} == {"untrusted"}
    assert "theirs" not in satchel.catalogue().text
    satchel.trust("theirs")
    assert offered(project) == ["theirs"]
    satchel.trust()
    assert offered(project) == ["theirs", "other"]
    satchel.untrust()
    assert offered(project) == []


def test_what_the_user_makes_is_trusted(project):
    Satchel.for_project(project).init("mine")
    assert offered(project) == ["mine"]


def test_an_untrusted_skill_cannot_hide_a_trusted_one(project, tmp_path):
    make_skill(tmp_path / "own", "theirs", "The user's own.")
    satchel = Satchel.for_project(project, locations=[str(tmp_path / "own")])
    assert satchel.get_skill("theirs").description == "The user's own."


@pytest.mark.parametrize(("policy", "count"), [("all", 2), ("none", 0), ("ask", 0)])
def test_the_policy_is_one_setting(project, policy, count):
    assert len(Satchel.for_project(project, trust=policy).list_skills()) == count


def test_none_overrules_earlier_trust(project):
    Satchel.for_project(project).trust()
    assert Satchel.for_project(project, trust="none").list_skills() == []


def test_a_project_cannot_trust_itself(project):
    (project / "satchel.toml").write_text('trust = "all"\nlocations = ["../elsewhere", "skills"]\n')
    satchel = Satchel.for_project(project)
    assert satchel.list_skills() == []
    refused = [problem for problem in satchel.problems() if problem.code == "setting-refused"]
    assert [problem.values["name"] for problem in refused] == ["trust", "locations: ../elsewhere"]


def test_a_library_in_code_trusts_what_it_is_told_to(project):
    path = str(project / "skills")
    assert len(Library([Location(path, trusted=True)]).snapshot()) == 1
    assert len(Library([Location(path, trusted=False)]).snapshot()) == 0
    assert len(Library([Location(path, trusted=None)]).snapshot()) == 0


def test_trusting_nothing_known_is_an_error(project):
    with pytest.raises(NotFound):
        Satchel.for_project(project).trust("nobody")


def test_a_damaged_trust_file_is_an_error_not_a_yes(project, tmp_path):
    os.makedirs(tmp_path / "home/state")
    (tmp_path / "home/state/trust.json").write_text("{ oops")
    with pytest.raises(SettingsError):
        Satchel.for_project(project).list_skills()
