"""The search for a delegated control group."""

from __future__ import annotations

import pytest

from satchel.runners.launcher import cgroup_places, find_cgroup_folder


def test_version_two_is_found_at_the_nearest_group_that_hands_memory_down(tmp_path):
    root = tmp_path / "cgroup"
    leaf = root / "user.slice/app.slice/term.scope"
    leaf.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory\n")
    (root / "user.slice/app.slice/cgroup.subtree_control").write_text("memory pids\n")
    (root / "user.slice/cgroup.subtree_control").write_text("memory\n")
    own = tmp_path / "own"
    own.write_text("0::/user.slice/app.slice/term.scope\n")
    assert cgroup_places(str(root), str(own)) == [str(leaf.parent)]
    assert find_cgroup_folder(str(root), str(own)) == ""  # nothing to move a process with
    (leaf.parent / "cgroup.procs").write_text("")
    assert find_cgroup_folder(str(root), str(own)) == str(leaf.parent)


def test_version_one_is_next(tmp_path):
    root = tmp_path / "cgroup"
    (root / "memory/mine").mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("4:memory:/mine\n3:cpu,cpuacct:/\n0::/\n")
    assert cgroup_places(str(root), str(own)) == [str(root / "memory/mine")]


@pytest.mark.parametrize("text", ["", "nonsense\n", "0::/\n", "4:memory:/not/here\n"])
def test_nowhere(tmp_path, text):
    own = tmp_path / "own"
    own.write_text(text)
    assert find_cgroup_folder(str(tmp_path / "cgroup"), str(own)) == ""
    assert find_cgroup_folder(str(tmp_path), str(tmp_path / "missing")) == ""
