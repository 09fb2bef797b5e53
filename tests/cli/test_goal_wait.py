"""Ctrl-C and cancellation while a goal is followed, and hints with the right options."""

from __future__ import annotations

import os
import time

import pytest

from postgres import Postgres
from sizes import sized
from typing_at import Typing

pytestmark = pytest.mark.timeout(240)
ENGINES = ["local", "dbos"]
ASK = """\
goal: Ask somebody
steps:
  - {id: ask, action_type: human, prompt: "Well?"}
  - {id: read, tool: ReadFile, arguments: {path: notes.md}, needs: [ask]}
"""


@pytest.fixture
def place(empty):
    (empty.project / "ask.yaml").write_text(ASK, encoding="utf-8")
    (empty.project / "notes.md").write_text("Notes.\n", encoding="utf-8")
    return empty


def typed(place, *words: str, **env: str) -> Typing:
    known = place.env(TERM="dumb", **env)
    return Typing(place.command(*words), place.project, known)


# --- Ctrl-C -------------------------------------------------------------------------------


@pytest.mark.parametrize("term", sized(["xterm-256color"], ["dumb", "xterm-256color"]))
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
        assert time.monotonic() - since < 30
    told = typing.text.partition("write your answer: ")[2]
    head, _, rest = told.partition("\n")
    assert head in {"^C", ""}, "what follows begins on a line of its own"
    assert f"Run `satchel goal resume c --engine {engine}`" in rest
    assert "Traceback" not in told
    with typed(place, "goal", "resume", "c", "--engine", engine) as typing:
        typing.sees("write your answer: ")
        typing.type("fine\r")
        assert typing.ends() == 0


def test_who_only_follows_is_told_that_workers_go_on(place):
    with Postgres(fsync=False) as postgres:
        known = {"SATCHEL_ENGINE": f"dbos:{postgres.database()}"}
        with typed(place, "goal", "run", "ask.yaml", "--id", "p", "--engine", "dbos",
                   **known) as typing:  # fmt: skip
            typing.sees("p: 2 steps")
            typing.quiet(1.0)
            typing.type("\x03")
            assert typing.ends(10) == 130
        told = " ".join(typing.text.split())
        assert "Run `satchel goal show p --engine dbos`" in told
        assert "Continue with" not in told
        assert "Stopped" not in told, "the goal has not"
        assert "Traceback" not in told


# --- no, cancelled, answered --------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_goal_says_how_it_goes_on(place, engine):
    words = ("--engine", engine)
    run = ("goal", "run", "ask.yaml", "--id", "c", *words)
    assert place.run(*run).status == 8
    assert place.run("goal", "cancel", "c", *words).status == 0
    done = place.run(*run)
    assert done.status == 1
    assert done.err.lower().count("is cancelled") == 1
    assert f"Run `satchel goal retry c --engine {engine}`" in done.err
    shown = place.run("goal", "show", "c", *words)
    assert shown.out.lower().count("is cancelled") == 1
    assert place.run("goal", "retry", "c", *words).status == 8


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
    done = place.run("goal", "answer", "week", "ask", **env)
    assert done.status == 0, done.err
    assert "Notes." in done.out
    (place.project / "ask.yaml").write_text(
        "goal: Write\nsteps:\n  - {id: a, prompt: Write}\n", encoding="utf-8"
    )
    refused = place.run("goal", "run", "ask.yaml", SATCHEL_MODEL="test", **env)
    assert refused.status == 6
    assert "satchel[agent]" in refused.err
