"""Other agents: their folders, the visibility of skills, and links that replace nothing."""

from __future__ import annotations

import os
from typing import Any

import pytest

from satchel import Satchel
from satchel.errors import AccessDenied, Conflict, InvalidInput, NotFound, Refused
from satchel.store.agents import Links, agent_named, all_agents, skills_of, visibility_of

CLAUDE = "claude-code"


class AgentBench:
    """A project, a home, and the links between them."""

    def __init__(self, project, home) -> None:
        self.project = project
        self.home = home
        project.mkdir()

    def skill(self, path: str, name: str = "", description: str = "Reviews code.", base=None):
        folder = (base or self.project) / path
        folder.mkdir(parents=True)
        text = f"---\nname: {name or folder.name}\ndescription: {description}\n---\nBody\n"
        (folder / "SKILL.md").write_text(text, encoding="utf-8")
        return folder

    def satchel(self, **settings):
        options: Any = {"trust": "all", "builtin": False, **settings}
        return Satchel.for_project(self.project, **options)

    def find(self, name: str):
        return self.satchel().library.snapshot().find(name)[0]

    def links(self, *, user: bool = False) -> Links:
        return Links(self.satchel().settings, user=user)

    def link(self, name: str, agent: str, *, user=False):
        return self.links(user=user).link(self.find(name), agent_named(agent))

    def unlink(self, name: str, agent: str, *, source=""):
        return self.links().unlink(name, agent_named(agent), str(source))

    def sight(self, name: str, agent: str) -> str:
        skill = self.find(name)
        found = visibility_of(agent_named(agent), str(self.project), str(self.home), skill)
        seen = skills_of(agent_named(agent), str(self.project), str(self.home))
        assert bool(found.kind) == (name in seen)
        return found.kind


@pytest.fixture
def bench(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    bench = AgentBench(tmp_path / "project", home)
    bench.skill(".agents/skills/code-review")
    return bench


# --- linking ------------------------------------------------------------------------------


def test_a_link_inside_a_project_is_relative(bench, tmp_path):
    done = bench.link("code-review", CLAUDE)
    link = bench.project / ".claude/skills/code-review"
    assert (done.action, done.path) == ("made", str(link))
    assert os.readlink(link) == "../../.agents/skills/code-review"
    bench.project.rename(tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere/.claude/skills/code-review/SKILL.md").is_file()


@pytest.mark.parametrize("name", ['"../../escape"', '"/etc"', '"a/b"', '".."'])
def test_a_name_never_leads_out_of_the_agents_folder(bench, name):
    bench.skill("skills/odd", name=name)
    skill = next(one for one in bench.satchel().list_skills() if one.id == "odd")
    done = bench.links().link(skill, agent_named(CLAUDE))
    assert os.path.dirname(done.path) == str(bench.project / ".claude/skills")
    with pytest.raises(InvalidInput):
        bench.unlink("../code-review", CLAUDE)


def test_a_skill_outside_the_project_is_not_linked_into_it(bench):
    """The link would lead nowhere on the next machine."""
    bench.skill(".config/agents/skills/mine", base=bench.home)
    with pytest.raises(Refused, match="outside the project"):
        bench.link("mine", CLAUDE)
    assert bench.link("mine", CLAUDE, user=True).action == "made"


def test_a_skill_that_is_not_offered_is_not_linked(bench):
    satchel = bench.satchel(trust="ask")
    (skill,) = satchel.library.snapshot().find("code-review")
    with pytest.raises(Refused, match="not offered"):
        Links(satchel.settings).link(skill, agent_named(CLAUDE))
    assert not (bench.project / ".claude").exists()


def test_a_folder_that_leads_out_of_the_project_is_not_written_to(bench, tmp_path):
    (tmp_path / "outside").mkdir()
    (bench.project / ".claude").symlink_to(tmp_path / "outside")
    with pytest.raises(AccessDenied):
        bench.link("code-review", CLAUDE)
    assert os.listdir(tmp_path / "outside") == []


# --- what is there already ----------------------------------------------------------------


def test_other_files_are_neither_replaced_nor_removed(bench):
    other = bench.skill("elsewhere/code-review")
    place = bench.project / ".claude/skills"
    place.mkdir(parents=True)
    target = place / "code-review"
    source = bench.project / ".agents/skills/code-review"
    for make, look in (
        (lambda: target.symlink_to(other), lambda: os.readlink(target) == str(other)),
        (lambda: target.write_text("mine"), lambda: target.read_text() == "mine"),
        (target.mkdir, target.is_dir),
    ):
        make()
        with pytest.raises(Conflict, match="is not what Satchel puts there"):
            bench.link("code-review", CLAUDE)
        with pytest.raises(Conflict, match="is not what Satchel puts there"):
            bench.unlink("code-review", CLAUDE, source=source)
        assert look()
        if not target.is_dir() or target.is_symlink():
            target.unlink()


def test_a_link_that_leads_nowhere_is_replaced_or_removed(bench):
    place = bench.project / ".claude/skills"
    place.mkdir(parents=True)
    (place / "code-review").symlink_to("../../gone")
    assert bench.link("code-review", CLAUDE).action == "made"
    assert (place / "code-review/SKILL.md").is_file()
    (place / "old").symlink_to("../../gone")
    assert bench.unlink("old", CLAUDE).action == "removed"


def test_a_link_can_be_removed(bench):
    bench.link("code-review", CLAUDE)
    source = bench.project / ".agents/skills/code-review"
    assert bench.unlink("code-review", CLAUDE, source=source).action == "removed"
    assert os.listdir(bench.project / ".claude/skills") == []
    assert (source / "SKILL.md").is_file()
    with pytest.raises(NotFound):
        bench.unlink("code-review", CLAUDE)


def test_the_skill_itself_is_never_removed(bench):
    source = bench.project / ".agents/skills/code-review"
    with pytest.raises(Conflict):
        bench.unlink("code-review", "codex", source=source)
    assert (source / "SKILL.md").is_file()


# --- who sees what ------------------------------------------------------------------------


def test_an_agent_sees_its_folders_and_links_in_them(bench):
    bench.skill("skills/release-notes")
    bench.skill(".agents/skills/team/deep")
    assert bench.sight("release-notes", CLAUDE) == ""
    bench.link("release-notes", CLAUDE)
    assert bench.sight("release-notes", CLAUDE) == "link"
    assert bench.sight("release-notes", "copilot") == "link"  # reads .claude/skills too
    assert bench.sight("deep", "codex") == "itself"
    bench.skill(".claude/skills/code-review")
    assert bench.sight("code-review", CLAUDE) == "other"


# --- the table ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["github-copilot", "kimi-code-cli", "kiro-cli", "zed", "warp"])
def test_the_ids_of_npx_skills_are_known(name):
    assert name in (agent_named(name).id, *agent_named(name).aliases)


def test_every_agent_has_a_folder_in_a_project_and_an_id_of_its_own():
    agents = all_agents()
    assert len(agents) == 80
    ids = [one for agent in agents for one in (agent.id, *agent.aliases)]
    assert len(set(ids)) == len(ids)
    folders = [one for agent in agents for one in (*agent.project, *agent.user)]
    assert all(agent.project for agent in agents)
    assert not [one for one in folders if os.path.isabs(one) or ".." in one.split("/")]


def test_an_agent_without_a_folder_of_the_user_is_named(bench):
    bench.skill(".config/agents/skills/mine", base=bench.home)
    with pytest.raises(Refused, match="Eve has no folder for the skills of all projects"):
        bench.link("mine", "eve", user=True)
    assert bench.link("code-review", "eve").action == "made"
