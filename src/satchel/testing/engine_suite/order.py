"""Does each step begin when it may, and not before? Chains, diamonds, fans, and large plans."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from satchel.testing.engine_suite.base import case, expect, same, work
from satchel.testing.engine_suite.script import Gate, gives, holds, name_of, sleeps

if TYPE_CHECKING:
    from satchel.goals.model import Goal, GoalReport
    from satchel.testing.engine_suite.base import Bench


def in_order(bench: Bench, goal: Goal, report: GoalReport) -> None:
    """Every step was done once, after all it needs, and has its own output."""
    script = bench.script(goal)
    same(script.counts(), {step.id: 1 for step in goal.plan.steps}, "how often steps were done")
    for step in goal.plan.steps:
        for need in step.needs:
            before, after = script.place("ended", need), script.place("began", step.id)
            expect(before < after, f"`{step.id}` began before `{need}` ended")
    for name, result in report.steps.items():
        same(result.state, "done", f"the state of `{name}`")
        same(result.output, name_of(goal.id, name), f"the output of `{name}`")
        same(result.attempts, 1, f"the tries of `{name}`")


@case()
async def one_step(bench: Bench) -> None:
    """A plan of one step is done, and its report says who did it and when."""
    goal = bench.goal(work("only"))
    report = await bench.run(goal)
    in_order(bench, goal, report)
    same(report.id, goal.id, "the report's id")
    same(report.plan, goal.plan, "the report's plan")
    same(report.engine, bench.engine.name, "the report's engine")
    same(report.revision, 1, "the revision")
    same(report.reason, "", "the reason")
    expect(report.started > 0, "the goal has no start")
    expect(report.steps["only"].started > 0, "the step has no start")


@case()
async def chain_of_three(bench: Bench) -> None:
    """A step begins after what it needs has ended."""
    goal = bench.goal(
        work("a"), work("b", "a"), work("c", "b"), work={"a": sleeps(0.03), "b": sleeps(0.03)}
    )
    await bench.run(goal)
    script = bench.script(goal)
    found = [(one.kind, one.work.step.id) for one in script.moments]
    wanted = [(kind, step) for step in "abc" for kind in ("began", "ended")]
    same(found, wanted, "what happened")


@case()
async def plan_in_any_order(bench: Bench) -> None:
    """Steps may stand in the plan before what they need; the report keeps the plan's order."""
    goal = bench.goal(work("d", "b", "c"), work("c", "a"), work("b", "a"), work("a"))
    report = await bench.run(goal)
    in_order(bench, goal, report)
    same(list(report.steps), ["d", "c", "b", "a"], "the order of the report")


@case()
async def diamond(bench: Bench) -> None:
    """Two branches run at the same time, and the step behind them waits for both."""
    gate = Gate()
    goal = bench.goal(
        work("top"),
        work("left", "top"),
        work("right", "top"),
        work("bottom", "left", "right"),
        work={"left": holds(gate), "right": holds(gate)},
    )
    await bench.engine.submit(goal)
    await bench.began(goal, "left", "right")
    same(bench.script(goal).times("bottom"), 0, "how often `bottom` began")
    gate.open()
    await bench.finish(goal)
    script = bench.script(goal)
    last = max(script.place("ended", "left"), script.place("ended", "right"))
    expect(script.place("began", "bottom") > last, "`bottom` began before both branches ended")


@case()
async def independent_steps_run_together(bench: Bench) -> None:
    """Steps that need nothing of each other are at work at the same time."""
    gate = Gate()
    names = [f"s{number}" for number in range(8)]
    goal = bench.goal(*map(work, names), work={name: holds(gate) for name in names})
    await bench.engine.submit(goal)
    await bench.began(goal, *names)
    gate.open()
    await bench.finish(goal)
    same(bench.script(goal).most_at_once(), 8, "steps at once")


@case()
async def slow_and_quick_need(bench: Bench) -> None:
    """A step with two needs waits for the slower one."""
    gate = Gate()
    goal = bench.goal(
        work("quick"), work("slow"), work("both", "quick", "slow"), work={"slow": holds(gate)}
    )
    await bench.engine.submit(goal)
    await bench.in_state(goal, "quick", "done")
    same(bench.script(goal).times("both"), 0, "how often `both` began")
    gate.open()
    await bench.finish(goal)
    same(bench.script(goal).times("both"), 1, "how often `both` began")


@case()
async def template_is_a_need(bench: Bench) -> None:
    """A step whose prompt mentions another's output waits for it, without saying so."""
    gate = Gate()
    goal = bench.goal(
        work("reader", prompt="Read {{steps.writer.output}}"),
        work("writer"),
        work={"writer": holds(gate, "this")},
    )
    await bench.engine.submit(goal)
    await bench.began(goal, "writer")
    gate.open()
    await bench.finish(goal)
    same(bench.script(goal).work("reader").prompt, "Read this", "the prompt")


@case()
async def fan_of_100(bench: Bench) -> None:
    """One step fans out to 100, and one step gathers them."""
    names = [f"s{number}" for number in range(100)]
    goal = bench.goal(
        work("root"), *(work(name, "root") for name in names), work("gather", *names), parallel=200
    )
    in_order(bench, goal, await bench.run(goal))


@case()
async def fan_in_of_100_values(bench: Bench) -> None:
    """A step gets 100 outputs, each at its own place."""
    names = [f"s{number}" for number in range(100)]
    prompt = " ".join(f"{{{{steps.{name}.output}}}}" for name in names)
    goal = bench.goal(
        *map(work, names), work("all", prompt=prompt), work={n: gives(f"<{n}>") for n in names}
    )
    await bench.run(goal)
    wanted = " ".join(f"<{name}>" for name in names)
    same(bench.script(goal).work("all").prompt, wanted, "the prompt")


@case()
async def chain_of_50(bench: Bench) -> None:
    """Fifty steps, one after the other."""
    names = [f"s{number}" for number in range(50)]
    steps = [work(names[0]), *(work(b, a) for a, b in pairwise(names))]
    goal = bench.goal(*steps)
    in_order(bench, goal, await bench.run(goal))
    same(bench.script(goal).most_at_once(), 1, "steps at once")


def _earlier(number: int) -> list[str]:
    return [f"s{n}" for n in sorted({number // 2, number * 7 // 9, number * 3 // 4}) if n < number]


@case()
async def plan_of_200(bench: Bench) -> None:
    """Two hundred steps that need each other in a tangle: each once, in order, its own output."""
    steps = [work(f"s{n}", *_earlier(n)) for n in range(200)]
    goal = bench.goal(*steps, parallel=16)
    in_order(bench, goal, await bench.run(goal))


@case()
async def long_names(bench: Bench) -> None:
    """Names may be as long as they are allowed to be."""
    one, other = "s" * 64, "s" * 63 + "-"
    goal = bench.goal(work(one), work(other, one), length=100)
    in_order(bench, goal, await bench.run(goal))
    same((await bench.engine.list(limit=1))[0].id, goal.id, "the latest goal")


@case()
async def twenty_goals_at_once(bench: Bench) -> None:
    """Goals do not disturb each other, though their steps have the same names."""
    import asyncio

    goals = [bench.goal(work("a"), work("b", "a"), work("c", "a")) for _ in range(20)]
    reports = await asyncio.gather(*(bench.run(goal) for goal in goals))
    for goal, report in zip(goals, reports, strict=True):
        in_order(bench, goal, report)
