"""Are goals taken once, found again, and told of truly? Submitting, reports, lists, watching."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from satchel.errors import Conflict, InvalidInput, NotFound, SatchelError
from satchel.goals.model import ENDS, Answer
from satchel.testing.engine_suite.base import (
    case,
    ended_after,
    expect,
    person,
    refused,
    same,
    states,
    work,
)
from satchel.testing.engine_suite.script import Gate, fails, fails_until, gives, holds, name_of

if TYPE_CHECKING:
    from satchel.goals.model import StepEvent
    from satchel.testing.engine_suite.base import Bench


@case()
async def submit_comes_back_at_once(bench: Bench) -> None:
    """Submitting does not wait for the work."""
    gate = Gate()
    goal = bench.goal(work("a"), work={"a": holds(gate)})
    report = await bench.engine.submit(goal)
    expect(report.state in {"queued", "running"}, f"the state is `{report.state}`")
    same((report.id, list(report.steps)), (goal.id, ["a"]), "id and steps")
    gate.open()
    await bench.finish(goal)


@case()
async def same_plan_again(bench: Bench) -> None:
    """Submitting the same goal again, while it runs and later, is the same goal."""
    gate = Gate()
    goal = bench.goal(work("a"), work("b", "a"), work={"a": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "a")
    again = await bench.engine.submit(goal)
    same(again.id, goal.id, "the id")
    gate.open()
    report = await bench.finish(goal)
    late = await bench.engine.submit(goal)
    same((late.state, late.steps), ("done", report.steps), "the report")
    same(bench.script(goal).counts(), {"a": 1, "b": 1}, "what was done")


@case()
async def other_plan_is_a_conflict(bench: Bench) -> None:
    """Another plan under an id that is taken is refused."""
    goal = bench.goal(work("a"))
    await bench.run(goal)
    other = goal._replace(plan=bench.plan(work("other")))
    await refused(Conflict, bench.engine.submit(other), "another plan")
    report = await bench.finish(goal)
    same(report.plan, goal.plan, "the plan")
    same(bench.script(goal).counts(), {"a": 1}, "what was done")


@case()
async def same_goal_many_times_at_once(bench: Bench) -> None:
    """Ten who submit the same goal at the same moment get one goal."""
    goal = bench.goal(work("a"), work("b", "a"))
    reports = await asyncio.gather(*(bench.engine.submit(goal) for _ in range(10)))
    same({report.id for report in reports}, {goal.id}, "the ids")
    await bench.finish(goal)
    same(bench.script(goal).counts(), {"a": 1, "b": 1}, "what was done")


@case()
async def two_plans_at_once(bench: Bench) -> None:
    """Of two plans that come under one id at the same moment, one is taken and one refused."""
    goal = bench.goal(work("a"))
    other = goal._replace(plan=bench.plan(work("b")))
    found = await asyncio.gather(
        bench.engine.submit(goal), bench.engine.submit(other), return_exceptions=True
    )
    same(sum(isinstance(one, Conflict) for one in found), 1, f"refusals in {found!r}")
    await bench.finish(goal)
    same(sum(bench.script(goal).counts().values()), 1, "steps that were done")


@case("shares")
async def two_clients_at_once(bench: Bench) -> None:
    """Two engines at one place that get the same goal at the same moment do it once."""
    async with bench.another() as second:
        goals = [bench.goal(work("a"), work("b", "a")) for _ in range(5)]
        await asyncio.gather(
            *(one.submit(goal) for goal in goals for one in (bench.engine, second))
        )
        for goal in goals:
            await bench.finish(goal)
            report = await second.report(goal.id)
            same(report.state, "done", "the state, as the other one sees it")
            same(bench.script(goal).counts(), {"a": 1, "b": 1}, "what was done")


@case("shares")
async def second_client_sees_all(bench: Bench) -> None:
    """What one engine began, another at the same place can look at, answer and list."""
    goal = bench.goal(work("a"), person("ask", "a"), work("b", "ask"))
    await bench.run(goal, "asking")
    async with bench.another() as second:
        states(await second.wait(goal.id, bench.patience), a="done", ask="asking", b="waiting")
        expect(goal.id in {one.id for one in await second.list()}, "the goal is not listed")
        await second.answer(goal.id, "ask", Answer())
        report = await second.wait(goal.id, bench.patience)
        same(report.state, "done", "the state")
    await bench.finish(goal)
    same(bench.script(goal).counts(), {"a": 1, "b": 1}, "what was done")


@case()
async def invalid_plan_is_refused(bench: Bench) -> None:
    """A plan with errors is refused, named, and not kept."""
    plans: dict[str, Any] = {
        "circle": (work("a", "b"), work("b", "a")),
        "empty": (),
        "unknown need": (work("a", "nobody"),),
        "same id": (work("a"), work("a")),
        "unknown reference": (work("a", prompt="{{steps.nobody.output}}"),),
        "no such place": (work("a", prompt="{{secrets.key}}"),),
    }
    for what, steps in plans.items():
        goal = bench.goal(*steps)
        await refused(InvalidInput, bench.engine.submit(goal), f"a plan with the fault: {what}")
        await refused(NotFound, bench.engine.report(goal.id), "a plan that was refused")
        same(bench.script(goal).counts(), {}, "what was done")


@case()
async def unknown_goal(bench: Bench) -> None:
    """Everything that names a goal which is not there says so."""
    name = bench.goal(work("a")).id
    engine = bench.engine
    await refused(NotFound, engine.report(name), "report")
    await refused(NotFound, engine.wait(name, 0.1), "wait")
    await refused(NotFound, engine.resume(name), "resume")
    await refused(NotFound, _events(bench, name), "watch")
    for odd in ("../etc", "a b", "", "名"):
        await refused(SatchelError, engine.report(f"{name}{odd}/x"), f"report of `{odd}`")


@case()
async def wait_with_timeout(bench: Bench) -> None:
    """Waiting ends when the time is up, with what is so far."""
    gate = Gate()
    goal = bench.goal(work("a"), work("b", "a"), work={"b": holds(gate)})
    await bench.engine.submit(goal)
    await bench.in_state(goal, "a", "done")
    for timeout in (0.05, 0):
        report = await bench.engine.wait(goal.id, timeout)
        expect(report.state == "running", f"the state is `{report.state}`")
        same(report.steps["a"].state, "done", "the state of `a`")
    gate.open()
    await bench.finish(goal)


@case()
async def many_wait(bench: Bench) -> None:
    """Everybody who waits for a goal gets the same report."""
    gate = Gate()
    goal = bench.goal(work("a"), work={"a": holds(gate)})
    await bench.engine.submit(goal)
    waiting = [asyncio.create_task(bench.finish(goal)) for _ in range(5)]
    await bench.began(goal, "a")
    gate.open()
    first, *others = await asyncio.gather(*waiting)
    for other in others:
        same(other, first, "the report")


@case()
async def report_while_running(bench: Bench) -> None:
    """A report shows what has ended, with its output, while the rest is under way."""
    gate = Gate()
    goal = bench.goal(
        work("a"), work("b", "a"), work("c", "b"), work={"a": gives("早"), "b": holds(gate)}
    )
    await bench.engine.submit(goal)
    await bench.began(goal, "b")
    await bench.in_state(goal, "a", "done")
    report = await bench.engine.report(goal.id)
    same((report.state, report.ended), ("running", 0.0), "the state, and when it was over")
    same(report.steps["a"].output, "早", "the output of `a`")
    expect(report.steps["b"].state in {"running", "waiting"}, "`b` has ended")
    same(report.steps["c"].state, "waiting", "the state of `c`")
    gate.open()
    await bench.finish(goal)


@case()
async def reports_agree(bench: Bench) -> None:
    """`wait`, `report` and a second `wait` say the same of a goal that is over."""
    goal = bench.goal(work("a"), work("b", "a"), work={"a": fails(1)})
    first = await bench.run(goal)
    same(first.steps["b"].output, name_of(goal.id, "b"), "the output of `b`")
    ended_after(first, "b")
    same(await bench.engine.report(goal.id), first, "the report")
    same(await bench.engine.wait(goal.id), first, "the second wait")


@case()
async def list_by_state_and_order(bench: Bench) -> None:
    """The latest goal comes first; states and a limit narrow the list."""
    first = bench.goal(work("a"), goal="第一")
    second = bench.goal(person("ask"))
    third = bench.goal(work("a"), work("b"), work={"b": fails()}, on_failure="continue")
    await bench.run(first)
    await asyncio.sleep(0.02)
    await bench.run(second, "asking")
    await asyncio.sleep(0.02)
    await bench.run(third, "partial")
    engine = bench.engine
    latest = await engine.list(limit=3)
    same([one.id for one in latest], [third.id, second.id, first.id], "the latest three")
    same(latest[2].goal, "第一", "the goal in words")
    same([(one.done, one.steps) for one in latest], [(1, 2), (0, 1), (1, 1)], "done and all")
    same([one.state for one in latest], ["partial", "asking", "done"], "the states")
    same({one.engine for one in latest}, {engine.name}, "the engine")
    asking = await engine.list(states=("asking",), limit=1)
    same([one.id for one in asking], [second.id], "who asks")
    both = await engine.list(states=("done", "partial"), limit=2)
    same([one.id for one in both], [third.id, first.id], "who is done or partial")


@case()
async def list_by_submission(bench: Bench) -> None:
    """A goal keeps its place in the list when it is answered or tried again later."""
    gate = Gate()
    answered = bench.goal(person("ask"), work("a", "ask"))
    again = bench.goal(work("a"), work={"a": fails_until(gate)})
    last = bench.goal(work("a"))
    await bench.run(answered, "asking")
    await asyncio.sleep(0.02)
    await bench.run(again, "failed")
    await asyncio.sleep(0.02)
    await bench.run(last)
    gate.open()
    engine = bench.engine
    await engine.retry(again.id)
    await bench.finish(again)
    await engine.answer(answered.id, "ask", Answer())
    await bench.finish(answered)
    latest = await engine.list(limit=3)
    same([one.id for one in latest], [last.id, again.id, answered.id], "the latest three")
    same([one.id for one in await engine.list(limit=1)], [last.id], "the latest one")
    over = await engine.list(states=("done",), limit=2)
    same([one.id for one in over], [last.id, again.id], "the latest two that are done")


@case()
async def list_of_older_goals(bench: Bench) -> None:
    """A list can end at a moment; it tells how goals that were submitted before stand now."""
    gate = Gate()
    again, early = bench.goal(work("a"), work={"a": fails_until(gate)}), bench.goal(work("a"))
    await bench.run(again, "failed")
    await bench.run(early)
    await asyncio.sleep(0.02)
    moment = time.time()
    await asyncio.sleep(0.02)
    late = bench.goal(work("a"))
    await bench.run(late)
    gate.open()
    engine = bench.engine
    await engine.retry(again.id)
    await bench.finish(again)
    found = await engine.list(before=moment, limit=2)
    same([one.id for one in found], [early.id, again.id], "the latest two before it")
    same([one.state for one in found], ["done", "done"], "their states")
    failed = await engine.list(states=("failed",), before=moment, limit=500)
    expect(again.id not in {one.id for one in failed}, "a goal that is done is listed as failed")
    same(await engine.list(before=1.0), [], "the goals of 1970")


@case()
async def list_agrees_with_reports(bench: Bench) -> None:
    """A line of the list says what the report says, also of a goal that ran twice."""
    goal = bench.goal(work("a"), person("ask", "a"), work("b", "ask"))
    await bench.run(goal, "asking")
    await asyncio.sleep(0.1)
    await bench.engine.answer(goal.id, "ask", Answer())
    report = await bench.finish(goal)
    line = next(one for one in await bench.engine.list(limit=5) if one.id == goal.id)
    same((line.state, line.done, line.steps), ("done", 3, 3), "the line")
    same((line.started, line.seconds), (report.started, report.seconds), "its times")


@case()
async def watch_is_causal_and_ends(bench: Bench) -> None:
    """Whoever watches hears of each step's end once, after those of its needs, then of the end."""
    goal = bench.goal(work("a"), work("b", "a"), work("c", "a"), work("d", "b", "c"))
    await bench.engine.submit(goal)
    _causal(await _events(bench, goal.id), goal.id)


@case()
async def watch_of_what_is_over(bench: Bench) -> None:
    """Whoever comes late hears what has happened."""
    goal = bench.goal(work("a"), work("b", "a"), work("c", "a"), work("d", "b", "c"))
    await bench.run(goal)
    _causal(await _events(bench, goal.id), goal.id)


@case()
async def watch_ends_when_a_person_is_asked(bench: Bench) -> None:
    """Watching ends when only a person can bring the goal on, and can begin again."""
    goal = bench.goal(work("a"), person("ask", "a"), work("b", "ask"))
    await bench.engine.submit(goal)
    events = await _events(bench, goal.id)
    expect(any(one.step == "ask" and one.state == "asking" for one in events), "nobody asks")
    expect(not any(one.step == "b" for one in events if one.state in ENDS), "`b` has ended")
    await bench.engine.answer(goal.id, "ask", Answer())
    await bench.finish(goal)
    events = await _events(bench, goal.id)
    same((events[-1].step, events[-1].state), ("", "done"), "the last event")


@case()
async def watch_ends_when_cancelled(bench: Bench) -> None:
    """Watching ends when the goal is cancelled, and says so."""
    goal = bench.goal(work("a"), work={"a": holds(Gate())})
    await bench.engine.submit(goal)
    watching = asyncio.create_task(_events(bench, goal.id))
    await bench.began(goal, "a")
    await bench.engine.cancel(goal.id)
    events = await watching
    same((events[-1].step, events[-1].state), ("", "cancelled"), "the last event")


@case()
async def watchers_do_not_disturb(bench: Bench) -> None:
    """One who leaves in the middle disturbs neither the goal nor who watches beside him."""
    gate = Gate()
    goal = bench.goal(
        work("a"), work("b", "a"), work("c", "a"), work("d", "b", "c"), work={"b": holds(gate)}
    )
    await bench.engine.submit(goal)
    watching = asyncio.create_task(_events(bench, goal.id))
    async with asyncio.timeout(bench.patience):
        leaving = bench.engine.watch(goal.id)
        await anext(leaving)
        closing = getattr(leaving, "aclose", None)
        if closing is not None:
            await closing()
    gate.open()
    _causal(await watching, goal.id)
    await bench.finish(goal)


async def _events(bench: Bench, goal: str) -> list[StepEvent]:
    async with asyncio.timeout(bench.patience):
        return [event async for event in bench.engine.watch(goal)]


def _causal(events: list[StepEvent], goal: str) -> None:
    """What was heard of the diamond a, b and c, d."""
    same({event.goal for event in events}, {goal}, "the goal of the events")
    ended = [event for event in events if event.step and event.state in ENDS]
    order = [event.step for event in ended]
    same(sorted(order), ["a", "b", "c", "d"], "the steps that ended")
    same((order[0], order[-1]), ("a", "d"), "the first and the last end")
    for event in ended:
        same(event.result and event.result.step, event.step, "the result of an event")
    place = {event.step: number for number, event in enumerate(events) if event.state in ENDS}
    for number, event in enumerate(events):
        if event.state == "running" and event.step:
            needs = {"b": "a", "c": "a", "d": "bc"}.get(event.step, "")
            expect(number < place[event.step], f"`{event.step}` ended before it ran")
            expect(all(place[n] < number for n in needs), f"`{event.step}` ran too early")
    same((events[-1].step, events[-1].state), ("", "done"), "the last event")
