"""Skills with what git takes for a repository: its configuration names commands that git runs."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from typing import Any

import pytest

from hostile.archives import SKILL
from hostile.repositories import Repository
from satchel import Satchel
from satchel.errors import Unsafe
from satchel.skill.file_tree import find_repository

HEAD = b"ref: refs/heads/main\n"
CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch pwned\n"
BARE = {"HEAD": HEAD, "config": CONFIG, "objects/info/x": b"", "refs/heads/x": b""}


def below(folder: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/{path}": data for path, data in files.items()}


SHARED = {"objects/info/x": b"", "refs/heads/x": b""}
TAKEN = {
    "a bare layout": ("references/r", below("references/r", BARE)),
    "a bare layout far down": ("a/b/c/d/e/f/g", below("a/b/c/d/e/f/g", BARE)),
    "a bare layout without configuration": ("r", {
        f"r/{path}": data for path, data in BARE.items() if path != "config"
    }),
    "a bare layout at the top": (".", BARE),
    "a detached HEAD": ("r", below("r", {**BARE, "HEAD": b"1" * 40 + b"\n"})),
    "a layout that shares its objects": (
        "r", {**below("r", {"HEAD": HEAD, "commondir": b"../s\n"}), **below("s", SHARED)},
    ),
    "a layout below node_modules": ("node_modules/r", below("node_modules/r", BARE)),
    "a .git folder": ("docs", below("docs/.git", BARE)),
    "a .git file": ("docs", {"docs/.git": b"gitdir: ../r\n", **below("r", BARE)}),
}  # fmt: skip
"""Name -> the folder in which git finds a repository, and the files."""
TWINS = {
    "another case": below("r", {"head": HEAD, "Objects/x": b"", "REFS/x": b""}),
    "folders in two cases": {"r/HEAD": HEAD, "R/objects/x": b"", "R/refs/x": b""},
    "a .GIT file": {"docs/.GIT": b"gitdir: ../r\n"},
    "a long s": below("r", {"HEAD": HEAD, "object\u017f/x": b"", "ref\u017f/x": b""}),
    "an ignored character": {"docs/.g\u200cit": b"gitdir: ../r\n"},
    "a short name of Windows": below("GIT~1", BARE),
    "a dot at the end": {"docs/.git.": b"gitdir: ../r\n"},
    "a stream of Windows": {"docs/.git::$INDEX_ALLOCATION/HEAD": HEAD},
}
HONEST = [
    ["SKILL.md", "HEAD", "refs/a.md", "docs/objects/a.md"],
    ["git/HEAD", "git/objects.md", "git/refs.md"],
    [".gitignore", ".github/workflows/a.yml", ".gitattributes", "digit/a", "a.git/config"],
    ["objects/a", "refs/a", "headers/HEAD"],
]


def write(folder: str, files: dict[str, bytes]) -> str:
    for path, data in {"SKILL.md": SKILL, **files}.items():
        full = os.path.join(folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as stream:
            stream.write(data)
    return folder


def git_takes(folder: str, ceiling: str) -> bool:
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": ceiling, "HOME": ceiling}
    asked = subprocess.run(
        ["git", "-C", folder, "rev-parse", "--git-dir"], check=False, capture_output=True, env=env
    )
    return asked.returncode == 0


def as_zip(folder: str, files: dict[str, bytes]) -> str:
    path = os.path.join(folder, "x.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {"SKILL.md": SKILL, **files}.items():
            archive.writestr(f"x/{name}", data)
    return path


def as_tar(folder: str, files: dict[str, bytes]) -> str:
    path = os.path.join(folder, "x.tar.gz")
    with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in {"SKILL.md": SKILL, **files}.items():
            info = tarfile.TarInfo(f"x/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def as_git(folder: str, files: dict[str, bytes]) -> str:
    made = Repository(folder)
    top: dict[str, Any] = {}
    for path, data in {"SKILL.md": SKILL, **files}.items():
        *folders, name = path.split("/")
        at = top
        for part in folders:
            at = at.setdefault(part, {})
        at[name] = data

    def tree(rows: dict) -> str:
        return made.tree(*(
            ("40000", name, tree(one)) if isinstance(one, dict)
            else ("100644", name, made.blob(one))
            for name, one in rows.items()
        ))  # fmt: skip

    made.commit(tree(top))
    return f"git+{made.path}"


def as_folder(folder: str, files: dict[str, bytes]) -> str:
    return write(os.path.join(folder, "x"), files)


SOURCES = [as_zip, as_tar, as_git, as_folder]


@pytest.fixture
def store(tmp_path):
    (tmp_path / "project" / ".agents").mkdir(parents=True)
    return Satchel.for_project(tmp_path / "project").store()


@pytest.mark.parametrize("name", TAKEN)
def test_what_git_takes_for_a_repository_is_found(tmp_path, name):
    folder, files = TAKEN[name]
    root = write(str(tmp_path / "x"), files)
    assert git_takes(os.path.join(root, folder), str(tmp_path))
    assert find_repository(files)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", TAKEN)
def test_a_source_with_a_repository_is_refused(tmp_path, store, source, name):
    try:
        with store.plan_import(source(str(tmp_path), TAKEN[name][1])) as plan:
            error = plan.steps[0].error
    except Unsafe as exc:  # git's own checks, of all objects
        error = exc
    assert isinstance(error, Unsafe)
    assert error.rule in {"repository", "git-objects"}


@pytest.mark.parametrize("name", TWINS)
def test_names_that_another_system_reads_as_a_repository_are_found(name):
    assert find_repository(TWINS[name])


@pytest.mark.parametrize("paths", HONEST)
def test_files_that_git_takes_for_no_repository_are_accepted(tmp_path, paths):
    root = write(str(tmp_path / "x"), dict.fromkeys(paths, b"ref: refs/heads/main\n"))
    assert not any(git_takes(folder, str(tmp_path)) for folder, _, _ in os.walk(root))
    assert find_repository(paths) == ""


def test_a_checkout_of_the_user_is_installed_without_its_git_folder(tmp_path, store):
    root = write(str(tmp_path / "x"), {"a.md": b"x"})
    subprocess.run(["git", "init", "-q", root], check=True)
    with store.plan_import(root) as plan:
        store.apply(plan)
    installed = tmp_path / "project" / ".agents" / "skills" / "x"
    assert sorted(os.listdir(installed)) == ["SKILL.md", "a.md"]


def test_an_update_that_brings_a_repository_is_refused(tmp_path, store):
    root = write(str(tmp_path / "x"), {})
    with store.plan_import(root) as plan:
        store.apply(plan)
    write(root, below("references/r", BARE))
    with store.plan_update() as plan:
        assert [step.kind for step in plan.steps] == ["refused"]
        assert "what git takes for a repository" in str(plan.steps[0].error)
