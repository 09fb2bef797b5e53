"""A mend is made only where there is one right answer, and shown before it is made."""

from __future__ import annotations

import pytest

from authoring.wrong import TOOL, write_good
from satchel.authoring.autofix import apply, find_fixes
from satchel.authoring.check_skill import check_folder
from satchel.errors import Refused

pytestmark = pytest.mark.req("E9")


def _mends(skill):
    folder = str(skill.folder)
    return find_fixes(folder, check_folder(folder))


@pytest.mark.parametrize(
    ("kind", "old", "new", "file", "better"),
    [
        ("python", f"name: {TOOL}", "name: Word-Count-Count", "skill.yaml", f"name: {TOOL}"),
        ("python", f"name: {TOOL}", 'name: "count"', "skill.yaml", f'name: "{TOOL}"'),
        ("python", f"name: {TOOL}", "name: do_word_count # x", "skill.yaml", "word_count_do # x"),
        (
            "python",
            'description: "Counts the lines, words',
            "description: Counts this: the lines, words",
            "skill.yaml",
            'description: "Counts this: the lines, words',
        ),
        ("skill", "Use when the", "Note: use when the", "SKILL.md", 'description: "Reviews'),
    ],
)  # fmt: skip
def test_certain_slips_are_mended(kind, old, new, file, better, tmp_path):
    skill = write_good(tmp_path, kind)
    skill.edit(old, new, file)
    if "Counts this" in new:
        skill.edit('in the workspace."', "in the workspace.")
    before = skill.read(file)
    assert skill.failing()
    (mend,) = _mends(skill)
    diff = mend.diff(str(tmp_path))
    assert f"--- a/word-count/{file}" in diff
    assert any(
        line.startswith("+") and line.strip("+\n") in mend.after.decode()
        for line in diff.splitlines()
    )
    assert skill.read(file) == before
    apply([mend])
    assert better in skill.read(file)
    assert skill.failing() == set()
    assert _mends(skill) == []


def test_what_may_mean_two_things_is_left_alone(tmp_path):
    skill = write_good(tmp_path, "python")
    skill.edit("runtime: python", "runtime: perl")
    assert _mends(skill) == []
    skill.edit("runtime: perl", "runtime: python")
    skill.edit("Counts the lines", "A counter of lines")
    assert _mends(skill) == []


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path):
    skill = write_good(tmp_path, "python")
    skill.edit(f"name: {TOOL}", "name: count")
    mends = _mends(skill)
    skill.edit("docs:", "# mine\ndocs:")
    with pytest.raises(Refused, match="changed meanwhile"):
        apply(mends)
    assert "# mine" in skill.read("skill.yaml")


def test_links_are_not_written_through(tmp_path):
    skill = write_good(tmp_path, "python")
    skill.edit(f"name: {TOOL}", "name: count")
    real = tmp_path / "elsewhere.yaml"
    (skill.folder / "skill.yaml").rename(real)
    (skill.folder / "skill.yaml").symlink_to(real)
    assert _mends(skill) == []
