"""Validates step outputs against the part of JSON Schema that plans use.

`unchecked` names the keywords that are not validated, so that a plan's author is warned. This
module uses no file, clock or environment, because it runs inside workflows too.
"""

from __future__ import annotations

import json
import math
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
_ANNOTATIONS = frozenset((
    "title", "description", "examples", "default", "$schema", "$id", "$comment", "format",
    "deprecated", "readOnly", "writeOnly",
))  # fmt: skip
_CHECKED = frozenset((
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
))  # fmt: skip
_NUMBERS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_MAX_VIOLATIONS = 10
_MAX_DEPTH = 64


def violations(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """The schema violations of a value; each begins with its path, such as `rows.0.price`."""
    return list(islice(_violations(value, schema, "", 0), _MAX_VIOLATIONS))


def unchecked(schema: Mapping[str, Any]) -> list[str]:
    """Keywords of a schema that `violations` does not check."""
    keywords: dict[str, None] = {}
    for part in _subschemas(schema):
        for key in part:
            if key not in _CHECKED and key not in _ANNOTATIONS:
                keywords[str(key)] = None
    return list(keywords)


def fields_of(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The fields of an object schema; None when it names none."""
    fields = schema.get("properties")
    return cast("Mapping[str, Any]", fields) if isinstance(fields, dict) else None


def _subschemas(schema: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    rules = cast("dict[str, Any]", schema)
    yield rules
    for key in ("items", "additionalProperties"):
        yield from _subschemas(rules.get(key), depth + 1)
    for part in rules.get("anyOf") or ():
        yield from _subschemas(part, depth + 1)
    for part in (fields_of(rules) or {}).values():
        yield from _subschemas(part, depth + 1)


def _is_type(value: Any, kind: str) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    shapes: dict[str, Any] = {"string": str, "object": dict, "array": list}
    return kind in shapes and isinstance(value, shapes[kind])


def _violations(value: Any, schema: Any, path: str, depth: int) -> Iterator[str]:
    subject = f"`{path}`" if path else "The output"
    if schema is False:
        yield f"{subject} is not allowed"
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    rules = cast("dict[str, Any]", schema)
    kinds = rules.get("type")
    if kinds is not None:
        kinds = [kinds] if isinstance(kinds, str) else cast("list[str]", kinds)
        if not any(_is_type(value, kind) for kind in kinds):
            yield f"{subject} must be {' or '.join(kinds)}"
            return
    yield from _choice_violations(value, rules, subject)
    forms = rules.get("anyOf")
    if forms and all(any(_violations(value, form, path, depth + 1)) for form in forms):
        yield f"{subject} must fit at least one of {len(forms)} forms"
    yield from _range_violations(value, rules, subject)
    if isinstance(value, dict):
        yield from _object_violations(cast("dict[str, Any]", value), rules, path, subject, depth)
    elif isinstance(value, list):
        for index, row in enumerate(cast("list[Any]", value)):
            yield from _violations(
                row, rules.get("items"), f"{path}.{index}".lstrip("."), depth + 1
            )


def _choice_violations(value: Any, rules: Mapping[str, Any], subject: str) -> Iterator[str]:
    if "enum" in rules and not any(is_equal(value, choice) for choice in rules["enum"]):
        yield f"{subject} must be one of {', '.join(map(_shown, rules['enum']))}"
    if "const" in rules and not is_equal(value, rules["const"]):
        yield f"{subject} must be {_shown(rules['const'])}"


def is_equal(value: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: `true` is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


_RANGES: tuple[tuple[Any, str, str, str, str], ...] = (
    (list, "minItems", "maxItems", "have", " items"),
    (str, "minLength", "maxLength", "have", " characters"),
    (int | float, "minimum", "maximum", "be", ""),
)


def _range_violations(value: Any, rules: Mapping[str, Any], subject: str) -> Iterator[str]:
    for kind, low, high, verb, unit in _RANGES:
        if isinstance(value, kind) and not isinstance(value, bool):
            size = value if kind == int | float else len(value)
            if low in rules and size < rules[low]:
                yield f"{subject} must {verb} at least {rules[low]}{unit}"
            if high in rules and size > rules[high]:
                yield f"{subject} must {verb} at most {rules[high]}{unit}"


def _object_violations(
    value: dict[str, Any], rules: Mapping[str, Any], path: str, subject: str, depth: int
) -> Iterator[str]:
    fields = fields_of(rules) or {}
    for name in rules.get("required") or ():
        if name not in value:
            yield f"{subject} has no `{name}`"
    other_rule = rules.get("additionalProperties", True)
    for name, item in value.items():
        below = f"{path}.{name}".lstrip(".")
        if name in fields:
            yield from _violations(item, fields[name], below, depth + 1)
        elif other_rule is False:
            yield f"`{below}` is not a field of it"
        else:
            yield from _violations(item, other_rule, below, depth + 1)


def _shown(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def fault(schema: Any, depth: int = 0) -> str:
    """Why a schema cannot be used; empty when it can."""
    if isinstance(schema, bool) and depth:
        return ""
    if not isinstance(schema, dict):
        return "it is not valid"
    if depth > _MAX_DEPTH:
        return "it is nested too deeply"
    rules = cast("dict[str, Any]", schema)
    for key, value in rules.items():
        if not _is_usable(key, value):
            return Message("{name} is not valid", name=f"`{key}`")
    inner = [rules[key] for key in ("items", "additionalProperties") if key in rules]
    inner += [*rules.get("properties", {}).values(), *rules.get("anyOf", [])]
    return next((problem for part in inner if (problem := fault(part, depth + 1))), "")


def _is_usable(key: str, value: Any) -> bool:
    """Whether the value of a keyword has the right form."""
    if key == "type":
        kinds = cast("list[Any]", value if isinstance(value, list) else [value])
        return bool(kinds) and all(kind in TYPES for kind in kinds)
    if key in _NUMBERS:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and (isinstance(value, int) or math.isfinite(value))
    if key == "properties":
        return isinstance(value, dict)
    if key == "required":
        names = cast("list[Any]", value)
        return isinstance(value, list) and all(isinstance(name, str) for name in names)
    return key not in {"anyOf", "enum"} or isinstance(value, list)
