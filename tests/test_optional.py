"""Imports of optional packages."""

from __future__ import annotations

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


def test_a_missing_package_is_named_with_its_extra():
    assert available("nosuchpackage") is None
    with pytest.raises(MissingExtra, match="nosuchpackage") as caught:
        require("nosuchpackage", "ui")
    assert 'pip install "satchel[ui]"' in caught.value.hint
    must_be_installed("json", "ui")


def test_a_broken_package_is_reported_with_its_error(tmp_path, monkeypatch):
    (tmp_path / "brokenpackage.py").write_text("import nosuchpackage\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nosuchpackage"):
        require("brokenpackage", "ui")
