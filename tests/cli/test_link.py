"""The command `link`."""

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


def test_agents_and_their_visible_skills(agents):
    agents.check("agents", agents.run("link", "--list"))
    agents.check("link", agents.run("link", "code-review", "--agent", "claude-code"))
    agents.check("link-seen", agents.run("link", "code-review", "--agent", "codex"))
    agents.check("link-all", agents.run("link", "--all", "--agent", "claude-code"))
    agents.check("agents-linked", agents.run("link", "--list"))
    removed = agents.run("link", "--remove", "code-review", "--agent", "claude-code")
    agents.check("link-remove", removed)


def test_an_untrusted_skill_is_refused(agents):
    agents.check("link-untrusted", agents.run("link", "release-notes", "--agent", "claude-code"))
    assert not (agents.project / ".claude/skills/release-notes").exists()


def test_an_agent_that_reads_what_is_not_trusted_is_named(agents):
    agents.skill(".claude/skills/theirs", "---\nname: theirs\ndescription: b\n---\nx\n")
    agents.skill("skills/theirs", "---\nname: theirs\ndescription: b\n---\nx\n")
    err = agents.run("link", "--list").err
    assert "theirs, claude-code" in err
    assert "although it is not trusted here" in " ".join(err.split())


def test_an_existing_file_stays(agents):
    agents.skill(".claude/skills/code-review", "---\nname: code-review\ndescription: b\n---\nx\n")
    agents.check("link-in-the-way", agents.run("link", "code-review", "--agent", "claude-code"))
    assert not (agents.project / ".claude/skills/code-review").is_symlink()


def test_wrong_arguments_have_a_hint(agents):
    assert agents.run("link").status == 2
    assert agents.run("link", "--agent", "codex").status == 2
    assert agents.run("link", "code-review", "--all", "--agent", "codex").status == 2
    assert agents.run("link", "nothing", "--agent", "codex").status == 3
    slip = agents.run("link", "code-review", "--agent", "claude")
    assert slip.status == 3
    assert "Did you mean `claude-code`?" in slip.err
