"""Long commands show progress on a terminal, and read each skill once."""

from __future__ import annotations

import io
import sys
import time

import pytest

from satchel import Satchel
from satchel.cli import context
from satchel.cli.main import run
from satchel.skill import file_tree, yaml_reader


@pytest.fixture
def here(terminal, monkeypatch):
    """The project, for commands in this process."""
    for name, value in terminal.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(terminal.project)
    return terminal


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("doctor", "Checking"),
        ("verify", "Checking"),
        ("trust --yes", "Scanning"),
        ("search review a diff", "Building the search index"),
    ],
)
def test_progress_is_shown_on_a_terminal(here, monkeypatch, words, shown):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def which(satchel, *given, **more):
        satchel.on_wait(1, 2)  # as the index does while a search waits for it
        return selected(satchel, *given, **more)

    selected = Satchel.which
    monkeypatch.setattr(Satchel, "which", which)
    monkeypatch.setattr(context, "_SHOW_AFTER_S", 0.0)
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    run(words.split())
    assert shown in screen.getvalue()


def test_doctor_parses_and_hashes_each_skill_once(here, monkeypatch):
    def counting(module, name):
        def count(given, *rest, **more):
            seen.append(given)
            return original(given, *rest, **more)

        seen: list[str] = []
        original = getattr(module, name)
        monkeypatch.setattr(module, name, count)
        return seen

    time.sleep(0.1)  # a file that changed in the same tick is read once more
    here.run("doctor")  # scans, and caches headers
    parsed = counting(yaml_reader, "_Parser")
    listed = counting(file_tree, "_list")
    run(["doctor"])
    assert len(parsed) == len(set(parsed)) > 1
    assert len(listed) == len(set(listed)) > 1


FAST = "import time\nreal = time.monotonic\ntime.monotonic = lambda: real() * 50\n"
"""A clock by which a command takes long."""


def test_who_waits_sees_how_far_it_is(empty, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(FAST)
    for number in range(200):
        text = f"---\nname: part-{number}\ndescription: Part {number}. Use for it.\n---\nGo.\n"
        empty.skill(f".agents/skills/part-{number}", text)
    path = f"{tmp_path}:{empty.env()['PYTHONPATH']}"
    shown = {"trust --yes": "Scanning", "doctor": "Checking", "verify": "Checking"}
    screens = {one: empty.on_a_terminal(*one.split(), PYTHONPATH=path) for one in shown}
    assert [one for one in shown if shown[one] not in screens[one]] == []
