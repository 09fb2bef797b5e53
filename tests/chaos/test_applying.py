"""A host that is killed at any call while it applies changes, and the next command."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from chaos.applying_host import AFTER, OLD
from chaos.faults import CHANGING
from runners.writing import files
from satchel.cli.main import run
from satchel.settings import load_settings
from sizes import sample, sized

pytestmark = pytest.mark.timeout(300)

HOST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "applying_host.py")
BEFORE = dict.fromkeys(OLD, "old")


def under_strace(words, rule, log, begin=None):
    """Start a program, let it apply under `strace`, and give what it wrote and its status."""
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    tracer = subprocess.Popen(
        ["strace", "-o", log, "-e", rule, "-p", str(child.pid)], stderr=subprocess.PIPE, text=True
    )
    assert tracer.stderr is not None
    assert "attached" in tracer.stderr.readline()
    text, _ = child.communicate("\n", timeout=60)
    tracer.communicate(timeout=60)
    return text, child.returncode


@pytest.fixture
def apply(tmp_path, monkeypatch):
    """Apply changes to a new workspace, with a fault; gives the folder, the output, the status."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "strace.log"

    def apply(rule):
        workspace = tmp_path / "workspace"
        shutil.rmtree(workspace, ignore_errors=True)
        for name, text in BEFORE.items():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text(text)
        text, status = under_strace([sys.executable, "-B", HOST, str(workspace)], rule, log)
        return workspace, text, status

    return apply


def changing_calls(apply, tmp_path):
    """The calls of applying that change something: name and number."""
    workspace, text, status = apply(f"trace={','.join(CHANGING)}")
    assert (text, status) == ("11 () \n", 0)
    assert files(workspace) == AFTER
    found = re.findall(r"^(\w+)\(", (tmp_path / "strace.log").read_text(), re.MULTILINE)
    calls = [(call, found[: at + 1].count(call)) for at, call in enumerate(found)]
    calls.remove(("write", found.count("write")))  # the report of the host itself
    return calls


def leftovers(workspace):
    """Stages in the workspace, and journals."""
    state = pathlib.Path(load_settings().paths.state)
    return [*workspace.glob(".satchel-change-*"), *state.glob("overlays/*/journal")]


def content(workspace):
    """The files, without those of a stage."""
    return {
        name: text
        for name, text in files(workspace).items()
        if not name.startswith(".satchel-change-")
    }


def test_the_next_command_finishes_what_a_killed_host_was_applying_and_prints_it(
    apply, tmp_path, capfd
):
    calls = changing_calls(apply, tmp_path)
    assert len(calls) > 40
    between = 0
    for call, number in sample(calls, 8):
        workspace, text, _ = apply(f"inject={call}:signal=KILL:when={number}")
        killed = content(workspace)
        capfd.readouterr()
        run(["list"])
        printed = capfd.readouterr().err
        state = content(workspace)
        assert state in (BEFORE, AFTER), (call, number)
        assert state == AFTER or not text, "what was acknowledged is lost"
        assert leftovers(workspace) == [], (call, number)
        if killed not in (BEFORE, AFTER):
            between += 1
            assert "repaired: Changes of a program in" in printed
    assert between >= sized(1, 10)


def test_a_host_that_is_killed_while_it_recovers_is_finished_by_the_next_command(apply, tmp_path):
    """The user goes on working after the first recovery: nothing of that is lost either."""
    calls = changing_calls(apply, tmp_path)
    log, host = tmp_path / "strace.log", [sys.executable, "-B", HOST]
    assert ("linkat", 2) in calls, "the second new file"

    def crashed(rule):
        workspace, _, _ = apply("inject=linkat:signal=KILL:when=2")
        under_strace(host, rule, log)
        return workspace

    assert content(crashed(f"trace={','.join(CHANGING)}")) == AFTER
    found = re.findall(r"^(\w+)\(", log.read_text(), re.MULTILINE)
    for at in sample([at for at, call in enumerate(found) if call != "write"], 4):
        number = found[: at + 1].count(found[at])
        workspace = crashed(f"inject={found[at]}:signal=KILL:when={number}")
        (workspace / "old.txt").write_text("mine")
        run(["list"])
        wanted = (AFTER | {"old.txt": "mine"}, BEFORE | {"old.txt": "mine"})
        assert content(workspace) in wanted, (found[at], number)
        assert leftovers(workspace) == [], (found[at], number)


def test_a_damaged_journal_is_reported_once(apply, tmp_path, capfd):
    call, number = changing_calls(apply, tmp_path)[40]
    for text in ("{", "[]", "{}"):
        apply(f"inject={call}:signal=KILL:when={number}")
        state = pathlib.Path(load_settings().paths.state)
        next(state.glob("overlays/*/journal")).write_text(text)
        for told in (True, False):
            capfd.readouterr()
            run(["list"])
            assert ("The record of interrupted changes is" in capfd.readouterr().err) is told


def test_an_error_at_any_call_leaves_the_workspace_as_it_was(apply, tmp_path):
    errors = ("ENOSPC", "EIO", "EACCES")
    for turn, (call, number) in enumerate(sample(changing_calls(apply, tmp_path), 8)):
        error = errors[turn % 3]
        workspace, text, _ = apply(f"inject={call}:error={error}:when={number}")
        wanted = AFTER if text.startswith("11 ") else BEFORE
        assert content(workspace) == wanted, (call, number, error, text)
        run(["list"])
        assert (content(workspace), leftovers(workspace)) == (wanted, []), (call, number, error)
