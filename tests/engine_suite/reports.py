"""Submission, reports and lists."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from engine_suite.bench import Gate, fails_until, gives, holds, person, refused, work
from satchel.errors import Conflict, InvalidInput, NotFound, SatchelError
from satchel.goals.model import Answer

if TYPE_CHECKING:
    from engine_suite.bench import Bench


async def same_plan_again(bench: Bench) -> None:
    """Submitting the same goal again, while it runs and later, is the same goal."""
    gate = Gate()
    goal = bench.goal(work("a"), work("b", "a"), work={"a": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "a")
    again = await bench.engine.submit(goal)
    assert again.id == goal.id
    gate.open()
    report = await bench.finish(goal)
    late = await bench.engine.submit(goal)
    assert (late.state, late.steps) == ("done", report.steps)
    assert bench.script(goal).counts() == {"a": 1, "b": 1}


async def two_plans_at_once(bench: Bench) -> None:
    """Of two plans that come under one id at the same moment, one is taken and one refused."""
    goal = bench.goal(work("a"))
    other = goal._replace(plan=bench.plan(work("b")))
    found = await asyncio.gather(
        bench.engine.submit(goal), bench.engine.submit(other), return_exceptions=True
    )
    assert sum(isinstance(one, Conflict) for one in found) == 1
    await bench.finish(goal)
    assert sum(bench.script(goal).counts().values()) == 1


async def invalid_plan_is_refused(bench: Bench) -> None:
    """A plan with errors is refused, and not kept."""
    goal = bench.goal(work("a", "b"), work("b", "a"))
    await refused(InvalidInput, bench.engine.submit(goal))
    await refused(NotFound, bench.engine.report(goal.id))


async def unknown_goal(bench: Bench) -> None:
    """Every method raises NotFound for an unknown goal."""
    name = bench.goal(work("a")).id
    engine = bench.engine
    await refused(NotFound, engine.report(name))
    await refused(NotFound, engine.wait(name, 0.1))
    await refused(NotFound, engine.resume(name))
    await refused(NotFound, engine.cancel(name))
    for odd in ("../etc", "a b", "", "名"):
        await refused(SatchelError, engine.report(f"{name}{odd}/x"))


async def report_while_running(bench: Bench) -> None:
    """A report, and waiting that ends in time, show what has ended while the rest is under way."""
    gate = Gate()
    goal = bench.goal(
        work("a"), work("b", "a"), work("c", "b"), work={"a": gives("早"), "b": holds(gate)}
    )
    await bench.engine.submit(goal)
    await bench.began(goal, "b")
    await bench.in_state(goal, "a", "done")
    engine = bench.engine
    for asked in (engine.report(goal.id), engine.wait(goal.id, 0.05), engine.wait(goal.id, 0)):
        report = await asked
        assert (report.state, report.ended) == ("running", 0.0)
        assert report.steps["a"].output == "早"
        assert report.steps["b"].state in {"running", "waiting"}
        assert report.steps["c"].state == "waiting"
    gate.open()
    await bench.finish(goal)


async def list_of_goals(bench: Bench) -> None:
    """The latest goal comes first, also when an older one is answered or tried again later.

    States, a limit and a moment narrow the list.
    """
    gate, engine = Gate(), bench.engine
    answered = bench.goal(person("ask"), work("a", "ask"), goal="第一")
    again = bench.goal(work("a"), work={"a": fails_until(gate)})
    last = bench.goal(work("a"), work("b"), work={"b": fails_until(Gate())}, on_failure="continue")
    await bench.run(answered, "asking")
    await asyncio.sleep(0.02)
    await bench.run(again, "failed")
    await asyncio.sleep(0.02)
    moment = time.time()
    await asyncio.sleep(0.02)
    await bench.run(last, "partial")
    latest = await engine.list(limit=3)
    assert [one.id for one in latest] == [last.id, again.id, answered.id]
    assert [one.state for one in latest] == ["partial", "failed", "asking"]
    assert [(one.done, one.steps) for one in latest] == [(1, 2), (0, 1), (0, 2)]
    assert (latest[2].goal, {one.engine for one in latest}) == ("第一", {engine.name})
    asking = await engine.list(states=("asking",), limit=1)
    assert [one.id for one in asking] == [answered.id]
    gate.open()
    await engine.retry(again.id)
    await bench.finish(again)
    await engine.answer(answered.id, "ask", Answer())
    report = await bench.finish(answered)
    latest = await engine.list(states=("done", "partial"), limit=3)
    assert [one.id for one in latest] == [last.id, again.id, answered.id]
    assert (latest[2].started, latest[2].seconds) == (report.started, report.seconds)
    older = await engine.list(before=moment, limit=2)
    assert [(one.id, one.state) for one in older] == [(again.id, "done"), (answered.id, "done")]
    assert await engine.list(before=1.0) == []


async def resume_of_what_runs(bench: Bench) -> None:
    """Resuming a goal that is at work does not run it twice, and it cannot be tried again."""
    gate = Gate()
    goal = bench.goal(work("a"), work={"a": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "a")
    try:
        report = await bench.engine.resume(goal.id)
    except Conflict:
        pass  # another run has it
    else:
        assert report.state == "running"
    await refused(Conflict, bench.engine.retry(goal.id))
    gate.open()
    assert (await bench.finish(goal)).revision == 1
    assert bench.script(goal).counts() == {"a": 1}
