"""What the user made stays trusted, and nothing else in its place becomes so."""

from __future__ import annotations

import shutil


def add(bench, name: str = "mine", body: str = "First.") -> None:
    bench.do("add", name, "Does things. Use when asked.", body)


def edit(bench, name: str = "mine", text: bytes = b"Second.\n") -> int:
    store = bench.store
    data = (bench.skills / name / "SKILL.md").read_bytes() + text
    with store.plan_edit(name, {"SKILL.md": data}) as plan:
        return store.apply(plan).number


def by_hand(bench, name: str = "mine") -> None:
    """The author goes on in an editor, and it is loaded all the same."""
    with open(bench.skills / name / "SKILL.md", "a") as stream:
        stream.write("By hand.\n")
    assert "By hand." in bench.loads(name)


def test_an_undone_or_redone_edit_stays_trusted(bench):
    add(bench)
    edit(bench)
    for redo in (False, True, False):
        bench.store.undo(redo=redo)
        by_hand(bench)


def test_a_stranger_in_the_place_of_an_undone_skill_inherits_nothing(bench):
    add(bench)
    bench.store.undo()
    shutil.copytree(bench.folder("greet"), bench.skills / "mine")
    assert bench.loads("greet") == "PERMISSION_DENIED"


def test_an_undo_does_not_trust_what_was_not_trusted(bench):
    shutil.copytree(bench.folder("greet"), bench.skills / "mine")
    trusts = bench.satchel.library.trust.trusts
    bench.do("remove", ["mine"])
    add(bench)
    assert trusts(str(bench.skills / "mine"))
    bench.store.undo()
    bench.store.undo()
    assert "Say hello." in (bench.skills / "mine/SKILL.md").read_text()
    assert not trusts(str(bench.skills / "mine"))
