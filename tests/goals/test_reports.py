"""Records go to JSON and come back the same; a goal is summed up the same everywhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goal_plans import dags
from satchel.errors import InvalidInput
from satchel.goals.model import (
    Goal,
    GoalBudget,
    Plan,
    Retry,
    Step,
    StepCall,
    StepError,
    StepResult,
    Usage,
)
from satchel.goals.reports import pack, report_of, unpack, valid_results

pytestmark = pytest.mark.timeout(60)  # many examples, and machines that are busy

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
RESULTS = st.builds(
    StepResult,
    step=st.sampled_from(["s0", "s1"]),
    state=st.sampled_from(["done", "failed", "asking"]),
    output=JSON,
    error=st.none() | st.builds(StepError, st.text(), st.text(), st.text(), st.booleans()),
    attempts=st.integers(0, 9),
    usage=st.builds(
        Usage, st.integers(0), st.integers(0), st.integers(0), st.none() | st.floats(0, 9)
    ),
    started=st.floats(0, 2e9),
    seconds=st.floats(0, 1e5),
    skills=st.lists(st.text(), max_size=2).map(tuple),
    notes=st.lists(st.text(), max_size=2).map(tuple),
)


def through_json(record):
    return unpack(type(record), json.loads(json.dumps(pack(record))))


@given(dags(), JSON, st.none() | st.floats(0.1, 9))
def test_plans_come_back(plan, value, seconds):
    steps = (*plan.steps, Step("t", "tool", tool="x", arguments={"v": value}, retry=Retry(7)))
    plan = plan._replace(
        steps=steps, inputs={"v": value}, timeout=seconds, budget=GoalBudget(cost=seconds)
    )
    assert through_json(plan) == plan
    assert through_json(Goal("g", plan)) == Goal("g", plan)
    call = StepCall("g", steps[0], plan.inputs, {"a": value}, "g", 2, plan.retry, seconds)
    assert through_json(call) == call


@given(st.lists(RESULTS, max_size=3), dags(3))
def test_results_and_reports_come_back(found, plan):
    results = {result.step: result for result in found}
    assert [through_json(result) for result in found] == found
    report = report_of(Goal("g", plan), results, "running", engine="local", revision=3)
    assert through_json(report) == report


@pytest.mark.parametrize("packed", [None, [], "x", {}])
def test_an_invalid_record_is_an_error(packed):
    with pytest.raises(InvalidInput):
        unpack(StepResult, packed)


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
    return list(valid_results(PLAN, new, {**DONE, **changes}, from_step))


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
