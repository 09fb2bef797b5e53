"""The commands `load`, `read`, `search` and `catalogue`."""

from __future__ import annotations

import json

import pytest


def test_load_fills_arguments_and_does_not_count_as_use(terminal):
    reply = terminal.run("load", "code-review", "--args", "src/ tests/")
    assert reply.status == 0
    assert "Look at src/ tests/." in reply.out
    envelope = json.loads(terminal.run("load", "code-review", "--json").out)
    assert envelope["status"] == "success"
    assert set(envelope) == {"status", "data", "text", "stats", "context"}
    story = json.loads(terminal.run("why", "code-review", "--json").out)
    assert story["last_loaded"] is None


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("load", "nothing"), 3, "NOT_FOUND"),
        (("load", "release-notes"), 4, "PERMISSION_DENIED"),
        (("read", "../outside.md"), 4, "ACCESS_DENIED"),
        (("read", "skills"), 2, "IS_DIRECTORY"),
    ],
)
def test_errors_of_tools_keep_their_exit_code(terminal, words, status, code):
    plain = terminal.run(*words)
    assert plain.status == status
    assert plain.out == ""
    assert plain.err.startswith("error: ")
    reply = terminal.run(*words, "--json")
    assert reply.status == status
    assert json.loads(reply.out)["error"]["code"] == code


def test_search_gives_reasons(terminal):
    found = json.loads(terminal.run("search", "review", "code", "--json").out)
    assert found[0]["name"] == "code-review"
    assert set(found[0]) == {"name", "score", "reason", "evidence", "description", "ref"}
    assert len(json.loads(terminal.run("search", "use", "--json", "--limit", "1").out)) <= 1
    none = terminal.run("search", "xylophone", "--json")
    assert (none.status, json.loads(none.out)) == (3, [])


def test_the_block_is_data_and_the_account_is_for_people(terminal):
    run = terminal.run("catalogue")
    reply = json.loads(terminal.run("catalogue", "--json").out)
    assert run.out.rstrip("\n") == reply["text"].rstrip("\n")
    assert "\n4 skills, all listed in full; " in run.err
    assert reply["account"]["total"] == 4
    assert reply["digest"]


def test_every_form(terminal):
    assert "Did you mean `satchel catalogue`?" in terminal.run("catalog").err
    forms = {
        form: terminal.run("catalogue", "--form", form).out for form in ("xml", "markdown", "json")
    }
    assert len(set(forms.values())) == 3
    json.loads(forms["json"])
    tokens = terminal.run("catalogue", "--tokens", "400")
    assert "tokens" in tokens.err
