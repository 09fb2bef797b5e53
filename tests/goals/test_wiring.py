"""Steps come after all they need, in an order that never changes."""

from __future__ import annotations

import pytest
from hypothesis import given

from goal_plans import dags
from satchel.errors import InvalidInput
from satchel.goals.model import Plan, Step
from satchel.goals.wiring import behind, circle, needs_in, needs_of, order, wire

pytestmark = pytest.mark.timeout(60)  # many examples, and machines that are busy


@given(dags())
def test_each_step_comes_after_all_it_needs(plan):
    found = order(plan)
    assert sorted(step.id for step in found) == sorted(step.id for step in plan.steps)
    place = {step.id: index for index, step in enumerate(found)}
    for step in plan.steps:
        assert all(place[need] < place[step.id] for need in needs_of(step))
    assert order(plan) == found


@given(dags())
def test_what_lies_behind_a_step_is_what_depends_on_it(plan):
    needs, dependents = wire(plan).needs, wire(plan).behind
    for step in plan.steps:
        after = behind(needs, [step.id])
        assert step.id in after
        assert all(set(dependents[name]) <= after for name in after)
        for other in plan.steps:
            if other.id not in after:
                assert not set(needs[other.id]) & after


def test_steps_that_texts_mention_are_needed():
    step = Step("x", prompt="{{steps.b.output}}", needs=("a", "b"))
    assert needs_of(step) == ("a", "b")
    assert needs_of(step._replace(needs=())) == ("b",)


def test_a_circle_is_shown():
    plan = Plan(
        "g",
        (
            Step("a", needs=("c",)),
            Step("b", needs=("a",)),
            Step("c", needs=("b",)),
            Step("d", needs=("c",)),
        ),
    )
    with pytest.raises(InvalidInput, match="in a circle: `a` → `c` → `b` → `a`"):
        order(plan)
    assert circle({"a": ("a",)}) == ["a", "a"]
    assert circle({"a": ("b",), "b": ()}) == []


def test_a_long_chain_is_no_recursion():
    steps = [Step("s0")] + [Step(f"s{n}", needs=(f"s{n - 1}",)) for n in range(1, 2_000)]
    plan = Plan("g", tuple(reversed(steps)))
    assert [step.id for step in order(plan)] == [f"s{n}" for n in range(2_000)]
    needs = dict(needs_in(plan), s0=("s1999",))
    assert len(circle(needs)) == 2_001
