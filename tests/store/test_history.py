"""What was there before comes back, and nothing is lost by bringing it back."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chaos import works
from satchel.errors import NotFound
from satchel.library.lockfile import read_lock
from satchel.store.history import MAX_UNDO_COUNT
from satchel.store.undo import history, undo
from sizes import sized


def test_later_edits_are_kept_and_reported(project, scope):
    works.transactions(project, "update", "alpha", 1)
    works.transactions(project, "update", "alpha", 2)
    path = os.path.join(scope.target("alpha"), "SKILL.md")
    with open(path, "a") as stream:
        stream.write("mine\n")
    mine = works.present(scope, "alpha")
    done = undo(scope)
    assert [note.partition(";")[0] for note in done.notes] == ["`alpha` was edited meanwhile"]
    assert (done.op, done.summary, done.ids) == ("update", "alpha", ("alpha",))
    assert works.present(scope, "alpha") == works.digest_of("alpha", 1)
    undo(scope, redo=True)
    assert works.present(scope, "alpha") == mine


def test_the_newest_twenty_can_be_undone(project, scope):
    count = MAX_UNDO_COUNT + 5
    for version in range(1, count + 1):
        works.transactions(project, "update", "alpha", version)
    assert [entry.number for entry in history(scope)] == list(
        range(count, count - MAX_UNDO_COUNT, -1)
    )
    for version in range(count - 1, count - MAX_UNDO_COUNT - 1, -1):
        undo(scope)
        assert works.present(scope, "alpha") == works.digest_of("alpha", version)
    with pytest.raises(NotFound):
        undo(scope)
    for version in range(count - MAX_UNDO_COUNT + 1, count + 1):
        undo(scope, redo=True)
        assert works.present(scope, "alpha") == works.digest_of("alpha", version)


class Past(RuleBasedStateMachine):
    """The store against two plain piles of states."""

    @initialize()
    def begin(self) -> None:
        self.project = tempfile.mkdtemp()
        self.scope = works.scope_of(self.project)
        self.now: dict[str, int] = {}
        self.done: list[dict[str, int]] = []
        self.undone: list[dict[str, int]] = []
        self.version = 0

    def teardown(self) -> None:
        shutil.rmtree(self.project)

    def _changed(self, after: dict[str, int]) -> None:
        self.done.append(self.now)
        self.undone.clear()
        self.now = after

    @rule(skill=st.sampled_from(("alpha", "beta", "gamma")))
    def put(self, skill: str) -> None:
        self.version += 1
        works.transactions(self.project, "update", skill, self.version)
        self._changed({**self.now, skill: self.version})

    @precondition(lambda self: self.now)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        skill = data.draw(st.sampled_from(sorted(self.now)))
        works.transactions(self.project, "remove", skill, 0)
        self._changed({name: now for name, now in self.now.items() if name != skill})

    @rule()
    def undo(self) -> None:
        if not self.done:
            with pytest.raises(NotFound):
                undo(self.scope)
            return
        undo(self.scope)
        self.undone.append(self.now)
        self.now = self.done.pop()

    @rule()
    def redo(self) -> None:
        if not self.undone:
            with pytest.raises(NotFound):
                undo(self.scope, redo=True)
            return
        undo(self.scope, redo=True)
        self.done.append(self.now)
        self.now = self.undone.pop()

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "scope"):
            return
        lock = read_lock(self.scope.lock)
        for skill in ("alpha", "beta", "gamma"):
            expected = works.digest_of(skill, self.now.get(skill, 0))
            assert works.present(self.scope, skill) == expected
            assert (lock[skill].tree if skill in lock else "") == expected
        entries = history(self.scope)
        assert sum(entry.state == "done" for entry in entries) == len(self.done)
        assert sum(entry.state == "undone" for entry in entries) == len(self.undone)


TestPast = pytest.mark.timeout(120)(Past.TestCase)
TestPast.settings = settings(max_examples=sized(5, 15), stateful_step_count=18, deadline=None)
