"""The status of an engine: counts of goals, the oldest step, and steps that wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine_suite.bench import Gate, broken, holds, person, skilled, work
from satchel.goals.model import Answer, Done, Usage

if TYPE_CHECKING:
    from engine_suite.bench import Bench
    from satchel.goals.model import Work
    from satchel.goals.status import GoalStatus


def _change(before: GoalStatus, after: GoalStatus) -> dict[str, int]:
    """What a status counts more than another one."""
    return {
        state: count - before.goals[state]
        for state, count in after.goals.items()
        if count != before.goals[state]
    }


async def status_counts_goals(bench: Bench) -> None:
    """Open goals and those that ended are counted by state, once each, whatever their runs."""
    before = await bench.engine.status()
    gate = Gate()
    held = bench.goal(work("a"), work={"a": holds(gate)})
    asked = bench.goal(work("a"), person("b", "a"), work("c", "b"))
    failed = bench.goal(work("a"), work={"a": holds(gate, broken())})
    for goal in (held, asked, failed):
        await bench.engine.submit(goal)
    await bench.began(held, "a")
    await bench.began(failed, "a")
    await bench.in_state(asked, "b", "asking")

    async def is_counted(**wanted: int) -> bool:
        status = await bench.engine.status()
        totals = status.open - before.open, status.ended - before.ended
        if totals != (wanted.pop("open"), wanted.pop("ended")):
            return False
        states = {name: count for name, count in wanted.items() if name in status.goals}
        changed = _change(before, status)
        return changed == {name: count for name, count in states.items() if count}

    await bench.until(lambda: is_counted(open=3, ended=0, running=2, asking=1))
    gate.open()
    await bench.finish(held)
    await bench.finish(failed, "failed")
    await bench.until(lambda: is_counted(open=1, ended=2, done=1, failed=1, asking=1))
    await bench.engine.answer(asked.id, "b", Answer())
    await bench.finish(asked)
    await bench.until(lambda: is_counted(open=0, ended=3, done=2, failed=1))
    await bench.engine.retry(failed.id)  # its act fails again
    await bench.finish(failed, "failed")
    # Temporal counts the runs that ended, and so both revisions.
    runs = 3 if "failed" in before.goals else 4
    await bench.until(lambda: is_counted(open=0, ended=runs, done=2, failed=1))


async def status_names_the_oldest_step(bench: Bench) -> None:
    """The step that began first is named, with its worker; a step with a result is not."""
    gate = Gate()
    goal = bench.goal(
        work("a"), work("b", "a"), person("c", "a"), work("d", "b", "c"), work={"d": holds(gate)}
    )
    began = time.time()
    await bench.engine.submit(goal)
    await bench.answered(goal, "c", Answer())
    await bench.began(goal, "d")
    status = await bench.engine.status()
    if "oldest" not in status.unknown:
        oldest = status.oldest
        assert oldest is not None
        assert (oldest.goal, oldest.step, oldest.attempt) == (goal.id, "d", 1)
        assert began - 1 < oldest.since < time.time() + 1
        assert "@" in oldest.worker
        assert [worker.steps for worker in status.workers] in ([], [1])
    assert not status.needs_attention
    gate.open()
    await bench.finish(goal)
    assert (await bench.engine.status()).oldest is None


async def status_names_what_waits(bench: Bench) -> None:
    """A step that no worker can run is named with the reason; the worker says what it has."""
    if bench.engine.name == "local":
        return  # it has no workers to wait for
    bench.versions["weekly"] = None
    goal = bench.goal(skilled("a", "weekly"))
    await bench.engine.submit(goal)

    async def is_named() -> bool:
        status = await bench.engine.status()
        waits = [step.reason for step in status.waiting if step.goal == goal.id]
        return "waiting" in status.unknown or "does not have `skill:weekly`" in "".join(waits)

    await bench.until(is_named)
    [worker] = (await bench.engine.status()).workers
    assert worker.is_alive
    assert worker.seen > time.time() - 60
    bench.versions["weekly"] = "v1"
    await bench.finish(goal)
    assert (await bench.engine.status()).waiting == ()


async def status_adds_usage(bench: Bench) -> None:
    """Usage of the last day is added up, also that of earlier revisions."""
    before = (await bench.engine.status()).usage

    async def act(_: Work) -> Done:
        return Done("spent", Usage(1, 60, 40, 0.5))

    goal = bench.goal(work("a"), work("b"), work={"a": act})
    await bench.run(goal)
    status = await bench.engine.status()
    if "usage" not in status.unknown:
        used = status.usage
        assert used.requests == before.requests + 1
        assert used.input_tokens == before.input_tokens + 60
        assert used.cost == (before.cost or 0.0) + 0.5
