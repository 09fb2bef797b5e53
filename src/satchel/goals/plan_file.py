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

import copy
import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import read_small
from satchel.errors import InvalidInput, NotFound
from satchel.goals.model import Condition, ForEach, GoalBudget, Notify, Plan, Retry, Step
from satchel.goals.plan_checks import ACTIONS, POLICIES, check
from satchel.goals.plan_rules import (
    EVENTS,
    MAX_ATTEMPTS,
    MAX_ITEMS,
    MAX_PROMPT_CHARS,
    MAX_STEPS,
    MAX_TIMEOUT_S,
    PlanProblem,
    format_phrase,
)
from satchel.i18n import Message, say, similar_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from satchel.skill.yaml_reader import Path, YamlDocument

__all__ = ["plan_schema", "read_plan", "write_plan"]

# --- fields -------------------------------------------------------------------------------
# One table of the keys of a plan file; its JSON schema is made from it, for editors, the
# documentation and models that write plans.


class PlanField(NamedTuple):
    """One key."""

    kind: str
    type_phrase: str
    """The same as a phrase."""
    schema: dict[str, Any]
    says: str


def _text_field(says: str, **rules: Any) -> PlanField:
    return PlanField("text", "text", {"type": "string", **rules}, says)


def _number(says: str, **rules: Any) -> PlanField:
    return PlanField("number", "a number", {"type": "number", **rules}, says)


def _whole(says: str, **rules: Any) -> PlanField:
    return PlanField("whole", "a whole number", {"type": "integer", **rules}, says)


def _mapping_field(says: str, **rules: Any) -> PlanField:
    return PlanField("mapping", "a mapping", {"type": "object", **rules}, says)


def _any_field(says: str) -> PlanField:
    return PlanField("any", "a value", {}, says)


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


FOR_EACH: dict[str, PlanField] = {
    "items": _any_field("A list, or one `{{…}}` that is a list"),
    "at_once": _whole("Items that are worked on at once", minimum=1, maximum=MAX_ITEMS),
    "most": _whole("A longer list fails the step", minimum=1, maximum=MAX_ITEMS),
    "failures": _whole(
        "How many items may fail; their outputs are `null`", minimum=0, maximum=MAX_ITEMS
    ),
}
WHEN: dict[str, PlanField] = {
    "value": _any_field("What is compared, such as `{{steps.ID.output.field}}`"),
    "equals": _any_field("It is equal to this"),
    "differs": _any_field("It is not equal to this"),
    "above": _any_field("It is a number larger than this"),
    "below": _any_field("It is a number smaller than this"),
    "contains": _any_field("It is a text or a list that contains this"),
}
NOTIFY: dict[str, PlanField] = {
    "url": _text_field("Where a request is sent, with `https`"),
    "secret": _text_field(
        "The name of the secret that signs it, in the keyring or the environment of the worker"
    ),
    "events": PlanField(
        "texts",
        "a list of events",
        {"type": "array", "items": {"enum": [*EVENTS]}, "uniqueItems": True},
        "`asking`: a step waits for a person; `done`, `partial`, `failed`: the goal ended",
    ),
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


_RETRY = PlanField("mapping", "a mapping", _object(RETRY), "How often a failed step is tried")

STEP: dict[str, PlanField] = {
    "id": _text_field("What other steps call it", pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"),
    "title": _text_field("What people read; the id when empty"),
    "action_type": _text_field(
        "`llm` asks a model, `skill` a model with a skill's instructions, `tool` calls a tool, "
        "`human` waits for a person; when left out, as `tool` or `skill` say, else `llm`",
        enum=[*ACTIONS],
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
        "texts",
        "a list of ids",
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "Steps that must end before it; those that its texts mention need not be listed",
    ),
    "output": _mapping_field("A JSON schema of what it gives; a text when empty"),
    "model": _text_field("Which model is asked; the runner's own when empty"),
    "retry": _RETRY,
    "timeout": _number("Seconds for one try", **_SECONDS),
    "on_failure": _text_field(
        "What its failure means for the rest; `continue` also lets its dependents run when `when` "
        "leaves it out",
        enum=[*POLICIES],
    ),
    "for_each": PlanField(
        "mapping",
        "a mapping",
        _object(FOR_EACH, ("items",)),
        "The step is done for each `{{item}}` of a list; its output is the list of their outputs",
    ),
    "when": PlanField(
        "mapping", "a mapping", _object(WHEN, ("value",)), "The step is left out unless this holds"
    ),
    "deadline": _number("For `human`: seconds to wait for an answer", **_SECONDS),
    "default": _any_field(
        "For `human`: the output when no answer came in time; without it the step fails then"
    ),
}

PLAN: dict[str, PlanField] = {
    "goal": _text_field("The goal in one sentence", minLength=1),
    "inputs": _mapping_field("Values for `{{inputs.NAME}}`"),
    "on_failure": _text_field(
        "What a failed step means: `fail_fast` stops everything, `continue` goes on without its "
        "output, `skip_dependents` leaves out what depends on it",
        enum=[*POLICIES],
    ),
    "retry": _RETRY,
    "timeout": _number("Seconds for one try of a step", **_SECONDS),
    "budget": PlanField("mapping", "a mapping", _object(BUDGET), "What the whole goal may take"),
    "parallel": _whole("Steps that run at once, at most", minimum=1, maximum=10_000),
    "notify": PlanField(
        "mapping",
        "a mapping",
        _object(NOTIFY, ("url", "secret")),
        "Who is notified when a person is needed, and when the goal ends",
    ),
    "steps": PlanField(
        "list",
        "a list",
        {"type": "array", "items": _object(STEP, ("id",)), "minItems": 1, "maxItems": MAX_STEPS},
        "What is to be done; each begins when all it needs has ended",
    ),
}


_PLAN_RECORDS: dict[str, tuple[type[Any], dict[str, PlanField]]] = {
    "retry": (Retry, RETRY),
    "budget": (GoalBudget, BUDGET),
    "notify": (Notify, NOTIFY),
}
_STEP_RECORDS: dict[str, tuple[type[Any], dict[str, PlanField]]] = {
    "retry": (Retry, RETRY),
    "for_each": (ForEach, FOR_EACH),
    "when": (Condition, WHEN),
}
"""Keys whose mappings become records, with their fields."""


def plan_schema() -> dict[str, Any]:
    """A new copy of the JSON schema of a plan file."""
    schema = _object(PLAN, ("goal", "steps"))
    schema["properties"]["$schema"] = {"type": "string"}
    return copy.deepcopy(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "A plan of Satchel",
            **schema,
        }
    )


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

    Example:
        import json

        from satchel.goals import read_plan

        steps = [{"id": "draft", "action_type": "llm", "prompt": "Write the notes"}]
        text = json.dumps({"goal": "Publish the notes", "steps": steps})
        plan, problems = read_plan(text)
        assert problems == []
        assert [step.id for step in plan.steps] == ["draft"]
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
    problems = check(plan, skills=skills, tools=tools)
    lines: dict[str, int] = {}
    for index, step in enumerate(plan.steps):
        lines.setdefault(step.id, document.lines.get(("steps", index), 0))
    # A problem of a field is not repeated for the default that replaces its value.
    reported = {(problem.code, problem.step) for problem in reading.found}
    broken_steps = {problem.step for problem in reading.found}
    placed = [
        problem._replace(line=lines.get(problem.step, 0))
        for problem in problems
        if (problem.code, problem.step) not in reported
        and not (problem.code.startswith("no-") and problem.step in broken_steps)
    ]
    return plan, sorted(reading.found + placed, key=lambda problem: problem.line)


def _text(source: str | os.PathLike[str]) -> str:
    if isinstance(source, str) and ("\n" in source or source.lstrip()[:1] == "{"):
        return source
    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            return read_small(file.fileno(), MAX_FILE_BYTES).decode("utf-8-sig")
    except FileNotFoundError as exc:
        raise NotFound(say("There is no `{path}`", path=path), say("Check the path")) from exc
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise InvalidInput(
            say("`{path}` cannot be read: {reason}", path=path, reason=reason)
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
            self.add("key-twice", path, where=self._subject_at(path), key=str(path[-1]))
        values = self.fields(cast("dict[str, Any]", top), PLAN, (), "the plan")
        values.setdefault("goal", "")
        steps = values.get("steps", [])
        values["steps"] = tuple(
            self.step(value, ("steps", index)) for index, value in enumerate(steps)
        )
        self.read_records(values, _PLAN_RECORDS, (), "the plan")
        return Plan(**values)

    def _subject_at(self, path: Path) -> str:
        """Return what a message calls the part of the plan at a path."""
        if path[:1] == ("steps",) and len(path) > 2:
            return Message("step {part}", part=int(path[1]) + 1)
        return "the plan"

    def step(self, value: Any, path: Path) -> Step:
        """Read a step; unusable values are reported and replaced by their defaults."""
        subject = Message("step {part}", part=int(path[1]) + 1)
        if not isinstance(value, dict):
            self.add("wrong-type", path, key=subject, where="`steps`", kind=_kind(value),
                     wanted="a mapping")  # fmt: skip
            return Step("")
        table = cast("dict[str, Any]", value)
        name = table.get("id")
        name = name if isinstance(name, str) else ""
        subject = Message("step {part}", part=f"`{name}`") if name else subject
        values = self.fields(table, STEP, path, subject, name)
        values.setdefault("id", "")
        self.read_records(values, _STEP_RECORDS, path, subject, name)
        if "action_type" not in values:
            callees = [kind for kind in ("tool", "skill") if values.get(kind)]
            values["action_type"] = callees[0] if callees else "llm"
        return Step(**values)

    def read_records(
        self,
        values: dict[str, Any],
        tables: Mapping[str, tuple[type[Any], Mapping[str, PlanField]]],
        path: Path,
        subject: str,
        step: str = "",
    ) -> None:
        """Replace the mappings of a plan or a step by their records."""
        for key in tables.keys() & values.keys():
            record, allowed = tables[key]
            where = Message("{name} of {where}", name=f"`{key}`", where=format_phrase(subject))
            fields = self.fields(values[key], allowed, (*path, key), where, step)
            required = [field for field in record._fields if field not in record._field_defaults]
            values[key] = record(**{**dict.fromkeys(required, ""), **fields})

    def fields(
        self,
        table: Mapping[str, Any],
        allowed: Mapping[str, PlanField],
        path: Path,
        subject: str,
        step: str = "",
    ) -> dict[str, Any]:
        """Return the usable values of a mapping."""
        values: dict[str, Any] = {}
        for key, value in table.items():
            field = allowed.get(key)
            if field is None:
                if key != "$schema":
                    better = _suggestion(key, allowed)
                    self.add("unknown-key", (*path, key), step, where=subject, key=key[:60],
                             better=better)  # fmt: skip
            elif value is None:
                continue  # a key without a value yet
            elif (fitting := _converted(value, field.kind)) is _INVALID:
                self.add("wrong-type", (*path, key), step, key=key, where=subject,
                         kind=_kind(value), wanted=field.type_phrase)  # fmt: skip
            else:
                values[key] = fitting
        return values


_BREAKS = frozenset("\r\x85\u2028\u2029")
_INVALID = object()
_TYPES: dict[str, type[Any]] = {"text": str, "mapping": dict, "list": list}
_MAX_NUMBER = 1e18


def _converted(value: Any, kind: str) -> Any:
    """Convert a value to this kind; `_INVALID` when it is another."""
    if kind == "any":
        return value
    if kind in _TYPES:
        return value if isinstance(value, _TYPES[kind]) else _INVALID
    if kind == "texts":
        rows = cast("list[Any]", value if isinstance(value, list) else [None])
        return tuple(rows) if all(isinstance(row, str) for row in rows) else _INVALID
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _INVALID
    if not -_MAX_NUMBER < value < _MAX_NUMBER:
        return _INVALID  # infinity and NaN are no numbers here
    if kind == "number":
        return float(value)
    return int(value) if value == int(value) else _INVALID


def _kind(value: Any) -> str:
    from satchel.skill.yaml_reader import kind_of

    return kind_of(value)


def _suggestion(key: str, allowed: Mapping[str, PlanField]) -> str:
    near = similar_names(key.lower().replace("-", "_"), allowed)
    return (
        f"`{near[0]}`" if near else Message("one of {part}", part=[f"`{name}`" for name in allowed])
    )


def write_plan(plan: Plan) -> str:
    """Write a plan as YAML that reads back as the same plan; long texts become blocks."""
    import yaml

    class PlanDumper(yaml.SafeDumper):
        """Writes texts of several lines as blocks, and no aliases, which are not read."""

        def ignore_aliases(self, data: Any) -> bool:
            del data
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001, FBT002
            del indentless  # lists are indented below their key
            super().increase_indent(flow, indentless=False)

    def block(dumper: Any, text: str) -> Any:
        # Other line breaks, and white space at the start, are read back only from quotes.
        odd = text[:1].isspace() or not _BREAKS.isdisjoint(text)
        style = '"' if odd else "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    PlanDumper.add_representer(str, block)
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
    table = {**ordered, "steps": shaped}
    return yaml.dump(table, Dumper=PlanDumper, sort_keys=False, allow_unicode=True, width=100)
