"""Order, bounds, tries and failures of steps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine_suite.bench import (
    QUICK,
    Gate,
    fails,
    holds,
    name_of,
    person,
    states,
    work,
)
from satchel.errors import StepFailed
from satchel.goals.model import GoalBudget

if TYPE_CHECKING:
    from engine_suite.bench import Bench
    from satchel.goals.model import Goal, GoalReport, Work


def in_order(bench: Bench, goal: Goal, report: GoalReport) -> None:
    """Every step was done once, after all it needs, and has its own output."""
    script = bench.script(goal)
    assert script.counts() == {step.id: 1 for step in goal.plan.steps}
    for step in goal.plan.steps:
        for need in step.needs:
            before, after = script.place("ended", need), script.place("began", step.id)
            assert before < after
    for name, result in report.steps.items():
        assert result.state == "done"
        assert result.output == name_of(goal.id, name)
        assert result.attempts == 1


def _earlier(number: int) -> list[str]:
    return [f"s{n}" for n in sorted({number // 2, number * 7 // 9, number * 3 // 4}) if n < number]


async def plan_of_80(bench: Bench) -> None:
    """Eighty steps that need each other in a tangle: each once, in order, its own output."""
    steps = [work(f"s{n}", *_earlier(n)) for n in range(80)]
    goal = bench.goal(*steps, parallel=16)
    in_order(bench, goal, await bench.run(goal))


async def long_names(bench: Bench) -> None:
    """Names may be as long as they are allowed to be."""
    one, other = "s" * 64, "s" * 63 + "-"
    goal = bench.goal(work(one), work(other, one), length=100)
    in_order(bench, goal, await bench.run(goal))
    assert (await bench.engine.list(limit=1))[0].id == goal.id


async def ten_goals_at_once(bench: Bench) -> None:
    """Goals do not disturb each other, though their steps have the same names."""
    goals = [bench.goal(work("a"), work("b", "a"), work("c", "a")) for _ in range(10)]
    reports = await asyncio.gather(*(bench.run(goal) for goal in goals))
    for goal, report in zip(goals, reports, strict=True):
        in_order(bench, goal, report)


async def retry_then_success(bench: Bench) -> None:
    """A step that fails twice and then succeeds is done, with three tries."""
    goal = bench.goal(work("a"), work("b", "a"), work={"a": fails(2, then="third")})
    report = await bench.run(goal)
    assert report.steps["a"].output == "third"
    assert report.steps["a"].attempts == 3
    assert [one.attempt for one in bench.script(goal).works("a")] == [1, 2, 3]
    assert {one.key for one in bench.script(goal).works("a")} == {f"{goal.id}:a:1"}
    assert bench.script(goal).times("b") == 1


async def timeout_per_try(bench: Bench) -> None:
    """A try that takes too long is ended, and the next one has the whole time again."""
    goal = bench.goal(
        work("a", timeout=0.1, retry=QUICK._replace(attempts=2)), work={"a": _hangs(2)}
    )
    result = (await bench.run(goal, "failed")).steps["a"]
    assert bench.script(goal).times("a") == 2
    assert bench.script(goal).times("a", "cancelled") == 2
    assert (result.error and result.error.code) == "TIMEOUT"


def _hangs(times: int) -> Any:
    async def act(work: Work) -> str:
        if work.attempt <= times:
            await asyncio.sleep(3600)
        return "in time"

    return act


def _broken() -> Exception:
    return StepFailed("It is broken", code="BROKEN", retryable=False)


async def fail_fast_stops_siblings(bench: Bench) -> None:
    """One failed step ends what runs beside it, and nothing more begins."""
    gate = Gate()
    failing = Gate()

    async def act(_: object) -> str:
        await failing.passed()
        raise _broken()

    goal = bench.goal(
        work("bad"),
        work("beside"),
        work("behind", "bad"),
        work("later", "beside"),
        work={"bad": act, "beside": holds(gate)},
    )
    await bench.engine.submit(goal)
    await bench.began(goal, "bad", "beside")
    failing.open()
    report = await bench.finish(goal, "failed")
    states(report, bad="failed", beside="cancelled", behind="cancelled", later="cancelled")
    script = bench.script(goal)
    await bench.until(lambda: script.times("beside", "cancelled") == 1)
    assert script.counts() == {"bad": 1, "beside": 1}
    assert "`bad`" in report.reason
    assert "broken" in report.reason


async def failure_takes_the_question_back(bench: Bench) -> None:
    """When a goal fails while a person is asked, the person need not answer any more."""
    gate = Gate()

    async def act(_: object) -> str:
        await gate.passed()
        raise _broken()

    goal = bench.goal(person("ask"), work("bad"), work("after", "ask"), work={"bad": act})
    await bench.engine.submit(goal)
    await bench.began(goal, "bad")
    await bench.in_state(goal, "ask", "asking")
    gate.open()
    report = await bench.finish(goal, "failed")
    states(report, ask="cancelled", bad="failed", after="cancelled")


async def long_error(bench: Bench) -> None:
    """An error of any length and with odd characters is kept, shortened."""

    def error() -> Exception:
        return StepFailed("错 \x00 \x1b " + "x" * 1_000_000, code="ODD", retryable=False)

    goal = bench.goal(work("a"), work={"a": fails(error=error)})
    kept = (await bench.run(goal, "failed")).steps["a"].error
    assert kept
    assert kept.message.startswith("错 \x00 \x1b x")
    assert len(kept.message) < 100_000


async def parallel_cap(bench: Bench) -> None:
    """With `parallel=3` three steps run at once, never more and not fewer."""
    gate = Gate()
    names = [f"s{number}" for number in range(12)]
    goal = bench.goal(*map(work, names), parallel=3, work={name: holds(gate) for name in names})
    await bench.engine.submit(goal)
    await bench.until(lambda: len(bench.script(goal).counts()) >= 3)
    await asyncio.sleep(0.05)
    gate.open()
    await bench.finish(goal)
    assert bench.script(goal).most_at_once() == 3


async def budget_of_time(bench: Bench) -> None:
    """A step that runs ends when the time is up, and none begins any more."""
    goal = bench.goal(
        work("a"),
        work("b", "a"),
        work("c", "b"),
        budget=GoalBudget(seconds=0.1),
        on_failure="continue",
        work={"a": holds(Gate())},
    )
    report = await bench.run(goal, "failed")
    states(report, a="failed", b="skipped", c="skipped")
    assert bench.script(goal).counts() == {"a": 1}
