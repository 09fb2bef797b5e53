"""An example is a stranger's words: it moves no file of the user, and has no limits of its own."""

from __future__ import annotations

import os

import pytest

from satchel import Satchel
from satchel.authoring.tool_tests import open_program, run_cases
from satchel.testing import make_tool_skill

pytestmark = pytest.mark.timeout(60)

COPY = """
import json, sys
given = json.loads(sys.stdin.readline())["arguments"]
try:
    with open(given["source"]) as file:
        text = file.read()
    with open(given["target"], "w") as file:
        file.write(text)
    reply = {"output": f"copied {text}", "error": ""}
except Exception:
    reply = {"output": "", "error": "File cannot be copied: source — give another one"}
print(json.dumps(reply))
"""
FILES = """files:
  read: [source]
  write: [target]
parameters:
  - {name: source, type: string, required: true, description: 'A file: a.txt'}
  - {name: target, type: string, required: true, description: 'A file: b.txt'}
docs:
  examples:
    - scenario: one
      arguments: {source: "SOURCE", target: "TARGET"}
"""


@pytest.fixture
def satchel(tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "satchel"))
    (tmp_path / "project").mkdir()
    found = Satchel.for_project(tmp_path / "project", trust="all", builtin=False, packaged=False)
    yield found
    found.close()


def _example(satchel, source: str, target: str = "b.txt", more: str = FILES):
    skills = os.path.join(satchel.settings.project, "skills")
    more = more.replace("SOURCE", source).replace("TARGET", target)
    path = make_tool_skill(skills, "copier", COPY, more=more)
    return next(run_cases(open_program(satchel, os.path.dirname(path))))


def test_a_file_of_the_project_is_copied(satchel, tmp_path):
    folder = tmp_path / "project" / "data"
    folder.mkdir()
    (folder / "a.txt").write_text("hello")
    (folder / "link.txt").symlink_to("a.txt")
    for source in ("data/a.txt", "data/link.txt", str(folder / "a.txt")):
        outcome = _example(satchel, source, "data/b.txt")
        assert (outcome.state, outcome.text) == ("pass", "copied hello"), outcome
    assert sorted(os.listdir(folder)) == ["a.txt", "link.txt"]


def test_no_example_gets_a_file_from_outside(satchel, tmp_path):
    private = tmp_path / "key"
    private.write_text("PRIVATE")
    (tmp_path / "project" / "notes.txt").symlink_to(private)
    (tmp_path / "project" / "home").symlink_to(tmp_path)
    for source in ("notes.txt", "home/key", "../key", str(private)):
        outcome = _example(satchel, source)
        assert outcome.state == "not-run", outcome
        assert "leads outside the project" in outcome.text
        assert "PRIVATE" not in outcome.text


def test_no_example_overwrites_a_file_of_the_user(satchel, tmp_path):
    """In the project the path means a file of it; beside a copy of it, it would mean the user's."""
    project, mine = tmp_path / "project", tmp_path / "mine.txt"
    mine.write_text("mine")
    (project / "a/b/c/d").mkdir(parents=True)
    (project / "link").symlink_to("a/b/c/d")
    planted = project / str(mine).lstrip("/")
    planted.parent.mkdir(parents=True)
    planted.write_text("THEIRS")
    outcome = _example(satchel, "link/../../../.." + str(mine))
    assert (outcome.state, outcome.text.partition(":")[0]) == (
        "not-run", "The path leads outside the project",
    )  # fmt: skip
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("source", ["folder", "pipe", "large"])
def test_an_example_cannot_read_files_that_a_call_cannot_read(satchel, tmp_path, source):
    project = tmp_path / "project"
    (project / "folder").mkdir()
    os.mkfifo(project / "pipe")
    with open(project / "large", "wb") as file:
        file.truncate(1 << 40)
    outcome = _example(satchel, source)
    assert (outcome.state, source in outcome.text) == ("not-run", True), outcome
