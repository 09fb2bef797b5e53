"""A work area that a project brings is neither trusted, opened nor followed."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess

import pytest

from satchel import Satchel
from satchel.errors import AccessDenied, NotFound, Refused
from satchel.library.lockfile import (
    LockedSource,
    LockEntry,
    pending_changes,
    read_lock,
    render_lock,
)
from satchel.library.ownership import key_path, load_or_create_key, read_key, sign_record
from satchel.skill.file_tree import FolderTree, hash_tree
from satchel.store.journal import SkillChange, TransactionRecord, render_record
from satchel.store.recovery import recover
from satchel.store.trees import digest_at
from satchel.store.undo import history
from satchel.store.workdir import prepare_scope
from satchel.testing import make_skill

pytestmark = pytest.mark.timeout(60)


class Victim:
    """A user with a project and skills of the own."""

    def __init__(self, base) -> None:
        self.base = base
        self.project = base / "project"
        self.project.mkdir()
        self.work = self.project / ".agents/.satchel"
        self.skills = self.project / ".agents/skills"

    @property
    def satchel(self) -> Satchel:
        return Satchel.for_project(self.project, builtin=False)

    @property
    def store(self):
        return self.satchel.store()

    @property
    def scope(self):
        return self.store.scope

    def add(self, name: str):
        store = self.store
        with store.plan_add(name, "Helps with things. Use for things.") as plan:
            return store.apply(plan)

    def remove(self, name: str):
        store = self.store
        with store.plan_remove([name]) as plan:
            return store.apply(plan)

    def hostile_journal(self, *, number: int = 7, scope=None) -> bytes:
        """A journal that would replace `foo` and the lockfile, with what it would put there."""
        staged = self.work / "stage/ab/new/foo"
        staged.mkdir(parents=True)
        (staged / "SKILL.md").write_text("---\nname: foo\ndescription: Evil.\n---\nEvil.\n")
        found = hash_tree(FolderTree(str(staged)))
        there = digest_at(str(self.skills / "foo"))
        row = LockEntry(
            "foo", "foo", LockedSource("folder", "../evil"), "", found.digest, found.files
        )
        change = SkillChange("foo", "stage/ab/new/foo", there, found.digest)
        record = TransactionRecord(
            number, "import", "`foo`", "2030-01-01T00:00:00Z", (change,), ("foo",), "",
            render_lock({"foo": row}).decode(),
        )  # fmt: skip
        return render_record(record, scope)


@pytest.fixture
def victim(tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    return Victim(tmp_path)


# --- a whole work area that came with a project --------------------------------------------


def test_a_work_area_of_another_user_is_refused_until_it_is_renamed(victim, monkeypatch):
    victim.add("foo")
    monkeypatch.setenv("SATCHEL_HOME", str(victim.base / "another"))
    assert victim.store.history() == []
    with pytest.raises(AccessDenied, match="another user made it or it came with") as refusal:
        victim.add("yours")
    subprocess.run(refusal.value.hint.split("`")[1], shell=True, check=True)
    victim.add("yours")
    assert (victim.skills / "foo/SKILL.md").exists()
    assert (victim.project / ".agents/.satchel-old/history/1/entry.json").exists()


# --- a project that was moved or copied ----------------------------------------------------


def _install_twice(victim) -> None:
    """A history with an old content in it: `foo` was installed and then removed."""
    make_skill(victim.base, "foo", "One. Use for one.", body="The old text.\n")
    store = victim.store
    with store.plan_import(str(victim.base / "foo")) as plan:
        store.apply(plan)
    victim.remove("foo")


def _copy_tree(source, target):
    return shutil.copytree(source, target, symlinks=True)


def _move(source, target):
    return source.rename(target)


def _move_and_leave_a_link(source, target):
    source.rename(target)
    source.symlink_to(target)


def _copy_agents_only(source, target):
    target.mkdir()
    shutil.copytree(source / ".agents", target / ".agents")


def _move_twice(source, target):
    source.rename(source.parent / "between")
    Satchel.for_project(source.parent / "between", builtin=False).store().plan_add(
        "extra", "Helps. Use for help."
    ).close()
    (source.parent / "between").rename(target)


@pytest.mark.parametrize(
    "relocate", [_copy_tree, _move, _move_and_leave_a_link, _copy_agents_only, _move_twice]
)
def test_a_moved_or_copied_project_keeps_its_history(victim, relocate):
    _install_twice(victim)
    target = victim.base / "elsewhere"
    relocate(victim.project, target)
    satchel = Satchel.for_project(target, builtin=False)
    store = satchel.store()
    assert [entry.state for entry in store.history()] == ["done", "done"]
    with store.plan_add("bar", "Helps. Use for help.") as plan:
        receipt = store.apply(plan)
    assert any("was moved or copied from" in text for text in receipt.repaired)
    store.undo()
    undone = store.undo()
    assert undone.ids == ("foo",)
    assert undone.repaired == ()  # adopted once
    assert "The old text." in (target / ".agents/skills/foo/SKILL.md").read_text()
    assert not satchel.library.trust.trusts(str(target / ".agents/skills/foo"), str(target))


def test_the_command_names_what_was_adopted(victim, monkeypatch, capsys):
    from satchel.cli.main import run

    _install_twice(victim)
    shutil.copytree(victim.project, victim.base / "copy")
    monkeypatch.chdir(victim.base / "copy")
    assert run(["undo"]) == 0
    message = capsys.readouterr().err
    assert "moved or copied from" in message
    assert str(victim.work) in message
    assert (victim.base / "copy/.agents/skills/foo/SKILL.md").exists()
    assert not (victim.skills / "foo").exists()


def test_a_copy_and_its_original_go_separate_ways(victim):
    victim.add("foo")
    shutil.copytree(victim.project, victim.base / "copy")
    copy = Satchel.for_project(victim.base / "copy", builtin=False).store()
    copy.undo()
    assert not (victim.base / "copy/.agents/skills/foo").exists()
    assert (victim.skills / "foo").exists()
    victim.add("bar")
    assert [entry.ids for entry in victim.store.history()] == [("bar",), ("foo",)]


def _plant(victim, owner: str | None) -> None:
    """A work area in a clone, with a journal and a history that its author wrote."""
    data = victim.hostile_journal()
    for name in ("history/1/old/foo", "base", "trash"):
        (victim.work / name).mkdir(parents=True)
    (victim.work / "history/1/old/foo/SKILL.md").write_text("---\nname: foo\n---\nEvil.\n")
    (victim.work / "history/1/entry.json").write_bytes(data)
    (victim.work / "journal.json").write_bytes(data)
    if owner is not None:
        (victim.work / "owner").write_text(owner)


def _owner_file_of(victim, name: str) -> str:
    """The owner file of another project of the same user, which a clone may copy."""
    other = victim.base / name
    other.mkdir()
    store = Satchel.for_project(other, builtin=False).store()
    with store.plan_add("seed", "Helps. Use for help.") as plan:
        store.apply(plan)
    return (other / ".agents/.satchel/owner").read_text()


FORGED_OWNERS = {
    "none": None,
    "empty": lambda _: "",
    "made up": lambda _: "0" * 32 + "\n",
    "made up with a path": lambda _: "0" * 32 + ' "/home/user/project/.agents/.satchel"\n',
    "not JSON": lambda _: "0" * 32 + " {[\n",
    "not a path": lambda _: "0" * 32 + " 7\n",
    "nested too deep": lambda _: "0" * 32 + " " + "[" * 100_000 + "\n",
    "a null character": lambda _: "0" * 32 + ' "\\u0000"\n',
    "a lone surrogate": lambda _: "0" * 32 + ' "\\ud800"\n',
    "the id of another path": lambda v: (
        _owner_file_of(v, "other").split(" ")[0] + ' "/home/user/else"\n'
    ),
    "the id of another path without it": lambda v: _owner_file_of(v, "other").split(" ")[0] + "\n",
}


@pytest.mark.parametrize("forge", FORGED_OWNERS.values(), ids=FORGED_OWNERS)
def test_a_planted_work_area_is_not_adopted(victim, forge):
    make_skill(victim.skills, "foo", "Mine. Use for mine.", body="Mine.\n")
    before = digest_at(str(victim.skills / "foo"))
    _plant(victim, forge and forge(victim))
    journal = (victim.work / "journal.json").read_bytes()
    assert victim.store.history() == []
    assert pending_changes(victim.scope.root, victim.scope.marks) == {}
    assert recover(victim.scope) == []
    for deed in (lambda: victim.add("other"), lambda: victim.remove("foo"), victim.store.undo):
        with pytest.raises(AccessDenied, match="another user made it or it came with"):
            deed()
    assert digest_at(str(victim.skills / "foo")) == before
    assert read_lock(victim.scope.lock) == {}
    assert (victim.work / "journal.json").read_bytes() == journal
    shutil.rmtree(victim.work)
    assert victim.add("other").repaired == ()


def test_an_adopted_work_area_gives_no_trust_to_added_files(victim):
    """The worst case: the clone has a genuine owner file of this user, copied from elsewhere."""
    make_skill(victim.skills, "foo", "Mine. Use for mine.", body="Mine.\n")
    before = digest_at(str(victim.skills / "foo"))
    _plant(victim, _owner_file_of(victim, "other"))
    assert [entry.state for entry in victim.store.history()] == ["damaged"]
    receipt = victim.add("bar")
    assert any("set aside" in text for text in receipt.repaired)
    assert digest_at(str(victim.skills / "foo")) == before
    victim.store.undo()
    with pytest.raises(NotFound):
        victim.store.undo()
    assert digest_at(str(victim.skills / "foo")) == before
    assert not victim.satchel.library.trust.trusts(str(victim.skills / "foo"), str(victim.project))


def test_a_genuine_record_of_another_project_is_not_finished_as_a_journal(victim):
    other = Victim.__new__(Victim)
    other.base, other.project = victim.base / "there", victim.base / "there/project"
    other.project.mkdir(parents=True)
    other.work, other.skills = other.project / ".agents/.satchel", other.project / ".agents/skills"
    other.add("foo")
    other.remove("foo")
    make_skill(victim.skills, "foo", "Mine. Use for mine.", body="Mine.\n")
    before = digest_at(str(victim.skills / "foo"))
    shutil.copytree(other.work, victim.work)
    (victim.work / "history/2/entry.json").rename(victim.work / "journal.json")
    assert any("set aside" in text for text in victim.add("bar").repaired)
    assert digest_at(str(victim.skills / "foo")) == before


@pytest.mark.parametrize("name", ["lock", "journal.json", "stage", "history", "base", "trash"])
def test_a_link_in_a_moved_work_area_is_refused(victim, name):
    victim.add("foo")
    outside = victim.base / "outside"
    outside.mkdir()
    target = victim.base / "elsewhere"
    victim.project.rename(target)
    place = target / ".agents/.satchel" / name
    if place.is_dir():
        shutil.rmtree(place)
    elif place.exists():
        place.unlink()
    place.symlink_to(outside)
    store = Satchel.for_project(target, builtin=False).store()
    with pytest.raises(AccessDenied):
        store.plan_add("bar", "Helps. Use for help.")
    with pytest.raises(AccessDenied):
        store.undo()
    assert list(outside.iterdir()) == []
    assert (target / ".agents/skills/foo/SKILL.md").exists()


def test_changed_content_in_a_copied_history_does_not_come_back(victim):
    _install_twice(victim)
    shutil.copytree(victim.project, victim.base / "copy")
    text = victim.base / "copy/.agents/.satchel/history/2/old/foo/SKILL.md"
    text.write_text("---\nname: foo\ndescription: Evil.\n---\nEvil.\n")
    copy = Satchel.for_project(victim.base / "copy", builtin=False).store()
    with pytest.raises(Refused, match="not in the history any more"):
        copy.undo()
    assert not (victim.base / "copy/.agents/skills/foo").exists()


def test_links_in_a_work_area_of_another_owner_are_not_touched(victim):
    outside = victim.base / "outside"
    outside.write_text("precious")
    for name in ("owner", "lock", "journal.json", "stage", "history"):
        victim.work.mkdir(parents=True)
        (victim.work / name).symlink_to(outside)
        (victim.work / "base").mkdir()
        with pytest.raises(AccessDenied):
            victim.add("foo")
        assert outside.read_text() == "precious", name
        shutil.rmtree(victim.work)


# --- files that a pull put into our own ----------------------------------------------------


def test_files_that_a_pull_puts_into_the_work_area_are_not_trusted(victim):
    """The case that a mark alone does not cover: git adds to what is ignored, and overwrites it."""
    upstream, evil = victim.base / "upstream.git", victim.base / "evil"

    def git(folder, *words: str) -> None:
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)

    git(victim.base, "init", "-q", "--bare", "-b", "main", str(upstream))
    git(victim.base, "clone", "-q", str(upstream), str(evil))
    (evil / "readme").write_text("1")
    git(evil, "add", "-A")
    git(evil, "commit", "-qm", "1")
    git(evil, "push", "-q", "origin", "HEAD:main")
    victim.project.rmdir()
    git(victim.base, "clone", "-q", str(upstream), str(victim.project))
    victim.add("foo")
    before = digest_at(str(victim.skills / "foo"))
    forger = Victim.__new__(Victim)
    forger.work, forger.skills = evil / ".agents/.satchel", victim.skills
    (evil / ".agents/.satchel/history/1").mkdir(parents=True)
    (evil / ".agents/.satchel/history/1/entry.json").write_text("{}")
    (evil / ".agents/.satchel/journal.json").write_bytes(forger.hostile_journal())
    git(evil, "add", "-Af")
    git(evil, "commit", "-qm", "2")
    git(evil, "push", "-q", "origin", "HEAD:main")
    git(victim.project, "pull", "-q")
    assert (victim.work / "journal.json").exists()
    assert (victim.work / "history/1/entry.json").read_text() == "{}"

    assert pending_changes(victim.scope.root, victim.scope.marks) == {}
    said = " ".join(victim.add("bar").repaired)
    assert "was not written here" in said
    assert digest_at(str(victim.skills / "foo")) == before
    assert "foo" not in read_lock(victim.scope.lock)


def test_a_forged_entry_deletes_no_history_and_stops_no_undo(victim):
    victim.add("foo")
    victim.add("bar")
    forged = TransactionRecord(1, "import", "", "2030-01-01T00:00:00Z", ())
    for number in (*range(9001, 9023), 99_999_999, 999_999_999):
        entry = victim.work / "history" / str(number)
        entry.mkdir()
        (entry / "entry.json").write_bytes(render_record(forged._replace(number=number)))
    for name in ("9" * 200, "007", ".idea"):
        (victim.work / "history" / name).mkdir()
    victim.add("baz")
    victim.add("qux")
    states = [entry.state for entry in victim.store.history()]
    assert states.count("done") == 4
    assert states.count("damaged") == 24
    for name in ("qux", "baz", "bar", "foo"):
        victim.store.undo()
        assert not (victim.skills / name).exists()


def test_a_seal_of_another_file_or_place_does_not_fit(victim):
    victim.add("foo")
    (victim.work / "history/1/entry.json").rename(victim.work / "history/1/kept")
    key = read_key(victim.scope.marks)
    record = TransactionRecord(1, "x", "", "", ())
    for place, kind in ((str(victim.base), "record"), (victim.scope.work, "links")):
        import json

        table = json.loads(render_record(record))
        table["seal"] = sign_record(table, key, place, kind)
        (victim.work / "history/1/entry.json").write_text(json.dumps(table))
        assert [entry.state for entry in victim.store.history()] == ["damaged"]


# --- odd things in our own area ------------------------------------------------------------


FILES = ("lock", "journal.json", ".gitignore", "entry.new")
FOLDERS = ("stage", "history", "base", "trash")


@pytest.mark.parametrize("name", FILES + FOLDERS)
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "socket", "other"])
def test_nothing_odd_is_opened(victim, name, kind, monkeypatch):
    victim.add("foo")
    outside = victim.base / "outside"
    outside.write_text("precious")
    path = victim.work / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "dangling":
        path.symlink_to(victim.base / "made")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(victim.work)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(name)
    elif name in FILES:
        path.mkdir()
    else:
        path.write_text("")
    for deed in (lambda: victim.add("bar"), victim.store.undo, lambda: victim.remove("foo")):
        with pytest.raises(AccessDenied, match=r"is a link|is not what"):
            deed()
    assert outside.read_text() == "precious"
    assert not (victim.base / "made").exists()
    assert pending_changes(victim.scope.root, victim.scope.marks) == {}
    path.rmdir() if stat.S_ISDIR(path.lstat().st_mode) else path.unlink()
    victim.add("bar")


@pytest.mark.parametrize(
    "target", ["/dev/zero", "/dev/stdin", "/dev/full", "pipe", "large", "torn"]
)
def test_an_entry_that_is_no_record_is_damaged_and_nothing_else(victim, target):
    victim.add("foo")
    victim.add("bar")
    entry = victim.work / "history/2/entry.json"
    entry.unlink()
    if target == "pipe":
        os.mkfifo(entry)
    elif target == "large":
        with open(entry, "wb") as stream:
            stream.truncate(65 << 20)
    elif target == "torn":
        entry.write_text("{")
    else:
        entry.symlink_to(target)
    assert [one.state for one in victim.store.history()] == ["damaged", "done"]
    with pytest.raises(Refused, match="damaged"):
        victim.store.undo()
    victim.add("baz")
    victim.store.undo()


def test_the_owner_of_a_stage_may_be_a_link(victim):
    victim.add("foo")
    outside = victim.base / "outside"
    outside.write_text("precious")
    (victim.work / "stage/1-aa").mkdir()
    (victim.work / "stage/1-aa.alive").symlink_to(outside)
    (victim.work / "trash/x").symlink_to(outside)
    victim.add("bar")
    assert outside.read_text() == "precious"
    assert not (victim.work / "trash/x").is_symlink()


def test_the_key_is_private_and_made_once(victim):
    victim.add("foo")
    path = victim.scope.marks
    first = read_key(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    victim.add("bar")
    assert read_key(path) == first == load_or_create_key(path)
    for here, _, files in os.walk(victim.project):
        for name in files:
            with open(os.path.join(here, name), "rb") as stream:
                assert first.hex().encode() not in stream.read()


def test_a_damaged_key_is_an_error(victim):
    victim.add("foo")
    with open(victim.scope.marks, "w") as stream:
        stream.write("?")
    with pytest.raises(Refused, match="damaged"):
        victim.add("bar")
    with pytest.raises(Refused, match="damaged"):
        victim.store.history()


def test_without_a_state_folder_nothing_is_trusted_or_changed(victim):
    make_skill(victim.skills, "foo", "Mine. Use for mine.")
    (victim.project / ".agents/.satchel").mkdir()
    scope = victim.scope._replace(marks=key_path(""))
    (victim.work / "journal.json").write_bytes(victim.hostile_journal())
    assert history(scope) == []
    assert recover(scope) == []
    with pytest.raises(OSError, match="set SATCHEL_HOME"):
        prepare_scope(scope)
