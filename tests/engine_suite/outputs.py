"""Outputs: how they flow, and that they come back whole."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from engine_suite.bench import gives, work
from satchel.goals.artifacts import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_suite.bench import Bench
    from satchel.goals.model import Work


_ANY: Mapping[str, Any] = {"type": ["object", "array", "number", "boolean", "null", "string"]}


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
        "text": "周报：技能 🧑‍🚀 עברית é e\u0301 \u2028 \x00 \x1b[31m \x7f \r\n end",
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
    output = await load(report.steps["s7"].output, bench.engine.artifacts)
    assert len(output) == 30_000
