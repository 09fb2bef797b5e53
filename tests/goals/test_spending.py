"""A budget counts what all runs took, and only time at work."""

from __future__ import annotations

import pytest

from satchel.goals.model import Budget, Plan, Step, StepResult, Usage
from satchel.goals.reports import Spent
from satchel.goals.spending import Spending, spent

STEPS = (Step("a", prompt="x"), Step("h", "human", prompt="?"), Step("b", prompt="y"))
EARLIER = Spent(Usage(1, 15, 5, 0.1), 1.0)
RESULTS = {
    "a": StepResult("a", "done", usage=Usage(1, 60, 40, 0.5), started=10, seconds=3),
    "h": StepResult("h", "done", started=13, seconds=1_000),
}


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (Budget(), ""),
        (Budget(tokens=101), ""),
        (Budget(tokens=100), "The budget of 100 tokens is used up"),
        (Budget(cost=0.51), ""),
        (Budget(cost=0.5), "The budget of $0.5 is used up"),
        (Budget(seconds=6), ""),
        (Budget(seconds=5), "The budget of 5 seconds is used up"),
    ],
)
def test_what_is_used_up_is_named(budget, said):
    spending = Spending(Plan("g", STEPS, budget=budget))
    for result in RESULTS.values():
        spending.add(result)
    assert spending.used_up(RESULTS, {"b": 2_000.0}, 2_002.0) == said


def test_only_what_is_not_kept_is_carried_on():
    plan = Plan("g", STEPS)
    results = {
        **RESULTS,
        "b": StepResult("b", "failed", usage=Usage(1, 5, 5), started=2_000, seconds=2),
    }
    kept = {"a": results["a"]}
    took = spent(plan, results, kept)
    assert took == Spent(Usage(1, 5, 5), 2.0)
    assert spent(plan, results, {}, took) == Spent(Usage(3, 70, 50, 0.5), 7.0)
    assert spent(plan, results, results, took) is took
