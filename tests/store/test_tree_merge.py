"""Three-way merges: the same results as git, and no edit is lost."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satchel.skill.file_tree import MemoryTree, read_whole
from satchel.store.tree_merge import merge_text, merge_trees
from sizes import sized

BASE_LINES = "abcdefghij"
ways = st.sampled_from(["insert", "drop", "change"])
edits = st.lists(st.tuples(st.integers(0, 9), ways, st.sampled_from("XYZ")), max_size=3)


def edited(changes: list[tuple[int, str, str]]) -> bytes:
    text = list(BASE_LINES)
    for wanted, how, letter in changes:
        at = min(wanted, len(text) - 1)
        text[at : at + (how != "insert")] = [] if how == "drop" else [letter]
    return b"".join(item.encode() + b"\n" for item in text)


@pytest.mark.timeout(60)
@settings(max_examples=sized(60, 300), deadline=None)
@given(edits, edits)
def test_it_agrees_with_git(tmp_path_factory, mine, theirs):
    assert shutil.which("git"), "git is needed to compare with"
    folder = tmp_path_factory.mktemp("merge")
    texts = [edited([]), edited(mine), edited(theirs)]
    paths = [folder / name for name in ("base", "mine", "theirs")]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text)
    done = subprocess.run(
        ["git", "merge-file", "-p", "-q", paths[1], paths[0], paths[2]],
        capture_output=True, check=False,
    )  # fmt: skip
    assert merge_text(*texts) == (done.stdout if done.returncode == 0 else None)


def tree(**files: bytes) -> MemoryTree:
    return MemoryTree({name.replace("_", "."): text for name, text in files.items()})


def test_files_of_both_sides_come_together():
    base = tree(a_md=b"a\n", b_md=b"b\n")
    mine = tree(a_md=b"mine\n", b_md=b"b\n", c_md=b"mine too\n")
    theirs = tree(a_md=b"a\n", b_md=b"theirs\n", d_md=b"new\n")
    merged = merge_trees(base, mine, theirs)
    assert merged.conflicts == ()
    assert merged.kept == ("a.md", "c.md")
    assert merged.tree is not None
    content = {file.path: read_whole(merged.tree, file.path) for file in merged.tree.files}
    assert content == {
        "a.md": b"mine\n", "b.md": b"theirs\n", "c.md": b"mine too\n", "d.md": b"new\n",
    }  # fmt: skip
