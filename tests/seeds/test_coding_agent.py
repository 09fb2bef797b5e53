"""A coding agent with a Skill tool: `skills/**/SKILL.md`, `$ARGUMENTS`, a budget, error codes."""

from __future__ import annotations

import dataclasses
import os

import pytest

from seeds.conftest import skill

FILES = {
    "skills/writing/tone/SKILL.md": skill("tone-of-voice", "Keep the tone friendly", "Be kind.\n"),
    "skills/notes/SKILL.md": "# No frontmatter\n",
}


@pytest.fixture
def agent(project, documents):
    review = documents.block("A", "name: code-review")
    project.write({"skills/code-review/SKILL.md": review, **FILES})
    return project


def loaded(agent, **arguments):
    """The content that the Skill tool gives, without its first line."""
    reply = agent.open().session().call("Skill", arguments).to_dict()
    assert set(reply) == {"status", "data", "text", "stats", "context"}
    assert isinstance(reply["stats"]["time_ms"], int)
    assert reply["context"]["path_resolved"] == f"{reply['data']['base_dir']}/SKILL.md"
    first, _, rest = reply["data"]["content"].partition("\n")
    assert first == f"Base directory for this skill: {reply['data']['base_dir']}"
    return rest.strip()


@pytest.mark.req("A1", "A6", "A7", "A9")
def test_what_lies_below_skills_is_found_and_listed(agent):
    satchel = agent.open()
    assert len(satchel.library.scan()) == 2
    assert [one.name for one in satchel.list_skills()] == ["code-review", "tone-of-voice"]
    found = satchel.get_skill("tone-of-voice")
    assert found.description == "Keep the tone friendly"
    assert found.base_dir == str(agent.project / "skills/writing/tone")
    assert (found.path, found.mtime > 0) == (f"{found.base_dir}/SKILL.md", True)
    assert satchel.get_skill("notes") is None
    assert [one.code for one in satchel.problems() if one.severity == "error"] == ["no-frontmatter"]


@pytest.mark.req("A2", "A9")
@pytest.mark.parametrize("where", ["argument", "environment", "file"])
def test_strict_skips_what_is_not_yaml_with_a_warning(agent, monkeypatch, caplog, where):
    agent.write({"skills/colon/SKILL.md": skill("colon", "Use when: asked")})
    assert agent.open().get_skill("colon").description == "Use when: asked"
    if where == "environment":
        monkeypatch.setenv("SATCHEL_STRICT", "true")
    if where == "file":
        agent.write({"satchel.toml": "strict = true\n"})
    satchel = agent.open(**{"strict": True} if where == "argument" else {})
    assert [one.name for one in satchel.list_skills()] == ["code-review", "tone-of-voice"]
    codes = {one.code for one in satchel.problems() if one.severity == "error"}
    assert codes == {"no-frontmatter", "not-strict"}
    assert "skills/colon/SKILL.md" in caplog.text
    assert satchel.session().call("Skill", {"name": "colon"}).error.code == "INTERNAL_ERROR"


@pytest.mark.req("A6")
def test_a_skill_has_every_field_of_the_record(agent, documents):
    record = documents.run("A", "class SkillMeta", dataclass=dataclasses.dataclass)["SkillMeta"]
    found = agent.open().get_skill("code-review")
    for field in dataclasses.fields(record):
        assert type(getattr(found, field.name)).__name__ == field.type


@pytest.mark.req("A4", "A5", "A10")
@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        ({"name": "code-review", "args": "src/"}, "Use this checklist:\n- ...\n\nsrc/"),
        ({"name": "code-review"}, "Use this checklist:\n- ..."),
        ({"name": "tone-of-voice", "args": "a mail"}, "Be kind.\n\nARGUMENTS: a mail"),
        ({"name": "tone-of-voice", "args": ""}, "Be kind."),
    ],
)
def test_arguments_are_put_in_or_appended(agent, arguments, end):
    assert loaded(agent, **arguments).endswith(end)


@pytest.mark.req("A15")
def test_each_failure_has_its_code(agent, monkeypatch):
    monkeypatch.setenv("SKILLS_REFRESH_ON_CALL", "false")
    session = agent.open().session()
    assert session.call("Skill", {}).error.code == "INVALID_PARAM"
    unknown = session.call("Skill", {"name": "code-revue"})
    assert unknown.error.code == "NOT_FOUND"
    assert "code-review" in unknown.text
    agent.write({"skills/code-review/SKILL.md": "---\nname: [\n---\n"})
    assert session.call("Skill", {"name": "code-review"}).error.code == "INTERNAL_ERROR"


@pytest.mark.req("A15")
def test_a_file_without_permission_is_permission_denied(agent, monkeypatch):
    monkeypatch.setenv("SKILLS_REFRESH_ON_CALL", "false")
    session = agent.open().session()
    assert "code-review" in session.prompt
    (agent.project / "skills/code-review/SKILL.md").chmod(0)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        error = session.call("Skill", {"name": "code-review"}).error
    finally:
        if was_root:
            os.seteuid(0)
    assert (error.code, "Check the permissions" in error.hint) == ("PERMISSION_DENIED", True)


@pytest.mark.req("A3", "A11", "A12", "A13")
@pytest.mark.parametrize("budget", ["", "400", "300"])
def test_the_prompt_lists_skills_within_the_budget(agent, monkeypatch, budget):
    monkeypatch.setenv("SKILLS_PROMPT_CHAR_BUDGET", budget)
    session = agent.open().session()
    account = agent.open().catalogue().account
    assert "code-review" in session.prompt
    assert account.used <= int(budget or 12_000)
    assert account.rules == (not budget)
    assert ("$code-review" in session.prompt) == (not budget)
    (tool,) = [one for one in session.definitions(catalogue=True) if one["name"] == "Skill"]
    assert "code-review" in tool["description"]


@pytest.mark.req("A13")
@pytest.mark.parametrize("words", ["$code-review main.py", "use code-review skill", "/code-review"])
def test_a_mention_chooses_the_skill(agent, words):
    assert next(iter(agent.open().which(words).matches)).skill.name == "code-review"


@pytest.mark.req("A14")
@pytest.mark.parametrize("refresh", ["true", "false"])
def test_a_call_sees_a_new_skill_unless_that_is_turned_off(agent, monkeypatch, refresh):
    monkeypatch.setenv("SKILLS_REFRESH_ON_CALL", refresh)
    session = agent.open().session()
    assert session.call("Skill", {"name": "tone-of-voice"}).error is None
    agent.write({"skills/later/SKILL.md": skill("later", "Comes later")})
    assert (session.call("Skill", {"name": "later"}).error is None) == (refresh == "true")


@pytest.mark.req("A2", "A5")
def test_after_one_yes_the_commands_work(agent):
    assert "tone-of-voice" in agent.say_yes("list")
    done = agent.run("show", "code-review", "--as-model", "--args", "src/")
    assert (done.status, done.out.count("src/\n")) == (0, 1)
    small = agent.run("catalogue", SKILLS_PROMPT_CHAR_BUDGET="400")
    assert '<skill name="code-review">' in small.out
    assert "without the rules" in small.err
