"""Checks the arguments of a call against a tool's schema.

Only what our schemas use: one object, its properties of simple types, bounds, and nothing unknown.
Every slip is named at once, so that a model needs one more try and not three.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from satchel.errors import InvalidInput
from satchel.tools.frame import encodable

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEPTH = 6
_BITS = 4_000  # beyond this Python refuses to write a number out
_LARGEST = 1_024
"""Bits of a number that a tool is handed."""
_KINDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def read_arguments(arguments: Any) -> dict[str, Any]:
    """The arguments as a table; some providers send them as JSON text.

    Raises:
        InvalidInput: they are neither.
    """
    if arguments is None:
        return {}
    if isinstance(arguments, str | bytes):
        import json

        if not arguments.strip():
            return {}
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as exc:
            raise InvalidInput("The arguments are not valid JSON", "Send one JSON object") from exc
    try:
        return {str(key): value for key, value in arguments.items()}
    except (AttributeError, TypeError) as exc:
        raise InvalidInput(
            f"The arguments are {_kind_of(arguments)}, not an object", "Send one JSON object"
        ) from exc


def echo(value: Any, depth: int = 0) -> Any:
    """A copy that any reply can carry: what JSON cannot say is written as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < _BITS else "(very large number)"
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= _DEPTH:
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
    """The arguments under their proper names, with nothing wrong in them and defaults filled in.

    Raises:
        InvalidInput: something is wrong; the message names everything that is.
    """
    slips: list[str] = []
    properties: dict[str, dict[str, Any]] = schema["properties"]
    found: dict[str, Any] = {}
    for given, value in arguments.items():
        name = aliases.get(given, given)
        if name not in properties:
            slips.append(f"there is no parameter `{encodable(given)[:60]}`")
        elif value is None:
            continue  # models write null for what they leave out
        elif name in found and found[name] != value:
            slips.append(f"`{given}` and `{name}` are the same parameter and differ")
        else:
            found[name] = encodable(value) if isinstance(value, str) else value
    required: list[str] = schema.get("required", [])
    slips += [f"`{name}` is missing" for name in required if name not in found]
    for name, value in found.items():
        slip = _slip(value, properties[name])
        if slip:
            slips.append(f"`{name}` {slip}")
        elif isinstance(value, float) and properties[name]["type"] == "integer":
            found[name] = int(value)
    if slips:
        known = ", ".join(f"`{name}`" for name in properties)
        first = slips[0][0].upper() + slips[0][1:]
        step = f"The parameters are {known}" if known else "It takes no parameters"
        raise InvalidInput("; ".join((first, *slips[1:])), step)
    for name, rule in properties.items():
        if name not in found and "default" in rule:
            found[name] = rule["default"]
    return found


def _slip(value: Any, rule: Mapping[str, Any]) -> str:
    """What is wrong with one value, or nothing."""
    kind = str(rule["type"])
    wrong = f"must be {_KINDS[kind]}, not {_kind_of(value)}"
    if kind == "boolean":
        return "" if isinstance(value, bool) else wrong
    if kind in ("integer", "number"):
        return _number_slip(value, rule, wrong)
    if not isinstance(value, str):
        return wrong
    if len(value.strip()) < rule.get("minLength", 0):
        return "is empty"
    if len(value) > rule.get("maxLength", len(value)):
        return f"has {len(value):,} characters; at most {rule['maxLength']:,} are taken"
    return ""


def _number_slip(value: Any, rule: Mapping[str, Any], wrong: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return wrong
    if isinstance(value, int):
        if value.bit_length() > _LARGEST:
            return "is too large a number"
    elif not math.isfinite(value) or (rule["type"] == "integer" and value % 1):
        return wrong
    if value < rule.get("minimum", value):
        return f"must be at least {rule['minimum']}"
    return f"must be at most {rule['maximum']}" if value > rule.get("maximum", value) else ""


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, dict) else type(value).__name__
