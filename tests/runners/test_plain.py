"""Programs without the launcher of Linux: what macOS runs with `sandbox = "off"`.

What macOS or Windows lacks is hidden before Satchel is imported, in a process of its own. That is
no Mac and no Windows: nothing here ran on one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from satchel.testing import make_skill, make_tool_skill

HIDE = """
import asyncio, concurrent.futures, ctypes, json, os, select, shutil, signal, socket, subprocess
import sys, sysconfig, tempfile, threading, time
sysconfig.get_config_vars()  # of this system: its table is looked up by name
for name in ("pidfd_open", "memfd_create", "waitid", "O_PATH", "getxattr"):
    delattr(os, name)
del signal.SIGSTKFLT, socket.SOCK_SEQPACKET
sys.modules["satchel.runners._landlock"] = None
if sys.argv[1] == "win32":
    del os.fork, os.killpg, os.geteuid, os.uname, os.sysconf, select.poll
    sys.modules.update(dict.fromkeys(("fcntl", "resource")))
    def no_library(*_):
        raise TypeError("CDLL needs a name")
    ctypes.CDLL = no_library
sys.platform = sys.argv[1]
"""
PROGRAM = """
import json, os, subprocess, sys, time
how = json.loads(sys.stdin.readline())["arguments"]["how"]
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
with open(os.environ["SATCHEL_WORKSPACE"] + "/trace.json", "w") as file:
    json.dump([os.environ["HOME"], child.pid], file)
if how == "hang":
    time.sleep(60)
while how == "flood":
    print("x" * 65536, end="")
print(json.dumps({"output": f"{how}, key {os.environ.get('SOME_KEY')}", "error": ""}), flush=True)
"""
CALL = """
from satchel import Satchel
asked = []
def approve(request):
    asked.append(request.question)
    return sys.argv[2] != "refused"
options = {"timeout": 3}
satchel = Satchel.for_project(".", sandbox="off", trust="all", builtin=False, tools=options)
envelope = satchel.session(approve=approve).call("job_run", {"how": sys.argv[2]})
print(json.dumps([envelope.status, envelope.text, asked]))
"""


def elsewhere(folder, system: str, code: str, *words: str) -> str:
    """Run code in a process that lacks what another system lacks; returns its output."""
    command = [sys.executable, "-c", HIDE + code, system, *words]
    env = {**os.environ, "SOME_KEY": "of the host"}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("how", "status", "text"),
    [
        ("well", "success", "well, key None"),
        ("hang", "error", "no reply within 3 s"),
        ("flood", "error", "its reply is longer than"),
        ("refused", "error", "did not agree"),
    ],
)
def test_a_program_runs_without_the_launcher_after_it_was_asked_for(tmp_path, how, status, text):
    parameters = "parameters:\n  - { name: how, type: string, description: How. }\nfiles: write\n"
    make_tool_skill(tmp_path / ".agents" / "skills", "job", PROGRAM, more=parameters)
    answered, shown, asked = json.loads(elsewhere(tmp_path, "darwin", CALL, how))
    assert (answered, text in shown) == (status, True), shown
    assert ["do everything that you can do, use the network" in question for question in asked] == [
        True
    ]
    trace = tmp_path / "trace.json"
    assert trace.exists() == (how != "refused")
    if trace.exists():
        scratch, child = json.loads(trace.read_text())
        assert not os.path.exists(scratch)
        until = time.monotonic() + 10
        while _runs(child) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _runs(child), "a process of the program is left"


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


REFUSED = """
from satchel.errors import Unsandboxed
from satchel.runners import pool
from satchel.runners.tiers import choose_tier
from satchel.settings import load_settings
try:
    choose_tier(load_settings(env={"HOME": "/nowhere"}, sandbox=sys.argv[2]))
except Unsandboxed as refused:
    print(refused.message, refused.hint)
"""


@pytest.mark.parametrize(
    ("system", "sandbox", "words"),
    [
        ("win32", "off", "do not run on Windows"),
        ("win32", "required", "Windows Subsystem for Linux"),
        ("darwin", "required", "`SATCHEL_SANDBOX=off`"),
        ("darwin", "own", "The sandbox needs Linux"),
    ],
)
def test_a_refusal_names_what_works_on_that_system(tmp_path, system, sandbox, words):
    assert words in elsewhere(tmp_path, system, REFUSED, sandbox)


COMMAND = """
from satchel.cli.main import run
run(sys.argv[2:])
"""


@pytest.mark.parametrize("kind", ["tool", "script"])
def test_config_sandbox_and_doctor_report_what_is_missing(tmp_path, monkeypatch, kind):
    if kind == "tool":
        make_tool_skill(tmp_path / ".agents" / "skills", "job")
    else:
        skill = make_skill(tmp_path / ".agents" / "skills", "job", "Does it.")
        os.mkdir(os.path.join(os.path.dirname(skill), "scripts"))
    shown = elsewhere(tmp_path, "darwin", COMMAND, "config", "sandbox", "--json")
    assert [tier["why"] for tier in json.loads(shown)["tiers"]] == ["only Linux has it"] * 2
    monkeypatch.setenv("SATCHEL_TRUST", "all")
    for setting, code in (("required", "sandbox-missing"), ("off", "sandbox-off")):
        monkeypatch.setenv("SATCHEL_SANDBOX", setting)
        assert code in elsewhere(tmp_path, "darwin", COMMAND, "doctor", "--json")
    monkeypatch.setenv("SATCHEL_SANDBOX", "own")
    assert "sandbox-" not in elsewhere(tmp_path, "darwin", COMMAND, "doctor", "--json")
