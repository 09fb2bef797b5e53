"""Verification of skills against their lock entries."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from satchel import Library, Location
from satchel._fs import RACY_NS
from satchel.errors import Changed, LockBroken, Refused
from satchel.library import TrustStore
from satchel.library.generated_files import is_generated
from satchel.library.lockfile import LockedSource, LockEntry, lock_path, render_lock
from satchel.library.ownership import RECORD_KIND, key_path, load_or_create_key, sign_record
from satchel.skill.file_tree import FolderTree, hash_tree
from satchel.testing import make_skill

if TYPE_CHECKING:
    from satchel import Skill

SETTLED = RACY_NS / 1e9 + 0.03


@pytest.fixture
def folder(tmp_path):
    """A location with one skill of three files."""
    base = tmp_path / "r/skills"
    make_skill(base, "one", "Does one thing.")
    for path, text in (("scripts/run.py", "import helper\n"), ("references/a.md", "A\n")):
        (base / "one" / path).parent.mkdir(exist_ok=True)
        (base / "one" / path).write_text(text)
    return base


def lock(folder, *names: str) -> None:
    rows = {}
    for name in names or ("one",):
        sealed = hash_tree(FolderTree(str(folder / name)))
        rows[name] = LockEntry(
            name, name, LockedSource("git", "u"), "", sealed.digest, sealed.files
        )
    with open(lock_path(str(folder)), "wb") as file:
        file.write(render_lock(rows))


def locked_library(folder, *names: str) -> Library:
    lock(folder, *names)
    trust = TrustStore(str(folder.parent.parent / "state/trust.json"), locked=True)
    return Library([str(folder)], trust=trust)


def found(library: Library, name: str = "one") -> Skill:
    skill = library.get_skill(name)
    assert skill is not None
    return skill


def check(library: Library, name: str = "one"):
    return library.integrity.check(library.refresh().find(name)[0])


# --- the content ---------------------------------------------------------------------------


def _edit(base):
    (base / "references/a.md").write_text("B\n")


def _edit_body(base):
    with open(base / "SKILL.md", "a", encoding="utf-8") as file:
        file.write("And this.\n")


def _add(base):
    (base / "scripts/new.py").write_text("")


def _remove(base):
    os.unlink(base / "references/a.md")


def _rename(base):
    os.rename(base / "references/a.md", base / "references/b.md")


def _make_program(base):
    os.chmod(base / "scripts/run.py", 0o755)


def _link(base):
    os.unlink(base / "references/a.md")
    os.symlink("../SKILL.md", base / "references/a.md")


def _link_out(base):
    os.symlink("/etc/hostname", base / "references/host.md")


def _pipe(base):
    os.mkfifo(base / "pipe")


CHANGES = [_edit, _edit_body, _add, _remove, _rename, _make_program, _link, _link_out, _pipe]


@pytest.mark.parametrize("wait", [0, SETTLED], ids=["young", "cached"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_refused(folder, change, wait):
    library = locked_library(folder)
    time.sleep(wait)
    check(library)
    skill = found(library)
    change(folder / "one")
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            library.integrity.check(skill)
        assert "`one`" in caught.value.message
    assert Library([str(folder)], trust=TrustStore(None, locked=True)).snapshot().skills == ()


def test_an_old_time_hides_no_change(folder):
    library = locked_library(folder)
    path = folder / "one/references/a.md"
    before = os.stat(path)
    time.sleep(SETTLED)
    check(library)
    path.write_text("B\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(Changed):
        check(library)


# --- between the check and the reading -----------------------------------------------------


def test_the_bytes_that_are_shown_are_the_bytes_that_were_checked(folder):
    library = locked_library(folder)
    skill = found(library)
    sealed = library.integrity.check(skill)
    assert library.integrity.document(skill, sealed).body.strip() == "Do the thing."
    _edit_body(folder / "one")
    with pytest.raises(Changed, match="changed meanwhile"):
        library.integrity.document(skill, sealed)


def test_a_skill_file_behind_a_link_is_compared_with_what_it_leads_to(folder):
    os.rename(folder / "one/SKILL.md", folder / "one/references/text.md")
    os.symlink("references/text.md", folder / "one/SKILL.md")
    library = locked_library(folder)
    assert library.load_content("one").strip() == "Do the thing."
    with open(folder / "one/references/text.md", "a", encoding="utf-8") as file:
        file.write("And this.\n")
    with pytest.raises(Changed):
        library.load_content("one")


# --- locks ---------------------------------------------------------------------------------


def test_a_skill_inside_a_locked_one_is_bound_by_it(folder):
    make_skill(folder, "one/inner", "Inside.")
    library = locked_library(folder)
    inner = found(library, "inner")
    assert library.load_content("inner")
    make_skill(folder, "one/inner", "Inside.", body="Something else.\n")
    for skill in (inner, found(library)):
        with pytest.raises(Changed):
            library.integrity.check(skill)


def test_without_the_setting_an_edit_is_modified_and_used(folder):
    lock(folder)
    library = Library([str(folder)])
    assert library.integrity.modified(found(library)) == ()
    _edit(folder / "one")
    assert library.integrity.modified(found(library)) == ("references/a.md",)
    assert check(library)


def test_a_damaged_lock_refuses_its_own_place_only(folder, tmp_path):
    make_skill(tmp_path / "other/skills", "two")
    library = Library([str(folder), str(tmp_path / "other/skills")])
    lock(folder)
    path = lock_path(str(folder))
    with open(path, "ab") as file:
        file.write(b" ")
    problems = [problem for problem in library.refresh().problems if problem.code == "lock-broken"]
    assert [problem.path for problem in problems] == [path]
    with pytest.raises(LockBroken):
        check(library)
    assert library.load_content("two")
    lock(folder)
    assert library.refresh().problems == ()
    assert library.load_content("one")


# --- while a transaction is under way ------------------------------------------------------


def journal(folder, *, ours: bool = True, **after: str) -> None:
    work = folder.parent / ".satchel"
    work.mkdir(exist_ok=True)
    rows = [{"id": key, "after": value} for key, value in after.items()]
    table: dict[str, object] = {"changes": rows}
    if ours:
        key = load_or_create_key(key_path(str(folder.parent.parent / "state")))
        table["seal"] = sign_record(table, key, str(work), RECORD_KIND)
    (work / "journal.json").write_text(json.dumps(table))


def test_only_changes_in_our_own_journal_are_accepted(folder):
    library = locked_library(folder)
    _edit(folder / "one")
    digest = hash_tree(FolderTree(str(folder / "one"))).digest
    journal(folder, one=digest)
    assert check(library) is not None
    journal(folder, ours=False, one=digest)  # it came with the project
    with pytest.raises(Changed):
        check(library)
    journal(folder, one="sha256:" + "0" * 64, two=digest)
    with pytest.raises(Changed):
        check(library)


# --- what Python generates -----------------------------------------------------------------


def _cache(base, name: str = "helper.cpython-311.pyc"):
    cache = base / "scripts/__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / name).write_bytes(b"cached")
    return cache


def test_caches_that_were_not_locked_are_deleted(folder):
    library = locked_library(folder)
    cache = _cache(folder / "one")
    sealed = check(library)
    assert not any("__pycache__" in path for path in sealed.tree.files)
    assert not cache.exists()
    event = next(event for event in library.trace.events if event.kind == "cleaned")
    assert event.skills == ("one",)
    assert event.values["files"] == 1


def test_files_of_macos_are_no_change(folder):
    library = locked_library(folder)
    path = folder / "one/.DS_Store"
    path.write_bytes(b"\0\0\0\x01Bud1" + bytes(100))
    assert is_generated(".DS_Store", str(folder / "one"))
    assert ".DS_Store" not in check(library).tree.files
    assert path.exists()
    path.write_text("Other content of that name.\n")
    with pytest.raises(Changed):
        check(library)


def test_no_link_leads_the_deleting_elsewhere(folder, tmp_path):
    library = locked_library(folder)
    skill = found(library)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/helper.cpython-311.pyc").write_bytes(b"mine")
    for target in (tmp_path / "elsewhere", "../references"):
        os.symlink(target, folder / "one/scripts/__pycache__")
        with pytest.raises(Refused):
            library.integrity.check(skill)
        os.unlink(folder / "one/scripts/__pycache__")
    assert os.listdir(tmp_path / "elsewhere") != []
    assert os.listdir(folder / "one/references") != []


# --- the skill at the top of a project -----------------------------------------------------


def test_the_skill_at_the_top_is_not_the_whole_project(tmp_path):
    (tmp_path / "SKILL.md").write_text("---\nname: top\ndescription: At the top.\n---\nBody\n")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/run.sh").write_text("true\n")
    library = Library([Location(str(tmp_path), single=True)])
    (tmp_path / "main.py").write_text("print(1)\n")
    assert sorted(check(library, "top").tree.files) == ["SKILL.md", "scripts/run.sh"]
