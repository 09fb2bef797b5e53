"""The timer of a step pauses while it waits for a rate limit, and carries the usage of lost
attempts.
"""

from __future__ import annotations

import asyncio

import pytest

from satchel.errors import StepFailed
from satchel.goals.artifacts import MemoryArtifacts
from satchel.goals.engines.local import LocalEngine
from satchel.goals.executor import StepContext
from satchel.goals.model import Done, Goal, GoalBudget, Plan, Retry, Step, StepCall, Usage
from satchel.goals.step_runner import perform
from satchel.goals.step_timer import paused, record_usage, running

pytestmark = pytest.mark.timeout(60)


class By:
    """A runner made of one function."""

    def __init__(self, act):
        self.run = act


def done(act, **call):
    fields = {"retry": Retry(1), **call}
    bench = StepContext(By(act), MemoryArtifacts())
    return asyncio.run(perform(StepCall("g", Step("a"), {}, {}, **fields), bench))


def line(seconds, then=0.0):
    async def act(work):
        with paused():
            await asyncio.sleep(seconds)
        await asyncio.sleep(then)
        return Done("ok")

    return act


def test_standing_in_line_does_not_count():
    assert done(line(0.6), timeout=0.3).output == "ok"


def test_the_goal_does_not_wait_longer_than_it_may():
    result = done(line(20.0), timeout=0.1, left=GoalBudget(seconds=0.4))
    assert result.error is not None
    assert result.error.code == "BUDGET"
    assert result.seconds < 10


def test_who_works_keeps_the_clock_going():
    """Else two parts that wait for each other would never be too late."""

    async def act(work):
        async def at_work():
            with running():
                await asyncio.sleep(20)

        await asyncio.gather(at_work(), line(20)(work))
        return Done("ok")

    result = done(act, timeout=0.3)
    assert result.error is not None
    assert result.error.code == "TIMEOUT"
    assert result.seconds < 10


def test_what_a_cancelled_try_took_is_counted():
    async def act(work):
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            record_usage(Usage(1, 20, 3, 0.5))
            raise

    result = done(act, timeout=0.05, retry=Retry(2, first=0.001))
    assert (result.attempts, result.usage) == (2, Usage(2, 40, 6, 1.0))


def test_what_a_stopped_step_took_counts_in_the_goal():
    class Two:
        async def run(self, work):
            if work.step.id == "bad":
                await asyncio.sleep(0.3)
                raise StepFailed("no", code="X", retryable=False, usage=Usage(1, 10, 0, 0.0))
            if work.attempt == 1:
                raise StepFailed("again", code="Y", usage=Usage(1, 5_000, 0, 0.0))
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                record_usage(Usage(1, 7_000, 0, 0.0))
                raise
            return Done("late")

    async def run():
        steps = (Step("bad", prompt="p"), Step("long", prompt="p"))
        plan = Plan("g", steps, retry=Retry(3, first=0.001), budget=GoalBudget(tokens=10_000))
        async with LocalEngine(Two()) as engine:
            await engine.submit(Goal("g", plan))
            first = await engine.wait("g", 20)
            await engine.retry("g")
            return first, await engine.wait("g", 20)

    first, second = asyncio.run(run())
    assert first.state == "failed"
    assert first.usage.input_tokens == 12_010
    assert "10,000 tokens" in second.reason or "budget" in second.reason
