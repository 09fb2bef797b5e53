"""Does a goal wait for people, and go on with what they say, once?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from satchel.errors import Conflict, NotFound
from satchel.goals.model import Answer
from satchel.testing.engine_suite.base import case, expect, person, refused, same, states, work
from satchel.testing.engine_suite.script import Gate, gives, holds

if TYPE_CHECKING:
    from satchel.testing.engine_suite.base import Bench


@case()
async def goal_asks(bench: Bench) -> None:
    """Everything that needs no person is done, then the goal asks; what depends on it waits."""
    goal = bench.goal(work("before"), person("ask", "before"), work("after", "ask"), work("beside"))
    report = await bench.run(goal, "asking")
    states(report, before="done", ask="asking", after="waiting", beside="done")
    same(bench.script(goal).times("after"), 0, "how often `after` was done")
    again = await bench.engine.report(goal.id)
    same(again.state, "asking", "the state, later")


@case()
async def question_is_filled(bench: Bench) -> None:
    """The question that a person reads has the outputs it mentions."""
    goal = bench.goal(
        work("draft"),
        person("ask", prompt="Publish “{{steps.draft.output}}”?"),
        work={"draft": gives("周报")},
    )
    report = await bench.run(goal, "asking")
    same(report.steps["ask"].output, "Publish “周报”?", "the question")


@case()
async def answer_goes_on(bench: Bench) -> None:
    """After an answer the goal goes on, and nothing that was done is done again."""
    goal = bench.goal(work("before"), person("ask", "before"), work("after", "ask"))
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(by="Ada", note="fine"))
    report = await bench.finish(goal)
    same(report.steps["ask"].output, "approved", "the output of `ask`")
    same(bench.script(goal).counts(), {"before": 1, "after": 1}, "what was done")
    expect(any("Ada" in note for note in report.steps["ask"].notes), "nobody is named")


@case()
async def value_of_answer_flows(bench: Bench) -> None:
    """What a person says is the step's output, with its type."""
    goal = bench.goal(
        person("ask", output={"type": "object", "required": ["n"]}),
        work("after", prompt="{{steps.ask.output.n}} {{steps.ask.output.t}}"),
    )
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(value={"n": 3, "t": "三"}))
    report = await bench.finish(goal)
    same(report.steps["ask"].output, {"n": 3, "t": "三"}, "the output")
    same(bench.script(goal).work("after").prompt, "3 三", "the prompt")


@case()
async def person_refuses(bench: Bench) -> None:
    """A no fails the step, and with it the goal."""
    goal = bench.goal(person("ask"), work("after", "ask"))
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(approved=False, by="Ada", note="too long"))
    report = await bench.finish(goal, "failed")
    states(report, ask="failed", after="cancelled")
    error = report.steps["ask"].error
    expect(error and "too long" in error.message, "the person's note is not kept")
    same(bench.script(goal).counts(), {}, "what was done")


@case()
async def refusal_skips_dependents(bench: Bench) -> None:
    """With `skip_dependents`, a no leaves out only what depends on it."""
    goal = bench.goal(
        person("ask"), work("after", "ask"), work("other"), on_failure="skip_dependents"
    )
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(approved=False))
    report = await bench.finish(goal, "partial")
    states(report, ask="failed", after="skipped", other="done")


@case()
async def two_people_at_once(bench: Bench) -> None:
    """Two steps ask at the same time; each gets its own answer, whoever is first."""
    goal = bench.goal(
        person("one"),
        person("two"),
        work("after-one", prompt="{{steps.one.output}}"),
        work("after-two", prompt="{{steps.two.output}}"),
        work("both", prompt="{{steps.one.output}} {{steps.two.output}}"),
    )
    report = await bench.run(goal, "asking")
    states(report, one="asking", two="asking")
    await bench.engine.answer(goal.id, "two", Answer(value="second"))
    await bench.in_state(goal, "after-two", "done")
    states(await bench.finish(goal, "asking"), one="asking", two="done", both="waiting")
    await bench.engine.answer(goal.id, "one", Answer(value="first"))
    await bench.finish(goal)
    prompts = {name: bench.script(goal).work(name).prompt for name in ("after-one", "after-two")}
    same(prompts, {"after-one": "first", "after-two": "second"}, "the prompts")
    same(bench.script(goal).work("both").prompt, "first second", "the prompt of `both`")
    same(set(bench.script(goal).counts().values()), {1}, "how often steps were done")


@case()
async def answers_at_the_same_moment(bench: Bench) -> None:
    """Six answers that come together are all heard."""
    names = [f"ask{number}" for number in range(6)]
    goal = bench.goal(
        *map(person, names),
        *(work(f"after-{name}", prompt=f"{{{{steps.{name}.output}}}}") for name in names),
    )
    await bench.run(goal, "asking")
    await asyncio.gather(
        *(bench.engine.answer(goal.id, name, Answer(value=f"<{name}>")) for name in names)
    )
    await bench.until(lambda: len(bench.script(goal).counts()) == 6, "every answer was heard")
    await bench.finish(goal)
    for name in names:
        same(bench.script(goal).work(f"after-{name}").prompt, f"<{name}>", "the prompt")
    same(set(bench.script(goal).counts().values()), {1}, "how often steps were done")


@case()
async def one_person_after_another(bench: Bench) -> None:
    """A goal may ask again after it was answered."""
    goal = bench.goal(
        person("one"), work("between", "one"), person("two", "between"), work("end", "two")
    )
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "one", Answer())
    await bench.answered(goal, "two", Answer())
    report = await bench.finish(goal)
    states(report, one="done", between="done", two="done", end="done")
    same(bench.script(goal).counts(), {"between": 1, "end": 1}, "what was done")


@case()
async def answer_while_another_branch_runs(bench: Bench) -> None:
    """An answer that comes while other steps are at work is not lost, and disturbs nobody."""
    gate = Gate()
    goal = bench.goal(person("ask"), work("after", "ask"), work("long"), work={"long": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "long")
    await bench.answered(goal, "ask", Answer(value="go"))
    gate.open()
    report = await bench.finish(goal)
    states(report, ask="done", after="done", long="done")
    same(bench.script(goal).counts(), {"long": 1, "after": 1}, "what was done")


@case()
async def same_answer_again(bench: Bench) -> None:
    """The same answer again is fine, and changes nothing."""
    goal = bench.goal(person("ask"), work("after", "ask"))
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(value="yes"))
    await bench.engine.answer(goal.id, "ask", Answer(value="yes"))
    await bench.finish(goal)
    await bench.engine.answer(goal.id, "ask", Answer(value="yes"))
    await bench.finish(goal)
    same(bench.script(goal).counts(), {"after": 1}, "what was done")


@case()
async def other_answer_is_a_conflict(bench: Bench) -> None:
    """Another answer to what was answered is refused, and the first one stays."""
    goal = bench.goal(person("ask"), work("after", prompt="{{steps.ask.output}}"))
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(value="yes"))
    await refused(
        Conflict, bench.engine.answer(goal.id, "ask", Answer(value="no")), "another answer"
    )
    await bench.finish(goal)
    await refused(
        Conflict, bench.engine.answer(goal.id, "ask", Answer(approved=False)), "a late answer"
    )
    report = await bench.finish(goal)
    same(report.steps["ask"].output, "yes", "the output")


@case()
async def answer_to_unknown_step(bench: Bench) -> None:
    """An answer to a step or a goal that is not there is refused."""
    goal = bench.goal(person("ask"))
    await bench.run(goal, "asking")
    await refused(NotFound, bench.engine.answer(goal.id, "nobody", Answer()), "an unknown step")
    await refused(NotFound, bench.engine.answer(f"{goal.id}-x", "ask", Answer()), "an unknown goal")
    states(await bench.finish(goal, "asking"), ask="asking")


@case()
async def answer_to_who_does_not_ask(bench: Bench) -> None:
    """An answer to a step that does not ask, or not yet, is refused."""
    gate = Gate()
    goal = bench.goal(work("a"), person("ask", "a"), work={"a": holds(gate)})
    await bench.engine.submit(goal)
    await bench.began(goal, "a")
    await refused(Conflict, bench.engine.answer(goal.id, "a", Answer()), "a step that works")
    await refused(Conflict, bench.engine.answer(goal.id, "ask", Answer()), "a step that waits")
    gate.open()
    states(await bench.finish(goal, "asking"), a="done", ask="asking")


@case()
async def two_answers_at_once(bench: Bench) -> None:
    """Of two different answers at the same moment one is heard, and the other one refused."""
    goal = bench.goal(person("ask"), work("after", prompt="{{steps.ask.output}}"))
    await bench.run(goal, "asking")
    found = await asyncio.gather(
        bench.engine.answer(goal.id, "ask", Answer(value="yes")),
        bench.engine.answer(goal.id, "ask", Answer(value="no")),
        return_exceptions=True,
    )
    same(sum(isinstance(one, Conflict) for one in found), 1, f"refusals in {found!r}")
    heard = "no" if isinstance(found[0], Conflict) else "yes"
    report = await bench.finish(goal)
    same(report.steps["ask"].output, heard, "the output")
    same([one.prompt for one in bench.script(goal).works("after")], [heard], "the prompts")


@case()
async def long_answer(bench: Bench) -> None:
    """A person may say much, in any language."""
    text = "好的。" * 50_000
    goal = bench.goal(person("ask"), work("after", prompt="{{steps.ask.output}}"))
    await bench.run(goal, "asking")
    await bench.engine.answer(goal.id, "ask", Answer(value=text))
    await bench.finish(goal)
    expect(bench.script(goal).work("after").prompt == text, "the answer is not whole")
