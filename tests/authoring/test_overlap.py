"""Close pairs are the closest there are, the same from either side, and say by which words."""

from __future__ import annotations

import random

import pytest

from satchel.authoring.overlap import MIN_COPY_SCORE, compare
from satchel.skill.document import SkillHeader
from satchel.skill.model import Skill, SkillOrigin

ORIGIN = SkillOrigin("/nowhere", "extra", "here")
WORDS = [f"{a}{b}{c}" for a in "bdfg" for b in "aeiou" for c in ("lm", "nt", "rk", "pt")]


def _skill(name: str, description: str, number: int = 0, **extra) -> Skill:
    head = SkillHeader(name, description, f"{name}-{number}", "SKILL.md", 0, 0, 0, extra or None)
    return Skill(head, ORIGIN)


def _random(count: int, seed: int) -> list[Skill]:
    """Skills that share many words; some are copies, some copies but for a word."""
    chance = random.Random(seed)
    skills: list[Skill] = []
    for at in range(count):
        words = chance.choices(WORDS, weights=range(1, len(WORDS) + 1), k=chance.randint(3, 12))
        if skills and chance.random() < 0.3:
            words = chance.choice(skills).description.split()
            if chance.random() < 0.7:
                words[chance.randrange(len(words))] = chance.choice(WORDS)
        skills.append(_skill(f"s{at}", " ".join(words), at))
    return skills


REVIEWS = [
    _skill("code-review", "Reviews pull requests for bugs, security and style."),
    _skill("review-changes", "Reviewing a pull request: bugs, tests and style."),
    _skill("pdf-forms", "Fills in PDF forms."),
    _skill("tables", "Extracts tables from PDF files."),
    _skill("bake-bread", "Kneads dough and bakes loaves."),
]


def test_a_pair_says_what_is_shared():
    found = compare(REVIEWS, least=0.3)
    (pair,) = found.pairs
    assert (pair.one.name, pair.other.name) == ("code-review", "review-changes")
    assert 0.3 <= pair.score < MIN_COPY_SCORE
    assert {"pull", "bugs", "style"} <= set(pair.shared)


@pytest.mark.parametrize("seed", range(5))
def test_the_closest_are_those_that_comparing_every_two_finds(seed):
    skills = _random(60, seed)
    one_by_one = {
        frozenset((skill.ref, pair.other.ref)): round(pair.score, 9)
        for skill in skills
        for pair in compare(skills, skill, least=0.2, limit=100).pairs
    }
    whole = compare(skills, least=0.2, limit=10_000)
    found = {frozenset((p.one.ref, p.other.ref)): round(p.score, 9) for p in whole.pairs}
    assert found == one_by_one
    # A limit changes nothing but the number.
    few = compare(skills, least=0.2, limit=7)
    assert [round(pair.score, 6) for pair in few.pairs] == [
        round(pair.score, 6) for pair in whole.pairs[:7]
    ]
    assert (few.more, whole.more) == (True, False)


def test_the_same_words_are_copies_whatever_their_order_and_script():
    skills = [
        _skill("notes", "Writes release notes.", 1),
        _skill("notes", "Notes: writes a release", 2),
        _skill("bread", "Bakes loaves."),
        _skill("hetong", "审查合同条款的风险。"),
        _skill("tiaokuan", "合同条款的风险审查"),
    ]
    found = compare(skills)
    assert [(pair.copy, pair.one.name) for pair in found.pairs] == [
        (True, "notes"),
        (False, "hetong"),
    ]
    assert "合同条款的风险" in found.pairs[1].shared
