"""What a program sees and may do, in both tiers: from the inside, by running one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading

import pytest

from needs import needs
from satchel.errors import Refused, Unsandboxed
from satchel.runners import tiers
from satchel.runners.base import Overlay, Program, ProgramLimits, ProgramPermissions
from satchel.runners.launcher import Launcher
from satchel.runners.sandbox import sandboxed_launch
from satchel.runners.tiers import choose_tier
from satchel.settings import load_settings

SECRET = "not-for-everybody-4711"


@pytest.fixture
def skill(tmp_path):
    folder = tmp_path / "skill"
    folder.mkdir()
    (folder / "data.txt").write_text("of the skill")
    return folder


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "old.txt").write_text("of the user")
    return folder


def python(folder, code: str) -> Program:
    made = tiers.python_program(str(folder), {})
    return Program((*made.argv[:3], "-c", code), str(folder), "python", read=made.read)


def run(folder, tier, code, permissions=ProgramPermissions(), limits=ProgramLimits()):  # noqa: B008
    """The lines that a program writes; what it does not catch is the end of the test."""
    said, trouble = tiers.run(sandboxed_launch(python(folder, code), permissions, limits, tier))
    assert not trouble, trouble
    return said.splitlines()


TRY = """
import os
def tried(what):
    try:
        what()
    except OSError as exc:
        print(exc.strerror)
    else:
        print("done")
def write(path):
    with open(path, "w") as file:
        file.write("x")
"""


@pytest.mark.req("E4")
def test_environment_is_made_from_nothing(skill, tier, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    code = "import os, json; print(json.dumps(dict(os.environ))); print(os.getcwd())"
    env, cwd = run(skill, tier, code)
    env = json.loads(env)
    known = {"PATH", "HOME", "TMPDIR", "SATCHEL_SCRATCH", "SATCHEL_SKILL_DIR", "LANG", "LANGUAGE"}
    known |= {"GIT_CONFIG_NOSYSTEM"}
    assert {name for name in env if not name.startswith("LC_")} <= known | {"TZ", "PWD"}
    assert env["TZ"] == "Asia/Shanghai"
    assert env["HOME"] == env["TMPDIR"] == env["SATCHEL_SCRATCH"] == cwd
    assert env["SATCHEL_SKILL_DIR"] == str(skill)


def test_declared_secrets_reach_only_their_program(skill, tier, monkeypatch):
    monkeypatch.setenv("OTHER_SECRET", SECRET + "-other")
    code = (
        "import os; print(os.environ['API_KEY'], os.environ.get('OTHER_SECRET')); "
        "import sys; sys.stdout.flush(); sys.stdin.read()"
    )
    permissions = ProgramPermissions(secrets=(("API_KEY", SECRET),))
    launcher = Launcher()
    process = launcher.start(
        sandboxed_launch(python(skill, code), permissions, ProgramLimits(), tier)
    )
    try:
        assert os.read(process.stdout, 100).decode().split() == [SECRET, "None"]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            for kind in ("cmdline", "environ"):
                if SECRET.encode() not in _proc(pid, kind) or int(pid) == os.getpid():
                    continue
                # Its own environment is where it belongs.
                assert kind == "environ"
                assert b"python" in _proc(pid, "comm")
                assert b"sys.stdin.read" in _proc(pid, "cmdline")
    finally:
        process.close()
        launcher.close()


def _proc(pid: str, kind: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{kind}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_scratch_may_be_written_and_is_gone_afterwards(skill, tier):
    code = TRY + (
        "import subprocess, tempfile, shutil\n"
        "with tempfile.NamedTemporaryFile() as file:\n"
        "    file.write(b'x')\n"
        "own = os.environ['HOME'] + '/copy'\n"
        "print(shutil.copy(os.environ['SATCHEL_SKILL_DIR'] + '/data.txt', own) == own)\n"
        "os.symlink(own, own + '-link'); os.rename(own, own + '-2')\n"
        "print(subprocess.run(['cat', own + '-2'], capture_output=True, text=True).stdout)\n"
        "print(os.environ['HOME'])\n"
    )
    copied, content, scratch = run(skill, tier, code)
    assert (copied, content) == ("True", "of the skill")
    assert scratch == "/tmp" or not os.path.exists(scratch)


@pytest.mark.parametrize(
    ("folder", "workspace"),
    [
        ("/opt/skill", ""),
        ("/opt/skill", "/srv/work"),
        ("/opt/skill", "/tmp/work"),
        ("/tmp/skill", "/srv/work"),
    ],
)
def test_what_is_visible_below_tmp_is_mounted_into_the_scratch_folder(folder, workspace):
    asked = Program(("/bin/true",), folder, "binary")
    # Writable: for a read-only one, Python and our own code are bound too, wherever they lie.
    permissions = ProgramPermissions(workspace, writable=bool(workspace))
    overlay = Overlay(workspace, "/srv/upper", "/srv/work-of-the-kernel", scratch="/srv/home")
    overlay = overlay if workspace else None
    launch = sandboxed_launch(asked, permissions, tier="bwrap", overlay=overlay)
    words = launch.arguments.split(b"\0")
    made = words.index(b"/srv/home" if workspace else b"--tmpfs")
    assert words[made + 1] == b"/tmp"
    assert words[words.index(b"SATCHEL_SCRATCH") + 1] == b"/tmp"
    assert all(words.index(path.encode()) > made for path in (folder, workspace) if path)


def test_tmp_itself_is_no_workspace():
    asked = Program(("/bin/true",), "/opt/skill", "binary")
    with pytest.raises(Refused, match="cannot work in `/tmp`"):
        sandboxed_launch(asked, ProgramPermissions("/tmp"), tier="bwrap")


def test_nothing_is_left_of_the_users_rights(skill, tier):
    code = "print(open('/proc/self/status').read())"
    status = dict(line.split(":\t", 1) for line in run(skill, tier, code) if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[name], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_workspace_may_be_read_when_declared(skill, workspace, tier):
    code = TRY + "print(open('old.txt').read())\ntried(lambda: write('new.txt'))\n"
    code += "print(os.getcwd() == os.environ['SATCHEL_WORKSPACE'])"
    lines = run(skill, tier, code, ProgramPermissions(workspace=str(workspace)))
    assert lines[0] == "of the user"
    assert lines[1] in {"Permission denied", "Read-only file system"}
    assert lines[2] == "True"


def test_a_workspace_inside_the_skill_is_not_writable(skill, tier):
    code = TRY + "tried(lambda: write('new.txt'))"
    assert run(skill, tier, code, ProgramPermissions(str(skill), writable=True)) != ["done"]


def test_network_is_open_when_declared(skill, tier):
    with socket.socket() as host, socket.socket(socket.AF_UNIX) as abstract:
        host.bind(("127.0.0.1", 0))
        host.listen()
        name = f"satchel-test-{os.getpid()}-{tier}"
        abstract.bind("\0" + name)
        abstract.listen()
        code = TRY + (
            "import socket\n"
            f"tried(lambda: socket.create_connection({host.getsockname()!r}, 3))\n"
            f"tried(lambda: socket.socket(socket.AF_UNIX).connect('\\0{name}'))\n"
            "print(os.path.exists('/etc/resolv.conf') and bool(open('/etc/resolv.conf').read))\n"
        )
        lines = run(skill, tier, code, ProgramPermissions(network=True))
    assert lines[0] == "done"
    assert lines[1] == "Operation not permitted", "the host's abstract sockets stay out"
    assert lines[2] == "True"


REACH = """
import array, os, socket
def receive():
    near = socket.socket(socket.AF_UNIX)
    near.connect("stream")
    fds = array.array("i")
    _, ancillary, _, _ = near.recvmsg(1, socket.CMSG_SPACE(4))
    fds.frombytes(ancillary[0][2])
    return open(os.path.join(f"/proc/self/fd/{fds[0]}", "secret")).read()
def fifo():
    with open(os.open("fifo", os.O_WRONLY | os.O_NONBLOCK), "wb") as file:
        file.write(b"x")
for what in (
    lambda: socket.socket(socket.AF_UNIX).connect("stream"),
    lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", "datagram"),
    fifo,
    receive,
):
    try:
        what()
    except OSError as exc:
        print("refused")
    else:
        print("reached")
open("/dev/null", "w").close()
open(os.environ["TMPDIR"] + "/own", "w").close()
print(open("old.txt").read())
"""


@pytest.mark.req("E4")
@pytest.mark.parametrize("network", [False, True])
def test_sockets_and_fifos_of_a_read_only_workspace_are_out_of_reach(
    skill, workspace, tier, network, tmp_path, monkeypatch
):
    """A connection, a datagram, a write to a FIFO, and a descriptor that is received."""
    home = tmp_path / "private"
    home.mkdir()
    (home / "secret").write_text("canary")
    os.mkfifo(workspace / "fifo")
    monkeypatch.chdir(workspace)
    with (
        socket.socket(socket.AF_UNIX) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram,
    ):
        stream.bind("stream")
        stream.listen()
        datagram.bind("datagram")
        reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
        folder = os.open(home, os.O_RDONLY)

        def hand_over():
            with contextlib.suppress(OSError):  # until it is shut
                while True:
                    with stream.accept()[0] as near:
                        socket.send_fds(near, [b"x"], [folder])

        giver = threading.Thread(target=hand_over)
        giver.start()
        try:
            lines = run(skill, tier, REACH, ProgramPermissions(str(workspace), network=network))
        finally:
            stream.shutdown(socket.SHUT_RDWR)
            giver.join()
            os.close(reader)
            os.close(folder)
    assert lines == ["refused"] * 4 + ["of the user"]


def test_sizes_are_limited(skill, tier):
    limits = ProgramLimits(file_size=1024 * 1024)
    code = TRY + (
        "def fill(name):\n"
        "    with open(os.environ['TMPDIR'] + '/' + name, 'wb') as file:\n"
        "        for _ in range(15):\n"
        "            file.write(bytes(65536))\n"
        "def large():\n"
        "    with open(os.environ['TMPDIR'] + '/large', 'wb') as file:\n"
        "        file.truncate(2 * 1024 * 1024)\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "tried(large)\n"
        "for number in range(6):\n"
        "    tried(lambda: fill(str(number)))\n"
    )
    large, *small = run(skill, tier, code, limits=limits)
    assert large == "File too large"
    if tier == "bwrap":  # in memory: four of the largest files, no more
        assert small[0] == "done"
        assert small[-1] == "No space left on device"


def test_nothing_else_in_bwrap_is_writable(skill):
    needs("bwrap")
    code = TRY + (
        "for path in ('/x', '/dev/x', '/usr/x', '/etc/x', '/proc/self/comm', '/run/x'):\n"
        "    tried(lambda: write(path))\n"
        "print(os.getuid() != 0, sorted(os.listdir('/')))\n"
    )
    *refused, inside = run(skill, "bwrap", code)
    assert "done" not in refused
    assert inside.startswith("True")
    assert not {"'home'", "'run'", "'sys'", "'var'"} & set(inside.split())


@pytest.mark.parametrize("seen", ["home", "above", "root", "read"])
def test_no_program_sees_the_whole_home_folder(skill, tier, tmp_path, monkeypatch, seen):
    home = tmp_path / "people" / "ada"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    program = python(skill, "")
    places = {"home": str(home), "above": str(home.parent), "root": "/"}
    permissions = ProgramPermissions(workspace=places.get(seen, ""))
    if seen == "read":
        program = program._replace(read=(*program.read, str(home)))
    with pytest.raises(Refused, match="must not see"):
        sandboxed_launch(program, permissions, ProgramLimits(), tier)


def test_a_program_without_a_sandbox_does_not_start(skill):
    for code, why in ((b"", "no BPF program"), (b"1234567", "damaged"), (bytes(8), "seccomp")):
        launch = sandboxed_launch(
            python(skill, "print('started')"), ProgramPermissions(), ProgramLimits(), "landlock"
        )
        said, trouble = tiers.run(launch._replace(seccomp=code))
        assert said == ""
        assert why in trouble


def standing(tier, holds):
    return tiers.TierState(tier, holds, "" if holds else "not here", {})


@pytest.mark.parametrize(
    ("sandbox", "holding", "own", "chosen"),
    [
        ("required", {"bwrap", "landlock"}, False, "bwrap"),
        ("required", {"landlock"}, False, "landlock"),
        ("required", set(), True, None),
        ("own", set(), True, "none"),
        ("own", set(), False, None),
        ("own", {"landlock"}, True, "landlock"),
        ("off", {"bwrap"}, False, "none"),
    ],
)
def test_the_tier_that_is_chosen(sandbox, holding, own, chosen):
    settings = load_settings(env={"HOME": "/nowhere"}, sandbox=sandbox)

    def ask(tier):
        return standing(tier, tier in holding)

    if chosen is None:
        with pytest.raises(Unsandboxed, match="not here") as caught:
            choose_tier(settings, own=own, ask=ask)
        assert "SATCHEL_SANDBOX" in caught.value.hint
    else:
        assert choose_tier(settings, own=own, ask=ask) == chosen


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_the_hint_names_bubblewrap_only_where_it_runs(monkeypatch, system):
    settings = load_settings(env={"HOME": "/nowhere"}, sandbox="required")
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(Unsandboxed) as caught:
        choose_tier(settings, ask=lambda tier: standing(tier, False))
    assert ("bubblewrap" in caught.value.hint) == (system == "linux")
    words = {"linux": "SATCHEL_SANDBOX=own", "darwin": "SATCHEL_SANDBOX=off", "win32": "Subsystem"}
    assert words[system] in caught.value.hint


def test_a_project_cannot_switch_the_sandbox_off(tmp_path):
    (tmp_path / "satchel.toml").write_text('sandbox = "off"\n')
    settings = load_settings(str(tmp_path), env={"HOME": str(tmp_path)})
    assert settings.sandbox == "required"
    assert [one[::2] for one in settings.remarks] == [("setting-refused", "sandbox")]
