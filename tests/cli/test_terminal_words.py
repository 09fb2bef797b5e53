"""What a terminal shows: marks, counts, conflicts, folders that cannot be written, interruption."""

from __future__ import annotations

import errno
import json
import os
import sys

import pytest

from satchel.cli.console import Screen
from satchel.cli.main import guarded
from satchel.store.disk_errors import to_refusal

SKILL = "---\nname: {0}\ndescription: Fills {0} forms. Use for forms.\n---\nFill.\n"
CONFLICT = (
    "---\nname: notes\n<<<<<<< HEAD\ndescription: Takes notes. Use for notes.\n=======\n"
    "description: Writes minutes. Use for minutes.\n>>>>>>> theirs\n---\nWrite.\n"
)
IN_BODY = (
    "---\nname: notes\ndescription: Takes notes. Use for notes.\n---\nWrite.\n"
    "<<<<<<< HEAD\nOn paper.\n=======\nOn a screen.\n>>>>>>> theirs\n"
)


def test_marks_are_ascii_where_the_terminal_can_encode_nothing_else(empty):
    empty.skill("skills/pdf", SKILL.format("pdf"))
    empty.trust("skills")
    shown = empty.run("list", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert shown.out.splitlines()[1].startswith("*  pdf")
    assert "\\u" not in shown.out + shown.err


@pytest.mark.parametrize("text", [CONFLICT, "<<<<<<< HEAD\n" + CONFLICT])
def test_a_merge_conflict_in_the_frontmatter_is_named_with_its_fix(empty, text):
    empty.skill("skills/notes", text)
    empty.trust("skills")
    shown = empty.run("check", "skills/notes").out
    assert "The file has a merge conflict" in shown
    assert "Keep one side of the lines" in shown


def test_marks_of_a_merge_conflict_in_the_instructions_are_a_warning_and_the_skill_loads(empty):
    empty.skill("skills/notes", IN_BODY)
    empty.trust("skills")
    shown = empty.run("doctor").out
    assert "warning conflict-marks (line 6)" in shown
    assert "Keep one side of the lines" in shown
    assert "On a screen." in empty.run("show", "notes", "--as-model").out


def test_an_example_of_a_merge_conflict_is_no_conflict(empty):
    body = IN_BODY.split("Write.\n")[1]
    empty.skill("skills/notes", f"{IN_BODY.split('Write.', maxsplit=1)[0]}```text\n{body}```\n")
    empty.trust("skills")
    assert "merge conflict" not in empty.run("check", "notes").out


def test_a_merge_conflict_in_the_lockfile_is_named_with_its_fix(empty):
    lock = empty.project / ".agents" / "satchel.lock"
    empty.skill(".agents/skills/pdf", SKILL.format("pdf"))
    empty.trust(".agents/skills")
    lock.write_text('{\n<<<<<<< HEAD\n  "version": 1\n=======\n  "version": 2\n>>>>>>> b\n}\n')
    for command in ("doctor", "why"):
        shown = empty.run(command, *(["pdf"] if command == "why" else [])).out
        assert "merge conflict" in shown
        assert "git checkout --ours .agents/satchel.lock" in shown


def test_verify_says_that_skills_elsewhere_are_not_locked(empty):
    empty.skill("skills/pdf", SKILL.format("pdf"))
    empty.trust("skills")
    shown = empty.run("verify")
    assert "`.agents/skills` has no installed skills" in shown.err
    assert "Not locked, in other folders: 1 skill" in shown.err


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.EROFS, "writable"), (errno.EACCES, "writable"), (errno.ENOSPC, "Free some space")],
)
def test_a_disk_that_refuses_a_write_is_explained(code, words):
    assert words in to_refusal(OSError(code, os.strerror(code), "/x")).hint


def test_a_setting_that_cannot_be_written_is_no_traceback(empty):
    (empty.home / ".config").mkdir(parents=True, exist_ok=True)
    (empty.home / ".config" / "satchel").write_text("not a folder")
    done = empty.run("config", "set", "budget", "9000")
    assert done.status == 4
    assert "Traceback" not in done.err
    assert "nothing was changed" in done.err


def test_an_interrupted_command_says_that_it_stopped(capsys):
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert guarded(interrupted) == 130
    assert capsys.readouterr().err == "Stopped\n"


def test_a_long_name_costs_only_its_own_row_a_second_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    names = [*(f"skill-{n}" for n in range(19)), "a-very-long-name-" + "x" * 40]
    rows = [["●", name, "Fills in forms for people and for programs"] for name in names]
    Screen(sys.stdout).table(["", "name", "description"], rows, [[]] * len(rows))
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(rows) + 1


def test_a_template_that_was_not_filled_in_ranks_last(empty):
    about = {
        "skill-template": "TODO: What it does. Analyses an Excel file.",
        "sheets": "Reads Excel workbooks and sums their columns.",
        "files": "Renames a file after its date.",
    }
    for name, text in about.items():
        empty.skill(f"skills/{name}", f"---\nname: {name}\ndescription: '{text}'\n---\nDo.\n")
    empty.trust("skills")
    found = json.loads(empty.run("search", "analyse excel file", "--json").out)
    names = [one["name"] for one in found["skills"]]
    assert names[-1] == "skill-template"
    assert len(names) > 1
