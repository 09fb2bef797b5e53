"""Each rule fires where it should and nowhere else; the scaffolds tick every box."""

from __future__ import annotations

import os
import time

import pytest

from authoring.wrong import WRONG, write_good
from satchel.authoring.check_skill import RUN_RULES, check_folder
from satchel.authoring.checklist import RULES, find_rules
from satchel.authoring.scaffold import KINDS
from satchel.errors import NotFound
from satchel.skill.problems import PROBLEMS
from seed import MANIFEST, PYTHON

pytestmark = pytest.mark.req("E5", "E9")
NOT_RUN = {*RUN_RULES, "listed"}
"""Boxes that stay open when nothing is run."""


@pytest.mark.req("E11")
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_scaffold_is_green_as_generated(kind, language, tmp_path):
    skill = write_good(tmp_path, kind, language)
    (report,) = check_folder(str(skill.folder))
    assert not report.failed_codes
    open_boxes = {one.rule for one in report.verdicts if one.state == "skip"}
    assert not any(one.reason == "not checked" for one in report.verdicts)
    if kind == "skill":
        assert open_boxes == set()


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.id.replace(" ", "-"))
def test_a_rule_fires_where_it_should_and_nowhere_else(case, tmp_path):
    skill = write_good(tmp_path, case.kind, case.language)
    assert skill.failing() == set()
    case.spoil(skill)
    assert skill.failing() == case.fires


def test_the_wrong_skills_are_many_and_touch_every_rule():
    assert len(WRONG) >= 60
    assert len({case.id for case in WRONG}) == len(WRONG)
    fired = {rule for case in WRONG for rule in case.fires}
    rules = (*find_rules("tool"), *find_rules("skill"))
    static = {rule.id for rule in rules if rule.fix} - NOT_RUN  # the others have problems
    assert static - fired == set()
    assert not static & set(PROBLEMS)


def test_every_item_of_the_check_lists_is_a_rule():
    boxes = {box for rule in RULES.values() for box in rule.box.split()}
    assert boxes == {*(f"A{at}" for at in range(1, 19)), *(f"B{at}" for at in range(1, 13))}


# --- skills of strangers --------------------------------------------------------------------


def test_the_example_of_the_check_list_meets_its_own_rules_for_texts(tmp_path):
    folder = tmp_path / "excel"
    folder.mkdir()
    (folder / "skill.yaml").write_text(MANIFEST, encoding="utf-8")
    (folder / "main.py").write_text(PYTHON, encoding="utf-8")
    (report,) = check_folder(str(folder))
    assert not report.failed_codes


def _timed(folder) -> float:
    """The processor's seconds: others may use the machine too."""
    began = time.process_time()
    check_folder(str(folder))
    return time.process_time() - began


@pytest.mark.parametrize(
    ("kind", "file", "text"),
    [
        ("skill", "SKILL.md", "---\nname: a\ndescription: b\n---\n" + "\n" * 900_000),
        ("skill", "SKILL.md", "---\nname: a\ndescription: b\n---\n" + "```\n" * 300_000),
        ("skill", "SKILL.md", "---\nname: a\ndescription: " + "1" * 60_000 + "\n---\n"),
    ],
)
def test_no_file_makes_the_check_wait(kind, file, text, tmp_path):
    skill = write_good(tmp_path, kind)
    skill.write(file, text)
    assert _timed(skill.folder) < 5


def test_unusual_files_are_reported_and_not_opened(tmp_path):
    skill = write_good(tmp_path, "python")
    (skill.folder / "main.py").unlink()
    os.mkfifo(skill.folder / "main.py")
    (report,) = check_folder(str(skill.folder))
    assert "tool-entry-path" in report.failed_codes
    with pytest.raises(NotFound, match=r"no SKILL\.md in"):
        check_folder(str(tmp_path))
