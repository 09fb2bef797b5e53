"""Removal of goals, for the engines that do it themselves."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from engine_suite.bench import Gate, fails_until, gives, holds, person, refused, work
from satchel.errors import Conflict, NotFound, StepFailed
from satchel.goals.artifacts import is_reference, load
from satchel.goals.model import Answer

if TYPE_CHECKING:
    from engine_suite.bench import Bench

_LARGE = "大" * 200_000


async def forget_what_is_over(bench: Bench) -> None:
    """A removed goal is not known any more; others stay. One that runs cannot be removed."""
    goal, failed, other = (bench.goal(work("a")) for _ in range(3))
    gate, engine = Gate(), bench.engine
    bench.script(goal).acts["a"] = holds(gate)
    bench.script(failed).acts["a"] = fails_until(Gate())
    await engine.submit(goal)
    await bench.began(goal, "a")
    await refused(Conflict, engine.forget(goal.id))
    gate.open()
    await bench.finish(goal)
    await bench.run(failed, "failed")
    before = await bench.run(other)
    for one in (goal, failed):
        await engine.forget(one.id)
        await refused(NotFound, engine.report(one.id))
        await refused(NotFound, engine.wait(one.id, 0.1))
        await refused(NotFound, engine.retry(one.id))
        await refused(NotFound, engine.forget(one.id))
    listed = {one.id for one in await engine.list(limit=500)}
    assert not listed & {goal.id, failed.id}
    assert other.id in listed
    assert await engine.report(other.id) == before


async def forget_and_submit_again(bench: Bench) -> None:
    """The same id runs from scratch, also with another plan; answers are forgotten too."""
    goal = bench.goal(work("a"), person("ask", "a"), work("b", "ask"))
    engine = bench.engine
    await bench.run(goal, "asking")
    await engine.answer(goal.id, "ask", Answer(value="first"))
    await bench.finish(goal)
    await engine.retry(goal.id, from_step="b")
    assert (await bench.finish(goal)).revision == 2
    await engine.forget(goal.id)
    report = await bench.run(goal, "asking")
    assert (report.revision, report.steps["a"].attempts) == (1, 1)
    assert bench.script(goal).counts() == {"a": 2, "b": 2}
    await engine.answer(goal.id, "ask", Answer(value="second"))
    assert (await bench.finish(goal)).steps["ask"].output == "second"
    await engine.forget(goal.id)
    other = goal._replace(plan=bench.plan(work("c")))
    report = await bench.run(other)
    assert (report.plan, list(report.steps)) == (other.plan, ["c"])
    assert bench.script(goal).counts() == {"a": 2, "b": 3, "c": 1}


async def forget_large_outputs(bench: Bench) -> None:
    """Large outputs go with their goal; another goal with the same output keeps its own."""
    one, other = (
        bench.goal(
            work("a"), work("b", prompt="{{steps.a.output}}"),
            work={"a": gives(_LARGE)},
        )
        for _ in range(2)
    )  # fmt: skip
    reports = [await bench.run(goal) for goal in (one, other)]
    gone, kept = (report.steps["a"].output for report in reports)
    assert is_reference(gone)
    assert is_reference(kept)
    engine = bench.engine
    await engine.forget(one.id)
    assert await load(kept, engine.artifacts) == _LARGE
    with pytest.raises(StepFailed, match="is missing or damaged"):
        await load(gone, engine.artifacts)
    await engine.retry(other.id, from_step="b")
    await bench.finish(other)
    assert bench.script(other).work("b").prompt == _LARGE


async def forget_all_that_ended_before(bench: Bench) -> None:
    """Goals that ended before a moment are found and removed together; others stay."""
    engine = bench.engine
    old, again, asks, stopped, late = (
        bench.goal(work("a")), bench.goal(work("a"), person("ask", "a")),
        bench.goal(person("ask")), bench.goal(person("ask")), bench.goal(work("a")),
    )  # fmt: skip
    await bench.run(old)
    for goal in (again, asks, stopped):
        await bench.run(goal, "asking")
    await engine.answer(again.id, "ask", Answer(value="yes"))
    await bench.finish(again)
    await engine.cancel(stopped.id)
    await bench.finish(stopped, "cancelled")
    await asyncio.sleep(0.05)
    moment = time.time()
    await asyncio.sleep(1.1)  # on SQLite DBOS records only seconds
    await bench.run(late)
    await engine.retry(again.id, from_step="a")
    await bench.finish(again, "asking")
    ended = await engine.ended_before(moment)
    mine = {old.id, again.id, asks.id, stopped.id, late.id}
    assert mine & {*ended} == {old.id, stopped.id}
    removed = await engine.forget_all([old.id, stopped.id, asks.id, "nobody"])
    assert {*removed} == {old.id, stopped.id}
    assert not {*removed} & {*await engine.ended_before(moment)}
    for goal in (old, stopped):
        await refused(NotFound, engine.report(goal.id))
    for goal, state in ((asks, "asking"), (again, "asking"), (late, "done")):
        assert (await engine.report(goal.id)).state == state
