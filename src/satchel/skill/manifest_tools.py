"""One tool of a skill.yaml: its name, its parameters, and what its author says about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from satchel.skill.interpret import visible
from satchel.skill.manifest import Example, Parameter, ToolDecl, ToolDocs
from satchel.skill.manifest_nodes import flag_of, keys_of, plain, text_of
from satchel.skill.yaml_block import Items, Pairs, Scalar

if TYPE_CHECKING:
    from satchel.skill.manifest_nodes import Keys, Slips
    from satchel.skill.yaml_block import Node

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""What a tool may be called (matched whole)."""
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
TYPES = ("string", "integer", "number", "boolean")
MAX_TEXT = 1024
"""Characters of a description that reach a model."""
MAX_PARAMETERS = 64
_KEYS = ("name", "description", "parameters", "docs", "returns")
_TOP = (*_KEYS, "runtime", "entry", "tools", "secrets", "network", "files", "timeout", "workers")
_DOCS = ("when_to_use", "when_not_to_use", "examples")
_WANTED = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def read_tool(pairs: Pairs, where: str, prefix: str, slips: Slips) -> ToolDecl | None:
    """Read one tool.

    Args:
        pairs: Its mapping: an item of `tools:`, or the whole file.
        where: How sentences name it, such as `tools[1]`; nothing when it is the whole file.
        prefix: What its name begins with.
        slips: Where problems go.
    """
    # The whole file was looked over before: what is odd about its keys is said once.
    quiet = type(slips)() if not where else slips
    keys = keys_of(pairs, quiet, where, _KEYS if where else _TOP)
    before = f"{where}." if where else ""
    line = keys["name"][0] if "name" in keys else pairs.line + 1
    if where:
        for key in ("name", "description"):
            if key not in keys:
                slips.add("tool-key-missing", line, key=before + key, example=f"{key}: …")
    name = _name(keys, before, prefix, slips) if "name" in keys else ""
    text = ""
    if "description" in keys:
        at, node = keys["description"]
        # The file's own description was judged with the other keys of the file.
        text = text_of(node, before + "description", at, quiet)
        text = visible(text, before + "description", at, quiet.found)
        _length(text, before + "description", at, slips)
    parameters = _parameters(keys, before, slips)
    docs = _docs(keys, before, slips)
    returns = _returns(keys, before, slips)
    if not name:
        return None
    return ToolDecl(name, text, parameters, docs, returns, line)


def _name(keys: Keys, before: str, prefix: str, slips: Slips) -> str:
    line, node = keys["name"]
    name = text_of(node, before + "name", line, slips)
    if not name:
        return ""
    if not NAME.fullmatch(name):
        better = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:64]
        better = better if NAME.fullmatch(better) else f"{prefix}_read"
        slips.add("tool-name", line, name=name[:80], better=better)
    elif name != prefix and not name.startswith(f"{prefix}_"):
        slips.add("tool-name-prefix", line, name=name, prefix=prefix)
    return name


def _length(text: str, key: str, line: int, slips: Slips) -> None:
    if len(text) > MAX_TEXT:
        slips.add("tool-text-long", line, key=key, length=str(len(text)), limit=str(MAX_TEXT))


def _parameters(keys: Keys, before: str, slips: Slips) -> tuple[Parameter, ...]:
    if "parameters" not in keys:
        return ()
    line, node = keys["parameters"]
    key = before + "parameters"
    if isinstance(node, Scalar) and plain(node) is None:
        return ()
    if not isinstance(node, Items):
        slips.type(key, line, node, "a list")
        return ()
    if len(node.nodes) > MAX_PARAMETERS:
        count = str(len(node.nodes))
        slips.add("tool-too-many", line, key=key, count=count, limit=str(MAX_PARAMETERS))
    found: dict[str, Parameter] = {}
    for at, item in enumerate(node.nodes[:MAX_PARAMETERS], 1):
        where = f"{key}[{at}]"
        if not isinstance(item, Pairs):
            slips.type(where, item.line + 1, item, "a mapping")
            continue
        parameter = _parameter(item, where, slips)
        if parameter is None:
            continue
        if parameter.name in found:
            slips.add("parameter-twice", parameter.line, name=parameter.name)
        found[parameter.name] = parameter
    return tuple(found.values())


def _parameter(pairs: Pairs, where: str, slips: Slips) -> Parameter | None:
    known = ("name", "type", "required", "default", "description")
    keys = keys_of(pairs, slips, where, known)
    line = pairs.line + 1
    for key in ("name", "type"):
        if key not in keys:
            slips.add("tool-key-missing", line, key=f"{where}.{key}", example=f"{key}: …")
    name = kind = ""
    if "name" in keys:
        line, node = keys["name"]
        name = text_of(node, f"{where}.name", line, slips)
        if name and not PARAMETER.fullmatch(name):
            slips.add("parameter-name", line, name=name[:80])
    if "type" in keys:
        at, node = keys["type"]
        kind = text_of(node, f"{where}.type", at, slips)
        if kind and kind not in TYPES:
            slips.add("parameter-type", at, name=name or where, value=kind[:60])
    text = _remark(keys, f"{where}.description", slips)
    required = False
    if "required" in keys:
        at, node = keys["required"]
        required = flag_of(node, f"{where}.required", at, slips)
    default = None
    if "default" in keys and kind in TYPES:
        default = _default(*keys["default"], kind, name or where, slips)
        if required and default is not None:
            slips.add("parameter-default-unused", keys["default"][0], name=name or where)
            default = None
    if not name:
        return None
    # With a wrong type there is no manifest; other parts of the file still know its name.
    return Parameter(name, kind if kind in TYPES else "string", required, default, text, line)


def _remark(keys: Keys, key: str, slips: Slips) -> str:
    """What is said about a parameter; nothing is allowed, and is for the linter to speak of."""
    if "description" not in keys:
        return ""
    line, node = keys["description"]
    if not isinstance(node, Scalar):
        slips.type(key, line, node, "text")
        return ""
    text = visible(node.text.strip(), key, line, slips.found)
    _length(text, key, line, slips)
    return text


def _default(line: int, node: Node, kind: str, name: str, slips: Slips) -> Any:
    """A default in the type of its parameter."""
    value = plain(node)
    if value is None:
        return None
    if kind == "string" and isinstance(node, Scalar):
        if len(node.text) > MAX_TEXT:
            slips.add(
                "parameter-default-long",
                line,
                name=name,
                length=str(len(node.text)),
                limit=str(MAX_TEXT),
            )
            return None  # half of it would be another default
        return node.text  # `default: 10` of a text is the text `10`
    if kind == "boolean" and isinstance(value, bool):
        return value
    if not isinstance(value, bool) and isinstance(value, int | float):
        if kind == "number":
            return value
        if kind == "integer" and value == int(value):
            return int(value)
    slips.add("parameter-default", line, name=name, kind=slips.kind(node), wanted=_WANTED[kind])
    return None


def _docs(keys: Keys, before: str, slips: Slips) -> ToolDocs:
    if "docs" not in keys:
        return ToolDocs()
    line, node = keys["docs"]
    key = before + "docs"
    if not isinstance(node, Pairs):
        slips.add("tool-docs", line, key=key, kind=slips.kind(node), wanted="a mapping")
        return ToolDocs()
    parts = keys_of(node, slips, key, _DOCS)
    return ToolDocs(
        _sentences(parts, "when_to_use", key, slips),
        _sentences(parts, "when_not_to_use", key, slips),
        _examples(parts, f"{key}.examples", slips),
    )


def _sentences(parts: Keys, name: str, before: str, slips: Slips) -> tuple[str, ...]:
    if name not in parts:
        return ()
    line, node = parts[name]
    key = f"{before}.{name}"
    found: list[str] = []
    for item in node.nodes if isinstance(node, Items) else [node]:
        if not isinstance(item, Scalar):
            kind = slips.kind(item)
            slips.add("tool-docs", item.line + 1, key=key, kind=kind, wanted="a list of texts")
        elif item.text.strip():
            text = visible(" ".join(item.text.split()), key, item.line + 1, slips.found)
            _length(text, key, line, slips)
            found.append(text)
    return tuple(found)


def _examples(parts: Keys, key: str, slips: Slips) -> tuple[Example, ...]:
    if "examples" not in parts:
        return ()
    line, node = parts["examples"]
    if not isinstance(node, Items):
        slips.add("tool-docs", line, key=key, kind=slips.kind(node), wanted="a list of mappings")
        return ()
    found: list[Example] = []
    for item in node.nodes:
        at = item.line + 1
        if not isinstance(item, Pairs):
            slips.add("tool-docs", at, key=key, kind=slips.kind(item), wanted="a list of mappings")
            continue
        inner = keys_of(item, slips, key, ("scenario", "arguments"))
        scenario = plain(inner["scenario"][1]) if "scenario" in inner else ""
        arguments: dict[str, Any] = {}
        given = inner["arguments"][1] if "arguments" in inner else None
        if isinstance(given, Pairs):
            arguments = cast("dict[str, Any]", plain(given))
        elif given is not None:
            kind = slips.kind(given)
            slips.add("tool-docs", at, key=f"{key}.arguments", kind=kind, wanted="a mapping")
        found.append(Example(str(scenario), arguments, at))
    return tuple(found)


def _returns(keys: Keys, before: str, slips: Slips) -> dict[str, Any] | None:
    if "returns" not in keys:
        return None
    line, node = keys["returns"]
    if isinstance(node, Pairs):
        return cast("dict[str, Any]", plain(node))
    slips.type(before + "returns", line, node, "a mapping")
    return None
