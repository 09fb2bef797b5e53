"""Random histories of edits, upstream changes, updates, undo, moves and copies.

No edit is lost, no trust is gained, and `why` explains every state.
"""

from __future__ import annotations

import os
import random
import shutil

import pytest

from satchel import Satchel
from satchel.errors import SatchelError
from satchel.testing import make_skill
from sizes import sized

HISTORIES = sized(24, 1_000)
STEPS = 12
"""Fewer than the changes that the history keeps."""
BODY = "".join(f"Line {number}.\n" for number in range(12))


class History:
    """One project with one installed skill, and what happens to it."""

    def __init__(self, base, seed: int) -> None:
        self.random = random.Random(seed)
        self.base = base
        self.project = base / "project-0"
        self.source = base / "source"
        self.project.mkdir()
        make_skill(self.source, "greet", "Greets people. Use for greetings.", body=BODY)
        (self.source / "greet/notes.md").write_text(BODY)
        self.count = 0
        self.written: set[str] = set()
        """Every text that the user wrote."""
        self.accepted: set[str] = set()
        """The texts that were recorded in a lockfile."""
        self.may_load = True
        self.apply("import", str(self.source / "greet"))
        if self.random.random() < 0.3:
            os.remove(base / "home/state/trust.json")
            self.may_load = False

    @property
    def satchel(self) -> Satchel:
        return Satchel.for_project(self.project, builtin=False, trust="ask")

    @property
    def skill(self):
        return self.project / ".agents/skills/greet"

    def apply(self, op: str, *given, **options) -> None:
        store = self.satchel.store()
        with getattr(store, f"plan_{op}")(*given, **options) as plan:
            store.apply(plan)

    def text(self, whose: str) -> str:
        self.count += 1
        return f"{whose}-{self.count}."

    def change(self, folder, text: str) -> None:
        """Insert a line, replace an original one, or add or delete a file."""
        names = [name for name in ("SKILL.md", "notes.md") if (folder / name).exists()]
        path = folder / self.random.choice(names)
        kind = self.random.random()
        if kind < 0.2:
            (folder / f"{text}md").write_text(f"{text}\n")
            return
        lines = path.read_text().splitlines(keepends=True)
        original = [index for index, line in enumerate(lines) if line.startswith("Line ")]
        if not original:
            return
        index = self.random.choice(original)
        lines[index] = f"{text}\n" if kind < 0.7 else f"{lines[index]}{text}\n"
        path.write_text("".join(lines))

    def edit(self) -> None:
        text = self.text("mine")
        self.change(self.skill, text)
        if text in contents(self.skill):
            self.written.add(text)

    def delete(self) -> None:
        path = self.skill / "notes.md"
        if path.exists() and "mine-" not in path.read_text():
            path.unlink()

    def publish(self) -> None:
        self.change(self.source / "greet", self.text("theirs"))

    def unpublish(self) -> None:
        (self.source / "greet/notes.md").unlink(missing_ok=True)

    def update(self) -> None:
        keep = self.random.choice((None, "mine", "theirs", "both"))
        self.apply("update", ["greet"], keep=keep)

    def discard(self) -> None:
        self.apply("update", ["greet"], discard_edits=True)

    def undo(self) -> None:
        redo = self.random.random() < 0.3
        store = self.satchel.store()
        undoable = [entry.op for entry in store.history() if entry.state == "done"]
        if redo or undoable[:1] != ["import"]:
            store.undo(redo=redo)

    def accept(self) -> None:
        self.apply("lock", ["greet"])
        self.accepted |= {text for text in self.written if text in contents(self.skill)}

    def new_folder(self):
        self.count += 1
        return self.base / f"project-{self.count}"

    def move(self) -> None:
        self.project = self.project.rename(self.new_folder())
        self.may_load = False

    def copy(self) -> None:
        target = self.new_folder()
        shutil.copytree(self.project, target, symlinks=True)
        self.project = target
        self.may_load = False

    def check(self, step: str) -> None:
        satchel = self.satchel
        everywhere = contents(self.project)
        assert not (lost := [one for one in self.written if one not in everywhere]), (step, lost)
        reply = satchel.tools().call("Skill", {"name": "greet"})
        if not self.may_load:
            assert reply.error is not None, step
            assert reply.error.code == "PERMISSION_DENIED", step
        (skill,) = satchel.library.every()
        report = satchel.why("greet")
        assert report.verdict, step
        assert report.sound or report.advice, step
        assert report.facts["state"] == skill.state, step
        (state,) = satchel.store().verify()
        here = {one for one in self.written if one in contents(self.skill)}
        if state.state == "intact":
            assert here <= self.accepted, step


def contents(folder) -> str:
    """The texts of all files below a folder, also those of the history."""
    return "\n".join(
        path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()
    )


STEPS_BY_WEIGHT = {
    "edit": 5, "publish": 5, "update": 6, "undo": 3, "accept": 1, "discard": 1, "move": 1,
    "copy": 1, "delete": 1, "unpublish": 1,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_no_edit_is_lost_and_no_trust_gained(tmp_path, monkeypatch, seed):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    history = History(tmp_path, seed)
    steps: list[str] = []
    for _ in range(STEPS):
        name = history.random.choices(list(STEPS_BY_WEIGHT), list(STEPS_BY_WEIGHT.values()))[0]
        steps.append(name)
        try:
            getattr(history, name)()
        except SatchelError as exc:  # refused: nothing was changed
            steps[-1] += f": {exc.message}"
        history.check("\n".join(steps))
