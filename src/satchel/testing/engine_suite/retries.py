"""Is a step tried again when it should be, and only then? Tries, waits, timeouts, checks, keys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from satchel.errors import InvalidInput, StepFailed
from satchel.goals.model import Retry
from satchel.testing.engine_suite.base import QUICK, case, expect, same, states, work
from satchel.testing.engine_suite.script import fails, gives

if TYPE_CHECKING:
    from satchel.goals.model import Work
    from satchel.testing.engine_suite.base import Bench

_NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@case()
async def retry_then_success(bench: Bench) -> None:
    """A step that fails twice and then succeeds is done, with three tries."""
    goal = bench.goal(work("a"), work("b", "a"), work={"a": fails(2, then="third")})
    report = await bench.run(goal)
    same(report.steps["a"].output, "third", "the output")
    same(report.steps["a"].attempts, 3, "the tries")
    same([one.attempt for one in bench.script(goal).works("a")], [1, 2, 3], "the tries' numbers")
    same(bench.script(goal).times("b"), 1, "how often `b` was done")


@case()
async def retries_exhausted(bench: Bench) -> None:
    """A step that always fails is tried as often as the policy says; its last error is kept."""
    goal = bench.goal(work("a"), work={"a": fails()})
    report = await bench.run(goal, "failed")
    result = report.steps["a"]
    same(bench.script(goal).times("a"), 3, "the tries")
    same(result.attempts, 3, "the tries that are reported")
    same(result.output, None, "the output")
    expect(result.error is not None, "the step has no error")
    same(result.error and result.error[:2], ("BUSY", "The server is busy"), "the error")
    expect("`a`" in report.reason and "busy" in report.reason, "the reason does not say which step")


@case()
async def not_retryable(bench: Bench) -> None:
    """An error that says so is not tried again."""

    def error() -> Exception:
        return StepFailed("NO_KEY", "There is no key", "Set one", retryable=False)

    goal = bench.goal(work("a"), work={"a": fails(error=error)})
    result = (await bench.run(goal, "failed")).steps["a"]
    same(bench.script(goal).times("a"), 1, "the tries")
    same(result.error, ("NO_KEY", "There is no key", "Set one", False), "the error")


@case()
async def our_errors_are_final(bench: Bench) -> None:
    """Wrong input stays wrong: it is not tried again."""
    goal = bench.goal(work("a"), work={"a": fails(error=lambda: InvalidInput("No", "Other"))})
    result = (await bench.run(goal, "failed")).steps["a"]
    same(result.attempts, 1, "the tries")
    same(result.error, ("INVALID_PARAM", "No", "Other", False), "the error")


@case()
async def unknown_error_is_retried(bench: Bench) -> None:
    """Any other exception is tried again, and does not hurt the engine."""
    goal = bench.goal(work("a"), work={"a": fails(1, error=lambda: ZeroDivisionError("by 零"))})
    result = (await bench.run(goal)).steps["a"]
    same(result.attempts, 2, "the tries")
    goal = bench.goal(work("a"), work={"a": fails(error=lambda: OSError("disk"))})
    result = (await bench.run(goal, "failed")).steps["a"]
    expect(result.error and "disk" in result.error.message, "the error says nothing")


@case()
async def backoff_grows(bench: Bench) -> None:
    """The waits between tries grow by the factor, up to the most."""
    retry = Retry(attempts=4, first=0.05, factor=2.0, most=0.12, jitter=0.0)
    goal = bench.goal(work("a", retry=retry), work={"a": fails(3)})
    await bench.run(goal)
    script = bench.script(goal)
    began, broke = script.clock("began", "a"), script.clock("broke", "a")
    waits = [begin - end for begin, end in zip(began[1:], broke, strict=True)]
    for wait, least in zip(waits, (0.05, 0.1, 0.12), strict=True):
        expect(wait >= least * 0.95, f"waited {wait:.3f} s instead of {least} s or more")


@case()
async def own_policy_wins(bench: Bench) -> None:
    """A step's own tries count more than the plan's."""
    one = QUICK._replace(attempts=1)
    goal = bench.goal(
        work("a", retry=one),
        work("b", retry=QUICK._replace(attempts=5)),
        on_failure="continue",
        work={"a": fails(), "b": fails(4)},
    )
    report = await bench.run(goal, "partial")
    same(report.steps["a"].attempts, 1, "the tries of `a`")
    same(report.steps["b"].attempts, 5, "the tries of `b`")


@case()
async def timeout_per_try(bench: Bench) -> None:
    """A try that takes too long is ended, and the next one has the whole time again."""
    goal = bench.goal(
        work("a", timeout=0.1, retry=QUICK._replace(attempts=2)), work={"a": _hangs(2)}
    )
    result = (await bench.run(goal, "failed")).steps["a"]
    same(bench.script(goal).times("a"), 2, "the tries")
    same(bench.script(goal).times("a", "cancelled"), 2, "the tries that were ended")
    same(result.error and result.error.code, "TIMEOUT", "the error")


@case()
async def timeout_then_success(bench: Bench) -> None:
    """A step whose first try hangs is done by the second one."""
    goal = bench.goal(work("a"), timeout=0.2, work={"a": _hangs(1)})
    result = (await bench.run(goal)).steps["a"]
    same((result.attempts, result.output), (2, "in time"), "tries and output")


def _hangs(times: int) -> Any:
    async def act(work: Work) -> str:
        if work.attempt <= times:
            await asyncio.sleep(3600)
        return "in time"

    return act


@case()
async def mismatch_is_retried(bench: Bench) -> None:
    """An output that does not fit the step's schema is a failed try."""

    async def act(work: Work) -> Any:
        return {"n": "one"} if work.attempt == 1 else {"n": 1}

    goal = bench.goal(work("a", output=_NUMBER), work={"a": act})
    result = (await bench.run(goal)).steps["a"]
    same((result.attempts, result.output), (2, {"n": 1}), "tries and output")


@case()
async def mismatch_fails(bench: Bench) -> None:
    """An output that never fits fails the step, and does not flow on."""
    goal = bench.goal(
        work("a", output=_NUMBER),
        work("b", prompt="{{steps.a.output.n}}"),
        work={"a": gives({"m": 1})},
    )
    report = await bench.run(goal, "failed")
    states(report, a="failed", b="cancelled")
    same(report.steps["a"].attempts, 3, "the tries")
    same(report.steps["a"].error and report.steps["a"].error.code, "INVALID_OUTPUT", "the error")
    same(bench.script(goal).times("b"), 0, "how often `b` was done")


@case()
async def key_is_the_same_for_every_try(bench: Bench) -> None:
    """What has side effects gets one key for all tries of a step, and no two steps share one."""
    goal = bench.goal(work("a"), work("b", "a"), work={"a": fails(2)})
    await bench.run(goal)
    keys = [one.key for one in bench.script(goal).works("a")]
    same(len(keys), 3, "the tries")
    same(keys, [f"{goal.id}:a:1"] * 3, "the keys")
    same(bench.script(goal).work("b").key, f"{goal.id}:b:1", "the key of `b`")
