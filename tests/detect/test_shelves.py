"""Shelves: what is known of skills that did not change is taken over, and nothing else."""

from __future__ import annotations

import random

import pytest

from satchel.detect.hybrid import Shelf, Shelves
from satchel.skill import Head, Origin, Skill

HERE, THERE = Origin("/here", "project", "here"), Origin("/there", "user", "there")


def skill(number: int, name: str = "", origin: Origin = HERE, stamp: int = 0) -> Skill:
    head = Head(name or f"skill-{number}", "Does things.", f"s{number}", "SKILL.md", stamp, 0, 0)
    return Skill(head, origin)


def remade(skills: tuple[Skill, ...]) -> tuple[Skill, ...]:
    """As a library hands them out after another look: new skills, the same heads."""
    return tuple(Skill(one.head, one.origin) for one in skills)


def assert_as_new(shelf: Shelf, goals: list[str]) -> None:
    new = Shelf(shelf.skills)
    assert list(shelf.by_key.items()) == list(new.by_key.items())
    assert all(shelf.by_key[key] is one for key, one in new.by_key.items())
    assert [shelf.called(goal) for goal in goals] == [new.called(goal) for goal in goals]


@pytest.mark.parametrize("seed", range(30))
def test_a_changed_library_is_looked_up_as_a_new_one(seed):
    chance = random.Random(seed)
    names = [f"Name {number}" for number in range(20)]
    skills = tuple(skill(number, chance.choice(names)) for number in range(100))
    shelves = Shelves()
    for turn in range(8):
        shelf = shelves.of(skills)
        assert_as_new(shelf, [*names, "nobody", "skill-1"])
        kept = list(remade(skills))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(kept))
            what = chance.choice(["text", "name", "gone", "new", "twice", "elsewhere"])
            if what == "text":
                kept[at] = kept[at]._replace(head=kept[at].head._replace(mtime_ns=turn + 1))
            elif what == "name":
                kept[at] = kept[at]._replace(head=kept[at].head._replace(name=chance.choice(names)))
            elif what == "gone":
                del kept[at]
            elif what == "new":
                kept.insert(at, skill(1_000 + 10 * turn + at, chance.choice(names)))
            elif what == "twice":
                kept.insert(at, kept[-1])
            else:
                kept[at] = kept[at]._replace(origin=THERE)
        skills = tuple(kept)


def test_the_same_tuple_has_the_same_shelf_and_a_list_has_none():
    skills = tuple(skill(number) for number in range(3))
    shelves = Shelves()
    assert shelves.of(skills) is shelves.of(skills)
    some = list(skills)
    assert shelves.of(some) is not shelves.of(some)
