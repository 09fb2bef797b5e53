"""The executor: order, failures, budgets, people, cancellation."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goal_plans import QUICK, Execution, Runner, dags
from satchel.errors import InternalError
from satchel.goals.executor import execute
from satchel.goals.model import FINAL_STEP_STATES, Goal, GoalBudget, Plan, Step, StepResult, Usage
from satchel.goals.plan_graph import needs_of, order

pytestmark = pytest.mark.timeout(60)  # many examples, and machines that are busy


def plan_of(*steps: Step, **plan) -> Plan:
    return Plan(**{"goal": "g", "steps": steps, "retry": QUICK, **plan})


def ran(plan: Plan, execution: Execution | None = None, **more):
    execution = execution or Execution()
    report = asyncio.run(execute(Goal("g", plan), execution, **more))
    return report, execution


def states(report) -> dict[str, str]:
    return {name: result.state for name, result in report.steps.items()}


@given(dags(), st.integers(1, 5))
def test_steps_run_after_all_they_need_and_see_their_outputs(plan, parallel):
    plan = plan._replace(parallel=parallel)
    report, execution = ran(plan)
    runner = execution.runner
    assert report.state == "done"
    assert list(report.steps) == [step.id for step in plan.steps]
    assert runner.most <= parallel
    place = {name: index for index, name in enumerate(runner.ended)}
    for step in plan.steps:
        for need in needs_of(step):
            assert place[need] < place[step.id]
            if f"steps.{need}.output" in step.prompt:
                assert report.steps[need].output in report.steps[step.id].output
    assert execution.recorded == [step.id for step in order(plan)]


@given(dags(), st.data())
def test_after_a_failure_every_step_ends_and_dependents_do_not_run(plan, data):
    policy = data.draw(st.sampled_from(["fail_fast", "continue", "skip_dependents"]))
    bad = set(data.draw(st.lists(st.sampled_from([step.id for step in plan.steps]), max_size=3)))
    steps = [
        step._replace(prompt=f"fail {step.prompt}") if step.id in bad else step
        for step in plan.steps
    ]
    plan = plan._replace(steps=tuple(steps), on_failure=policy, retry=QUICK._replace(attempts=1))
    report, execution = ran(plan)
    found = states(report)
    assert set(found.values()) <= FINAL_STEP_STATES
    assert (report.state == "done") == (not bad)
    for step in plan.steps:
        if found[step.id] == "done":
            needs = {found[need] for need in needs_of(step)}
            assert needs <= ({"done", "failed"} if policy == "continue" else {"done"})
        if found[step.id] == "skipped":
            assert policy == "skip_dependents"
            assert step.id not in execution.runner.began
    if bad and policy == "fail_fast":
        assert report.state == "failed"
    if policy != "fail_fast":
        assert "cancelled" not in found.values()


# --- replay -------------------------------------------------------------------------------


@given(dags(), st.data())
def test_a_replay_records_in_the_same_order_and_does_nothing_twice(plan, data):
    first, _ = ran(plan)
    kept = set(data.draw(st.lists(st.sampled_from([step.id for step in plan.steps]))))

    class Replay(Execution):
        async def record(self, step, body):
            self.recorded.append(step.id)
            if step.id in kept:
                await asyncio.sleep(0)
                return first.steps[step.id]
            return await body()

    again, execution = ran(plan, Replay())
    assert execution.recorded == [step.id for step in order(plan)]
    assert set(execution.runner.began) == {step.id for step in plan.steps} - kept
    assert {name: one.output for name, one in again.steps.items()} == {
        name: one.output for name, one in first.steps.items()
    }


def test_a_result_of_another_step_is_refused():
    class Swapped(Execution):
        async def record(self, step, body):
            result = await body()
            return result._replace(step="b") if step.id == "a" else result

    plan = plan_of(Step("a"), Step("b"), Step("c", prompt="wait"))
    execution = Swapped()
    with pytest.raises(InternalError, match="`a` was given the result of `b`"):
        ran(plan, execution)
    assert "c" not in execution.runner.ended
    assert execution.runner.running == 0


def test_a_fault_of_the_engine_ends_the_run():
    class Broken(Execution):
        async def perform(self, call):
            if call.step.id == "a":
                raise OSError("disk full")
            return await super().perform(call)

    execution = Broken()
    with pytest.raises(OSError, match="disk full"):
        ran(plan_of(Step("a"), Step("b", prompt="wait")), execution)
    assert execution.runner.ended == []
    assert execution.runner.running == 0


# --- failures -----------------------------------------------------------------------------


def test_fail_fast_starts_no_waiting_step():
    steps = [Step("bad", prompt="fail"), *(Step(f"s{n}", prompt="wait") for n in range(5))]
    report, execution = ran(plan_of(*steps, parallel=2))
    assert report.state == "failed"
    assert set(execution.runner.began) == {"bad", "s0"}
    assert set(states(report).values()) == {"failed", "cancelled"}


# --- budgets ------------------------------------------------------------------------------


class Costly(Runner):
    async def run(self, work):
        return (await super().run(work))._replace(usage=Usage(1, 60, 40, 0.5))


@pytest.mark.parametrize("budget", [GoalBudget(tokens=150), GoalBudget(cost=0.75)])
def test_a_used_budget_starts_no_step(budget):
    steps = [Step("s0"), *(Step(f"s{n}", needs=(f"s{n - 1}",)) for n in range(1, 5))]
    plan = plan_of(*steps, budget=budget, on_failure="continue")
    report, execution = ran(plan, Execution(Costly()))
    assert execution.runner.began == ["s0", "s1"]
    assert list(states(report).values()) == ["done", "done", "skipped", "skipped", "skipped"]
    assert {report.steps[name].error.code for name in ("s2", "s4")} == {"BUDGET"}
    assert report.state == "failed"
    assert "is used up" in report.reason
    assert report.usage == Usage(2, 120, 80, 1.0)


def test_earlier_runs_count_towards_the_budget():
    plan = plan_of(Step("a"), Step("b", needs=("a",)), budget=GoalBudget(tokens=100))
    known = {"a": StepResult("a", "done", "x", usage=Usage(1, 60, 40))}
    report, execution = ran(plan, Execution(Costly()), known_results=known)
    assert (report.state, execution.runner.began) == ("failed", [])
    again, _ = ran(plan, known_results=report.steps)
    assert (again.state, again.reason) == (report.state, report.reason)


def test_a_budget_of_seconds_does_not_count_people():
    plan = plan_of(
        Step("a"), Step("h", "human", prompt="ok?", needs=("a",)), Step("b", needs=("h",)),
        budget=GoalBudget(seconds=5),
    )  # fmt: skip
    known = {
        "a": StepResult("a", "done", "x", started=100, seconds=4),
        "h": StepResult("h", "done", "x", started=104, seconds=10_000),
    }
    assert ran(plan, known_results=known)[0].state == "done"
    known["a"] = known["a"]._replace(seconds=5)
    report, _ = ran(plan, known_results=known)
    assert (report.state, report.reason) == ("failed", "The budget of 5 s is used up")


# --- cancelling ---------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 5, 20])
async def test_cancelling_a_run_ends_all_of_it(after):
    class Cleaning(Runner):
        cleaned = 0

        async def run(self, work):
            try:
                return await super().run(work)
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)
                self.cleaned += 1
                raise

    runner = Cleaning()
    steps = [Step(f"s{n}", prompt="wait") for n in range(4)] + [Step("last", needs=("s0",))]

    plan = plan_of(*steps, parallel=3)
    task = asyncio.create_task(execute(Goal("g", plan), Execution(runner)))
    for _ in range(after):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(asyncio.all_tasks()) == 1  # nothing of it is left
    assert runner.running == 0
    assert runner.cleaned == len(runner.cancelled)


# --- texts ---------------------------------------------------------------------------------


def test_an_exception_inside_a_step_fails_it():
    report, _ = ran(plan_of(Step("h", "human", prompt="{{inputs.none}}")))
    assert report.state == "failed"
    assert report.steps["h"].error.code == "MISSING_INPUT"
