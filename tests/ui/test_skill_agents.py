"""The agents of a skill: switches, refusals, undo."""

from __future__ import annotations

import os

import pytest

REF = ".agents/skills/code-review"
SWITCH = f"/skill/agents?ref={REF}"


@pytest.fixture
def here(visit, skill, project):
    """A project where Claude Code and Codex are used."""
    skill("code-review", "Reviews code. Use when asked.")
    (project / ".claude").mkdir()
    (project / ".codex").mkdir()
    visit.satchel.refresh()
    return visit


def _part(visit) -> str:
    return visit.part(f"/skill/agents?ref={REF}").text


def test_only_agents_that_are_used_here_are_shown(visit, skill, project):
    skill("code-review", "Reviews code. Use when asked.")
    visit.satchel.refresh()
    assert "No other agent is used here" in _part(visit)
    (project / ".claude").mkdir()
    (project / ".codex").mkdir()
    text = _part(visit)
    assert text.count('<th scope="row">') == 2
    assert "Claude Code" in text
    assert "not there" in text
    assert "looks into its own folder" in text
    assert "Gemini" not in text


def test_a_switch_links_and_unlinks(here, project):
    made = here.post(SWITCH, data={"agent": "claude-code", "turn": "on"},
                     headers={"HX-Request": "true"})  # fmt: skip
    assert "Claude Code has it now, by a link" in made.text
    assert "Undo" in made.text
    target = project / ".claude" / "skills" / "code-review"
    assert target.is_symlink()
    assert 'aria-checked="true"' in made.text
    gone = here.post(SWITCH, data={"agent": "claude-code", "turn": "off"},
                     headers={"HX-Request": "true"})  # fmt: skip
    assert "Claude Code has it no more" in gone.text
    assert not os.path.lexists(target)


def test_nothing_of_somebody_else_s_is_replaced_unasked(here, project):
    other = project / ".claude" / "skills" / "code-review"
    other.mkdir(parents=True)
    (other / "SKILL.md").write_text("---\nname: code-review\ndescription: Theirs.\n---\nx\n")
    assert "has another one of that name" in _part(here)
    answer = here.post(SWITCH, data={"agent": "claude-code", "turn": "on"},
                       headers={"HX-Request": "true"})  # fmt: skip
    assert answer.status_code == 200
    assert "is not a link to the skill" in answer.text
    assert not other.is_symlink()


def test_only_what_is_offered_can_be_put_anywhere(here, skill, project):
    from satchel.testing import make_skill

    make_skill(project / "skills", "code-review", "Hidden.")
    here.satchel.refresh()
    hidden = next(one for one in here.satchel.list_skills(hidden=True) if one.state == "shadowed")
    text = here.part("/skill/agents?ref=" + hidden.ref).text
    assert "It is not offered here, so Satchel puts it nowhere else" in text
    answer = here.post(f"/skill/agents?ref={hidden.ref}",
                       data={"agent": "claude-code", "turn": "on"})  # fmt: skip
    assert answer.status_code == 403


def test_for_all_projects(here, tmp_path):
    text = here.part(f"/skill/agents?ref={REF}&everywhere=true").text
    assert "~/" in text
    answer = here.post(
        SWITCH, data={"agent": "claude-code", "turn": "on", "everywhere": "true"},
        headers={"HX-Request": "true"},
    )  # fmt: skip
    assert answer.status_code == 200
    assert os.path.lexists(tmp_path / ".claude" / "skills" / "code-review")
