"""Imports of fast commands, exit codes and error output."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from satchel import __version__
from satchel.cli.main import guarded
from satchel.errors import AccessDenied, MissingExtra, NotFound, SettingsError, SkillBroken

# What a plain `satchel list` must not wait for.
HEAVY = {
    "click", "yaml", "json", "dataclasses", "pathlib", "inspect", "logging", "shutil", "tomllib",
    "unicodedata", "hashlib", "difflib", "satchel.skill.reader", "satchel.diagnosis.skill_report",
    "satchel.catalogue",
}  # fmt: skip


def _modules(terminal, *words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "satchel", *words],
        cwd=terminal.project,
        env=terminal.env(),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def _ascii_project(terminal) -> None:
    for number in range(40):
        terminal.skill(
            f".agents/skills/skill-{number}",
            f"---\nname: skill-{number}\ndescription: Does thing {number}.\ntags: [a, b]\n---\nx\n",
        )


def test_a_warm_list_imports_nothing_heavy(empty, monkeypatch):
    _ascii_project(empty)
    monkeypatch.setenv("SATCHEL_TRUST", "all")  # the book of trust is JSON, and so would be read
    assert empty.run("list").status == 0
    time.sleep(0.1)  # a file that changed in the same tick is looked at once more
    assert empty.run("list").status == 0
    loaded = _modules(empty, "list")
    assert "satchel.cli.commands.list_skills" in loaded
    assert sorted(loaded & HEAVY) == []


def test_the_version_imports_next_to_nothing(empty):
    loaded = _modules(empty, "--version")
    assert sorted(loaded & {*HEAVY, "satchel.satchel", "satchel.settings"}) == []
    assert empty.run("--version").out == f"satchel {__version__}\n"
    assert empty.run("--no-color", "--version").out == f"satchel {__version__}\n"


@pytest.mark.parametrize("options", [(), ("--all",), ("--json",), ("--all", "--json")])
def test_fast_and_full_command_lines_print_the_same(terminal, options):
    fast = terminal.run("list", *options)
    slow = terminal.run("--project", ".", "list", *options)
    assert fast[1:] == slow[1:]
    assert fast.status == 0
    assert fast.out


def test_fast_and_full_command_lines_fail_the_same(empty):
    config = empty.home / ".config/satchel/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("budget = \n")
    fast = empty.run("list")
    slow = empty.run("--project", ".", "list")
    assert fast[1:] == slow[1:]
    assert fast.status == 2
    assert fast.err.startswith("error: ")
    assert "\n\nhint: " in fast.err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SettingsError("m", "h"), 2),
        (NotFound("m", "h"), 3),
        (AccessDenied("m", "h"), 4),
        (SkillBroken("m", "h"), 5),
        (MissingExtra("m", "h"), 6),
        (KeyboardInterrupt(), 130),
        (ValueError("oops"), 70),
    ],
)
def test_every_failure_has_its_exit_code(error, status, capsys):
    def call() -> int:
        raise error

    assert guarded(call) == status
    err = capsys.readouterr().err
    if status == 130:
        assert err == "Stopped\n"
    elif status == 70:
        assert "Traceback" in err
        assert "error: Satchel failed: ValueError: oops\n\nhint: " in err
    else:
        assert err == "error: m\n\nhint: h\n"


def test_a_folder_that_is_gone_is_no_bug(empty):
    (empty.project / "gone").mkdir()
    leave = ["sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh", *empty.command("list")]
    done = subprocess.run(
        leave, cwd=empty.project, env=empty.env(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "error: The current folder does not exist any more" in done.stderr


@pytest.mark.parametrize("words", [("list",), ("show", "long"), ("list", "--json")])
def test_a_closed_pipe_is_no_error(empty, words):
    empty.skill("skills/long", "---\nname: long\ndescription: Long.\n---\n" + "word " * 200_000)
    for number in range(300):
        empty.skill(f"skills/s{number}", f"---\nname: s{number}\ndescription: {'x ' * 200}\n---\n")
    empty.trust("skills")
    running = empty.start(*words)
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.read(10)
    running.stdout.close()
    words_for_people = running.stderr.read().decode()
    running.stderr.close()
    assert running.wait() == 0
    assert "Traceback" not in words_for_people
    assert "Broken" not in words_for_people


def test_a_terminal_that_knows_only_ascii_gets_every_word(terminal):
    done = terminal.run("list", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.status == 0
    assert "code-review" in done.out
    assert done.out.isascii()
