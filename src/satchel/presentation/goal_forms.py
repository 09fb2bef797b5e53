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
    whole: bool = False
    """For a number: integers only."""
    value: str = ""
    """The value at first."""


class StepQuestion(NamedTuple):
    """A question of a waiting step."""

    step: str
    title: str
    text: str
    fields: tuple[AnswerField, ...]


TOOL_TAG = re.compile(r'</?[a-z-]+ (?:[^<>\n]* )?nonce="[0-9a-f]+">\n?')
"""A tag around a tool's output; only models need it."""


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
    single = _field(VALUE, say("Your answer"), schema, required=True)
    if single is not None:
        return (single,)
    properties = _table(schema.get("properties"))
    if schema.get("type") == "object" and 0 < len(properties) <= _MAX_FORM_FIELDS:
        needed = schema.get("required") or ()
        found = [
            _field(f"{VALUE}.{name}", str(_table(one).get("title") or name), _table(one),
                   required=name in needed)
            for name, one in properties.items()
        ]  # fmt: skip
        if all(one is not None for one in found):
            return tuple(cast("list[AnswerField]", found))
    words = f"JSON: {json.dumps(schema, ensure_ascii=False)}"
    return (AnswerField(VALUE, say("Your answer"), "json", words, required=True),)


def _table(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _field(
    name: str, label: str, schema: Mapping[str, Any], *, required: bool
) -> AnswerField | None:
    """A field for one simple value; None for other schemas."""
    words = str(schema.get("description") or "")
    choices = schema.get("enum")
    if isinstance(choices, list):
        several = cast("list[Any]", choices)
        if several and all(isinstance(one, str) for one in several):
            return AnswerField(name, label, "choice", words, tuple(several), required)
        return None
    kind = schema.get("type")
    if kind == "string":
        return AnswerField(name, label, "text", words, required=required)
    if kind in {"integer", "number"}:
        return AnswerField(name, label, "number", words, required=required, whole=kind == "integer")
    if kind == "boolean":
        return AnswerField(name, label, "yes", words, required=required)
    return None


def answer_of(schema: Mapping[str, Any], given: Mapping[str, str]) -> Any:
    """Return the answer in the form of the step's schema; None for a plain approval.

    Raises:
        InvalidInput: a number or JSON is invalid.
    """
    fields = fields_of(schema)
    found: dict[str, Any] = {}
    for field in fields:
        text = given.get(field.name, "").replace("\r\n", "\n")
        if field.kind == "yes":
            found[field.name] = text == "true"
        elif text.strip() or (field.required and field.kind in {"text", "choice"}):
            found[field.name] = _value(field, text)
    if len(fields) == 1 and fields[0].name == VALUE:
        return found.get(VALUE)
    return {name.removeprefix(f"{VALUE}."): value for name, value in found.items()}


def _value(field: AnswerField, text: str) -> Any:
    if field.kind in {"text", "line", "choice"}:
        return text
    try:
        if field.kind == "number":
            return int(text) if field.whole else _number(text)
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        wanted = say("a number") if field.kind == "number" else "JSON"
        raise InvalidInput(
            say("`{name}` is not {what}: {text}", name=field.label, what=wanted, text=text[:60]),
            field.help,
        ) from exc


def _number(text: str) -> float | int:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return int(found) if found.is_integer() and "e" not in text.lower() else found


def input_fields(plan: Plan) -> tuple[AnswerField, ...]:
    """Return the form fields for the inputs of a plan; those without a value are required."""
    used = (ref.name for step in plan.steps for ref in references_of(step) if ref.kind == "inputs")
    return tuple(
        _input_field(name, plan.inputs.get(name)) for name in dict.fromkeys((*plan.inputs, *used))
    )


def _input_field(name: str, value: Any) -> AnswerField:
    if value is None:
        return AnswerField(name, name, "line", required=True)
    if isinstance(value, str):
        return AnswerField(name, name, "text" if "\n" in value else "line", value=value)
    if isinstance(value, bool):
        return AnswerField(name, name, "yes", value="true" if value else "")
    if isinstance(value, int | float):
        whole = isinstance(value, int)
        return AnswerField(name, name, "number", required=True, whole=whole, value=str(value))
    return AnswerField(
        name, name, "json", required=True, value=json.dumps(value, ensure_ascii=False, indent=2)
    )


def with_inputs(plan: Plan, given: Mapping[str, str]) -> Plan:
    """Return a plan with the inputs of a form.

    Raises:
        InvalidInput: an input is missing, or has the wrong type.
    """
    found: dict[str, Any] = {}
    for field in input_fields(plan):
        text = given.get(field.name, "").replace("\r\n", "\n")
        if field.required and not text.strip():
            raise InvalidInput(say("`{name}` is missing", name=field.name))
        found[field.name] = text == "true" if field.kind == "yes" else _value(field, text)
    return plan._replace(inputs=found)
