"""What the commands about goals say: which worker they need, and what is left to do."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

import weekly_model
from model_server import ModelServer
from postgres import Postgres
from satchel.cli.goal_live import LiveView
from satchel.cli.goal_view import PlainView
from satchel.cli.output import Screen
from satchel.goals.model import Goal, Plan, Step, StepEvent
from satchel.goals.reports import report_of

pytestmark = pytest.mark.timeout(240)
MODEL = "anthropic:claude-sonnet-5"
EXAMPLE = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "weekly_report"
)
SAVE = (
    "goal: Save it\nsteps:\n"
    "- {id: save, tool: report_file_save, arguments: {name: theirs, text: x}}\n"
)
READ = "goal: Read it\nsteps:\n- {id: fetch, tool: week_data_read, arguments: {week: 46}}\n"
ASK = "goal: Ask\nsteps:\n- {id: first, action_type: human, prompt: Well?}\n"
TWO = ASK + '- {id: second, action_type: human, prompt: "{{steps.first.output}}?"}\n'


def flat(text: str) -> str:
    """Folded lines as one."""
    return " ".join(text.split())


class Weekly:
    """The skills of the example in a project, and plans beside them."""

    def __init__(self, terminal, env) -> None:
        self.terminal, self.env = terminal, env

    def __call__(self, *words, **env):
        return self.terminal.run(*words, **{**self.env, **env})

    def write(self, **plans: str) -> None:
        for name, text in plans.items():
            (self.terminal.project / f"{name}.yaml").write_text(text, encoding="utf-8")

    def worker(self, *words, **env):
        """A worker that is ready."""
        pipe = subprocess.PIPE
        begun = subprocess.Popen(
            self.terminal.command("worker", *words),
            cwd=self.terminal.project,
            env=self.terminal.env(**{**self.env, **env}),
            stdout=pipe,
            stderr=pipe,
        )
        stream = begun.stdout if "--json" in words else begun.stderr
        assert stream is not None
        while b"ready" not in (line := stream.readline()):
            assert line or begun.poll() is None
        return begun

    def ended(self, goal: str, **env) -> dict:
        """A goal when it is over."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = json.loads(self("goal", "show", goal, "--json", **env).out)
            if found["state"] not in {"queued", "running"}:
                return found
            time.sleep(0.3)
        raise AssertionError(goal)


@pytest.fixture
def weekly(empty):
    shutil.copytree(EXAMPLE, empty.project, dirs_exist_ok=True)
    assert empty.run("trust", "--yes").status == 0
    with ModelServer(weekly_model.answer) as server:
        yield Weekly(empty, {**server.environment(), "SATCHEL_MODEL": MODEL})


@pytest.fixture
def people(empty):
    (empty.project / "ask.yaml").write_text(ASK, encoding="utf-8")
    (empty.project / "two.yaml").write_text(TWO, encoding="utf-8")
    return empty


# --- which worker is needed ---------------------------------------------------------------


def test_a_worker_is_named_with_what_the_plan_needs(weekly):
    """On SQLite a detached goal is a worker's: `--yes` counts there, and is not asked for here."""
    weekly.write(save=SAVE, read=READ)
    words = ("--engine", "dbos", "--detach")
    done = weekly("goal", "run", "save.yaml", "--id", "s", *words)
    assert (done.status, done.out) == (0, "s\n"), done.err
    assert "A worker does it: `satchel worker --engine dbos --yes`" in done.err
    done = weekly("goal", "run", "read.yaml", "--id", "r", *words)
    assert "A worker does it: `satchel worker --engine dbos`" in done.err
    done = weekly("goal", "run", "save.yaml", "--id", "t", *words, "--yes")
    assert "`--yes` and `--model` count where they are started" in flat(done.err)
    done = weekly("goal", "run", "save.yaml", "--id", "u", "--engine", "dbos")
    assert (done.status, "Give `--yes`" in done.err) == (4, True), "steps are done here"
    done = weekly("goal", "run", "save.yaml", "--id", "u", "--detach")
    assert (done.status, "Give `--yes`" in done.err) == (4, True), "by a process of this command"


def test_a_goal_that_failed_for_want_of_a_word_says_so_when_looked_at(weekly):
    weekly.write(save=SAVE)
    with Postgres(fsync=False) as postgres:
        env = {"SATCHEL_ENGINE": "dbos", "SATCHEL_DATABASE": postgres.database()}
        worker = weekly.worker("--engine", "dbos", **env)
        done = weekly("goal", "run", "save.yaml", "--id", "s", "--detach", **env)
        assert "`satchel worker --engine dbos --yes`" in done.err
        assert weekly.ended("s", **env)["state"] == "failed"
        shown = weekly("goal", "show", "s", **env)
        assert "Start the worker with `--yes` to allow that" in flat(shown.err)
        assert "Do what failed again: `satchel goal retry s`" in flat(shown.err)
        worker.send_signal(signal.SIGTERM)
        err = worker.communicate(timeout=60)[1].decode()
        assert worker.returncode == 0
        assert "s failed" in err, "the worker tells which goals ended with it"
        worker = weekly.worker("--engine", "dbos", "--yes", "--json", **env)
        done = weekly("goal", "retry", "s", "--detach", **env)
        assert done.status == 0, "the word is the worker's to give"
        assert weekly.ended("s", **env)["state"] == "done"
        time.sleep(1)
        worker.send_signal(signal.SIGTERM)
        told = [json.loads(line) for line in _objects(worker.communicate(timeout=60)[0].decode())]
        assert ("s", "done") in [(one.get("goal"), one.get("state")) for one in told]


def _objects(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


# --- nobody begins ------------------------------------------------------------------------

QUEUED = Goal("week", Plan("Report", (Step("fetch", "tool", tool="week_data"),)))


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    return Screen(io.StringIO(), colour=False)


def later(monkeypatch, seconds: float) -> None:
    now = time.monotonic() + seconds
    monkeypatch.setattr(time, "monotonic", lambda: now)


@pytest.mark.parametrize("make", [PlainView, LiveView])
@pytest.mark.parametrize(
    ("engine", "began", "told"),
    [
        ("dbos", None, True),
        ("temporal", None, True),
        ("temporal", "", True),
        ("local", None, False),
        ("dbos", "", False),
        ("temporal", "fetch", False),
    ],
)
def test_a_goal_that_nobody_begins_says_how_to_start_a_worker(
    screen, monkeypatch, make, engine, began, told
):
    view = make(screen)
    view.begin(report_of(QUEUED, {}, "queued", engine=engine), 5.0)
    if began is not None:
        view.tell(StepEvent("week", began, "running", 6.0))
    view.tick()
    assert "satchel worker" not in screen.stream.getvalue()
    later(monkeypatch, 11)
    view.tick()
    text = flat(screen.stream.getvalue())
    assert (f"start one with `satchel worker --engine {engine}`" in text) == told
    view.end(None)


# --- nothing is left ----------------------------------------------------------------------


def test_what_is_done_is_not_told_as_if_it_ran(people):
    people.run("goal", "run", "ask.yaml", "--id", "p")
    assert people.run("goal", "approve", "p", "--value", "fine").status == 0
    words = "✓ p is done already: nothing is left to do\n"
    for command in (("resume", "p"), ("retry", "p"), ("run", "ask.yaml", "--id", "p"),
                    ("retry", "p", "--plan", "ask.yaml")):  # fmt: skip
        done = people.run("goal", *command)
        assert (done.status, done.out, done.err) == (0, "fine\n", words), command
    assert json.loads(people.run("goal", "show", "p", "--json").out)["revision"] == 1
    assert people.run("goal", "retry", "p", "--from", "first").status == 8


# --- lists --------------------------------------------------------------------------------


def test_a_state_that_no_goal_has_is_named(people):
    people.run("goal", "run", "ask.yaml", "--id", "p")
    done = people.run("goal", "list", "--state", "failed", "--state", "done")
    assert (done.status, done.err) == (0, "No goal here has the state `failed`, `done`\n")
    assert people.run("goal", "list", "--state", "asking").err == ""


def test_recorded_words_are_told_in_the_readers_language(people):
    people.run("goal", "run", "two.yaml", "--id", "p")
    people.run("goal", "approve", "p", "first", "--value", "fine", "--detach")
    people.run("goal", "run", "ask.yaml", "--id", "q")
    people.run("goal", "approve", "q", "--no", "--note", "early")
    shown = people.run("goal", "show", "q", SATCHEL_LANG="zh")
    assert "answered by" not in shown.err
    assert "said no" not in shown.out + shown.err
    assert "early" in shown.out
