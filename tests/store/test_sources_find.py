"""Which skills a source holds, and the files of one of them."""

from __future__ import annotations

import os

import pytest

from satchel.errors import Unsafe
from satchel.skill.file_tree import MemoryTree, TreeLimits, read_whole
from satchel.store.sources import find_skills, subtree
from satchel.store.sources.local import LocalTree
from store.trees import SKILL


def paths(tree, path="") -> list[str]:
    return [found.path for found in find_skills(tree, path)]


MANY = MemoryTree({
    "README.md": b"x",
    "skills/b/SKILL.md": SKILL,
    "skills/b/examples/inner/SKILL.md": SKILL,
    "skills/a/skill.md": SKILL,
    "skills/a0/SKILL.md": SKILL,
    "node_modules/x/SKILL.md": SKILL,
    "tools/x.py": b"x",
})  # fmt: skip


def test_every_folder_with_a_skill_but_none_inside_another():
    assert paths(MANY) == ["skills/a", "skills/a0", "skills/b"]
    assert paths(MANY, "skills") == ["skills/a", "skills/a0", "skills/b"]
    assert paths(MANY, "tools") == []


def test_a_skill_at_the_top_takes_all_and_a_given_name():
    tree = MemoryTree({"SKILL.md": SKILL, "more/SKILL.md": SKILL})
    assert [found[:3] for found in find_skills(tree)] == [("", "good", "good")]
    assert find_skills(tree, name="My Zip")[0].id == "my-zip"


def test_the_limits_of_a_skill():
    tree = MemoryTree({"SKILL.md": SKILL, "a/b/c": b"xx"})
    for limits, rule in (
        (TreeLimits(files=1), "too-many-files"),
        (TreeLimits(size=5), "too-large"),
        (TreeLimits(depth=1), "path-too-deep"),
    ):
        with pytest.raises(Unsafe) as caught:
            subtree(tree, "", limits)
        assert caught.value.rule == rule


def test_ignored_files_are_named():
    tree = subtree(MemoryTree({"SKILL.md": SKILL, ".DS_Store": b"x"}))
    assert [file.path for file in tree.files] == ["SKILL.md"]
    (note,) = tree.notes
    assert "`.DS_Store`" in note
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9\n"
    (note,) = subtree(MemoryTree({"SKILL.md": SKILL, "model.bin": pointer})).notes
    assert "`model.bin` is a pointer of Git LFS" in note


# --- links --------------------------------------------------------------------------------


def put(root, path: str, data: bytes = b"x") -> None:
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), "wb") as stream:
        stream.write(data)


def test_links_to_files_become_copies_and_are_reported(tmp_path):
    put(tmp_path, "s/SKILL.md", SKILL)
    put(tmp_path, "s/docs/a.md", b"a")
    os.symlink("docs/a.md", tmp_path / "s" / "file")
    os.symlink("../docs/./a.md", tmp_path / "s" / "docs" / "other")
    tree = subtree(LocalTree(str(tmp_path)), "s")
    plain = {file.path: read_whole(tree, file.path) for file in tree.files}
    assert plain == {"SKILL.md": SKILL, "docs/a.md": b"a", "docs/other": b"a", "file": b"a"}
    assert all(file.mode == "file" for file in tree.files)
    assert sum("`docs/a.md`" in note for note in tree.notes) == 2
    for target in ("docs", "file"):  # a folder, and another link
        link = tmp_path / "s" / "more"
        os.symlink(target, link)
        with pytest.raises(Unsafe) as caught:
            subtree(LocalTree(str(tmp_path)), "s")
        assert caught.value.rule == "link-escapes"
        link.unlink()


def test_a_link_may_not_leave_the_skill_even_when_it_stays_in_the_source(tmp_path):
    put(tmp_path, "s/SKILL.md", SKILL)
    put(tmp_path, "shared/a.md")
    os.symlink("../shared/a.md", tmp_path / "s" / "a.md")
    with pytest.raises(Unsafe) as caught:
        subtree(LocalTree(str(tmp_path)), "s")
    assert caught.value.rule == "link-escapes"
    # As one skill, with everything inside, the same link is fine.
    put(tmp_path, "SKILL.md", SKILL)
    assert read_whole(subtree(LocalTree(str(tmp_path))), "s/a.md") == b"x"


def test_a_copy_must_not_meet_a_file_of_the_same_name(tmp_path):
    put(tmp_path, "SKILL.md", SKILL)
    put(tmp_path, "A")
    os.symlink("SKILL.md", tmp_path / "a")
    with pytest.raises(Unsafe) as caught:
        subtree(LocalTree(str(tmp_path)))
    assert caught.value.rule == "case-conflict"
