"""An archive as a source: where it lies is written down, what was left out is said."""

from __future__ import annotations

import pytest

from satchel.skill.tree import seal
from satchel.store.export import write_archive
from satchel.store.sources import find_skills, source_from, source_of, subtree
from store.trees import good_tree


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
