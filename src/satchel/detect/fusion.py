"""How do several scores become one?

A *leg* is one way to score skills: words of the head, words of the body, meanings. Each leg is
stretched to 0..1 over the library, and the sum of weight times leg decides. Ranks are not fused: a
weak leg would count as much as a strong one. What the legs weigh was chosen by cross-validation on
labelled requests (`benchmarks/retrieval_fit.py`); what the fields of a head weigh was set by hand,
with a look at the same requests.
"""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.terms import LINKS, pieces_of, stem, terms_of
from satchel.skill.model import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from satchel.skill import Skill

HEAD = {"name": 0.7, "description": 1.0, "when": 1.0, "triggers": 0.7}
"""What the fields of the head add to the one leg `head`, in BM25."""

OF_WORDS = {"head": HEAD, "body": {"body": 1.0}}
"""The legs that an index makes."""

WORDS = {"head": 0.675, "body": 0.325}
"""The legs where there are only words."""

MEANING = {"head": 0.267, "body": 0.154, "about": 0.064, "name": 0.134, "clauses": 0.381}
"""The legs where a model compares meanings too: the goal with name and description, with the name
alone, and the best of the goal's sentences with name and description."""


_NOTHING = 1e-9
_TOTAL: Callable[[tuple[str, float]], float] = itemgetter(1)


class Leg(NamedTuple):
    """One way to score, over a library."""

    scores: Mapping[str, float]
    """By key; a skill that is not here has `low`."""
    low: float = 0.0
    """The least score of the whole library."""


class Fused(NamedTuple):
    """One skill's place in a ranking."""

    key: str
    score: float
    """0..1."""
    legs: tuple[tuple[str, Mapping[str, float], float, float], ...] = ()
    """Those that were fused: name, scores, least score, and what a score is multiplied by."""

    @property
    def parts(self) -> dict[str, float]:
        """What each leg gave to it. Of most nobody asks: it is not made before."""
        key = self.key
        return {
            name: (scores[key] - low) * scale
            for name, scores, low, scale in self.legs
            if key in scores
        }


class Mixed(NamedTuple):
    """The skills of some legs with what they have together, in no order.

    A library may have a million: who only wants to know where one of them stands makes nothing of
    the others.
    """

    totals: Mapping[str, float]
    legs: tuple[tuple[str, Mapping[str, float], float, float], ...]

    def best(self, most: int | None = None) -> list[Fused]:
        """The best so many, or all, best first; equal ones in the order of their keys."""
        return [Fused(key, total, self.legs) for key, total in _best(self.totals, most)]

    def of(self, key: str) -> Fused | None:
        """One skill; None when it is in no leg."""
        return Fused(key, self.totals[key], self.legs) if key in self.totals else None

    def before(self, one: Fused) -> int:
        """How many come before a skill."""
        own, same = one.score, one.key
        better = sum(map(own.__lt__, self.totals.values()))
        return better + sum(key < same for key, total in self.totals.items() if total == own)


def mix(
    legs: Mapping[str, Leg], weights: Mapping[str, float], without: Iterable[str] = ()
) -> Mixed:
    """What the skills of all legs have together.

    Args:
        legs: By name.
        weights: By name; those of missing legs are shared out among the others.
        without: Keys to pass over.
    """
    gone = set(without)
    whole = sum(weight for name, weight in weights.items() if name in legs and legs[name].scores)
    used: list[tuple[str, Mapping[str, float], float, float]] = []
    totals: dict[str, float] = {}
    for name, weight in weights.items():
        if name not in legs:
            continue
        scores, low = legs[name]
        if gone:
            scores = {key: score for key, score in scores.items() if key not in gone}
        high = max(scores.values(), default=low)
        if high - low < _NOTHING:
            continue
        scale = weight / whole / (high - low)
        used.append((name, scores, low, scale))
        if not totals:
            totals = {key: (score - low) * scale for key, score in scores.items()}
            continue
        given = totals.get
        for key, score in scores.items():
            totals[key] = given(key, 0.0) + (score - low) * scale
    return Mixed(totals, tuple(used))


def fuse(
    legs: Mapping[str, Leg],
    weights: Mapping[str, float],
    without: Iterable[str] = (),
    most: int | None = None,
) -> list[Fused]:
    """The skills of all legs, best first; `most` of them, or all."""
    return mix(legs, weights, without).best(most)


def _best(totals: Mapping[str, float], most: int | None) -> list[tuple[str, float]]:
    """The best so many, best first. Numbers are sorted quickly, pairs are not: few are made."""
    pairs: Iterable[tuple[str, float]] = totals.items()
    if most is not None and 0 < most < len(totals):
        least = sorted(totals.values())[-most]
        pairs = [pair for pair in pairs if pair[1] >= least]
    ordered = sorted(pairs)
    ordered.sort(key=_TOTAL, reverse=True)  # equal ones stay in the order of their keys
    return ordered[:most]


THRESHOLD = 0.5
"""Below this no skill is said to fit; the weights are shifted so that it is always a half."""

FEWEST = 20
"""Skills from which on is known what all descriptions have in common."""
_NEAR = 0.2
"""The least cosine of a request that shares no word with the first one, where that is not known.
Of a small BERT those of strangers are up to 0.1, of the same wish in other words from 0.25."""


class Signs(NamedTuple):
    """What can be seen of the first one in a ranking."""

    cover: float = 0.0
    """How much of the goal's weight its name and description have, 0..1."""
    matched: float = 0.0
    """How many telling terms of the goal they have, as a logarithm."""
    gap: float = 0.0
    """How far the fifth one is behind, 0..1."""
    alike: float = 0.0
    """The cosine of goal and skill; 0 without vectors."""
    clause: float = 0.0
    """The best cosine of one sentence of the goal."""
    named: float = 0.0
    """The cosine of goal and name."""


WORDS_ONLY: Mapping[str, float] = {
    "bias": -1.961,
    "cover": 2.728,
    "matched": 1.006,
    "gap": 1.642,
}
"""The weights without vectors."""
WITH_MEANING: Mapping[str, float] = {
    "bias": -2.659,
    "cover": 0.628,
    "matched": 0.653,
    "gap": 3.366,
    "alike": 1.657,
    "clause": 2.108,
}
"""The weights with vectors."""


def fit_of(signs: Signs, *, meaning: bool, few: bool = False) -> float:
    """How sure it is that the first one fits, 0..1.

    Args:
        signs: What can be seen of it.
        meaning: Meanings were compared.
        few: The library has fewer than `FEWEST` skills.
    """
    if not meaning and not signs.matched:
        return 0.0  # words of grammar alone: a short library makes much of them
    if few and meaning and not signs.matched and max(signs.alike, signs.clause) < _NEAR:
        return 0.0  # the nearest of a few may be far from it
    weights = WITH_MEANING if meaning else WORDS_ONLY
    total = weights["bias"]
    for name, value in zip(Signs._fields, signs, strict=True):
        total += weights.get(name, 0.0) * value
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, total))))


ALIKE = 0.9
"""Shared terms over all terms, from which two descriptions are one."""
_COMPARED = 1_000
"""Characters of a description that are compared."""
_SHORT = 6
"""A description of fewer terms says too little to be compared: its name must be the same too."""


class _Said(NamedTuple):
    """What one skill says of itself, cut once."""

    name: str
    words: frozenset[str]


def collapse(
    skills: Sequence[Skill], goal: Container[str] = (), most: int | None = None
) -> tuple[list[int], list[tuple[int, int]]]:
    """Which of some ranked skills stand for themselves, and which for whom the others.

    Args:
        skills: Best first.
        goal: The goal's terms.
        most: How many are to stay; who comes later is not looked at.

    Returns:
        Positions that stay, and pairs of a near copy and the position that stands for it.
    """
    kept: list[int] = []
    copies: list[tuple[int, int]] = []
    said: list[_Said] = []
    for at, skill in enumerate(skills):
        if most is not None and len(kept) >= most:
            break
        said.append(_said(skill))
        for earlier in kept:
            if _alike(said[earlier], said[at], goal):
                copies.append((at, earlier))
                break
        else:
            kept.append(at)
    return kept, copies


def _alike(one: _Said, other: _Said, goal: Container[str]) -> bool:
    first, second = one.words, other.words
    fewer, more = sorted((len(first), len(second)))
    if fewer < ALIKE * more or len(first & second) < ALIKE * len(first | second):
        return False  # the common case, and nothing was cut for it
    if fewer < _SHORT and (first != second or one.name != other.name):
        return False
    both = set(terms_of(" ".join(first & second)))
    apart = terms_of(" ".join((first | {one.name}) ^ (second | {other.name})))
    return not any(term in goal and term not in both for term in apart)


def _said(skill: Skill) -> _Said:
    text = skill.description[:_COMPARED].lower()
    words = text.split() if text.isascii() else terms_of(text)
    return _Said(skill.name.casefold().replace("_", "-"), frozenset(words))


_SOURCE = Origin._fields.index("source")
_ELSEWHERE = {"skill": ("技能", "スキル", "스킬"), "tool": ("工具", "ツール", "도구")}
"""The same things in scripts that write no spaces."""


def off_subject(goal: str, keys: Iterable[str], by_key: Mapping[str, Skill]) -> frozenset[str]:
    """Which of some keys are of skills that are shipped, and that the goal is not about."""
    # By position, for every search comes here: the source of a skill's origin.
    shipped = [key for key in keys if by_key[key][1][_SOURCE] == "builtin"]
    if not shipped:
        return frozenset()
    said = {stem(piece) for piece in pieces_of(goal)}
    said |= {word for word, others in _ELSEWHERE.items() if any(one in goal for one in others)}
    return frozenset(key for key in shipped if said.isdisjoint(_subject(by_key[key].name)))


def _subject(name: str) -> list[str]:
    """The words of a name, without the verb and what links them."""
    words = [stem(word) for word in pieces_of(name) if word not in LINKS]
    return words[1:] or words
