"""The verdict over simulated evaluations with known probabilities, at the default size."""

from __future__ import annotations

import random

import pytest

from satchel.evals.comparison import PairedScores, compare, default_repeats

EVALUATIONS = 200
CASES = 10


def verdicts(skill: float, without: float, *, cases: int = CASES, spread: float = 0.0) -> list[str]:
    """The verdicts of simulated evaluations; cases differ by up to `spread` in difficulty."""
    source, repeats = random.Random(7), default_repeats(cases)
    found = []
    for _ in range(EVALUATIONS):
        shifts = [source.uniform(-spread, spread) for _ in range(cases)]

        def runs(share: float, shift: float) -> tuple[float, ...]:
            return tuple(float(source.random() < share + shift) for _ in range(repeats))

        paired = [PairedScores(runs(skill, shift), runs(without, shift)) for shift in shifts]
        found.append(compare(paired).verdict)
    return found


@pytest.mark.parametrize(
    ("skill", "without", "right"),
    [(0.8, 0.4, "helps"), (0.7, 0.3, "helps"), (0.6, 0.2, "helps"), (0.4, 0.8, "harms")],
)
@pytest.mark.parametrize(("cases", "spread"), [(10, 0.0), (3, 0.0), (10, 0.15)])
def test_a_difference_of_40_points_is_seen(skill, without, right, cases, spread):
    found = verdicts(skill, without, cases=cases, spread=spread)
    assert found.count(right) >= 0.9 * EVALUATIONS
    assert not {"helps", "harms"} - {right} & set(found)


def test_a_difference_of_20_points_is_never_taken_for_harm():
    found = verdicts(0.6, 0.4)
    assert found.count("harms") == 0
    assert found.count("helps") >= 0.3 * EVALUATIONS
    assert set(found) <= {"helps", "no difference seen"}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("cases", "spread"), [(10, 0.0), (3, 0.0), (10, 0.1)])
def test_a_useless_skill_seldom_gets_a_verdict(share, cases, spread):
    found = verdicts(share, share, cases=cases, spread=spread)
    assert found.count("helps") + found.count("harms") <= 0.05 * EVALUATIONS
    assert found.count("not enough runs") == 0


def test_few_runs_give_no_verdict():
    one = [PairedScores((1.0,), (0.0,))]
    assert compare(one).verdict == "not enough runs"
    assert compare([]).verdict == "not enough runs"
    assert (
        compare([PairedScores((1.0, 0.0, 1.0), (0.0, 1.0, 0.0))] * 3).verdict == "not enough runs"
    )
    assert compare([PairedScores((1.0,) * 3, (0.0,) * 3)] * 3).verdict == "helps"


def test_the_interval_holds_the_difference_and_shares_count():
    found = compare([PairedScores((1.0, 0.75, 1.0), (0.5, 0.25, 0.5))] * 5)
    assert found.low < found.difference < found.high
    assert found.rate == pytest.approx(11 / 12)
    same = compare([PairedScores((0.5,) * 5, (0.5,) * 5)] * 9)
    assert (same.verdict, same.difference, same.probability) == ("no difference seen", 0.0, 1.0)
