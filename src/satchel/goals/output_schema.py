"""Validates step outputs against the part of JSON Schema that plans use.

`unchecked` names the keywords that are not validated, so that a plan's author is warned. This
module uses no file, clock or environment, because it runs inside workflows too.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from satchel.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# --- patterns -----------------------------------------------------------------------------
# The author of a plan is its user, so this guards against accidents, not attacks: `re` holds the
# interpreter lock while it backtracks, and one bad pattern would stop a worker. A pattern is
# refused when it repeats a group that itself repeats or has alternatives, refers back or looks
# around. Possessive repeats (`++`, `*+`) do not backtrack and are always allowed. For the other
# patterns the work grows as a power of the text's length; longer texts are not tried.

MAX_TEXT_CHARS = 100_000
MAX_PATTERN_CHARS = 1_000
_MAX_POSITIONS = 50_000_000
_TOKEN = re.compile(
    r"\\(?P<back>[1-9])|\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]"  # an escape, or a character class
    r"|(?P<around>\(\?(?:<?[=!]|P=|\())|\(\?[aiLmsux]+\)"  # looking around; flags
    r"|(?P<open>\((?:\?(?:P<\w+>|[aiLmsux-]*:|>))?)"
    r"|(?P<close>\))|(?P<either>\|)"
    r"|(?P<times>[*+?]|\{\d*,?\d*\})(?P<keep>[?+]?)|.",
    re.DOTALL,
)


def pattern_fault(pattern: Any) -> str:
    """Return why a pattern is refused; empty when it is accepted."""
    if not isinstance(pattern, str):
        return "it is not valid"
    return _analysed(pattern)[0]


def pattern_fits(pattern: str, text: str) -> str:
    """Return what is wrong with a text; empty when the pattern is found in it."""
    refused, repeats = _analysed(pattern)
    if refused:
        return f"has a pattern that is not tried: {refused}"
    length = len(text)
    if length > MAX_TEXT_CHARS or (length + 1) ** repeats > _MAX_POSITIONS:
        return f"is too long, with {length} characters, for `{pattern}`"
    return "" if re.search(pattern, text) else f"must match `{pattern}`"


@lru_cache(maxsize=500)
def _analysed(pattern: str) -> tuple[str, int]:
    """Return why a pattern is refused, and the power of a text's length that bounds its work."""
    if len(pattern) > MAX_PATTERN_CHARS:
        return Message("it has more than {count} characters", count=MAX_PATTERN_CHARS), 0
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as exc:
        return Message("it cannot be read: {reason}", reason=exc), 0
    repeats = 0 if pattern.startswith("^") else 1
    open_groups = [""]
    closed = ""  # what a repeat of the group that has just been closed would multiply
    for token in _TOKEN.finditer(pattern):
        if token["back"] or token["around"]:
            return "it refers back or looks around", 0
        if token["times"] and not _is_fixed(token["times"]) and token["keep"] != "+":
            if closed and token["times"] != "?":
                return f"it repeats {closed}; make the inner repeat possessive, as in `++`", 0
            open_groups[-1] = "what repeats"
            repeats += 1
        if token["either"]:
            open_groups[-1] = open_groups[-1] or "alternatives"
        closed = ""
        if token["open"]:
            open_groups.append("")
        elif token["close"]:
            closed = open_groups.pop()
            if closed == "what repeats":
                open_groups[-1] = closed
    return "", repeats


def _is_fixed(times: str) -> bool:
    """Whether a repeat has one length, as `{4}`, or is a literal brace, as `{}`."""
    return times[0] == "{" and ("," not in times or not any(map(str.isdigit, times)))


TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")
_ANNOTATIONS = frozenset((
    "title", "description", "examples", "default", "$schema", "$id", "$comment", "format",
    "deprecated", "readOnly", "writeOnly",
))  # fmt: skip
_CHECKED = frozenset((
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf",
    "oneOf", "allOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength",
    "maxLength", "pattern", "minItems", "maxItems",
))  # fmt: skip
_NUMBERS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
    "minItems", "maxItems",
)  # fmt: skip
_MAX_VIOLATIONS = 10
_MAX_DEPTH = 64


def violations(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """The schema violations of a value; each begins with its path, such as `rows.0.price`."""
    return list(islice(_violations(value, schema, "", 0), _MAX_VIOLATIONS))


def unchecked(schema: Mapping[str, Any]) -> list[str]:
    """Keywords of a schema that `violations` does not check."""
    found: dict[str, None] = {}
    for part in _subschemas(schema):
        for key in part:
            if key not in _CHECKED and key not in _ANNOTATIONS:
                found[str(key)] = None
    return list(found)


def fields_of(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The fields of an object schema; None when it names none."""
    fields = schema.get("properties")
    return cast("Mapping[str, Any]", fields) if isinstance(fields, dict) else None


def _subschemas(schema: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    here = cast("dict[str, Any]", schema)
    yield here
    for key in ("items", "additionalProperties"):
        yield from _subschemas(here.get(key), depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        for part in here.get(key) or ():
            yield from _subschemas(part, depth + 1)
    for part in (fields_of(here) or {}).values():
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


def _violations(value: Any, schema: Any, where: str, depth: int) -> Iterator[str]:
    at = f"`{where}`" if where else "The output"
    if schema is False:
        yield f"{at} is not allowed"
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    rules = cast("dict[str, Any]", schema)
    kinds = rules.get("type")
    if kinds is not None:
        kinds = [kinds] if isinstance(kinds, str) else cast("list[str]", kinds)
        if not any(_is_type(value, kind) for kind in kinds):
            yield f"{at} must be {' or '.join(kinds)}"
            return
    if "enum" in rules and not any(_same(value, one) for one in rules["enum"]):
        yield f"{at} must be one of {', '.join(map(_shown, rules['enum']))}"
    if "const" in rules and not _same(value, rules["const"]):
        yield f"{at} must be {_shown(rules['const'])}"
    yield from _combination_violations(value, rules, where, at, depth)
    if isinstance(value, dict):
        yield from _object_violations(cast("dict[str, Any]", value), rules, where, at, depth)
    elif isinstance(value, list):
        rows = cast("list[Any]", value)
        yield from _range_violations(
            len(rows), rules, ("minItems", "maxItems"), f"{at} must have", "items"
        )
        for index, row in enumerate(rows):
            yield from _violations(
                row, rules.get("items"), f"{where}.{index}".lstrip("."), depth + 1
            )
    else:
        yield from _scalar_violations(value, rules, at)


def _scalar_violations(value: Any, rules: Mapping[str, Any], at: str) -> Iterator[str]:
    if isinstance(value, str):
        yield from _range_violations(
            len(value), rules, ("minLength", "maxLength"), f"{at} must have", "characters"
        )
        problem = pattern_fits(rules["pattern"], value) if "pattern" in rules else ""
        if problem:
            yield f"{at} {problem}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _range_violations(value, rules, ("minimum", "maximum"), f"{at} must be", "")
        if "exclusiveMinimum" in rules and value <= rules["exclusiveMinimum"]:
            yield f"{at} must be more than {rules['exclusiveMinimum']}"
        if "exclusiveMaximum" in rules and value >= rules["exclusiveMaximum"]:
            yield f"{at} must be less than {rules['exclusiveMaximum']}"


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _range_violations(
    size: float, rules: Mapping[str, Any], keys: tuple[str, str], must: str, unit: str
) -> Iterator[str]:
    least, most = rules.get(keys[0]), rules.get(keys[1])
    if least is not None and size < least:
        yield f"{must} at least {least} {unit}".rstrip()
    if most is not None and size > most:
        yield f"{must} at most {most} {unit}".rstrip()


def _object_violations(
    value: dict[str, Any],
    rules: Mapping[str, Any],
    where: str,
    at: str,
    depth: int,
) -> Iterator[str]:
    fields = fields_of(rules) or {}
    for name in rules.get("required") or ():
        if name not in value:
            yield f"{at} has no `{name}`"
    rest = rules.get("additionalProperties", True)
    for name, item in value.items():
        below = f"{where}.{name}".lstrip(".")
        if name in fields:
            yield from _violations(item, fields[name], below, depth + 1)
        elif rest is False:
            yield f"`{below}` is not a field of it"
        else:
            yield from _violations(item, rest, below, depth + 1)


def _combination_violations(
    value: Any, rules: Mapping[str, Any], where: str, at: str, depth: int
) -> Iterator[str]:
    for part in rules.get("allOf") or ():
        yield from _violations(value, part, where, depth + 1)
    for key in ("anyOf", "oneOf"):
        parts = rules.get(key)
        if parts:
            fits = sum(
                next(_violations(value, part, where, depth + 1), None) is None for part in parts
            )
            if not fits or (key == "oneOf" and fits > 1):
                few = "one" if key == "oneOf" else "at least one"
                yield f"{at} must fit {few} of {len(parts)} forms"


def _shown(value: Any) -> str:
    import json

    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _type_fault(rules: Mapping[str, Any]) -> str:
    if "type" not in rules:
        return ""
    kinds = rules["type"]
    if not isinstance(kinds, str | list) or not kinds:
        return Message("{name} is not valid", name="`type`")
    for kind in [kinds] if isinstance(kinds, str) else cast("list[Any]", kinds):
        if kind not in TYPES:
            return Message("{name} is not valid", name=f"`{kind}`")
    return ""


def _number_fault(rules: Mapping[str, Any]) -> str:
    for key in _NUMBERS:
        value = rules.get(key, 0)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or (isinstance(value, float) and not math.isfinite(value))
        ):
            return Message("{name} is not valid", name=f"`{key}`")
    return ""


def fault(schema: Any, depth: int = 0) -> str:
    """Why a schema cannot be used; empty when it can."""
    if isinstance(schema, bool) and depth:
        return ""
    if not isinstance(schema, dict):
        return "it is not valid"
    if depth > _MAX_DEPTH:
        return "it is nested too deeply"
    rules = cast("dict[str, Any]", schema)
    problem = _type_fault(rules) or _number_fault(rules)
    if not problem and "pattern" in rules:
        reason = pattern_fault(rules["pattern"])
        if reason:
            why = reason if isinstance(reason, Message) else Message(reason)
            problem = Message("its `pattern` is refused: {why}", why=why)
    if problem:
        return problem
    inner: list[Any] = [rules[key] for key in ("items", "additionalProperties") if key in rules]
    fields = rules.get("properties", {})
    if not isinstance(fields, dict):
        return Message("{name} is not valid", name="`properties`")
    inner += cast("dict[str, Any]", fields).values()
    for key in ("anyOf", "oneOf", "allOf", "enum", "required"):
        rows = rules.get(key, [])
        if not isinstance(rows, list):
            return Message("{name} is not valid", name=f"`{key}`")
        if key == "required" and not all(isinstance(row, str) for row in cast("Any", rows)):
            return Message("{name} is not valid", name="`required`")
        inner += cast("list[Any]", rows) if key.endswith("Of") else []
    return next((problem for part in inner if (problem := fault(part, depth + 1))), "")
