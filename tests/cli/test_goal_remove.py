"""`satchel goal remove` by name and by age."""

from __future__ import annotations

import json
import os
import time

import pytest

pytestmark = pytest.mark.timeout(120)
ASK = """\
goal: Ask somebody
steps:
  - {id: ask, action_type: human, prompt: "Well?"}
"""
READ = """\
goal: Read a file
steps:
  - {id: read, tool: ReadFile, arguments: {path: notes.md}}
"""


@pytest.fixture
def place(empty):
    """A project with two goals that are done, `one` and `two`, and one that asks."""
    (empty.project / "ask.yaml").write_text(ASK, encoding="utf-8")
    (empty.project / "read.yaml").write_text(READ, encoding="utf-8")
    (empty.project / "notes.md").write_text("Notes.\n", encoding="utf-8")
    for name in ("one", "two"):
        done = empty.run("goal", "run", "read.yaml", "--id", name)
        assert done.status == 0, done.err
    assert empty.run("goal", "run", "ask.yaml", "--id", "asks").status == 8
    return empty


def listed(place) -> list[str]:
    return [one["id"] for one in json.loads(place.run("goal", "list", "--json").out)]


def age(place, days: float, *names: str) -> None:
    """Let goals be so old: their journals say it."""
    moment = time.time() - days * 86_400
    for folder, _, files in os.walk(place.home):
        if "journal.jsonl" not in files or os.path.basename(folder) not in names:
            continue
        path = os.path.join(folder, "journal.jsonl")
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        for line in lines:
            line.pop("sha", None)
            if "at" in line:
                line["at"] = moment
            if "step" in line:
                line["step"]["started"] = moment
        os.unlink(os.path.join(folder, "last"))
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def test_a_goal_that_is_over_is_removed_by_its_name(place):
    done = place.run("goal", "remove", "one")
    assert (done.status, done.out) == (0, "one\n")
    assert "Removed: 1 goal" in done.err
    assert listed(place) == ["asks", "two"]
    assert place.run("goal", "show", "one").status == 3
    assert place.run("goal", "run", "read.yaml", "--id", "one").status == 0  # from scratch
    assert listed(place) == ["one", "asks", "two"]
    left = [files for folder, _, files in os.walk(place.home) if folder.endswith("goals/one")]
    assert left


def test_a_damaged_goal_says_where_and_can_only_be_removed(place):
    (path,) = place.home.rglob("one/journal.jsonl")
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    assert "damaged" in place.run("goal", "list").out
    shown = place.run("goal", "show", "one")
    assert shown.status == 0
    assert "Line 1 of" in shown.out
    assert "satchel goal remove one" in shown.err
    for words in (("run", "read.yaml", "--id", "one"), ("resume", "one"), ("retry", "one")):
        done = place.run("goal", *words)
        assert (done.status, done.out) == (4, "")
        assert "`one` is damaged" in done.err
    assert place.run("goal", "remove", "one").status == 0
    assert place.run("goal", "run", "read.yaml", "--id", "one").status == 0


def test_one_that_is_not_over_is_refused_and_nothing_is_removed(place):
    done = place.run("goal", "remove", "one", "asks", "--yes")
    assert done.status == 4
    assert "Goal `asks` is not over: asking" in done.err
    assert "hint: Run `satchel goal cancel asks`" in done.err
    assert listed(place) == ["asks", "two", "one"]
    assert place.run("goal", "cancel", "asks").status == 0
    done = place.run("goal", "remove", "one", "asks", "--yes", "--json")
    assert json.loads(done.out) == {"removed": ["one", "asks"]}
    assert listed(place) == ["two"]


def test_several_are_asked_about(place):
    done = place.run("goal", "remove", "one", "two")
    assert done.status == 4
    assert "Not a terminal; pass `--yes`" in done.err
    begins = place.run("goal", "remove", "tw")  # only the beginning of a name
    assert begins.status == 4
    assert listed(place) == ["asks", "two", "one"]


def test_old_goals_that_are_over_are_removed(place):
    age(place, 31, "one", "asks")
    done = place.run("goal", "remove", "--older", "30d")
    assert (done.status, done.out) == (0, "one\n")
    assert listed(place) == ["two", "asks"]
    again = place.run("goal", "remove", "--older", "4w", "--yes")
    assert (again.status, again.out) == (0, "")
    assert "No goals" in again.err
    done = place.run("goal", "remove", "--older", "0m", "--yes")
    assert done.out == "two\n"
    assert listed(place) == ["asks"]
