"""Scripts of loaded skills: calls, permissions, grants and changes, in the real sandbox."""

from __future__ import annotations

import os
import re
import socket

import pytest

from satchel import Satchel
from satchel.integrations.mcp.handlers import changes_text
from satchel.library.trust_store import ScriptGrant
from satchel.testing import make_skill
from satchel.tools.proposed_changes import change_notes

SHOUT = """\
import os, sys
print(sys.argv[1:], repr(sys.stdin.read()), os.getcwd())
for path in sys.argv[1:]:
    if path.endswith(".txt"):
        open(path, "w").write("new\\n")
"""
FAILS = "import sys\nprint('part')\nprint('bad pages: 9', file=sys.stderr)\nsys.exit(3)\n"
NETWORK = """\
import os, sys, socket
if len(sys.argv) > 1:
    print(os.environ["ACME_API_KEY"][::-1], os.environ["ACME_API_KEY"])
else:
    socket.create_connection(("127.0.0.1", 9), 2)
"""
PROBES = """\
import glob, os, socket, subprocess, sys
HERE = os.environ["SATCHEL_SKILL_DIR"]
def write(path):
    open(path, "w").close()
def connect(family, kind, address, *more):
    with socket.socket(family, kind, *more) as own:
        own.settimeout(2)
        own.connect(address)
        own.send(b"x")
def read(path):
    assert open(path, "rb").read(9)
def environment(pid):
    assert b"OF_THE_HOST" in open(f"/proc/{pid}/environ", "rb").read()
def others():
    own = {os.getpid(), os.getppid(), 1}
    assert any(open(f"/proc/{pid}/cmdline").read() for pid in os.listdir("/proc")
               if pid.isdecimal() and int(pid) not in own)
def listed(path):
    assert os.listdir(path)
def imported(name):
    __import__(name)
V4, V6, TCP, UDP = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
TRIES = {
    **{f"write {path}": (write, path) for path in (
        sys.prefix + "/pyvenv.cfg", sys.prefix + "/bin/python", sys.prefix + "/../.whole",
        *(f"{path}/evil.pth" for path in sys.path if path.endswith("site-packages")),
        HERE + "/.git/hook", "/etc/pip.conf", "/usr/lib/x", "/proc/sys/kernel/core_pattern",
        os.path.dirname(sys.prefix) + "/evil", os.path.dirname(os.path.dirname(sys.prefix)) + "/x",
    )},
    **{f"connect {at}": (connect, *at) for at in (
        (V4, TCP, ("127.0.0.1", PORT)), (V4, TCP, ("169.254.169.254", 80)),
        (V4, TCP, ("0.0.0.0", PORT)), (V4, UDP, ("127.0.0.53", 53)), (V6, TCP, ("::1", PORT)),
        (V6, TCP, ("::ffff:127.0.0.1", PORT)),
        (V4, socket.SOCK_RAW, ("127.0.0.1", 0), 1), (socket.AF_PACKET, socket.SOCK_RAW, ("lo", 0)),
        (socket.AF_UNIX, TCP, "\\0abstract"), (socket.AF_UNIX, TCP, "/run/docker.sock"),
        (socket.AF_NETLINK, socket.SOCK_RAW, (0, 0)), (40, TCP, (2, 1)),
    )},
    **{f"environment of {pid}": (environment, pid) for pid in ("self", 1, os.getppid())},
    **{f"read {path}": (read, path) for path in (
        HERE + "/.git/evil.py", "OTHER/SKILL.md", "/proc/1/mem", "/etc/shadow", "/etc/passwd",
    )},
    **{f"list {path}": (listed, path) for path in (
        HERE + "/.git", "/var/lib", "/run/user", "/sys", "OTHER",
    )},
    **{f"import {name}": (imported, name) for name in ("satchel", "pip", "pydantic", "evil")},
    "others": (others,),
    "resolve": (socket.getaddrinfo, "localhost.localdomain", 80),
    "pip": (subprocess.check_output, [sys.executable, "-m", "pip", "--version"]),
    **{f"variable {name}": (lambda name: os.environ[name], name) for name in NAMES},
}
for name, (act, *given) in TRIES.items():
    try:
        act(*given)
    except BaseException:
        continue
    print("through:", name)
print("tries:", len(TRIES))
"""
PACKAGES = "import yaml\nprint(yaml)\n"
LEFT = """\
import os, pathlib, tempfile
for path in (f"{tempfile.gettempdir()}/d/a.csv", "~/b.txt", "~/.cache/x/y"):
    path = os.path.expanduser(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write("x")
os.makedirs("out/empty")
"""
SHELL = '#!/bin/bash\nset -e\nfor x in "$@"; do echo "<$x>"; done\n'


@pytest.fixture
def scripts(satchel):
    """Writes the skill `demo` with these scripts; gives its folder."""

    def write(name="demo", **files):
        folder = os.path.join(satchel.settings.project, "skills")
        more = {"disallowed-tools": files.pop("forbids")} if "forbids" in files else {}
        body = "Run `python scripts/shout.py a b`.\n"
        folder = os.path.dirname(make_skill(folder, name, "Shouts.", body=body, **more))
        for file, text in {"shout_py": SHOUT, **files}.items():
            path = os.path.join(folder, "scripts", ".".join(file.rsplit("_", 1)))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
        return folder

    return write


def run(session, script="scripts/shout.py", *args, **more):
    return session.call("RunScript", {"skill": "demo", "script": script, "args": args, **more})


def loaded(satchel, **options):
    session = satchel.session(**{"approve": True, **options})
    assert session.call("Skill", {"name": "demo"}).status == "success"
    return session


def test_a_loaded_skill_names_its_scripts_and_they_run_in_the_project(satchel, scripts):
    scripts(run_sh=SHELL)
    session = satchel.session(approve=True)
    assert "call RunScript with that skill" in session.prompt
    assert "RunScript" in [tool["name"] for tool in session.definitions()]
    text = session.call("Skill", {"name": "demo"}).text
    assert '{"skill": "demo", "script": "scripts/run.sh", "args": ["..."]}' in text
    assert text.count("scripts/shout.py\n") == 1, "each file is listed once"
    assert "skill-files" not in text
    reply = run(session, "scripts/shout.py", "a b", "--x", 7, stdin="in\n")
    assert reply.status == "success", reply.text
    assert reply.data["output"].startswith(
        f"['a b', '--x', '7'] 'in\\n' {satchel.settings.project}"
    )
    assert '<tool-output tool="RunScript" skill="demo" script="scripts/shout.py"' in reply.text
    assert (
        run(session, "scripts/run.sh", "a b", "$HOME", "").data["output"] == "<a b>\n<$HOME>\n<>\n"
    )


def test_a_file_that_the_text_says_to_run_is_a_script_wherever_it_is(satchel):
    body = "Run `python {baseDir}/src/pdf/count.py a` as in [an example](examples/other.py).\n"
    folder = os.path.join(satchel.settings.project, "skills")
    folder = os.path.dirname(make_skill(folder, "demo", "Counts.", body=body))
    for path in ("src/pdf/count.py", "examples/other.py"):
        os.makedirs(os.path.join(folder, os.path.dirname(path)))
        with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
            file.write(SHOUT)
    session = satchel.session(approve=True)
    assert "RunScript" in [tool["name"] for tool in session.definitions()]
    text = session.call("Skill", {"name": "demo"}).text
    assert '"script": "src/pdf/count.py"' in text
    files = text.partition("<skill-files")[2].partition("</skill-files")[0]
    assert files.startswith(' listed="1" total="1"')
    assert "examples/other.py (" in files
    assert "examples/other.py" not in text.partition("RunScript")[2].partition("skill-files")[0]
    assert run(session, "{baseDir}/src/pdf/count.py", "a").status == "success"
    assert "`src/pdf/count.py`" in run(session, "src/gone.py").error.hint


def test_changes_of_a_script_are_applied_only_when_accepted(satchel, scripts):
    scripts()
    asked = []

    def approve(request):
        asked.append(request)
        return "yes.txt" in [change.path for change in request.changes]

    session = loaded(satchel, approve=approve)
    assert run(session, "scripts/shout.py", "yes.txt").data["changes"][0]["path"] == "yes.txt"
    assert run(session, "scripts/shout.py", "no.txt").data["changes"] == []
    assert [bool(request.changes) for request in asked] == [True, True]
    assert sorted(os.listdir(satchel.settings.project)) == ["skills", "yes.txt"]
    silent = loaded(satchel, approve=None)
    reply = run(silent, "scripts/shout.py", "late.txt")
    assert (reply.status, reply.data["changes"]) == ("success", [])
    assert "late.txt" in reply.text


def test_a_question_names_the_script_and_a_changed_mode(satchel, scripts):
    scripts(mode_py="import os\nos.chmod('a.sh', 0o755)\nos.chmod('b.sh', 0o644)\n")
    for name, mode in (("a.sh", 0o644), ("b.sh", 0o755)):
        path = os.path.join(satchel.settings.project, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("true\n")
        os.chmod(path, mode)
    asked = []

    def approve(request):
        asked.append(request)
        return True

    reply = run(loaded(satchel, approve=approve), "./scripts/mode.py")
    (request,) = asked
    assert request.question == (
        "Apply the changes that the script `demo/scripts/mode.py` proposes?"
    )
    words = [change.mode_words for change in request.changes]
    assert words == ["becomes executable", "no longer executable"]
    assert "changed a.sh, 5 -> 5 B, becomes executable" in changes_text(request)
    notes = change_notes(reply.data)
    assert "`a.sh` was changed and is executable now: 5 bytes before" in notes[0]
    assert "`b.sh` was changed and is no longer executable" in notes[1]
    assert os.access(os.path.join(satchel.settings.project, "a.sh"), os.X_OK)


def test_only_the_text_in_the_conversation_makes_its_scripts_callable(satchel, scripts):
    folder = scripts()
    session = satchel.session(approve=True)
    reply = run(session)
    assert (reply.error.code, reply.error.hint) == (
        "PERMISSION_DENIED", "Call Skill with name `demo` first, and read what it says",
    )  # fmt: skip
    call = {"type": "tool_use", "id": "1", "name": "Skill", "input": {"name": "demo"}}
    text = session.call("Skill", {"name": "demo"}).text
    result = {"type": "tool_result", "tool_use_id": "1", "content": text}
    history = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    later = satchel.session(approve=True)
    later.sync(history)
    assert run(later).status == "success"
    with open(os.path.join(folder, "SKILL.md"), "a", encoding="utf-8") as file:
        file.write("One more rule.\n")
    assert run(later).error.code == "CONFLICT"
    later.call("Skill", {"name": "demo"})
    assert run(later).status == "success"


def test_a_path_is_below_the_skill(satchel, scripts):
    folder = scripts()
    session = loaded(satchel)
    for good in ("./scripts/shout.py", "scripts//shout.py", f"{folder}/scripts/shout.py",
                 "skill://demo/scripts/shout.py", "~/.claude/skills/demo/scripts/shout.py",
                 "{baseDir}/scripts/shout.py", "${CLAUDE_SKILL_DIR}/scripts/shout.py",
                 "<skill-path>/scripts/shout.py", "demo/./scripts/shout.py"):  # fmt: skip
        assert run(session, good).status == "success", good
    for bad in (
        "scripts/gone.py",
        "../demo/../../satchel.toml",
        "/bin/ls",
        "../other/scripts/shout.py",
        "<skill>/../other/scripts/shout.py",
        "${PLUGIN_ROOT}/scripts/shout.py",
        "python scripts/shout.py",
    ):
        reply = run(session, bad)
        assert reply.error.code == "NOT_FOUND", bad
        assert reply.error.hint == "Its scripts are `scripts/shout.py`"
    assert run(session, "SKILL.md").error.code == "EXECUTION_ERROR"
    assert "`args` must be a list of texts" in run(session, "scripts/shout.py", True).text


def test_a_failed_script_is_an_error_with_its_output_and_no_changes(satchel, scripts):
    scripts(fails_py="open('left.txt', 'w').write('x')\n" + FAILS)
    reply = run(loaded(satchel), "scripts/fails.py")
    assert (reply.error.code, reply.data["exit"]) == ("EXECUTION_ERROR", 3)
    assert reply.error.message == "The script `scripts/fails.py` failed: it exited with status 3"
    assert 'kind="stderr"' in reply.text
    assert "bad pages: 9" in reply.text
    assert "\npart\n" in reply.text
    reason = "the program failed: files change only when it ends with status 0"
    assert f"files: `left.txt` was not changed: {reason}" in reply.text
    assert reply.data["denied"] == [f"files: `left.txt` was not changed: {reason}"]
    assert "if the status is its answer, tell the user" in reply.text
    assert reply.error.hint.startswith("Read what it printed: the status can be its answer")
    assert os.listdir(satchel.settings.project) == ["skills"]


@pytest.mark.parametrize(
    ("options", "forbids", "code"),
    [
        ({"tools": ["Skill", "RunScript"]}, "", None),
        ({"tools": ["Skill", "RunScript(demo/scripts/*)"]}, "", None),
        ({"tools": ["Skill", "RunScript(demo/scripts/other*)"]}, "", "PERMISSION_DENIED"),
        ({"tools": ["Skill"]}, "", "NOT_FOUND"),
        ({}, "RunScript", "PERMISSION_DENIED"),
        ({}, "RunScript(demo)", "PERMISSION_DENIED"),
        ({}, "RunScript(demo/scripts/*)", "PERMISSION_DENIED"),
        ({}, "RunScript(demo:scripts/shout.py)", "PERMISSION_DENIED"),
        ({}, "RunScript(other/*)", None),
    ],
)
def test_patterns_cover_a_skill_and_its_script(satchel, scripts, options, forbids, code):
    scripts(**({"forbids": forbids} if forbids else {}))
    session = loaded(satchel, **options)
    reply = run(session, "./scripts/shout.py")
    assert (reply.error and reply.error.code) == code, reply.text
    offered = "RunScript" in session.names
    assert offered is (code != "NOT_FOUND")
    assert ("RunScript" in session.call("Skill", {"name": "demo", "args": "2"}).text) is offered


def test_packages_are_named_in_one_question_before_anything_is_installed(satchel, scripts):
    scripts(pack_py=PACKAGES)
    asked = []

    def approve(request):
        asked.append(request)
        return False

    session = loaded(satchel, approve=approve)
    assert run(session).status == "success"
    assert asked == []
    reply = run(session, "scripts/pack.py")
    assert reply.error.code == "PERMISSION_DENIED"
    assert asked[0].reasons == ("install the packages `PyYAML` for `demo/scripts/pack.py`",)
    assert run(loaded(satchel, approve=None), "scripts/pack.py").error.code == "PERMISSION_DENIED"


def test_the_question_says_that_there_is_no_sandbox(satchel, scripts):
    scripts()
    asked = []
    project = satchel.settings.project
    plain = Satchel.for_project(project, sandbox="off", builtin=False)
    session = loaded(plain, approve=lambda request: asked.append(request) or False)
    assert run(session).error.code == "PERMISSION_DENIED"
    assert asked[0].reasons == (
        "do everything that you can do",
        "change the project's files directly, since it runs without a sandbox",
    )


def test_the_network_and_secrets_are_what_the_user_granted(satchel, scripts, monkeypatch):
    folder = scripts(net_py=NETWORK)
    monkeypatch.setenv("ACME_API_KEY", "s3cret-value")
    session = loaded(satchel)
    reply = run(session, "scripts/net.py")
    assert "`satchel trust demo --network` grants it" in reply.text
    reply = run(session, "scripts/net.py", "key")
    assert "`satchel trust demo --secret ACME_API_KEY` grants it" in reply.text
    library = satchel.library
    digest = library.integrity.digest(library.snapshot().get("demo"))
    library.trust.grant_scripts(folder, digest, ScriptGrant(secrets=("ACME_API_KEY",)))
    library.trust.grant_scripts(folder, digest, ScriptGrant(network=True))
    reply = run(session, "scripts/net.py", "key")
    assert reply.data["output"] == "eulav-terc3s [secret ACME_API_KEY]\n", reply.text
    reply = run(session, "scripts/net.py")
    assert "Connection refused" in reply.data["stderr"]
    assert "Connection refused" not in reply.text
    assert "Its error output is not shown, because it has secrets." in reply.text
    with open(os.path.join(folder, "scripts", "net.py"), "a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert "--secret ACME_API_KEY" in run(session, "scripts/net.py", "key").text


@pytest.mark.parametrize(
    ("name", "code", "variable"),
    [
        ("a_py", "import os\nassert os.getenv('API_BASE'), 'ERROR: set API_BASE'\n", "API_BASE"),
        ("a_js", "if (!process.env.API_BASE) throw new Error('API_BASE is missing')\n", "API_BASE"),
        ("a_sh", 'set -u\nOUT_DIR=x\necho "$OUT_DIR" "$API_BASE"\n', "API_BASE"),
        ("a_sh", 'OUT_DIR=x\necho "$HOME $OUT_DIR: HOME and OUT_DIR are wrong"; exit 1\n', None),
    ],
)  # fmt: skip
def test_the_hint_names_the_variable_that_a_script_misses(satchel, scripts, name, code, variable):
    scripts(**{name: code})
    reply = run(loaded(satchel), f"scripts/{name.replace('_', '.')}")
    assert reply.error is not None
    hint = f"`satchel trust demo --variable {variable}` grants it"
    assert ("satchel trust" in reply.text) == (variable is not None)
    assert (hint in reply.text) == (variable is not None), reply.text


def test_the_value_of_a_variable_is_shown_and_that_of_a_secret_is_not(
    satchel, scripts, monkeypatch
):
    code = "from os import environ\nprint(environ['API_BASE'], environ['A_TOKEN'])\n"
    folder = scripts(both_py=code)
    monkeypatch.setenv("API_BASE", "http://x/v1")
    monkeypatch.setenv("A_TOKEN", "s3cret-value")
    library = satchel.library
    digest = library.integrity.digest(library.snapshot().get("demo"))
    variables = ScriptGrant(variables=("API_BASE",))
    library.trust.grant_scripts(folder, digest, variables)
    assert "`satchel trust demo --secret A_TOKEN`" in run(loaded(satchel), "scripts/both.py").text
    assert library.trust.script_grant(folder, digest, "demo") == variables
    library.trust.grant_scripts(folder, digest, ScriptGrant(secrets=("A_TOKEN",)))
    reply = run(loaded(satchel), "scripts/both.py")
    assert reply.data["output"] == "http://x/v1 [secret A_TOKEN]\n", reply.text


def test_a_script_that_seems_to_succeed_says_what_it_missed(satchel, scripts):
    scripts(
        quiet_py="import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9))\n"
        "except OSError as exc:\n    print(exc)\n",
    )
    reply = run(loaded(satchel), "scripts/quiet.py")
    assert reply.error is None
    assert "`satchel trust demo --network` grants it" in reply.text


def test_a_failure_over_a_variable_of_the_env_file_names_its_grant(satchel, scripts):
    read = "assert open('.env').read() == ''\n"
    scripts(
        well_py=f"{read}print('DSN')\n",
        key_py=f"{read}import os; os.environ['DSN']\n",
        other_py=f"{read}raise SystemExit('bad pages: 9')\n",
        slow_py=f"{read}print('DSN', flush=True)\nimport time; time.sleep(60)\n",
    )
    with open(os.path.join(satchel.settings.project, ".env"), "w", encoding="utf-8") as file:
        file.write("export DSN='db://me:s3cret@host'\n")
    session = loaded(satchel)
    hint = "Scripts find `.env` empty; `satchel trust demo --secret DSN` passes a variable"
    assert hint in run(session, "scripts/key.py").text
    assert hint not in run(session, "scripts/well.py").text
    reply = run(session, "scripts/other.py")
    assert "Read what it printed" in reply.text
    assert hint not in reply.text
    config = satchel.settings.paths.config
    os.makedirs(os.path.dirname(config), exist_ok=True)
    with open(config, "w", encoding="utf-8") as file:
        file.write("[tools]\nscript_timeout = 3\n")
    hasty = Satchel.for_project(satchel.settings.project, trust="all", builtin=False)
    reply = run(loaded(hasty), "scripts/slow.py")
    assert reply.error.code == "TIMEOUT"
    assert "It has 3 seconds" in reply.text


def test_a_file_of_secrets_that_others_may_read_is_named(satchel, scripts, monkeypatch):
    folder = scripts(key_py="import os; print(os.environ.get('ACME_API_KEY', 'no key'))\n")
    monkeypatch.setenv("ACME_API_KEY", "s3cret-value")
    path = os.path.join(os.path.dirname(satchel.settings.paths.config), "secrets.env")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("ACME_API_KEY=from-the-file\n")
    os.chmod(path, 0o644)
    digest = satchel.library.integrity.digest(satchel.library.snapshot().get("demo"))
    satchel.library.trust.grant_scripts(folder, digest, ScriptGrant(secrets=("ACME_API_KEY",)))
    session = loaded(satchel)
    reply = run(session, "scripts/key.py")
    assert reply.data["output"] == "no key\n"
    assert f"Other users may read `{path}`. Run `chmod 600" in reply.text
    os.chmod(path, 0o600)
    assert "[secret ACME_API_KEY]" in run(session, "scripts/key.py").text


@pytest.mark.parametrize("tier", ["bwrap", "landlock"])
def test_a_script_reaches_nothing_that_was_not_granted(
    satchel, scripts, monkeypatch, tmp_path, tier
):
    monkeypatch.setattr("satchel.runners.tiers.TIERS", (tier,))
    names = ("OF_THE_HOST", "PIP_INDEX_URL", "NPM_TOKEN", "PYTHONSTARTUP", "LD_LIBRARY_PATH")
    for name in names:
        monkeypatch.setenv(name, "/of-the-host")
    other = make_skill(tmp_path / "elsewhere", "other", "Another.")
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = PROBES.replace("PORT", str(server.getsockname()[1])).replace("NAMES", repr(names))
        folder = scripts(probe_py=code.replace("OTHER", os.path.dirname(other)))
        os.makedirs(os.path.join(folder, ".git"))
        for path in (".git/evil.py", ".npmrc", "scripts/pip.conf", "scripts/sitecustomize.py"):
            with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
                file.write("import evil")
        reply = run(loaded(satchel), "scripts/probe.py")
        assert reply.data["tier"] == tier
        *through, tries = reply.data["output"].splitlines()
        assert re.fullmatch(r"tries: 4[67]", tries), reply.text
        for line in through:  # beside a folder below `/tmp`: in the sandbox's own
            path = line.removeprefix("through: write ")
            assert (tier, path.startswith("/tmp/")) == ("bwrap", True), line
            assert not os.path.exists(path)


def test_tmp_can_be_written_although_the_project_lies_below_it(satchel, scripts):
    assert satchel.settings.project.startswith("/tmp/")
    scripts(x_sh="set -e\necho one > /tmp/part.txt\nmkdir /tmp/d\ncat /tmp/part.txt > new.txt\n")
    reply = run(loaded(satchel), "scripts/x.sh")
    assert reply.error is None, reply.text
    assert reply.data["tier"] == "bwrap"
    assert [row["path"] for row in reply.data["changes"]] == ["new.txt"]
    assert "were not kept: `part.txt`." in reply.text
    assert not os.path.exists("/tmp/part.txt")


@pytest.mark.parametrize("tier", ["bwrap", "landlock"])
def test_files_that_a_script_wrote_elsewhere_are_named(satchel, scripts, monkeypatch, tier):
    monkeypatch.setattr("satchel.runners.tiers.TIERS", (tier,))
    scripts(left_py=LEFT)
    reply = run(loaded(satchel), "scripts/left.py")
    assert "home folder were not kept: `b.txt`, `d/a.csv`. Only the working" in reply.text
    assert "Empty folders were not kept: `out/empty`" in reply.text
    assert len(reply.data["lost"]) == 2
    assert not os.path.exists(os.path.join(satchel.settings.project, "out"))


def test_a_grant_is_for_one_folder_with_one_content(satchel, scripts, tmp_path):
    folder = scripts()
    trust, integrity = satchel.library.trust, satchel.library.integrity

    def digest():
        return integrity.digest(satchel.library.snapshot().get("demo"))

    granted, old = ScriptGrant(network=True), digest()
    trust.grant_scripts(folder, old, granted)
    for elsewhere in (tmp_path / "demo", f"{folder}/scripts", f"{folder}/..", f"{folder}2"):
        assert trust.script_grant(str(elsewhere), old, "demo") == ScriptGrant()
    for path in ("scripts/.git/x.py", "node_modules/x.js", "x.pyc", ".hg/x", "scripts/a/b.py"):
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
            file.write("1")
        assert trust.script_grant(folder, digest(), "demo") == ScriptGrant(), path
        os.unlink(os.path.join(folder, path))
        assert trust.script_grant(folder, digest(), "demo") == granted
    os.chmod(os.path.join(folder, "scripts/shout.py"), 0o755)
    assert trust.script_grant(folder, digest(), "demo") == ScriptGrant()
    os.chmod(os.path.join(folder, "scripts/shout.py"), 0o644)
    os.symlink("shout.py", os.path.join(folder, "scripts/link.py"))
    assert trust.script_grant(folder, digest(), "demo") == ScriptGrant()


def test_settings_of_the_user_grant_by_name_and_those_of_a_project_do_not(satchel, scripts):
    folder = scripts()
    project = satchel.settings.project
    table = '[grants.demo]\nnetwork = true\nsecrets = ["ACME_API_KEY"]\n'
    with open(os.path.join(project, "satchel.toml"), "w", encoding="utf-8") as file:
        file.write(table)
    ours = Satchel.for_project(project, trust="all")
    assert ours.library.trust.script_grant(folder, "x", "demo") == ScriptGrant()
    os.makedirs(os.path.dirname(ours.settings.paths.config), exist_ok=True)
    with open(ours.settings.paths.config, "w", encoding="utf-8") as file:
        file.write(table)
    theirs = Satchel.for_project(project, trust="all").library.trust
    assert theirs.script_grant(folder, "x", "demo") == ScriptGrant(True, ("ACME_API_KEY",))
    assert theirs.script_grant(folder, "x", "other") == ScriptGrant()


def test_without_scripts_the_tool_is_not_offered(satchel):
    make_skill(os.path.join(satchel.settings.project, "skills"), "plain", "Plain.")
    session = satchel.session()
    assert "RunScript" not in session.prompt
    assert "RunScript" not in session.names
    assert "RunScript" not in session.call("Grep", {}).text
