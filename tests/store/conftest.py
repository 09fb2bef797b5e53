"""A project, a shelf of skills to import, and a satchel between them."""

from __future__ import annotations

import os
import subprocess
import zipfile

import pytest

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
        os.environ["SATCHEL_HOME"] = str(base / "home")

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

    def bring(self, source, **options):
        """Import and carry out."""
        store = self.store
        with store.plan_import(str(source), **options) as plan:
            return store.carry_out(plan)

    def lock(self, name: str) -> None:
        """Say that the edits are one's own."""
        store = self.store
        with store.plan_lock([name]) as plan:
            store.carry_out(plan)

    def loads(self, name: str) -> str:
        """What the Skill tool says: the text, or the error's code."""
        reply = self.satchel.tools().call("Skill", {"name": name})
        return reply.text if reply.error is None else reply.error.code


@pytest.fixture
def bench(tmp_path):
    before = os.environ.get("SATCHEL_HOME")
    yield Bench(tmp_path)
    if before is None:
        os.environ.pop("SATCHEL_HOME", None)
    else:
        os.environ["SATCHEL_HOME"] = before
