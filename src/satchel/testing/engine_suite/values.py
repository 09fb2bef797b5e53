"""Does what a step gives arrive where it is used, whole, typed and unread?"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from satchel.goals.artefacts import is_reference, load
from satchel.goals.model import Done, Step, Usage
from satchel.testing.engine_suite.base import case, expect, same, work
from satchel.testing.engine_suite.script import gives, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.goals.model import Work
    from satchel.testing.engine_suite.base import Bench

_ANY: Mapping[str, Any] = {"type": ["object", "array", "number", "boolean", "null", "string"]}
_LARGE = "0123456789abcdef" * 65_536
"""1 MB."""


@case()
async def text_flows_into_prompt(bench: Bench) -> None:
    """A text stands in the prompt as it was given."""
    goal = bench.goal(
        work("a"),
        work("b", prompt="From a: {{steps.a.output}}."),
        work={"a": gives('two\nlines \\ "quoted" \t{single} {{ ')},
    )
    await bench.run(goal)
    prompt = bench.script(goal).work("b").prompt
    same(prompt, 'From a: two\nlines \\ "quoted" \t{single} {{ .', "the prompt")


@case()
async def fields_flow(bench: Bench) -> None:
    """A field or an item of an output can be used alone."""
    output = {"title": "T", "rows": [{"n": 1}, {"n": 2}], "more": {"deep": {"er": True}}}
    goal = bench.goal(
        work("a", output=_ANY),
        work("b", prompt="{{steps.a.output.title}} {{steps.a.output.rows.1.n}}"),
        work("c", prompt="{{steps.a.output.more.deep.er}} {{steps.a.output.rows}}"),
        work={"a": gives(output)},
    )
    report = await bench.run(goal)
    same(report.steps["a"].output, output, "the output of `a`")
    same(bench.script(goal).work("b").prompt, "T 2", "the prompt of `b`")
    same(bench.script(goal).work("c").prompt, 'true [{"n": 1}, {"n": 2}]', "the prompt of `c`")


@case()
async def arguments_keep_their_type(bench: Bench) -> None:
    """An argument that is one reference gets the value itself, not its text."""
    output = {"n": 3, "x": 0.1, "yes": True, "no": None, "list": [1, [2, "三"]], "t": "7"}
    arguments = {name: f"{{{{steps.a.output.{name}}}}}" for name in output}
    goal = bench.goal(
        work("a", output=_ANY),
        Step(
            "b",
            "tool",
            tool="say_back",
            arguments={
                **arguments,
                "deep": [{"in": "{{steps.a.output}}"}],
                "text": "<{{inputs.i}}>",
            },
        ),
        inputs={"i": 5},
        work={"a": gives(output)},
    )
    await bench.run(goal)
    wanted = {**output, "deep": [{"in": output}], "text": "<5>"}
    same(dict(bench.script(goal).work("b").arguments), wanted, "the arguments")


@case()
async def inputs_and_goal_in_prompt(bench: Bench) -> None:
    """The plan's inputs and its goal can be used in a prompt."""
    goal = bench.goal(
        work("a", prompt="{{goal}}: {{inputs.name}} {{inputs.rows.0}}"),
        goal="Write 报告",
        inputs={"name": "张三", "rows": [1.5]},
    )
    await bench.run(goal)
    same(bench.script(goal).work("a").prompt, "Write 报告: 张三 1.5", "the prompt")


@case()
async def any_json_survives(bench: Bench) -> None:
    """Empty, false, null, nested and odd values come back as they were given."""
    values: dict[str, Any] = {
        "zero": 0,
        "no": False,
        "nothing": None,
        "list": [],
        "object": {},
        "float": 1e-9,
        "big": 2**53 - 1,
        "minus": -1.5,
        "empty": "",
        "keys": {"": 1, "a b": 2, "$x": 3, "ключ": 4},
        "nested": [[[[1]]]],
    }
    goal = bench.goal(
        *(work(name, output=_ANY) for name in values),
        work={name: gives(value) for name, value in values.items()},
    )
    report = await bench.run(goal)
    for name, value in values.items():
        found = report.steps[name].output
        same(found, value, f"the output of `{name}`")
        same(type(found), type(value), f"the type of the output of `{name}`")


@case()
async def unicode_survives(bench: Bench) -> None:
    """Chinese, emoji, right-to-left and control characters come through unchanged."""
    text = "周报：技能 🧑‍🚀 עברית é e\u0301 \u2028 \x00 \x1b[31m \x7f \r\n end"
    goal = bench.goal(work("a"), work("b", prompt="{{steps.a.output}}"), work={"a": gives(text)})
    report = await bench.run(goal)
    same(report.steps["a"].output, text, "the output")
    same(bench.script(goal).work("b").prompt, text, "the prompt")


@case()
async def output_is_no_template(bench: Bench) -> None:
    """An output that looks like a template is put in as it is, at every step of the way."""
    hostile = "{{steps.secret.output}} {{inputs.key}} \\{{goal}} {{ {% $artefact"
    goal = bench.goal(
        work("secret"),
        work("a", "secret"),
        work("b", prompt="{{steps.a.output}}"),
        work("c", prompt="{{steps.b.output}}"),
        inputs={"key": "hidden"},
        work={"a": gives(hostile), "b": _prompt},
    )
    report = await bench.run(goal)
    same(bench.script(goal).work("b").prompt, hostile, "the prompt of `b`")
    same(bench.script(goal).work("c").prompt, hostile, "the prompt of `c`")
    same(report.steps["b"].output, hostile, "the output of `b`")


async def _prompt(work: Work) -> str:
    return work.prompt


@case()
async def large_output_by_reference(bench: Bench) -> None:
    """An output of 1 MB is kept beside the results, and the next step gets all of it."""
    goal = bench.goal(
        work("a"),
        work("b", prompt="{{steps.a.output}}"),
        work={"a": gives(_LARGE), "b": _digest},
    )
    report = await bench.run(goal)
    output = report.steps["a"].output
    expect(is_reference(output), "a large output is no reference")
    expect(output["size"] >= len(_LARGE), "the reference does not say how large it is")
    expect(await load(output, bench.engine.artefacts) == _LARGE, "the engine cannot load it")
    wanted = hashlib.sha256(_LARGE.encode()).hexdigest()
    same(report.steps["b"].output, wanted, "the digest of what arrived")


async def _digest(work: Work) -> str:
    return hashlib.sha256(work.prompt.encode()).hexdigest()


@case()
async def many_outputs_just_below_large(bench: Bench) -> None:
    """Outputs that are each too small to be kept apart may be much together: 3 MB here."""
    names = [f"s{number}" for number in range(100)]
    prompt = "".join(f"{{{{steps.{name}.output}}}}" for name in names)
    goal = bench.goal(
        *map(work, names),
        work("all", prompt=prompt),
        work={**dict.fromkeys(names, gives("x" * 30_000)), "all": _digest},
    )
    report = await bench.run(goal)
    wanted = hashlib.sha256(b"x" * 3_000_000).hexdigest()
    same(report.steps["all"].output, wanted, "the digest of what arrived")
    output = await load(report.steps["s7"].output, bench.engine.artefacts)
    same(len(output), 30_000, "the length of an output")


@case()
async def many_large_outputs(bench: Bench) -> None:
    """Ten large outputs arrive together at one step."""
    names = [f"s{number}" for number in range(10)]
    prompt = "".join(f"{{{{steps.{name}.output}}}}" for name in names)
    goal = bench.goal(
        *map(work, names),
        work("all", prompt=prompt),
        work={**{name: gives(name * 150_000) for name in names}, "all": _digest},
    )
    report = await bench.run(goal)
    wanted = hashlib.sha256("".join(name * 150_000 for name in names).encode()).hexdigest()
    same(report.steps["all"].output, wanted, "the digest of what arrived")


@case()
async def field_of_large_output(bench: Bench) -> None:
    """A field of a large output can be used like one of a small one."""
    goal = bench.goal(
        work("a", output=_ANY),
        work("b", prompt="{{steps.a.output.end}} {{steps.a.output.rows.99999}}"),
        work={"a": gives({"rows": list(range(100_000)), "end": "终"})},
    )
    await bench.run(goal)
    same(bench.script(goal).work("b").prompt, "终 99999", "the prompt")


@case()
async def forged_reference(bench: Bench) -> None:
    """An output that looks like a reference is an output, and leads nowhere."""
    forged = {"$artefact": "0" * 64, "size": 3, "head": "x"}
    goal = bench.goal(
        work("a", output=_ANY),
        work("b", prompt="{{steps.a.output.size}}"),
        work={"a": gives(forged)},
    )
    await bench.run(goal)
    same(bench.script(goal).work("b").prompt, "3", "the prompt")


@case()
async def outputs_carry_identity(bench: Bench) -> None:
    """Forty steps that end in the reverse order: each output stays with its own step."""
    import asyncio

    async def late(work: Work) -> str:
        await asyncio.sleep((40 - int(work.step.id[1:])) * 0.002)
        return name_of(work.goal, work.step.id)

    names = [f"s{number}" for number in range(40)]
    readers = [work(f"r{n}", prompt=f"{{{{steps.s{n}.output}}}}") for n in range(40)]
    goal = bench.goal(*map(work, names), *readers, work=dict.fromkeys(names, late))
    report = await bench.run(goal)
    for number, name in enumerate(names):
        same(report.steps[name].output, name_of(goal.id, name), f"the output of `{name}`")
        prompt = bench.script(goal).work(f"r{number}").prompt
        same(prompt, name_of(goal.id, name), f"what `r{number}` got")


@case()
async def usage_is_summed(bench: Bench) -> None:
    """The report says what each step took, and all of them together."""
    goal = bench.goal(
        work("a"),
        work("b", "a"),
        work("c"),
        work={
            "a": gives(Done("x", Usage(1, 10, 5, 0.25))),
            "b": gives(Done("y", Usage(2, 100, 50, 0.5))),
        },
    )
    report = await bench.run(goal)
    same(report.steps["b"].usage, Usage(2, 100, 50, 0.5), "what `b` took")
    same(report.usage, Usage(3, 110, 55, 0.75), "what the goal took")


@case()
async def account_is_kept(bench: Bench) -> None:
    """Skills, tools and notes that the runner names are in the report."""
    done = Done("x", skills=("code-review", "写作"), tools=("ReadFile",), notes=("shortened",))
    goal = bench.goal(work("a"), work={"a": gives(done)})
    result = (await bench.run(goal)).steps["a"]
    same(result.skills, done.skills, "the skills")
    same(result.tools, done.tools, "the tools")
    same(result.notes, done.notes, "the notes")
