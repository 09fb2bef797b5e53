"""An exported skill is the same file everywhere, and reads back as the same skill."""

from __future__ import annotations

import os

import pytest

from satchel.errors import Unsafe
from satchel.skill.file_tree import FolderTree, MemoryTree
from satchel.store.export import write_archive
from store.trees import good_tree, write_folder

DIGEST = "sha256:7c7583689ba22c2dc249546ef46ed37922f5e59e3107d8c0be2874a5b91b6def"
"""What every machine, Python and zlib must write."""


def test_the_same_bytes_everywhere(tmp_path):
    made = write_archive(good_tree(), str(tmp_path / "a.zip"), prefix="good")
    assert made.digest == DIGEST
    assert made.size == os.path.getsize(made.path)
    os.utime(write_folder(tmp_path / "folder") + "/SKILL.md", (5, 5))
    again = write_archive(FolderTree(str(tmp_path / "folder")), made.path, prefix="good")
    assert again == made


def test_a_failure_leaves_the_old_archive_and_nothing_else(tmp_path):
    target = tmp_path / "a.zip"
    target.write_bytes(b"old")

    class Broken(MemoryTree):
        def chunks(self, path):
            yield b"x"
            raise OSError(5, "no")

    with pytest.raises(OSError, match="no"):
        write_archive(Broken({"SKILL.md": b"xy"}), str(target))
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.zip"]


def test_a_file_that_changes_meanwhile_is_refused(tmp_path):
    class Growing(MemoryTree):
        def chunks(self, path):
            yield b"more than was said"

    with pytest.raises(Unsafe) as caught:
        write_archive(Growing({"SKILL.md": b"xy"}), str(tmp_path / "a.zip"))
    assert caught.value.rule == "changed-while-read"
