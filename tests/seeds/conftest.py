"""One project per document, opened with the library and with the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Terminal
from satchel import Satchel
from seeds.blocks import Documents
from temporal_server import temporal_server
from typing_at import Typing

__all__ = ["temporal_server"]


class Project(Terminal):
    """A folder into which a document's files are dropped."""

    def write(self, files: dict[str, str]) -> None:
        """Write files by their paths in the project."""
        for path, text in files.items():
            place = self.project / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")

    def open(self, **settings) -> Satchel:
        """The library, as a program opens it: one line and nothing else."""
        return Satchel.for_project(self.project, **settings)

    def say_yes(self, *words: str, **env: str) -> str:
        """Run a command at a terminal, answer its question with yes; what was shown."""
        with Typing(self.command(*words), self.project, self.env(**env)) as at:
            at.sees("Trust this folder?")
            at.type("y\r")
            assert at.ends() == 0, at.text
            return at.text


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    """An empty project with a home folder of its own."""
    found = Project(tmp_path)
    monkeypatch.setenv("HOME", str(found.home))
    return found


@pytest.fixture(scope="session")
def documents(shared) -> Documents:
    """The five documents, whose blocks the tests use."""
    return Documents(Path(shared) / "seeds")


def skill(name: str, description: str, body: str = "Do it.\n") -> str:
    """The text of a SKILL.md."""
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}"
