"""`satchel run`: the answer on stdout, everything else on stderr, and exit codes."""

from __future__ import annotations

import json
import signal
import sys
import time

import pytest

from model_server import ModelServer, Reply
from satchel.cli.main import run as run_command
from satchel.testing import make_tool_skill

pytestmark = pytest.mark.timeout(120)
MODEL = "anthropic:claude-sonnet-5"


@pytest.fixture
def talk(terminal):
    """Runs commands against a scripted model."""

    def run(script, *words, **env):
        with ModelServer(script) as server:
            known = {**server.environment(), "SATCHEL_MODEL": MODEL, **env}
            return terminal.run(*words, **known), server

    return run


def review(request):
    if request.step == 0:
        skill, other = ("Skill", {"name": "code-review"}), ("ReadFile", {"path": "nowhere.md"})
        return Reply("I look.", calls=[skill, other])
    return Reply("# Done\n\nNo **bugs**.")


def test_the_answer_alone_is_on_stdout(talk):
    done, server = talk(review, "run", "review", "this")
    assert (done.status, done.out) == (0, "# Done\n\nNo **bugs**.\n")
    lines = done.err.splitlines()
    assert any(line.startswith("  ◆ code-review  loaded  ") for line in lines)
    assert any(line.startswith("  ✗ ReadFile  There is no `nowhere.md`") for line in lines)
    assert "2 requests, " in done.err
    assert lines[-1] == "Skills used: code-review"
    assert server.requests[0].last_user.startswith("review this")


def test_the_task_may_come_by_stdin_and_the_account_as_json(talk):
    done, _ = talk(review, "run", "-", "--json", stdin="review it")
    found = json.loads(done.out)
    assert found["text"] == "# Done\n\nNo **bugs**."
    assert found["model"] == MODEL
    assert found["skills"] == ["code-review"]
    assert {call["name"]: call["status"] for call in found["tools"]} == {
        "Skill": "success",
        "ReadFile": "error",
    }
    assert found["report"]["requests"] == 2
    assert 0 <= found["report"]["cached"] <= 1


def test_a_limit_ends_the_turn_and_is_named(talk):
    def script(_request):
        return Reply(calls=[("ReadFile", {"path": "README.md"})])

    done, server = talk(script, "run", "go on", "--max-requests", "2")
    assert (done.status, done.out) == (8, "")
    assert "Stopped by a limit, the task may not be done: " in done.err
    assert len(server.requests) == 2


def test_risky_tools_are_refused_without_permission(terminal, talk):
    folder = str(terminal.project / ".agents/skills")
    make_tool_skill(folder, "send-note", tool="send_note", more="network: true\n")
    assert terminal.run("trust", "--yes").status == 0

    def script(request):
        if request.step == 0:
            return Reply(calls=[("send_note", {})])
        return Reply(f"It said: {request.results[0].text}")

    done, _ = talk(script, "run", "send a note")
    assert done.status == 0
    assert "✗ send_note  " in done.err
    assert "Refused: `send_note`; `--allow-tools` allows them" in done.err
    done, server = talk(script, "run", "send a note", "--allow-tools", "--json")
    assert json.loads(done.out)["refused"] == []
    assert "needs a person's approval" not in server.requests[1].results[0].text


@pytest.mark.parametrize(
    ("words", "status", "message", "hint"),
    [
        ((), 2, "No model is set", "Pass `--model "),
        (("--model", MODEL), 1, "needs `ANTHROPIC_API_KEY`", "export ANTHROPIC_API_KEY=…"),
        (("--model", "azure:d"), 1, "needs `AZURE_OPENAI_ENDPOINT`", "AZURE_OPENAI_ENDPOINT=…"),
        (("--model", "nobody:x"), 1, "There is no model `nobody:x`", "as `provider:model`"),
        (("--max-cost", "much"), 2, "`--max-cost` needs a number above 0", "--help"),
    ],
)
def test_missing_settings_are_named(terminal, words, status, message, hint):
    clean = {"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": "", "SATCHEL_MODEL": ""}
    done = terminal.run("run", "hello", *words, **clean)
    assert (done.status, done.out) == (status, "")
    error, _, told = done.err.partition("\n\n")
    assert message in error.replace("\n       ", " ")
    assert hint in told.replace("\n      ", " ")


@pytest.mark.parametrize(
    ("status", "message", "hint"),
    [
        (404, "There is no model `claude-sonnet-5` at this provider: nope", "the address"),
        (401, "The provider refused the request (401): nope", "`ANTHROPIC_API_KEY`"),
        (529, "The provider refused the request (529): nope", "Try again"),
    ],
)
def test_an_error_of_a_provider_is_shown_with_a_hint(talk, status, message, hint):
    reply = Reply("nope", status=status, headers={"retry-after-ms": "10"})
    done, _ = talk(lambda _request: reply, "run", "hello", "--json")
    assert done.status == 1
    error = json.loads(done.out)["error"]
    assert (error["code"], error["message"]) == ("EXECUTION_ERROR", message)
    assert hint in error["hint"]
    assert f"error: {message}" in done.err


def test_ctrl_c_is_quiet(terminal):
    with ModelServer([Reply("Done.", delay=20)]) as server:
        known = {**server.environment(), "SATCHEL_MODEL": MODEL}
        with terminal.start("run", "hello", **known) as process:
            until = time.monotonic() + 60
            while not server.requests and time.monotonic() < until:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, out, b"Traceback" in err) == (130, b"", False)


@pytest.mark.parametrize("words", [["chat"], ["run", "hello"]])
def test_a_missing_extra_prints_its_install_line(terminal, monkeypatch, capsys, words):
    monkeypatch.setenv("HOME", str(terminal.home))
    monkeypatch.chdir(terminal.project)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert run_command([*words, "--model", MODEL]) == 6
    assert 'pip install "satchel[agent]"' in capsys.readouterr().err
