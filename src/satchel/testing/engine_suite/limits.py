"""Do the bounds of a plan hold? Steps at once, tokens, money and time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from satchel.goals.model import Answer, Budget, Done, Usage
from satchel.testing.engine_suite.base import case, expect, person, same, states, work
from satchel.testing.engine_suite.script import Gate, gives, holds, sleeps

if TYPE_CHECKING:
    from satchel.goals.model import GoalReport
    from satchel.testing.engine_suite.base import Bench


@case()
async def parallel_cap(bench: Bench) -> None:
    """Three steps at once, when the plan says three: never more, and not fewer."""
    gate = Gate()
    names = [f"s{number}" for number in range(12)]
    goal = bench.goal(*map(work, names), parallel=3, work={name: holds(gate) for name in names})
    await bench.engine.submit(goal)
    await bench.until(lambda: len(bench.script(goal).counts()) >= 3, "three steps are at work")
    await asyncio.sleep(0.1)
    gate.open()
    await bench.finish(goal)
    same(bench.script(goal).most_at_once(), 3, "steps at once")


@case()
async def one_at_a_time(bench: Bench) -> None:
    """With `parallel: 1` no two steps are at work together."""
    names = [f"s{number}" for number in range(6)]
    goal = bench.goal(*map(work, names), parallel=1, work={name: sleeps(0.005) for name in names})
    await bench.run(goal)
    same(bench.script(goal).most_at_once(), 1, "steps at once")


@case()
async def waiting_steps_take_no_place(bench: Bench) -> None:
    """A step that waits for others, or for a person, keeps nobody from working."""
    goal = bench.goal(
        work("last", "c"),
        person("ask"),
        work("c", "b"),
        work("b", "a"),
        work("a"),
        work("said", "ask"),
        parallel=1,
    )
    report = await bench.run(goal, "asking")
    states(report, a="done", b="done", c="done", last="done", ask="asking", said="waiting")
    await bench.engine.answer(goal.id, "ask", Answer())
    await bench.finish(goal)


@case()
async def budget_of_tokens(bench: Bench) -> None:
    """No step begins once the tokens are used up."""
    usage = Usage(1, 60, 40)
    goal = bench.goal(
        work("a"),
        work("b", "a"),
        work("c", "b"),
        budget=Budget(tokens=150),
        work={name: gives(Done(name, usage)) for name in "abc"},
    )
    report = await bench.run(goal, "failed")
    _over_budget(report, "150")
    same(bench.script(goal).counts(), {"a": 1, "b": 1}, "what was done")


@case()
async def budget_of_money(bench: Bench) -> None:
    """No step begins once the money is spent."""
    goal = bench.goal(
        work("a"),
        work("b", "a"),
        work("c", "b"),
        budget=Budget(cost=0.75),
        work={name: gives(Done(name, Usage(1, 1, 1, 0.5))) for name in "abc"},
    )
    report = await bench.run(goal, "failed")
    _over_budget(report, "0.75")
    same(bench.script(goal).counts(), {"a": 1, "b": 1}, "what was done")


@case()
async def budget_of_time(bench: Bench) -> None:
    """A step that runs ends when the time is up, and none begins any more."""
    goal = bench.goal(
        work("a"),
        work("b", "a"),
        work("c", "b"),
        budget=Budget(seconds=0.1),
        on_failure="continue",
        work={"a": sleeps(30)},
    )
    report = await bench.run(goal, "failed")
    states(report, a="failed", b="skipped", c="skipped")
    same(bench.script(goal).counts(), {"a": 1}, "what was done")


@case()
async def people_cost_no_time(bench: Bench) -> None:
    """Waiting for a person does not use up the time."""
    goal = bench.goal(person("ask"), work("a", "ask"), budget=Budget(seconds=0.3))
    await bench.run(goal, "asking")
    await asyncio.sleep(0.4)
    await bench.engine.answer(goal.id, "ask", Answer())
    await bench.finish(goal)


@case()
async def budget_that_suffices(bench: Bench) -> None:
    """A budget that is enough stops nothing."""
    goal = bench.goal(
        work("a"),
        work("b", "a"),
        budget=Budget(tokens=1000, cost=5.0, seconds=60.0),
        work={name: gives(Done(name, Usage(1, 60, 40, 0.5))) for name in "ab"},
    )
    report = await bench.run(goal)
    same(report.usage, Usage(2, 120, 80, 1.0), "what the goal took")


def _over_budget(report: GoalReport, amount: str) -> None:
    states(report, a="done", b="done", c="skipped")
    error = report.steps["c"].error
    same(error and error.code, "BUDGET", "the error")
    expect(amount in report.reason, f"the reason does not say the budget: {report.reason!r}")
