"""Steps that have begun: what a report says of them, and what outlives their worker."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from engine_suite.bench import Gate, holds, states, work
from satchel.errors import Conflict, StepFailed
from satchel.goals.model import Done, Retry, Usage

if TYPE_CHECKING:
    from engine_suite.bench import Bench
    from satchel.goals.model import Work

_EACH = Usage(1, 60, 40, 0.5)


async def parallel_limits_what_runs(bench: Bench) -> None:
    """A step that waits for its turn is shown as waiting, and one that runs since when."""
    gate = Gate()
    steps = [work(f"s{n}") for n in range(5)]
    goal = bench.goal(*steps, parallel=2, work={step.id: holds(gate) for step in steps})
    before = time.time()
    await bench.engine.submit(goal)
    await bench.until(lambda: len(bench.script(goal).counts()) == 2)
    begun = bench.script(goal).counts()
    report = await bench.engine.report(goal.id)
    states(report, **{step.id: "running" if step.id in begun else "waiting" for step in steps})
    for name in begun:
        running = report.steps[name]
        assert before - 1 < running.started < time.time() + 1
        assert running.attempts == 1
        assert "@" in running.worker
    gate.open()
    report = await bench.finish(goal)
    assert {result.worker for result in report.steps.values()} == {""}


async def failed_attempts_are_shown(bench: Bench) -> None:
    """While a step runs, its report has the attempts so far, and what they used."""
    gate = Gate()

    async def act(attempt: Work) -> str:
        if attempt.attempt < 3:
            raise StepFailed("not yet", code="NO", usage=_EACH)
        await gate.passed()
        return "held"

    goal = bench.goal(work("a"), work={"a": act})
    await bench.engine.submit(goal)
    await bench.until(lambda: bench.script(goal).times("a") == 3)
    running = (await bench.engine.report(goal.id)).steps["a"]
    assert (running.state, running.attempts, running.usage.requests) == ("running", 3, 2)
    gate.open()
    done = (await bench.finish(goal)).steps["a"]
    assert (done.attempts, done.usage.cost, len(done.notes)) == (3, 1.0, 2)


async def pause_between_attempts_is_no_run(bench: Bench) -> None:
    """Between two attempts a step waits."""
    gate = Gate()

    async def act(attempt: Work) -> str:
        if attempt.attempt == 1:
            raise StepFailed("not yet", code="NO", usage=_EACH)
        await gate.passed()
        return "held"

    goal = bench.goal(work("a"), retry=Retry(first=1.0, jitter=0), work={"a": act})
    await bench.engine.submit(goal)
    await bench.until(lambda: bench.script(goal).times("a", "broke") == 1)
    await bench.in_state(goal, "a", "waiting")
    waiting = (await bench.engine.report(goal.id)).steps["a"]
    assert (waiting.attempts, waiting.usage, waiting.started) == (1, _EACH, 0)
    await bench.in_state(goal, "a", "running")
    gate.open()
    await bench.finish(goal)


async def attempts_outlive_their_worker(bench: Bench) -> None:
    """Attempts of a worker that has closed count, and so does what they used."""
    gate = Gate()

    async def act(attempt: Work) -> Done:
        if attempt.attempt == 1:
            raise StepFailed("not yet", code="NO", usage=_EACH)
        await gate.passed()
        return Done("held", _EACH)

    goal = bench.goal(work("a"), work={"a": act})
    await bench.engine.submit(goal)
    await bench.until(lambda: bench.script(goal).times("a") == 2)
    engine = await bench.reopen()
    with suppress(Conflict):  # a worker continues it
        await engine.resume(goal.id)
    await bench.until(lambda: bench.script(goal).times("a") == 3)
    gate.open()
    done = (await bench.finish(goal)).steps["a"]
    assert [attempt.attempt for attempt in bench.script(goal).works("a")] == [1, 2, 3]
    assert (done.attempts, done.usage) == (3, Usage(2, 120, 80, 1.0))
