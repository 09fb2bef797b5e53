"""Order, bounds, tries and failures of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_suite.bench import (
    Gate,
    broken,
    fails_until,
    holds,
    name_of,
    person,
    refused,
    states,
    work,
)
from satchel.errors import InvalidInput, StepFailed

if TYPE_CHECKING:
    from engine_suite.bench import Bench
    from satchel.goals.model import Work


def _earlier(number: int) -> list[str]:
    return [f"s{n}" for n in sorted({number // 2, number * 7 // 9, number * 3 // 4}) if n < number]


async def plan_of_80(bench: Bench) -> None:
    """Eighty steps that need each other in a tangle: each once, with its own output."""
    steps = [work(f"s{n}", *_earlier(n)) for n in range(80)]
    goal = bench.goal(*steps, parallel=16)
    report = await bench.run(goal)
    assert bench.script(goal).counts() == {step.id: 1 for step in steps}
    for name, result in report.steps.items():
        assert (result.output, result.attempts) == (name_of(goal.id, name), 1)


async def fail_fast_stops_siblings(bench: Bench) -> None:
    """One failed step ends what runs beside it, and nothing more begins."""
    failing = Gate()
    goal = bench.goal(
        work("bad"),
        work("beside"),
        work("behind", "bad"),
        work("later", "beside"),
        work={"bad": holds(failing, broken()), "beside": holds(Gate())},
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
    goal = bench.goal(
        person("ask"), work("bad"), work("after", "ask"), work={"bad": holds(gate, broken())}
    )
    await bench.engine.submit(goal)
    await bench.began(goal, "bad")
    await bench.in_state(goal, "ask", "asking")
    gate.open()
    report = await bench.finish(goal, "failed")
    states(report, ask="cancelled", bad="failed", after="cancelled")


async def long_error(bench: Bench) -> None:
    """An error of any length and with odd characters is kept, shortened."""

    error = StepFailed("错 \x00 \x1b " + "x" * 1_000_000, code="ODD", retryable=False)
    goal = bench.goal(work("a"), work={"a": fails_until(Gate(), error)})
    kept = (await bench.run(goal, "failed")).steps["a"].error
    assert kept
    assert kept.message.startswith("错 \x00 \x1b x")
    assert len(kept.message) < 100_000


async def half_a_character(bench: Bench) -> None:
    """A lone surrogate is replaced in the message of a failure, and refused in a plan."""

    async def fail(_: Work) -> None:
        raise ValueError("half \ud83d of it")

    goal = bench.goal(work("a"), work={"a": fail})
    report = await bench.run(goal, "failed")
    assert report.steps["a"].error.message == "ValueError: half ? of it"
    await refused(InvalidInput, bench.engine.submit(bench.goal(work("a", prompt="\ud83d"))))
