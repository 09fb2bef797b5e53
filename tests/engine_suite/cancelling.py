"""Steps that take their time to end, or ignore that they were cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from engine_suite.bench import Gate, states, work
from satchel.goals.model import Retry

if TYPE_CHECKING:
    from engine_suite.bench import Act, Bench
    from satchel.goals.model import Work


ONCE = Retry(attempts=1)


def _ignores_cancellation(gate: Gate) -> Act:
    """It ends when a gate is opened, however often it is cancelled."""

    async def act(_: Work) -> str:
        while not gate.is_open:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return "late"

    return act


async def cancelled_when_the_step_has_ended(bench: Bench) -> None:
    """A goal is cancelling until its step has ended; a retry waits for that."""
    gate = Gate()
    goal = bench.goal(work("a"), work("b", "a"), work={"a": _ignores_cancellation(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "a")
    await bench.engine.cancel(goal.id)

    async def is_shown() -> bool:
        return (await bench.engine.report(goal.id)).state == "cancelling"

    await bench.until(is_shown)
    states(await bench.engine.report(goal.id), a="running", b="cancelled")
    await bench.engine.cancel(goal.id)  # once more changes nothing
    retry = asyncio.create_task(bench.engine.retry(goal.id))
    await asyncio.sleep(1.0)
    assert not retry.done()
    assert (await bench.engine.report(goal.id)).state == "cancelling"
    assert bench.script(goal).counts() == {"a": 1}
    gate.open()
    await retry
    report = await bench.finish(goal)
    assert (report.revision, bench.script(goal).counts()) == (2, {"a": 2, "b": 1})
    kinds = [kind for kind, attempt in bench.script(goal).moments if attempt.step.id == "a"]
    assert kinds == ["began", "ended", "began", "ended"]


async def ignored_cancellation_is_repeated(bench: Bench) -> None:
    """A step that ignores the first cancellation does not outlive its timeout by much."""

    async def act(attempt: Work) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)

    goal = bench.goal(work("a"), timeout=0.2, work={"a": act}, retry=ONCE)
    result = (await bench.run(goal, "failed")).steps["a"]
    assert (result.error.code, bench.script(goal).times("a", "cancelled")) == ("TIMEOUT", 1)
    assert result.seconds < 20


async def ended_goal_shows_no_running_step(bench: Bench) -> None:
    """A goal that was cancelled while it ran ends, and its steps are cancelled."""
    goal = bench.goal(work("a"), work("b", "a"), work={"a": _ends_when_cancelled})
    await bench.engine.submit(goal)
    await bench.began(goal, "a")
    await bench.engine.cancel(goal.id)
    report = await bench.finish(goal, "cancelled")
    states(report, a="cancelled", b="cancelled")
    assert bench.script(goal).times("a", "cancelled") == 1


async def _ends_when_cancelled(_: Work) -> None:
    await asyncio.sleep(60)
