"""What is a person asked, and what did they say? Fields by a step's JSON schema, if it is simple.

A schema of texts, numbers, choices and yes or no is a form. Any other wants JSON, as in a terminal.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import say
from satchel.errors import InvalidInput
from satchel.goals.artefacts import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.goals.model import Step, StepResult

VALUE = "value"
"""What the one field is called, and how the names of several begin."""
_MOST = 24
"""Fields of a form; a larger schema wants JSON."""


class Field(NamedTuple):
    """One thing to fill in."""

    name: str
    label: str
    kind: str
    """`text`, `number`, `choice`, `yes` or `json`."""
    help: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    whole: bool = False
    """For a number: without a fraction."""


class Ask(NamedTuple):
    """A step that asks."""

    step: str
    title: str
    text: str
    """What the person is asked."""
    fields: tuple[Field, ...]


def ask_of(step: Step, result: StepResult) -> Ask:
    """What the person is asked, and what they may fill in."""
    text = str(shown(result.output) or step.prompt)
    return Ask(step.id, " ".join((step.title or step.id).split()), text, fields_of(step.output))


def fields_of(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """The fields that a schema is filled in by."""
    if not schema:
        label = say("Your answer")
        return (Field(VALUE, label, "text", say("Left empty, it is a plain yes")),)
    single = _field(VALUE, say("Your answer"), schema, required=True)
    if single is not None:
        return (single,)
    properties = _table(schema.get("properties"))
    if schema.get("type") == "object" and 0 < len(properties) <= _MOST:
        needed = schema.get("required") or ()
        found = [
            _field(f"{VALUE}.{name}", str(_table(one).get("title") or name), _table(one),
                   required=name in needed)
            for name, one in properties.items()
        ]  # fmt: skip
        if all(one is not None for one in found):
            return tuple(cast("list[Field]", found))
    words = say("As JSON, in this form: {schema}", schema=json.dumps(schema, ensure_ascii=False))
    return (Field(VALUE, say("Your answer"), "json", words, required=True),)


def _table(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _field(name: str, label: str, schema: Mapping[str, Any], *, required: bool) -> Field | None:
    """A field for one simple value; None when it is none."""
    words = str(schema.get("description") or "")
    choices = schema.get("enum")
    if isinstance(choices, list):
        several = cast("list[Any]", choices)
        if several and all(isinstance(one, str) for one in several):
            return Field(name, label, "choice", words, tuple(several), required)
        return None
    kind = schema.get("type")
    if kind == "string":
        return Field(name, label, "text", words, required=required)
    if kind in {"integer", "number"}:
        return Field(name, label, "number", words, required=required, whole=kind == "integer")
    if kind == "boolean":
        return Field(name, label, "yes", words, required=required)
    return None


def answer_of(schema: Mapping[str, Any], given: Mapping[str, str]) -> Any:
    """What somebody filled in, in the form that the step wants; None for a plain yes.

    Raises:
        InvalidInput: a number or JSON is none.
    """
    fields = fields_of(schema)
    found: dict[str, Any] = {}
    for field in fields:
        text = given.get(field.name, "").replace("\r\n", "\n")
        if field.kind == "yes":
            found[field.name] = text == "true"
        elif text.strip() or (field.required and field.kind in {"text", "choice"}):
            found[field.name] = _value(field, text, schema)
    if len(fields) == 1 and fields[0].name == VALUE:
        return found.get(VALUE)
    return {name.removeprefix(f"{VALUE}."): value for name, value in found.items()}


def _value(field: Field, text: str, schema: Mapping[str, Any]) -> Any:
    if field.kind in {"text", "choice"}:
        return text
    try:
        if field.kind == "number":
            return int(text) if field.whole else _number(text)
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        if field.kind == "number":
            raise InvalidInput(
                say("`{text}` is no number", text=text[:60]), say("Write digits alone")
            ) from exc
        raise InvalidInput(
            say("The answer is not JSON: {reason}", reason=exc),
            say("The step wants {schema}", schema=json.dumps(schema, ensure_ascii=False)),
        ) from exc


def _number(text: str) -> float | int:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return int(found) if found.is_integer() and "e" not in text.lower() else found
