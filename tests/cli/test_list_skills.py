"""`satchel list`: content, width, colours and hostile text."""

from __future__ import annotations

import json

import pytest

from sizes import sample

TRICK = (
    "---\nname: trick\n"
    'description: "Nice\\e[31m\\e[2J\\x9b1m \\u202eevil\\u202c. \\x07Use it."\n---\n'
    "\x1b[2J\x1b]0;owned\x07Body \u202etxt\n"
)


def test_a_broken_file_does_not_disappear(empty):
    empty.skill("skills/notes", "# Notes\n")
    plain = empty.run("list")
    assert (plain.status, plain.out) == (0, "")
    assert plain.err == "0 skills, 1 broken (`satchel doctor`)\n"
    row = empty.run("list", "--all").out.splitlines()[1]
    assert row.split()[:4] == ["✗", "notes", "broken", "project"]
    assert json.loads(empty.run("list", "--json").out) == []
    told = json.loads(empty.run("list", "--all", "--json").out)
    assert [(item["name"], item["state"], item["source"]) for item in told] == [
        ("notes", "broken", "project")
    ]
    assert told[0]["problems"][0]["code"] == "no-frontmatter"


def test_a_pipe_gets_whole_descriptions(terminal):
    long = terminal.run("list", COLUMNS="").out
    assert "review of a diff or a pull request." in long
    assert "…" not in long


@pytest.mark.parametrize(
    "words",
    sample(
    [("list", "--all"), ("list", "--json"), ("why", "trick"), ("show", "trick"),
     ("show", "trick", "--as-model"), ("catalogue",), ("doctor",),
     ("search", "nice"), ("check", "--spec"), ("search", "nice", "--explain"),
     ("why", "trick", "--goal", "nice"),
     ("show", "trick", "--file", "SKILL.md"), ("agents", "--all"), ("list", "--locations"),
     ("verify",), ("check", "--overlap"), ("tools",)],
        one_of=3,
    ),
    ids=" ".join,
)  # fmt: skip
def test_a_skill_cannot_command_the_terminal(empty, words):
    place = ".claude/skills" if words[0] == "agents" else "skills"
    empty.skill(f"{place}/trick", TRICK)
    empty.skill(f"{place}/dir\x1b[31mx", TRICK.replace("name: trick", 'name: "ev\\e[31mil"'))
    empty.trust(place)
    seen = empty.on_a_terminal(*words, NO_COLOR="1")
    assert "Traceback" not in seen
    assert len(seen) > 10
    hostile = set("\x1b\x9b\x07\u202e\u202c")
    assert not hostile & set(seen), repr(seen)


def test_a_skill_cannot_command_the_terminal_behind_a_pipe(empty):
    empty.skill("skills/trick", TRICK)
    empty.trust("skills")
    for words in (("show", "trick", "--as-model"), ("show", "trick", "--file", "SKILL.md")):
        assert "\x1b" not in empty.run(*words).out


def test_colours_mark_states_and_are_only_for_terminals(terminal):
    seen = terminal.on_a_terminal("list", "--all", answer="n\r", NO_COLOR="")
    assert "\x1b[32m●\x1b[0m" in seen
    assert "\x1b[33m?" in seen
    assert "\x1b[2m○" in seen
    assert "\x1b" not in terminal.run("list", "--all", NO_COLOR="").out
    assert "\x1b[32m●" in terminal.run("--color", "list").out
    assert "\x1b" not in terminal.on_a_terminal("list", "--no-color", answer="n\r", NO_COLOR="")
