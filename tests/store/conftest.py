"""Fixtures: a project with sources to import from, and a bare scope."""

from __future__ import annotations

import subprocess
import zipfile

import pytest

from chaos import works
from satchel import Satchel
from satchel.testing import make_skill


class Bench:
    """One project, and sources to import from."""

    def __init__(self, base) -> None:
        self.base = base
        self.project = base / "project"
        self.sources = base / "sources"
        self.project.mkdir()
        self.sources.mkdir()

    @property
    def satchel(self) -> Satchel:
        """As a new command would see the project."""
        return Satchel.for_project(self.project, builtin=False, trust="ask")

    @property
    def store(self):
        return self.satchel.store()

    @property
    def skills(self):
        return self.project / ".agents/skills"

    @property
    def lockfile(self):
        return self.project / ".agents/satchel.lock"

    def folder(self, name: str = "greet", text: str = "Say hello.\n", **files: str):
        """A source folder with a skill."""
        make_skill(self.sources, name, f"Greets as {name} does. Use for greetings.", body=text)
        for path, content in files.items():
            target = self.sources / name / path.replace("__", "/").replace("_", ".")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)
        return self.sources / name

    def zip(self, *names: str):
        """A zip of source folders."""
        path = self.sources / "skills.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                for file in sorted((self.sources / name).rglob("*")):
                    if file.is_file():
                        archive.write(file, file.relative_to(self.sources))
        return path

    def git(self, folder, *words: str) -> str:
        """Run git in a folder."""
        done = subprocess.run(
            ["git", *words], cwd=folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def repository(self, *names: str):
        """A repository of source folders."""
        folder = self.sources / "repository"
        folder.mkdir(exist_ok=True)
        for name in names:
            (self.sources / name).rename(folder / name)
        self.git(folder, "init", "-q", "-b", "main")
        self.commit(folder)
        return folder

    def commit(self, folder, message: str = "change") -> str:
        self.git(folder, "add", "-A")
        self.git(folder, "commit", "-q", "-m", message)
        return self.git(folder, "rev-parse", "HEAD")

    def do(self, op: str, *given, **options):
        """Plan an operation and apply it, as one command does."""
        store = self.store
        with getattr(store, f"plan_{op}")(*given, **options) as plan:
            return store.apply(plan)

    def bring(self, source, **options):
        """Import a source."""
        return self.do("import", str(source), **options)

    def loads(self, name: str) -> str:
        """The text that the Skill tool returns, or the error's code."""
        reply = self.satchel.tools().call("Skill", {"name": name})
        return reply.text if reply.error is None else reply.error.code


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    return Bench(tmp_path)


@pytest.fixture
def project(tmp_path):
    return str(tmp_path)


@pytest.fixture
def scope(project):
    return works.scope_of(project)
