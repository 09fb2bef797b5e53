"""Fixtures: a reader's home and project, and a hub to read."""

from __future__ import annotations

import pytest

from hub.reader.tiny_hub import TinyHub
from satchel import Satchel


class Reader:
    """A user with a home and a project."""

    def __init__(self, base, patch) -> None:
        self.home = base / "home"
        self.project = base / "project"
        self.home.mkdir(parents=True)
        self.project.mkdir()
        self.hubs: dict = {}
        patch.setenv("HOME", str(self.home))
        patch.setenv("SATCHEL_HOME", str(self.home / "satchel"))

    @property
    def satchel(self) -> Satchel:
        """As a new command would open the project."""
        return Satchel.for_project(self.project, builtin=False, trust="ask", hubs=self.hubs)

    @property
    def store(self):
        return self.satchel.store()

    def install(self, source: str, **given):
        """Install; raises the reason of a refused step. Returns the steps."""
        return self._apply("plan_import", source, **given)

    def update(self, *names: str, **given):
        return self._apply("plan_update", names, **given)

    def restore(self):
        """Install what the lockfile has."""
        return self._apply("plan_install")

    def _apply(self, make: str, *words, **given):
        store = self.store
        with getattr(store, make)(*words, **given) as plan:
            store.require_complete(plan)
            store.apply(plan)
            return plan.steps

    @property
    def place(self):
        """The source of the one locked skill."""
        (entry,) = self.store.lock().values()
        return entry.place

    def text(self, name: str) -> str:
        return (self.project / ".agents/skills" / name / "SKILL.md").read_text()


@pytest.fixture
def reader(tmp_path, monkeypatch):
    return Reader(tmp_path / "reader", monkeypatch)


@pytest.fixture
def hub(tmp_path, reader):
    """A hub with two versions of one skill and another skill; the reader uses it."""
    made = TinyHub(tmp_path / "hub")
    made.release("acme/greet", "1.0.0")
    made.release("acme/greet", "1.1.0", "Say hello twice.")
    made.release("acme/part", "1.0.0", "Say goodbye.")
    made.build()
    reader.hubs = made.settings
    return made
