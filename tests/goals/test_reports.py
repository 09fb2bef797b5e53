"""Records go to JSON and come back the same; a goal is summed up the same everywhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goal_plans import dags
from satchel.errors import InvalidInput
from satchel.goals.model import (
    Answer,
    Budget,
    Goal,
    GoalReport,
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
    Spent,
    at_work,
    last_sign,
    pack,
    pack_results,
    report_of,
    summary_of,
    total,
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


def test_only_a_goal_that_is_over_has_ended():
    goal = Goal("g", Plan("g", (Step("a", prompt="x"),)))
    results = {"a": StepResult("a", "done", "x", started=5.0, seconds=2.0)}
    report = report_of(goal, results, "done", ended=9.5)
    assert (report.ended, through_json(report)) == (9.5, report)
    assert last_sign(report) == 7.0
    assert last_sign(report_of(goal, {}, "cancelled", started=3.0)) == 3.0
    for state in ("queued", "running", "asking"):
        assert report_of(goal, results, state, ended=9.5).ended == 0.0
    assert "ended" not in pack(report_of(goal, results, "running"))


def test_what_is_as_by_default_is_left_out():
    assert pack(StepResult("a", "done", "x")) == {"step": "a", "state": "done", "output": "x"}
    assert pack(Answer()) == {}
    assert through_json(Answer(approved=False, value=[1])) == Answer(approved=False, value=[1])


def test_fields_of_a_later_version_are_ignored():
    assert unpack(Answer, {"by": "Ann", "mood": "good"}) == Answer(by="Ann")


@pytest.mark.parametrize("packed", [None, [], "x", {}])
def test_what_is_no_record_is_said(packed):
    with pytest.raises(InvalidInput):
        unpack(StepResult, packed)


def test_costs_are_summed_where_they_are_known():
    assert total([]) == Usage()
    assert total([Usage(1, 2, 3), Usage(1, 0, 0, 0.5), Usage(cost=0.25)]) == Usage(2, 2, 3, 0.75)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 20)), max_size=8))
def test_time_at_work_is_the_union_of_spans(spans):
    plan = Plan("g", tuple(Step(f"s{n}") for n in range(len(spans))))
    results = {
        f"s{n}": StepResult(f"s{n}", "done", started=begin, seconds=length)
        for n, (begin, length) in enumerate(spans)
    }
    ticks = {tick for begin, length in spans for tick in range(begin, begin + length)}
    assert at_work(plan, results) == len(ticks)


def test_a_goal_that_ended_has_no_step_that_waits():
    plan = Plan("g", (Step("a"), Step("h", "human"), Step("c")))
    results = {"a": StepResult("a", "done"), "h": StepResult("h", "asking", "?", started=5.0)}
    report = report_of(Goal("g", plan), results, "asking")
    assert [one.state for one in report.steps.values()] == ["done", "asking", "waiting"]
    report = report_of(Goal("g", plan), results, "cancelled")
    assert [one.state for one in report.steps.values()] == ["done", "cancelled", "cancelled"]
    assert report.started == 5.0
    summary = summary_of(report)
    assert (summary.done, summary.steps, summary.state) == (1, 3, "cancelled")
    assert isinstance(report, GoalReport)


def test_what_earlier_revisions_took_is_in_the_total():
    plan = Plan("g", (Step("a"), Step("b")))
    kept = {"a": StepResult("a", "done", usage=Usage(1, 10, 5, 0.25))}
    earlier = Spent(Usage(2, 20, 10), 7.0)
    report = report_of(Goal("g", plan), kept, "queued", revision=2, spent=earlier)
    assert report.usage == Usage(3, 30, 15, 0.25)
    assert report_of(Goal("g", plan), {}, "queued", spent=earlier).usage == Usage(2, 20, 10)
    assert through_json(earlier) == earlier
    assert through_json(Spent()) == Spent()
