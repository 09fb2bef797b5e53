"""Steps run only where their skill is, in the version that the goal wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_suite.bench import skilled, states, work

if TYPE_CHECKING:
    from engine_suite.bench import Bench
    from satchel.goals.model import Goal


async def _waits(bench: Bench, goal: Goal, *words: str) -> None:
    """The report says who lacks what."""

    async def is_said() -> bool:
        result = (await bench.engine.report(goal.id)).steps["a"]
        noted = all(word in " ".join(result.notes) for word in (*words, "@"))
        return noted and result.state == "waiting"

    await bench.until(is_said)
    assert bench.script(goal).times("a") == 0


async def missing_skill_is_waited_for(bench: Bench) -> None:
    """A worker without the skill leaves the step to others, and runs the rest."""
    goal = bench.goal(skilled("a", "weekly"), work("b"), work("c", "a"))
    bench.versions["weekly"] = None
    await bench.engine.submit(goal)
    await _waits(bench, goal, "skill:weekly", "does not have")
    await bench.in_state(goal, "b", "done")
    bench.versions["weekly"] = "v1"
    report = await bench.finish(goal)
    states(report, a="done", b="done", c="done")
    assert [report.steps[name].version for name in ("a", "b")] == ["v1", ""]
    assert {result.attempts for result in report.steps.values()} == {1}
    assert bench.script(goal).counts() == {"a": 1, "b": 1, "c": 1}


async def wanted_version_is_waited_for(bench: Bench) -> None:
    """A worker with another version leaves the step to others; a retry may want another one."""
    bench.versions["weekly"] = "v1"
    goal = bench.goal(skilled("a", "weekly"))._replace(versions={"skill:weekly": "v2"})
    await bench.engine.submit(goal)
    await _waits(bench, goal, "skill:weekly", "v1", "wants v2")
    bench.versions["weekly"] = "v2"
    report = await bench.finish(goal)
    assert (report.steps["a"].version, report.steps["a"].attempts) == ("v2", 1)
    bench.versions["weekly"] = "v3"
    await bench.engine.retry(goal.id, from_step="a", versions={"skill:weekly": "v3"})
    report = await bench.finish(goal)
    assert (report.steps["a"].version, report.revision) == ("v3", 2)


async def version_changes_while_a_goal_runs(bench: Bench) -> None:
    """What has run keeps its version; the rest waits for the version that the goal wants."""
    bench.versions.update(weekly="v1", other="v1")
    goal = bench.goal(skilled("b", "other"), skilled("a", "weekly", "b"))
    goal = goal._replace(versions={"skill:weekly": "v1", "skill:other": "v1"})

    async def deploy(_: object) -> str:
        bench.versions["weekly"] = "v2"
        return "deployed"

    bench.script(goal).acts["b"] = deploy
    await bench.engine.submit(goal)
    await _waits(bench, goal, "v2", "wants v1")
    bench.versions["weekly"] = "v1"
    report = await bench.finish(goal)
    assert {result.version for result in report.steps.values()} == {"v1"}
    assert bench.script(goal).counts() == {"a": 1, "b": 1}
