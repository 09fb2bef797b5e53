"""Forms of goals: answers to waiting steps, and the inputs of a plan.

A schema of texts, numbers, choices and booleans becomes a form. Any other needs JSON.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.errors import InvalidInput
from satchel.goals.artifacts import preview_of
from satchel.goals.templates import references_of
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.goals.model import Plan, Step, StepResult

VALUE = "value"
"""Name of a single field, and prefix of the names of several."""
TOOL_TAG = re.compile(r'</?[a-z-]+ (?:[^<>\n]* )?nonce="[0-9a-f]+">\n?')
"""A tag around a tool's output; only models need it."""
_MAX_FORM_FIELDS = 24
"""A schema with more needs JSON."""


class AnswerField(NamedTuple):
    """One field of an answer, or of the inputs of a plan."""

    name: str
    label: str
    kind: str
    """`text`, `line`, `number`, `choice`, `yes` or `json`."""
    help: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    is_integer: bool = False
    """For a number: integers only."""
    value: str = ""
    """The initial value."""


class StepQuestion(NamedTuple):
    """A question of a waiting step."""

    step_id: str
    title: str
    text: str
    fields: tuple[AnswerField, ...]


def title_of(step: Step) -> str:
    """Return the display name of a step in one line."""
    return " ".join((step.title or step.id).split())


def question_of(step: Step, result: StepResult) -> StepQuestion:
    """Return the question of a waiting step, and the fields of its answer."""
    text = str(preview_of(result.output) or step.prompt)
    return StepQuestion(step.id, title_of(step), TOOL_TAG.sub("", text), fields_of(step.output))


def fields_of(schema: Mapping[str, Any]) -> tuple[AnswerField, ...]:
    """Return the form fields for an answer schema."""
    if not schema:
        label = say("Your answer")
        return (AnswerField(VALUE, label, "text", say("Optional; later steps get it")),)
    single = _simple_field(VALUE, say("Your answer"), schema, required=True)
    if single is not None:
        return (single,)
    properties = _as_object(schema.get("properties"))
    if schema.get("type") == "object" and 0 < len(properties) <= _MAX_FORM_FIELDS:
        required_names = schema.get("required") or ()
        fields = [
            _simple_field(
                f"{VALUE}.{name}",
                str(_as_object(property_schema).get("title") or name),
                _as_object(property_schema),
                required=name in required_names,
            )
            for name, property_schema in properties.items()
        ]
        if all(field is not None for field in fields):
            return tuple(cast("list[AnswerField]", fields))
    hint = f"JSON: {json.dumps(schema, ensure_ascii=False)}"
    return (AnswerField(VALUE, say("Your answer"), "json", hint, required=True),)


def _as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _simple_field(
    name: str, label: str, schema: Mapping[str, Any], *, required: bool
) -> AnswerField | None:
    """Return the field for one simple value; None for other schemas."""
    description = str(schema.get("description") or "")
    choices = schema.get("enum")
    if isinstance(choices, list):
        values = cast("list[Any]", choices)
        if values and all(isinstance(value, str) for value in values):
            return AnswerField(name, label, "choice", description, tuple(values), required)
        return None
    kind = schema.get("type")
    if kind == "string":
        return AnswerField(name, label, "text", description, required=required)
    if kind in {"integer", "number"}:
        return AnswerField(
            name, label, "number", description, required=required, is_integer=kind == "integer"
        )
    if kind == "boolean":
        return AnswerField(name, label, "yes", description, required=required)
    return None


def read_answer(schema: Mapping[str, Any], form: Mapping[str, str]) -> Any:
    """Return the answer in the form of the step's schema; None for a plain approval.

    Raises:
        InvalidInput: a number or JSON is invalid.
    """
    fields = fields_of(schema)
    values: dict[str, Any] = {}
    for field in fields:
        text = form.get(field.name, "").replace("\r\n", "\n")
        if field.kind == "yes":
            values[field.name] = text == "true"
        elif text.strip() or (field.required and field.kind in {"text", "choice"}):
            values[field.name] = _parse_value(field, text)
    if len(fields) == 1 and fields[0].name == VALUE:
        return values.get(VALUE)
    return {name.removeprefix(f"{VALUE}."): value for name, value in values.items()}


def _parse_value(field: AnswerField, text: str) -> Any:
    if field.kind in {"text", "line", "choice"}:
        return text
    try:
        if field.kind == "number":
            return int(text) if field.is_integer else _parse_number(text)
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        expected = say("a number") if field.kind == "number" else "JSON"
        raise InvalidInput(
            say("`{name}` is not {what}: {text}", name=field.label, what=expected, text=text[:60]),
            field.help,
        ) from exc


def _parse_number(text: str) -> float | int:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return int(number) if number.is_integer() and "e" not in text.lower() else number


def input_fields(plan: Plan) -> tuple[AnswerField, ...]:
    """Return the form fields for the inputs of a plan; those without a value are required."""
    names = dict.fromkeys(plan.inputs)
    for step in plan.steps:
        names |= dict.fromkeys(ref.name for ref in references_of(step) if ref.kind == "inputs")
    return tuple(_input_field(name, plan.inputs.get(name)) for name in names)


def _input_field(name: str, value: Any) -> AnswerField:
    if value is None:
        return AnswerField(name, name, "line", required=True)
    if isinstance(value, str):
        return AnswerField(name, name, "text" if "\n" in value else "line", value=value)
    if isinstance(value, bool):
        return AnswerField(name, name, "yes", value="true" if value else "")
    if isinstance(value, int | float):
        is_integer = isinstance(value, int)
        return AnswerField(
            name, name, "number", required=True, is_integer=is_integer, value=str(value)
        )
    return AnswerField(
        name, name, "json", required=True, value=json.dumps(value, ensure_ascii=False, indent=2)
    )


def with_inputs(plan: Plan, form: Mapping[str, str]) -> Plan:
    """Return a plan with the inputs of a form.

    Raises:
        InvalidInput: an input is missing, or has the wrong type.
    """
    inputs: dict[str, Any] = {}
    for field in input_fields(plan):
        text = form.get(field.name, "").replace("\r\n", "\n")
        if field.required and not text.strip():
            raise InvalidInput(say("`{name}` is missing", name=field.name))
        inputs[field.name] = text == "true" if field.kind == "yes" else _parse_value(field, text)
    return plan._replace(inputs=inputs)
