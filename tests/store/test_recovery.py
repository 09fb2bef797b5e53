"""Recovery finishes a journalled change after a crash, and deletes no other content."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from chaos import works
from satchel import _fs
from satchel.errors import Conflict, Refused
from satchel.library.lockfile import read_lock
from satchel.store import recovery, transaction
from satchel.store.journal import SkillChange, TransactionRecord, render_record
from satchel.store.recovery import recover
from satchel.store.staging import StagingFolder
from satchel.store.undo import history, undo


class Crash(BaseException):
    """Stops the work as a kill would: nothing is put back."""


def stop(*_given, **_named):
    raise Crash


@pytest.fixture
def scope(project):
    works.transactions(project, "add", "alpha", 1)
    return works.scope_of(project)


@pytest.fixture
def crash(project, scope, monkeypatch):
    """Do an operation up to a point, and leave everything as it is then."""

    def run(where: str, op: str = "update", skill: str = "alpha", version: int = 2) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(StagingFolder, "close", StagingFolder.detach)
            patch.setattr(transaction, where, stop)
            with pytest.raises(Crash):
                works.transactions(project, op, skill, version)

    return run


def edit(scope, skill: str, text: str) -> str:
    with open(os.path.join(scope.target(skill), "SKILL.md"), "a") as stream:
        stream.write(text)
    return works.present(scope, skill)


@pytest.mark.parametrize("where", ["_execute_change", "exchange", "sync_folders", "write_lockfile"])
@pytest.mark.parametrize("swap", [True, False])
def test_every_stop_after_the_journal_is_finished(project, scope, crash, monkeypatch, where, swap):
    if not swap:
        monkeypatch.setattr(_fs, "_swap", lambda *_: errno.ENOSYS)
    crash(where)
    (repair,) = recover(scope)
    assert repair == "The update of `alpha` was interrupted; it was finished"
    assert works.present(scope, "alpha") == works.digest_of("alpha", 2)
    assert read_lock(scope.lock)["alpha"].tree == works.digest_of("alpha", 2)
    assert os.listdir(scope.part("stage")) == []
    assert recover(scope) == []
    undo(scope)
    assert works.present(scope, "alpha") == works.digest_of("alpha", 1)
    assert read_lock(scope.lock)["alpha"].tree == works.digest_of("alpha", 1)


def test_a_stop_before_the_journal_leaves_the_old_state(scope, crash):
    crash("commit_locked")
    (repair,) = recover(scope)
    assert "left behind" in repair
    assert works.present(scope, "alpha") == works.digest_of("alpha", 1)
    assert len(history(scope)) == 1


def test_a_recovery_that_is_interrupted_is_done_again(scope, crash, monkeypatch):
    crash("_execute_change")
    for step in ("swap_in", "sync_folders", "write_lockfile", "archive_journal"):
        with monkeypatch.context() as patch:
            patch.setattr(recovery, step, stop)
            with pytest.raises(Crash):
                recover(scope)
    (repair,) = recover(scope)
    assert repair.endswith("it was finished")
    assert works.present(scope, "alpha") == works.digest_of("alpha", 2)


def test_edits_made_between_crash_and_recovery_go_to_the_history(scope, crash):
    crash("_execute_change")
    mine = edit(scope, "alpha", "mine\n")
    (repair,) = recover(scope)
    assert "was edited meanwhile" in repair
    assert works.present(scope, "alpha") == works.digest_of("alpha", 2)
    undo(scope)
    assert works.present(scope, "alpha") == mine


def test_a_journal_whose_stage_is_gone_changes_nothing(scope, crash):
    crash("_execute_change")
    for name in os.listdir(scope.part("stage")):
        shutil.rmtree(scope.part("stage", name))
    (repair,) = recover(scope)
    assert "the old state holds" in repair
    assert works.present(scope, "alpha") == works.digest_of("alpha", 1)
    assert read_lock(scope.lock)["alpha"].tree == works.digest_of("alpha", 1)


@pytest.mark.parametrize("damage", [b"", b"{}", b"not json", b"[1]", b'{"version": 2}'])
def test_a_damaged_journal_is_set_aside(project, scope, damage):
    with open(scope.part("journal.json"), "wb") as stream:
        stream.write(damage)
    (repair,) = recover(scope)
    assert "set aside" in repair
    assert works.present(scope, "alpha") == works.digest_of("alpha", 1)
    assert os.path.exists(scope.part("journal-damaged.json"))
    works.transactions(project, "update", "alpha", 2)


@pytest.mark.parametrize(
    ("name", "staged"),
    [
        ("alpha", "../../precious"),
        ("alpha", "/etc"),
        ("alpha", "stage/1/new/../../../../precious"),
        ("alpha", "stage/1/new/beta"),
        ("../../precious", "stage/1/new/alpha"),
        ("..", ""),
    ],
)
def test_a_journal_that_came_with_a_project_reaches_nothing_outside(project, scope, name, staged):
    precious = os.path.join(project, "precious")
    os.mkdir(precious)
    after = works.digest_of("alpha", 1) if staged else ""
    record = TransactionRecord(9, "import", "", "", (SkillChange(name, staged, "", after),))
    with open(scope.part("journal.json"), "wb") as stream:
        stream.write(render_record(record))
    (repair,) = recover(scope)
    assert "set aside" in repair
    assert os.path.isdir(precious)


@pytest.mark.parametrize("link", ["history/9", "history/9/old", "stage/1", "stage/1/new"])
def test_a_journal_through_a_link_reaches_nothing_outside(project, scope, link):
    outside = os.path.join(project, "outside")
    os.makedirs(os.path.join(outside, "new/alpha"))
    os.makedirs(os.path.dirname(scope.part(link)), exist_ok=True)
    os.symlink(outside, scope.part(link))
    change = SkillChange("alpha", "stage/1/new/alpha", "", works.digest_of("alpha", 1))
    with open(scope.part("journal.json"), "wb") as stream:
        stream.write(render_record(TransactionRecord(9, "import", "", "", (change,))))
    (repair, *_) = recover(scope)
    assert "set aside" in repair
    assert os.listdir(outside) == ["new"]


def test_a_recovery_that_the_disk_refuses_is_an_error_and_can_be_repeated(
    scope, crash, monkeypatch
):
    crash("_execute_change")

    def refuse(*_given):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), scope.folder)

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "swap_in", refuse)
        with pytest.raises(Refused, match="cannot be finished") as caught:
            recover(scope)
    assert scope.folder in caught.value.message
    assert recover(scope)[0].endswith("it was finished")


def test_a_plan_is_made_after_an_interrupted_change_was_finished(bench, monkeypatch):
    bench.store.apply(bench.store.plan_import(str(bench.folder())))
    with monkeypatch.context() as patch:
        patch.setattr(transaction, "write_lockfile", stop)
        with bench.store.plan_remove(["greet"]) as plan, pytest.raises(Crash):
            bench.store.apply(plan)
    problems = bench.satchel.problems()
    assert "change-interrupted" in [one.code for one in problems]
    with bench.store.plan_install() as plan:  # it would bring back what was removed
        assert plan.steps == ()
        receipt = bench.store.apply(plan)
    assert receipt.repaired == ("The remove of `greet` was interrupted; it was finished",)
    assert not bench.skills.joinpath("greet").exists()


def test_an_undo_of_an_interrupted_change_restores_the_trust(bench, monkeypatch):
    bench.store.apply(bench.store.plan_import(str(bench.folder())))
    bench.folder(text="Say more.\n")
    with monkeypatch.context() as patch:
        patch.setattr(transaction, "write_lockfile", stop)
        with bench.store.plan_update() as plan, pytest.raises(Crash):
            bench.store.apply(plan)
    bench.store.undo()
    assert [skill.name for skill in bench.satchel.library.refresh().skills] == ["greet"]


@pytest.mark.parametrize("way", ["install", "update"])
def test_a_plan_does_not_bring_back_what_was_removed_after_it(bench, way):
    bench.store.apply(bench.store.plan_import(str(bench.folder())))
    shutil.rmtree(bench.skills / "greet")
    store = bench.store
    with store.plan_install() if way == "install" else store.plan_update() as plan:
        assert [step.kind for step in plan.steps] == ["add"]
        bench.store.apply(bench.store.plan_remove(["greet"]))
        with pytest.raises(Conflict, match="changed meanwhile"):
            store.apply(plan)
    assert not bench.skills.joinpath("greet").exists()
    assert read_lock(str(bench.lockfile)) == {}
