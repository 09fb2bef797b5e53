"""Is a goal that is removed gone, all of it, and nothing else?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.errors import Conflict, NotFound, StepFailed
from satchel.goals.artefacts import is_reference, load
from satchel.goals.model import Answer
from satchel.testing.engine_suite.base import (
    CaseFailed,
    case,
    expect,
    person,
    refused,
    same,
    states,
    work,
)
from satchel.testing.engine_suite.script import Gate, fails_until, gives, holds

if TYPE_CHECKING:
    from satchel.testing.engine_suite.base import Bench

_LARGE = "大" * 200_000


@case()
async def forget_what_is_over(bench: Bench) -> None:
    """A goal that is removed is not known any more, whatever is asked; others stay."""
    goal, failed, other = (bench.goal(work("a")) for _ in range(3))
    bench.script(failed).acts["a"] = fails_until(Gate())
    await bench.run(goal)
    await bench.run(failed, "failed")
    before = await bench.run(other)
    engine = bench.engine
    for one in (goal, failed):
        await engine.forget(one.id)
        await refused(NotFound, engine.report(one.id), "a report")
        await refused(NotFound, engine.wait(one.id, 0.1), "a wait")
        await refused(NotFound, engine.retry(one.id), "a retry")
        await refused(NotFound, engine.forget(one.id), "removing it again")
    listed = {one.id for one in await engine.list(limit=500)}
    expect(not listed & {goal.id, failed.id}, "what is removed is listed")
    expect(other.id in listed, "another goal is not listed any more")
    same(await engine.report(other.id), before, "the report of another goal")


@case()
async def forget_what_runs(bench: Bench) -> None:
    """A goal that is at work is not removed; once it is over it can be."""
    gate = Gate()
    goal = bench.goal(work("a"), work={"a": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "a")
    await refused(Conflict, bench.engine.forget(goal.id), "removing it")
    gate.open()
    await bench.finish(goal)
    await bench.engine.forget(goal.id)
    await refused(NotFound, bench.engine.report(goal.id), "a report")


@case()
async def forget_what_asks(bench: Bench) -> None:
    """A goal that waits for a person is not removed; once it is cancelled it can be."""
    goal = bench.goal(person("ask"))
    await bench.run(goal, "asking")
    await refused(Conflict, bench.engine.forget(goal.id), "removing it")
    states(await bench.finish(goal, "asking"), ask="asking")
    await bench.engine.cancel(goal.id)
    await bench.finish(goal, "cancelled")
    await bench.engine.forget(goal.id)
    await refused(NotFound, bench.engine.report(goal.id), "a report")


@case()
async def forget_and_submit_again(bench: Bench) -> None:
    """The same id runs from scratch, also with another plan; answers are forgotten too."""
    goal = bench.goal(work("a"), person("ask", "a"), work("b", "ask"))
    engine = bench.engine
    await bench.run(goal, "asking")
    await engine.answer(goal.id, "ask", Answer(value="first"))
    await bench.finish(goal)
    await engine.retry(goal.id, from_step="b")
    same((await bench.finish(goal)).revision, 2, "the revision")
    await engine.forget(goal.id)
    report = await bench.run(goal, "asking")
    same((report.revision, report.steps["a"].attempts), (1, 1), "revision and tries")
    same(bench.script(goal).counts(), {"a": 2, "b": 2}, "what was done")
    await engine.answer(goal.id, "ask", Answer(value="second"))
    same((await bench.finish(goal)).steps["ask"].output, "second", "the answer")
    await engine.forget(goal.id)
    other = goal._replace(plan=bench.plan(work("c")))
    report = await bench.run(other)
    same((report.plan, list(report.steps)), (other.plan, ["c"]), "the plan")
    same(bench.script(goal).counts(), {"a": 2, "b": 3, "c": 1}, "what was done")


@case()
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
    expect(is_reference(gone) and is_reference(kept), "a large output is no reference")
    engine = bench.engine
    await engine.forget(one.id)
    expect(await load(kept, engine.artefacts) == _LARGE, "the other goal lost its output")
    try:
        await load(gone, engine.artefacts)
    except StepFailed as exc:
        same(exc.code, "ARTEFACT_MISSING", "why it cannot be loaded")
    else:
        raise CaseFailed("the large output is still there")
    await engine.retry(other.id, from_step="b")
    await bench.finish(other)
    same(bench.script(other).work("b").prompt, _LARGE, "what `b` got after that")


@case("shares")
async def forget_from_elsewhere(bench: Bench) -> None:
    """A goal is removed by another engine at the same place, and takes another plan there."""
    goal = bench.goal(work("a"))
    await bench.run(goal)
    await bench.engine.report(goal.id)
    other = goal._replace(plan=bench.plan(work("b"), work("c", "b")))
    async with bench.another() as second:
        await second.forget(goal.id)
        await refused(NotFound, bench.engine.report(goal.id), "a report")
        await bench.engine.submit(other)
        report = await bench.finish(other)
        same(report.plan, other.plan, "the plan")
        same((await second.report(goal.id)).plan, other.plan, "the plan, seen from elsewhere")
        await bench.engine.forget(goal.id)
        await bench.engine.submit(goal)
        await bench.finish(goal)
        same((await second.report(goal.id)).plan, goal.plan, "the plan, seen again")


@case("keeps")
async def forgotten_stays_forgotten(bench: Bench) -> None:
    """A goal that was removed does not come back with a restart."""
    goal = bench.goal(work("a"))
    await bench.run(goal)
    await bench.engine.forget(goal.id)
    engine = await bench.reopen()
    await refused(NotFound, engine.report(goal.id), "a report")
    expect(goal.id not in {one.id for one in await engine.list(limit=500)}, "it is listed")
