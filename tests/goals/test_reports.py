"""Records go to JSON and come back the same; a goal is summed up the same everywhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goal_plans import dags
from satchel.errors import InvalidInput
from satchel.goals.model import (
    Budget,
    Goal,
    Plan,
    Retry,
    Step,
    StepCall,
    StepError,
    StepEvent,
    StepResult,
    Usage,
)
from satchel.goals.reports import (
    at_work,
    pack,
    pack_results,
    report_of,
    unpack,
    unpack_results,
)

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
        steps=steps, inputs={"v": value}, timeout=seconds, budget=Budget(cost=seconds)
    )
    assert through_json(plan) == plan
    assert through_json(Goal("g", plan)) == Goal("g", plan)
    call = StepCall("g", steps[0], plan.inputs, {"a": value}, "g", 2, plan.retry, seconds)
    assert through_json(call) == call


@given(st.lists(RESULTS, max_size=3), dags(3))
def test_results_and_reports_come_back(found, plan):
    results = {result.step: result for result in found}
    assert unpack_results(json.loads(json.dumps(pack_results(results)))) == results
    report = report_of(Goal("g", plan), results, "running", engine="local", revision=3)
    assert through_json(report) == report
    for result in found:
        event = StepEvent("g", result.step, "done", 1.5, "x", result)
        assert through_json(event) == event


@pytest.mark.parametrize("packed", [None, [], "x", {}])
def test_what_is_no_record_is_said(packed):
    with pytest.raises(InvalidInput):
        unpack(StepResult, packed)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20)), max_size=8))
def test_time_at_work_is_the_union_of_spans(spans):
    plan = Plan("g", tuple(Step(f"s{n}") for n in range(len(spans))))
    results = {
        f"s{n}": StepResult(f"s{n}", "done", started=begin, seconds=length)
        for n, (begin, length) in enumerate(spans)
    }
    ticks = {tick for begin, length in spans for tick in range(begin, begin + length)}
    assert at_work(plan, results) == len(ticks)
