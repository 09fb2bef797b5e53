"""A folder that takes a skill's place: mode bits, repositories in the old one, expected content."""

from __future__ import annotations

import hashlib
import os
import stat

import pytest

from satchel.errors import AccessDenied, Conflict, Refused
from satchel.store.undo import undo
from satchel.testing import make_skill


def mode(path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def apply_plan(store, plan) -> None:
    with plan:
        store.require_complete(plan)
        store.apply(plan)


def edit(store, skill_id: str, path, text: str) -> None:
    apply_plan(store, store.plan_edit(skill_id, {path.name: text.encode()}))


@pytest.fixture
def mine(bench):
    """A skill whose files are not open to everyone."""
    make_skill(bench.skills, "mine", "Does things. Use when asked.", body="One.")
    folder = bench.skills / "mine"
    (folder / "data").mkdir(mode=0o700)
    (folder / "data/private.txt").write_text("x")
    (folder / "data/private.txt").chmod(0o600)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o750)
    (folder / "SKILL.md").chmod(0o640)
    return folder


@pytest.mark.parametrize("where", [".git", "data/deep/.git"])
def test_a_folder_with_a_repository_is_not_changed(bench, mine, where):
    file = mine / "SKILL.md"
    before = file.read_text()
    edit(bench.store, "mine", file, before + "Two.\n")
    source = bench.folder("greet")
    bench.bring(source)
    for folder in (mine, bench.skills / "greet"):
        (folder / where).mkdir(parents=True)
        (folder / where / "HEAD").write_text("weeks of work")
    (source / "SKILL.md").write_text((source / "SKILL.md").read_text() + "More.\n")
    store = bench.store
    for deed in (
        lambda: apply_plan(store, store.plan_remove(["mine"])),
        lambda: apply_plan(store, store.plan_rename("mine", "other")),
        lambda: apply_plan(store, store.plan_update(["greet"])),
        lambda: apply_plan(store, store.plan_update(["greet"], discard_edits=True)),
        lambda: apply_plan(store, store.plan_import(str(source), skill_id="mine")),
        lambda: edit(store, "mine", file, "other"),
        lambda: undo(store.scope),
    ):
        with pytest.raises(Refused, match=r"repository|has your edits"):
            deed()
    assert file.read_text() == before + "Two.\n"
    for folder in (mine, bench.skills / "greet"):
        assert (folder / where / "HEAD").read_text() == "weeks of work"


def test_copied_files_get_no_wider_permissions(bench, mine):
    bits = {"data": 0o700, "data/private.txt": 0o600, "run.sh": 0o750, "SKILL.md": 0o640}
    mine.chmod(0o700)
    file = mine / "SKILL.md"
    edit(bench.store, "mine", file, file.read_text() + "More.\n")
    assert {path: mode(mine / path) for path in bits} == bits
    assert mode(mine) == 0o700
    bench.bring(bench.folder("greet", extra__a_md="a"), skill_id="mine")
    assert [mode(mine / path) for path in ("", "SKILL.md", "extra")] == [0o700, 0o640, 0o755]


def test_a_link_out_of_the_folder_is_not_followed(bench, mine, tmp_path):
    (tmp_path / "secret").mkdir(mode=0o700)
    (mine / "out").symlink_to(tmp_path / "secret")
    file = mine / "SKILL.md"
    with pytest.raises(AccessDenied):
        edit(bench.store, "mine", file, file.read_text() + "Two.\n")
    assert "Two." not in file.read_text()


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
    apply_plan(
        store, store.plan_edit("mine", new, expect={**expect, "run.sh": program, "new.md": ""})
    )
    assert file.read_bytes() == seen + b"Mine.\n"
