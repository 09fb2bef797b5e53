"""Long commands show progress on a terminal, and read each skill once."""

from __future__ import annotations

import time

import pytest

from satchel.cli.main import run
from satchel.skill import file_tree, yaml_reader


@pytest.fixture
def here(terminal, monkeypatch):
    """The project, for commands in this process."""
    for name, value in terminal.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(terminal.project)
    return terminal


def test_doctor_parses_each_skill_once_and_nothing_that_it_knows(here, monkeypatch):
    def counting(module, name):
        def count(given, *rest, **more):
            seen.append(given)
            return original(given, *rest, **more)

        seen: list[str] = []
        original = getattr(module, name)
        monkeypatch.setattr(module, name, count)
        return seen

    time.sleep(0.1)  # a file that changed in the same tick is read once more
    here.run("list")  # caches headers
    parsed = counting(yaml_reader, "_Parser")
    run(["doctor"])
    assert len(parsed) == len(set(parsed)) > 1
    parsed.clear()
    listed = counting(file_tree, "_list_files")
    run(["doctor"])
    assert (parsed, listed) == ([], [])


SLOW = """import atexit, sys, time
real, opened = time.monotonic, []
time.monotonic = lambda: real() * 300
def wait(event, given):
    if event == "open" and str(given[0]).endswith("SKILL.md"):
        opened.append(given[0])
        time.sleep(0.001)
sys.addaudithook(wait)
atexit.register(lambda: print(len(opened), "opened", file=sys.stderr))
"""
"""A clock by which a command takes long, and a disk that is slow and counts."""


@pytest.mark.parametrize("words", [("run", "hello"), ("chat",)])
def test_a_command_with_a_model_shows_that_it_starts_before_it_imports(empty, tmp_path, words):
    (tmp_path / "prompt_toolkit.py").write_text("raise SystemExit('imported')\n")
    path = f"{tmp_path}:{empty.env()['PYTHONPATH']}"
    screen = empty.on_a_terminal(*words, "--model", "test:one", PYTHONPATH=path)
    assert "imported" in screen.partition("Starting test:one…")[2]


def test_progress_is_shown_and_no_file_is_read_twice(empty, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    for number in range(200):
        text = f"---\nname: part-{number}\ndescription: Part {number}. Use for it.\n---\nGo.\n"
        empty.skill(f".agents/skills/part-{number}", text)
    path = f"{tmp_path}:{empty.env()['PYTHONPATH']}"
    shown = {
        "trust --yes": "Scanning", "doctor": "Checking", "verify": "Checking",
        "search part of it": "Building the search index",
    }  # fmt: skip
    screens = {one: empty.on_a_terminal(*one.split(), PYTHONPATH=path) for one in shown}
    opened = {one: int(screens[one].rpartition(" opened")[0].split()[-1]) for one in shown}
    assert {one: count for one, count in opened.items() if count > 250} == {}
    assert [one for one in shown if shown[one] not in screens[one]] == []
