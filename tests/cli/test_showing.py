"""`satchel show`: everything about one skill, trusted or not."""

from __future__ import annotations

import json


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


def test_a_text_that_changed_after_the_approval_is_told(terminal):
    assert terminal.run("trust", "release-notes", "--yes").status == 0
    file = next(terminal.project.rglob("release-notes/SKILL.md"))
    assert "content-unapproved" not in terminal.run("doctor").out
    file.write_text(file.read_text() + "\nOne line more.\n")
    step = "Read it with `satchel show release-notes`, then run `satchel trust release-notes`"
    for words in (("doctor",), ("show", "release-notes")):
        told = " ".join(terminal.run(*words).out.split())
        assert "content-unapproved: `release-notes` is listed, but no model can load it" in told
        assert step in told
    assert terminal.run("show", "release-notes").out.startswith("release-notes  ? changed")
    assert terminal.run("load", "release-notes").status == 4
    assert terminal.run("trust", "release-notes", "--yes").status == 0
    assert "content-unapproved" not in terminal.run("doctor").out
    assert "● active" in terminal.run("show", "release-notes").out


def test_a_look_deletes_nothing_and_tells_what_will_be(terminal):
    assert terminal.run("trust", "release-notes", "--yes").status == 0
    cache = terminal.project / "skills/release-notes/scripts/__pycache__/collect.cpython-311.pyc"
    cache.parent.mkdir()
    cache.write_bytes(b"cached")
    for words in (("doctor",), ("show", "release-notes")):
        told = " ".join(terminal.run(*words).out.split())
        assert "note content-leftovers: `release-notes` has files that nobody approved" in told
        assert "`scripts/__pycache__/collect.cpython-311.pyc`" in told
    assert terminal.run("show", "release-notes").out.startswith("release-notes  ● active")
    for words in (("list", "--all"), ("why", "release-notes"), ("trust", "--yes")):
        assert "changed" not in terminal.run(*words).out
    assert cache.exists()
    assert terminal.run("load", "release-notes").status == 0
    assert not cache.exists()
    assert "content-leftovers" not in terminal.run("doctor").out


def test_a_text_that_changed_after_it_was_locked_is_told(terminal, tmp_path):
    folder = tmp_path / "locked-one"
    folder.mkdir()
    (folder / "SKILL.md").write_text(
        "---\nname: locked-one\ndescription: Locks. Use for locks.\n---\nDo it.\n"
    )
    assert terminal.run("import", str(folder), "--yes").status == 0
    file = terminal.project / ".agents/skills/locked-one/SKILL.md"
    file.write_text(file.read_text() + "More.\n")
    problems = json.loads(terminal.run("doctor", "--json").out)["problems"]
    [one] = [one for one in problems if one["code"] == "content-unlocked"]
    assert one["path"] == str(file)
    assert "these files differ: `SKILL.md`" in one["message"]
    assert "satchel lock locked-one" in one["fix"]
    shown = json.loads(terminal.run("show", "locked-one", "--json").out)
    assert shown["problems"][0]["code"] == "content-unlocked"
