"""Validates the arguments of a call against a tool's schema.

Supports what our schemas use: one object with properties of simple types and bounds, and no unknown
properties. All errors are reported at once, so that a model needs one more try and not three.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, cast

from satchel.errors import InvalidInput
from satchel.i18n import Message, join_messages
from satchel.tools.framing import encodable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_ECHO_DEPTH = 6
_MAX_ECHO_BITS = 4_000  # beyond this Python refuses to write a number out
_MAX_NUMBER_BITS = 1_024
_KINDS = {
    "string": Message("a text"),
    "integer": Message("a whole number"),
    "number": Message("a number"),
    "boolean": Message("true or false"),
    "array": Message("a list"),
}


def read_arguments(arguments: Any) -> dict[str, Any]:
    """The arguments as a table; some providers send JSON text.

    Raises:
        InvalidInput: they are neither a table nor a JSON object.
    """
    if arguments is None:
        return {}
    if isinstance(arguments, str | bytes):
        if not arguments.strip():
            return {}
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as exc:
            raise _no_object() from exc
    try:
        return {str(key): value for key, value in arguments.items()}
    except (AttributeError, TypeError) as exc:
        raise _no_object() from exc


def _no_object() -> InvalidInput:
    return InvalidInput(
        Message("The arguments are not valid JSON"), Message("Send one JSON object")
    )


def echo(value: Any, depth: int = 0) -> Any:
    """A JSON-safe copy: other values are replaced by text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < _MAX_ECHO_BITS else "(very large number)"
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= _MAX_ECHO_DEPTH:
        return "…"
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        return {encodable(str(key)): echo(item, depth + 1) for key, item in table.items()}
    if isinstance(value, list | tuple):
        rows = cast("list[Any]", value)
        return [echo(item, depth + 1) for item in rows]
    return f"({type(value).__name__})"


def check(
    arguments: dict[str, Any], schema: Mapping[str, Any], aliases: Mapping[str, str]
) -> dict[str, Any]:
    """Resolve aliases, validate, and fill in defaults.

    Raises:
        InvalidInput: with all errors in the message.
    """
    properties: dict[str, dict[str, Any]] = schema["properties"]
    values, errors = _resolved_values(arguments, properties, aliases)
    required: list[str] = schema.get("required", [])
    errors += [Message("`{name}` is missing", name=name) for name in required if name not in values]
    for name, value in values.items():
        error = _value_error(value, properties[name])
        if error:
            errors.append(Message("`{name}` {slip}", name=name, slip=error))
        elif isinstance(value, float) and properties[name]["type"] == "integer":
            values[name] = int(value)
    if errors:
        parameters = [f"`{name}`" for name in properties] or ["–"]
        raise InvalidInput(
            join_messages(errors), Message("The parameters are {names}", names=parameters)
        )
    for name, rule in properties.items():
        if name not in values and "default" in rule:
            values[name] = rule["default"]
    return values


def _resolved_values(
    arguments: dict[str, Any], properties: Mapping[str, Any], aliases: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """The values by the names of the schema, and what is wrong with the names."""
    errors: list[str] = []
    values: dict[str, Any] = {}
    for key, value in arguments.items():
        name = aliases.get(key, key)
        if name not in properties:
            errors.append(Message("there is no parameter `{name}`", name=encodable(key)[:60]))
        elif value is None:
            continue  # models write null for what they leave out
        elif name in values and values[name] != value:
            names = {"name": key, "other": name}
            errors.append(
                Message("`{name}` and `{other}` are the same parameter and differ", **names)
            )
        else:
            values[name] = encodable(value) if isinstance(value, str) else value
    return values, errors


def _value_error(value: Any, rule: Mapping[str, Any]) -> str:
    kind = str(rule["type"])
    wrong = Message(
        "must be {kind}, not {other_kind}", kind=_KINDS[kind], other_kind=_kind_of(value)
    )
    if kind == "boolean":
        return "" if isinstance(value, bool) else wrong
    if kind in ("integer", "number"):
        return _number_error(value, rule, wrong)
    if kind == "array":
        return (
            _list_error(cast("list[Any]", value), rule)
            if isinstance(value, list | tuple)
            else wrong
        )
    if not isinstance(value, str):
        return wrong
    if len(value.strip()) < rule.get("minLength", 0):
        return Message("is empty")
    if len(value) > rule.get("maxLength", len(value)):
        return Message(
            "has {count} characters; at most {most} are taken",
            count=f"{len(value):,}",
            most=f"{rule['maxLength']:,}",
        )
    return ""


def _list_error(value: Sequence[Any], rule: Mapping[str, Any]) -> str:
    if len(value) < rule.get("minItems", 0):
        return Message("is empty")
    if len(value) > rule.get("maxItems", len(value)):
        return Message(
            "has {count} entries; at most {most} are taken", count=len(value), most=rule["maxItems"]
        )
    return ""


def _number_error(value: Any, rule: Mapping[str, Any], wrong: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return wrong
    if isinstance(value, int):
        if value.bit_length() > _MAX_NUMBER_BITS:
            return Message("must be at most {most}", most="10^308")
    elif not math.isfinite(value) or (rule["type"] == "integer" and value % 1):
        return wrong
    if value < rule.get("minimum", value):
        return Message("must be at least {least}", least=rule["minimum"])
    if value > rule.get("maximum", value):
        return Message("must be at most {most}", most=rule["maximum"])
    return ""


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return Message("true or false")
    if isinstance(value, int | float):
        return Message("a number")
    if isinstance(value, str):
        return Message("a text")
    if isinstance(value, list | tuple):
        return Message("a list")
    return Message("an object") if isinstance(value, dict) else type(value).__name__
