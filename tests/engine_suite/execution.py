"""Order, bounds, tries and failures of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_suite.bench import Gate, fails, holds, name_of, person, states, work
from satchel.errors import StepFailed

if TYPE_CHECKING:
    from engine_suite.bench import Bench
    from satchel.goals.model import Goal, GoalReport


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
