"""Close pairs are the closest there are, the same from either side, and say by which words."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from satchel.authoring.overlap import MIN_COPY_SCORE, compare, compare_one
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


def test_a_pair_says_what_is_shared_and_what_tells_them_apart():
    found = compare(REVIEWS, least=0.3)
    assert found.groups == []
    (pair,) = found.pairs
    assert (pair.one.name, pair.other.name) == ("code-review", "review-changes")
    assert 0.3 <= pair.score < MIN_COPY_SCORE
    assert not pair.copy
    assert {"reviews", "pull", "requests", "bugs", "style"} <= {"review", *pair.shared, "reviews"}
    assert "security" in pair.apart[0]
    assert "tests" in pair.apart[1]
    assert found.worst == pair.score
    told = pair.to_dict()
    assert told["skills"][0]["name"] == "code-review"
    assert told["skills"][0]["only"] == list(pair.apart[0])


@pytest.mark.parametrize("seed", range(5))
def test_the_closest_are_those_that_comparing_every_two_finds(seed):
    skills = _random(60, seed)
    near = {
        skill.ref: {
            pair.other.ref: pair.score
            for pair in compare_one(skill, skills, least=0.2, limit=100).pairs
        }
        for skill in skills
    }
    one_by_one: dict[frozenset[str], float] = {}
    for one, other in permutations(near, 2):
        score = near[one].get(other, 0.0)
        assert score == pytest.approx(near[other].get(one, 0.0))  # the same from either side
        if score:
            one_by_one[frozenset((one, other))] = round(score, 9)
    whole = compare(skills, least=0.2, limit=10_000)
    members = [{one.ref for one in group.skills} for group in whole.groups]
    heads = {skill.ref for skill in skills} - {
        one.ref for group in whole.groups for one in group.skills[1:]
    }
    expected = {pair: score for pair, score in one_by_one.items() if pair <= heads}
    found = {frozenset((p.one.ref, p.other.ref)): round(p.score, 9) for p in whole.pairs}
    assert found == expected
    assert all(score < MIN_COPY_SCORE for score in found.values())
    # Near copies are near the one that stands for them, and nobody is in two groups.
    for group in whole.groups:
        first = group.skills[0].ref
        scores = [one_by_one[frozenset((first, one.ref))] for one in group.skills[1:]]
        assert min(scores) >= MIN_COPY_SCORE
        assert group.score == pytest.approx(min(scores))
    assert sum(map(len, members)) == len(set().union(*members)) if members else True
    # A limit changes nothing but the number.
    few = compare(skills, least=0.2, limit=7)
    assert [pair.score for pair in few.pairs] == [pair.score for pair in whole.pairs[:7]]
    assert few.more
    assert not whole.more


def test_the_same_words_are_one_group_whatever_their_order():
    skills = [
        _skill("notes", "Writes release notes.", 1),
        _skill("notes", "Notes: writes a release", 2),
        _skill("notes", "Release notes! Writes them.", 3),
        _skill("bread", "Bakes loaves."),
    ]
    found = compare(skills)
    (group,) = found.groups
    assert len(group.skills) == 3
    assert group.score == pytest.approx(1.0)
    assert found.pairs == []
    assert group.to_dict()["count"] == 3
    assert found.worst == pytest.approx(1.0)
    one = compare_one(skills[1], skills)
    assert [(pair.copy, round(pair.score, 6)) for pair in one.pairs] == [(True, 1.0), (True, 1.0)]
