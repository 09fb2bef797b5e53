"""A goal that goes on in a process of its own."""

from __future__ import annotations

import os

from satchel.goals.background import go_on
from satchel.settings import load_settings


def test_a_process_that_ends_leaves_its_last_words(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    environ = {"HOME": str(tmp_path), "SATCHEL_HOME": str(tmp_path / "home")}
    settings = load_settings(str(project), env=environ)
    folder = tmp_path / "home"
    found = go_on(settings, "nothing", ["--engine", "dbos"])
    assert found.process.wait(60) != 0  # there is no such goal
    first = found.last_words()
    assert first
    assert os.stat(found.log).st_mode & 0o077 == 0
    assert str(found.log).startswith(str(folder))
    again = go_on(settings, "nothing", ["--engine", "dbos"])
    assert again.begun > 0
    again.process.wait(60)
    assert again.last_words() == first  # not those of the process before it
