"""A repository as a source: one commit, read without a checkout."""

from __future__ import annotations

import os
import subprocess

import pytest

from satchel.errors import Refused, Unsafe
from satchel.library.lockfile import LockedSource
from satchel.skill.file_tree import hash_tree, read_whole
from satchel.store.sources import find_skills, source_of, subtree
from satchel.store.sources.git import GitSource, environment
from store.trees import SKILL, good_tree, write_folder


def git(folder, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, text=True, encoding="utf-8"
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """Two commits, a tag and a branch."""
    folder = tmp_path / "project" / "r"
    write_folder(folder / "skills" / "good")
    (folder / "README.md").write_text("x")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    git(folder, "tag", "-a", "v1", "-m", "v1")
    git(folder, "checkout", "-qb", "feature/x")
    (folder / "skills" / "good" / "more.md").write_text("more")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "two")
    git(folder, "checkout", "-q", "main")
    return folder


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_the_default_branch_a_tag_a_branch_and_a_commit(repository, tmp_path, temporary):
    base = str(tmp_path / "project" / ".agents")
    first, second = git(repository, "rev-parse", "main"), git(repository, "rev-parse", "feature/x")
    for ref, commit, found, files in (
        ("", "", first, 6),
        ("v1", "", first, 6),
        ("feature/x", "", second, 7),
        ("main", second, second, 7),
        (second, "", second, 7),
    ):
        with source_of(f"git+{repository}", base=base).fetch(ref=ref, commit=commit) as bundle:
            named = "" if ref == second else ref
            assert bundle.place == LockedSource("git", "../r", named, found)
            (skill,) = find_skills(bundle.tree)
            assert skill.path == "skills/good"
            assert len(subtree(bundle.tree, skill.path).files) == files
            assert bundle.place_of(skill.path).path == "skills/good"
    assert os.listdir(temporary) == []


def test_links_and_submodules_matter_only_inside_the_skill(repository):
    os.symlink("SKILL.md", repository / "skills" / "good" / "AGENTS.md")
    os.symlink("/etc/passwd", repository / "elsewhere")
    git(repository, "add", ".")
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},module")
    git(repository, "commit", "-qm", "three")
    with GitSource(str(repository)).fetch() as bundle:
        tree = subtree(bundle.tree, "skills/good")
        assert read_whole(tree, "AGENTS.md") == SKILL
        assert any("`AGENTS.md`" in note for note in tree.notes)
        assert any("`module`" in note for note in bundle.notes)
        with pytest.raises(Unsafe) as caught:
            subtree(bundle.tree)
        assert caught.value.rule == "submodule"


def test_hooks_filters_and_configuration_of_a_repository_do_nothing(repository, tmp_path):
    marker = tmp_path / "ran"
    (repository / ".gitattributes").write_text("* filter=evil\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "-qm", "attributes")
    for name in ("post-checkout", "post-merge", "reference-transaction", "fsmonitor-watchman"):
        hook = repository / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
        hook.chmod(0o755)
    for key in ("filter.evil.smudge", "core.fsmonitor", "uploadpack.packObjectsHook"):
        git(repository, "config", key, f"touch {marker}")
    with GitSource(str(repository)).fetch() as bundle:
        assert hash_tree(subtree(bundle.tree, "skills/good")) == hash_tree(good_tree())
    assert not marker.exists()


def test_git_does_not_ask_for_a_password(monkeypatch):
    env = environment()
    assert env["GIT_TERMINAL_PROMPT"] == "0"
    assert env["GIT_ASKPASS"] == ""
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -i mine")
    assert environment()["GIT_SSH_COMMAND"] == "ssh -i mine"


def test_a_silent_server_times_out(tmp_path, temporary):
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/o/r"
        with pytest.raises(Refused) as caught, GitSource(address, timeout=0.5).fetch():
            pass
    assert "longer than" in caught.value.message
    assert os.listdir(temporary) == []
