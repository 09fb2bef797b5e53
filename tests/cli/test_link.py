"""The commands `link` and `agents`."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.timeout(60)  # each test starts the terminal many times


@pytest.fixture
def agents(terminal):
    """Claude Code and Copilot are used in the project, Codex by the user."""
    (terminal.project / ".claude").mkdir()
    (terminal.project / ".github/skills").mkdir(parents=True)
    (terminal.home / ".codex").mkdir()
    return terminal


def test_agents_and_what_they_see(agents):
    agents.check("agents", agents.run("agents"))
    agents.check("link", agents.run("link", "code-review", "--agent", "claude-code"))
    agents.check("link-seen", agents.run("link", "code-review", "--agent", "codex"))
    agents.check("link-all", agents.run("link", "--all", "--agent", "claude-code"))
    agents.check("agents-linked", agents.run("agents"))
    removed = agents.run("link", "--remove", "code-review", "--agent", "claude-code")
    agents.check("link-remove", removed)


def test_an_untrusted_skill_is_refused(agents):
    agents.check("link-untrusted", agents.run("link", "release-notes", "--agent", "claude-code"))
    assert not (agents.project / ".claude/skills/release-notes").exists()


def test_an_agent_that_reads_what_is_not_trusted_is_named(agents):
    agents.skill(".claude/skills/theirs", "---\nname: theirs\ndescription: b\n---\nx\n")
    agents.skill("skills/theirs", "---\nname: theirs\ndescription: b\n---\nx\n")
    err = agents.run("agents").err
    assert "theirs, claude-code" in err
    assert "although it is not trusted here" in " ".join(err.split())


def test_what_is_in_the_way_stays(agents):
    agents.skill(".claude/skills/code-review", "---\nname: code-review\ndescription: b\n---\nx\n")
    agents.check("link-in-the-way", agents.run("link", "code-review", "--agent", "claude-code"))
    assert not (agents.project / ".claude/skills/code-review").is_symlink()


def test_slips_are_told(agents):
    assert agents.run("link").status == 2
    assert agents.run("link", "--agent", "codex").status == 2
    assert agents.run("link", "code-review", "--all", "--agent", "codex").status == 2
    assert agents.run("link", "nothing", "--agent", "codex").status == 3
    slip = agents.run("link", "code-review", "--agent", "claude")
    assert slip.status == 3
    assert "Did you mean `claude-code`?" in slip.err
