"""A part of a large library is searched with the index of the whole."""

from __future__ import annotations

import pytest

from satchel.library.filters import Filter
from satchel.library.narrowed import NarrowedLibrary
from satchel.tools import part_detector as module
from satchel.tools.part_detector import PartDetector, part_detector

TOPICS = ("bread", "rye bread", "wheat bread", "corn bread", "bread crumbs", "white bread")


@pytest.fixture
def kitchen(talks, monkeypatch):
    monkeypatch.setattr(module, "SMALL", 5)
    for number, topic in enumerate(TOPICS):
        place = "home" if number % 2 else "shop"
        talks.add(f"{place}-{number}", f"Bakes {topic} in an oven, step by step.")
    talks.add("home-taxes", "Fills in the yearly tax form.")
    return talks.satchel()


def test_a_small_part_of_a_small_whole_is_searched_alone(talks):
    satchel = talks.satchel()
    part = NarrowedLibrary(satchel.library, Filter(include=("code-*",)))
    assert part_detector(satchel.detector, part) is satchel.detector


def test_only_the_part_is_found_and_the_index_is_given_the_whole(kitchen):
    part = NarrowedLibrary(kitchen.library, Filter(include=("home-*",)))
    given = []
    inner = kitchen.detector
    detector = part_detector(inner, part)
    assert isinstance(detector, PartDetector)
    assert detector.name == inner.name
    look = inner.look
    inner.look = lambda goal, skills: given.append(len(skills)) or look(goal, skills)
    mine = part.refresh().for_model
    answer = detector.look("bake some bread in the oven", mine)
    assert answer.matches
    found = [*answer.matches, *answer.runners_up]
    assert {match.name for match in found} <= {skill.name for skill in mine}
    assert given == [len(kitchen.library.snapshot().for_model)]
    assert len(detector.rank("bread", mine, 2)) == 2
    assert {match.name for match in detector.rank("bread", mine, 50)} <= {
        skill.name for skill in mine
    }
    assert detector.detect("fill in the yearly tax form", mine)[0].name == "home-taxes"


def test_a_sub_agent_gets_shortlists_and_finds_its_own(kitchen):
    child = kitchen.session().child(include=["home-*"])
    tail = child.tail("bake rye bread in the oven, step by step")
    assert 'name="home-' in tail
    assert "shop-" not in tail
    found = child.call("SkillSearch", {"query": "bread oven"})
    assert "home-1" in found.text
    assert "shop-" not in found.text
    inner = child.child(exclude=["home-1"])
    assert "home-1" not in inner.call("SkillSearch", {"query": "bread oven"}).text
