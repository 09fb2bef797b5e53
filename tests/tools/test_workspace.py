"""Workspace: limited to the project and to a size, with atomic writes."""

from __future__ import annotations

import os
import stat

import pytest

from satchel.tools.packaged import ToolFailed
from satchel.tools.workspace import Workspace


@pytest.fixture
def here(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "outside.txt").write_text("secret")
    return Workspace(str(tmp_path / "project"), limit=1_000)


def failed(call, *words, **more) -> str:
    with pytest.raises(ToolFailed) as caught:
        call(*words, **more)
    return caught.value.failure.id


def tree(folder) -> set[str]:
    return {os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder)
            for name in names}  # fmt: skip


@pytest.mark.req("E6")
def test_a_link_is_not_written_through(here, tmp_path):
    os.symlink("../outside.txt", os.path.join(here.root, "link.txt"))
    assert failed(here.write, "link.txt", b"x", overwrite=True) == "no-file"
    assert (tmp_path / "outside.txt").read_text() == "secret"


@pytest.mark.req("E7")
def test_a_file_is_replaced_only_on_request(here):
    first = here.write("a/b/c.txt", b"one", overwrite=False)
    assert (first.path, first.replaced) == ("a/b/c.txt", False)
    assert failed(here.write, "a/b/c.txt", b"two", overwrite=False) == "exists"
    assert failed(here.check_target, "a/b/c.txt", overwrite=False) == "exists"
    assert here.read("a/b/c.txt") == b"one"
    os.chmod(os.path.join(here.root, "a/b/c.txt"), 0o640)
    assert here.write("a/b/c.txt", b"two", overwrite=True).replaced
    assert here.read("a/b/c.txt") == b"two"
    assert stat.S_IMODE(os.stat(os.path.join(here.root, "a/b/c.txt")).st_mode) == 0o640
    assert tree(here.root) == {"a/b/c.txt"}


def test_two_writers_at_once_make_one_file(here):
    from concurrent.futures import ThreadPoolExecutor

    def write(number):
        try:
            here.write("same.txt", bytes([number]) * 900, overwrite=False)
        except ToolFailed as exc:
            return exc.failure.id
        return "done"

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(write, range(40)))
    assert sorted(set(results)) == ["done", "exists"]
    assert results.count("done") == 1
    assert len(set(here.read("same.txt"))) == 1
    assert tree(here.root) == {"same.txt"}
