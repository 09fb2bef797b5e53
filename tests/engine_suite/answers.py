"""Questions and answers, and goals that are cancelled."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from engine_suite.bench import Gate, holds, name_of, person, refused, states, work
from satchel.errors import Conflict, InvalidInput, NotFound
from satchel.goals.model import Answer

if TYPE_CHECKING:
    from engine_suite.bench import Bench


async def goal_asks_and_goes_on(bench: Bench) -> None:
    """Everything that needs no person is done, then the goal asks; after an answer it goes on."""
    goal = bench.goal(
        work("before"),
        person("ask", prompt="Is {{steps.before.output}} right?"),
        work("after", "ask"),
        work("beside"),
    )
    report = await bench.run(goal, "asking")
    states(report, before="done", ask="asking", after="waiting", beside="done")
    assert bench.script(goal).times("after") == 0
    assert report.steps["ask"].output == f"Is {name_of(goal.id, 'before')} right?"
    again = await bench.engine.report(goal.id)
    assert again.state == "asking"
    await bench.engine.answer(goal.id, "ask", Answer(by="Ada", note="fine"))
    report = await bench.finish(goal)
    assert report.steps["ask"].output == "approved"
    assert bench.script(goal).counts() == {"before": 1, "after": 1, "beside": 1}
    assert any("Ada" in note for note in report.steps["ask"].notes)


async def value_of_answer_flows(bench: Bench) -> None:
    """An answer is the step's output, with its type, when it matches the schema."""
    goal = bench.goal(
        person("ask", output={"type": "object", "required": ["n"]}),
        work("after", prompt="{{steps.ask.output.n}} {{steps.ask.output.t}}"),
    )
    await bench.run(goal, "asking")
    for wrong in (Answer(value="three"), Answer(value={}), Answer()):
        await refused(InvalidInput, bench.engine.answer(goal.id, "ask", wrong))
    await bench.engine.answer(goal.id, "ask", Answer(value={"n": 3, "t": "三"}))
    report = await bench.finish(goal)
    assert report.steps["ask"].output == {"n": 3, "t": "三"}
    assert bench.script(goal).work("after").prompt == "3 三"


async def person_refuses(bench: Bench) -> None:
    """A no fails the step, and with it the goal."""
    goal = bench.goal(person("ask"), work("after", "ask"))
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(approved=False, by="Ada", note="too long"))
    report = await bench.finish(goal, "failed")
    states(report, ask="failed", after="cancelled")
    error = report.steps["ask"].error
    assert error
    assert "too long" in error.message
    assert bench.script(goal).counts() == {}


async def answers_at_the_same_moment(bench: Bench) -> None:
    """Six simultaneous answers are all recorded."""
    names = [f"ask{number}" for number in range(6)]
    goal = bench.goal(
        *map(person, names),
        *(work(f"after-{name}", prompt=f"{{{{steps.{name}.output}}}}") for name in names),
    )
    await bench.run(goal, "asking")
    await asyncio.gather(
        *(bench.engine.answer(goal.id, name, Answer(value=f"<{name}>")) for name in names)
    )
    await bench.until(lambda: len(bench.script(goal).counts()) == 6)
    await bench.finish(goal)
    for name in names:
        assert bench.script(goal).work(f"after-{name}").prompt == f"<{name}>"
    assert set(bench.script(goal).counts().values()) == {1}


async def answer_while_another_branch_runs(bench: Bench) -> None:
    """An answer that arrives while other steps run is not lost."""
    gate = Gate()
    goal = bench.goal(person("ask"), work("after", "ask"), work("long"), work={"long": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "long")
    await bench.answered(goal, "ask", Answer(value="go"))
    gate.open()
    report = await bench.finish(goal)
    states(report, ask="done", after="done", long="done")
    assert bench.script(goal).counts() == {"long": 1, "after": 1}


async def answers_are_given_once(bench: Bench) -> None:
    """Only a step that asks is answered; the same answer again is fine, another one is refused."""
    gate, engine = Gate(), bench.engine
    goal = bench.goal(
        work("a"), person("ask", "a"), work("after", prompt="{{steps.ask.output}}"),
        work={"a": holds(gate)},
    )  # fmt: skip
    await engine.submit(goal)
    await bench.began(goal, "a")
    for step in ("a", "ask"):
        await refused(Conflict, engine.answer(goal.id, step, Answer()))
    gate.open()
    await bench.finish(goal, "asking")
    await refused(NotFound, engine.answer(goal.id, "nobody", Answer()))
    await refused(NotFound, engine.answer(f"{goal.id}-x", "ask", Answer()))
    for _ in range(2):
        await engine.answer(goal.id, "ask", Answer(value="yes"))
        await refused(Conflict, engine.answer(goal.id, "ask", Answer(value="no")))
        assert (await bench.finish(goal)).steps["ask"].output == "yes"
    assert bench.script(goal).counts() == {"a": 1, "after": 1}


async def two_answers_at_once(bench: Bench) -> None:
    """Of two different simultaneous answers one is recorded, and the other one refused."""
    goal = bench.goal(person("ask"), work("after", prompt="{{steps.ask.output}}"))
    await bench.run(goal, "asking")
    found = await asyncio.gather(
        bench.engine.answer(goal.id, "ask", Answer(value="yes")),
        bench.engine.answer(goal.id, "ask", Answer(value="no")),
        return_exceptions=True,
    )
    assert sum(isinstance(one, Conflict) for one in found) == 1
    heard = "no" if isinstance(found[0], Conflict) else "yes"
    report = await bench.finish(goal)
    assert report.steps["ask"].output == heard
    assert [one.prompt for one in bench.script(goal).works("after")] == [heard]


async def cancel_running(bench: Bench) -> None:
    """A step at work is ended, what had ended stays, and nothing more begins."""
    goal = bench.goal(work("a"), work("b", "a"), work("c", "b"), work={"b": holds(Gate())})
    await bench.engine.submit(goal)
    await bench.began(goal, "b")
    await bench.engine.cancel(goal.id)
    await bench.engine.cancel(goal.id)
    report = await bench.finish(goal, "cancelled")
    states(report, a="done", b="cancelled", c="cancelled")
    script = bench.script(goal)
    await bench.until(lambda: script.times("b", "cancelled") == 1)
    assert script.counts() == {"a": 1, "b": 1}


async def cancel_asking(bench: Bench) -> None:
    """A goal that asks can be cancelled, and ends then; an answer comes too late."""
    goal = bench.goal(work("a"), person("ask", "a"), work("b", "ask"))
    asking = await bench.run(goal, "asking")
    assert asking.ended == 0.0
    await bench.engine.cancel(goal.id)
    report = await bench.finish(goal, "cancelled")
    assert report.steps["a"].started - 2 <= report.ended <= time.time() + 2  # two clocks
    states(report, a="done", ask="cancelled", b="cancelled")
    await refused(Conflict, bench.engine.answer(goal.id, "ask", Answer()))
    assert bench.script(goal).counts() == {"a": 1}
