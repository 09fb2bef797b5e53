"""The statistic of an evaluation: two arms compared case by case, and the verdict.

Each case has as many scores with the skill as without it. If the skill made no difference, the
scores of a case could be dealt to the two arms in any way: the exact distribution of the
difference over all ways gives the probability of one at least as large. The interval is that of
Agresti and Caffo over all pairs. A verdict needs both.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

Verdict = Literal["helps", "no difference seen", "harms", "not enough runs"]
MIN_REPEATS = 3
DEFAULT_PAIRS_COUNT = 45
"""Pairs of runs of an evaluation, unless the repeats are given: a difference of 40 points is seen
in more than 90 % of the evaluations."""
MIN_PAIRS = 9
MAX_ERROR_PROBABILITY = 0.05
MAX_HALF_WIDTH = 0.3
"""A wider interval says nothing: a difference of 30 points may have been missed."""
_Z_SCORE = 1.96
_UNITS_SIZE = 10_000
_ROUNDING_SIZE = 50


class PairedScores(NamedTuple):
    """The scores of one case, from 0 to 1, as many in both arms."""

    skill: tuple[float, ...]
    baseline: tuple[float, ...]


class Comparison(NamedTuple):
    """Two pass rates and their difference."""

    verdict: Verdict
    pairs: int = 0
    rate: float = 0.0
    """Pass rate with the skill: the mean over the cases of the share of fulfilled criteria."""
    baseline_rate: float = 0.0
    difference: float = 0.0
    low: float = -1.0
    """The 95 % interval of the difference."""
    high: float = 1.0
    probability: float = 1.0
    """Of a difference at least as large, if the skill made none."""

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json` and receipts."""
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in self._asdict().items()
        }


def default_repeats(case_count: int) -> int:
    """The runs of each case and arm, unless they are given."""
    return max(MIN_REPEATS, math.ceil(DEFAULT_PAIRS_COUNT / max(case_count, 1)))


def compare(cases: Sequence[PairedScores]) -> Comparison:
    """Compare two arms; cases without scores are left out."""
    cases = [case for case in cases if case.skill]
    pairs = sum(len(case.skill) for case in cases)
    if not pairs:
        return Comparison("not enough runs")
    rate = sum(_mean(case.skill) for case in cases) / len(cases)
    baseline_rate = sum(_mean(case.baseline) for case in cases) / len(cases)
    probability = _error_probability(cases)
    center, half_width = _interval(rate, baseline_rate, pairs)
    low, high = max(center - half_width, -1.0), min(center + half_width, 1.0)
    if probability > MAX_ERROR_PROBABILITY:
        low, high = min(low, 0.0), max(high, 0.0)
    verdict: Verdict = "no difference seen"
    if pairs < MIN_PAIRS:
        verdict = "not enough runs"
    elif low > 0 or high < 0:
        verdict = "helps" if low > 0 else "harms"
    elif half_width > MAX_HALF_WIDTH:
        verdict = "not enough runs"
    return Comparison(
        verdict,
        pairs,
        rate=rate,
        baseline_rate=baseline_rate,
        difference=rate - baseline_rate,
        low=low,
        high=high,
        probability=min(probability, 1.0),
    )


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)


def _interval(rate: float, baseline_rate: float, pairs: int) -> tuple[float, float]:
    """Center and half width; one pass and one failure are added to each arm."""
    size = pairs + 2
    rates = [(rate * pairs + 1) / size, (baseline_rate * pairs + 1) / size]
    variance = sum(share * (1 - share) / size for share in rates)
    return rates[0] - rates[1], _Z_SCORE * math.sqrt(variance)


def _error_probability(cases: Sequence[PairedScores]) -> float:
    """The probability of a difference at least as large, over all ways to deal the scores."""
    distribution = {0: 1.0}
    observed, expected = 0, 0.0
    for case in cases:
        count = len(case.skill)
        units = [round(score / count * _UNITS_SIZE) for score in (*case.skill, *case.baseline)]
        observed += sum(units[:count])
        expected += sum(units) / 2
        ways_by_sum = _count_deals(units, count)
        ways = math.comb(2 * count, count)
        combined: dict[int, float] = {}
        for total, share in distribution.items():
            for part, number in ways_by_sum.items():
                combined[total + part] = combined.get(total + part, 0.0) + share * number / ways
        distribution = combined
    distance = abs(observed - expected) - _ROUNDING_SIZE
    return sum(share for total, share in distribution.items() if abs(total - expected) >= distance)


def _count_deals(units: Sequence[int], count: int) -> dict[int, int]:
    """How many choices of `count` units have each sum."""
    ways: list[dict[int, int]] = [{0: 1}, *({} for _ in range(count))]
    for unit in units:
        for size in range(count, 0, -1):
            for total, number in ways[size - 1].items():
                ways[size][total + unit] = ways[size].get(total + unit, 0) + number
    return ways[count]
