"""An archive as a source: where it lies is written down, what was left out is said."""

from __future__ import annotations

import os
import zipfile

import pytest

from satchel.errors import InvalidInput, NotFound
from satchel.skill.tree import seal
from satchel.store.export import write_archive
from satchel.store.sources import find_skills, source_from, source_of, subtree
from store.trees import SKILL, good_tree


@pytest.mark.parametrize("form", ["zip", "tar.gz"])
def test_an_archive_gives_its_skills_and_is_found_again(tmp_path, form):
    base = str(tmp_path / ".agents")
    made = write_archive(good_tree(), str(tmp_path / f"packed.{form}"), prefix="good")
    with source_of(made.path, base=base).fetch() as bundle:
        assert bundle.place == ("archive", f"../packed.{form}", "", "", "")
        assert bundle.name == "packed"
        (found,) = find_skills(bundle.tree)
        assert bundle.place_of(found.path).path == "good"
        place = bundle.place_of(found.path)
    with source_from(place, base=base).fetch() as bundle:
        assert seal(subtree(bundle.tree, bundle.place.path)) == seal(good_tree())


def test_what_was_left_out_is_said(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("SKILL.md", SKILL)
        made.writestr("__MACOSX/._SKILL.md", b"x")
    with source_of(str(tmp_path / "a.zip"), base="/").fetch() as bundle:
        assert "`__MACOSX`" in bundle.notes[0]
        assert find_skills(bundle.tree, name=bundle.name)[0].id == "a"


def test_an_archive_has_no_refs_and_must_be_there(tmp_path):
    made = write_archive(good_tree(), str(tmp_path / "a.zip"))
    source = source_of(made.path, base="/")
    with pytest.raises(InvalidInput), source.fetch(ref="main"):
        pass
    with pytest.raises(InvalidInput):
        source_of(f"git+{made.path}", base="/")
    os.unlink(made.path)
    with pytest.raises(NotFound), source.fetch():
        pass
