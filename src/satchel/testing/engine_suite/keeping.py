"""What is still there when an engine is closed and opened again?"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from satchel.errors import Conflict
from satchel.goals.model import Answer
from satchel.testing.engine_suite.base import case, person, same, states, work
from satchel.testing.engine_suite.script import Gate, fails_until, gives, holds

if TYPE_CHECKING:
    from satchel.goals.model import Work
    from satchel.testing.engine_suite.base import Bench


@case("keeps")
async def finished_goals_are_kept(bench: Bench) -> None:
    """Goals that are over are there after a restart, with plan, outputs, errors and account."""
    done = bench.goal(work("a"), work("b", "a"), work={"a": gives("周报")})
    failed = bench.goal(work("a"), work={"a": fails_until(Gate())})
    before = [await bench.run(done), await bench.run(failed, "failed")]
    engine = await bench.reopen()
    after = [await engine.report(done.id), await engine.report(failed.id)]
    same(after, before, "the reports")
    latest = [one.id for one in await engine.list(limit=2)]
    same(latest, [failed.id, done.id], "the latest two")
    same((await engine.submit(done)).state, "done", "the state of one that is submitted again")
    same(bench.script(done).counts(), {"a": 1, "b": 1}, "what was done")


@case("keeps")
async def question_survives(bench: Bench) -> None:
    """A goal that asks still asks after a restart, and goes on when it is answered."""
    goal = bench.goal(work("a"), person("ask", "a"), work("b", prompt="{{steps.ask.output}}"))
    await bench.run(goal, "asking")
    await bench.reopen()
    states(await bench.finish(goal, "asking"), a="done", ask="asking", b="waiting")
    await bench.engine.answer(goal.id, "ask", Answer(value="go"))
    await bench.finish(goal)
    same(bench.script(goal).work("b").prompt, "go", "the prompt")
    same(bench.script(goal).counts(), {"a": 1, "b": 1}, "what was done")


@case("keeps")
async def large_output_survives(bench: Bench) -> None:
    """A large output can be used after a restart."""
    text = "大" * 200_000

    async def digest(work: Work) -> str:
        return hashlib.sha256(work.prompt.encode()).hexdigest()

    goal = bench.goal(
        work("a"), person("ask", "a"), work("b", "ask", prompt="{{steps.a.output}}"),
        work={"a": gives(text), "b": digest},
    )  # fmt: skip
    await bench.run(goal, "asking")
    await bench.reopen()
    await bench.engine.answer(goal.id, "ask", Answer())
    report = await bench.finish(goal)
    wanted = hashlib.sha256(text.encode()).hexdigest()
    same(report.steps["b"].output, wanted, "the digest of what arrived")
    same(bench.script(goal).times("a"), 1, "how often `a` was done")


@case("keeps")
async def retry_after_restart(bench: Bench) -> None:
    """A goal that failed can be tried again after a restart; what was done is kept."""
    gate = Gate()
    goal = bench.goal(work("a"), work("b", "a"), work={"b": fails_until(gate)})
    await bench.run(goal, "failed")
    await bench.reopen()
    gate.open()
    await bench.engine.retry(goal.id)
    report = await bench.finish(goal)
    same(report.revision, 2, "the revision")
    same(bench.script(goal).counts(), {"a": 1, "b": 2}, "what was done")


@case("keeps", "goes-on")
async def running_goal_goes_on(bench: Bench) -> None:
    """A goal that was at work is finished after a restart; what was recorded is not done again."""
    gate = Gate()
    goal = bench.goal(work("a"), work("b", "a"), work("c", "b"), work={"b": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "b")
    await bench.in_state(goal, "a", "done")
    engine = await bench.reopen()
    if not engine.durable:
        await engine.resume(goal.id)
    gate.open()
    report = await bench.finish(goal)
    states(report, a="done", b="done", c="done")
    counts = bench.script(goal).counts()
    same((counts["a"], counts["c"]), (1, 1), "how often `a` and `c` were done")
    same({one.key for one in bench.script(goal).works("b")}, {f"{goal.id}:b:1"}, "the keys of `b`")


@case()
async def resume_of_what_is_over(bench: Bench) -> None:
    """Resuming a goal that is over changes nothing."""
    goal = bench.goal(work("a"))
    before = await bench.run(goal)
    report = await bench.engine.resume(goal.id)
    same((report.state, report.steps), ("done", before.steps), "the report")
    same(bench.script(goal).counts(), {"a": 1}, "what was done")


@case()
async def resume_of_what_runs(bench: Bench) -> None:
    """Resuming a goal that is at work does not run it twice."""
    gate = Gate()
    goal = bench.goal(work("a"), work={"a": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "a")
    try:
        report = await bench.engine.resume(goal.id)
    except Conflict:
        pass  # it says who runs it
    else:
        same(report.state, "running", "the state")
    gate.open()
    await bench.finish(goal)
    same(bench.script(goal).counts(), {"a": 1}, "what was done")
