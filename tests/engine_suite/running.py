"""Order, bounds, tries and failures of steps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from engine_suite.bench import (
    QUICK,
    Gate,
    fails,
    gives,
    holds,
    name_of,
    person,
    states,
    work,
)
from satchel.errors import StepFailed
from satchel.goals.model import Answer, Budget, Done, Usage

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


async def one_step(bench: Bench) -> None:
    """A plan of one step is done, and its report says who did it and when."""
    goal = bench.goal(work("only"))
    report = await bench.run(goal)
    in_order(bench, goal, report)
    assert report.id == goal.id
    assert report.plan == goal.plan
    assert report.engine == bench.engine.name
    assert report.revision == 1
    assert report.reason == ""
    assert report.started > 0
    assert report.steps["only"].started > 0


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


_NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def retry_then_success(bench: Bench) -> None:
    """A step that fails twice and then succeeds is done, with three tries."""
    goal = bench.goal(work("a"), work("b", "a"), work={"a": fails(2, then="third")})
    report = await bench.run(goal)
    assert report.steps["a"].output == "third"
    assert report.steps["a"].attempts == 3
    assert [one.attempt for one in bench.script(goal).works("a")] == [1, 2, 3]
    assert {one.key for one in bench.script(goal).works("a")} == {f"{goal.id}:a:1"}
    assert bench.script(goal).times("b") == 1


async def retries_exhausted(bench: Bench) -> None:
    """A step that always fails is tried as often as the policy says; its last error is kept."""
    goal = bench.goal(work("a"), work={"a": fails()})
    report = await bench.run(goal, "failed")
    result = report.steps["a"]
    assert bench.script(goal).times("a") == 3
    assert result.attempts == 3
    assert result.output is None
    assert result.error is not None
    assert (result.error and result.error[:2]) == ("BUSY", "The server is busy")
    assert "`a`" in report.reason
    assert "busy" in report.reason


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


async def mismatch_fails(bench: Bench) -> None:
    """An output that never fits fails the step, and does not flow on."""
    goal = bench.goal(
        work("a", output=_NUMBER),
        work("b", prompt="{{steps.a.output.n}}"),
        work={"a": gives({"m": 1})},
    )
    report = await bench.run(goal, "failed")
    states(report, a="failed", b="cancelled")
    assert report.steps["a"].attempts == 3
    assert (report.steps["a"].error and report.steps["a"].error.code) == "INVALID_OUTPUT"
    assert bench.script(goal).times("b") == 0


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


async def skip_dependents(bench: Bench) -> None:
    """With `skip_dependents`, only what depends on the failed step is left out, near and far."""
    goal = bench.goal(
        work("bad"),
        work("near", "bad"),
        work("far", "near"),
        work("good"),
        work("after", "good"),
        work("mixed", "good", "bad"),
        on_failure="skip_dependents",
        work={"bad": fails(error=_broken)},
    )
    report = await bench.run(goal, "partial")
    states(
        report,
        bad="failed",
        near="skipped",
        far="skipped",
        good="done",
        after="done",
        mixed="skipped",
    )
    for name in ("near", "far", "mixed"):
        error = report.steps[name].error
        assert error
        assert "`bad`" in error.message
    assert set(bench.script(goal).counts()) == {"bad", "good", "after"}


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
    """Three steps at once, when the plan says three: never more, and not fewer."""
    gate = Gate()
    names = [f"s{number}" for number in range(12)]
    goal = bench.goal(*map(work, names), parallel=3, work={name: holds(gate) for name in names})
    await bench.engine.submit(goal)
    await bench.until(lambda: len(bench.script(goal).counts()) >= 3)
    await asyncio.sleep(0.05)
    gate.open()
    await bench.finish(goal)
    assert bench.script(goal).most_at_once() == 3


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
    states(report, a="done", b="done", c="skipped")
    error = report.steps["c"].error
    assert (error and error.code) == "BUDGET"
    assert "150" in report.reason
    assert bench.script(goal).counts() == {"a": 1, "b": 1}


async def budget_of_time(bench: Bench) -> None:
    """A step that runs ends when the time is up, and none begins any more."""
    goal = bench.goal(
        work("a"),
        work("b", "a"),
        work("c", "b"),
        budget=Budget(seconds=0.1),
        on_failure="continue",
        work={"a": holds(Gate())},
    )
    report = await bench.run(goal, "failed")
    states(report, a="failed", b="skipped", c="skipped")
    assert bench.script(goal).counts() == {"a": 1}


async def people_cost_no_time(bench: Bench) -> None:
    """Waiting for a person does not use up the time."""
    goal = bench.goal(person("ask"), work("a", "ask"), budget=Budget(seconds=0.3))
    await bench.run(goal, "asking")
    await asyncio.sleep(0.4)
    await bench.engine.answer(goal.id, "ask", Answer())
    await bench.finish(goal)
