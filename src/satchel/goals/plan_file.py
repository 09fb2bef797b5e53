"""Plan files: reads and writes plans as YAML or JSON, and their JSON schema.

    goal: Report what changed this week
    steps:
      - id: fetch
        tool: fetch-issues
        arguments: {since: "{{inputs.since}}"}
      - id: write
        prompt: Summarise {{steps.fetch.output}}

All problems are reported at once, with their lines where known.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import InvalidInput, NotFound
from satchel.goals.model import GoalBudget, Plan, Retry, Step
from satchel.goals.plan_checks import (
    MAX_ATTEMPTS,
    MAX_PROMPT_CHARS,
    MAX_STEPS,
    MAX_TIMEOUT_S,
    PlanProblem,
    check,
    format_phrase,
)
from satchel.i18n import Message, say

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from satchel.skill.yaml_reader import Path, YamlDocument

# --- fields -------------------------------------------------------------------------------
# One table of the keys of a plan file; its JSON schema is made from it, for editors, the
# documentation and models that write plans.

_ACTIONS = ["llm", "skill", "tool", "human"]
_POLICIES = ["fail_fast", "continue", "skip_dependents"]


class PlanField(NamedTuple):
    """One key."""

    kinds: tuple[str, ...]
    wanted: str
    """The same as a phrase."""
    schema: dict[str, Any]
    says: str


def _text_field(says: str, **more: Any) -> PlanField:
    return PlanField(("text",), "text", {"type": "string", **more}, says)


def _number(says: str, **more: Any) -> PlanField:
    return PlanField(("number",), "a number", {"type": "number", **more}, says)


def _whole(says: str, **more: Any) -> PlanField:
    return PlanField(("whole",), "a whole number", {"type": "integer", **more}, says)


def _mapping_field(says: str, **more: Any) -> PlanField:
    return PlanField(("mapping",), "a mapping", {"type": "object", **more}, says)


_SECONDS = {"exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S}

RETRY: dict[str, PlanField] = {
    "attempts": _whole("All tries together", minimum=1, maximum=MAX_ATTEMPTS),
    "first": _number("Seconds before the second try", minimum=0, maximum=MAX_TIMEOUT_S),
    "factor": _number("How many times longer each wait is", minimum=1, maximum=100),
    "most": _number("The longest wait, in seconds", minimum=0, maximum=MAX_TIMEOUT_S),
    "jitter": _number("Each wait varies by up to this share", minimum=0, maximum=1),
}
BUDGET: dict[str, PlanField] = {
    "tokens": _whole("Tokens in and out together", minimum=1),
    "cost": _number("US dollars", exclusiveMinimum=0),
    "seconds": _number("Time at work; waiting for people does not count", exclusiveMinimum=0),
}


def _object(fields: dict[str, PlanField], required: tuple[str, ...] = ()) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            name: {**field.schema, "description": field.says} for name, field in fields.items()
        },
        "additionalProperties": False,
    }
    return {**schema, "required": [*required]} if required else schema


_RETRY = PlanField(
    ("whole", "mapping"),
    "a whole number or a mapping",
    {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS}, _object(RETRY)]},
    "How often a failed step is tried: a number of tries, or when and how often",
)

STEP: dict[str, PlanField] = {
    "id": PlanField(
        ("text", "name"),
        "text",
        {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"},
        "What other steps call it",
    ),
    "title": _text_field("What people read; the id when empty"),
    "action_type": _text_field(
        "`llm` asks a model, `skill` a model with a skill's instructions, `tool` calls a tool, "
        "`human` waits for a person; when left out, as `tool` or `skill` say, else `llm`",
        enum=_ACTIONS,
    ),
    "skill": _text_field("For `skill`: its name"),
    "tool": _text_field("For `tool`: its name"),
    "arguments": _mapping_field(
        "For `tool`: what it is called with. A text that is one `{{…}}` alone keeps its type"
    ),
    "prompt": _text_field(
        "What the model or the person is told. `{{steps.ID.output}}`, `{{steps.ID.output.field}}`, "
        "`{{inputs.NAME}}` and `{{goal}}` are filled in",
        maxLength=MAX_PROMPT_CHARS,
    ),
    "needs": PlanField(
        ("texts",),
        "a list of ids",
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                {"type": "string"},
            ]
        },
        "Steps that must end before it; those that its texts mention need not be listed",
    ),
    "output": _mapping_field("A JSON schema of what it gives; a text when empty"),
    "model": _text_field("Which model is asked; the runner's own when empty"),
    "retry": _RETRY,
    "timeout": _number("Seconds for one try", **_SECONDS),
    "on_failure": _text_field("What its failure means for the rest", enum=_POLICIES),
}

PLAN: dict[str, PlanField] = {
    "goal": _text_field("What is to be reached, in words", minLength=1),
    "inputs": _mapping_field("Values for `{{inputs.NAME}}`"),
    "on_failure": _text_field(
        "What a failed step means: `fail_fast` stops everything, `continue` goes on without its "
        "output, `skip_dependents` leaves out what depends on it",
        enum=_POLICIES,
    ),
    "retry": _RETRY,
    "timeout": _number("Seconds for one try of a step", **_SECONDS),
    "budget": PlanField(("mapping",), "a mapping", _object(BUDGET), "What the whole goal may take"),
    "parallel": _whole("Steps that run at once, at most", minimum=1, maximum=10_000),
    "steps": PlanField(
        ("list",),
        "a list",
        {
            "type": "array",
            "items": _object(STEP, ("id",)),
            "minItems": 1,
            "maxItems": MAX_STEPS,
        },
        "What is to be done; each begins when all it needs has ended",
    ),
}


def plan_schema() -> dict[str, Any]:
    """A new copy of the JSON schema of a plan file."""
    import copy

    schema = _object(PLAN, ("goal", "steps"))
    schema["properties"]["$schema"] = {"type": "string"}
    return copy.deepcopy(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "A plan of Satchel",
            **schema,
        }
    )


_PLAIN_TEXT = re.compile(r"[A-Za-z_][A-Za-z0-9_ ./()'+=-]*(?<! )")
"""Texts that YAML reads as texts, except these words:"""
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_ESCAPED_CHARS = re.compile(
    r"[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""Characters that must be escaped: tabs, carriage returns, controls, other line ends."""
_FLOW_CHARS = 80


def to_yaml(value: dict[str, Any]) -> str:
    """Write a mapping as YAML."""
    return "\n".join(_mapping(value, 0)) + "\n"


def _mapping(table: dict[str, Any], indent: int) -> list[str]:
    lines: list[str] = []
    for key, value in table.items():
        name = _inline(str(key))
        first, rest = _value(value, indent)
        lines.append(f"{' ' * indent}{name}:{first}")
        lines += rest
    return lines


def _items(rows: list[Any], indent: int) -> list[str]:
    lines: list[str] = []
    pad = " " * indent
    for row in rows:
        if isinstance(row, dict) and row:
            inner = _mapping(cast("dict[str, Any]", row), indent + 2)
            lines.append(f"{pad}- {inner[0].lstrip()}")
            lines += inner[1:]
        else:
            first, rest = _value(row, indent)
            lines.append(f"{pad}-{first}")
            lines += rest
    return lines


def _value(value: Any, indent: int) -> tuple[str, list[str]]:
    """The text after a key, and the lines below it."""
    if isinstance(value, str) and "\n" in value and _fits_block(value):
        tail = len(value) - len(value.rstrip("\n"))
        mark = ("-", "", "+")[min(tail, 2)]
        body = value[: len(value) - tail] if tail < 2 else value[:-1]
        pad = " " * (indent + 2)
        return f" |{mark}", [f"{pad}{line}" if line else "" for line in body.split("\n")]
    if isinstance(value, dict) and value:
        table = cast("dict[str, Any]", value)
        if (flow := _flow(table)) is not None:
            return f" {flow}", []
        return "", _mapping(table, indent + 2)
    if isinstance(value, list | tuple) and value:
        rows = list(cast("list[Any]", value))
        if (flow := _flow(rows)) is not None:
            return f" {flow}", []
        return "", _items(rows, indent + 2)
    return f" {_inline(value)}", []


def _flow(value: Any) -> str | None:
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        if any(isinstance(item, dict | list | tuple) for item in table.values()):
            return None
        parts = [f"{_inline(str(key))}: {_inline(item)}" for key, item in table.items()]
        text = "{" + ", ".join(parts) + "}"
    else:
        if any(isinstance(item, dict | list | tuple) for item in value):
            return None
        text = "[" + ", ".join(_inline(item) for item in value) + "]"
    return text if len(text) <= _FLOW_CHARS else None


def _inline(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN_TEXT.fullmatch(value) and value.lower() not in _WORDS and len(value) <= 200:
            return value
        return _escaped(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    if isinstance(value, float):
        text = repr(value)
        if "e" in text:  # YAML wants a dot and a sign
            number, _, power = text.partition("e")
            number = number if "." in number else f"{number}.0"
            text = f"{number}e{power if power[0] in '+-' else '+' + power}"
        return text
    return json.dumps(value, ensure_ascii=False)


def _escaped(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return _ESCAPED_CHARS.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _fits_block(text: str) -> bool:
    if _ESCAPED_CHARS.search(text) or text[0] in " \n":
        return False
    return not any(line != line.rstrip(" ") and not line.strip() for line in text.split("\n"))


__all__ = ["plan_schema", "read_plan", "write_plan"]

MAX_FILE_BYTES = 8 * 1024 * 1024
_MAX_VALUES = 200_000


def read_plan(
    source: str | os.PathLike[str],
    *,
    skills: Collection[str] | None = None,
    tools: Collection[str] | None = None,
) -> tuple[Plan, list[PlanProblem]]:
    """Read and check a plan file; returns the plan and its problems.

    Args:
        source: A path; or the text itself, if it has several lines or is JSON.
        skills: Available skills; None when unknown.
        tools: Available tools; None when unknown.

    Raises:
        NotFound: there is no such file.
        InvalidInput: it is not text.
    """
    text = _text(source)
    from satchel.skill.yaml_reader import UnreadableDocument, read_document

    try:
        document = read_document(text, _MAX_VALUES)
    except UnreadableDocument as exc:
        values = {"reason": str(exc)}
        return Plan("", ()), [PlanProblem("not-yaml", line=exc.line, values=values)]
    reading = _PlanReading(document)
    plan = reading.plan()
    if reading.found and not plan.steps and not plan.goal:
        return plan, reading.found
    found = check(plan, skills=skills, tools=tools)
    lines: dict[str, int] = {}
    for index, step in enumerate(plan.steps):
        lines.setdefault(step.id, document.lines.get(("steps", index), 0))
    # A problem of a field is not repeated for the default that replaces its value.
    reported = {(problem.code, problem.step) for problem in reading.found}
    broken_steps = {problem.step for problem in reading.found}
    placed = [
        problem._replace(line=lines.get(problem.step, 0))
        for problem in found
        if (problem.code, problem.step) not in reported
        and not (problem.code.startswith("no-") and problem.step in broken_steps)
    ]
    return plan, sorted(reading.found + placed, key=lambda problem: problem.line)


def _text(source: str | os.PathLike[str]) -> str:
    if isinstance(source, str) and ("\n" in source or source.lstrip()[:1] == "{"):
        return source
    path = os.fspath(source)
    try:
        if os.path.getsize(path) > MAX_FILE_BYTES:
            raise InvalidInput(
                say("`{path}` is larger than {limit} bytes", path=path, limit=MAX_FILE_BYTES)
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


class _PlanReading:
    """Parses one document into a plan."""

    def __init__(self, document: YamlDocument) -> None:
        self.document = document
        self.found: list[PlanProblem] = []

    def add(self, code: str, path: Path, step: str = "", **values: str) -> None:
        """Add a problem at the nearest known line."""
        line = 0
        while path and not line:
            line = self.document.lines.get(path, 0)
            path = path[:-1]
        self.found.append(PlanProblem(code, step, line, values))

    def plan(self) -> Plan:
        """Read the plan; unusable values are reported and replaced by their defaults."""
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
            values["budget"] = GoalBudget(**self.fields(values["budget"], BUDGET, path, "`budget`"))
        return Plan(**values)

    def _where(self, path: Path) -> str:
        if path[:1] == ("steps",) and len(path) > 2:
            return Message("step {part}", part=int(path[1]) + 1)
        return "the plan"

    def step(self, value: Any, path: Path) -> Step:
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
        """Read a retry policy; a plain number is the number of attempts."""
        if isinstance(value, int):
            return Retry(attempts=value)
        where = Message("{name} of {where}", name="`retry`", where=format_phrase(where))
        return Retry(**self.fields(value, RETRY, path, where, step))

    def fields(
        self,
        table: Mapping[str, Any],
        known: Mapping[str, PlanField],
        path: Path,
        where: str,
        step: str = "",
    ) -> dict[str, Any]:
        """The usable values of a mapping."""
        values: dict[str, Any] = {}
        for key, value in table.items():
            field = known.get(key)
            if field is None:
                if key != "$schema":
                    better = _suggestion(key, known)
                    self.add("unknown-key", (*path, key), step, where=where, key=key[:60],
                             better=better)  # fmt: skip
            elif value is None:
                continue  # a key without a value yet
            elif (fitting := _converted(value, field.kinds)) is _INVALID:
                self.add("wrong-type", (*path, key), step, key=key, where=where, kind=_kind(value),
                         wanted=field.wanted)  # fmt: skip
            else:
                values[key] = fitting
        return values


_INVALID = object()
_MAX_NUMBER = 1e18


def _converted(value: Any, kinds: tuple[str, ...]) -> Any:
    """Convert a value to one of these kinds; `_INVALID` when it is none of them."""
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
        if not -_MAX_NUMBER < value < _MAX_NUMBER:
            continue  # infinity and NaN are no numbers here
        if kind == "whole" and value == int(value):
            return int(value)
        if kind == "number":
            return float(value)
    return _INVALID


def _kind(value: Any) -> str:
    from satchel.skill.yaml_reader import kind_of

    return kind_of(value)


def _suggestion(key: str, known: Mapping[str, PlanField]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key.lower().replace("-", "_"), list(known), n=1, cutoff=0.6)
    return f"`{near[0]}`" if near else Message("one of {part}", part=[f"`{one}`" for one in known])


def write_plan(plan: Plan) -> str:
    """Write a plan as YAML that reads back as the same plan; long texts become blocks."""
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
