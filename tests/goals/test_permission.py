"""What a plan needs before its steps may run."""

from __future__ import annotations

from satchel.facade import Satchel
from satchel.goals.model import Plan, Step, StepResult
from satchel.goals.permission import done_again, needs_model, not_done, unallowed
from satchel.goals.reports import report_of

PLAN = Plan("x", (Step("a", prompt="go"), Step("b", prompt="{{steps.a.output}}"), Step("c")))


def told(state, **states):
    from satchel.goals.model import Goal

    results = {name: StepResult(name, one, "out") for name, one in states.items()}
    return report_of(Goal("g", PLAN), results, state)


def names(plan: Plan) -> list[str]:
    return [step.id for step in plan.steps]


def test_what_is_left_is_what_is_not_done():
    assert names(not_done(told("running", a="done", b="running"))) == ["b", "c"]
    assert names(not_done(told("failed", a="done", b="failed"))) == []


def test_what_is_done_again_is_what_does_not_hold():
    assert names(done_again(told("failed", a="done", b="failed", c="done"))) == ["b"]
    assert names(done_again(told("done", a="done", b="done", c="done"), "a")) == ["a", "b"]


def test_a_model_is_needed_where_a_step_names_none():
    assert needs_model(PLAN)
    assert not needs_model(PLAN._replace(steps=(Step("a", model="x:y"), Step("b", "human"))))


def test_a_tool_that_nobody_knows_is_not_allowed(tmp_path, monkeypatch):
    monkeypatch.setenv("SATCHEL_HOME", str(tmp_path / "home"))
    satchel = Satchel.for_project(tmp_path)
    try:
        assert unallowed(satchel, PLAN.steps) is None
        step = Step("t", "tool", tool="thing_write")
        assert unallowed(satchel, (*PLAN.steps, step)) == step
    finally:
        satchel.close()
