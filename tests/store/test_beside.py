"""What is in a skill's folder and in no digest outlasts whatever is done to the skill."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess

import pytest

from chaos import works
from satchel import _fs
from satchel.errors import AccessDenied, Conflict, Refused
from satchel.store import recovery, transaction
from satchel.store.beside import staying
from satchel.store.history import undo
from satchel.store.keeping import KEPT
from satchel.store.recovery import recover
from satchel.store.stage import Stage
from satchel.testing import make_skill


class Crash(BaseException):
    """Stops the work as a kill would."""


def mode(path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def git(folder, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def edit(store, skill_id: str, path, text: str) -> None:
    with store.plan_edit(skill_id, {path.name: text.encode()}) as plan:
        store.carry_out(plan)


@pytest.fixture
def mine(bench):
    """A skill that is a repository, with everything in it that no digest tells of."""
    make_skill(bench.skills, "mine", "Does things. Use when asked.", body="One.")
    folder = bench.skills / "mine"
    (folder / "empty/inner").mkdir(parents=True)
    (folder / "data").mkdir(mode=0o700)
    (folder / "data/private.txt").write_text("x")
    (folder / "data/private.txt").chmod(0o600)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o750)
    (folder / "SKILL.md").chmod(0o640)
    (folder / "link.sh").symlink_to("run.sh")
    (folder / "folder-link").symlink_to("data")
    os.utime(folder / "run.sh", ns=(10**18, 10**18))
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "weeks of work")
    return folder


def check_all(folder) -> None:
    assert git(folder, "log", "-1", "--format=%s") == "weeks of work"
    assert (folder / "empty/inner").is_dir()
    assert mode(folder / "data") == 0o700
    assert mode(folder / "data/private.txt") == 0o600
    assert mode(folder / "run.sh") == 0o750
    assert mode(folder / "SKILL.md") == 0o640
    assert os.stat(folder / "run.sh").st_mtime_ns == 10**18
    assert os.readlink(folder / "link.sh") == "run.sh"
    assert os.readlink(folder / "folder-link") == "data"


def test_an_edit_keeps_the_repository_empty_folders_modes_and_times(bench, mine):
    file = mine / "SKILL.md"
    for number in range(KEPT + 1):
        edit(bench.store, "mine", file, file.read_text() + f"{number}\n")
    check_all(mine)
    assert file.read_text().endswith(f"\n{KEPT}\n")
    # It is the repository itself, not one copy for every edit.
    assert not list((bench.project / ".agents/.satchel").rglob(".git"))


def test_an_edit_makes_nobody_somebody_else(bench, mine):
    """The new file belongs to whoever edits; who runs it must not get their rights."""
    (mine / "run.sh").chmod(0o6755)
    edit(bench.store, "mine", mine / "SKILL.md", (mine / "SKILL.md").read_text() + "More.\n")
    assert mode(mine / "run.sh") == 0o755


def test_a_repository_that_has_no_place_any_more_is_told_of(bench, mine, tmp_path):
    inner = mine / "data/deep"
    inner.mkdir()
    git(inner, "init", "-q")
    other = tmp_path / "other"
    make_skill(other, "mine", "Does other things. Use when asked.", body="Two.")
    with bench.store.plan_import(str(other / "mine")) as plan:
        (step,) = plan.steps
        assert step.kind == "replace"
        assert any("holds a repository" in note for note in step.notes)
        bench.store.carry_out(plan)
    assert (mine / ".git").is_dir()  # this one had a place
    assert not (mine / "data").exists()
    assert undo(bench.store.scope).notes == ()
    assert (inner / ".git").is_dir()
    (note,) = undo(bench.store.scope, redo=True).notes
    assert "holds a repository" in note
    assert "Undo brings it back" in note


def test_undoing_says_that_a_repository_goes(bench, mine, tmp_path):
    with bench.store.plan_add("fresh", "Does it. Use when asked.") as plan:
        bench.store.carry_out(plan)
    git(bench.skills / "fresh", "init", "-q")
    (note,) = undo(bench.store.scope).notes
    assert "holds a repository" in note
    assert "Redo brings it back" in note
    bench.bring(bench.folder("greet", lib__a_md="a"), skill_id="mine")
    git(mine / "lib", "init", "-q")
    (note,) = undo(bench.store.scope).notes  # there was no `lib` before
    assert "holds a repository" in note
    assert git(mine, "log", "-1", "--format=%s") == "weeks of work"
    undo(bench.store.scope, redo=True)
    assert (mine / "lib/.git").is_dir()


@pytest.mark.skipif(os.name == "nt", reason="no groups")
def test_an_edit_lends_a_groups_rights_to_no_other_group(bench, mine, monkeypatch):
    other = next((one for one in os.getgroups() if one != os.getegid()), None)
    if other is None and os.geteuid() == 0:
        other = os.getegid() + 1
    if other is None:
        pytest.skip("this user has no second group")
    for path, bits in (("run.sh", 0o750), ("data/private.txt", 0o660), ("data", 0o2770)):
        os.chown(mine / path, -1, other)
        (mine / path).chmod(bits)
    file = mine / "SKILL.md"
    edit(bench.store, "mine", file, file.read_text() + "One.\n")
    for path, bits in (("run.sh", 0o750), ("data/private.txt", 0o660), ("data", 0o2770)):
        assert os.stat(mine / path).st_gid == other
        assert mode(mine / path) == bits

    def refuse(*_given, **_named):
        raise PermissionError(errno.EPERM, "not your group")

    monkeypatch.setattr(os, "chown", refuse)
    edit(bench.store, "mine", file, file.read_text() + "Two.\n")
    assert os.stat(mine / "run.sh").st_gid == os.getegid()
    assert [mode(mine / path) for path in ("run.sh", "data/private.txt", "data")] == [
        0o700,
        0o600,
        0o700,
    ]


def test_what_the_lockfile_brings_back_is_not_like_what_somebody_made_of_it(bench):
    bench.bring(bench.folder("greet", extra__run_sh="#!/bin/sh\n"))
    folder = bench.skills / "greet"
    before = {path: mode(folder / path) for path in ("SKILL.md", "extra", "extra/run.sh")}
    (folder / "SKILL.md").write_text("other")
    (folder / "planted").mkdir()
    git(folder / "planted", "init", "-q")
    for path in before:
        (folder / path).chmod(0o777)
    store = bench.store
    with store.plan_install(["greet"], frozen=True) as plan:
        assert any("holds a repository" in note for note in plan.steps[0].notes)
        store.carry_out(plan)
    assert {path: mode(folder / path) for path in before} == before
    assert not (folder / "planted").exists()


def test_what_comes_over_a_folder_stays_closed_to_whom_that_was(bench, mine):
    git(mine, "commit", "-q", "--allow-empty", "-m", "private")
    mine.chmod(0o700)
    (mine / "SKILL.md").chmod(0o600)
    source = bench.folder("greet", extra__a_md="a")
    bench.bring(source, skill_id="mine")
    assert git(mine, "log", "-1", "--format=%s") == "private"
    assert [mode(mine / path) for path in ("", "SKILL.md", "extra")] == [0o700, 0o600, 0o755]
    (mine / "SKILL.md").write_text("other")
    store = bench.store
    with store.plan_install(["mine"], frozen=True) as plan:
        store.carry_out(plan)
    assert [mode(mine / path) for path in ("", "SKILL.md", "extra")] == [0o700, 0o600, 0o755]


def test_what_is_committed_after_an_edit_outlasts_its_undo(bench, mine):
    file = mine / "SKILL.md"
    before = file.read_text()
    edit(bench.store, "mine", file, before + "Two.\n")
    git(mine, "commit", "-q", "--allow-empty", "-m", "later")
    for redo, text in ((False, before), (True, before + "Two.\n"), (False, before)):
        bench.store.undo(redo=redo)
        assert file.read_text() == text
        assert git(mine, "log", "--format=%s").split("\n") == ["later", "weeks of work"]


def test_a_new_name_takes_everything_along_there_and_back(bench, mine):
    store = bench.store
    with store.plan_rename("mine", "other") as plan:
        store.carry_out(plan)
    assert not mine.exists()
    check_all(bench.skills / "other")
    for redo, name in ((False, "mine"), (True, "other")):
        assert bench.store.undo(redo=redo).notes == ()  # its repository goes along
        check_all(bench.skills / name)


def test_an_update_and_a_lock_keep_what_is_no_part_of_the_skill(bench):
    source = bench.folder("greet", extra__a_md="a", extra__b_md="b")
    bench.bring(source)
    folder = bench.skills / "greet"
    git(folder, "init", "-q")
    (folder / "extra/a.md").chmod(0o600)
    (folder / "drafts").mkdir()
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/tool.pyc").write_text("x")  # the lock puts another folder there
    (folder / "extra/b.md").write_text("mine")
    bench.lock("greet")
    assert not (folder / "__pycache__").exists()
    assert (folder / ".git/HEAD").is_file()
    assert (folder / "drafts").is_dir()
    (source / "more").mkdir()
    (source / "more/c.md").write_text("c")
    store = bench.store
    with store.plan_update() as plan:
        store.insist(plan)
        store.carry_out(plan)
    assert (folder / "more/c.md").read_text() == "c"
    assert (folder / "extra/b.md").read_text() == "mine"
    assert (folder / ".git/HEAD").is_file()
    assert (folder / "drafts").is_dir()
    assert mode(folder / "extra/a.md") == 0o600


def test_a_folder_whose_files_an_update_takes_away_is_gone(bench):
    source = bench.folder("greet", extra__a_md="a")
    bench.bring(source)
    (source / "extra/a.md").unlink()
    (source / "extra").rmdir()
    store = bench.store
    with store.plan_update() as plan:
        store.carry_out(plan)
    assert not (bench.skills / "greet/extra").exists()


def test_an_import_over_a_repository_leaves_it_in_its_place(bench, mine):
    bench.bring(bench.folder("greet"), skill_id="mine")
    assert "Say hello." in (mine / "SKILL.md").read_text()
    assert git(mine, "log", "-1", "--format=%s") == "weeks of work"
    assert not (mine / "run.sh").exists()
    bench.store.undo()
    check_all(mine)


def test_a_removed_repository_comes_back_whole(bench, mine):
    store = bench.store
    with store.plan_remove(["mine"]) as plan:
        store.carry_out(plan)
    bench.store.undo()
    check_all(mine)


def test_repositories_deeper_inside_stay_and_one_that_is_there_is_not_replaced(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for path in (".git", "sub/.git", "gone/.git", "linked/.git", "plain"):
        (old / path).mkdir(parents=True)
    for path in (".git", "sub", "elsewhere"):
        (new / path).mkdir(parents=True)
    (new / "linked").symlink_to(new / "elsewhere")
    assert staying(str(old), str(new)) == [(str(old / "sub/.git"), str(new / "sub/.git"))]
    (tmp_path / "link").symlink_to(old)
    assert staying(str(tmp_path / "link"), str(new)) == []
    assert staying(str(tmp_path / "nothing"), str(new)) == []


def test_a_link_out_of_the_folder_is_not_followed(bench, mine, tmp_path):
    (tmp_path / "secret").mkdir(mode=0o700)
    (mine / "out").symlink_to(tmp_path / "secret")
    store = bench.store
    file = mine / "SKILL.md"
    with pytest.raises(AccessDenied):
        edit(store, "mine", file, file.read_text() + "Two.\n")
    assert "Two." not in file.read_text()
    check_all(mine)


@pytest.mark.parametrize(
    ("module", "where"),
    [
        (transaction, "_put"),
        (transaction, "leave_beside"),
        (recovery, "staying"),
        (transaction, "sync_places"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.parametrize("swap", [True, False])
def test_a_repository_outlasts_a_crash(tmp_path, monkeypatch, module, where, swap):
    if not swap:
        monkeypatch.setattr(_fs, "_swap", lambda *_: errno.ENOSYS)
    project = str(tmp_path)
    works.transactions(project, "add", "alpha", 1)
    scope = works.scope_of(project)
    head = os.path.join(scope.target("alpha"), ".git", "HEAD")
    os.mkdir(os.path.dirname(head))
    with open(head, "w") as stream:
        stream.write("mine")

    def stop(*_given, **_named):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "close", Stage.leave)
        patch.setattr(module, where, stop)
        with pytest.raises(Crash):
            works.transactions(project, "update", "alpha", 2)
    with monkeypatch.context() as patch:
        patch.setattr(recovery, "sync_places", stop)
        with pytest.raises(Crash):
            recover(scope)
    recover(scope)
    assert os.path.isfile(head)
    assert transaction.present(scope, "alpha") == works.digest_of("alpha", 2)
    undo(scope)
    assert os.path.isfile(head)
    assert transaction.present(scope, "alpha") == works.digest_of("alpha", 1)


def test_a_disk_that_refuses_leaves_the_repository_where_it_was(tmp_path, monkeypatch):
    project = str(tmp_path)
    works.transactions(project, "add", "alpha", 1)
    scope = works.scope_of(project)
    head = os.path.join(scope.target("alpha"), ".git")
    os.mkdir(head)

    def full(*_given, **_named):
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(transaction, "sync_places", full)
        with pytest.raises(Refused):
            works.transactions(project, "update", "alpha", 2)
    assert os.path.isdir(head)
    assert transaction.present(scope, "alpha") == works.digest_of("alpha", 1)


# --- what was expected ----------------------------------------------------------------------


def test_an_edit_of_something_else_than_was_expected_is_a_conflict(bench, mine):
    file = mine / "SKILL.md"
    seen = file.read_bytes()
    expect = {"SKILL.md": hashlib.sha256(seen).hexdigest()}
    file.write_bytes(seen + b"Theirs.\n")
    new = {"SKILL.md": seen + b"Mine.\n"}
    for wrong in (expect, {"SKILL.md": ""}, {"SKILL.md": "x"}, {"run.sh": ""}, {"no.md": "x"}):
        with pytest.raises(Conflict):
            bench.store.plan_edit("mine", new, expect=wrong)
    assert file.read_bytes() == seen + b"Theirs.\n"
    file.write_bytes(seen)
    program = hashlib.sha256((mine / "run.sh").read_bytes()).hexdigest()
    store = bench.store
    with store.plan_edit("mine", new, expect={**expect, "run.sh": program, "new.md": ""}) as plan:
        store.carry_out(plan)
    assert file.read_bytes() == seen + b"Mine.\n"
