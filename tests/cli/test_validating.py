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
