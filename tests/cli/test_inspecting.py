"""load, read, search and catalogue: the same for people and for scripts."""

from __future__ import annotations

import json

import pytest


def test_load_fills_arguments_and_is_remembered(terminal):
    reply = terminal.run("load", "code-review", "--args", "src/ tests/")
    assert reply.status == 0
    assert "Look at src/ tests/." in reply.out
    envelope = json.loads(terminal.run("load", "code-review", "--json").out)
    assert envelope["status"] == "success"
    assert set(envelope) == {"status", "data", "text", "stats", "context"}
    story = json.loads(terminal.run("why", "code-review", "--json").out)
    assert story["last_loaded"]


def test_a_person_loads_what_models_may_not(empty):
    empty.skill(
        "skills/deploy",
        "---\nname: deploy\ndescription: b\ndisable-model-invocation: true\n---\nShip it.\n",
    )
    empty.trust("skills")
    reply = empty.run("load", "deploy")
    assert reply.status == 0
    assert "Ship it." in reply.out


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("load", "nothing"), 3, "NOT_FOUND"),
        (("load", "release-notes"), 4, None),
        (("read", "nowhere.md"), 3, "NOT_FOUND"),
        (("read", "../outside.md"), 4, "ACCESS_DENIED"),
        (("read", "skills"), 2, "IS_DIRECTORY"),
        (("read", "blob.bin"), 4, None),
    ],
)
def test_errors_of_tools_keep_their_exit_code(terminal, words, status, code):
    (terminal.project / "blob.bin").write_bytes(b"\0\1\2")
    plain = terminal.run(*words)
    assert plain.status == status
    assert plain.out == ""
    assert plain.err.startswith("error: ")
    reply = terminal.run(*words, "--json")
    assert reply.status == status
    envelope = json.loads(reply.out)
    assert envelope["status"] == "error"
    if code:
        assert envelope["error"]["code"] == code


def test_what_a_filter_leaves_out_is_not_said_to_be_missing(terminal):
    (terminal.project / "satchel.toml").write_text('exclude = ["fix-*"]\n')
    done = terminal.run("load", "fix-yaml")
    assert done.status == 3
    assert "error: The skill `fix-yaml` is left out by a filter" in done.err
    assert "`exclude`" in done.err


def test_a_mention_that_models_may_write_is_a_name_for_people_too(terminal):
    done = terminal.run("load", "$release-notes")
    assert done.status == 4
    assert "`satchel trust release-notes`" in done.err


def test_a_bug_inside_a_tool_has_the_exit_code_of_bugs(empty):
    from satchel.cli.session import exit_code
    from satchel.envelope import failure
    from satchel.facade import Satchel

    satchel = Satchel.for_project(empty.project, trace="off")
    satchel.library.refresh = lambda: 1 / 0  # pyright: ignore[reportAttributeAccessIssue]
    reply = satchel.tools().call("Skill", {"name": "x"})
    assert reply.error is not None
    assert reply.error.code == "INTERNAL_ERROR"
    assert exit_code(reply) == 70
    broken = failure("INTERNAL_ERROR", "The skill `x` cannot be read", "", params={}, time_ms=0)
    assert exit_code(broken) == 5


def test_read_takes_a_part_of_a_file(terminal):
    (terminal.project / "long.md").write_text("".join(f"line {n}\n" for n in range(1, 50)))
    part = terminal.run("read", "long.md", "--offset", "10", "--limit", "2").out
    assert "line 10\nline 11\n" in part
    assert "line 12" not in part


def test_search_gives_reasons(terminal):
    found = json.loads(terminal.run("search", "review", "code", "--json").out)
    assert found[0]["name"] == "code-review"
    assert set(found[0]) == {"name", "score", "reason", "evidence", "description", "ref"}
    assert len(json.loads(terminal.run("search", "use", "--json", "--limit", "1").out)) <= 1
    none = terminal.run("search", "xylophone", "--json")
    assert (none.status, json.loads(none.out)) == (3, [])


def test_a_search_for_nothing_and_one_that_finds_nothing(terminal):
    for words in (("",), (" ", "")):
        done = terminal.run("search", *words)
        assert (done.status, done.out) == (2, "")
        assert "error: There are no words to search for" in done.err
    done = terminal.run("search", "xylophone")
    assert (done.status, done.out) == (3, "")
    assert terminal.run("search", "review").status == 0


def test_the_block_is_data_and_the_account_is_for_people(terminal):
    run = terminal.run("catalogue")
    reply = json.loads(terminal.run("catalogue", "--json").out)
    assert run.out.rstrip("\n") == reply["text"].rstrip("\n")
    assert run.err.startswith("4 skills, all listed in full; ")
    assert reply["account"]["total"] == 4
    assert reply["digest"]


def test_both_spellings_and_every_form(terminal):
    assert terminal.run("catalog")[1:] == terminal.run("catalogue")[1:]
    forms = {
        form: terminal.run("catalogue", "--form", form).out for form in ("xml", "markdown", "json")
    }
    assert len(set(forms.values())) == 3
    json.loads(forms["json"])
    tokens = terminal.run("catalogue", "--tokens", "400")
    assert "tokens" in tokens.err


def test_looking_at_the_block_offers_nothing(terminal):
    terminal.run("catalogue")
    story = json.loads(terminal.run("why", "code-review", "--json").out)
    assert story["last_offered"] is None
