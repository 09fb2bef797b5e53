"""Is a goal that is tried again, maybe with a changed plan, done only where it must be?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from satchel.errors import Conflict, InvalidInput, NotFound
from satchel.goals.model import Answer
from satchel.testing.engine_suite.base import case, person, refused, same, states, work
from satchel.testing.engine_suite.script import Gate, fails_until, gives, holds

if TYPE_CHECKING:
    from satchel.testing.engine_suite.base import Bench


@case()
async def retry_of_failed_only(bench: Bench) -> None:
    """Trying again does what was not done, and keeps the rest."""
    gate = Gate()
    goal = bench.goal(
        work("a"),
        work("b", prompt="{{steps.a.output}}"),
        work("c", "b"),
        work={"b": fails_until(gate)},
    )
    failed = await bench.run(goal, "failed")
    gate.open()
    began = await bench.engine.retry(goal.id)
    same(began.id, goal.id, "the goal that is tried again")
    report = await bench.finish(goal)
    states(report, a="done", b="done", c="done")
    same(report.revision, 2, "the revision")
    same(report.steps["a"], failed.steps["a"], "the result that was kept")
    same(bench.script(goal).counts(), {"a": 1, "b": 2, "c": 1}, "what was done")


@case()
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
    same(report.steps["b"].output, "new", "the output of `b`")
    same(bench.script(goal).work("c").prompt, "new", "the prompt of `c`")
    counts = {"a": 1, "b": 2, "c": 2, "d": 2, "other": 1}
    same(bench.script(goal).counts(), counts, "what was done")


@case()
async def changed_plan_keeps_what_holds(bench: Bench) -> None:
    """With a changed plan only the changed step, and what depends on it, is done again."""
    goal = bench.goal(work("a"), work("b", "a"), work("c", "b"), work("d", "a"))
    await bench.run(goal)
    plan = bench.plan(
        work("a"), work("b", "a", prompt="Do it otherwise"), work("c", "b"), work("d", "a")
    )
    await bench.engine.retry(goal.id, plan=plan)
    report = await bench.finish(goal)
    same(report.plan, plan, "the plan of the report")
    same(report.revision, 2, "the revision")
    same(bench.script(goal).work("b").prompt, "Do it otherwise", "the prompt of `b`")
    same(bench.script(goal).counts(), {"a": 1, "b": 2, "c": 2, "d": 1}, "what was done")


@case()
async def plan_with_another_step(bench: Bench) -> None:
    """A step that is added is done, one that is taken away is gone."""
    goal = bench.goal(work("a"), work("b", "a"), work("old", "a"))
    await bench.run(goal)
    plan = bench.plan(work("a"), work("b", "a"), work("new", "b"))
    await bench.engine.retry(goal.id, plan=plan)
    report = await bench.finish(goal)
    same(list(report.steps), ["a", "b", "new"], "the steps of the report")
    same(bench.script(goal).counts(), {"a": 1, "b": 1, "old": 1, "new": 1}, "what was done")


@case()
async def changed_input_is_a_change(bench: Bench) -> None:
    """A step that uses an input is done again when that input changes."""
    goal = bench.goal(work("a", prompt="{{inputs.x}}"), work("b"), inputs={"x": 1})
    await bench.run(goal)
    await bench.engine.retry(goal.id, plan=goal.plan._replace(inputs={"x": 2}))
    await bench.finish(goal)
    same(bench.script(goal).work("a").prompt, "2", "the prompt")
    same(bench.script(goal).counts(), {"a": 2, "b": 1}, "what was done")


@case()
async def key_differs_between_revisions(bench: Bench) -> None:
    """What is done on purpose again has another key than the first time."""
    goal = bench.goal(work("a"))
    await bench.run(goal)
    for _ in range(2):
        await bench.engine.retry(goal.id, from_step="a")
        await bench.finish(goal)
    keys = [one.key for one in bench.script(goal).works("a")]
    same(keys, [f"{goal.id}:a:{number}" for number in (1, 2, 3)], "the keys")
    same((await bench.engine.report(goal.id)).revision, 3, "the revision")


@case()
async def retry_of_done_does_nothing(bench: Bench) -> None:
    """Trying again what is done does nothing twice."""
    goal = bench.goal(work("a"), work("b", "a"))
    await bench.run(goal)
    await bench.engine.retry(goal.id)
    report = await bench.finish(goal)
    states(report, a="done", b="done")
    same(bench.script(goal).counts(), {"a": 1, "b": 1}, "what was done")


@case()
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
    same(bench.script(goal).counts(), {"a": 1, "b": 2}, "what was done")


@case()
async def retry_while_asking(bench: Bench) -> None:
    """The plan of a goal that asks can be changed; it then goes on with the new one."""
    goal = bench.goal(work("a"), person("ask", "a"), work("b", "ask"))
    await bench.run(goal, "asking")
    plan = bench.plan(work("a"), work("b", "a"))
    await bench.engine.retry(goal.id, plan=plan)
    report = await bench.finish(goal)
    same(list(report.steps), ["a", "b"], "the steps of the report")
    same(bench.script(goal).counts(), {"a": 1, "b": 1}, "what was done")


@case()
async def answers_do_not_outlive_their_step(bench: Bench) -> None:
    """A person is asked again when the step is done again; what was said before is kept else."""
    goal = bench.goal(person("ask"), work("a", prompt="{{steps.ask.output}}"))
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(value="one"))
    await bench.finish(goal)
    await bench.engine.retry(goal.id, from_step="a")
    await bench.finish(goal)
    same(bench.script(goal).work("a").prompt, "one", "the prompt")
    await bench.engine.retry(goal.id, from_step="ask")
    await bench.finish(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(value="two"))
    await bench.finish(goal)
    same(bench.script(goal).work("a").prompt, "two", "the prompt")
    same(bench.script(goal).times("a"), 3, "how often `a` was done")


@case()
async def two_retries_at_once(bench: Bench) -> None:
    """Of two who try a goal again at the same moment one begins, and the other one is refused."""
    gate = Gate()
    goal = bench.goal(work("a"), work={"a": gives("quick")})
    await bench.run(goal)
    bench.script(goal).acts["a"] = holds(gate)
    found = await asyncio.gather(
        *(bench.engine.retry(goal.id, from_step="a") for _ in range(2)), return_exceptions=True
    )
    same(sum(isinstance(one, Conflict) for one in found), 1, f"refusals in {found!r}")
    gate.open()
    report = await bench.finish(goal)
    same((report.revision, bench.script(goal).times("a")), (2, 2), "revision and tries")


@case()
async def retry_while_running(bench: Bench) -> None:
    """A goal that runs cannot be tried again."""
    gate = Gate()
    goal = bench.goal(work("a"), work={"a": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "a")
    await refused(Conflict, bench.engine.retry(goal.id), "a goal that runs")
    gate.open()
    report = await bench.finish(goal)
    same(report.revision, 1, "the revision")


@case()
async def retry_of_what_is_not_there(bench: Bench) -> None:
    """An unknown goal, an unknown step or a broken plan is refused, and nothing changes."""
    goal = bench.goal(work("a"))
    await bench.run(goal)
    await refused(NotFound, bench.engine.retry(f"{goal.id}-x"), "an unknown goal")
    await refused(NotFound, bench.engine.retry(goal.id, from_step="x"), "an unknown step")
    broken = bench.plan(work("a", "b"), work("b", "a"))
    await refused(InvalidInput, bench.engine.retry(goal.id, plan=broken), "a plan in a circle")
    report = await bench.finish(goal)
    same((report.revision, report.plan), (1, goal.plan), "revision and plan")
