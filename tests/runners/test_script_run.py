"""Scripts in the pool: arguments and input go in, both outputs and the exit status come out."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from needs import needs
from runners.leftovers import MARK, eventually, marked
from satchel.runners import tiers
from satchel.runners.base import (
    Program,
    ProgramLimits,
    ProgramPermissions,
    RunRequest,
    ScriptInput,
)
from satchel.runners.pool import Pool
from satchel.tools.base import CancelToken

START = "import os, signal, subprocess, sys, time\n"


NOTHING = ScriptInput()


def run(tmp_path, code: str, script=NOTHING, tier: Any = "none", **more: Any):
    folder = tmp_path / "mine"
    folder.mkdir(exist_ok=True)
    (folder / "x.py").write_text(START + code)
    made = tiers.python_program(str(folder), {})
    env = ((MARK, more.pop("mark", "")),)
    argv = (sys.executable, "-I", str(folder / "x.py"))
    program = Program(argv, str(folder), "python", (*made.read, sys.prefix), env)
    pool = Pool(tier=tier)
    try:
        return pool.run(RunRequest("mine", "RunScript", {}, program, script=script, **more))
    finally:
        pool.close()


CASES = {
    "its arguments": ("print(sys.argv[1:])", "['a b', '--x', '']\n", None),
    "its input": ("print(sys.stdin.read().upper())", "INPÜT\n\n", None),
    "no reading of its input": ("print('out')", "out\n", None),
    "nothing printed": ("", "", None),
    "several lines": ("print('{}\\n{}')", "{}\n{}\n", None),
    "no end of line": ("print(end='x')", "x", None),
    "bytes that are no text": (r"sys.stdout.buffer.write(b'\xff!')", "\ufffd!", None),
    "stdout closed early": ("print('a', flush=True); os.close(1); time.sleep(.1)", "a\n", None),
    "an exit status": ("print('part'); sys.exit(3)", "part\n", "exit-code"),
    "an exception": ("print('part'); 1 / 0", "part\n", "exit-code"),
    "a signal": ("os.kill(os.getpid(), signal.SIGSEGV)", "", "crashed"),
    "no end": ("print('part', flush=True); time.sleep(600)", "part\n", "timeout"),
    "a child that goes on": (
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); print('a')",
        "a\n",
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_script_gives_back(case, tmp_path):
    code, output, fault = CASES[case]
    limits = ProgramLimits(timeout=1.5 if fault == "timeout" else 30)
    script = ScriptInput(("a b", "--x", ""), "inpüt\n")
    mark = "script-run"
    result = run(tmp_path, code, script, limits=limits, mark=mark)
    assert (result.output, result.fault, result.truncated) == (output, fault, 0), result
    assert fault is not None or result.exit_code == 0
    assert eventually(lambda: not marked(mark)), "a process was left"


def test_exit_status_and_stderr_are_kept(tmp_path):
    result = run(tmp_path, "print('why', file=sys.stderr); sys.exit(3)")
    assert (result.exit_code, result.stderr) == (3, "why\n")
    assert result.detail == "it exited with status 3"


def test_long_outputs_are_read_and_bounded(tmp_path):
    code = (
        "text = sys.stdin.read()\n"
        "for _ in range(40): sys.stdout.write(text); sys.stderr.write(text)\n"
        "sys.stdout.write('last'); sys.stderr.write('last')"
    )
    limits = ProgramLimits(reply=250_000, stderr=1_000)
    result = run(tmp_path, code, ScriptInput(stdin="y" * 100_000), limits=limits)
    assert (len(result.output), result.truncated) == (250_000, 40 * 100_000 + 4 - 250_000)
    assert result.stderr.startswith("… [3,999,004 bytes were dropped] …\n")
    assert result.stderr.endswith("ylast")


def test_a_script_can_be_cancelled(tmp_path):
    cancel = CancelToken()
    timer = threading.Timer(0.5, cancel.set)
    timer.start()
    result = run(tmp_path, "print('a', flush=True); time.sleep(600)", cancel=cancel)
    timer.join()
    cancel.close()
    assert (result.fault, result.output) == ("cancelled", "a\n")


def test_in_the_sandbox_it_works_in_the_workspace_and_proposes_its_changes(tmp_path, tier):
    if tier == "bwrap":
        needs("bwrap")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "in.txt").write_text("text")
    permissions = ProgramPermissions(str(workspace), writable=True)
    code = "open('out.txt', 'w').write(open('in.txt').read() + sys.argv[1])"
    result = run(tmp_path, code, ScriptInput(("!",)), tier, permissions=permissions)
    assert result.fault is None, result
    assert not (workspace / "out.txt").exists()
    assert result.changes is not None
    result.changes.apply(result.changes.permitted)
    assert (workspace / "out.txt").read_text() == "text!"


GIT_REPORT = """def git(*words):
    done = subprocess.run(["git", *words], capture_output=True, text=True)
    print(done.stdout + done.stderr if done.returncode else done.stdout, end="")

git("log", "--format=%s")
git("shortlog", "-sn", "HEAD")
git("status", "--short")
git("diff", "--stat")
git("commit", "-qam", "Third")
"""


def test_a_script_reads_the_repository_of_the_workspace_and_never_changes_it(tmp_path, tier):
    if tier == "bwrap":
        needs("bwrap")
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    def git(*words):
        line = ["git", "-c", "user.name=A Tester", "-c", "user.email=a@example.com", *words]
        done = subprocess.run(line, cwd=workspace, check=True, capture_output=True, text=True)
        return done.stdout

    git("init", "-q")
    git("config", "user.name", "A Tester")
    git("config", "user.email", "a@example.com")
    for text in ("First", "Second"):
        (workspace / "a.txt").write_text(text)
        git("add", "a.txt")
        git("commit", "-qm", text)
    git("gc", "-q")
    (workspace / "a.txt").write_text("changed")
    permissions = ProgramPermissions(str(workspace), writable=True)
    result = run(tmp_path, GIT_REPORT, tier=tier, permissions=permissions)
    assert (result.fault, result.stderr) == (None, "")
    lines = ["Second", "First", "     2\tA Tester", " M a.txt"]
    assert result.output.splitlines()[:4] == lines
    assert result.output.endswith(" 1 file changed, 1 insertion(+), 1 deletion(-)\n")
    assert result.changes is not None
    assert [change.path for change in result.changes.refused] == [".git"]
    result.changes.apply(result.changes.permitted)
    assert git("log", "--format=%s").split() == ["Second", "First"]
