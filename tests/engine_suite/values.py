"""Outputs: how they flow, and that they come back whole."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

from engine_suite.bench import gives, name_of, work
from satchel.goals.artefacts import is_reference, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_suite.bench import Bench
    from satchel.goals.model import Work


_ANY: Mapping[str, Any] = {"type": ["object", "array", "number", "boolean", "null", "string"]}
_LARGE = "0123456789abcdef" * 65_536
"""1 MB."""


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
        assert found == value
        assert type(found) is type(value)


async def unicode_survives(bench: Bench) -> None:
    """Chinese, emoji, right-to-left and control characters come through unchanged."""
    text = "周报：技能 🧑‍🚀 עברית é e\u0301 \u2028 \x00 \x1b[31m \x7f \r\n end"
    goal = bench.goal(work("a"), work("b", prompt="{{steps.a.output}}"), work={"a": gives(text)})
    report = await bench.run(goal)
    assert report.steps["a"].output == text
    assert bench.script(goal).work("b").prompt == text


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
    assert bench.script(goal).work("b").prompt == hostile
    assert bench.script(goal).work("c").prompt == hostile
    assert report.steps["b"].output == hostile


async def _prompt(work: Work) -> str:
    return work.prompt


async def large_output_by_reference(bench: Bench) -> None:
    """An output of 1 MB is kept beside the results, and the next step gets all of it."""
    goal = bench.goal(
        work("a"), work("b", prompt="{{steps.a.output}}"), work={"a": gives(_LARGE), "b": _digest}
    )
    report = await bench.run(goal)
    output = report.steps["a"].output
    assert is_reference(output)
    assert output["size"] >= len(_LARGE)
    assert await load(output, bench.engine.artefacts) == _LARGE
    wanted = hashlib.sha256(_LARGE.encode()).hexdigest()
    assert report.steps["b"].output == wanted


async def _digest(work: Work) -> str:
    return hashlib.sha256(work.prompt.encode()).hexdigest()


async def many_outputs_just_below_large(bench: Bench) -> None:
    """Outputs that are each too small to be kept apart may be much together."""
    names = [f"s{number}" for number in range(40)]
    prompt = "".join(f"{{{{steps.{name}.output}}}}" for name in names)
    goal = bench.goal(
        *map(work, names),
        work("all", prompt=prompt),
        work={**dict.fromkeys(names, gives("x" * 30_000)), "all": _digest},
    )
    report = await bench.run(goal)
    wanted = hashlib.sha256(b"x" * 1_200_000).hexdigest()
    assert report.steps["all"].output == wanted
    output = await load(report.steps["s7"].output, bench.engine.artefacts)
    assert len(output) == 30_000


async def forged_reference(bench: Bench) -> None:
    """An output that looks like a reference is an output, and leads nowhere."""
    forged = {"$artefact": "0" * 64, "size": 3, "head": "x"}
    goal = bench.goal(
        work("a", output=_ANY),
        work("b", prompt="{{steps.a.output.size}}"),
        work={"a": gives(forged)},
    )
    await bench.run(goal)
    assert bench.script(goal).work("b").prompt == "3"


async def outputs_carry_identity(bench: Bench) -> None:
    """Forty steps that end in the reverse order: each output stays with its own step."""

    async def late(work: Work) -> str:
        await asyncio.sleep((40 - int(work.step.id[1:])) * 0.002)
        return name_of(work.goal, work.step.id)

    names = [f"s{number}" for number in range(40)]
    readers = [work(f"r{n}", prompt=f"{{{{steps.s{n}.output}}}}") for n in range(40)]
    goal = bench.goal(*map(work, names), *readers, work=dict.fromkeys(names, late))
    report = await bench.run(goal)
    for number, name in enumerate(names):
        assert report.steps[name].output == name_of(goal.id, name)
        prompt = bench.script(goal).work(f"r{number}").prompt
        assert prompt == name_of(goal.id, name)
