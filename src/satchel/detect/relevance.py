"""Relevance: whether the best skill fits a request, and the threshold it must reach.

Below `FIT_THRESHOLD` no skill is selected. The weights come from `benchmarks/retrieval_fit.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.tokenizer import LINKS, pieces_of, stem
from satchel.skill.model import SkillOrigin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from satchel.skill import Skill

FIT_THRESHOLD = 0.5
"""The fit weights are shifted so that the threshold is always a half."""

MIN_LIBRARY_SKILLS = 20
"""A smaller library has no reliable common ground of descriptions."""
_MIN_COSINE = 0.2
"""For a request that shares no word with the best skill of a small library. A small BERT gives up
to 0.1 for unrelated texts and from 0.25 for the same request in other words."""


class FitFeatures(NamedTuple):
    """Features of the best skill in a ranking."""

    cover: float = 0.0
    """Share of the goal's term weight in its name and description."""
    matched: float = 0.0
    """Logarithm of the number of significant terms they contain."""
    gap: float = 0.0
    """Score distance to the fifth skill, 0..1."""
    alike: float = 0.0
    """The cosine of goal and skill; 0 without vectors."""
    clause: float = 0.0
    """The best cosine of one sentence of the goal."""
    named: float = 0.0
    """The cosine of goal and name."""


WORDS_ONLY: Mapping[str, float] = {"bias": -1.961, "cover": 2.728, "matched": 1.006, "gap": 1.642}
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


def fit_probability(features: FitFeatures, *, meaning: bool, few: bool = False) -> float:
    """Return the probability that the best skill fits.

    Args:
        features: Its features.
        meaning: Whether embeddings were used.
        few: Whether the library has fewer than `MIN_LIBRARY_SKILLS` skills.
    """
    if not meaning and not features.matched:
        return 0.0  # stop words only, which a small library overrates
    if (
        few
        and meaning
        and not features.matched
        and max(features.alike, features.clause) < _MIN_COSINE
    ):
        return 0.0  # the nearest of a few may be unrelated
    weights = WITH_MEANING if meaning else WORDS_ONLY
    total = weights["bias"]
    for name, value in zip(FitFeatures._fields, features, strict=True):
        total += weights.get(name, 0.0) * value
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, total))))


_SOURCE = SkillOrigin._fields.index("source")
_ELSEWHERE = {"skill": ("技能", "スキル", "스킬"), "tool": ("工具", "ツール", "도구")}
"""CJK words with the same meaning."""


def irrelevant_builtins(
    pieces: Iterable[str], keys: Iterable[str], by_key: Mapping[str, Skill]
) -> frozenset[str]:
    """Return the keys of built-in skills that a goal with these words is not about."""
    # By position: attribute access is slow, and every search comes here.
    shipped = [key for key in keys if by_key[key][1][_SOURCE] == "builtin"]
    if not shipped:
        return frozenset()
    said = {stem(piece) for piece in pieces}
    said |= {
        word
        for word, others in _ELSEWHERE.items()
        if any(one in piece for one in others for piece in said)
    }
    return frozenset(key for key in shipped if said.isdisjoint(_subject(by_key[key].name)))


def _subject(name: str) -> list[str]:
    """Return the words of a name, without the verb and linking words."""
    words = [stem(word) for word in pieces_of(name) if word not in LINKS]
    return words[1:] or words
