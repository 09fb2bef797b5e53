"""What does a failed step mean for the others? Stop, go on without it, or leave some out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.errors import StepFailed
from satchel.testing.engine_suite.base import case, expect, person, same, states, work
from satchel.testing.engine_suite.script import Gate, fails, holds

if TYPE_CHECKING:
    from satchel.testing.engine_suite.base import Bench


def _broken() -> Exception:
    return StepFailed("BROKEN", "It is broken", retryable=False)


@case()
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
    await bench.until(lambda: script.times("beside", "cancelled") == 1, "`beside` was ended")
    same(script.counts(), {"bad": 1, "beside": 1}, "what was done")
    expect("`bad`" in report.reason and "broken" in report.reason, "the reason names no step")


@case()
async def fail_fast_keeps_what_is_done(bench: Bench) -> None:
    """What had ended before the failure is still there."""
    goal = bench.goal(work("a"), work("b", "a"), work("c", "b"), work={"b": fails(error=_broken)})
    report = await bench.run(goal, "failed")
    states(report, a="done", b="failed", c="cancelled")
    expect(report.steps["a"].output, "the output of `a` is gone")


@case()
async def continue_runs_dependents(bench: Bench) -> None:
    """With `continue`, a step runs without the output of one that failed."""
    goal = bench.goal(
        work("bad"),
        work("good"),
        work("both", prompt="{{steps.bad.output}} and {{steps.good.output}}"),
        on_failure="continue",
        work={"bad": fails(error=_broken)},
    )
    report = await bench.run(goal, "partial")
    states(report, bad="failed", good="done", both="done")
    expect(
        bench.script(goal).work("both").prompt.startswith("null and good of"),
        f"the prompt is {bench.script(goal).work('both').prompt!r}",
    )


@case()
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
        expect(error and "`bad`" in error.message, f"`{name}` does not say which step failed")
    same(set(bench.script(goal).counts()), {"bad", "good", "after"}, "what was done")


@case()
async def own_meaning_wins(bench: Bench) -> None:
    """A step's own `on_failure` counts more than the plan's."""
    goal = bench.goal(
        work("bad", on_failure="skip_dependents"),
        work("behind", "bad"),
        work("soft", on_failure="continue"),
        work("after", "soft"),
        work={"bad": fails(error=_broken), "soft": fails(error=_broken)},
    )
    report = await bench.run(goal, "partial")
    states(report, bad="failed", behind="skipped", soft="failed", after="done")


@case()
async def nothing_done_is_failed(bench: Bench) -> None:
    """A goal of which no step was done is failed, whatever the policy."""
    goal = bench.goal(
        work("a"),
        work("b"),
        on_failure="continue",
        work={"a": fails(error=_broken), "b": fails(error=_broken)},
    )
    report = await bench.run(goal, "failed")
    states(report, a="failed", b="failed")
    expect(report.reason, "no reason is given")


@case()
async def partial_has_reason_and_outputs(bench: Bench) -> None:
    """A partial goal says why, and has the outputs of the steps that were done."""
    goal = bench.goal(
        work("good"),
        work("bad"),
        on_failure="skip_dependents",
        work={"bad": fails(error=_broken)},
    )
    report = await bench.run(goal, "partial")
    expect("`bad`" in report.reason, "the reason names no step")
    expect(report.steps["good"].output, "the output of `good` is gone")
    again = await bench.engine.report(goal.id)
    same((again.state, again.reason), ("partial", report.reason), "the report, later")


@case()
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


@case()
async def long_error(bench: Bench) -> None:
    """An error of any length and with odd characters is kept, shortened."""

    def error() -> Exception:
        return StepFailed("ODD", "错 \x00 \x1b " + "x" * 1_000_000, retryable=False)

    goal = bench.goal(work("a"), work={"a": fails(error=error)})
    kept = (await bench.run(goal, "failed")).steps["a"].error
    expect(kept and kept.message.startswith("错 \x00 \x1b x"), "the message is another one")
    expect(kept and len(kept.message) < 100_000, "the message was not shortened")
