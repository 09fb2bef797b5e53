"""`satchel trust`: nothing is offered that nobody approved."""

from __future__ import annotations

import json
import os
import pty
import subprocess

from satchel.library.lockfile import Locked, Place, lock_path, render_lock
from satchel.skill.tree import FolderTree, seal


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
    assert "Trust this skill as it is now? [y/N]" in words
    assert words.endswith("Nothing was changed\n")
    assert "error" not in words
    assert "release-notes" not in terminal.run("list").out


def test_an_answer_that_is_none_is_asked_for_again(terminal):
    status, words = _answering(terminal, b"what?\ny\n", "trust", "release-notes")
    assert status == 0
    assert words.count("Trust `release-notes` as it is now?") == 2
    assert "Please answer `y` for yes or `n` for no" in words


def test_the_end_of_the_input_is_a_no(terminal):
    status, words = _answering(terminal, b"\x04", "trust")
    assert status == 0
    assert words.endswith("[y/N] \nNothing was changed\n")


def test_a_yes_offers_the_skills(terminal):
    status, words = _answering(terminal, b"y\n", "trust", "release-notes")
    assert status == 0
    assert "Trust `release-notes` as it is now?" in words
    assert "release-notes" in terminal.run("list").out


def test_nobody_there_means_no(terminal):
    assert terminal.run("trust", stdin="y\n").status == 4
    assert terminal.run("trust", "--json").status == 4
    assert "release-notes" not in terminal.run("list").out


def test_trust_covers_what_was_shown(terminal):
    reply = json.loads(terminal.run("trust", "--yes", "--json").out)
    assert reply == {"trusted": str(terminal.project), "skills": ["release-notes"], "refused": []}
    terminal.skill("skills/later", "---\nname: later\ndescription: b\n---\nx\n")
    assert "later" not in terminal.run("list").out
    assert terminal.run("trust", "release-notes", "--revoke").status == 0
    assert "release-notes" not in terminal.run("list").out


def test_trust_always_covers_what_comes_later(terminal):
    reply = json.loads(terminal.run("trust", "--always", "--yes", "--json").out)
    assert reply["trusted"] == str(terminal.project)
    assert reply["skills"] == ["release-notes"]
    terminal.skill("skills/later", "---\nname: later\ndescription: b\n---\nx\n")
    assert "later" in terminal.run("list").out
    refused = terminal.run("trust", "later", "--revoke")
    assert refused.status == 4
    assert "together with the whole project" in refused.err
    assert terminal.run("trust", "--revoke").status == 0
    assert terminal.run("list").out == ""


def test_what_changes_between_the_question_and_the_answer_is_not_approved(terminal):
    leader, follower = pty.openpty()
    running = subprocess.Popen(
        terminal.command("trust", "release-notes"),
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
    (terminal.project / "skills/release-notes/scripts/collect.py").write_text("evil()\n")
    os.write(leader, b"y\n")
    assert running.wait(10) == 0
    os.close(leader)
    assert terminal.run("load", "release-notes").status == 4


def test_a_changed_file_is_refused_at_the_load(terminal):
    terminal.run("trust", "release-notes", "--yes")
    terminal.check("why-bound", terminal.run("why", "release-notes"))
    path = "skills/release-notes/scripts/collect.py"
    (terminal.project / path).write_text("print(2)\n")
    terminal.check("error-load-changed", terminal.run("load", "release-notes"))
    terminal.check("why-changed", terminal.run("why", "release-notes"))
    terminal.check("error-read-changed", terminal.run("read", path))
    assert terminal.run("trust", "release-notes", "--yes").status == 0
    assert terminal.run("load", "release-notes").status == 0


def _lock(terminal, *names: str) -> str:
    folder = terminal.project / ".agents/skills"
    rows = {}
    for name in names:
        found = seal(FolderTree(str(folder / name)))
        place = Place("git", "https://example.org/x")
        rows[name] = Locked(name, name, place, "MIT", found.digest, found.files)
    path = lock_path(str(folder))
    with open(path, "wb") as file:
        file.write(render_lock(rows))
    return path


def test_a_locked_skill_that_changed_can_be_approved_as_it_is(terminal):
    _lock(terminal, "code-review")
    terminal.run("trust", "--always", "--yes")
    assert terminal.run("load", "code-review").status == 0
    path = terminal.project / ".agents/skills/code-review/references/checklist.md"
    path.write_text("- nothing\n")
    terminal.check("error-load-locked", terminal.run("load", "code-review"))
    assert terminal.run("load", "code-review", SATCHEL_TRUST="all").status == 4
    reply = json.loads(terminal.run("trust", "code-review", "--yes", "--json").out)
    assert reply["trusted"].endswith("code-review")
    assert terminal.run("load", "code-review").status == 0
    assert "needs no trust" in terminal.run("trust", "code-review", "--yes").err


def test_a_damaged_lock_is_told(terminal):
    path = _lock(terminal, "code-review")
    with open(path, "a", encoding="utf-8") as file:
        file.write(" ")
    terminal.check("error-load-lock-broken", terminal.run("load", "code-review"))
    done = terminal.run("doctor")
    assert "lock-broken" in done.out
    assert done.status == 1
    assert "code-review" in terminal.run("list").out


def test_what_cannot_be_approved_is_told_and_the_others_are(terminal):
    terminal.skill("skills/later", "---\nname: later\ndescription: b\n---\nx\n")
    os.symlink("/etc/hostname", terminal.project / "skills/later/host")
    terminal.check("trust-not-approvable", terminal.run("trust", "--yes"))
    terminal.check("error-trust-not-approvable", terminal.run("trust", "later", "--yes"))
    assert terminal.run("trust", "--yes").status == 4
    reply = json.loads(terminal.run("trust", "--yes", "--json").out)
    assert reply["trusted"] is None
    assert [row["code"] for row in reply["refused"]] == ["not-approvable"]
    assert terminal.run("trust", "later", "--always", "--yes").status == 0
    assert "later" in terminal.run("list").out
