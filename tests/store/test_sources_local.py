"""Folders and archives as sources: recorded, found again, and safe against changes while read."""

from __future__ import annotations

import os

import pytest

from satchel.errors import Unsafe
from satchel.library.lockfile import LockedSource
from satchel.skill.file_tree import FolderTree, hash_tree
from satchel.store.archive import ArchiveLimits
from satchel.store.export import write_archive
from satchel.store.sources import find_skills, source_from, source_of, subtree
from satchel.store.sources.local import LocalTree
from store.trees import good_tree, write_folder


def test_a_folder_has_the_seal_of_what_is_in_it(tmp_path):
    folder = write_folder(tmp_path / "project" / "vendor" / "good")
    os.makedirs(os.path.join(folder, ".git"))
    base = str(tmp_path / "project" / ".agents")
    source = source_of(folder, base=base)
    with source.fetch() as bundle:
        assert bundle.place == LockedSource("folder", "../vendor/good")
        assert [found.id for found in find_skills(bundle.tree, name=bundle.name)] == ["good"]
        assert (
            hash_tree(subtree(bundle.tree))
            == hash_tree(good_tree())
            == hash_tree(FolderTree(folder))
        )
        assert "`.git`" in bundle.notes[0]
        with source_from(bundle.place, base=base).fetch() as again:
            assert again.tree.files == bundle.tree.files


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    folder = write_folder(tmp_path / "good")
    tree = LocalTree(folder)
    chunks = tree.chunks("assets/large.bin")
    with open(os.path.join(folder, "assets/large.bin"), "ab") as stream:
        stream.truncate(3 << 20)
    assert sum(map(len, chunks)) == 3 << 20
    chunks = tree.chunks("assets/large.bin")
    next(chunks)
    os.truncate(os.path.join(folder, "assets/large.bin"), 5)
    with pytest.raises(Unsafe) as caught:
        list(chunks)
    assert caught.value.rule == "changed-while-read"


def test_a_file_that_becomes_a_link_outside_is_refused(tmp_path):
    folder = write_folder(tmp_path / "good")
    (tmp_path / "secret").write_bytes(b"secret")
    tree = LocalTree(folder)
    os.rename(os.path.join(folder, "assets"), tmp_path / "old")
    os.symlink(tmp_path, os.path.join(folder, "assets"))
    with pytest.raises(Unsafe) as caught:
        list(tree.chunks("assets/secret"))
    assert caught.value.rule == "link-escapes"


def test_a_folder_that_is_too_large(tmp_path):
    write_folder(tmp_path / "good")
    for bounds, rule in (
        (ArchiveLimits(entries=3), "too-many-files"),
        (ArchiveLimits(names=9), "names-too-large"),
    ):
        with pytest.raises(Unsafe) as caught:
            LocalTree(str(tmp_path), bounds)
        assert caught.value.rule == rule


def test_an_archive_gives_its_skills_and_is_found_again(tmp_path):
    base = str(tmp_path / ".agents")
    made = write_archive(good_tree(), str(tmp_path / "packed.zip"), prefix="good")
    with source_of(made.path, base=base).fetch() as bundle:
        assert bundle.place == LockedSource("archive", "../packed.zip")
        assert bundle.name == "packed"
        (found,) = find_skills(bundle.tree)
        assert bundle.place_of(found.path).path == "good"
        place = bundle.place_of(found.path)
    with source_from(place, base=base).fetch() as bundle:
        assert hash_tree(subtree(bundle.tree, bundle.place.path)) == hash_tree(good_tree())
