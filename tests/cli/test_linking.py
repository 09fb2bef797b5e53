"""`satchel link` and `satchel agents`: other agents get what is offered here, and nothing else."""

from __future__ import annotations

import json
import os
import re

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


def test_the_matrix_fits_the_terminal(agents):
    for columns in ("40", "60", "80", "200"):
        out = agents.run("agents", "--all", COLUMNS=columns).out
        assert max(map(len, out.splitlines())) <= int(columns)
        assert all(word in out for word in ("claude-code", "windsurf", "code-review"))


def test_nobody_here(empty):
    run = empty.run("agents")
    assert run.status == 0
    assert "No other agent is used here" in run.err


def test_an_untrusted_skill_is_refused(agents):
    agents.check("link-untrusted", agents.run("link", "release-notes", "--agent", "claude-code"))
    assert not (agents.project / ".claude/skills/release-notes").exists()


def test_an_agent_that_reads_what_is_not_trusted_is_named(agents):
    agents.skill(".claude/skills/theirs", "---\nname: theirs\ndescription: b\n---\nx\n")
    agents.skill("skills/theirs", "---\nname: theirs\ndescription: b\n---\nx\n")
    err = agents.run("agents").err
    assert "theirs, claude-code" in err
    assert "although you have not trusted it" in " ".join(err.split())


def test_what_is_in_the_way_is_shown_and_kept(agents):
    agents.skill(".claude/skills/code-review", "---\nname: code-review\ndescription: b\n---\nx\n")
    words = ("link", "code-review", "--agent", "claude-code")
    agents.check("link-in-the-way", agents.run(*words))
    done = agents.run(*words, "--yes")
    assert done.status == 0
    assert "There now: .claude/skills/code-review, 1 file" in done.err
    kept = re.search(r"\.agents/\.satchel/replaced/\S+", done.err)
    assert kept is not None
    assert (agents.project / kept.group() / "SKILL.md").is_file()


def test_an_older_copy_is_shown_and_refreshed(agents):
    assert agents.run("link", "code-review", "--agent", "claude-code", "--copy").status == 0
    source = agents.project / ".agents/skills/code-review/references/checklist.md"
    source.write_text("- more\n")
    agents.trust(".agents/skills/code-review")
    assert "the copy is older than the skill" in agents.run("agents").err
    reply = json.loads(agents.run("link", "--refresh", "--json").out)
    assert [one["action"] for one in reply["links"]] == ["refreshed"]
    copy = agents.project / ".claude/skills/code-review/references/checklist.md"
    assert copy.read_text() == "- more\n"
    assert "is older" not in agents.run("agents").err


def test_a_change_that_nobody_approved_reaches_no_other_agent(agents):
    words = ("link", "release-notes", "--agent", "claude-code", "--copy")
    assert agents.run("trust", "release-notes", "--yes").status == 0
    assert agents.run(*words).status == 0
    (agents.project / "skills/release-notes/scripts/collect.py").write_text("print(2)\n")
    assert agents.run(*words).status == 4
    reply = json.loads(agents.run("link", "--refresh", "--json").out)
    assert [one["action"] for one in reply["links"]] == ["refused"]
    copy = agents.project / ".claude/skills/release-notes/scripts/collect.py"
    assert copy.read_text() == "print(1)\n"


def test_for_all_projects(agents):
    done = agents.run("link", "code-review", "--agent", "claude-code", "--user")
    assert done.status == 0
    assert os.path.islink(agents.home / ".claude/skills/code-review")
    assert not (agents.project / ".claude/skills").exists()


def test_several_agents_at_once_and_one_that_fails(agents):
    agents.skill(".claude/skills/fix-yaml", "---\nname: fix-yaml\ndescription: b\n---\nx\n")
    run = agents.run("link", "--all", "--agent", "claude-code", "--agent", "copilot", "--json")
    assert run.status == 1
    reply = json.loads(run.out)["links"]
    refused = [one["skill"] for one in reply if one["action"] == "refused"]
    assert refused == ["fix-yaml"]
    assert {one["agent"] for one in reply} == {"claude-code", "copilot"}
    assert sum(one["action"] == "made" for one in reply) >= 3


def test_json_has_all_agents_and_skills(agents):
    reply = json.loads(agents.run("agents", "--json").out)
    here = {agent["id"] for agent in reply["agents"] if agent["here"]}
    assert here == {"claude-code", "copilot", "codex"}
    row = next(row for row in reply["skills"] if row["name"] == "code-review")
    assert row["agents"]["codex"] == {
        "view": "sees",
        "place": ".agents/skills",
        "path": str(agents.project / ".agents/skills/code-review"),
        "kind": "itself",
        "why": "",
    }


def test_slips_are_told(agents):
    assert agents.run("link").status == 2
    assert agents.run("link", "--agent", "codex").status == 2
    assert agents.run("link", "code-review", "--all", "--agent", "codex").status == 2
    assert agents.run("link", "nothing", "--agent", "codex").status == 3
    slip = agents.run("link", "code-review", "--agent", "claude")
    assert slip.status == 3
    assert "Did you mean `claude-code`?" in slip.err


def test_agents_are_completed(agents):
    run = agents.run(
        _SATCHEL_COMPLETE="bash_complete", COMP_WORDS="satchel link x --agent cl", COMP_CWORD="4"
    )
    assert "claude-code" in run.out


def test_help(terminal):
    terminal.check("help-link", terminal.run("link", "--help"))
    terminal.check("help-agents", terminal.run("agents", "--help"))
