"""Several engines at one location, and restarts."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from engine_suite.bench import Gate, fails_until, gives, holds, person, states, work
from satchel.goals.artifacts import is_reference, load
from satchel.goals.model import Answer

if TYPE_CHECKING:
    from engine_suite.bench import Bench
    from satchel.goals.model import Work


async def second_client_sees_all(bench: Bench) -> None:
    """What one engine began, another at the same place can look at, answer and list."""
    goal = bench.goal(work("a"), person("ask", "a"), work("b", "ask"))
    await bench.run(goal, "asking")
    async with bench.another() as second:
        states(await second.wait(goal.id, bench.patience), a="done", ask="asking", b="waiting")
        assert goal.id in {one.id for one in await second.list()}
        await second.answer(goal.id, "ask", Answer())
        report = await second.wait(goal.id, bench.patience)
        assert report.state == "done"
    await bench.finish(goal)
    assert bench.script(goal).counts() == {"a": 1, "b": 1}


async def finished_goals_are_kept(bench: Bench) -> None:
    """Goals that are over are there after a restart, and can be tried again."""
    gate = Gate()
    done = bench.goal(work("a"), work("b", "a"), work={"a": gives("周报")})
    failed = bench.goal(work("a"), work("b", "a"), work={"b": fails_until(gate)})
    before = [await bench.run(done), await bench.run(failed, "failed")]
    engine = await bench.reopen()
    after = [await engine.report(done.id), await engine.report(failed.id)]
    assert after == before
    latest = [one.id for one in await engine.list(limit=2)]
    assert latest == [failed.id, done.id]
    assert (await engine.submit(done)).state == "done"
    assert bench.script(done).counts() == {"a": 1, "b": 1}
    gate.open()
    await engine.retry(failed.id)
    assert (await bench.finish(failed)).revision == 2
    assert bench.script(failed).counts() == {"a": 1, "b": 2}


async def question_and_large_output_survive(bench: Bench) -> None:
    """A goal that asks still asks after a restart, and goes on with what was done before."""
    text = "大" * 400_000  # 1.2 MB

    async def digest(work: Work) -> str:
        return hashlib.sha256(work.prompt.encode()).hexdigest()

    goal = bench.goal(
        work("a"), person("ask", "a"), work("b", "ask", prompt="{{steps.a.output}}"),
        work={"a": gives(text), "b": digest},
    )  # fmt: skip
    await bench.run(goal, "asking")
    await bench.reopen()
    asking = await bench.finish(goal, "asking")
    states(asking, a="done", ask="asking", b="waiting")
    assert is_reference(asking.steps["a"].output)
    assert await load(asking.steps["a"].output, bench.engine.artifacts) == text
    await bench.engine.answer(goal.id, "ask", Answer())
    report = await bench.finish(goal)
    wanted = hashlib.sha256(text.encode()).hexdigest()
    assert report.steps["b"].output == wanted
    assert bench.script(goal).counts() == {"a": 1, "b": 1}


async def running_goal_goes_on(bench: Bench) -> None:
    """A goal that was at work is finished after a restart; what was recorded is not done again."""
    gate = Gate()
    goal = bench.goal(work("a"), work("b", "a"), work("c", "b"), work={"b": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "b")
    await bench.in_state(goal, "a", "done")
    engine = await bench.reopen()
    if engine.name == "local":
        await engine.resume(goal.id)
    gate.open()
    report = await bench.finish(goal)
    states(report, a="done", b="done", c="done")
    counts = bench.script(goal).counts()
    assert (counts["a"], counts["c"]) == (1, 1)
    assert {one.key for one in bench.script(goal).works("b")} == {f"{goal.id}:b:1"}
