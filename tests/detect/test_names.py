"""Names: a table that grows by a skill is the table that would be made anew."""

from __future__ import annotations

import random

import pytest

from satchel.detect.names import Names, NamesKept, spell
from satchel.skill import Head, Origin, Skill

HERE, THERE = Origin("/here", "project", "here"), Origin("/there", "user", "there")
NAMES = (
    "review",
    "acme:review",
    "other:review",
    "Pdf Forms",
    "pdf_forms",
    "合同审查",
    "a:b",
    "b",
    "",
)
TEXTS = (*NAMES, "acme/review", "there/s3", "nobody", "pdf", "revew", "the pdf-forms one")


def skill(number: int, name: str, origin: Origin = HERE) -> Skill:
    return Skill(Head(name, "Does things.", f"s{number}", "SKILL.md", 0, 0, 0), origin)


def told(names: Names) -> list[object]:
    """All that can be asked of a table."""
    found: list[object] = []
    for one in TEXTS:
        text = spell(one)
        found += [names.exact(one), names.family(one), names.meant(one), names.near(one)]
        found += [names.starting(text, 0), names.ending(text, len(text.keyed))]
    return found


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_a_table_that_is_taken_over_is_as_a_new_one(seed, ended):
    chance = random.Random(seed)
    skills = tuple(
        skill(number, chance.choice(NAMES), chance.choice((HERE, HERE, THERE)))
        for number in range(chance.randrange(1, 7))
    )
    last = Names(skills)
    if ended:
        told(last)  # ends of names are gathered at the first question
    before = told(Names(skills))
    more = (*skills, skill(90, chance.choice(NAMES), THERE), skill(91, chance.choice(NAMES)))
    assert told(Names(more, last)) == told(Names(more))
    assert told(last) == before, "the other one is as it was"


def test_who_asks_about_one_more_skill_makes_no_table_anew(monkeypatch):
    read: list[str] = []

    def key_of(name: str) -> str:
        read.append(name)
        return name

    monkeypatch.setattr("satchel.detect.names.key_of", key_of)
    kept = NamesKept()
    skills = tuple(skill(number, f"s{number}") for number in range(50))
    first = kept.of(skills)
    read.clear()
    kept.of((*skills, skill(90, "s90")))
    assert kept.of(skills) is first
    assert read == ["s90"]
    kept.of((skill(91, "s91"), *skills))
    assert len(read) > 50, "another beginning is another table"
