"""Parser for one tool of a skill.yaml: its name, parameters and documentation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from satchel.skill.manifest import (
    ErrorCollector,
    Example,
    Parameter,
    ToolDecl,
    ToolDocs,
    read_flag,
    read_mapping,
    read_text,
)
from satchel.skill.metadata import strip_invisible
from satchel.skill.yaml_reader import Items, Pairs, Scalar, to_json

if TYPE_CHECKING:
    from satchel.skill.manifest import Keys
    from satchel.skill.yaml_reader import Node

TOOL_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""Valid names of tools (matched whole)."""
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
PARAMETER_TYPES = ("string", "integer", "number", "boolean")
MAX_TEXT_CHARS = 1024
MAX_PARAMETERS = 64
_TOOL_KEYS = ("name", "description", "parameters", "docs", "returns")
TOP_LEVEL_KEYS = (
    *_TOOL_KEYS,
    "runtime",
    "entry",
    "tools",
    "secrets",
    "network",
    "files",
    "timeout",
)
_DOCS_KEYS = ("when_to_use", "when_not_to_use", "examples")
_VALUE_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def read_tool(
    pairs: Pairs, parent_key: str, prefix: str, errors: ErrorCollector
) -> ToolDecl | None:
    """Read one tool.

    Args:
        pairs: Its mapping: an item of `tools:`, or the whole file.
        parent_key: Its name in messages, such as `tools[1]`; empty for the whole file.
        prefix: Required prefix of its name.
        errors: Collects the problems.
    """
    # The keys of the whole file have been read before, with their problems.
    key_errors = errors if parent_key else ErrorCollector()
    keys = read_mapping(pairs, key_errors, parent_key, _TOOL_KEYS if parent_key else TOP_LEVEL_KEYS)
    key_prefix = f"{parent_key}." if parent_key else ""
    line = keys["name"][0] if "name" in keys else pairs.line + 1
    if parent_key:
        for key in ("name", "description"):
            if key not in keys:
                errors.add("tool-key-missing", line, key=key_prefix + key, example=f"{key}: …")
    name = _read_name(keys, key_prefix, prefix, errors) if "name" in keys else ""
    text = ""
    if "description" in keys:
        key_line, node = keys["description"]
        # The file's own description has been checked with its other keys.
        text = read_text(node, key_prefix + "description", key_line, key_errors)
        text = strip_invisible(text, key_prefix + "description", key_line, key_errors.problems)
        _check_length(text, key_prefix + "description", key_line, errors)
    parameters = _read_parameters(keys, key_prefix, errors)
    docs = _read_docs(keys, key_prefix, errors)
    returns = _read_returns(keys, key_prefix, errors)
    if not name:
        return None
    return ToolDecl(name, text, parameters, docs, returns, line)


def _read_name(keys: Keys, key_prefix: str, prefix: str, errors: ErrorCollector) -> str:
    line, node = keys["name"]
    name = read_text(node, key_prefix + "name", line, errors)
    if not name:
        return ""
    if not TOOL_NAME.fullmatch(name):
        better = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:64]
        better = better if TOOL_NAME.fullmatch(better) else f"{prefix}_read"
        errors.add("tool-name", line, name=name[:80], better=better)
    elif name != prefix and not name.startswith(f"{prefix}_"):
        errors.add("tool-name-prefix", line, name=name, prefix=prefix)
    return name


def _check_length(text: str, key: str, line: int, errors: ErrorCollector) -> None:
    if len(text) > MAX_TEXT_CHARS:
        errors.add_too_long("tool-text-long", key, line, text, MAX_TEXT_CHARS)


def _read_parameters(keys: Keys, key_prefix: str, errors: ErrorCollector) -> tuple[Parameter, ...]:
    if "parameters" not in keys:
        return ()
    line, node = keys["parameters"]
    key = key_prefix + "parameters"
    if isinstance(node, Scalar) and to_json(node) is None:
        return ()
    parameters: dict[str, Parameter] = {}
    for number, item in enumerate(errors.read_items(key, line, node, MAX_PARAMETERS), 1):
        item_key = f"{key}[{number}]"
        if not isinstance(item, Pairs):
            errors.add_wrong_type(item_key, item.line + 1, item, "a mapping")
            continue
        parameter = _read_parameter(item, item_key, errors)
        if parameter is None:
            continue
        if parameter.name in parameters:
            errors.add("parameter-twice", parameter.line, name=parameter.name)
        parameters[parameter.name] = parameter
    return tuple(parameters.values())


def _read_parameter(pairs: Pairs, item_key: str, errors: ErrorCollector) -> Parameter | None:
    names = ("name", "type", "required", "default", "description")
    keys = read_mapping(pairs, errors, item_key, names)
    line = pairs.line + 1
    for key in ("name", "type"):
        if key not in keys:
            errors.add("tool-key-missing", line, key=f"{item_key}.{key}", example=f"{key}: …")
    name = ""
    if "name" in keys:
        line, node = keys["name"]
        name = read_text(node, f"{item_key}.name", line, errors)
        if name and not PARAMETER_NAME.fullmatch(name):
            errors.add("parameter-name", line, name=name[:80])
    kind = _read_type(keys, name, item_key, errors)
    text = _read_description(keys, f"{item_key}.description", errors)
    required = False
    if "required" in keys:
        key_line, node = keys["required"]
        required = read_flag(node, f"{item_key}.required", key_line, errors)
    default = None
    if "default" in keys and kind in PARAMETER_TYPES:
        default = _read_default(*keys["default"], kind, name or item_key, errors)
        if required and default is not None:
            errors.add("parameter-default-unused", keys["default"][0], name=name or item_key)
            default = None
    if not name:
        return None
    # With a wrong type there is no manifest, but `files` may still refer to the name.
    return Parameter(
        name, kind if kind in PARAMETER_TYPES else "string", required, default, text, line
    )


def _read_type(keys: Keys, name: str, item_key: str, errors: ErrorCollector) -> str:
    """Type of a parameter, as it is written."""
    if "type" not in keys:
        return ""
    line, node = keys["type"]
    kind = read_text(node, f"{item_key}.type", line, errors)
    if kind and kind not in PARAMETER_TYPES:
        errors.add("parameter-type", line, name=name or item_key, value=kind[:60])
    return kind


def _read_description(keys: Keys, key: str, errors: ErrorCollector) -> str:
    """Description of a parameter; a missing one is reported by the linter only."""
    if "description" not in keys:
        return ""
    line, node = keys["description"]
    if not isinstance(node, Scalar):
        errors.add_wrong_type(key, line, node, "text")
        return ""
    text = strip_invisible(node.text.strip(), key, line, errors.problems)
    _check_length(text, key, line, errors)
    return text


def _read_default(line: int, node: Node, kind: str, name: str, errors: ErrorCollector) -> Any:
    value = to_json(node)
    if value is None:
        return None
    if kind == "string" and isinstance(node, Scalar):
        if len(node.text) > MAX_TEXT_CHARS:
            errors.add_too_long("parameter-default-long", name, line, node.text, MAX_TEXT_CHARS)
            return None
        return node.text  # `default: 10` of a string is the text `10`
    if kind == "boolean" and isinstance(value, bool):
        return value
    if not isinstance(value, bool) and isinstance(value, int | float):
        if kind == "number":
            return value
        if kind == "integer" and value == int(value):
            return int(value)
    errors.add_wrong_type(name, line, node, _VALUE_KINDS[kind], "parameter-default")
    return None


def _read_docs(keys: Keys, key_prefix: str, errors: ErrorCollector) -> ToolDocs:
    if "docs" not in keys:
        return ToolDocs()
    line, node = keys["docs"]
    key = key_prefix + "docs"
    if not isinstance(node, Pairs):
        errors.add_wrong_type(key, line, node, "a mapping", "tool-docs")
        return ToolDocs()
    docs_keys = read_mapping(node, errors, key, _DOCS_KEYS)
    return ToolDocs(
        _read_sentences(docs_keys, "when_to_use", key, errors),
        _read_sentences(docs_keys, "when_not_to_use", key, errors),
        _read_examples(docs_keys, f"{key}.examples", errors),
    )


def _read_sentences(
    keys: Keys, name: str, parent_key: str, errors: ErrorCollector
) -> tuple[str, ...]:
    if name not in keys:
        return ()
    line, node = keys[name]
    key = f"{parent_key}.{name}"
    sentences: list[str] = []
    for item in node.nodes if isinstance(node, Items) else [node]:
        if not isinstance(item, Scalar):
            errors.add_wrong_type(key, item.line + 1, item, "text", "tool-docs")
        elif item.text.strip():
            text = strip_invisible(" ".join(item.text.split()), key, item.line + 1, errors.problems)
            _check_length(text, key, line, errors)
            sentences.append(text)
    return tuple(sentences)


def _read_examples(keys: Keys, key: str, errors: ErrorCollector) -> tuple[Example, ...]:
    if "examples" not in keys:
        return ()
    line, node = keys["examples"]
    if not isinstance(node, Items):
        errors.add_wrong_type(key, line, node, "a list", "tool-docs")
        return ()
    examples: list[Example] = []
    for item in node.nodes:
        item_line = item.line + 1
        if not isinstance(item, Pairs):
            errors.add_wrong_type(key, item_line, item, "a mapping", "tool-docs")
            continue
        example_keys = read_mapping(item, errors, key, ("scenario", "arguments"))
        scenario = to_json(example_keys["scenario"][1]) if "scenario" in example_keys else ""
        arguments: dict[str, Any] = {}
        arguments_node = example_keys["arguments"][1] if "arguments" in example_keys else None
        if isinstance(arguments_node, Pairs):
            arguments = cast("dict[str, Any]", to_json(arguments_node))
        elif arguments_node is not None:
            errors.add_wrong_type(
                f"{key}.arguments", item_line, arguments_node, "a mapping", "tool-docs"
            )
        examples.append(Example(str(scenario), arguments, item_line))
    return tuple(examples)


def _read_returns(keys: Keys, key_prefix: str, errors: ErrorCollector) -> dict[str, Any] | None:
    if "returns" not in keys:
        return None
    line, node = keys["returns"]
    if isinstance(node, Pairs):
        return cast("dict[str, Any]", to_json(node))
    errors.add_wrong_type(key_prefix + "returns", line, node, "a mapping")
    return None
