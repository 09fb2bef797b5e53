"""Skills in the folders of other agents are changed when a command names one."""

from __future__ import annotations

import json
import os

import pytest

pytestmark = pytest.mark.timeout(120)  # each test starts the terminal many times

TEXT = "---\nname: {name}\ndescription: Does it. Use when asked.\n---\nx\n"


@pytest.fixture
def there(empty, tmp_path):
    """A project with a skill of its own, one of Claude Code, and sources to install from."""
    empty.skill(".agents/skills/own", TEXT.format(name="own"))
    empty.skill(".claude/skills/theirs", TEXT.format(name="theirs"))
    empty.trust(".")
    for name in ("tool", "other"):
        empty.at(tmp_path).skill(f"source/{name}", TEXT.format(name=name))
    return empty


def names(there, folder: str = ".claude/skills") -> list[str]:
    return sorted(os.listdir(there.project / folder))


def test_remove_rename_and_undo(there):
    assert there.run("rename", "theirs", "ours").status == 0
    assert names(there) == ["ours"]
    assert json.loads(there.run("list", "--json").out)[1]["state"] == "active"
    assert there.run("remove", "ours", "--yes").status == 0
    assert names(there) == []
    assert "removing `ours`" in there.run("undo").err
    assert names(there) == ["ours"]
    assert "renaming" in there.run("undo").err
    assert names(there) == ["theirs"]
    assert "renaming" in there.run("undo", "--redo").err
    assert names(there, ".agents/skills") == ["own"]


def test_install_goes_to_agents_unless_told_otherwise(there, tmp_path):
    source = tmp_path / "source"
    assert there.run("install", str(source / "other"), "--yes").status == 0
    assert there.run("install", str(source / "tool"), "--to", "claude", "--yes").status == 0
    assert names(there, ".agents/skills") == ["other", "own"]
    assert names(there) == ["theirs", "tool"]
    assert "install" in there.run("undo", "--list").out
    there.at(tmp_path).skill("source/tool", TEXT.format(name="tool") + "More.\n")
    assert there.run("update", "tool", "--yes").status == 0
    assert "More." in (there.project / ".claude/skills/tool/SKILL.md").read_text()
    (there.project / ".claude/skills/tool/SKILL.md").write_text(TEXT.format(name="tool"))
    assert there.run("verify", "tool").status == 1
    assert there.run("install", str(source / "other"), "--to", "emacs", "--yes").status == 2


def test_skills_of_different_folders_are_refused_together(there):
    both = there.run("remove", "own", "theirs", "--yes")
    assert both.status == 2
    assert "lie in different folders" in both.err
    assert (names(there), names(there, ".agents/skills")) == (["theirs"], ["own"])
    user = there.run("remove", "theirs", "--scope", "user", "--yes")
    assert user.status != 0
    assert names(there) == ["theirs"]


def test_a_folder_of_the_home_and_a_broken_skill(there):
    home = there.at(there.home)
    home.skill(".claude/skills/mine", TEXT.format(name="mine"))
    assert there.run("remove", "mine", "--yes").status == 0
    assert names(home) == []
    assert there.run("undo", "--scope", "user").status == 0
    assert names(home) == ["mine"]
    there.skill(".claude/skills/broken", "# No frontmatter\n")
    assert there.run("remove", "broken", "--yes").status == 0
    assert names(there) == ["theirs"]
