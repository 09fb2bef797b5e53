"""Retries with the same or a changed plan."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine_suite.bench import Gate, gives, holds, person, refused, states, work
from satchel.errors import Conflict, InvalidInput, NotFound, StepFailed
from satchel.goals.model import Answer, Done, Usage

if TYPE_CHECKING:
    from engine_suite.bench import Bench


async def retry_of_failed_only(bench: Bench) -> None:
    """Trying again does what was not done, and keeps the rest; each result counts once."""
    each, gate = Usage(1, 60, 40, 0.5), Gate()

    async def act(_: object) -> Done:
        if not gate.is_open:
            raise StepFailed("not yet", code="NO", retryable=False, usage=each)
        return Done("b", each)

    goal = bench.goal(
        work("a"),
        work("b", prompt="{{steps.a.output}}"),
        work("c", "b"),
        work={"a": gives(Done("a", each)), "b": act},
    )
    failed = await bench.run(goal, "failed")
    gate.open()
    began = await bench.engine.retry(goal.id)
    assert (began.id, began.usage) == (goal.id, each)
    report = await bench.finish(goal)
    assert failed.usage == report.usage == Usage(2, 120, 80, 1.0)
    states(report, a="done", b="done", c="done")
    assert report.revision == 2
    assert report.steps["a"] == failed.steps["a"]
    assert bench.script(goal).counts() == {"a": 1, "b": 2, "c": 1}


async def retry_from_a_step(bench: Bench) -> None:
    """A step and all that depend on it are done again; the others are not."""
    goal = bench.goal(
        work("a"),
        work("b", "a"),
        work("c", prompt="{{steps.b.output}}"),
        work("d", "c"),
        work("other", "a"),
        work={"b": gives("old")},
    )
    await bench.run(goal)
    bench.script(goal).acts["b"] = gives("new")
    await bench.engine.retry(goal.id, from_step="b")
    report = await bench.finish(goal)
    assert report.steps["b"].output == "new"
    assert bench.script(goal).work("c").prompt == "new"
    keys = [one.key for one in bench.script(goal).works("b")]
    assert keys == [f"{goal.id}:b:1", f"{goal.id}:b:2"]
    counts = {"a": 1, "b": 2, "c": 2, "d": 2, "other": 1}
    assert bench.script(goal).counts() == counts


async def changed_plan_keeps_what_holds(bench: Bench) -> None:
    """With a changed plan only the changed step, and what depends on it, is done again."""
    goal = bench.goal(work("a"), work("b", "a"), work("c", "b"), work("d", "a"))
    await bench.run(goal)
    plan = bench.plan(
        work("a"), work("b", "a", prompt="Do it otherwise"), work("c", "b"), work("d", "a")
    )
    await bench.engine.retry(goal.id, plan=plan)
    report = await bench.finish(goal)
    assert report.plan == plan
    assert report.revision == 2
    assert bench.script(goal).work("b").prompt == "Do it otherwise"
    assert bench.script(goal).counts() == {"a": 1, "b": 2, "c": 2, "d": 1}


async def retry_after_cancel(bench: Bench) -> None:
    """A goal that was cancelled can be finished later."""
    gate = Gate()
    goal = bench.goal(work("a"), work("b", "a"), work={"b": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "b")
    await bench.engine.cancel(goal.id)
    await bench.finish(goal, "cancelled")
    gate.open()
    await bench.engine.retry(goal.id)
    report = await bench.finish(goal)
    states(report, a="done", b="done")
    assert bench.script(goal).counts() == {"a": 1, "b": 2}


async def retry_while_asking(bench: Bench) -> None:
    """The plan of a goal that asks can be changed; it then goes on with the new one."""
    goal = bench.goal(work("a"), person("ask", "a"), work("b", "ask"))
    await bench.run(goal, "asking")
    plan = bench.plan(work("a"), work("b", "a"))
    await bench.engine.retry(goal.id, plan=plan)
    report = await bench.finish(goal)
    assert list(report.steps) == ["a", "b"]
    assert bench.script(goal).counts() == {"a": 1, "b": 1}


async def answers_do_not_outlive_their_step(bench: Bench) -> None:
    """A person is asked again when the step runs again; otherwise the answer is kept."""
    goal = bench.goal(person("ask"), work("a", prompt="{{steps.ask.output}}"))
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(value="one"))
    await bench.finish(goal)
    await bench.engine.retry(goal.id, from_step="a")
    await bench.finish(goal)
    assert bench.script(goal).work("a").prompt == "one"
    await bench.engine.retry(goal.id, from_step="ask")
    await bench.finish(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(value="two"))
    await bench.finish(goal)
    assert bench.script(goal).work("a").prompt == "two"
    assert bench.script(goal).times("a") == 3


async def two_retries_at_once(bench: Bench) -> None:
    """Of two who try a goal again at the same moment one begins, and the other one is refused."""
    gate = Gate()
    goal = bench.goal(work("a"), work={"a": gives("quick")})
    await bench.run(goal)
    bench.script(goal).acts["a"] = holds(gate)
    found = await asyncio.gather(
        *(bench.engine.retry(goal.id, from_step="a") for _ in range(2)), return_exceptions=True
    )
    assert sum(isinstance(one, Conflict) for one in found) == 1
    gate.open()
    report = await bench.finish(goal)
    assert (report.revision, bench.script(goal).times("a")) == (2, 2)


async def retry_of_what_is_not_there(bench: Bench) -> None:
    """An unknown goal, an unknown step or a broken plan is refused, and nothing changes."""
    goal = bench.goal(work("a"))
    await bench.run(goal)
    await refused(NotFound, bench.engine.retry(f"{goal.id}-x"))
    await refused(NotFound, bench.engine.retry(goal.id, from_step="x"))
    broken = bench.plan(work("a", "b"), work("b", "a"))
    await refused(InvalidInput, bench.engine.retry(goal.id, plan=broken))
    report = await bench.finish(goal)
    assert (report.revision, report.plan) == (1, goal.plan)
