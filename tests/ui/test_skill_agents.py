"""The agents of a skill: detected ones, links, refusals."""

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
    text = visit.get(f"/skill?ref={REF}").text
    return text[text.index('id="agents-title"') :]


def test_only_agents_that_are_used_here_are_shown(visit, skill, project):
    skill("code-review", "Reviews code. Use when asked.")
    visit.satchel.refresh()
    assert 'id="agents"' not in visit.get(f"/skill?ref={REF}").text
    (project / ".claude").mkdir()
    (project / ".codex").mkdir()
    text = _part(visit)
    assert text.count('<th scope="row">') == 2
    assert "Claude Code" in text
    assert "not linked" in text
    assert "reads this folder" in text
    assert "Gemini" not in text


def test_a_button_links_and_unlinks(here, project):
    made = here.post(SWITCH, data={"agent": "claude-code", "turn": "on"})
    text = here.get(made.headers["location"]).text
    assert "Claude Code: linked" in text
    assert "Unlink" in text
    target = project / ".claude" / "skills" / "code-review"
    assert target.is_symlink()
    gone = here.post(SWITCH, data={"agent": "claude-code", "turn": "off"})
    assert "Claude Code: link removed" in here.get(gone.headers["location"]).text
    assert not os.path.lexists(target)


def test_nothing_of_somebody_else_s_is_replaced_unasked(here, project):
    other = project / ".claude" / "skills" / "code-review"
    other.mkdir(parents=True)
    (other / "SKILL.md").write_text("---\nname: code-review\ndescription: Theirs.\n---\nx\n")
    assert "has another skill of this name" in _part(here)
    answer = here.post(SWITCH, data={"agent": "claude-code", "turn": "on"})
    assert answer.status_code == 409
    assert "is not what Satchel puts there" in answer.text
    assert not other.is_symlink()


def test_only_what_is_offered_can_be_put_anywhere(here, skill, project):
    from satchel.testing import make_skill

    make_skill(project / "skills", "code-review", "Hidden.")
    here.satchel.refresh()
    hidden = next(one for one in here.satchel.list_skills(hidden=True) if one.state == "shadowed")
    text = here.get("/skill", params={"ref": hidden.ref}).text
    assert "Only an offered skill can be linked" in text
    answer = here.post(f"/skill/agents?ref={hidden.ref}",
                       data={"agent": "claude-code", "turn": "on"})  # fmt: skip
    assert answer.status_code == 403


def test_agents_that_read_it_untrusted_are_a_warning(enter, project):
    from satchel.testing import make_skill

    careful = enter(trust="ask")
    make_skill(project / ".agents" / "skills", "code-review", description="Reviews code.")
    (project / ".codex").mkdir()
    careful.satchel.refresh()
    text = _part(careful)
    assert 'class="sight warn"' in text
    assert "although it is not offered here" in text


def test_for_all_projects(here, tmp_path):
    assert "~/" in here.get(f"/skill?ref={REF}&everywhere=true").text
    sent = {"agent": "claude-code", "turn": "on", "everywhere": "true"}
    assert here.post(SWITCH, data=sent).status_code == 303
    assert os.path.lexists(tmp_path / ".claude" / "skills" / "code-review")
