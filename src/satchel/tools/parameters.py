"""Checks the arguments of a call against a tool's schema.

Only what our schemas use: one object, its properties of simple types, bounds, and nothing unknown.
Every slip is named at once, so that a model needs one more try and not three.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from satchel._language import Message, several
from satchel.errors import InvalidInput
from satchel.tools.frame import encodable

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEPTH = 6
_BITS = 4_000  # beyond this Python refuses to write a number out
_LARGEST = 1_024
"""Bits of a number that a tool is handed."""
_KINDS = {
    "string": Message("a text"),
    "integer": Message("a whole number"),
    "number": Message("a number"),
    "boolean": Message("true or false"),
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
            raise InvalidInput(
                Message("The arguments are not valid JSON"), Message("Send one JSON object")
            ) from exc
    try:
        return {str(key): value for key, value in arguments.items()}
    except (AttributeError, TypeError) as exc:
        raise InvalidInput(
            Message("The arguments are {kind}, not an object", kind=_kind_of(arguments)),
            Message("Send one JSON object"),
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
            shown = encodable(given)[:60]
            slips.append(
                Message("there is no parameter `{name}`", name=shown)
                if slips
                else Message("There is no parameter `{name}`", name=shown)
            )
        elif value is None:
            continue  # models write null for what they leave out
        elif name in found and found[name] != value:
            names = {"name": given, "other": name}
            slips.append(
                Message("`{name}` and `{other}` are the same parameter and differ", **names)
            )
        else:
            found[name] = encodable(value) if isinstance(value, str) else value
    required: list[str] = schema.get("required", [])
    slips += [Message("`{name}` is missing", name=name) for name in required if name not in found]
    for name, value in found.items():
        slip = _slip(value, properties[name])
        if slip:
            slips.append(Message("`{name}` {slip}", name=name, slip=slip))
        elif isinstance(value, float) and properties[name]["type"] == "integer":
            found[name] = int(value)
    if slips:
        step = Message("It takes no parameters")
        if properties:
            step = Message("The parameters are {names}", names=[f"`{one}`" for one in properties])
        raise InvalidInput(several(slips), step)
    for name, rule in properties.items():
        if name not in found and "default" in rule:
            found[name] = rule["default"]
    return found


def _slip(value: Any, rule: Mapping[str, Any]) -> str:
    """What is wrong with one value, or nothing."""
    kind = str(rule["type"])
    wrong = Message(
        "must be {kind}, not {other_kind}", kind=_KINDS[kind], other_kind=_kind_of(value)
    )
    if kind == "boolean":
        return "" if isinstance(value, bool) else wrong
    if kind in ("integer", "number"):
        return _number_slip(value, rule, wrong)
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


def _number_slip(value: Any, rule: Mapping[str, Any], wrong: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return wrong
    if isinstance(value, int):
        if value.bit_length() > _LARGEST:
            return Message("is too large a number")
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
