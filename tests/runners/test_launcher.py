"""The launcher: what a program inherits, its limits, and that nothing outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from uuid import uuid4

import pytest

import satchel
from runners.leftovers import MARK, below, eventually, marked, read
from satchel.runners.base import CannotStart, Launch, ProgramLimits
from satchel.runners.launcher import Launcher

PYTHON = (sys.executable, "-I", "-S", "-u", "-c")


@pytest.fixture
def own():
    """A launcher that a test may harm."""
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture
def mark():
    return uuid4().hex


def python(code: str, *, env=(), cwd="/", **more) -> Launch:
    return Launch((*PYTHON, code), tuple(env), cwd, **more)


def sh(code: str, mark: str, **more) -> Launch:
    return Launch(("/bin/sh", "-c", code), ((MARK, mark), ("PATH", os.defpath)), "/", **more)


def text_of(process) -> str:
    """Everything it writes, until it ends."""
    parts: list[bytes] = []
    while part := os.read(process.stdout, 65536):
        parts.append(part)
    process.wait(5)
    process.close()
    return b"".join(parts).decode()


# --- what a program gets ------------------------------------------------------------------------


def test_a_program_has_three_descriptors_its_environment_and_its_folder(starter, tmp_path):
    held = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(held, True)
    code = (
        "import os, json, signal; print(json.dumps({"
        "'files': sorted(map(int, os.listdir('/proc/self/fd')))[:-1], 'env': dict(os.environ),"
        "'cwd': os.getcwd(), 'umask': os.umask(0), 'leads': os.getsid(0) == os.getpid()}))"
    )
    said = json.loads(text_of(starter.start(python(code, env=[("A", "表")], cwd=str(tmp_path)))))
    os.close(held)
    assert said == {
        "files": [0, 1, 2], "env": {"A": "表", "LC_CTYPE": "C.UTF-8"}, "cwd": str(tmp_path),
        "umask": 0o077, "leads": True,
    }  # fmt: skip


LIMITS = (
    "import resource as r; print([r.getrlimit(k) for k in"
    " (r.RLIMIT_FSIZE, r.RLIMIT_NOFILE, r.RLIMIT_CORE)])"
)


def test_limits_are_hard_and_one_program_has_not_those_of_another(starter):
    for size, files in ((1 << 20, 64), (1 << 22, 100), (1 << 20, 64), (1 << 21, 50)) * 3:
        limits = ProgramLimits(file_size=size, open_files=files)
        said = text_of(starter.start(python(LIMITS, limits=limits)))
        wanted = [(size, size), (files, files), (0, 0)]
        assert said == f"{wanted}\n"


def test_the_launcher_knows_nothing_of_the_hosts_environment(starter, monkeypatch):
    monkeypatch.setenv("A_SECRET", "do not tell")
    own = Launcher()
    text_of(own.start(Launch(("/bin/true",), (), "/")))
    for pid in (own.pid, *below(own.pid)):
        assert b"A_SECRET" not in read(f"/proc/{pid}/environ")
    own.close()


# --- what cannot be started ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launch", "detail"),
    [
        (Launch(("/nowhere",), (), "/"), "`/nowhere` cannot be started: No such file or directory"),
        (Launch(("/etc",), (), "/"), "`/etc` cannot be started: Permission denied"),
        (Launch(("/etc/passwd",), (), "/"), "`/etc/passwd` cannot be started: Permission denied"),
        (
            Launch(("/bin/true",), (), "/nowhere"),
            "the working folder cannot be entered: No such file or directory",
        ),
        (Launch((), (), "/"), "IndexError"),
        (Launch(("/bin/true", "a\0b"), (), "/"), "embedded null"),
        (Launch(("/bin/true",), (("A=B", "c"),), "/"), "illegal environment variable name"),
        (Launch(("/bin/true",), (), "/", tier="landlock"), "the sandbox has no BPF program"),
        (
            Launch(("/nowhere",), (), "/", limits=ProgramLimits(open_files=50)),
            "`/nowhere` cannot be started: No such file or directory",
        ),
    ],
)
def test_a_program_that_cannot_start_has_a_reason_and_the_next_one_starts(starter, launch, detail):
    process = starter.start(launch)
    ended = process.wait(5)
    process.close()
    assert ended.reason == "cannot-start"
    assert detail in ended.detail
    assert text_of(starter.start(python("print('next')"))) == "next\n"


def test_without_descriptors_a_start_is_refused_and_nothing_is_lost(starter):
    import resource

    text_of(starter.start(Launch(("/bin/true",), (), "/")))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 4, hard))
    try:
        with pytest.raises(CannotStart, match="Too many open files"):
            starter.start(Launch(("/bin/true",), (), "/"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) == before


# --- how it ends --------------------------------------------------------------------------------

DAEMONS = "setsid sh -c 'sleep 60 & sleep 60 & wait' & sleep 60 & exec sleep 60"


def test_kill_and_close_end_every_descendant_and_may_be_repeated(starter, mark):
    process = starter.start(sh(DAEMONS, mark))
    assert eventually(lambda: len(marked(mark)) >= 5)
    assert process.wait(0) is None
    process.kill()
    process.kill()
    ended = process.wait(2)
    assert (ended.code, ended.reason) == (-9, "killed")
    assert marked(mark) == []
    process.kill()
    process.close()
    process.close()
    process = starter.start(sh(DAEMONS, mark))
    assert eventually(lambda: len(marked(mark)) >= 5)
    process.close()
    assert eventually(lambda: marked(mark) == [], 1)


def test_the_memory_of_all_descendants_counts_together(starter, mark):
    code = (
        "import os, time\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        held = b'x' * (60 << 20); time.sleep(60)\n"
        "time.sleep(60)"
    )
    launch = python(code, env=[(MARK, mark)], limits=ProgramLimits(memory=120 << 20))
    process = starter.start(launch)
    ended = process.wait(5)
    assert ended.reason == "memory"
    assert ended.peak > 120 << 20
    assert marked(mark) == []
    process.close()


def test_the_scratch_folder_goes_with_it_whatever_is_in_it(starter, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = (
        "import os\n"
        f"os.symlink({str(outside)!r}, 'link'); os.link({str(outside / 'kept')!r}, 'hard')\n"
        "os.mkfifo('pipe'); open('a\\nb', 'w'); open(b'\\xff', 'w')\n"
        "os.makedirs('closed/inner'); os.chmod('closed/inner', 0); os.chmod('closed', 0)\n"
        "for _ in range(300):\n"
        "    os.mkdir('deep' * 10); os.chdir('deep' * 10)\n"
        "for n in range(300): open(str(n), 'w')\n"
    )
    launch = python(code, cwd=str(scratch), scratch=str(scratch))
    process = starter.start(launch)
    assert process.wait(5).code == 0
    process.close()
    assert eventually(lambda: not scratch.exists(), 6)
    assert (outside / "kept").read_text() == "kept"


# --- who dies -----------------------------------------------------------------------------------

HOST = """
import os, sys, time
sys.path[:0] = {path!r}
from satchel.runners.base import Launch
from satchel.runners.launcher import Launcher
launcher = Launcher()
env = (({name!r}, {mark!r}), ("PATH", os.defpath))
running = [
    launcher.start(Launch(("/bin/sh", "-c", {code!r}), env, "/", scratch=scratch))
    for scratch in {scratches!r}
]
forked = os.fork() if {fork!r} else -1
if forked:
    print(launcher.pid, forked, flush=True)  # the fork holds copies of whatever was not closed
time.sleep(60)
"""


@pytest.mark.parametrize("fork", [False, True])
def test_a_host_that_is_killed_leaves_nothing_within_a_second(tmp_path, mark, fork):
    scratches = [str(tmp_path / str(number)) for number in range(3)]
    for scratch in scratches:
        os.mkdir(scratch)
    source = os.path.dirname(os.path.dirname(satchel.__file__))
    code = HOST.format(
        path=[source], name=MARK, mark=mark, code=DAEMONS, scratches=scratches, fork=fork
    )
    host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert host.stdout is not None
    pid, other = map(int, host.stdout.readline().split())
    # A fork of the host has the mark among its arguments, too, and lives on.
    forked = [other] if fork else []
    try:
        assert eventually(lambda: len(marked(mark)) >= 15 + 1 + fork)
        family = [pid, *below(pid)]
        host.kill()
        host.wait()
        assert eventually(lambda: marked(mark) == forked, 20)
        assert eventually(lambda: not any(map(os.path.exists, scratches)), 20)
        assert eventually(lambda: not any(alive(each) for each in family), 20)
    finally:
        host.stdout.close()
        for each in forked:
            os.kill(each, signal.SIGKILL)


def alive(pid: int) -> bool:
    state = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(state) and state[0] != b"Z"


def test_a_killed_launcher_is_replaced_and_programs_go_on(own, mark):
    first = own.start(sh("read line; echo $line; exec sleep 60", mark))
    old = own.pid
    os.kill(old, signal.SIGKILL)
    for _ in range(10):  # those that were ready may serve first
        assert text_of(own.start(python("print('next')"))) == "next\n"
    assert own.pid != old
    os.write(first.stdin, b"still here\n")
    assert os.read(first.stdout, 100) == b"still here\n"
    first.close()
    assert eventually(lambda: marked(mark) == [], 1)


def test_a_minder_that_is_killed_leaves_nothing(own, mark):
    process = own.start(sh(DAEMONS, mark))
    assert eventually(lambda: len(marked(mark)) >= 5)
    fields = read(f"/proc/{process.pid}/stat").rpartition(b")")[2].split()
    os.kill(int(fields[1]), signal.SIGKILL)
    assert process.wait(2).reason == "lost"
    assert eventually(lambda: marked(mark) == [], 1)
    process.close()
    assert text_of(own.start(python("print('next')"))) == "next\n"


def test_closing_ends_the_launcher_and_it_may_be_used_again(own):
    text_of(own.start(Launch(("/bin/true",), (), "/")))
    pid = own.pid
    family = [pid, *below(pid)]
    own.close()
    own.close()
    assert eventually(lambda: not any(alive(each) for each in family), 1)
    assert text_of(own.start(python("print('again')"))) == "again\n"
