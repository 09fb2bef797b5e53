"""A goal that is tried again keeps what still holds, and nothing else."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goal_plans import dags
from satchel.goals.model import Plan, Step, StepResult, StepState
from satchel.goals.revision import going_on, still_known
from satchel.goals.wiring import behind, needs_in

pytestmark = pytest.mark.timeout(60)  # many examples, and machines that are busy

PLAN = Plan(
    "g",
    (
        Step("a", prompt="{{inputs.x}}"),
        Step("b", prompt="{{steps.a.output}}"),
        Step("c", prompt="{{goal}}"),
        Step("d", needs=("b", "c")),
    ),
    {"x": 1},
)
DONE = {name: StepResult(name, "done", name) for name in "abcd"}


def kept(new: Plan = PLAN, from_step: str = "", **changes) -> list[str]:
    return list(still_known(PLAN, new, {**DONE, **changes}, from_step))


def test_a_changed_step_a_new_need_and_a_changed_input_are_seen():
    steps = PLAN.steps
    assert kept(PLAN._replace(inputs={"x": 2})) == ["c"]
    assert kept(PLAN._replace(goal="h")) == ["a", "b"]
    assert kept(PLAN._replace(inputs={"x": 1, "y": 2})) == ["a", "b", "c", "d"]
    changed = (*steps[:1], steps[1]._replace(title="B"), *steps[2:])
    assert kept(PLAN._replace(steps=changed)) == ["a", "c"]
    more = (Step("new"), *steps[:2], steps[2]._replace(needs=("new",)), steps[3])
    assert kept(PLAN._replace(steps=more)) == ["a", "b"]
    assert kept(PLAN._replace(steps=steps[:3])) == ["a", "b", "c"]


@given(dags(), st.data())
def test_kept_results_depend_only_on_kept_ones(plan, data):
    names = [step.id for step in plan.steps]
    results = {
        name: StepResult(name, data.draw(st.sampled_from(["done", "failed"]))) for name in names
    }
    start = data.draw(st.sampled_from(["", *names]))
    found = still_known(plan, plan, results, start)
    needs = needs_in(plan)
    for name in found:
        assert results[name].state == "done"
        assert set(needs[name]) <= set(found)
    if start:
        assert not behind(needs, [start]) & set(found)


def test_the_next_run_of_a_revision_knows_what_ended():
    results = {state: StepResult(state, state) for state in get_args(StepState)}
    assert set(going_on(results)) == {"done", "failed", "skipped"}


def test_true_is_not_one():
    old = Plan("g", (Step("a", "tool", tool="t", arguments={"x": True}),))
    new = Plan("g", (Step("a", "tool", tool="t", arguments={"x": 1}),))
    results = {"a": StepResult("a", "done")}
    assert still_known(old, new, results) == {}
    assert still_known(old, old, results) == results
    said = Step("a", prompt="{{inputs.x}}")
    old, new = (Plan("g", (said,), inputs={"x": value}) for value in (0, False))
    assert still_known(old, new, results) == {}
