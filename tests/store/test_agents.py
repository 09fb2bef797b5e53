"""Other agents' folders: who looks where, who sees what, and nothing of anybody's is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from satchel import Satchel
from satchel.errors import AccessDenied, Conflict, InvalidInput, NotFound, Refused
from satchel.library.locations import _ECOSYSTEM, _ECOSYSTEM_HOME
from satchel.library.marks import LINKS, own_key, seal_of
from satchel.store.agents import Agent, agent_named, all_agents, user_home
from satchel.store.area import prepare_scope
from satchel.store.links import Links
from satchel.store.visibility import digest_of_folder, visibility

CLAUDE = "claude-code"


class Desk:
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
        return Satchel.for_project(self.project, **{"trust": "all", "builtin": False, **settings})

    def find(self, name: str):
        return self.satchel().library.snapshot().find(name)[0]

    def links(self, *, user: bool = False) -> Links:
        return Links(self.satchel().settings, user=user)

    def link(self, name: str, agent: str, how: Any = "", *, user=False, replace=False):
        return self.links(user=user).link(self.find(name), agent_named(agent), how, replace=replace)

    def unlink(self, name: str, agent: str, *, user=False, source="", replace=False):
        return self.links(user=user).unlink(name, agent_named(agent), source, replace=replace)

    def refresh(self, **settings):
        get = self.satchel(**settings).library.snapshot().get
        return self.links().refresh(get)

    def sees(self, name: str, **settings) -> dict[str, str]:
        skills = self.satchel(**settings).list_skills(hidden=True)
        matrix = visibility(str(self.project), str(self.home), skills)
        row = next(row for row in matrix.rows if row.name == name)
        return {key: sight.view for key, sight in row.cells.items()}

    def sight(self, name: str, agent: str, **settings):
        skills = self.satchel(**settings).list_skills(hidden=True)
        matrix = visibility(str(self.project), str(self.home), skills)
        return next(row for row in matrix.rows if row.name == name).cells[agent]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    desk = Desk(tmp_path / "project", home)
    desk.skill(".agents/skills/code-review")
    return desk


# --- the table ----------------------------------------------------------------------------


def test_every_row_says_where_it_was_seen_and_when():
    for agent in all_agents():
        assert agent.seen, agent.id
        assert any("202" in note for note in agent.seen), agent.id
        assert agent.signs, agent.id
        assert bool(agent.limit) == bool(agent.long), agent.id
        for item in (*agent.project, *agent.user):
            assert not os.path.isabs(item)
            assert ".." not in item
            assert item.endswith("skills")
    assert len({agent.id for agent in all_agents()}) == len(all_agents()) >= 20


def test_the_places_that_satchel_reads_are_places_of_agents():
    """Each by one agent that puts skills there; `.agents/skills` is everybody's."""
    assert set(_ECOSYSTEM) <= {item for agent in all_agents() for item in agent.project}
    assert set(_ECOSYSTEM_HOME) <= {item for agent in all_agents() for item in agent.user}


def test_an_agent_is_found_by_its_id_and_a_slip_is_corrected():
    assert agent_named("codex").name == "Codex"
    with pytest.raises(NotFound, match="no agent") as caught:
        agent_named("claude-cod")
    assert "`claude-code`" in caught.value.hint
    with pytest.raises(NotFound) as caught:
        agent_named("xyzzy")
    assert "`goose`" in caught.value.hint


def test_an_agent_is_here_when_its_folder_is(desk):
    project, home = str(desk.project), str(desk.home)
    assert not any(agent.is_here(project, home) for agent in all_agents())
    (desk.project / ".claude").mkdir()
    (desk.home / ".codex").mkdir()
    (desk.project / ".github" / "workflows").mkdir(parents=True)  # which says nothing of Copilot
    here = {agent.id for agent in all_agents() if agent.is_here(project, home)}
    assert here == {CLAUDE, "codex"}


def test_configuration_may_lie_outside_the_home(desk, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    places = agent_named("goose").places(str(desk.project), str(desk.home))
    assert str(tmp_path / "xdg" / "goose" / "skills") in [place.path for place in places]


def test_nobodys_home_is_not_the_projects(desk, monkeypatch):
    monkeypatch.setenv("HOME", "relative")
    assert user_home() == ""
    places = agent_named(CLAUDE).places(str(desk.project), user_home())
    assert [place.user for place in places] == [False]
    with pytest.raises(Refused):
        desk.links(user=True)


# --- linking ------------------------------------------------------------------------------


def test_a_link_inside_a_project_is_relative(desk, tmp_path):
    done = desk.link("code-review", CLAUDE)
    link = desk.project / ".claude/skills/code-review"
    assert (done.action, done.how, done.path) == ("made", "symlink", str(link))
    assert os.readlink(link) == "../../.agents/skills/code-review"
    desk.project.rename(tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere/.claude/skills/code-review/SKILL.md").is_file()


def test_an_agent_that_may_not_follow_links_gets_a_copy(desk):
    desk.skill("skills/release-notes")
    done = desk.link("release-notes", "copilot")
    assert (done.action, done.how) == ("made", "copy")
    folder = desk.project / ".github/skills/release-notes"
    assert not folder.is_symlink()
    assert (folder / "SKILL.md").is_file()


def test_what_an_agent_sees_already_is_not_linked_twice(desk):
    done = desk.link("code-review", "codex")
    assert (done.action, done.path) == ("seen", str(desk.project / ".agents/skills/code-review"))
    assert desk.link("code-review", "cursor").action == "seen"
    assert not (desk.project / ".cursor").exists()
    assert desk.link("code-review", "cursor", "copy").action == "made"


def test_a_skill_in_a_folder_within_a_folder_is_linked_where_it_would_not_be_seen(desk):
    desk.skill(".agents/skills/team/style-guide")
    assert desk.sees("style-guide")["gemini-cli"] == "hidden"
    done = desk.link("style-guide", "gemini-cli")
    assert done.path == str(desk.project / ".gemini/skills/style-guide")
    assert desk.sees("style-guide")["gemini-cli"] == "sees"


def test_the_folder_is_called_as_the_skill_is(desk):
    desk.skill("skills/Review_2", name="second-review")
    done = desk.link("second-review", CLAUDE)
    assert os.path.basename(done.path) == "second-review"


@pytest.mark.parametrize("name", ['"../../escape"', '"/etc"', '"a/b"', '".."'])
def test_a_name_never_leads_out_of_the_agents_folder(desk, name):
    desk.skill("skills/odd", name=name)
    skill = next(one for one in desk.satchel().list_skills() if one.id == "odd")
    done = desk.links().link(skill, agent_named(CLAUDE))
    assert os.path.dirname(done.path) == str(desk.project / ".claude/skills")
    with pytest.raises(InvalidInput):
        desk.unlink("../code-review", CLAUDE)


def test_a_skill_of_the_users_own_is_copied_into_a_project(desk):
    """A link out of the project would lead nowhere on the next machine."""
    desk.skill(".config/agents/skills/mine", base=desk.home)
    assert desk.link("mine", CLAUDE).how == "copy"
    link = desk.link("mine", CLAUDE, "symlink").path
    assert os.readlink(link) == str(desk.home / ".config/agents/skills/mine")


def test_for_all_projects_means_in_the_home(desk):
    done = desk.link("code-review", CLAUDE, user=True)
    link = desk.home / ".claude/skills/code-review"
    assert done.path == str(link)
    assert os.readlink(link) == str(desk.project / ".agents/skills/code-review")
    assert (desk.home / ".config/agents/.satchel/links.json").is_file()
    # The project's own `.agents/skills` is no place for all projects.
    assert desk.link("code-review", "codex", user=True).action == "made"


def test_linking_twice_changes_nothing(desk):
    desk.link("code-review", CLAUDE)
    before = os.lstat(desk.project / ".claude/skills/code-review").st_ino
    assert desk.link("code-review", CLAUDE).action == "kept"
    assert os.lstat(desk.project / ".claude/skills/code-review").st_ino == before


def test_programs_and_links_of_a_skill_are_copied_as_they_are(desk):
    folder = desk.project / ".agents/skills/code-review"
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "again.sh").symlink_to("run.sh")
    copy = desk.project / ".claude/skills/code-review"
    desk.link("code-review", CLAUDE, "copy")
    assert os.access(copy / "run.sh", os.X_OK)
    assert os.readlink(copy / "again.sh") == "run.sh"
    assert desk.refresh()[0].action == "kept"


@pytest.mark.parametrize("how", ["symlink", "copy"])
def test_what_is_not_offered_reaches_no_other_agent(desk, how):
    satchel = desk.satchel(trust="ask")
    (skill,) = satchel.library.snapshot().find("code-review")
    with pytest.raises(Refused, match="not offered"):
        Links(satchel.settings).link(skill, agent_named(CLAUDE), how)
    assert not (desk.project / ".claude").exists()


def test_a_folder_that_leads_out_of_the_project_is_not_written_to(desk, tmp_path):
    (tmp_path / "outside").mkdir()
    (desk.project / ".claude").symlink_to(tmp_path / "outside")
    with pytest.raises(AccessDenied):
        desk.link("code-review", CLAUDE)
    assert os.listdir(tmp_path / "outside") == []


# --- what is somebody else's --------------------------------------------------------------


def _theirs(desk):
    folder = desk.skill(".claude/skills/code-review", description="Another one.")
    return folder / "SKILL.md"


def test_what_satchel_did_not_make_is_not_replaced(desk):
    file = _theirs(desk)
    before = file.read_text()
    for how in ("symlink", "copy"):
        with pytest.raises(Conflict, match="did not put it there"):
            desk.link("code-review", CLAUDE, how)
    with pytest.raises(Conflict):
        desk.unlink("code-review", CLAUDE)
    assert file.read_text() == before


def test_what_is_replaced_by_request_is_kept(desk):
    before = _theirs(desk).read_text()
    done = desk.link("code-review", CLAUDE, replace=True)
    assert done.action == "replaced"
    with open(os.path.join(done.note, "SKILL.md"), encoding="utf-8") as file:
        assert file.read() == before
    assert os.path.islink(done.path)


def test_a_stranger_s_link_is_not_replaced(desk):
    other = desk.skill("elsewhere/code-review")
    place = desk.project / ".claude/skills"
    place.mkdir(parents=True)
    (place / "code-review").symlink_to(other)
    with pytest.raises(Conflict):
        desk.link("code-review", CLAUDE)
    assert os.readlink(place / "code-review") == str(other)


def test_a_record_that_came_with_the_project_gives_no_rights(desk):
    """It names a path that we would not choose, or a digest that is not there."""
    file = _theirs(desk)
    work = desk.project / ".agents/.satchel"
    work.mkdir()
    (desk.project / "src").mkdir()
    row = {"agent": CLAUDE, "skill": "code-review", "how": "copy", "tree": "sha256:0"}
    paths = ("src", "../victim", "/etc", ".claude/skills/code-review", ".claude/skills/../x")
    table: dict[str, Any] = {"links": dict.fromkeys(paths, row)}
    (work / "links.json").write_text(json.dumps(table))
    assert desk.links().records() == {}
    # Even if it had our seal.
    scope = desk.links().scope
    prepare_scope(scope)
    table["seal"] = seal_of(table, own_key(scope.marks)[0], scope.work, LINKS)
    (work / "links.json").write_text(json.dumps(table))
    assert list(desk.links().records()) == [".claude/skills/code-review"]
    assert [done.action for done in desk.refresh()] == ["refused"]
    with pytest.raises(Conflict):
        desk.unlink("code-review", CLAUDE)
    assert file.is_file()
    assert (desk.project / "src").is_dir()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"links": 1}', '{"links": {"a": 1}}', "[" * 99999]
)
def test_a_damaged_record_makes_everything_somebody_elses(desk, text):
    desk.link("code-review", CLAUDE, "copy")
    (desk.project / ".claude/skills/code-review/SKILL.md").write_text("mine now")
    (desk.project / ".agents/.satchel/links.json").write_text(text)
    assert desk.links().records() == {}
    with pytest.raises(Conflict):
        desk.unlink("code-review", CLAUDE)


def test_an_equal_copy_without_a_record_is_taken_over(desk):
    """A colleague made and committed it; the record stayed on their machine."""
    desk.link("code-review", CLAUDE, "copy")
    (desk.project / ".agents/.satchel/links.json").unlink()
    assert desk.link("code-review", CLAUDE, "copy").action == "kept"
    assert desk.unlink("code-review", CLAUDE).action == "removed"


# --- removing and refreshing --------------------------------------------------------------


@pytest.mark.parametrize("how", ["symlink", "copy"])
def test_what_was_linked_can_be_removed(desk, how):
    desk.link("code-review", CLAUDE, how)
    assert desk.unlink("code-review", CLAUDE).action == "removed"
    assert os.listdir(desk.project / ".claude/skills") == []
    assert os.listdir(desk.project / ".claude") == ["skills"]
    assert (desk.project / ".agents/skills/code-review/SKILL.md").is_file()
    with pytest.raises(NotFound):
        desk.unlink("code-review", CLAUDE)


def test_a_copy_that_was_changed_is_not_removed(desk):
    desk.link("code-review", CLAUDE, "copy")
    file = desk.project / ".claude/skills/code-review/SKILL.md"
    file.write_text(file.read_text() + "my own words\n")
    with pytest.raises(Conflict, match="was changed"):
        desk.unlink("code-review", CLAUDE)
    with pytest.raises(Conflict, match="was changed"):
        desk.link("code-review", CLAUDE, "copy")
    assert [done.action for done in desk.refresh()] == ["refused"]
    assert "my own words" in file.read_text()
    done = desk.unlink("code-review", CLAUDE, replace=True)
    with open(os.path.join(done.note, "SKILL.md"), encoding="utf-8") as kept:
        assert "my own words" in kept.read()


def test_the_skill_itself_is_never_removed(desk):
    source = desk.project / ".agents/skills/code-review"
    with pytest.raises(Conflict):
        desk.unlink("code-review", "codex", source=str(source), replace=True)
    assert (source / "SKILL.md").is_file()


def test_an_older_copy_is_shown_and_brought_up_to_date(desk):
    desk.link("code-review", CLAUDE, "copy")
    source = desk.project / ".agents/skills/code-review"
    (source / "SKILL.md").write_text("---\nname: code-review\ndescription: New.\n---\nNew\n")
    links = desk.links()
    (record,) = links.records().values()
    assert links.state(record, digest_of_folder(str(source))) == "old"
    assert [done.action for done in desk.refresh()] == ["refreshed"]
    copy = desk.project / ".claude/skills/code-review/SKILL.md"
    assert "New." in copy.read_text()
    assert [done.action for done in desk.refresh()] == ["kept"]
    assert sorted(os.listdir(desk.project / ".claude")) == ["skills"]


@pytest.mark.parametrize("how", ["refresh", "unlink"])
def test_a_repository_in_a_copy_is_kept_and_where_is_said(desk, how):
    desk.link("code-review", CLAUDE, "copy")
    (desk.project / ".claude/skills/code-review/.git").mkdir()
    source = desk.project / ".agents/skills/code-review"
    (source / "SKILL.md").write_text("---\nname: code-review\ndescription: New.\n---\nNew\n")
    (done,) = desk.refresh() if how == "refresh" else [desk.unlink("code-review", CLAUDE)]
    assert done.action == ("refreshed" if how == "refresh" else "removed")
    assert os.path.isdir(os.path.join(done.note, ".git"))


def test_a_copy_of_what_is_not_offered_any_more_is_left_and_said(desk):
    desk.link("code-review", CLAUDE, "copy")
    (done,) = desk.refresh(trust="none")
    assert done.action == "refused"
    assert "not offered" in done.note


def test_a_copy_that_somebody_deleted_comes_back(desk):
    path = desk.link("code-review", CLAUDE, "copy").path
    subprocess.run(["rm", "-r", path], check=True)
    assert [done.action for done in desk.refresh()] == ["made"]
    assert os.path.isdir(path)


@pytest.mark.timeout(60)
def test_many_processes_link_at_once_and_none_is_forgotten(desk):
    names = [f"skill-{number}" for number in range(8)]
    for name in names:
        desk.skill(f".agents/skills/{name}")
    code = (
        "import sys; from satchel import Satchel; from satchel.store.links import Links\n"
        "from satchel.store.agents import agent_named\n"
        "s = Satchel.for_project(sys.argv[1], trust='all')\n"
        "skill = s.library.snapshot().get(sys.argv[2])\n"
        "Links(s.settings).link(skill, agent_named('claude-code'), 'copy')\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(desk.project), name], env=env)
        for name in names
    ]
    assert [process.wait(30) for process in running] == [0] * len(names)
    assert len(desk.links().records()) == len(names)
    assert sorted(os.listdir(desk.project / ".claude/skills")) == names


# --- who sees what ------------------------------------------------------------------------


def test_a_shared_folder_is_seen_by_all_who_look_there(desk):
    sees = desk.sees("code-review")
    assert {key for key, view in sees.items() if view == "sees"} == {
        agent.id for agent in all_agents() if ".agents/skills" in agent.project
    }
    assert sees[CLAUDE] == "absent"
    sight = desk.sight("code-review", "codex")
    assert (sight.place, sight.kind) == (".agents/skills", "itself")


def test_a_link_is_seen_where_links_are_followed(desk):
    desk.skill("skills/release-notes")
    desk.link("release-notes", CLAUDE)
    assert desk.sight("release-notes", CLAUDE).kind == "link"
    assert desk.sees("release-notes")[CLAUDE] == "sees"
    copilot = desk.sight("release-notes", "copilot")  # it looks into .claude/skills too
    assert copilot.view == "perhaps"
    assert "link" in copilot.why


def test_a_copy_is_known_as_one_and_a_namesake_is_not(desk):
    desk.link("code-review", CLAUDE, "copy")
    assert desk.sight("code-review", CLAUDE).kind == "copy"
    (desk.project / ".claude/skills/code-review/notes.md").write_text("x")
    assert desk.sight("code-review", CLAUDE).kind == "other"


def test_reasons_not_to_be_seen(desk):
    desk.skill(".agents/skills/wordy", description="x" * 1600)
    desk.skill(".agents/skills/folder-name", name="another-name")
    desk.skill(".agents/skills/team/deep")
    assert desk.sees("wordy")["codex"] == "hidden"
    assert "1024" in desk.sight("wordy", "codex").why
    assert desk.sees("wordy")["gemini-cli"] == "sees"
    desk.link("wordy", CLAUDE)
    assert desk.sees("wordy")[CLAUDE] == "sees"
    assert "cut after 1536" in desk.sight("wordy", CLAUDE).why
    assert desk.sees("another-name")["opencode"] == "hidden"
    assert "another-name" in desk.sight("another-name", "opencode").why
    assert desk.sees("another-name")["codex"] == "sees"
    assert desk.sees("deep")["codex"] == "sees"
    assert desk.sees("deep")["gemini-cli"] == "hidden"


def test_what_only_agents_have_is_listed_too(desk):
    desk.skill(".gemini/skills/theirs", base=desk.home)
    sight = desk.sight("theirs", "gemini-cli")
    assert (sight.view, sight.place, sight.kind) == ("sees", "~/.gemini/skills", "")


def test_the_state_here_stands_beside_what_agents_see(desk):
    skills = desk.satchel(trust="ask").list_skills(hidden=True)
    (row,) = visibility(str(desk.project), str(desk.home), skills).rows
    assert row.state == "untrusted"
    assert row.cells["codex"].view == "sees"


def test_one_may_ask_about_some_agents(desk):
    mine = Agent("mine", "Mine", (".agents/skills",), (), signs=(".agents",))
    skills = desk.satchel().list_skills()
    matrix = visibility(str(desk.project), str(desk.home), skills, [mine])
    assert [agent.id for agent in matrix.agents] == ["mine"]
    assert matrix.here == {"mine"}
    assert matrix.rows[0].cells["mine"].view == "sees"
