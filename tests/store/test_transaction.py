"""A change happens completely or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading

import pytest

from chaos import works
from satchel import _fs
from satchel.errors import (
    AccessDenied,
    Conflict,
    Incomplete,
    InvalidInput,
    Refused,
    SkillBroken,
    Unsafe,
)
from satchel.library.lockfile import pending_changes
from satchel.skill.file_tree import FolderTree, MemoryTree, hash_tree
from satchel.store import transaction
from satchel.store.journal import SkillChange
from satchel.store.recovery import recover
from satchel.store.scope_lock import locked_scope
from satchel.store.staging import StagingFolder
from satchel.store.transaction import PendingChange, Receipt, commit
from satchel.store.trees import NO_DIGEST
from satchel.store.undo import Undone, history


@pytest.fixture(params=["exchange", "two renames"])
def way(request, monkeypatch):
    """Each way of replacing a folder in its turn."""
    if request.param == "two renames":
        monkeypatch.setattr(_fs, "_swap", lambda _one, _other: errno.ENOSYS)
    return request.param


def same(lock):
    return lock


def shot(folder: str) -> dict[str, object]:
    """Everything a user sees: the skills and the lockfile."""
    found: dict[str, object] = {}
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".satchel"]
        for name in files:
            path = os.path.join(here, name)
            with open(path, "rb") as stream:
                found[os.path.relpath(path, folder)] = (stream.read(), os.stat(path).st_mode)
    return found


@pytest.mark.timeout(60)  # waits for the disk hundreds of times
def test_the_place_is_never_empty_while_a_skill_is_replaced(project, scope):
    works.transactions(project, "add", "alpha", 1)
    missing, over = [], threading.Event()

    def watch() -> None:
        while not over.is_set():
            if not os.path.exists(os.path.join(scope.target("alpha"), "SKILL.md")):
                missing.append(1)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for version in range(2, 40):
            works.transactions(project, "update", "alpha", version)
    finally:
        over.set()
        thread.join()
    assert missing == []


def test_several_skills_change_together(way, project, scope):
    works.transactions(project, "add", "old", 1)
    works.transactions(project, "add", "gone", 1)
    with StagingFolder(scope) as here:
        changes = [SkillChange("gone", "", works.present(scope, "gone"), "")]
        for skill in ("old", "new"):
            found = here.write_tree(skill, works.tree_of(skill, 7))
            changes.append(
                SkillChange(skill, here.folder(skill), works.present(scope, skill), found.digest)
            )
        receipt = commit(scope, PendingChange("import", "three", changes, same), here)
    assert sorted(os.listdir(scope.folder)) == ["new", "old"]
    assert history(scope)[0].number == receipt.number
    assert history(scope)[0].ids == ("gone", "new", "old")


def test_a_skill_that_changed_meanwhile_is_a_conflict(project, scope):
    works.transactions(project, "add", "alpha", 1)
    seen = works.present(scope, "alpha")
    with open(os.path.join(scope.target("alpha"), "SKILL.md"), "a") as stream:
        stream.write("mine\n")
    before = shot(scope.root)
    with pytest.raises(Conflict, match="alpha"):
        commit(scope, PendingChange("remove", "", [SkillChange("alpha", "", seen, "")], same))
    assert shot(scope.root) == before


def test_a_failure_of_the_caller_changes_nothing(project, scope):
    works.transactions(project, "add", "alpha", 1)
    before = shot(scope.root)

    def relock(_lock):
        raise SkillBroken("no")

    change = SkillChange("alpha", "", works.present(scope, "alpha"), "")
    with pytest.raises(SkillBroken):
        commit(scope, PendingChange("remove", "", [change], relock))
    assert shot(scope.root) == before
    assert recover(scope) == []


@pytest.mark.parametrize("kind", ["link", "file", "fifo inside", "link inside"])
def test_any_file_in_the_place_goes_to_the_history(way, project, scope, tmp_path, kind):
    works.transactions(project, "add", "other", 1)
    target = scope.target("alpha")
    if kind == "link":
        os.symlink(tmp_path, target)
    elif kind == "file":
        with open(target, "w") as stream:
            stream.write("not a skill")
    else:
        os.mkdir(target)
        if kind == "fifo inside":
            os.mkfifo(f"{target}/pipe")
        else:
            os.symlink("/etc/hostname", f"{target}/out")
    expected = f"link:{tmp_path}" if kind == "link" else NO_DIGEST
    assert works.present(scope, "alpha") == expected
    works.transactions(project, "import", "alpha", 2)
    assert works.present(scope, "alpha") == works.digest_of("alpha", 2)
    assert os.path.lexists(scope.part("history", "2", "old", "alpha"))
    works.transactions(project, "undo", "alpha", 0)
    assert works.present(scope, "alpha") == expected


def test_readers_learn_what_is_under_way(project, scope, monkeypatch):
    works.transactions(project, "add", "alpha", 1)
    seen: list[dict[str, str]] = []
    original = transaction.sync_folders

    def look(*given):
        seen.append(pending_changes(scope.root))
        original(*given)

    monkeypatch.setattr(transaction, "sync_folders", look)
    assert pending_changes(scope.root) == {}
    works.transactions(project, "update", "alpha", 2)
    works.transactions(project, "remove", "alpha", 0)
    assert seen == [{"alpha": works.digest_of("alpha", 2)}, {"alpha": ""}]
    assert pending_changes(scope.root) == {}


def test_waiting_for_another_writer_ends(project, scope):
    works.transactions(project, "add", "alpha", 1)
    program = (
        "import sys; from satchel._fs import locked\n"
        "with locked(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, scope.part("lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(Refused, match="lock") as caught, locked_scope(scope, timeout=0.1):
            pass
        assert scope.part("lock") in caught.value.message
        assert caught.value.hint
        holder.kill()
        holder.wait()
        works.transactions(project, "update", "alpha", 2)


def test_a_failed_rollback_is_reported(project, scope, monkeypatch):
    works.transactions(project, "add", "alpha", 1)

    def fail(*_given):
        raise OSError(errno.EIO, os.strerror(errno.EIO), scope.folder)

    with monkeypatch.context() as patch:
        patch.setattr(transaction, "sync_folders", fail)
        with pytest.raises(Refused, match="the next command will finish it") as caught:
            works.transactions(project, "update", "alpha", 2)
    assert scope.folder in caught.value.message
    assert os.path.exists(scope.part("journal.json"))
    works.transactions(project, "add", "beta", 1)
    assert works.present(scope, "alpha") == works.digest_of("alpha", 2)


def test_a_change_without_a_confirmed_sync_is_reported_as_made(bench, monkeypatch):
    bench.do("add", "fresh", "Does it. Use when asked.")
    folder = bench.skills / "fresh"
    file = folder / "SKILL.md"
    sync = transaction.sync_folder

    def fail(path):
        if os.path.isfile(os.path.join(path, "entry.json")):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        sync(path)

    store = bench.store
    monkeypatch.setattr(transaction, "sync_folder", fail)
    with (
        store.plan_edit("fresh", {"SKILL.md": file.read_bytes() + b"More.\n"}) as plan,
        pytest.raises(Incomplete, match="The change was made, but") as caught,
    ):
        store.apply(plan)
    assert "satchel verify" in caught.value.hint
    made = caught.value.receipt
    assert isinstance(made, Receipt)
    assert made.trouble == (caught.value.message, caught.value.hint)
    assert file.read_text().endswith("More.\n")
    with pytest.raises(Incomplete) as caught:
        store.undo()
    back = caught.value.receipt
    assert isinstance(back, Undone)
    assert back.ids == ("fresh",)
    assert not file.read_text().endswith("More.\n")
    assert store.trust.trusts(folder)


# --- staging ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "a//b", "./a", "a\0b", ""])
def test_paths_that_lead_out_are_not_written(scope, path):
    with StagingFolder(scope) as here:
        with pytest.raises(Unsafe):
            here.write_tree("alpha", MemoryTree({path: b"x"}))
        assert os.listdir(os.path.join(here.path, "new")) == []


def test_links_inside_a_skill_are_kept_and_others_are_not(scope, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "SKILL.md").write_text("x")
    (source / "also.md").symlink_to("SKILL.md")
    with StagingFolder(scope) as here:
        found = here.write_tree("alpha", FolderTree(str(source)))
        assert found == hash_tree(FolderTree(str(source)))
        assert os.readlink(os.path.join(here.folder("alpha"), "also.md")) == "SKILL.md"

        class Liar(MemoryTree):
            """Lists a file as a link."""

            def __init__(self) -> None:
                super().__init__({"SKILL.md": b"x", "out": b"/etc/hostname"})
                self.files = tuple(
                    file._replace(mode="link") if file.path == "out" else file
                    for file in self.files
                )

        with pytest.raises(AccessDenied):
            here.write_tree("beta", Liar())
        assert os.listdir(os.path.join(here.path, "new")) == ["alpha"]


def test_too_large_a_skill_stops_while_it_is_written(scope):
    class Endless(MemoryTree):
        """Promises a byte and gives more than a disk holds."""

        def chunks(self, path):
            while True:
                yield bytes(1 << 20)

    with StagingFolder(scope) as here, pytest.raises(Unsafe, match="limits"):
        here.write_tree("alpha", Endless({"SKILL.md": b"x"}))


def test_a_staged_folder_elsewhere_is_refused(scope, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "SKILL.md").write_text("x")
    digest = hash_tree(FolderTree(str(outside))).digest
    for change in (
        SkillChange("alpha", str(outside), "", digest),
        SkillChange("../alpha", "", "", ""),
    ):
        with pytest.raises((InvalidInput, Refused)):
            commit(scope, PendingChange("import", "", [change], same))
    assert (outside / "SKILL.md").exists()
