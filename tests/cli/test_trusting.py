"""`satchel trust`: nothing is offered that nobody approved."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess


def _answering(terminal, answer: bytes, *words: str) -> tuple[int, str]:
    leader, follower = pty.openpty()
    os.write(leader, answer)
    done = subprocess.run(
        terminal.command(*words),
        cwd=terminal.project,
        env=terminal.env(),
        stdin=follower,
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(follower)
    os.close(leader)
    return done.returncode, done.stderr


def test_trust_asks_and_a_no_changes_nothing(terminal):
    status, words = _answering(terminal, b"n\n", "trust")
    assert status == 0
    assert "Trust everything in this project, now and later? [y/N]" in words
    assert words.endswith("Nothing was changed\n")
    assert "error" not in words
    assert "release-notes" not in terminal.run("list").out


def test_an_answer_that_is_none_is_asked_for_again(terminal):
    status, words = _answering(terminal, b"what?\ny\n", "trust", "release-notes")
    assert status == 0
    assert words.count("Trust `release-notes`?") == 2
    assert "Please answer `y` for yes or `n` for no" in words


def test_the_end_of_the_input_is_a_no(terminal):
    status, words = _answering(terminal, b"\x04", "trust")
    assert status == 0
    assert words.endswith("[y/N] \nNothing was changed\n")


def test_stopping_at_the_question_ends_its_line(terminal):
    leader, follower = pty.openpty()
    running = subprocess.Popen(
        terminal.command("trust"),
        cwd=terminal.project,
        env=terminal.env(),
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    seen = b""
    while b"[y/N] " not in seen:
        seen += os.read(leader, 4096)
    running.send_signal(signal.SIGINT)
    assert running.wait(10) == 130
    assert os.read(leader, 4096) == b"\r\n"
    os.close(leader)


def test_programs_are_named_only_where_there_are_some(terminal):
    assert "the programs may be run" in _answering(terminal, b"n\n", "trust")[1]
    (terminal.project / "skills/release-notes/scripts/collect.py").unlink()
    words = _answering(terminal, b"n\n", "trust")[1]
    assert "The text reaches models.\n" in words
    assert "program" not in words


def test_a_yes_offers_the_skills(terminal):
    status, words = _answering(terminal, b"y\n", "trust", "release-notes")
    assert status == 0
    assert "Trust `release-notes`?" in words
    assert "release-notes" in terminal.run("list").out


def test_nobody_there_means_no(terminal):
    assert terminal.run("trust", stdin="y\n").status == 4
    assert terminal.run("trust", "--json").status == 4
    assert "release-notes" not in terminal.run("list").out


def test_trust_of_a_project_covers_what_comes_later(terminal):
    reply = json.loads(terminal.run("trust", "--yes", "--json").out)
    assert reply["trusted"] == str(terminal.project)
    assert reply["skills"] == ["release-notes"]
    terminal.skill("skills/later", "---\nname: later\ndescription: b\n---\nx\n")
    assert "later" in terminal.run("list").out
    refused = terminal.run("trust", "later", "--revoke")
    assert refused.status == 4
    assert "together with the whole project" in refused.err
    assert terminal.run("trust", "--revoke").status == 0
    assert terminal.run("list").out == ""


def test_trusting_one_of_two_namesakes_means_the_one_that_waits(terminal):
    terminal.skill(".skills/code-review", "---\nname: code-review\ndescription: b\n---\nx\n")
    reply = json.loads(terminal.run("trust", "code-review", "--yes", "--json").out)
    assert reply["trusted"].endswith(".skills/code-review")


def test_a_policy_of_none_is_not_overridden(terminal):
    refused = terminal.run("trust", "--yes", SATCHEL_TRUST="none")
    assert refused.status == 4
    assert "`none`" in refused.err
