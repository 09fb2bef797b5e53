"""Hints of the goal commands about workers and remaining steps."""

from __future__ import annotations

import json
import signal

import pytest

from postgres import Postgres

pytestmark = pytest.mark.timeout(240)
SAVE = (
    "goal: Save it\nsteps:\n"
    "- {id: save, tool: report_file_save, arguments: {name: theirs, text: x}}\n"
)
READ = "goal: Read it\nsteps:\n- {id: fetch, tool: week_data_read, arguments: {week: 46}}\n"
ASK = "goal: Ask\nsteps:\n- {id: first, action_type: human, prompt: Well?}\n"


def flat(text: str) -> str:
    """Folded lines as one."""
    return " ".join(text.split())


@pytest.fixture
def people(empty):
    (empty.project / "ask.yaml").write_text(ASK, encoding="utf-8")
    return empty


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
    assert "`satchel goal worker --engine dbos --allow-tools`" in flat(done.err)
    done = weekly("goal", "run", "save.yaml", "--id", "u", "--engine", "dbos")
    assert (done.status, "Pass `--allow-tools`" in done.err) == (4, True), "steps are done here"
    done = weekly("goal", "run", "save.yaml", "--id", "u", "--detach")
    assert (done.status, "Pass `--allow-tools`" in done.err) == (4, True), (
        "by a process of this command"
    )


def test_a_goal_that_failed_for_want_of_a_word_says_so_when_looked_at(weekly):
    weekly.write(save=SAVE)
    with Postgres(fsync=False) as postgres:
        env = {"SATCHEL_ENGINE": f"dbos:{postgres.database()}"}
        worker = weekly.worker("--engine", "dbos", **env)
        done = weekly("goal", "run", "save.yaml", "--id", "s", "--detach", **env)
        assert "`satchel goal worker --engine dbos --allow-tools`" in done.err
        weekly.until("s", "failed", **env)
        shown = weekly("goal", "show", "s", **env)
        assert "Pass `--allow-tools` to allow that" in flat(shown.err)
        assert "Run `satchel goal retry s`" in flat(shown.err)
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
        assert worker.returncode == 0
        worker = weekly.worker("--engine", "dbos", "--allow-tools", "--json", **env)
        done = weekly("goal", "retry", "s", **env)
        assert done.status == 0, "the word is the worker's to give"
        weekly.until("s", "done", **env)
        worker.send_signal(signal.SIGTERM)
        told = [json.loads(line) for line in worker.communicate(timeout=60)[0].splitlines() if line]
        assert [one["event"] for one in told] == ["draining", "drained"]


# --- nothing is left ----------------------------------------------------------------------


def test_what_is_done_is_not_told_as_if_it_ran(people):
    people.run("goal", "run", "ask.yaml", "--id", "p")
    assert people.run("goal", "answer", "p", "--value", "fine").status == 0
    for command in (("resume", "p"), ("retry", "p"), ("run", "ask.yaml", "--id", "p"),
                    ("retry", "p", "--plan", "ask.yaml")):  # fmt: skip
        done = people.run("goal", *command)
        assert (done.status, done.out) == (0, "fine\n"), command
        assert done.err.startswith("✓ p is done: "), command
    assert json.loads(people.run("goal", "show", "p", "--json").out)["revision"] == 1
    assert people.run("goal", "retry", "p", "--from", "first").status == 8


# --- lists --------------------------------------------------------------------------------


def test_recorded_words_are_told_in_the_readers_language(people):
    people.run("goal", "run", "ask.yaml", "--id", "q")
    people.run("goal", "answer", "q", "--no")
    shown = people.run("goal", "show", "q", SATCHEL_LANG="zh")
    assert "answered by" not in shown.err
    assert "said no" not in shown.out + shown.err
