"""`satchel show`."""

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


def test_a_look_deletes_nothing(terminal):
    assert terminal.run("trust", "--yes").status == 0
    cache = terminal.project / "skills/release-notes/scripts/__pycache__/collect.cpython-311.pyc"
    cache.parent.mkdir()
    cache.write_bytes(b"cached")
    for words in (("doctor",), ("show", "release-notes"), ("list", "--all"), ("trust", "--yes")):
        assert terminal.run(*words).status in (0, 1)
    assert cache.exists()
    assert terminal.run("load", "release-notes").status == 0
    assert not cache.exists()
