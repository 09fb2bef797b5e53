"""The timeout of a step pauses while it waits for a rate limit; lost attempts are counted."""

from __future__ import annotations

import asyncio

import pytest

from satchel.errors import StepFailed
from satchel.goals.artifacts import MemoryArtifacts
from satchel.goals.engines.local import LocalEngine
from satchel.goals.executor import StepContext
from satchel.goals.model import Done, Goal, Plan, Retry, Step, StepCall, Usage
from satchel.goals.step_runner import perform
from satchel.goals.step_timer import attach_usage, paused

pytestmark = pytest.mark.timeout(60)


class By:
    """A runner made of one function."""

    def __init__(self, act):
        self.run = act


def done(act, **call):
    fields = {"retry": Retry(1), **call}
    bench = StepContext(By(act), MemoryArtifacts())
    return asyncio.run(perform(StepCall("g", Step("a"), {}, {}, **fields), bench))


@pytest.mark.parametrize(("works", "state"), [(0.0, "done"), (20.0, "failed")])
def test_waiting_for_a_rate_limit_does_not_count_but_work_does(works, state):
    async def act(work):
        with paused():
            await asyncio.sleep(0.6)
        await asyncio.sleep(works)
        return Done("ok")

    result = done(act, timeout=0.3)
    assert (result.state, result.seconds < 10) == (state, True)


async def _costly_sleep(tokens):
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError as exc:
        attach_usage(exc, Usage(1, tokens, 3, 0.5))
        raise


def test_what_a_cancelled_try_took_is_counted():
    result = done(lambda _: _costly_sleep(20), timeout=0.05, retry=Retry(2, first=0.001))
    assert (result.attempts, result.usage) == (2, Usage(2, 40, 6, 1.0))


def test_what_a_stopped_step_took_counts_in_the_goal():
    class Two:
        async def run(self, work):
            if work.step.id == "bad":
                await asyncio.sleep(0.3)
                raise StepFailed("no", code="X", retryable=False, usage=Usage(1, 10, 0, 0.0))
            if work.attempt == 1:
                raise StepFailed("again", code="Y", usage=Usage(1, 5_000, 0, 0.0))
            await _costly_sleep(7_000)
            return Done(None)

    async def run():
        steps = (Step("bad", prompt="p"), Step("long", prompt="p"))
        async with LocalEngine(Two()) as engine:
            await engine.submit(Goal("g", Plan("g", steps, retry=Retry(3, first=0.001))))
            return await engine.wait("g", 20)

    report = asyncio.run(run())
    assert (report.state, report.usage.input_tokens) == ("failed", 12_010)
