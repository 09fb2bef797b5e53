"""A project with skills, and the tools over it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from satchel import Satchel
from satchel.library import Filter, Library, TrustStore, default_locations
from satchel.settings import load_settings
from satchel.testing import make_skill, make_tool_skill
from satchel.trace import Trace
from talking import session_over, talks

__all__ = ["talks"]  # a fixture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from satchel.envelope import Envelope
    from satchel.library import Location
    from satchel.session.session import Session


class Desk(NamedTuple):
    """Everything a test of the tools needs."""

    project: str
    tools: Session
    """A conversation in which everything is approved, and each load hands the text over."""
    library: Library
    trace: Trace

    def skill(self, name: str, body: str = "Do the thing.\n", **fields: Any) -> str:
        """Write a skill of the project; returns its folder."""
        description = fields.pop("description", "")
        path = make_skill(f"{self.project}/skills", name, description, body=body, **fields)
        return os.path.dirname(path)

    def write(self, path: str, text: str | bytes = "text\n") -> str:
        """Write a file of the project; returns its full path."""
        full = os.path.join(self.project, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        return full

    def load(self, name: str, args: str | None = None, **more: Any) -> Envelope:
        """Call Skill."""
        given = {"name": name} if args is None else {"name": name, "args": args}
        return self.tools.call("Skill", given, **more)

    def read(self, path: str, **more: Any) -> Envelope:
        """Call ReadFile."""
        return self.tools.call("ReadFile", {"path": path, **more})

    def search(self, query: str, **more: Any) -> Envelope:
        """Call SkillSearch."""
        return self.tools.call("SkillSearch", {"query": query, **more})


@pytest.fixture
def make_desk(tmp_path: Path) -> Callable[..., Desk]:
    """Makes a project whose skills are trusted by default."""

    def make(
        *, env: dict[str, str] | None = None, more: tuple[Location, ...] = (), **given: Any
    ) -> Desk:
        project = tmp_path / "project"
        (project / "skills").mkdir(parents=True, exist_ok=True)
        home = {"HOME": str(tmp_path / "home"), "SATCHEL_HOME": str(tmp_path / "satchel")}
        given = {"trust": "all", "builtin": False, "packaged": False, **given}
        settings = load_settings(str(project), env={**home, **(env or {})}, **given)
        trace = Trace()
        wanted = Filter(settings.include, settings.exclude, settings.tags)
        places = [*default_locations(settings), *more]
        library = Library(places, wanted=wanted, trust=TrustStore(None), trace=trace)
        return Desk(str(project), session_over(library, settings), library, trace)

    return make


@pytest.fixture
def desk(make_desk: Callable[..., Desk]) -> Desk:
    """A project without skills yet."""
    return make_desk()


@pytest.fixture
def satchel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Satchel]:
    """A project whose tool skills run in the sandbox, and a home of its own."""
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "satchel"))
    (tmp_path / "project" / "skills").mkdir(parents=True)
    found = Satchel.for_project(tmp_path / "project", trust="all", builtin=False)
    yield found
    found.close()


@pytest.fixture
def tool_skill(satchel: Satchel) -> Callable[..., str]:
    """Writes a tool skill of that project: `tool_skill(name, program, more=...)`; its folder."""

    def write(name: str, program: str = "", **more: Any) -> str:
        folder = os.path.join(satchel.settings.project, "skills")
        return os.path.dirname(make_tool_skill(folder, name, program, **more))

    return write
