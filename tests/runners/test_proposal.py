"""What a program that may write proposes, and what is applied, tested through the pool."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from uuid import uuid4

import pytest

from prepared import manifest, write_skill
from runners.leftovers import MARK, eventually, marked, read
from runners.writing import LIMITS, files, run
from satchel._fs import exchange
from satchel.errors import Refused, Unsandboxed
from satchel.runners import overlay
from satchel.runners.base import ProgramPermissions, RunRequest
from satchel.runners.pool import Pool
from satchel.runners.runtimes import Runtimes
from satchel.settings import load_settings
from sizes import sized


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    (folder / "sub/deep").mkdir(parents=True)
    for name in ("old.txt", "gone.txt", "sub/inner.txt", "sub/deep/far.txt"):
        (folder / name).write_text(f"{name}\n")
    return folder


@pytest.fixture
def propose(tmp_path, workspace, tier):
    """Run lines of Python; gives the proposal."""

    def propose(code, **options):
        result = run(tmp_path / "skill", workspace, tier, code, **options)
        assert result.fault is None, (result.detail, result.stderr)
        return result.changes

    return propose


def test_files_in_which_projects_keep_secrets_look_empty(workspace, propose):
    """And what the program tries to do to them is no change."""
    names = (".env", "sub/.env.local", "sub/deep/.netrc")
    for name in (*names, ".env.example"):
        (workspace / name).write_text("TOKEN=1\n")
    code = f"""
for name in {names!r}:
    assert open(name).read() == ""
    for act in (lambda path: open(path, "w"), os.unlink, lambda path: os.rename(path, "x"),
                lambda path: os.link(path, "y")):
        tried(act, name)
assert "done" not in said, said
assert open(".env.example").read() == "TOKEN=1\\n"
write("new.txt")
"""
    proposal = propose(code)
    assert [change.path for change in proposal.changes] == ["new.txt"]
    assert len(proposal.apply(proposal.permitted).applied) == 1
    assert files(workspace)[".env"] == "TOKEN=1\n"


def parent_of(pid):
    """The parent of a process."""
    return int(read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])


def overlays():
    """What is left of private folders."""
    root = os.path.join(load_settings().paths.state, "overlays")
    return [name for name in os.listdir(root) if not name.startswith(".")]


CASES = {
    "create": ("write('a/b/new.txt')", {"a/b/new.txt": "x"}, ()),
    "change": ("open('old.txt', 'a').write('more')", {"old.txt": "old.txt\nmore"}, ()),
    "replace": ("write('n', 'y'); os.replace('n', 'old.txt')", {"old.txt": "y"}, ()),
    "delete": ("os.remove('gone.txt')", {}, ("gone.txt",)),
    "delete a folder": ("shutil.rmtree('sub')", {}, ("sub/inner.txt", "sub/deep/far.txt")),
    "replace a folder": (
        "shutil.rmtree('sub'); write('sub/deep/new.txt')",
        {"sub/deep/new.txt": "x"},
        ("sub/inner.txt", "sub/deep/far.txt"),
    ),
    "a file for a folder": (
        "shutil.rmtree('sub'); write('sub')",
        {"sub": "x"},
        ("sub/inner.txt", "sub/deep/far.txt"),
    ),
    "a folder for a file": (
        "os.remove('gone.txt'); write('gone.txt/a')", {"gone.txt/a": "x"}, ("gone.txt",),
    ),
    "rename a folder": (
        "shutil.move('sub', 'moved')",
        {"moved/inner.txt": "sub/inner.txt\n", "moved/deep/far.txt": "sub/deep/far.txt\n"},
        ("sub/inner.txt", "sub/deep/far.txt"),
    ),
    "link": ("os.symlink('sub/deep', 'here')", {"here": "-> sub/deep"}, ()),
    "write through a link": (
        "os.symlink('sub', 'here'); write('here/new.txt')",
        {"here": "-> sub", "sub/new.txt": "x"},
        (),
    ),
    "link two names": (
        "write('one'); os.link('one', 'two'); os.link('old.txt', 'three')",
        {"one": "x", "two": "x", "three": "old.txt\n"},
        (),
    ),
    "nothing": ("write('old.txt', 'old.txt\\n'); os.utime('gone.txt')", {}, ()),
}  # fmt: skip


@pytest.mark.req("E4")
@pytest.mark.parametrize("case", CASES)
def test_accepted_changes_are_applied_and_nothing_before(propose, workspace, case):
    code, new, gone = CASES[case]
    before = files(workspace)
    proposal = propose(code)
    assert files(workspace) == before
    result = proposal.apply(proposal.changes)
    assert (result.conflicts, result.trouble, proposal.refused) == ((), "", ())
    wanted = {name: text for name, text in before.items() if name not in gone} | new
    assert files(workspace) == wanted
    assert {change.path for change in result.applied} == {*new, *gone}
    assert overlays() == []
    folders = {path for path in workspace.rglob("*") if path.is_dir() and not path.is_symlink()}
    assert all(any(folder.iterdir()) for folder in folders), "an emptied folder stays"


def test_a_discarded_proposal_leaves_nothing(propose, workspace):
    before = files(workspace)
    proposal = propose("write('new'); os.remove('old.txt'); os.mkdir('shut', 0)")
    assert [change.path for change in proposal.changes] == ["new", "old.txt"]
    proposal.discard()
    assert (files(workspace), overlays()) == (before, [])


def test_only_accepted_changes_are_applied(propose, workspace):
    proposal = propose("write('one'); write('two'); write('conftest.py'); os.remove('old.txt')")
    assert [change.path for change in proposal.permitted] == ["old.txt", "one", "two"]
    proposal.apply(change for change in proposal.changes if change.path in ("two", "conftest.py"))
    assert {"two", "conftest.py", "old.txt"} <= set(files(workspace))
    assert "one" not in files(workspace)


def test_rights_of_files_stay_and_the_executable_bit_follows(propose, workspace):
    (workspace / "old.txt").chmod(0o640)
    (workspace / "gone.txt").chmod(0o755)
    proposal = propose(
        "open('old.txt', 'a').write('y'); open('gone.txt', 'a').write('y'); "
        "write('run', mode=0o755); write('plain')"
    )
    proposal.apply(proposal.changes)
    modes = {name: (workspace / name).stat().st_mode & 0o777 for name in files(workspace)}
    assert (modes["old.txt"], modes["gone.txt"]) == (0o640, 0o755)
    assert modes["run"] & 0o111
    assert not modes["plain"] & 0o111


def test_a_concurrent_edit_of_the_user_is_a_conflict_and_nothing_is_applied(propose, workspace):
    code = "open('old.txt', 'a').write('y'); write('new'); os.remove('gone.txt')"
    for name, text in (("old.txt", "mine"), ("new", "mine"), ("gone.txt", "mine")):
        proposal = propose(code)
        (workspace / name).write_text(text)
        before = files(workspace)
        result = proposal.apply(proposal.changes)
        assert result.conflicts == (name,)
        assert files(workspace) == before
        (workspace / "new").unlink(missing_ok=True)


def test_a_change_during_the_run_is_a_conflict(propose, workspace):
    def edit():
        (workspace / "old.txt").write_text("mine")

    timer = threading.Timer(0.5, edit)
    timer.start()
    proposal = propose("time.sleep(2); write('old.txt', 'its own')")
    timer.join()
    assert proposal.apply(proposal.changes).conflicts == ("old.txt",)
    assert (workspace / "old.txt").read_text() == "mine"


def test_text_is_shown_as_a_diff_without_tricks(propose, workspace):
    (workspace / "old.txt").write_text("one\ntwo\nthree\n")
    proposal = propose(
        "write('old.txt', 'one\\n2\\x1b[31m\\u202e\\nthree\\n'); write('bytes', 'a\\0b'); "
        "write('long', 'x\\n' * 300000)"
    )
    shown = {change.path: proposal.diff(change) for change in proposal.changes}
    assert shown["bytes"] == shown["long"] == ""
    assert "-two\n+2�[31m�\n" in shown["old.txt"]


@pytest.mark.parametrize(
    ("code", "limits"),
    [
        ("[write(f'f{n}') for n in range(60)]", LIMITS._replace(changes=50)),
        ("[write(f'f{n}', 'x' * 100_000) for n in range(20)]", LIMITS._replace(written=1 << 20)),
        ("write('/'.join(['d'] * 140))", LIMITS),
        ("[write(f'{n}/a') for n in range(99999)]; time.sleep(20)", LIMITS._replace(changes=50)),
        ("shutil.rmtree('sub')", LIMITS._replace(changes=2)),
    ],
)
def test_too_many_changes_are_refused_as_a_whole(tmp_path, workspace, tier, code, limits):
    before = files(workspace)
    result = run(tmp_path / "skill", workspace, tier, code, limits=limits)
    assert (result.fault, result.changes) == ("written", None), result.detail
    assert (files(workspace), overlays()) == (before, [])


def test_git_may_refresh_its_index_and_nothing_else(propose, workspace):
    def git(*words):
        return subprocess.run(["git", *words], cwd=workspace, check=True, capture_output=True)

    git("init", "-q")
    git("add", "old.txt", "gone.txt")
    os.utime(workspace / "old.txt", (1, 1))
    index = (workspace / ".git/index").read_bytes()
    start = "import subprocess; git = lambda *words: subprocess.check_output(['git', *words])\n"
    for more, refused in (
        ("", []),
        ("\ngit('rm', '-q', '--cached', 'gone.txt')", [".git"]),
        ("\nwrite('.git/config', 'x')", [".git"]),
        ("\nos.remove('.git/index')", [".git"]),
    ):
        proposal = propose(f"{start}git('status', '--short'){more}")
        assert [change.path for change in proposal.refused] == refused, more
        assert proposal.changes == ()
        proposal.apply(proposal.changes)
        assert (workspace / ".git/index").read_bytes() == index


LATER = """
import os, threading, time
def write():
    while not os.path.exists("go"):
        time.sleep(0.01)
    open("wrote", "w").close()
threading.Thread(target=write, daemon=True).start()
"""


@pytest.mark.timeout(120)
def test_nothing_of_a_call_that_may_write_outlives_it(tmp_path, workspace, tier):
    """A package with a `.pth` runs code at the start of Python, before the program."""
    reply = (
        "import sys\nfor line in sys.stdin:\n"
        '    print(\'{"output": "done", "error": ""}\', flush=True)\n'
    )
    folder = write_skill(str(tmp_path / "skill"), {"main.py": reply})
    program = Runtimes(str(tmp_path / "cache")).prepare(folder, manifest("python", "main.py"))
    (packages,) = pathlib.Path(tmp_path, "cache").rglob("site-packages")
    (packages / "later.py").write_text(LATER)  # what installing such a wheel puts there
    (packages / "later.pth").write_text("import later\n")
    mark = uuid4().hex
    program = program._replace(env=((MARK, mark),))
    permissions = ProgramPermissions(str(workspace), writable=True)
    pool = Pool(tier=tier)
    before = files(workspace)
    try:
        result = pool.run(RunRequest("mine", "mine_run", {}, program, permissions))
        assert marked(mark) == []
        (workspace / "go").touch()  # the call is over: whatever still runs may write now
        assert eventually(lambda: not marked(mark) or (workspace / "wrote").exists())
    finally:
        pool.close()
    assert (result.output, result.fault) == ("done", None), result.detail
    assert files(workspace) == before | {"go": ""}


def test_a_workspace_with_another_file_system_in_it_is_refused(propose, workspace, monkeypatch):
    monkeypatch.setattr(overlay, "_iter_mounts_below", lambda _folder: iter([f"{workspace}/sub"]))
    with pytest.raises(Refused, match=r"without mounts.* file systems: `sub`"):
        propose("write('new')")


def test_without_overlays_a_writing_program_is_refused(propose, monkeypatch):
    missing = overlay.OverlaySupport(None, "Operation not permitted")
    monkeypatch.setattr(overlay, "probe_overlay", lambda _tier, _state: missing)
    with pytest.raises(Unsandboxed, match="Operation not permitted") as refusal:
        propose("write('new')")
    assert refusal.value.hint.startswith("Install bubblewrap 0.11 or newer, or permit user")


def test_the_folder_of_a_killed_host_is_removed_by_the_next_run(propose):
    script = (
        "import os, signal, sys\n"
        "from satchel.runners.overlay import OverlayFolder\n"
        "folder = OverlayFolder.make(sys.argv[1])\n"
        "open(folder.upper + '/new', 'w').close()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    state = load_settings().paths.state
    subprocess.run([sys.executable, "-c", script, state], check=False)
    (old,) = overlays()
    propose("write('new')").discard()
    assert old not in overlays()


def test_changes_are_discarded_when_the_supervisor_of_the_program_was_killed(tmp_path, workspace):
    """A process may be left then, which could change what a person looks at."""
    mark = uuid4().hex

    def kill():
        while not (pids := marked(mark)):
            time.sleep(0.01)
        (parent,) = {parent_of(pid) for pid in pids} - {*pids}
        os.kill(parent, signal.SIGKILL)

    code = (
        f"'{mark}'\nif not os.fork():\n    os.setsid(); time.sleep(1.5); write('new')\n"
        "    print(json.dumps({'output': 'done', 'error': ''}), flush=True); os._exit(0)\n"
        "time.sleep(9)"
    )
    thread = threading.Thread(target=kill)
    thread.start()
    result = run(tmp_path / "skill", workspace, "landlock", code)
    thread.join()
    assert (result.fault, result.changes) == ("crashed", None), result
    assert overlays() == []


def test_a_folder_that_becomes_a_link_while_changes_are_applied_is_not_left(
    propose, workspace, tmp_path
):
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    for name in ("inner.txt", "deep/far.txt"):
        (outside / name).write_text("mine")
    wanted = files(outside)
    link = tmp_path / "link"
    link.symlink_to(outside)
    for _ in range(sized(3, 40)):
        proposal = propose("write('sub/inner.txt'); write('sub/new'); shutil.rmtree('sub/deep')")
        stop = threading.Event()

        def swap(stop=stop):
            while not stop.is_set():
                exchange(str(workspace / "sub"), str(link))

        thread = threading.Thread(target=swap)
        thread.start()
        proposal.apply(proposal.changes)
        stop.set()
        thread.join()
        assert files(outside) == wanted
        if not link.is_symlink():
            exchange(str(workspace / "sub"), str(link))
        (workspace / "sub/deep").mkdir(exist_ok=True)
        (workspace / "sub/deep/far.txt").write_text("x")
        (workspace / "sub/new").unlink(missing_ok=True)
        (workspace / "sub/inner.txt").write_text("old")
