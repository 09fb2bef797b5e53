"""Every detector can say where a skill stands, as far as it knows."""

from __future__ import annotations

import pytest

from satchel import Satchel
from satchel.detect.base import Match, Place
from satchel.errors import NotFound


class ByLength:
    """Knows nothing but a list: the shortest descriptions first, none above fifty characters."""

    def detect(self, goal_text, skills):
        found = sorted(skills, key=lambda skill: len(skill.description))
        return [
            Match(one.name, 1.0 / len(one.description), "short", (), one)
            for one in found
            if len(one.description) <= 50
        ]


class Knows(ByLength):
    """Has an account of its own."""

    def place(self, goal_text, skills, skill):
        return Place(1, len(skills), None, {"name": 1.0}, [], (goal_text,))


@pytest.fixture
def project(tmp_path):
    for name, length in (("a", 10), ("b", 20), ("c", 30), ("d", 40), ("e", 45), ("f", 200)):
        folder = tmp_path / "skills" / name
        folder.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: {'x' * length}\n---\nBody\n"
        (folder / "SKILL.md").write_text(text)
    return tmp_path


def _satchel(project, detector, **settings):
    made = Satchel.for_project(project, trust="all", builtin=False, **settings)
    return Satchel(made.library, made.settings, detector=detector)


def test_a_list_is_enough_for_a_rank(project):
    satchel = _satchel(project, ByLength())
    place = satchel.place("e", "anything")
    assert (place.rank, place.of) == (5, 6)
    assert place.match.name == "e"
    assert [match.name for match, _ in place.ahead] == ["a", "b", "c"]
    assert (place.fields, place.missing) == ({}, ())


def test_whoever_is_not_in_the_list_has_no_rank(project):
    place = _satchel(project, ByLength()).place("f", "anything")
    assert (place.rank, place.match) == (0, None)
    assert [match.name for match, _ in place.ahead] == ["a", "b", "c"]


def test_a_detectors_own_account_counts(project):
    place = _satchel(project, Knows()).place("c", "the goal")
    assert place == Place(1, 6, None, {"name": 1.0}, [], ("the goal",))


def test_a_skill_that_is_not_offered_is_placed_as_if_it_were(project):
    place = _satchel(project, ByLength(), exclude=["b"]).place("b", "anything")
    assert (place.rank, place.of) == (2, 6)
    assert [match.name for match, _ in place.ahead] == ["a"]


def test_there_is_no_place_for_what_is_not_there(project):
    with pytest.raises(NotFound):
        _satchel(project, ByLength()).place("z", "anything")


def test_a_detector_without_an_index_prepares_nothing(project):
    assert _satchel(project, ByLength()).prepare() is None
