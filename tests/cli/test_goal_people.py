"""People change their mind: Ctrl-C, a no, a cancel; and hints that can be followed as printed."""

from __future__ import annotations

import json
import os
import shutil
import time

import pytest

from postgres import Postgres
from satchel.cli.goal_failures import with_options
from typing_at import Typing

pytestmark = pytest.mark.timeout(240)
ENGINES = ["local", "dbos"]
ASK = """\
goal: Ask somebody
steps:
  - {id: ask, action_type: human, prompt: "Well?"}
  - {id: read, tool: ReadFile, arguments: {path: notes.md}, needs: [ask]}
"""
EXAMPLE = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "weekly_report"
)
SAVE = """\
goal: Ask, then write
steps:
  - {id: ask, action_type: human, prompt: "Well?"}
  - {id: save, tool: report_file_save, arguments: {name: x, text: y}, needs: [ask]}
"""


@pytest.fixture
def place(empty):
    (empty.project / "ask.yaml").write_text(ASK, encoding="utf-8")
    (empty.project / "notes.md").write_text("Notes.\n", encoding="utf-8")
    return empty


@pytest.fixture
def writing(empty, warm):
    """A project whose plan has a step that writes."""
    shutil.copytree(EXAMPLE, empty.project, dirs_exist_ok=True)
    (empty.project / "save.yaml").write_text(SAVE, encoding="utf-8")
    assert empty.run("trust", "--yes").status == 0
    return lambda *words: empty.run(*words, **warm, COLUMNS="300")


def typed(place, *words: str, **env: str) -> Typing:
    known = place.env(TERM="dumb", **env)
    return Typing(place.command(*words), place.project, known)


# --- Ctrl-C -------------------------------------------------------------------------------


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_at_the_question_ends_at_once(place, engine, term):
    env = place.env(TERM=term, NO_COLOR="1")
    env.pop("CI", None)
    words = place.command("goal", "run", "ask.yaml", "--id", "c", "--engine", engine)
    with Typing(words, place.project, env) as typing:
        typing.sees("write your answer: ")
        since = time.monotonic()
        typing.type("\x03")
        assert typing.ends(6) == 130
        assert time.monotonic() - since < 5
    told = typing.text.partition("write your answer: ")[2]
    head, _, rest = told.partition("\n")
    assert head in {"^C", ""}, "what follows begins on a line of its own"
    assert f"Go on later with `satchel goal resume c --engine {engine}`" in rest
    assert "Traceback" not in told
    with typed(place, "goal", "resume", "c", "--engine", engine) as typing:
        typing.sees("write your answer: ")
        typing.type("fine\r")
        assert typing.ends() == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_many_times_leaves_no_traceback(place, engine):
    with typed(place, "goal", "run", "ask.yaml", "--id", "c", "--engine", engine) as typing:
        typing.sees("write your answer: ")
        for _ in range(6):
            if typing.program.poll() is None:
                typing.type("\x03")
            time.sleep(0.05)
        assert typing.ends(6) == 130
    assert "Traceback" not in typing.text
    assert "Exception" not in typing.text
    assert typing.text.count("write your answer") == 1


def test_ctrl_c_ends_what_was_typed_halfway(place):
    with typed(place, "goal", "run", "ask.yaml", "--id", "c") as typing:
        typing.sees("write your answer: ")
        typing.type("shor")
        typing.sees("shor")
        typing.type("\x03")
        assert typing.ends(6) == 130


def test_an_answer_may_be_long_and_in_any_script(place):
    words = "很好，" * 300
    with typed(place, "goal", "run", "ask.yaml", "--id", "c", LANG="C.UTF-8") as typing:
        typing.sees("write your answer: ")
        typing.type(f"\r{words}\r")
        assert typing.ends() == 0
    found = json.loads(place.run("goal", "show", "c", "--json").out)
    assert found["steps"][0]["output"] == words


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_before_several_are_removed(place, engine):
    for name in ("one", "two"):
        place.run("goal", "run", "ask.yaml", "--id", name, "--engine", engine)
        place.run("goal", "cancel", name, "--engine", engine)
    with typed(place, "goal", "remove", "one", "two", "--engine", engine) as typing:
        typing.sees("Remove 2 for good? [y/N] ")
        typing.type("\x03")
        assert typing.ends(6) == 130
    assert "Traceback" not in typing.text
    assert "removed" not in typing.text
    listed = json.loads(place.run("goal", "list", "--engine", engine, "--json").out)
    assert {one["id"] for one in listed} == {"one", "two"}


def test_who_only_follows_is_told_that_workers_go_on(place):
    with Postgres(fsync=False) as postgres:
        known = {"SATCHEL_DATABASE": postgres.database()}
        with typed(place, "goal", "run", "ask.yaml", "--id", "p", "--engine", "dbos",
                   **known) as typing:  # fmt: skip
            typing.sees("p: 2 steps")
            typing.quiet(1.0)
            typing.type("\x03")
            assert typing.ends(10) == 130
        told = " ".join(typing.text.split())
        assert "Workers go on with it; look with `satchel goal show p --engine dbos`" in told
        assert "Go on later" not in told
        assert "Stopped" not in told, "the goal has not"
        assert "Traceback" not in told


# --- hints --------------------------------------------------------------------------------

BOTH = [
    (("remove", "both"), 4, "Run `satchel goal cancel both --engine dbos` first"),
    (("approve", "both", "nope"), 3, "Run `satchel goal show both --engine dbos`"),
    (("approve", "both", "read"), 4, "Run `satchel goal show both --engine dbos` to see which"),
    (("retry", "both", "--from", "zz"), 3, "Run `satchel goal show both --engine dbos`"),
    (("resume", "xyz"), 3, "Run `satchel goal list --engine dbos`, or name another engine"),
    (("cancel", "xyz"), 3, "Run `satchel goal list --engine dbos`, or name another engine"),
]


@pytest.fixture
def both(place):
    """A goal of the same name with two engines."""
    for engine in ENGINES:
        words = ("goal", "run", "ask.yaml", "--id", "both", "--engine", engine)
        assert place.run(*words).status == 8
    return place


def test_hints_name_the_engine_that_was_named(both):
    for words, status, hint in BOTH:
        done = both.run("goal", *words, "--engine", "dbos", COLUMNS="300")
        assert done.status == status, words
        assert hint in done.err.partition("hint: ")[2], words
        assert done.err.count("--engine dbos") == 1, words
        done = both.run("goal", *words, "--engine", "dbos", "--json", COLUMNS="300")
        error = json.loads(done.out)["error"]
        assert error["hint"].startswith(hint), words
        assert hint in done.err, "and people read the same"
        done = both.run("goal", *words, COLUMNS="300")
        assert "--engine dbos" not in done.err, words


def test_a_hint_is_followed_and_the_other_engine_keeps_its_goal(both):
    done = both.run("goal", "remove", "both", "--engine", "dbos", "--json")
    hint = json.loads(done.out)["error"]["hint"]
    assert both.run(*hint.split("`")[1].split()[1:]).status == 0
    states = {
        engine: json.loads(both.run("goal", "show", "both", "--engine", engine, "--json").out)
        for engine in ENGINES
    }
    assert {name: one["state"] for name, one in states.items()} == {
        "local": "asking",
        "dbos": "cancelled",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("`satchel goal list`, or `satchel goal show x`",
         "`satchel goal list --engine dbos`, or `satchel goal show x --engine dbos`"),
        ("`satchel goal list --engine local`", "`satchel goal list --engine local`"),
        ("`satchel goal list --engine=local`", "`satchel goal list --engine=local`"),
        ("`satchel goal plan … -o plan.yaml`", "`satchel goal plan … -o plan.yaml`"),
        ("`satchel goal run --help`", "`satchel goal run --help`"),
        ("`satchel goals` and `satchel list`", "`satchel goals` and `satchel list`"),
        ("`satchel goal", "`satchel goal"),
    ],
)  # fmt: skip
def test_only_commands_that_know_engines_are_told_theirs(text, told):
    assert with_options(text, ("--engine", "dbos")) == told
    assert with_options(text, ()) == text


# --- no, cancelled, answered --------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_goal_says_how_it_goes_on(place, engine):
    words = ("--engine", engine)
    run = ("goal", "run", "ask.yaml", "--id", "c", *words)
    assert place.run(*run).status == 8
    assert place.run("goal", "cancel", "c", *words).status == 0
    done = place.run(*run)
    assert done.status == 1
    assert done.err.lower().count("was cancelled") == 1
    assert f"Go on with it: `satchel goal retry c --engine {engine}`" in done.err
    shown = place.run("goal", "show", "c", *words)
    assert shown.out.lower().count("was cancelled") == 1
    assert place.run("goal", "retry", "c", *words).status == 8


def test_a_no_says_how_to_ask_again(place):
    assert place.run("goal", "run", "ask.yaml", "--id", "c").status == 8
    done = place.run("goal", "approve", "c", "--no")
    assert done.status == 1
    assert "Do what failed again: `satchel goal retry c`" in done.err
    assert place.run("goal", "retry", "c").status == 8


def _followed(run, told: str):
    """Run the first command of a hint as it is printed."""
    command = next(part for part in told.split("`") if part.startswith("satchel goal "))
    return run(*command.split()[1:])


def test_a_hint_has_the_yes_that_it_needs(writing):
    assert writing("goal", "run", "save.yaml", "--id", "w", "--yes").status == 8
    done = writing("goal", "approve", "w", "--no")
    told = done.err[done.err.index("Do what failed again") :]
    assert "`satchel goal retry w --yes`" in told
    assert _followed(writing, told).status == 8


@pytest.mark.parametrize("engine", ENGINES)
def test_an_answer_that_was_given_is_not_taken_back(writing, engine):
    words = ("--engine", engine)
    assert writing("goal", "run", "save.yaml", "--id", "w", "--yes", *words).status == 8
    assert writing("goal", "approve", "w", "ask", "--value", "a", "--yes", *words).status == 0
    for more in (("--value", "b"), ("--no",), ("--value", "b", "--yes")):
        done = writing("goal", "approve", "w", "ask", *more, *words)
        assert done.status == 4
        assert "Step `ask` was answered already, with another answer" in done.err
        assert f"`satchel goal retry w --from ask --engine {engine} --yes`" in done.err
    assert _followed(writing, done.err).status == 8


# --- without the extra `agent` ------------------------------------------------------------

BLOCKER = """\
import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pydantic_ai", "pydantic_ai_slim"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
"""


def test_a_plan_that_asks_no_model_needs_no_package_of_models(place, tmp_path, monkeypatch):
    monkeypatch.setenv("WARM_START", "0")  # processes of their own, where the package is not there
    (tmp_path / "sitecustomize.py").write_text(BLOCKER, encoding="utf-8")
    path = os.pathsep.join((str(tmp_path), place.env()["PYTHONPATH"]))
    env = {"PYTHONPATH": path}
    asked = place.run("goal", "run", "ask.yaml", "--id", "week", **env)
    assert asked.status == 8, asked.err
    done = place.run("goal", "approve", "week", "ask", **env)
    assert done.status == 0, done.err
    assert "Notes." in done.out
    (place.project / "ask.yaml").write_text(
        "goal: Write\nsteps:\n  - {id: a, prompt: Write}\n", encoding="utf-8"
    )
    refused = place.run("goal", "run", "ask.yaml", SATCHEL_MODEL="test", **env)
    assert refused.status == 6
    assert "satchel[agent]" in refused.err
