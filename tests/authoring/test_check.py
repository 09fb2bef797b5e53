"""Each rule fires where it should and nowhere else; the scaffolds tick every box."""

from __future__ import annotations

import os

import pytest
from wrong import WRONG, write_good

from satchel.authoring.check import check_folder
from satchel.authoring.check_tool import dependencies
from satchel.authoring.rules import RULES, rules_of
from satchel.authoring.scaffold import KINDS
from satchel.errors import NotFound

pytestmark = pytest.mark.req("E5", "E9")
NOT_RUN = {"answers", "refuses", "go-builds", "listed", "texts-language"}
"""Boxes that stay open when nothing is run and nobody asks for a language."""


def _failing(folder) -> set[str]:
    return {rule for report in check_folder(str(folder)) for rule in report.failing}


@pytest.mark.req("E11")
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_scaffold_is_green_as_generated(kind, language, tmp_path):
    skill = write_good(tmp_path, kind, language)
    (report,) = check_folder(str(skill.folder), language=language)
    assert report.failing == set()
    open_boxes = {one.rule for one in report.verdicts if one.state == "skip"}
    assert not any(one.reason == "nobody looked at it" for one in report.verdicts)
    if kind == "skill":
        assert open_boxes == set()
    else:
        assert "texts-language" not in open_boxes


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.id.replace(" ", "-"))
def test_a_rule_fires_where_it_should_and_nowhere_else(case, tmp_path):
    skill = write_good(tmp_path, case.kind, case.language)
    assert _failing(skill.folder) == set()
    case.spoil(skill)
    assert _failing(skill.folder) == case.fires


def test_the_wrong_skills_are_many_and_touch_every_rule():
    assert len(WRONG) >= 60
    assert len({case.id for case in WRONG}) == len(WRONG)
    fired = {rule for case in WRONG for rule in case.fires}
    static = {rule.id for rule in (*rules_of("tool"), *rules_of("skill"))} - NOT_RUN
    assert static - fired == set()


def test_every_box_of_the_lists_is_a_rule():
    boxes = {box for rule in RULES.values() for box in rule.box.split()}
    assert boxes == {*(f"A{at}" for at in range(1, 19)), *(f"B{at}" for at in range(1, 13))}


def test_the_libraries_of_a_skill_are_known_by_what_it_asks_for(tmp_path):
    skill = write_good(tmp_path, "python")
    skill.write(
        "requirements.txt", "# tables\nTable_Forge[fast]>=2 ; python_version > '3'\nrequests\n"
    )
    skill.write("package.json", '{"dependencies": {"@somebody/rows": "1", "colrow": "2"}}')
    skill.write("go.mod", "module x\n\nrequire (\n\tgithub.com/a/Sheets/v2 v2.1.0\n)\n")
    assert dependencies(str(skill.folder)) == {"table-forge", "rows", "colrow", "sheets"}
    skill.write("package.json", "[")
    assert "colrow" not in dependencies(str(skill.folder))


def test_packages_are_judged_line_by_line(tmp_path):
    skill = write_good(tmp_path, "python")
    skill.write("requirements.txt", "tableforge==2.0\n\n-e .\nhttps://example.org/a.whl\n")
    (report,) = check_folder(str(skill.folder))
    slips = [one for one in report.verdicts if one.state == "fail"]
    assert [(one.rule, one.line) for one in slips] == [("packages", 3), ("packages", 4)]
    assert slips[0].message == "`requirements.txt` may only name packages: `-e .`"
    node = write_good(tmp_path / "node", "typescript")
    node.write("package.json", '{\n  "dependencies": {\n    "rows": "file:../rows"\n  }\n}\n')
    (report,) = check_folder(str(node.folder))
    (slip,) = [one for one in report.verdicts if one.state == "fail"]
    assert (slip.rule, slip.line) == ("packages", 3)


def test_a_program_that_does_not_parse_says_so_once(tmp_path):
    skill = write_good(tmp_path, "python")
    skill.edit("def main():", "def main(:", "main.py")
    (report,) = check_folder(str(skill.folder))
    (slip,) = [one for one in report.verdicts if one.state == "fail"]
    assert (slip.rule, slip.fix) == ("program-parses", "Correct that line")
    assert slip.path.endswith("main.py")


def test_a_binary_says_how_it_is_made_again(tmp_path):
    skill = write_good(tmp_path, "binary")
    os.utime(skill.folder / "main.c", (4e9, 4e9))
    (report,) = check_folder(str(skill.folder))
    (slip,) = [one for one in report.verdicts if one.state == "fail"]
    assert (slip.severity, slip.fix) == ("warning", "Run `cc -O2 -o skill main.c`")


def test_a_skill_yml_is_to_be_renamed(tmp_path):
    skill = write_good(tmp_path, "python")
    (skill.folder / "skill.yaml").rename(skill.folder / "skill.yml")
    with pytest.raises(NotFound, match=r"skill\.yml"):
        check_folder(str(skill.folder))


def test_texts_in_another_language_than_asked_for(tmp_path):
    skill = write_good(tmp_path, "python", "en")
    (report,) = check_folder(str(skill.folder), language="zh")
    assert report.failing == {"texts-language", "error-language"}


def test_a_verdict_speaks_the_readers_language(tmp_path, monkeypatch):
    skill = write_good(tmp_path, "python")
    skill.edit("Counts the lines", "A counter of the lines")
    monkeypatch.setenv("SATCHEL_LANG", "zh")
    (report,) = check_folder(str(skill.folder))
    (verdict,) = [one for one in report.verdicts if one.state == "fail"]
    assert verdict.message.isascii() is False
    assert verdict.to_dict()["rule"] == "description-verb"


@pytest.mark.parametrize(
    ("words", "says_when"),
    [
        ("Use on Fridays.", True),
        ("Made for the newsletter of every week.", True),
        ("Runs on demand.", True),
        ("A useful collection on Rust lifetimes.", False),
        ("Notes of what our teams use at work.", False),
    ],
)
def test_a_time_says_when_and_a_place_does_not(words, says_when, tmp_path):
    skill = write_good(tmp_path, "skill", "en")
    skill.edit(
        "Use when the user asks for a review, a proofread or feedback on something they wrote.",
        words,
        "SKILL.md",
    )
    assert ("skill-when" not in _failing(skill.folder)) is says_when
