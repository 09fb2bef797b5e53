"""Imports of optional packages."""

from __future__ import annotations

from importlib import import_module

import pytest

from satchel._optional import available, installed, must_be_installed, require
from satchel.errors import MissingExtra


@pytest.fixture
def half(tmp_path, monkeypatch):
    """A folder with a package's name and nothing in it, as an uninstall leaves it."""
    (tmp_path / "halfpackage").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    return "halfpackage"


def test_an_empty_folder_is_no_package(half):
    assert not installed(half)
    with pytest.raises(MissingExtra) as caught:
        must_be_installed(half, "agent")
    assert 'pip install "satchel[agent]"' in caught.value.hint


def test_what_is_not_there_is_named_with_its_extra():
    assert available("nosuchpackage") is None
    with pytest.raises(MissingExtra, match="nosuchpackage") as caught:
        require("nosuchpackage", "ui")
    assert 'pip install "satchel[ui]"' in caught.value.hint
    must_be_installed("json", "ui")


def test_a_package_that_is_there_and_broken_says_what_breaks_it(tmp_path, monkeypatch):
    (tmp_path / "brokenpackage.py").write_text("import nosuchpackage\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nosuchpackage"):
        require("brokenpackage", "ui")


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("satchel.detect", "Answer", "Detection"),
        ("satchel.detect", "Reply", "ModelReply"),
        ("satchel.tools.packaged", "Answer", "ToolAnswer"),
        ("satchel.integrations.pydantic_ai", "Skills", "SkillsCapability"),
        ("satchel.integrations.claude_agent_sdk", "Skills", "SkillsOptions"),
        ("satchel.integrations.google_adk", "Skills", "SkillsToolset"),
        ("satchel.integrations.agent_framework", "Skills", "SkillsProvider"),
        ("satchel.integrations.smolagents", "SkillsAgent", "SkillsToolCallingAgent"),
    ],
)
def test_an_old_name_works_and_warns(module, old, new):
    found = import_module(module)
    with pytest.warns(DeprecationWarning, match=f"is `{new}` now"):
        assert getattr(found, old) is getattr(found, new)
