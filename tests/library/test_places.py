"""Places of skills and what is done there: found, shown, trusted, changed and linked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

from installed import environment, node_package, plugin, python_package
from satchel import Satchel, skill_from_text
from satchel.cli.project import open_project
from satchel.errors import Refused
from satchel.store.agents import Links, agent_named
from satchel.testing import make_skill

if TYPE_CHECKING:
    from pathlib import Path


class Place(NamedTuple):
    """What is expected of a place."""

    ref: str
    needs_trust: bool = True
    is_changed: bool = False
    is_linked: bool = False
    version: str = ""


PLACES = {
    "own folder": Place(".agents/skills/tool", is_changed=True, is_linked=True),
    "folder of another agent": Place(".claude/skills/tool", is_changed=True, is_linked=True),
    "level above": Place("../../.agents/skills/tool", is_changed=True),
    "level below": Place("packages/part/.claude/skills/tool", is_changed=True, is_linked=True),
    "home folder of another agent": Place(
        "~/.codex/skills/tool", needs_trust=False, is_changed=True
    ),
    "python package": Place("package:left/tool", is_linked=True, version="1.0"),
    "node package": Place("npm:left/tool", is_linked=True, version="1.0.0"),
    "plugin": Place("plugin:left@market/tool", version="1.0.0"),
    "code": Place("code:table/tool", needs_trust=False),
}
TRUSTED_BY_ITSELF = ("level above", "level below")


class Table:
    """A source with one skill."""

    label = "table"
    skills = (skill_from_text("Do the thing.", name="tool", description="Helps with tool."),)

    def list_skills(self):
        return self.skills


@pytest.fixture
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The project with one skill `tool` in the place of the test."""
    place = request.getfixturevalue("place")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "state"))
    root = tmp_path / "root"
    part = root / "packages/part"
    part.mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".agents").mkdir()
    project = start = root
    if place == "level above":
        (part / ".agents").mkdir()
        project = start = part
    elif place == "level below":
        start = part
    if place == "python package":
        python_package(environment(project / ".venv"), "left", "tool")
    elif place == "node package":
        node_package(project / "node_modules", "left", "tool")
    elif place == "plugin":
        plugin(tmp_path / "home/.claude/plugins", "left", "tool")
    elif place == "code":
        return Satchel.for_project(project, sources=[Table()], trust="ask")
    else:
        folder = {
            "own folder": project / ".agents/skills",
            "folder of another agent": project / ".claude/skills",
            "level above": root / ".agents/skills",
            "level below": part / ".claude/skills",
            "home folder of another agent": tmp_path / "home/.codex/skills",
        }[place]
        make_skill(folder, "tool")
    return open_project(str(project), {}, {}, start=str(start))


@pytest.mark.parametrize("place", PLACES)
def test_found(opened, place):
    skills = opened.list_skills(hidden=True)
    assert [skill.ref for skill in skills] == [PLACES[place].ref]
    assert skills[0].to_dict().get("version", "") == PLACES[place].version


@pytest.mark.parametrize("place", PLACES)
def test_shown(opened, place):
    report = opened.why("tool")
    assert report.facts["ref"] == PLACES[place].ref
    assert PLACES[place].version in str(report)
    skill = opened.library.find("tool")[0]
    assert "Do the thing." in opened.library.integrity.inspect(skill).body


@pytest.mark.parametrize("place", PLACES)
def test_trusted(opened, place):
    states = [opened.list_skills(hidden=True)[0].state]
    for change in (opened.trust, opened.untrust):
        change()
        states.append(opened.list_skills(hidden=True)[0].state)
    is_asked = PLACES[place].needs_trust
    assert states == (["untrusted", "active", "untrusted"] if is_asked else ["active"] * 3)


@pytest.mark.parametrize("place", PLACES)
def test_changed(opened, place):
    opened.trust()
    skill = opened.library.find("tool")[0]
    if not PLACES[place].is_changed:
        for change in (
            lambda: opened.store_of(skill),
            lambda: opened.store().plan_remove(["tool"]),
        ):
            with pytest.raises(Refused, match="does not write to"):
                change()
        return
    store = opened.store_with("tool")
    assert opened.store_of(skill).scope == store.scope
    with store.plan_edit("tool", {"notes.md": b"More."}) as plan:
        store.apply(plan)
    with store.plan_rename("tool", "other") as plan:
        store.apply(plan)
    assert [item.name for item in opened.list_skills()] == ["other"]
    with store.plan_remove(["other"]) as plan:
        store.apply(plan)
    assert opened.list_skills(hidden=True) == []
    scope = store.scope.name
    assert [opened.store_to_undo(scope).undo().op for _ in range(3)] == ["remove", "rename", "edit"]
    assert os.listdir(skill.base_dir) == ["SKILL.md"]


@pytest.mark.parametrize("place", PLACES)
def test_linked(opened, place):
    opened.trust()
    links = Links(opened.settings, check=opened.library.integrity.check)
    skill = opened.library.find("tool")[0]
    agent = agent_named("claude-code")
    if PLACES[place].is_linked:
        result = links.link(skill, agent)
        assert result.action == ("seen" if place == "folder of another agent" else "made")
        assert os.path.isfile(os.path.join(result.path, "SKILL.md"))
    else:
        with pytest.raises(Refused):
            links.link(skill, agent)
