"""`satchel show`: everything about one skill, trusted or not."""

from __future__ import annotations

import json
import os

from satchel.cli.showing import MAX_FILES, files_of


def test_show_tells_every_field_and_whether_it_acts(terminal):
    shown = json.loads(terminal.run("show", "code-review", "--json").out)
    status = {field["name"]: field["status"] for field in shown["fields"]}
    assert status == {
        "name": "honoured",
        "description": "honoured",
        "license": "honoured",
        "effort": "inert",
        "colour": "unknown",
    }
    assert [file["path"] for file in shown["files"]] == ["SKILL.md", "references/checklist.md"]
    assert shown["others"] == ["skills/code-review"]
    assert shown["body"].strip() == "# Code review\n\nLook at $ARGUMENTS."
    assert {problem["code"] for problem in shown["problems"]} == {"inert-field", "unknown-field"}


def test_show_serves_values_that_json_does_not_know(empty):
    empty.skill("skills/a", "---\nname: a\ndescription: b\nsince: 2024-01-02\n---\nx\n")
    shown = json.loads(empty.run("show", "a", "--json").out)
    assert {field["name"]: field["value"] for field in shown["fields"]}["since"] == "2024-01-02"
    assert "2024-01-02" in empty.run("show", "a").out


def test_a_skill_of_many_files_is_counted_not_listed(empty):
    empty.skill("skills/many", "---\nname: many\ndescription: b\n---\nx\n")
    for number in range(MAX_FILES + 50):
        (empty.project / "skills/many" / f"f{number:04}.md").write_text("x")
    files, more = files_of(str(empty.project / "skills/many"))
    assert (len(files), more) == (MAX_FILES, 51)
    assert "… and 51 more" in empty.run("show", "many").out


def test_links_in_a_skill_are_named_and_not_followed(empty, tmp_path):
    empty.skill("skills/a", "---\nname: a\ndescription: b\n---\nx\n")
    os.symlink(tmp_path, empty.project / "skills/a/elsewhere")
    files, _ = files_of(str(empty.project / "skills/a"))
    assert [file.path for file in files] == ["SKILL.md"]


def test_a_skill_may_be_named_by_its_path(terminal):
    by_path = terminal.run("show", "skills/code-review", "--json")
    assert json.loads(by_path.out)["source"] == "project"
    assert (
        json.loads(terminal.run("show", "team/style-guide", "--json").out)["name"] == "style-guide"
    )
