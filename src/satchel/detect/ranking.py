"""Ranking: combines the scores of skills, and drops near duplicates.

A *signal* is one way to score skills: words of the header, words of the body, embeddings. Each
signal is scaled to 0..1 over the library and the weighted sum decides. Ranks are not combined: a
weak signal would count as much as a strong one. Signal weights were chosen by cross-validation on
labelled requests (`benchmarks/retrieval_fit.py`); field weights were set by hand on the same
requests.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.tokenizer import terms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from satchel.skill import Skill

HEAD = {"name": 0.7, "description": 1.0, "when": 1.0, "triggers": 0.7}
"""BM25 field weights of the signal `head`."""

OF_WORDS = {"head": HEAD, "body": {"body": 1.0}}
"""The signals of an index."""

WORDS = {"head": 0.675, "body": 0.325}
"""Signal weights without embeddings."""

MEANING = {"head": 0.267, "body": 0.154, "about": 0.064, "name": 0.134, "clauses": 0.381}
"""Signal weights with embeddings: `about` compares the goal with name and description, `name` with
the name, `clauses` the best of its sentences with name and description."""


_MIN_SIGNAL_RANGE = 1e-9
_TOTAL: Callable[[tuple[str, float]], float] = itemgetter(1)


class Signal(NamedTuple):
    """The scores of one signal."""

    scores: Mapping[str, float]
    """By key; missing skills have `low`."""
    low: float = 0.0
    """The lowest score in the library."""


class RankedSkill(NamedTuple):
    """A skill in a ranking."""

    key: str
    score: float
    signals: tuple[tuple[str, Mapping[str, float], float, float], ...] = ()
    """Name, scores, lowest score and scale of each combined signal."""

    @property
    def parts(self) -> dict[str, float]:
        """The contribution of each signal; computed on access."""
        key = self.key
        return {
            name: (scores[key] - low) * scale
            for name, scores, low, scale in self.signals
            if key in scores
        }


class CombinedScores(NamedTuple):
    """Unsorted combined scores.

    Only the requested part is sorted: a library may have a million skills.
    """

    totals: Mapping[str, float]
    signals: tuple[tuple[str, Mapping[str, float], float, float], ...]

    def best(self, most: int | None = None) -> list[RankedSkill]:
        """Return the best `most` skills; ties are ordered by key."""
        return [RankedSkill(key, total, self.signals) for key, total in _best(self.totals, most)]


def combine(
    signals: Mapping[str, Signal], weights: Mapping[str, float], without: Iterable[str] = ()
) -> CombinedScores:
    """Add up the weighted signals.

    Args:
        signals: Signals by name.
        weights: Weights by name; those of missing signals are distributed among the others.
        without: Keys to exclude.
    """
    gone = set(without)
    whole = sum(
        weight for name, weight in weights.items() if name in signals and signals[name].scores
    )
    used: list[tuple[str, Mapping[str, float], float, float]] = []
    totals: dict[str, float] = {}
    for name, weight in weights.items():
        if name not in signals:
            continue
        scores, low = signals[name]
        if gone:
            scores = {key: score for key, score in scores.items() if key not in gone}
        high = max(scores.values(), default=low)
        if high - low < _MIN_SIGNAL_RANGE:
            continue
        scale = weight / whole / (high - low)
        used.append((name, scores, low, scale))
        if not totals:
            totals = {key: (score - low) * scale for key, score in scores.items()}
            continue
        given = totals.get
        for key, score in scores.items():
            totals[key] = given(key, 0.0) + (score - low) * scale
    return CombinedScores(totals, tuple(used))


def _best(totals: Mapping[str, float], most: int | None) -> list[tuple[str, float]]:
    """Return the best pairs; numbers sort faster than pairs, so few pairs are sorted."""
    pairs: Iterable[tuple[str, float]] = totals.items()
    if most is not None and 0 < most < len(totals):
        least = sorted(totals.values())[-most]
        pairs = [pair for pair in pairs if pair[1] >= least]
    ordered = sorted(pairs)
    ordered.sort(key=_TOTAL, reverse=True)  # ties keep the key order
    return ordered[:most]


MIN_DUPLICATE_SHARE = 0.9
"""Shared terms over all terms."""
_MAX_COMPARED_CHARS = 1_000
_MIN_COMPARED_TERMS = 6
"""Shorter descriptions are duplicates only with equal text and name."""


def drop_near_duplicates(
    skills: Sequence[Skill], goal: Container[str] = (), most: int | None = None
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the positions of ranked skills without near duplicates, and the duplicates.

    Args:
        skills: Best first.
        goal: The goal's terms; a skill that differs in one of them is no duplicate.
        most: How many to keep; later skills are not compared.

    Returns:
        The kept positions, and pairs of a duplicate and the kept position.
    """
    kept: dict[int, frozenset[str]] = {}
    copies: list[tuple[int, int]] = []
    for at, skill in enumerate(skills):
        if most is not None and len(kept) >= most:
            break
        text = skill.description[:_MAX_COMPARED_CHARS].lower()
        words = frozenset(text.split() if text.isascii() else terms_of(text))
        size = len(words)
        for earlier, others in kept.items():
            # Lengths first: they exclude most pairs.
            fewer, more = (size, len(others)) if size < len(others) else (len(others), size)
            if fewer < MIN_DUPLICATE_SHARE * more:
                continue
            shared = others & words
            if len(shared) < MIN_DUPLICATE_SHARE * (fewer + more - len(shared)):
                continue
            names = [skills[one].name.casefold().replace("_", "-") for one in (earlier, at)]
            if fewer < _MIN_COMPARED_TERMS and (words != others or names[0] != names[1]):
                continue
            both = set(terms_of(" ".join(shared)))
            apart = terms_of(" ".join((others | {names[0]}) ^ (words | {names[1]})))
            if not any(term in goal and term not in both for term in apart):
                copies.append((at, earlier))
                break
        else:
            kept[at] = words
    return list(kept), copies
