"""Skills of the plugins that are installed for Claude Code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from installed import plugin, settle
from satchel import Satchel
from satchel.errors import Refused
from satchel.testing import make_skill

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    (tmp_path / "project").mkdir()
    (tmp_path / "home/.claude/plugins").mkdir(parents=True)
    return tmp_path / "home/.claude/plugins"


@pytest.fixture
def project(plugins: Path) -> Path:
    return plugins.parents[2] / "project"


def found(project: Path, **settings) -> list[str]:
    return sorted(skill.ref for skill in Satchel.for_project(project, **settings).list_skills())


def test_a_marketplace_with_five_plugins(plugins, project):
    """Skills in the usual folder, in one that the plugin names, and two that the market names."""
    plugin(plugins, "usual", "review", version="2.0.1")
    named = plugin(plugins, "named", "lint", inside="more")
    manifest = {"name": "named", "skills": ["./more", "../usual/2.0.1/skills", 7]}
    (named / ".claude-plugin/plugin.json").write_text(json.dumps(manifest))
    plugin(plugins, "listed", "one", "two", "three", inside=".")
    market = plugins / "marketplaces/market/.claude-plugin"
    market.mkdir(parents=True)
    rows = [{"name": "listed", "source": "./", "skills": ["./one", "./two"]}]
    (market / "marketplace.json").write_text(json.dumps({"name": "market", "plugins": rows}))
    plugin(plugins, "empty")
    plugin(plugins, "off", "off")
    switches = {"enabledPlugins": {"off@market": False, "usual@market": True}}
    (plugins.parent / "settings.json").write_text(json.dumps(switches))
    assert found(project) == [
        "plugin:listed@market/one", "plugin:listed@market/two", "plugin:named@market/lint",
        "plugin:usual@market/review",
    ]  # fmt: skip
    skill = Satchel.for_project(project).get_skill("review")
    assert skill is not None
    assert (skill.source, skill.origin.version) == ("plugin", "2.0.1")
    assert found(project, ecosystem=False) == []


def test_a_plugin_of_another_project_is_not_used_here(plugins, project):
    plugin(plugins, "here", "here", scope="project", projectPath=str(project))
    plugin(plugins, "there", "there", scope="local", projectPath=str(project.parent / "other"))
    (project / ".claude").mkdir()
    assert found(project) == ["plugin:here@market/here"]
    off = {"enabledPlugins": {"here@market": False}}
    (project / ".claude/settings.local.json").write_text(json.dumps(off))
    assert found(project) == []


def test_the_folders_of_claude_code_can_be_moved(plugins, project, monkeypatch):
    elsewhere = plugins.parents[2] / "elsewhere"
    plugin(elsewhere / "plugins", "moved", "moved")
    assert found(project) == []
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(elsewhere))
    assert found(project) == ["plugin:moved@market/moved"]
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    monkeypatch.setenv("CLAUDE_CODE_PLUGIN_CACHE_DIR", str(elsewhere / "plugins"))
    assert found(project) == ["plugin:moved@market/moved"]


def test_records_of_version_1_are_read_and_broken_ones_are_not(plugins, project):
    folder = plugin(plugins, "old", "old")
    records = plugins / "installed_plugins.json"
    row = {"version": "1.0.0", "installPath": str(folder)}
    records.write_text(json.dumps({"version": 1, "plugins": {"old@market": row}}))
    assert found(project) == ["plugin:old@market/old"]
    for text in ("", "[", "[]", '{"plugins": []}', '{"plugins": {"a": [1], "a@b": [{}, 2]}}'):
        records.write_text(text)
        assert found(project) == []


def test_an_update_is_noticed_and_nothing_there_is_changed(plugins, project):
    plugin(plugins, "tool", "tool")
    satchel = Satchel.for_project(project)
    assert [skill.origin.version for skill in satchel.list_skills()] == ["1.0.0"]
    settle()
    (plugins / "installed_plugins.json").unlink()
    plugin(plugins, "tool", "tool", "more", version="1.1.0")
    assert [skill.origin.version for skill in satchel.refresh()] == ["1.1.0", "1.1.0"]
    make_skill(project / ".agents/skills", "own")
    with pytest.raises(Refused, match="does not write to"), satchel.store().plan_remove(["tool"]):
        pass
    skill = satchel.get_skill("tool")
    assert skill is not None
    with pytest.raises(Refused):
        satchel.store_of(skill)
