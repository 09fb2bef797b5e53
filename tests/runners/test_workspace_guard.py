"""Protected files in a writable workspace, tested through the pool."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from uuid import uuid4

import pytest

from needs import needs
from prepared import manifest, write_skill
from runners.leftovers import MARK, eventually, marked
from satchel.runners import tiers, workspace_guard
from satchel.runners.base import Program, ProgramLimits, ProgramPermissions, RunRequest
from satchel.runners.pool import Pool
from satchel.runners.runtimes import Runtimes

START = """
import json, os, sys
def write(path, text="x"):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
def tried(what):
    try:
        what()
    except OSError as exc:
        said.append(exc.strerror)
    else:
        said.append("done")
for line in sys.stdin:
    said = []
"""
REPLY = '{"output": "done", "error": ""}'
END = """
    print(json.dumps({"output": " ".join(said), "error": ""}), flush=True)
"""


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    (folder / "sub").mkdir(parents=True)
    return folder


@pytest.fixture
def call(tmp_path, workspace, tier):
    """Run lines of Python as a tool that may write and declares a worker."""
    skill = tmp_path / "skill"
    skill.mkdir()
    pool = Pool(tier=tier)

    def run(*lines, names=(".agents/skills", ".agents/satchel.lock", "skills")):
        (skill / "main.py").write_text(START + "".join(f"    {line}\n" for line in lines) + END)
        made = tiers.python_program(str(skill), {})
        script = str(skill / "main.py")
        key = str(len(lines)) + lines[0]
        argv = (os.path.realpath(sys.executable), "-I", "-S", script)
        program = Program(argv, str(skill), "python", read=made.read, key=key)
        permissions = ProgramPermissions(
            str(workspace), writable=True, guard=tuple(f"{workspace}/{name}" for name in names)
        )
        return pool.run(
            RunRequest(
                "mine", "mine_run", {}, program, permissions, ProgramLimits(timeout=20), workers=1
            )
        )

    yield run
    pool.close()


def test_what_was_not_there_is_not_there_afterwards(call, workspace):
    result = call(
        "write('.git/config', '[core]')",
        "write('.agents/skills/planted/skill.yaml')",
        "write('.agents/satchel.lock')",
        "write('sub/.git/config')",
        "write('satchel.toml')",
        "write('plain.txt')",
    )
    assert result.fault is None, result.detail
    assert result.way == "cold"  # a worker could write later
    assert len(result.denied) == 5
    for name in (".git", ".agents/skills", ".agents/satchel.lock", "sub/.git", "satchel.toml"):
        assert not os.path.lexists(workspace / name)
        assert any(f"`{workspace / name}` appeared" in line for line in result.denied)
    (aside,) = workspace.glob(".git.refused-*")
    assert (aside / "config").read_text() == "[core]"  # the user's own is not lost either
    assert (workspace / "plain.txt").exists()
    again = call("write('plain.txt')")
    assert again.denied == ()


def test_a_link_leads_nobody_astray(call, workspace, tmp_path):
    outside = tmp_path / "outside"
    (outside / "skills").mkdir(parents=True)
    result = call(
        "os.mkdir('evil')", "write('evil/skills/x/skill.yaml')", "os.symlink('evil', '.agents')",
        f"os.symlink({str(outside)!r}, 'sub/.git')",
    )  # fmt: skip
    assert result.fault is None, result.detail
    assert len(result.denied) == 2
    assert not os.path.lexists(workspace / ".agents")
    assert not os.path.lexists(workspace / "sub/.git")
    assert (workspace / "evil/skills/x/skill.yaml").exists()
    assert (outside / "skills").is_dir()


def test_a_link_to_skills_stays(call, workspace, tier):
    (workspace / "real/one").mkdir(parents=True)
    (workspace / "skills").symlink_to("real")
    result = call(
        "tried(lambda: write('real/planted/skill.yaml'))",
        "tried(lambda: (os.unlink('skills'), write('skills/planted/skill.yaml')))",
    )
    assert result.fault is None, result.detail
    assert result.output.split()[0] != "done"
    assert os.readlink(workspace / "skills") == "real"
    assert os.listdir(workspace / "real") == ["one"]
    if tier == "bwrap":
        assert any("was put back" in line for line in result.denied)


def test_what_the_user_makes_between_two_calls_is_guarded(call, workspace):
    lines = ("tried(lambda: write('.git/commondir'))",)
    (workspace / ".git").mkdir()
    assert call(*lines).output != "done"
    (workspace / "sub/deep/.git").mkdir(parents=True)
    (workspace / ".agents/skills").mkdir(parents=True)
    lines = (
        "tried(lambda: write('sub/deep/.git/commondir'))",
        "tried(lambda: write('.agents/skills/planted/skill.yaml'))",
    )
    result = call(*lines)
    assert "done" not in result.output
    (workspace / "sub/other/.git").mkdir(parents=True)
    lines = ("tried(lambda: write('sub/other/.git/commondir'))",)
    assert "done" not in call(*lines).output
    assert not list(workspace.rglob("commondir"))


def test_settings_in_the_project_file(call, workspace):
    file = workspace / "pyproject.toml"
    file.write_text("[project]\nname = 'x'\n")
    add = "tried(lambda: write('pyproject.toml', '[tool.satchel]\\nlocations = [\"evil\"]\\n'))"
    result = call(add)
    assert result.output == "done"
    assert file.read_text() == "[project]\nname = 'x'\n"
    assert "pyproject.toml` appeared" in result.denied[0]
    plain = "tried(lambda: write('pyproject.toml', '[tool.other]\\n'))"
    assert (call(plain).denied, file.read_text()) == ((), "[tool.other]\n")
    file.write_text("[tool.satchel]\nlocations = []\n")
    assert call(add).output != "done"
    file.unlink()
    for left_over in workspace.glob("pyproject.toml.*"):
        left_over.unlink()
    assert "appeared" in call(add).denied[0]
    assert not file.exists()


def test_a_repository_elsewhere_is_guarded_too(workspace):
    (workspace / "sub/repository").mkdir()
    (workspace / ".git").write_text("gitdir: sub/repository\n")
    found = workspace_guard.find_protected(str(workspace), ())
    assert set(found.there) == {str(workspace / ".git"), str(workspace / "sub/repository")}


@pytest.fixture
def of_ordinary_user():
    """A folder that an ordinary user reaches; those of other tests are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        workspace = pathlib.Path(folder, "workspace")
        (workspace / "sub").mkdir(parents=True)
        if os.getuid() == 0:
            for path in (workspace, workspace / "sub"):
                os.chown(path, 65534, 65534)
        yield workspace


def test_rights_that_were_taken_away_hide_nothing(of_ordinary_user):
    workspace = of_ordinary_user
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            before = workspace_guard.find_protected(
                str(workspace), (f"{workspace}/.agents/skills",)
            )
            for name in (".git", ".agents/skills", "sub/one/.git"):
                (workspace / name).mkdir(parents=True)
            for name, mode in ((".agents", 0), ("sub", 0o111), ("sub/one", 0o111), (".", 0o555)):
                (workspace / name).chmod(mode)
            told = workspace_guard.restore_protected(before)
            gone = (".git", ".agents/skills", "sub/one/.git")
            left = [name for name in gone if os.path.lexists(workspace / name)]
            status = 0 if len(told) == 3 and not left else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_search_for_git_is_bounded(workspace, monkeypatch):
    deep = workspace / "a/b/c/d"
    (deep / ".git").mkdir(parents=True)
    (deep / "e/.git").mkdir(parents=True)
    (workspace / "node_modules/x/.git").mkdir(parents=True)
    found = workspace_guard.find_protected(str(workspace), ())
    assert found.there == (str(deep / ".git"),)
    monkeypatch.setattr(workspace_guard, "MAX_FOLDER_COUNT", 2)
    cut = workspace_guard.find_protected(str(workspace), ())
    assert (cut.there, cut.whole) == ((), False)
    monkeypatch.undo()
    # What comes to light only now was not made by the call.
    assert workspace_guard.restore_protected(cut) == ()
    assert (deep / ".git").is_dir()


@pytest.mark.parametrize("tier", ["bwrap", "landlock", "none"])
def test_git_runs_nothing_afterwards(tmp_path, workspace, tier):
    if tier == "bwrap":
        needs("bwrap")
    mark = tmp_path / "ran"
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    skill = tmp_path / "skill"
    skill.mkdir()
    made = tiers.python_program(str(skill), {})
    config = f'[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "touch {mark}; false"\n'
    code = START + (
        f"    config = {config!r}\n"
        "    for place in ('sub/evil/config', 'sub/.git/config', '.git/config'):\n"
        "        tried(lambda: write(place, config))\n"
        "    for place in ('sub/evil/', 'sub/.git/'):\n"
        "        for name in ('objects', 'refs'):\n"
        "            os.makedirs(place + name, exist_ok=True)\n"
        "    tried(lambda: write('sub/.git/HEAD', 'ref: refs/heads/x'))\n"
        "    tried(lambda: write('.git/commondir', '../sub/evil'))\n"
    )
    program = Program((*made.argv[:3], "-c", code + END), str(skill), "python", read=made.read)
    permissions = ProgramPermissions(str(workspace), writable=True)
    pool = Pool(tier=tier)
    result = pool.run(RunRequest("mine", "mine_run", {}, program, permissions))
    pool.close()
    assert result.fault is None, result.detail
    for folder in (workspace, workspace / "sub"):
        subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=True)
    assert mark.exists() == (tier == "none")  # unheld, it does


LATER = """
import os, threading, time
def write():
    while not os.path.exists("go"):
        time.sleep(0.01)
    for path in (".git/config", "satchel.toml", "skills/late/SKILL.md"):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        open(path, "w").close()
    open("wrote", "w").close()
threading.Thread(target=write, daemon=True).start()
"""


@pytest.mark.req("E4")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_of_a_call_that_may_write_outlives_it(tmp_path, workspace, tier, workers):
    """A package with a `.pth` runs code at the start of Python, before the program."""
    reply = f"import sys\nfor line in sys.stdin:\n    print({REPLY!r}, flush=True)\n"
    folder = write_skill(str(tmp_path / "skill"), {"main.py": reply})
    program = Runtimes(str(tmp_path / "cache")).prepare(folder, manifest("python", "main.py"))
    (packages,) = pathlib.Path(tmp_path, "cache").rglob("site-packages")
    (packages / "later.py").write_text(LATER)  # what installing such a wheel puts there
    (packages / "later.pth").write_text("import later\n")
    mark = uuid4().hex
    program = program._replace(env=((MARK, mark),))
    permissions = ProgramPermissions(str(workspace), writable=True, guard=(f"{workspace}/skills",))
    pool = Pool(tier=tier)
    try:
        result = pool.run(RunRequest("mine", "mine_run", {}, program, permissions, workers=workers))
        left = marked(mark)
        (workspace / "go").touch()  # the call is over: whatever still runs may write now
        assert eventually(lambda: not marked(mark) or (workspace / "wrote").exists())
    finally:
        pool.close()
    assert (result.output, result.fault) == ("done", None), result.detail
    assert sorted(os.listdir(workspace)) == ["go", "sub"]
    assert left == []
