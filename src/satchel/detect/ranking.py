"""Ranking: combines the scores of skills, drops near duplicates, and decides whether the best fits.

A *signal* is one way to score skills: words of the header, words of the body, embeddings. Each
signal is scaled to 0..1 over the library and the weighted sum decides. Ranks are not combined: a
weak signal would count as much as a strong one. Signal weights were chosen by cross-validation on
labelled requests (`benchmarks/retrieval_fit.py`); field weights were set by hand on the same
requests.

No skill is selected when the probability that the best one fits is below `FIT_THRESHOLD`. The
weights of this probability come from the same benchmark.
"""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.stemmer import stem
from satchel.detect.stop_words import LINKING_WORDS
from satchel.detect.tokenizer import extract_terms, split_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from satchel.skill import Skill

HEADER_FIELD_WEIGHTS = {"name": 0.7, "description": 1.0, "when": 1.0, "triggers": 0.7}
"""BM25 field weights of the signal `head`."""
WORD_SIGNAL_FIELDS = {"head": HEADER_FIELD_WEIGHTS, "body": {"body": 1.0}}
"""The signals of an index, each with the weights of its fields."""
WORD_SIGNAL_WEIGHTS = {"head": 0.675, "body": 0.325}
"""Signal weights without embeddings."""
EMBEDDING_SIGNAL_WEIGHTS = {
    "head": 0.267,
    "body": 0.154,
    "about": 0.064,
    "name": 0.134,
    "clauses": 0.381,
}
"""Signal weights with embeddings: `about` compares the goal with name and description, `name` with
the name, `clauses` the best of its sentences with name and description."""
MIN_DUPLICATE_SHARE = 0.9
"""Share of all words of two descriptions that near duplicates have in common."""
FIT_THRESHOLD = 0.5
"""The fit weights are shifted so that the threshold is always a half."""
FIT_WEIGHTS_WITHOUT_VECTORS: Mapping[str, float] = {
    "bias": -1.961,
    "term_coverage": 2.728,
    "log_matched_terms": 1.006,
    "score_gap": 1.642,
}
FIT_WEIGHTS_WITH_VECTORS: Mapping[str, float] = {
    "bias": -2.659,
    "term_coverage": 0.628,
    "log_matched_terms": 0.653,
    "score_gap": 3.366,
    "goal_cosine": 1.657,
    "best_clause_cosine": 2.108,
}
MIN_LIBRARY_SKILLS = 20
"""A smaller library has no reliable common ground of descriptions."""
_MIN_COSINE = 0.2
"""For a request that shares no word with the best skill of a small library. A small BERT gives up
to 0.1 for unrelated texts and from 0.25 for the same request in other words."""
_MIN_SIGNAL_RANGE = 1e-9
_MAX_COMPARED_CHARS = 1_000
_MIN_COMPARED_WORDS = 6
"""Shorter descriptions are duplicates only with equal words and name."""
_CJK_SYNONYMS = {"skill": ("技能", "スキル", "스킬"), "tool": ("工具", "ツール", "도구")}
_pair_total: Callable[[tuple[str, float]], float] = itemgetter(1)


class Signal(NamedTuple):
    """The scores of one signal."""

    scores: Mapping[str, float]
    """By key; missing skills have `low`."""
    low: float = 0.0
    """The lowest score in the library."""


class ScaledSignal(NamedTuple):
    """A signal that contributes to a combined score."""

    name: str
    scores: Mapping[str, float]
    low: float
    """The lowest score in the library."""
    scale: float
    """A score above the lowest contributes this many times its difference."""


class RankedSkill(NamedTuple):
    """A skill in a ranking."""

    key: str
    score: float
    signals: tuple[ScaledSignal, ...] = ()

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
    signals: tuple[ScaledSignal, ...]

    def best(self, limit: int | None = None) -> list[RankedSkill]:
        """Return the best `limit` skills; ties are ordered by key."""
        return [
            RankedSkill(key, total, self.signals) for key, total in _select_best(self.totals, limit)
        ]


class FitFeatures(NamedTuple):
    """Features of the best skill in a ranking."""

    term_coverage: float = 0.0
    """Share of the goal's term weight in its name and description."""
    log_matched_terms: float = 0.0
    """Logarithm of the number of significant terms they contain."""
    score_gap: float = 0.0
    """Score distance to the fifth skill, 0..1."""
    goal_cosine: float = 0.0
    """The cosine of goal and skill; 0 without vectors."""
    best_clause_cosine: float = 0.0
    """The best cosine of one sentence of the goal."""


class _Description(NamedTuple):
    """What is compared of a skill to find near duplicates."""

    words: frozenset[str]
    name: str


def combine(
    signals: Mapping[str, Signal], weights: Mapping[str, float], excluded: Iterable[str] = ()
) -> CombinedScores:
    """Add up the weighted signals.

    Args:
        signals: Signals by name.
        weights: Weights by name; those of missing signals are distributed among the others.
        excluded: Keys to exclude.
    """
    excluded_keys = set(excluded)
    total_weight = sum(
        weight for name, weight in weights.items() if name in signals and signals[name].scores
    )
    scaled_signals: list[ScaledSignal] = []
    totals: dict[str, float] = {}
    for name, weight in weights.items():
        if name not in signals:
            continue
        scores, low = signals[name]
        if excluded_keys:
            scores = {key: score for key, score in scores.items() if key not in excluded_keys}
        high = max(scores.values(), default=low)
        if high - low < _MIN_SIGNAL_RANGE:
            continue
        scale = weight / total_weight / (high - low)
        scaled_signals.append(ScaledSignal(name, scores, low, scale))
        if not totals:
            totals = {key: (score - low) * scale for key, score in scores.items()}
            continue
        total_of = totals.get
        for key, score in scores.items():
            totals[key] = total_of(key, 0.0) + (score - low) * scale
    return CombinedScores(totals, tuple(scaled_signals))


def _select_best(totals: Mapping[str, float], limit: int | None) -> list[tuple[str, float]]:
    """Return the best pairs; numbers sort faster than pairs, so few pairs are sorted."""
    pairs: Iterable[tuple[str, float]] = totals.items()
    if limit is not None and 0 < limit < len(totals):
        min_total = sorted(totals.values())[-limit]
        pairs = [pair for pair in pairs if pair[1] >= min_total]
    ordered = sorted(pairs)
    ordered.sort(key=_pair_total, reverse=True)  # ties keep the key order
    return ordered[:limit]


def drop_near_duplicates(
    skills: Sequence[Skill], goal_terms: Container[str] = (), limit: int | None = None
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the positions of ranked skills without near duplicates, and the duplicates.

    Args:
        skills: Best first.
        goal_terms: The goal's terms; a skill that differs in one of them is no duplicate.
        limit: How many to keep; later skills are not compared.

    Returns:
        The kept positions, and pairs of a duplicate and the kept position.
    """
    distinct: dict[int, _Description] = {}
    duplicates: list[tuple[int, int]] = []
    for position, skill in enumerate(skills):
        if limit is not None and len(distinct) >= limit:
            break
        text = skill.description[:_MAX_COMPARED_CHARS].lower()
        words = frozenset(text.split() if text.isascii() else extract_terms(text))
        description = _Description(words, skill.name.casefold().replace("_", "-"))
        original = next(
            (
                earlier_position
                for earlier_position, earlier in distinct.items()
                if _is_near_duplicate(earlier, description, goal_terms)
            ),
            None,
        )
        if original is None:
            distinct[position] = description
        else:
            duplicates.append((position, original))
    return list(distinct), duplicates


def _is_near_duplicate(
    earlier: _Description, description: _Description, goal_terms: Container[str]
) -> bool:
    """Whether two descriptions have nearly the same words and differ in no term of the goal."""
    # Lengths first: they exclude most pairs.
    smaller, larger = sorted((len(earlier.words), len(description.words)))
    if smaller < MIN_DUPLICATE_SHARE * larger:
        return False
    shared_words = earlier.words & description.words
    if len(shared_words) < MIN_DUPLICATE_SHARE * (smaller + larger - len(shared_words)):
        return False
    if smaller < _MIN_COMPARED_WORDS and earlier != description:
        return False
    shared_terms = set(extract_terms(" ".join(shared_words)))
    differing_terms = extract_terms(
        " ".join((earlier.words | {earlier.name}) ^ (description.words | {description.name}))
    )
    return not any(term in goal_terms and term not in shared_terms for term in differing_terms)


def fit_probability(
    features: FitFeatures, *, has_vectors: bool, is_small_library: bool = False
) -> float:
    """Return the probability that the best skill fits.

    Args:
        features: Its features.
        has_vectors: Whether embeddings were used.
        is_small_library: Whether the library has fewer than `MIN_LIBRARY_SKILLS` skills.
    """
    has_matched_terms = bool(features.log_matched_terms)
    if not has_vectors and not has_matched_terms:
        return 0.0  # stop words only, which a small library overrates
    best_cosine = max(features.goal_cosine, features.best_clause_cosine)
    if is_small_library and has_vectors and not has_matched_terms and best_cosine < _MIN_COSINE:
        return 0.0  # the nearest of a few may be unrelated
    weights = FIT_WEIGHTS_WITH_VECTORS if has_vectors else FIT_WEIGHTS_WITHOUT_VECTORS
    total = weights["bias"]
    for name, value in zip(FitFeatures._fields, features, strict=True):
        total += weights.get(name, 0.0) * value
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, total))))


def find_irrelevant_builtins(
    pieces: Iterable[str], keys: Iterable[str], by_key: Mapping[str, Skill]
) -> frozenset[str]:
    """Return the keys of built-in skills that a goal with these words is not about."""
    builtin_keys = [key for key in keys if by_key[key].origin.source == "builtin"]
    if not builtin_keys:
        return frozenset()
    words = {stem(piece) for piece in pieces}
    words |= {
        word
        for word, synonyms in _CJK_SYNONYMS.items()
        if any(synonym in piece for synonym in synonyms for piece in words)
    }
    return frozenset(
        key for key in builtin_keys if words.isdisjoint(_subject_words(by_key[key].name))
    )


def _subject_words(name: str) -> list[str]:
    """Return the words of a name, without the verb and linking words."""
    words = [stem(word) for word in split_pieces(name) if word not in LINKING_WORDS]
    return words[1:] or words
