"""`satchel goal`: plan files, answers, exit codes and graphs."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time

import pytest

from model_server import ModelServer, Reply
from satchel import Satchel
from satchel.goals.engines.factory import open_engine
from satchel.goals.model import Answer
from sizes import sized
from typing_at import Typing

pytestmark = pytest.mark.timeout(240)
MODEL = "anthropic:claude-sonnet-5"
PEOPLE = """\
goal: Ask two people
inputs: {who: Ada, count: 3}
steps:
  - {id: first, action_type: human, prompt: "Well, {{inputs.who}}?"}
  - id: second
    action_type: human
    prompt: "{{steps.first.output}} times {{inputs.count}}?"
    output: {type: object, properties: {number: {type: integer}}, required: [number]}
"""
"""A plan without model steps."""


@pytest.fixture
def people(empty):
    (empty.project / "people.yaml").write_text(PEOPLE, encoding="utf-8")
    return empty


# --- a whole goal -------------------------------------------------------------------------


@pytest.mark.parametrize("engine", sized(["local"], ["local", "dbos"]))
def test_a_goal_runs_asks_and_goes_on(weekly, engine):
    words = ("--engine", engine, "--allow-tools")
    done = weekly("goal", "run", "week.yaml", "--id", "week-46", *words)
    assert (done.status, done.out) == (8, "")
    assert "? review  Are these findings right?" in done.err
    assert f"`satchel goal answer week-46 review --engine {engine}`" in done.err
    found = json.loads(weekly("goal", "show", "week-46", "--engine", engine, "--json").out)
    assert (found["state"], found["engine"], found["revision"]) == ("asking", engine, 1)
    states = {step["id"]: step["state"] for step in found["steps"]}
    assert [states[name] for name in ("fetch", "voices", "review", "save")] == [
        "done", "done", "asking", "waiting",
    ]  # fmt: skip
    assert found["usage"]["requests"] == 3

    refused = weekly("goal", "answer", "week-46", "--engine", engine)
    assert (refused.status, "Pass `--allow-tools`" in refused.err) == (4, True)
    assert weekly("goal", "answer", "week-46", "--engine", engine, "--yes").status == 2
    assert not (weekly.terminal.project / "reports").exists()

    done = weekly("goal", "answer", "week-46", "--value", "Checkout was down", *words)
    assert (done.status, done.out) == (0, "reports/week-46.md\n")
    report = (weekly.terminal.project / "reports/week-46.md").read_text(encoding="utf-8")
    assert report.startswith("# Week 46\n\nCheckout was down.\n")
    assert report.endswith("<!-- week-46:save:1 -->\n")
    asked = len(weekly.server.requests)

    done = weekly("goal", "run", "week.yaml", "--id", "week-46", *words, "--json")
    assert json.loads(done.out)["state"] == "done", "the same goal again is only looked at"
    assert len(weekly.server.requests) == asked

    done = weekly("goal", "retry", "week-46", "--from", "write", *words)
    assert (done.status, len(weekly.server.requests)) == (0, asked + 1)
    listed = json.loads(weekly("goal", "list", "--engine", engine, "--json").out)
    assert [(one["id"], one["state"], one["done"]) for one in listed] == [("week-46", "done", 7)]


def test_a_failed_tool_is_explained_to_people(empty):
    plan = "goal: Go\nsteps:\n  - {id: a, tool: excel_info, arguments: {path: orders.xlsx}}\n"
    (empty.project / "p.yaml").write_text(plan)
    done = empty.run("goal", "run", "p.yaml", "--id", "g")
    said = done.out + done.err + empty.run("goal", "show", "g").out
    assert "There is no such file: orders.xlsx" in said
    assert "ReadFile" not in said


def test_a_detached_goal_goes_on_by_itself(weekly):
    done = weekly("goal", "run", "week.yaml", "--id", "away", "--detach", "--allow-tools")
    assert (done.status, done.out) == (0, "away\n")
    weekly.until("away", "asking")


# --- people -------------------------------------------------------------------------------


def test_people_are_asked_by_name_and_by_schema(people):
    done = people.run("goal", "run", "people.yaml", "--id", "ask", "--input", "who=Bob")
    assert done.status == 8
    assert "? first  Well, Bob?" in done.err
    done = people.run("goal", "answer", "ask", "first", "--value", "two")
    assert (done.status, "? second  two times 3?" in done.err) == (8, True)
    done = people.run("goal", "answer", "ask", "--value", "six", "--json")
    assert done.status == 2
    assert "`--value` needs" in json.loads(done.out)["error"]["message"]
    done = people.run("goal", "answer", "ask", "--value", '{"number": "six"}')
    assert done.status == 2
    done = people.run("goal", "answer", "ask", "--value", '{"number": 6}')
    assert (done.status, json.loads(done.out)) == (0, {"number": 6})
    done = people.run("goal", "answer", "ask", "first")
    assert done.status == 4


def test_a_refusal_needs_no_permission_for_tools(weekly):
    """Who says no lets nothing be written, so nothing has to be allowed."""
    assert weekly("goal", "run", "week.yaml", "--id", "w", "--allow-tools").status == 8
    done = weekly("goal", "answer", "w", "review")
    assert (done.status, "Pass `--allow-tools`" in done.err) == (4, True)
    done = weekly("goal", "answer", "w", "review", "--no")
    assert done.status == 1
    assert "The answer was no" in done.err
    assert "Run `satchel goal retry w --allow-tools`" in done.err
    done = weekly("goal", "answer", "w")
    assert done.status == 4
    assert "No step of `w` waits for an answer" in done.err, (
        "and not that something is to be allowed"
    )


def test_a_goal_belongs_to_its_project(people):
    assert people.run("goal", "run", "people.yaml", "--id", "p").status == 8
    other = people.home / "other"
    other.mkdir()
    words = ("--project", str(other), "goal")
    for command in ("answer", "resume", "retry", "show", "cancel"):
        assert people.run(*words, command, "p").status == 3
    assert people.run(*words, "list").err == "No goals\n"
    assert [one["id"] for one in json.loads(people.run("goal", "list", "--json").out)] == ["p"]


WRITING = """\
goal: Write a table
steps:
  - {id: ask, action_type: human, prompt: "May I?"}
  - id: out
    action_type: tool
    tool: excel_write
    arguments: {path: out.xlsx, values: [[1]]}
    needs: [ask]
"""


def test_a_goal_whose_process_asks_in_the_browser_is_listed_as_waiting(empty, monkeypatch):
    (empty.project / "plan.yaml").write_text(WRITING, encoding="utf-8")
    assert empty.run("goal", "run", "plan.yaml", "--id", "w", "--allow-tools").status == 8
    for name, value in empty.env().items():
        monkeypatch.setenv(name, value)

    async def answer():
        settings = Satchel.for_project(empty.project).settings
        async with open_engine(settings, "local", None) as engine:
            await engine.answer("w", "ask", Answer())

    asyncio.run(answer())
    command = empty.command("goal", "resume", "w", "--ask-in-browser")
    where = {"cwd": empty.project, "env": empty.env(), "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **where) as process:
        try:
            listed = []
            # Before the process takes the answer, the goal still asks its first question.
            while not (listed and listed[0]["done"]) and process.poll() is None:
                done = empty.run("goal", "list", "--state", "asking", "--json")
                listed = json.loads(done.out)
            assert [one["state"] for one in listed] == ["asking"]
            assert empty.run("goal", "list", "--state", "running").err == "No goals\n"
        finally:
            process.kill()


# --- what is wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "message", "hint"),
    [
        (("run",), 2, "`TEXT` is missing", 'satchel goal run "'),
        (("run", "no.yaml"), 3, "There is no `no.yaml`", "satchel goal plan"),
        (("run", "bad.yaml"), 2, "→ Write it", "Correct it"),
        (("run", "people.yaml", "--id", "a b"), 2, "a b", ""),
        (
            ("run", "people.yaml", "--input", "count=x"),
            2,
            "`--input count` needs a value such as `3`",
            "",
        ),
        (("run", "people.yaml", "--input", "who"), 2, "such as `NAME=VALUE`", ""),
        (("run", "write a poem"), 4, "Not a terminal", "-o plan.yaml"),
        (("show", "nobody"), 3, "There is no goal `nobody`", "satchel goal list"),
        (("show", "ask", "--step", "frist"), 3, "There is no step `frist`", "`first`"),
        (("answer", "ask", "--no", "--value", "x"), 2, "Give one of `--no`", "--help"),
        (("retry", "ask", "--from", "third"), 3, "There is no step `third`", "goal show ask"),
        (("stop", "ask"), 2, "did you mean `satchel goal cancel`?", ""),
        (("list", "--state", "xyz"), 2, "`--state` is one of", ""),
    ],
)
def test_errors_have_a_message_and_a_hint(people, words, status, message, hint):
    (people.project / "bad.yaml").write_text("goal: x\nsteps:\n  - {id: a, needs: [b]}\n")
    if words[0] not in {"run", "list"}:
        people.run("goal", "run", "people.yaml", "--id", "ask")
    done = people.run("goal", *words, COLUMNS="400")
    assert (done.status, done.out) == (status, "")
    error, _, told = done.err.partition("\n\nhint: ")
    assert message in error
    assert hint in told


def test_text_of_others_sends_no_terminal_codes_through_a_pipe(people):
    (people.project / "esc.yaml").write_text(
        'goal: g\nsteps:\n- {id: ask, action_type: human, prompt: "\\e[2J ok?"}\n'
    )
    assert people.run("goal", "run", "esc.yaml", "--id", "esc").status == 8
    assert "␛[2J ok?" in people.run("goal", "show", "esc").out
    assert people.run("goal", "answer", "esc", "--value", "\x1b[31m red").status == 0
    shown = people.run("goal", "show", "esc").out
    assert "␛[31m red" in shown
    assert "\x1b" not in shown
    assert people.run("goal", "show", "esc", "--step", "ask").out == "\x1b[31m red\n", "data"


# --- planning -----------------------------------------------------------------------------

PLANNED = {
    "goal": "Say hello",
    "steps": [
        {"id": "hello", "prompt": "Say hello"},
        {"id": "bye", "prompt": "Say goodbye after {{steps.hello.output}}"},
    ],
}


def _planner(request):
    if "submit_plan" in request.tools:
        return Reply(calls=[("submit_plan", PLANNED)])
    return Reply("Hello." if "Say hello" in request.last_user else "Goodbye.")


@pytest.fixture
def planner(empty):
    with ModelServer(_planner) as server:
        known = {**server.environment(), "SATCHEL_MODEL": MODEL}
        yield lambda *words, **more: empty.run(*words, **{**known, **more}), empty


def test_a_plan_is_made_read_and_run(planner):
    run, terminal = planner
    done = run("goal", "plan", "say hello", "-o", "hello.yaml")
    assert (done.status, done.out) == (0, "hello.yaml\n")
    assert "2 steps" in done.err
    text = (terminal.project / "hello.yaml").read_text(encoding="utf-8")
    assert "{{steps.hello.output}}" in text
    done = run("goal", "run", "hello.yaml")
    assert (done.status, done.out) == (0, "Goodbye.\n")
    found = json.loads(run("goal", "plan", "say hello", "--json").out)
    assert found["plan"]["steps"][1]["id"] == "bye"
    assert found["attempts"] == 1


def test_a_goal_in_words_is_planned_shown_and_agreed_to(planner):
    run, terminal = planner
    done = run("goal", "run", "say", "hello", "--yes")
    assert (done.status, done.out) == (0, "Goodbye.\n")
    assert "bye" in done.err
    known = {"TERM": "dumb", "SATCHEL_MODEL": MODEL}
    with ModelServer(_planner) as server:
        env = terminal.env(**known, **server.environment())
        with Typing(terminal.command("goal", "run", "say hello"), terminal.project, env) as typing:
            typing.sees("Continue? [y/N]")
            typing.type("n\r")
            assert typing.ends() == 4
        assert len(server.requests) == 1


# --- settings and workers -----------------------------------------------------------------


def test_ctrl_c_leaves_a_goal_that_can_be_resumed(weekly):
    terminal = weekly.terminal
    with ModelServer(lambda _request: Reply("x", delay=60)) as server:
        env = terminal.env(**{**weekly.env, **server.environment()})
        words = terminal.command("goal", "run", "week.yaml", "--id", "stop", "--allow-tools")
        told = terminal.home / "told.txt"
        with (
            told.open("wb") as stream,
            subprocess.Popen(words, cwd=terminal.project, env=env, stderr=stream) as run,
        ):
            while not server.requests:
                time.sleep(0.1)
            run.send_signal(signal.SIGINT)
            assert run.wait(timeout=60) == 130
        err = told.read_bytes()
    assert b"Run `satchel goal resume stop --allow-tools`" in err
    assert b"Traceback" not in err
    found = json.loads(weekly("goal", "show", "stop", "--json").out)
    assert found["state"] == "queued"
    assert weekly("goal", "resume", "stop", "--allow-tools").status == 8
