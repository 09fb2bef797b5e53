"""init and locations: where skills live, and which place wins."""

from __future__ import annotations

import json
import os

import pytest


def test_a_first_skill_is_written_listed_and_loaded(empty):
    path = empty.run("init").out.strip()
    assert os.path.isfile(path)
    assert "hello-skill" in empty.run("list").out
    loaded = empty.run("load", "hello-skill", "--args", "Ada")
    assert "greets: Ada" in loaded.out
    assert empty.run("validate", "--strict").status == 0
    made = json.loads(empty.run("init", "release-notes", "--json").out)
    assert made["name"] == "release-notes"
    assert "greet" not in empty.run("show", "release-notes").out
    for strict, words in (((), "1 warning"), (("--strict",), "no problems")):
        checked = empty.run("validate", made["path"], *strict)
        assert (checked.status, checked.err) == (0, f"1 file checked: {words}\n")
        assert ("description-unwritten" in checked.out) is (not strict)
    assert empty.run("init", "release-notes").status == 2


@pytest.mark.parametrize("name", ["My Skill", "a--b", "a-", "a_b", "技能", "a" * 65])
def test_init_says_what_a_name_may_be(empty, name):
    done = empty.run("init", name)
    assert done.status == 2
    assert "use a-z, 0-9 and single hyphens" in done.err
    assert "hint: Try `" in done.err


@pytest.mark.req("C8")
def test_locations_are_the_table_of_precedence(empty):
    found = json.loads(empty.run("locations", "--json").out)
    assert [(row["label"], row["source"]) for row in found["locations"]] == [
        (".agents/sys.skills", "system"),
        (".agents/skills", "user"),
        ("skills", "project"),
        (".skills", "project"),
        (".", "project"),
        ("~/.config/agents/skills", "global"),
    ]
    assert [row["writable"] for row in found["locations"]][:2] == [False, True]


def test_what_is_one_setting_away_is_told(terminal):
    terminal.skill(".claude/skills/other", "---\nname: other\ndescription: b\n---\nx\n")
    run = terminal.run("locations")
    assert "ecosystem = true also reads other agents' places: .claude/skills (1)" in run.err
    nearby = json.loads(terminal.run("locations", "--json").out)["one_setting_away"]
    assert [item["setting"] for item in nearby] == ["ecosystem", "ancestors"]
    on = json.loads(terminal.run("locations", "--json", SATCHEL_ECOSYSTEM="true").out)
    assert [item["setting"] for item in on["one_setting_away"]] == ["ancestors"]
    assert ".claude/skills" in [row["label"] for row in on["locations"]]
