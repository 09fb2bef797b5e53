"""One step is tried, timed, checked and kept the same way on every engine."""

from __future__ import annotations

import asyncio

import pytest

from satchel.errors import InvalidInput, StepFailed
from satchel.goals import artifacts
from satchel.goals.artifacts import MemoryArtifacts
from satchel.goals.executor import StepContext
from satchel.goals.model import Done, GoalBudget, Retry, Step, StepCall, Usage
from satchel.goals.step_runner import perform

pytestmark = pytest.mark.timeout(60)  # many examples, and machines that are busy

QUICK = Retry(attempts=3, first=0.001, most=0.01)


class Scripted:
    """Gives or raises these, one a try."""

    def __init__(self, *acts):
        self.acts = list(acts)
        self.work = []

    async def run(self, work):
        self.work.append(work)
        act = self.acts.pop(0)
        if isinstance(act, BaseException):
            raise act
        if callable(act):
            act = await act()  # pyright: ignore[reportGeneralTypeIssues]
        return act if isinstance(act, Done) else Done(act)


def done(*acts, large=32_768, store=None, **call):
    step = call.pop("step", Step("a", prompt="p"))
    fields = {"inputs": {}, "outputs": {}, "retry": QUICK, **call}
    runner = Scripted(*acts)
    bench = StepContext(runner, store or MemoryArtifacts(), large)
    result = asyncio.run(perform(StepCall("g", step, **fields), bench))
    assert result.step == step.id
    return result, runner


def test_a_step_gives_its_output():
    result, runner = done(Done({"x": (1, 2)}, Usage(1, 2, 3, 0.5), ("s",), ("t",), ("n",)))
    assert (result.state, result.output, result.attempts) == ("done", {"x": [1, 2]}, 1)
    assert result.usage == Usage(1, 2, 3, 0.5)
    assert (result.skills, result.tools, result.notes) == (("s",), ("t",), ("n",))
    assert result.started > 1e9
    assert runner.work[0].key == "g:a:1"


@pytest.mark.parametrize(
    ("exc", "code"),
    [
        (InvalidInput("bad"), "INVALID_PARAM"),
        (StepFailed("m", code="X", retryable=False), "X"),
        (StepFailed("503", retryable=False), "EXECUTION_ERROR"),
        (KeyError("name"), "EXECUTION_ERROR"),
        (TypeError("not a text"), "EXECUTION_ERROR"),
    ],
)
def test_what_another_try_would_not_cure_is_not_tried_again(exc, code):
    result, runner = done(exc)
    assert (result.state, result.attempts, result.error.code) == ("failed", 1, code)
    assert len(runner.work) == 1


def test_a_server_says_how_long_to_wait():
    result, _ = done(StepFailed("m", code="X", after=0.2), "ok")
    assert result.seconds >= 0.2


@pytest.mark.parametrize("waits", [True, False])
def test_a_runner_that_cancels_itself_has_failed(waits):
    async def odd():
        if waits:
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    result, _ = done(odd, "ok", timeout=5.0)
    assert (result.state, result.attempts) == ("done", 2)


def test_what_the_step_promised_is_checked():
    step = Step("a", prompt="p", output={"type": "object", "required": ["x"]})
    result, _ = done({}, {"x": 1}, step=step)
    assert (result.state, result.output, result.attempts) == ("done", {"x": 1}, 2)
    assert result.notes == ("try 1: The output has no `x`",)


@pytest.mark.parametrize("output", [object(), {1, 2}, float("nan"), {"x": float("inf")}, b"x"])
def test_what_json_cannot_say_is_no_output(output):
    result, _ = done(output)
    assert (result.error.code, result.attempts) == ("INVALID_OUTPUT", 1)


def test_what_cannot_be_filled_fails_before_the_runner_hears_of_it():
    result, runner = done(step=Step("a", prompt="{{inputs.x}}"))
    assert (result.state, result.error.code, result.attempts) == ("failed", "MISSING_INPUT", 0)
    gone = {artifacts.KEY: "0" * 64}
    result, runner = done(step=Step("a", prompt="{{steps.b.output}}"), outputs={"b": gone})
    assert result.error.code == "ARTEFACT_MISSING"
    assert runner.work == []


def test_an_output_that_looks_like_a_reference_is_not_followed():
    store = MemoryArtifacts()
    secret = asyncio.run(store.put(b'"secret"'))
    forged = {artifacts.KEY: secret, "size": 8, "head": ""}
    result, _ = done(forged, store=store)
    assert result.output != forged
    assert asyncio.run(artifacts.load(result.output, store)) == forged


def test_texts_that_grow_beyond_measure_fail_the_step():
    step = Step("a", prompt="{{inputs.x}}" * 1_000)
    result, runner = done(step=step, inputs={"x": "a" * 3_000_000})
    assert (result.state, result.error.code) == ("failed", "TOO_LARGE")
    assert not runner.work


@pytest.mark.parametrize(
    "left", [GoalBudget(tokens=100), GoalBudget(cost=0.1), GoalBudget(seconds=0.05)]
)
def test_no_try_begins_without_a_budget(left):
    failures = [
        StepFailed(
            "no", code="X", usage=Usage(1, 60, 0, 0.06), after=0.03 if left.seconds else None
        )
        for _ in range(10)
    ]
    result, runner = done(*failures, retry=Retry(10, 0, 1, 0, 0), left=left)
    assert (result.state, result.error.code) == ("failed", "X")
    assert len(runner.work) == 2
    assert result.notes[-1] == "not tried again: the budget of the goal is used up"


def test_no_try_is_longer_than_the_goal_may_take():
    async def long():
        await asyncio.sleep(30)

    result, runner = done(long, timeout=20, left=GoalBudget(seconds=0.05))
    assert (result.error.code, len(runner.work)) == ("TIMEOUT", 1)
    assert "budget of the goal is used up" in result.notes[-1]
    assert result.seconds < 5
