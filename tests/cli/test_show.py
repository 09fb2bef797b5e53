"""`satchel show`."""

from __future__ import annotations

import json

import pytest


def test_show_deletes_nothing(terminal):
    assert terminal.run("trust", "--yes").status == 0
    cache = terminal.project / "skills/release-notes/scripts/__pycache__/collect.cpython-311.pyc"
    cache.parent.mkdir()
    cache.write_bytes(b"cached")
    for words in (("doctor",), ("show", "release-notes"), ("list", "--all"), ("trust", "--yes")):
        assert terminal.run(*words).status in (0, 1)
    assert cache.exists()
    assert terminal.run("show", "--as-model", "release-notes").status == 0
    assert not cache.exists()


def test_load_fills_arguments_and_does_not_count_as_use(terminal):
    reply = terminal.run("show", "--as-model", "code-review", "--args", "src/ tests/")
    assert reply.status == 0
    assert "Look at src/ tests/." in reply.out
    envelope = json.loads(terminal.run("show", "--as-model", "code-review", "--json").out)
    assert envelope["status"] == "success"
    assert set(envelope) == {"status", "data", "text", "stats", "context"}
    story = json.loads(terminal.run("why", "code-review", "--json").out)
    assert story["last_loaded"] is None


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("nothing", "--as-model"), 3, "NOT_FOUND"),
        (("release-notes", "--as-model"), 4, "PERMISSION_DENIED"),
        (("code-review", "--file", "../../../../outside.md"), 4, "ACCESS_DENIED"),
        (("code-review", "--file", "references"), 2, "IS_DIRECTORY"),
        (("code-review", "--args", "x"), 2, "INVALID_PARAM"),
        (("code-review", "--as-model", "--file", "SKILL.md"), 2, "INVALID_PARAM"),
    ],
)
def test_errors_of_tools_keep_their_exit_code(terminal, words, status, code):
    plain = terminal.run("show", *words)
    assert plain.status == status
    assert plain.out == ""
    assert plain.err.startswith("error: ")
    reply = terminal.run("show", *words, "--json")
    assert reply.status == status
    assert json.loads(reply.out)["error"]["code"] == code
