"""How is a plan a file? YAML or JSON that a person can read, edit, compare and run again.

    goal: Report what changed this week
    steps:
      - id: fetch
        tool: fetch-issues
        arguments: {since: "{{inputs.since}}"}
      - id: write
        prompt: Summarise {{steps.fetch.output}}

Every slip is told at once, with its line where that is known.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from satchel._language import Message, say
from satchel.errors import InvalidInput, NotFound
from satchel.goals.graph import check
from satchel.goals.model import Budget, Plan, Retry, Step
from satchel.goals.plan_schema import BUDGET, PLAN, RETRY, STEP, plan_schema
from satchel.goals.problems import Problem, phrase
from satchel.goals.yaml_text import to_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from satchel.goals.plan_schema import Field
    from satchel.skill.document import Document, Path

__all__ = ["plan_schema", "read_plan", "write_plan"]

MAX_FILE = 8 * 1024 * 1024
_MOST = 200_000
"""Values of one file."""


def read_plan(
    source: str | os.PathLike[str],
    *,
    skills: Collection[str] | None = None,
    tools: Collection[str] | None = None,
) -> tuple[Plan, list[Problem]]:
    """A plan, and everything that is wrong with it.

    Args:
        source: A path; or the text itself, which has more than one line or is JSON.
        skills: The skills there are; None when that is not known here.
        tools: The tools there are; None when that is not known here.

    Raises:
        NotFound: there is no such file.
        InvalidInput: it cannot be read as text.
    """
    text = _text(source)
    from satchel.skill.document import Unreadable, read_document

    try:
        document = read_document(text, _MOST)
    except Unreadable as exc:
        values = {"reason": str(exc)}
        return Plan("", ()), [Problem("not-yaml", line=exc.line, values=values)]
    reading = _Reading(document)
    plan = reading.plan()
    if reading.found and not plan.steps and not plan.goal:
        return plan, reading.found
    found = check(plan, skills=skills, tools=tools)
    lines: dict[str, int] = {}
    for index, step in enumerate(plan.steps):
        lines.setdefault(step.id, document.lines.get(("steps", index), 0))
    # What was said about a field is not said again about the value that stands for it.
    said = {(problem.code, problem.step) for problem in reading.found}
    spoilt = {problem.step for problem in reading.found}
    placed = [
        problem._replace(line=lines.get(problem.step, 0))
        for problem in found
        if (problem.code, problem.step) not in said
        and not (problem.code.startswith("no-") and problem.step in spoilt)
    ]
    return plan, sorted(reading.found + placed, key=lambda problem: problem.line)


def _text(source: str | os.PathLike[str]) -> str:
    if isinstance(source, str) and ("\n" in source or source.lstrip()[:1] == "{"):
        return source
    path = os.fspath(source)
    try:
        if os.path.getsize(path) > MAX_FILE:
            raise InvalidInput(
                say("`{path}` is larger than {limit} bytes", path=path, limit=MAX_FILE)
            )
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except FileNotFoundError as exc:
        raise NotFound(
            say("There is no plan `{path}`", path=path),
            say("Give the path of a file in YAML or JSON"),
        ) from exc
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise InvalidInput(
            say("The plan `{path}` cannot be read: {reason}", path=path, reason=reason)
        ) from exc


class _Reading:
    """One document on its way to a plan."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[Problem] = []

    def add(self, code: str, path: Path, step: str = "", **values: str) -> None:
        """Note a problem at the nearest line that is known."""
        line = 0
        while path and not line:
            line = self.document.lines.get(path, 0)
            path = path[:-1]
        self.found.append(Problem(code, step, line, values))

    def plan(self) -> Plan:
        """The plan; what cannot be used is left at its default, and said."""
        top = self.document.value
        if not isinstance(top, dict):
            self.add("not-a-plan", (), kind=_kind(top))
            return Plan("", ())
        for path in self.document.twice:
            self.add("key-twice", path, where=self._where(path), key=str(path[-1]))
        values = self.fields(cast("dict[str, Any]", top), PLAN, (), "the plan")
        values.setdefault("goal", "")
        steps = values.get("steps", [])
        values["steps"] = tuple(
            self.step(value, ("steps", index)) for index, value in enumerate(steps)
        )
        if "retry" in values:
            values["retry"] = self.retry(values["retry"], ("retry",), "the plan")
        if "budget" in values:
            path: Path = ("budget",)
            values["budget"] = Budget(**self.fields(values["budget"], BUDGET, path, "`budget`"))
        return Plan(**values)

    def _where(self, path: Path) -> str:
        if path[:1] == ("steps",) and len(path) > 2:
            return Message("step {part}", part=int(path[1]) + 1)
        return "the plan"

    def step(self, value: Any, path: Path) -> Step:
        """One step."""
        where = Message("step {part}", part=int(path[1]) + 1)
        if not isinstance(value, dict):
            self.add("wrong-type", path, key=where, where="`steps`", kind=_kind(value),
                     wanted="a mapping")  # fmt: skip
            return Step("")
        table = cast("dict[str, Any]", value)
        name = table.get("id")
        name = name if isinstance(name, str) else ""
        where = Message("step {part}", part=f"`{name}`") if name else where
        values = self.fields(table, STEP, path, where, name)
        values.setdefault("id", "")
        if "retry" in values:
            values["retry"] = self.retry(values["retry"], (*path, "retry"), where, name)
        if "action_type" not in values:
            named = [kind for kind in ("tool", "skill") if values.get(kind)]
            values["action_type"] = named[0] if named else "llm"
        return Step(**values)

    def retry(self, value: Any, path: Path, where: str, step: str = "") -> Retry:
        """How often; a number alone is the number of tries."""
        if isinstance(value, int):
            return Retry(attempts=value)
        where = Message("{name} of {where}", name="`retry`", where=phrase(where))
        return Retry(**self.fields(value, RETRY, path, where, step))

    def fields(
        self,
        table: Mapping[str, Any],
        known: Mapping[str, Field],
        path: Path,
        where: str,
        step: str = "",
    ) -> dict[str, Any]:
        """The values of a mapping that can be used."""
        values: dict[str, Any] = {}
        for key, value in table.items():
            field = known.get(key)
            if field is None:
                if key != "$schema":
                    better = _better(key, known)
                    self.add("unknown-key", (*path, key), step, where=where, key=key[:60],
                             better=better)  # fmt: skip
            elif value is None:
                continue  # a key that is still to be filled
            elif (fitting := _fitting(value, field.kinds)) is _NOT:
                self.add("wrong-type", (*path, key), step, key=key, where=where, kind=_kind(value),
                         wanted=field.wanted)  # fmt: skip
            else:
                values[key] = fitting
        return values


_NOT = object()
_HUGE = 1e18
"""Beyond this nothing is counted or timed."""


def _fitting(value: Any, kinds: tuple[str, ...]) -> Any:
    """A value as one of these kinds; `_NOT` when it is none of them."""
    for kind in kinds:
        if kind == "text" and isinstance(value, str):
            return value
        if kind == "mapping" and isinstance(value, dict):
            return cast("dict[str, Any]", value)
        if kind == "list" and isinstance(value, list):
            return cast("list[Any]", value)
        if kind == "texts":
            rows = cast("list[Any]", value if isinstance(value, list) else [value])
            if all(isinstance(row, str) for row in rows):
                return tuple(rows)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if kind == "name":
            return str(value)  # an id that looks like a number
        if not -_HUGE < value < _HUGE:
            continue  # nor what is infinite, or no number
        if kind == "whole" and value == int(value):
            return int(value)
        if kind == "number":
            return float(value)
    return _NOT


def _kind(value: Any) -> str:
    from satchel.skill.yaml_block import kind_of

    return kind_of(value)


def _better(key: str, known: Mapping[str, Field]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key.lower().replace("-", "_"), list(known), n=1, cutoff=0.6)
    return f"`{near[0]}`" if near else Message("one of {part}", part=[f"`{one}`" for one in known])


def write_plan(plan: Plan) -> str:
    """A plan as YAML that reads back as the same plan; long texts stand as blocks."""
    from satchel.goals.reports import pack

    packed = pack(plan)
    steps = packed.pop("steps")
    for step in steps:
        kind = step.pop("action_type", "llm")
        named = [name for name in ("tool", "skill") if step.get(name)]
        if kind != (named[0] if named else "llm"):
            step["action_type"] = kind
    ordered = {name: packed[name] for name in PLAN if name in packed}
    shaped = [{name: step[name] for name in STEP if name in step} for step in steps]
    return to_yaml({**ordered, "steps": shaped})
