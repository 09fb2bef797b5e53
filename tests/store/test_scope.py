"""The folders that Satchel writes to: where they are, and that nothing leads elsewhere."""

from __future__ import annotations

import os

import pytest

from chaos import works
from satchel.errors import AccessDenied, InvalidInput
from satchel.settings import load_settings
from satchel.store.scope import check_id, scope_of


@pytest.mark.parametrize("link", [".agents", ".agents/skills"])
def test_a_link_out_of_the_project_is_refused(tmp_path, link):
    project, outside = tmp_path / "project", tmp_path / "outside"
    outside.mkdir()
    (project / link).parent.mkdir(parents=True)
    (project / link).symlink_to(outside)
    with pytest.raises(AccessDenied, match="outside"):
        scope_of(load_settings(str(project)), "project")
    with pytest.raises(AccessDenied, match="outside"):
        works.transactions(str(project), "add", "alpha", 1)
    assert os.listdir(outside) == []


@pytest.mark.parametrize("part", ["", "stage", "history", "base", "trash"])
def test_the_work_area_is_never_a_link(tmp_path, part):
    project, elsewhere = tmp_path / "project", tmp_path / "project/elsewhere"
    elsewhere.mkdir(parents=True)
    link = project / ".agents/.satchel" / part
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(AccessDenied, match="link"):
        works.transactions(str(project), "add", "alpha", 1)
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".git", "a/b", "a\\b", "c:x", "a\0", "a\nb", "a ", "a.", " a", "a\u202eb",
     "x" * 256, "\ud800"],
)  # fmt: skip
def test_names_that_no_folder_may_have(name):
    with pytest.raises(InvalidInput):
        check_id(name)


def test_what_a_crash_left_of_the_first_use_is_cleared_later(tmp_path):
    works.transactions(str(tmp_path), "add", "alpha", 1)
    work = tmp_path / ".agents/.satchel"
    old, young = work / "..gitignore.1.0011aabb", work / ".owner.2.0011aabb"
    for path in (old, young):
        path.write_text("")
    os.utime(old, (0, 0))
    works.transactions(str(tmp_path), "add", "beta", 1)
    # The young one may be somebody's who is about to rename it.
    assert not old.exists()
    assert young.exists()
