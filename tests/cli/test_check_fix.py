"""`check --fix` writes what is mechanical as a plan, and `undo` takes it back."""

from __future__ import annotations

import json

import pytest

from satchel.skill.file_fixes import fix_skill_md
from satchel.skill.reader import parse_document

pytestmark = pytest.mark.timeout(120)
BROKEN = (
    "---\nname: other\ndescription: Reviews texts: use when asked.\ntags: a, b\n---\nRead it.\n"
)
FIXED = (
    '---\nname: review\ndescription: "Reviews texts: use when asked."\ntags: ["a", "b"]\n---\n'
    "Read it.\n"
)


@pytest.mark.parametrize(
    ("broken", "fixed"),
    [
        (BROKEN, FIXED),
        ("\ufeff" + BROKEN, FIXED),
        ("\n" + BROKEN.replace("---\nRead", "---  \nRead"), FIXED),
        (BROKEN.replace("\n", "\r\n"), FIXED.replace("\n", "\r\n")),
        (
            BROKEN.replace("---\nRead it.", "# Steps"),
            FIXED.replace("---\nRead it.", "---\n# Steps"),
        ),
        (BROKEN.replace("name: other\n", ""), FIXED),
        (BROKEN.replace("name:", "Name:"), FIXED.replace("name: review", "Name: other")),
        (BROKEN.replace("Reviews", "Reviews #1").replace(": use", ""), None),
        (BROKEN.replace("Reviews texts: use", '"Reviews texts: use'), FIXED),
        (BROKEN.replace("Read it.", "caf\udce9"), FIXED.replace("Read it.", "café")),
        (FIXED, FIXED),
        ("# No frontmatter\n", "# No frontmatter\n"),
        (BROKEN.replace("description: Reviews texts: use when asked.", "description: [a"), None),
    ],
)
def test_a_file_says_the_same_after_its_fix_with_fewer_problems(broken, fixed):
    data = broken.encode("utf-8", "surrogateescape")
    result = fix_skill_md(data, "review")
    new = parse_document(result, "review", "SKILL.md", (0, 0, 0))
    assert result == data or new.head
    assert fix_skill_md(result, "review") == result
    if fixed is not None and "Name:" not in broken:
        assert result.decode() == fixed


def test_fixes_are_a_plan_that_undo_takes_back(empty):
    for folder in (".agents/skills/review", ".claude/skills/review-2"):
        empty.skill(folder, BROKEN)
    script = empty.project / ".agents/skills/review/scripts/run.sh"
    script.parent.mkdir()
    script.write_bytes(b"#!/bin/sh\r\necho\r\n")
    files = [
        empty.project / ".agents/skills/review/SKILL.md",
        empty.project / ".claude/skills/review-2/SKILL.md",
    ]
    assert empty.run("check", "--yes").status == 2
    asked = empty.run("check", "--fix")
    assert asked.status == 4
    assert "pass `--yes` to confirm" in " ".join(asked.err.split())
    dry = empty.run("check", "--fix", "--dry-run")
    assert '+description: "Reviews texts: use when asked."' in dry.out
    assert [file.read_text() for file in files] == [BROKEN, BROKEN]
    done = empty.run("check", "--fix", "--yes")
    assert done.status == 0, done.err
    assert files[0].read_text() == FIXED
    assert files[1].read_text() == FIXED.replace("name: review", "name: review-2")
    assert script.read_bytes() == b"#!/bin/sh\necho\n"
    assert empty.run("undo").status == 0
    assert empty.run("undo").status == 0
    assert [file.read_text() for file in files] == [BROKEN, BROKEN]
    record = json.loads(empty.run("check", "--fix", "--yes", "--json", "review").out)
    assert record["done"] == ["review"]


def test_what_cannot_be_fixed_is_said_with_its_line(empty):
    empty.skill(".claude/skills/plain", "# No frontmatter\n")
    done = empty.run("check", "--fix", "--yes")
    assert done.status == 1
    assert "plain/SKILL.md\n  ✗ error no-frontmatter (line 1)" in done.out
