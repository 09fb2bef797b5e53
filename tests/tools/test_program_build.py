"""The first use of a tool skill: builds what was checked, and can be cancelled."""

from __future__ import annotations

import os
import time

import pytest

from satchel.tools import program_tool

PROGRAM = 'import sys\nsys.stdin.readline()\nprint(\'{"output": "%s", "error": ""}\')\n'


@pytest.mark.req("E5")
def test_what_changes_after_the_check_is_neither_run_nor_kept(satchel, tool_skill):
    """A file is changed between the check and the build, and then restored."""
    folder = tool_skill("demo", PROGRAM % "checked")
    runner, real = satchel.runner, satchel.runner.prepare
    swapped: list[bool] = []

    def prepare(*given, **more):
        if swapped:
            return real(*given, **more)
        swapped.append(True)
        path = os.path.join(folder, "main.py")
        with open(path, encoding="utf-8") as file:
            checked = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(PROGRAM % "other")
        try:
            return real(*given, **more)
        finally:
            with open(path, "w", encoding="utf-8") as file:
                file.write(checked)

    runner.prepare = prepare
    first = satchel.session(approve=True).call("demo_run")
    assert first.error is not None
    assert first.error.code == "PERMISSION_DENIED"
    assert "changed meanwhile" in first.error.message
    again = satchel.session(approve=True).call("demo_run")
    assert again.data["output"] == "checked", again.text


class Taken:
    """A call that was taken back already."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.write(self._write, b"!")

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def slow(satchel, tool_skill):
    """A skill whose packages have to be installed, which takes longer than a few milliseconds."""
    folder = tool_skill("demo", PROGRAM % "built")
    with open(os.path.join(folder, "requirements.txt"), "w", encoding="utf-8") as file:
        file.write("never-there==1\n")
    return satchel


@pytest.mark.req("E3", "E6")
def test_a_first_use_can_be_taken_back(slow):
    cancel = Taken()
    began = time.monotonic()
    try:
        reply = slow.session(approve=True).call("demo_run", cancel=cancel)
    finally:
        cancel.close()
    assert time.monotonic() - began < 10
    assert (reply.error.code, reply.data["fault"]) == ("EXECUTION_ERROR", "cancelled")


@pytest.mark.req("E3", "E6")
def test_a_first_use_ends_in_time(slow, monkeypatch):
    monkeypatch.setattr(program_tool, "BUILD_TIMEOUT_S", 0.01)
    began = time.monotonic()
    reply = slow.session(approve=True).call("demo_run")
    assert time.monotonic() - began < 10
    assert (reply.error.code, reply.data.get("fault")) == ("TIMEOUT", "timeout"), reply.text
    assert "longer than 0.01 seconds" in reply.error.message
