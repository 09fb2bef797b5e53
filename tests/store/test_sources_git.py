"""A repository as a source: one commit, read without a checkout."""

from __future__ import annotations

import base64
import gzip
import os
import subprocess
import threading
import time
from contextlib import suppress

import pytest

from http_answers import answering, reply
from satchel.errors import NotFound, Refused, Unsafe
from satchel.skill.file_tree import hash_tree, read_whole
from satchel.store.sources import find_skills, source_of, subtree
from satchel.store.sources.base import parse_address
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
            assert bundle.place == ("git", "../r", named, found, "")
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


def test_nobody_is_asked_for_a_password(monkeypatch):
    env = environment(parse_address("https://user:secret@host/o/r"))
    assert env["GIT_TERMINAL_PROMPT"] == "0"
    assert env["GIT_ASKPASS"] == ""
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -i mine")
    assert environment(parse_address("https://host/o/r"))["GIT_SSH_COMMAND"] == "ssh -i mine"


@pytest.fixture
def private(repository):
    """A slow server with a repository behind a password."""
    seen: list[str] = []

    def respond(handler) -> None:
        said = handler.headers.get("Authorization", "")
        if not said:
            reply(handler, 401, WWW_Authenticate='Basic realm="x"')
            return
        seen.append(base64.b64decode(said.removeprefix("Basic ")).decode())
        time.sleep(0.3)
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        path, _, query = handler.path.partition("?")
        made = subprocess.run(
            ["git", "http-backend"],
            input=gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body,
            env={
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(repository),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
                "GIT_PROTOCOL": handler.headers.get("Git-Protocol", ""),
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": handler.command,
                "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
                "REMOTE_USER": "x",
            },
            capture_output=True,
            check=True,
        ).stdout
        head, _, content = made.partition(b"\r\n\r\n")
        reply(handler, 200, content, **dict(row.split(": ") for row in head.decode().splitlines()))

    with answering(respond) as host:
        yield host, seen


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no list of arguments to read")
def test_a_password_is_no_argument_of_any_process(private, tmp_path, monkeypatch):
    host, seen = private
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    # The user's own helper must not learn what was typed here.
    kept = tmp_path / "kept"
    config = tmp_path / "config"
    config.write_text(
        f'[credential]\n\thelper = "!cat >>{kept}; :"\n'
        f'[credential "http://{host}"]\n\thelper = "!cat >>{kept}; :"\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    lines: set[bytes] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for number in filter(str.isdigit, os.listdir("/proc")):
                with suppress(OSError), open(f"/proc/{number}/cmdline", "rb") as stream:
                    lines.add(stream.read())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        source = GitSource(f"http://bob-4711:s3%20c%25r%27%22$3t@{host}/.git")
        with source.fetch() as bundle:
            assert find_skills(bundle.tree)
    finally:
        done.set()
        watcher.join()
    assert set(seen) == {"bob-4711:s3 c%r'\"$3t"}
    remote = [line for line in lines if b"remote-http" in line]
    assert any(host.encode() in line for line in remote)
    # No other test, whose processes are seen as well, has these words.
    assert not any(word in line for line in lines for word in (b"bob-4711", b"c%r", b"c%25r"))
    assert bundle.place.url == f"http://{host}/.git"
    assert not kept.exists()


def test_a_password_is_for_one_machine_only(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    seen: list[str] = []

    def elsewhere(handler) -> None:
        seen.append(handler.headers.get("Authorization", ""))
        reply(handler, 401, WWW_Authenticate='Basic realm="x"')

    with (
        answering(elsewhere) as other,
        answering(lambda one: reply(one, 302, Location=f"http://{other}{one.path}")) as host,
    ):
        source = GitSource(f"http://user:hunter2@{host}/o/r")
        with pytest.raises(NotFound), source.fetch():
            pass
    assert seen
    assert not any(seen)


def test_a_server_that_says_nothing_is_not_waited_for(tmp_path, temporary):
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/o/r"
        with pytest.raises(Refused) as caught, GitSource(address, timeout=0.5).fetch():
            pass
    assert "longer than" in caught.value.message
    assert os.listdir(temporary) == []
