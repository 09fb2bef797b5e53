"""What the user made stays the user's own, and nobody else's work becomes it."""

from __future__ import annotations

import os
import shutil

import pytest

from satchel.store import transaction


def kinds(bench) -> dict[str, str]:
    folders = bench.satchel.library.trust.folders()
    return {os.path.basename(folder): row.kind for folder, row in folders.items()}


def add(bench, name: str = "mine", body: str = "First.") -> None:
    store = bench.store
    with store.plan_add(name, "Does things. Use when asked.", body) as plan:
        store.carry_out(plan)


def edit(bench, name: str = "mine", text: bytes = b"Second.\n") -> int:
    store = bench.store
    data = (bench.skills / name / "SKILL.md").read_bytes() + text
    with store.plan_edit(name, {"SKILL.md": data}) as plan:
        return store.carry_out(plan).number


def by_hand(bench, name: str = "mine") -> None:
    """The author goes on in an editor, and it is loaded all the same."""
    with open(bench.skills / name / "SKILL.md", "a") as stream:
        stream.write("By hand.\n")
    assert "By hand." in bench.loads(name)


def test_an_undone_or_redone_edit_of_ones_own_skill_stays_ones_own(bench):
    add(bench)
    edit(bench)
    for redo in (False, True, False):
        bench.store.undo(redo=redo)
        assert kinds(bench) == {"mine": "own"}
        by_hand(bench)


def test_an_undone_edit_of_somebody_elses_skill_stays_bound(bench):
    bench.bring(bench.folder("greet"))
    edit(bench, "greet")
    for redo in (False, True):
        bench.store.undo(redo=redo)
        assert kinds(bench) == {"greet": "skill"}
        assert "Say hello." in bench.loads("greet")


def test_a_stranger_in_the_place_of_an_undone_skill_inherits_nothing(bench):
    add(bench)
    bench.store.undo()
    shutil.copytree(bench.folder("greet"), bench.skills / "mine")
    assert bench.loads("greet") == "PERMISSION_DENIED"


def test_an_undo_brings_no_stranger_into_a_place_of_ones_own(bench):
    bench.bring(bench.folder("greet"), skill_id="mine")
    store = bench.store
    with store.plan_remove(["mine"]) as plan:
        store.carry_out(plan)
    add(bench)
    shutil.rmtree(bench.skills / "mine")
    bench.store.undo()
    bench.store.undo()
    assert "Say hello." in (bench.skills / "mine/SKILL.md").read_text()
    assert kinds(bench).get("mine") != "own"


def test_a_change_that_the_next_command_finishes_gives_nothing_back(bench, monkeypatch):
    add(bench)
    store = bench.store

    def stop(*_given, **_named):
        raise KeyboardInterrupt

    plan = store.plan_import(str(bench.folder("greet")), skill_id="mine")
    with plan, monkeypatch.context() as patch:
        patch.setattr(transaction, "_put", stop)
        with pytest.raises(KeyboardInterrupt):
            store.carry_out(plan)
    assert kinds(bench) == {"mine": "skill"}
    add(bench, "other")  # finishes it first
    assert "Say hello." in (bench.skills / "mine/SKILL.md").read_text()
    assert kinds(bench) == {"mine": "skill", "other": "own"}
