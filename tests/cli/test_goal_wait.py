"""Ctrl-C, cancellation and workers of goals, and hints with the right options."""

from __future__ import annotations

import json
import os
import signal
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
SAVE = (
    "goal: Save it\nsteps:\n"
    "- {id: save, tool: report_file_save, arguments: {name: theirs, text: x}}\n"
)
READ = "goal: Read it\nsteps:\n- {id: fetch, tool: week_data_read, arguments: {week: 46}}\n"


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


# --- no, cancelled, answered --------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cancelled_goal_names_the_command_to_continue(place, engine):
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


# --- which worker is needed ---------------------------------------------------------------


def test_a_worker_is_named_with_what_the_plan_needs(weekly):
    """On SQLite a detached goal is a worker's: `--allow-tools` counts there, not here."""
    weekly.write(save=SAVE, read=READ)
    words = ("--engine", "dbos", "--detach")
    done = weekly("goal", "run", "save.yaml", "--id", "s", *words)
    assert (done.status, done.out) == (0, "s\n"), done.err
    assert "Workers run the steps: `satchel goal worker --engine dbos --allow-tools`" in done.err
    done = weekly("goal", "run", "read.yaml", "--id", "r", *words)
    assert "Workers run the steps: `satchel goal worker --engine dbos`" in done.err
    done = weekly("goal", "run", "save.yaml", "--id", "t", *words, "--allow-tools")
    assert "`satchel goal worker --engine dbos --allow-tools`" in " ".join(done.err.split())
    done = weekly("goal", "run", "save.yaml", "--id", "u", "--engine", "dbos")
    assert (done.status, "Pass `--allow-tools`" in done.err) == (4, True), "steps are done here"
    done = weekly("goal", "run", "save.yaml", "--id", "u", "--detach")
    assert (done.status, "Pass `--allow-tools`" in done.err) == (4, True), (
        "by a process of this command"
    )


def test_goal_show_names_the_option_that_a_failed_goal_needs(weekly):
    weekly.write(save=SAVE)
    with Postgres(fsync=False) as postgres:
        env = {"SATCHEL_ENGINE": f"dbos:{postgres.database()}"}
        worker = weekly.worker("--engine", "dbos", **env)
        done = weekly("goal", "run", "save.yaml", "--id", "s", "--detach", **env)
        assert "`satchel goal worker --engine dbos --allow-tools`" in done.err
        weekly.until("s", "failed", **env)
        shown = weekly("goal", "show", "s", **env)
        assert "Pass `--allow-tools` to allow that" in " ".join(shown.err.split())
        assert "Run `satchel goal retry s`" in " ".join(shown.err.split())
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
        assert worker.returncode == 0
        worker = weekly.worker("--engine", "dbos", "--allow-tools", "--json", **env)
        done = weekly("goal", "retry", "s", **env)
        assert done.status == 0, "the word is the worker's to give"
        weekly.until("s", "done", **env)
        worker.send_signal(signal.SIGTERM)
        told = [json.loads(line) for line in worker.communicate(timeout=60)[0].splitlines() if line]
        events = [one["event"] for one in told]
        assert [event for event in events if "." not in event] == ["draining", "drained"]
        assert events[:3] == ["step.begun", "step.ended", "goal.ended"]


def test_a_worker_ends_when_its_database_is_gone(weekly):
    with Postgres(fsync=False) as postgres:
        env = {"SATCHEL_ENGINE": f"dbos:{postgres.database()}"}
        worker = weekly.worker("--engine", "dbos", "--drain", "1", "--json", **env)
        postgres.stop(kill=True)
        worker.send_signal(signal.SIGTERM)
        lines = worker.communicate(timeout=60)[0].splitlines()
        assert [json.loads(line)["event"] for line in lines] == ["draining", "abandoned"]
        assert worker.returncode == 1


# --- nothing is left ----------------------------------------------------------------------


def test_a_goal_that_is_done_is_shown_as_done(empty):
    plan = "goal: Ask\nsteps:\n- {id: first, action_type: human, prompt: Well?}\n"
    (empty.project / "ask.yaml").write_text(plan, encoding="utf-8")
    empty.run("goal", "run", "ask.yaml", "--id", "p")
    assert empty.run("goal", "answer", "p", "--value", "fine").status == 0
    for command in (("resume", "p"), ("retry", "p"), ("run", "ask.yaml", "--id", "p"),
                    ("retry", "p", "--plan", "ask.yaml")):  # fmt: skip
        done = empty.run("goal", *command)
        assert (done.status, done.out) == (0, "fine\n"), command
        assert done.err.startswith("✓ p is done: "), command
    assert json.loads(empty.run("goal", "show", "p", "--json").out)["revision"] == 1
    assert empty.run("goal", "retry", "p", "--from", "first").status == 8
