"""Does the best skill fit at all? A ranking always has a first; a request need not have a skill.

A few signs of the first one go into a logistic function whose weights were fitted on requests with
and without their right skill (`benchmarks/retrieval_fit.py`). The threshold is set where five of a
hundred right skills would be lost: what is kept silent is lost, what is named too much costs
a line.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

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
