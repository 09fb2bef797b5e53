"""How do several scores become one?

A *leg* is one way to score skills: words of the head, words of the body, meanings. Each leg is
stretched to 0..1 over the library, and the sum of weight times leg decides. Ranks are not fused: a
weak leg would count as much as a strong one. What the legs weigh was chosen by cross-validation on
labelled requests (`benchmarks/retrieval_fit.py`); what the fields of a head weigh was set by hand,
with a look at the same requests.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
