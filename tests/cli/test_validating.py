"""`satchel validate`: every problem of a skill, and an exit code for CI."""

from __future__ import annotations

import json

import pytest


def test_validate_checks_what_it_is_pointed_at(terminal):
    every = json.loads(terminal.run("validate", "--json").out)
    assert len(every) == 7
    assert [row["ok"] for row in every].count(False) == 1
    folder = json.loads(terminal.run("validate", "skills", "--json").out)
    assert len(folder) == 3
    one = json.loads(terminal.run("validate", ".agents/skills/fix-yaml/SKILL.md", "--json").out)
    assert [problem["code"] for problem in one[0]["problems"]] == ["repaired-value"]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("validate", ".agents/skills/team/style-guide"), 0),
        (("validate", ".agents/skills/fix-yaml"), 0),
        (("validate", ".agents/skills/fix-yaml", "--strict"), 1),
        (("validate", "skills/plain-text"), 1),
        (("validate", "nowhere"), 3),
        (("validate", ".agents/skills/code-review/references"), 3),
    ],
)
def test_validate_exits_by_what_it_found(terminal, words, status):
    assert terminal.run(*words).status == status


def test_strict_tells_a_known_field_from_an_unknown_one(empty):
    empty.skill(
        "skills/demo",
        "---\nname: demo\ndescription: b\nuser-invocable: false\nmood: good\n---\nx\n",
    )
    done = empty.run("validate", "skills/demo", "--strict", COLUMNS="")
    assert done.status == 1
    assert "✗ breaks the specification  skills/demo/SKILL.md" in done.out
    assert (
        "✗ error not-in-spec (line 4): `user-invocable` is not in the published specification; "
        "agents that know it read it" in done.out
    )
    assert "✗ error unknown-field (line 5)" in done.out
    assert done.err == "1 file checked: 2 errors\n"


def test_one_unreadable_file_does_not_hide_another(terminal):
    (terminal.project / "skills/link").mkdir()
    (terminal.project / "skills/link/SKILL.md").symlink_to("gone")
    rows = json.loads(terminal.run("validate", "skills", "--json").out)
    assert len(rows) == 4
    bad = [row for row in rows if not row["ok"]]
    assert {row["problems"][0]["code"] for row in bad} == {"no-frontmatter", "unreadable"}
