"""Does a goal stop when it is told to: at work, in the queue, while it asks, when it is over?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from satchel.errors import Conflict, NotFound
from satchel.goals.model import Answer
from satchel.testing.engine_suite.base import (
    case,
    ended_after,
    expect,
    person,
    refused,
    same,
    states,
    work,
)
from satchel.testing.engine_suite.script import Gate, gives, holds

if TYPE_CHECKING:
    from satchel.goals.model import Work
    from satchel.testing.engine_suite.base import Bench


@case()
async def cancel_running(bench: Bench) -> None:
    """A step at work is ended, what had ended stays, and nothing more begins."""
    goal = bench.goal(work("a"), work("b", "a"), work("c", "b"), work={"b": holds(Gate())})
    await bench.engine.submit(goal)
    await bench.began(goal, "b")
    await bench.engine.cancel(goal.id)
    report = await bench.finish(goal, "cancelled")
    states(report, a="done", b="cancelled", c="cancelled")
    script = bench.script(goal)
    await bench.until(lambda: script.times("b", "cancelled") == 1, "`b` was ended")
    same(script.counts(), {"a": 1, "b": 1}, "what was done")


@case()
async def cancelled_work_cleans_up(bench: Bench) -> None:
    """A step that is ended may tidy up first."""
    tidied: list[str] = []

    async def act(_: Work) -> str:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            tidied.append("tidy")
        return "never"

    goal = bench.goal(work("a"), work={"a": act})
    await bench.engine.submit(goal)
    await bench.began(goal, "a")
    await bench.engine.cancel(goal.id)
    await bench.finish(goal, "cancelled")
    await bench.until(lambda: bool(tidied), "the step tidied up")


@case()
async def cancel_queued_steps(bench: Bench) -> None:
    """Steps that wait for a place never begin."""
    goal = bench.goal(
        *(work(f"s{number}") for number in range(5)),
        parallel=1,
        work={f"s{number}": holds(Gate()) for number in range(5)},
    )
    await bench.engine.submit(goal)
    await bench.until(lambda: len(bench.script(goal).moments) == 1, "a step is at work")
    await bench.engine.cancel(goal.id)
    report = await bench.finish(goal, "cancelled")
    same({one.state for one in report.steps.values()}, {"cancelled"}, "the states of the steps")
    same(sum(bench.script(goal).counts().values()), 1, "steps that began")


@case()
async def cancel_at_once(bench: Bench) -> None:
    """A goal that is cancelled right after it was submitted does not run to its end."""
    goal = bench.goal(work("a"), work("b", "a"), work={"a": holds(Gate())})
    await bench.engine.submit(goal)
    await bench.engine.cancel(goal.id)
    report = await bench.finish(goal, "cancelled")
    states(report, a="cancelled", b="cancelled")
    same(bench.script(goal).times("a", "ended"), 0, "how often `a` ended")


@case()
async def cancel_asking(bench: Bench) -> None:
    """A goal that asks can be cancelled, and ends then; an answer comes too late."""
    goal = bench.goal(work("a"), person("ask", "a"), work("b", "ask"))
    asking = await bench.run(goal, "asking")
    same(asking.ended, 0.0, "when it was over, while it asks")
    await bench.engine.cancel(goal.id)
    report = await bench.finish(goal, "cancelled")
    ended_after(report, "a")
    states(report, a="done", ask="cancelled", b="cancelled")
    await refused(Conflict, bench.engine.answer(goal.id, "ask", Answer()), "a late answer")
    same(bench.script(goal).counts(), {"a": 1}, "what was done")


@case()
async def cancel_over(bench: Bench) -> None:
    """Nothing happens to a goal that is over, however often it is cancelled."""
    goal = bench.goal(work("a"), work={"a": gives("kept")})
    await bench.run(goal)
    await bench.engine.cancel(goal.id)
    await bench.engine.cancel(goal.id)
    report = await bench.finish(goal)
    same(report.steps["a"].output, "kept", "the output")


@case()
async def cancel_twice(bench: Bench) -> None:
    """Cancelling again is fine."""
    goal = bench.goal(work("a"), work={"a": holds(Gate())})
    await bench.engine.submit(goal)
    await bench.began(goal, "a")
    await bench.engine.cancel(goal.id)
    await bench.engine.cancel(goal.id)
    await bench.finish(goal, "cancelled")
    await bench.engine.cancel(goal.id)
    await bench.finish(goal, "cancelled")


@case()
async def cancel_unknown(bench: Bench) -> None:
    """Cancelling what is not there is refused."""
    await refused(NotFound, bench.engine.cancel(bench.goal(work("a")).id), "an unknown goal")


@case()
async def cancel_spares_others(bench: Bench) -> None:
    """Only the goal that is named is cancelled."""
    gate = Gate()
    one = bench.goal(work("a"), work={"a": holds(gate)})
    other = bench.goal(work("a"), work={"a": holds(gate)})
    await bench.engine.submit(one)
    await bench.engine.submit(other)
    await bench.began(one, "a")
    await bench.began(other, "a")
    await bench.engine.cancel(one.id)
    await bench.finish(one, "cancelled")
    gate.open()
    await bench.finish(other)


@case()
async def wait_hears_of_cancelling(bench: Bench) -> None:
    """Who waits for a goal comes back when somebody cancels it."""
    goal = bench.goal(work("a"), work={"a": holds(Gate())})
    await bench.engine.submit(goal)
    waiting = asyncio.create_task(bench.engine.wait(goal.id, bench.patience))
    await bench.began(goal, "a")
    await bench.engine.cancel(goal.id)
    report = await waiting
    same(report.state, "cancelled", "the state")
    expect(report.steps["a"].state == "cancelled", "the step is not cancelled")
