"""`satchel run`: the answer alone on stdout, everything else on stderr, and honest exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from model_server import ModelServer, Reply

pytestmark = pytest.mark.timeout(120)
MODEL = "anthropic:claude-sonnet-5"
TOOL = """\
name: send_note
description: Sends a note to a server. Use when somebody wants a note sent.
runtime: python
entry: main.py
network: true
parameters:
  - {name: text, type: string, required: true, description: The note.}
"""
PROGRAM = """\
import json, sys
for line in sys.stdin:
    print(json.dumps({"output": "sent", "error": ""}), flush=True)
"""


@pytest.fixture
def talk(terminal, warm):
    """Runs commands against a scripted model."""

    def run(script, *words, **env):
        with ModelServer(script) as server:
            known = {**warm, **server.environment(), "SATCHEL_MODEL": MODEL, **env}
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
    assert any(line.startswith("  ◆ code-review  loaded, ") for line in lines)
    assert any(line.startswith("  ✗ ReadFile  There is no `nowhere.md`") for line in lines)
    assert "2 requests, " in done.err
    assert lines[-1] == "Skills used: code-review"
    assert server.requests[0].last_user.startswith("review this")


def test_the_task_may_come_by_stdin_and_the_account_as_json(terminal, warm):
    with ModelServer(review) as server:
        known = {**warm, **server.environment()}
        done = terminal.run("run", "-", "--model", MODEL, "--json", stdin="review it", **known)
    found = json.loads(done.out)
    assert found["text"] == "# Done\n\nNo **bugs**."
    assert found["model"] == MODEL
    assert found["skills"] == ["code-review"]
    assert {call["name"]: call["status"] for call in found["tools"]} == {
        "Skill": "success",
        "ReadFile": "error",
    }
    assert found["stopped"] is None
    assert found["report"]["stopped"] is None
    assert found["report"]["requests"] == 2
    assert 0 <= found["report"]["cached"] <= 1


def told_stops(out):
    found = json.loads(out)
    return found["stopped"] and found["stopped"] == found["report"]["stopped"]


def test_a_limit_ends_the_turn_and_is_told(talk):
    def script(_request):
        return Reply(calls=[("ReadFile", {"path": "README.md"})])

    done, server = talk(script, "run", "go on", "--max-requests", "2")
    assert (done.status, done.out) == (8, "")
    assert told_stops(talk(script, "run", "go on", "--max-requests", "2", "--json")[0].out)
    assert "Stopped by a limit, the task may not be done: " in done.err
    assert len(server.requests) == 2


def test_what_is_risky_is_refused_unless_somebody_said_yes(terminal, talk):
    folder = terminal.project / ".agents/skills/send-note"
    folder.mkdir()
    (folder / "skill.yaml").write_text(TOOL, encoding="utf-8")
    (folder / "main.py").write_text(PROGRAM, encoding="utf-8")
    terminal.skill(
        ".agents/skills/send-note",
        "---\nname: send-note\ndescription: Sends notes. Use to send one.\n---\nBody\n",
    )
    assert terminal.run("trust", "send-note", "--yes").status == 0

    def script(request):
        if request.step == 0:
            return Reply(calls=[("send_note", {"text": "hello"})])
        return Reply(f"It said: {request.results[0].text}")

    done, _ = talk(script, "run", "send a note")
    assert done.status == 0
    assert "✗ send_note  refused: it needs approval" in done.err
    assert "Refused: `send_note`. `--yes` lets them be called" in done.err
    done, server = talk(script, "run", "send a note", "--yes", "--json")
    assert json.loads(done.out)["refused"] == []
    assert "needs a person's approval" not in server.requests[1].results[0].text


@pytest.mark.parametrize(
    ("words", "env", "status", "message", "hint"),
    [
        ((), {}, 2, "No model is chosen", "Give `--model "),
        (("--model", MODEL), {}, 1, "needs `ANTHROPIC_API_KEY`", "export ANTHROPIC_API_KEY=…"),
        (("--model", "gpt-5"), {}, 1, "There is no model `gpt-5`", "Did you mean `openai"),
        (("--model", "nobody:x"), {}, 1, "There is no provider `nobody`", "`anthropic`, `openai`"),
        (("--model", "anthropic:"), {}, 2, "`anthropic:` names no model", "`provider:model`"),
        (("--max-cost", "much"), {}, 2, "`--max-cost` needs a number above 0", "--help"),
    ],
)
def test_what_is_missing_is_named(terminal, warm, words, env, status, message, hint):
    clean = {"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": "", "SATCHEL_MODEL": ""}
    done = terminal.run("run", "hello", *words, **clean, **warm, **env)
    assert (done.status, done.out) == (status, "")
    error, _, told = done.err.partition("\n\n")
    assert message in error.replace("\n       ", " ")
    assert hint in told.replace("\n      ", " ")


def test_no_model_names_three_ways(terminal):
    done = terminal.run("run", "hello", SATCHEL_MODEL="", COLUMNS="400")
    for way in ("`--model anthropic:", "`SATCHEL_MODEL`", "config.toml`"):
        assert way in done.err


def test_a_provider_that_refuses_is_told(talk):
    done, _ = talk([Reply("no such model", status=404)], "run", "hello")
    assert (done.status, done.out) == (1, "")
    error, _, hint = done.err.partition("\n\n")
    assert error == "error: There is no model `claude-sonnet-5` at this provider: no such model"
    assert "was asked" in hint


@pytest.mark.parametrize(
    ("status", "message", "hint"),
    [
        (401, "The provider refused the key (401): nope", "`ANTHROPIC_API_KEY`"),
        (403, "The provider refused the key (403): nope", "`ANTHROPIC_API_KEY`"),
        (400, "The provider refused the request (400): nope", "Do what the provider says"),
        (529, "The provider is busy (529), tried 5 times: nope", "Try again later"),
    ],
)
def test_what_a_provider_says_is_told_with_what_to_do(talk, status, message, hint):
    reply = Reply("nope", status=status, headers={"retry-after-ms": "10"})
    done, _ = talk(lambda _request: reply, "run", "hello", "--json")
    assert done.status == 1
    error = json.loads(done.out)["error"]
    assert (error["code"], error["message"]) == ("EXECUTION_ERROR", message)
    assert hint in error["hint"]
    assert f"error: {message}" in done.err
    assert ("the provider is busy, asking again" in done.err) == (status == 529)


def test_nobody_there_is_told_with_the_address(talk):
    away = "http://127.0.0.1:9"
    done, _ = talk([], "run", "hello", ANTHROPIC_BASE_URL=away)
    assert done.status == 1
    assert f"The provider cannot be reached at `{away}`: " in done.err
    assert "the provider cannot be reached, asking again" in done.err
    assert "busy" not in done.err


def test_a_long_silence_has_a_sign_of_life(talk):
    done, _ = talk([Reply("Done.", delay=6)], "run", "hello")
    assert done.out == "Done.\n"
    assert "still waiting (5 s)" in done.err


def test_a_failure_before_the_model_is_asked_is_json_too(terminal, warm):
    done = terminal.run("run", "", "--json", SATCHEL_MODEL=MODEL, **warm)
    assert done.status == 2
    error = json.loads(done.out)["error"]
    assert (error["code"], error["message"]) == ("INVALID_PARAM", "There is no task")
    assert 'satchel run "' in error["hint"]


def test_ctrl_c_says_that_it_stopped(terminal, warm):
    with ModelServer([Reply("Done.", delay=20)]) as server:
        env = terminal.env(**warm, **server.environment(), SATCHEL_MODEL=MODEL)
        with subprocess.Popen(
            terminal.command("run", "hello"),
            cwd=terminal.project,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            until = time.monotonic() + 60
            while not server.requests and time.monotonic() < until:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "Stopped"


def test_the_user_names_a_model_and_a_project_does_not(terminal, talk):
    (terminal.project / "satchel.toml").write_text('model = "openai:gpt-5"\n', encoding="utf-8")
    done, _ = talk(["Hello."], "run", "hello", SATCHEL_MODEL="")
    assert done.status == 2
    config = terminal.home / ".config/satchel"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f'model = "{MODEL}"\n', encoding="utf-8")
    done, server = talk(["Hello."], "run", "hello", SATCHEL_MODEL="")
    assert (done.status, done.out) == (0, "Hello.\n")
    assert server.requests[0].provider == "anthropic"
    assert "setting-refused" in terminal.run("doctor", "--json").out


@pytest.mark.parametrize(("name", "package"), [("chat", "rich"), ("run", "pydantic_ai")])
def test_a_missing_extra_prints_its_install_line(terminal, name, package):
    words = [name] if name == "chat" else [name, "hello"]
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"from satchel.cli.main import run; sys.exit(run({[*words, '--model', MODEL]!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=terminal.project,
        env=terminal.env(),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 6
    assert 'pip install "satchel[agent]"' in done.stderr


def test_it_speaks_chinese(talk):
    done, _ = talk(review, "run", "review this", SATCHEL_LANG="zh")
    assert "◆ code-review  已加载，" in done.err
    assert "用到的技能：code-review" in done.err
