"""Trigger prompts in every accepted form, and problems with their lines."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.skill.trigger_file import (
    MAX_FILE_BYTES,
    MAX_PROMPT_CHARS,
    MAX_PROMPTS,
    TriggerPrompt,
    load_triggers,
    read_triggers,
)


def _read(text: str):
    return read_triggers(text.encode())


def test_texts_and_tables_are_prompts():
    read = _read(
        "should:\n"
        "  - Review my code\n"
        "  - prompt: Look over this diff\n"
        "    note: from a user\n"
        "should_not:\n"
        "  - {prompt: Write a release note, instead: release-notes}\n"
        "  - 2026\n"
    )
    assert read.problems == ()
    assert read.prompts == (
        TriggerPrompt("Review my code", fires=True, line=2),
        TriggerPrompt("Look over this diff", fires=True, line=3, note="from a user"),
        TriggerPrompt("Write a release note", fires=False, line=6, instead="release-notes"),
        TriggerPrompt("2026", fires=False, line=7),
    )


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", [("triggers-shape", 1)]),
        ("should: [\n", [("triggers-not-yaml", 2)]),
        ("should: &a [x]\n", [("triggers-refused", 1)]),
        ("should: []\n", [("triggers-none", 1)]),
        ("should: [x]\nshoud_not: [y]\n", [("triggers-key", 2)]),
        ("should:\n  - x\n  - [y]\n", [("triggers-row", 3)]),
        ("should:\n  - {skill: x}\n", [("triggers-row", 2)]),
        ("should:\n  - x\n  - Fix this bug: it crashes\n", [("triggers-row", 3)]),
        ("should:\n  - prompt: x\n    instaed: y\n", [("triggers-key", 3)]),
        ("- x\n", [("triggers-shape", 1)]),
        (f"should: [{'x' * (MAX_PROMPT_CHARS + 1)}]\n", [("triggers-long", 1)]),
        ("#" * (MAX_FILE_BYTES + 1), [("triggers-large", 0)]),
        (
            "should:\n" + "".join(f"  - prompt {at}\n" for at in range(MAX_PROMPTS + 1)),
            [("triggers-many", MAX_PROMPTS + 2)],
        ),
        (
            "shoud: [x]\nshould_not:\n  - [y]\n  - a: b\n",
            [("triggers-key", 1), ("triggers-row", 3), ("triggers-row", 4)],
        ),
    ],
)
def test_a_problem_names_its_line(text, problems):
    read = _read(text)
    assert all(one.message and one.fix for one in read.problems)
    assert [(one.code, one.line) for one in read.problems] == problems
    assert read.problems


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(data):
    read = read_triggers(data)
    assert read.prompts or read.problems


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "large"])
def test_links_and_special_files_are_not_read(kind, tmp_path):
    folder = tmp_path / "skill"
    (folder / "evals").mkdir(parents=True)
    path = folder / "evals/triggers.yaml"
    if kind == "link":
        (tmp_path / "secret.yaml").write_text("should: [secret]\n")
        path.symlink_to(tmp_path / "secret.yaml")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("#" * (MAX_FILE_BYTES + 10))
    read = load_triggers(str(folder))
    assert read is not None
    assert read.prompts == ()
    (problem,) = read.problems
    assert problem.code == ("triggers-large" if kind == "large" else "unreadable")
    assert problem.path == str(path)
