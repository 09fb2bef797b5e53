"""The bytes of a skill.yaml -> a Manifest, or every slip at once, each with its line.

    read_manifest   bytes -> Reading; touches no disk
    load_manifest   a folder -> Reading; also sees whether the entry is there

A slip that makes the manifest unusable is a Problem of severity `error`, and then there is no
Manifest at all: a tool that is half understood is not offered. The YAML reader is the bounded one
of `yaml_block`, so hostile input costs no time.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import yaml

from satchel._fs import open_beneath
from satchel.errors import AccessDenied
from satchel.skill.frontmatter import decode
from satchel.skill.interpret import visible
from satchel.skill.manifest import (
    FILE,
    Example,
    Manifest,
    Parameter,
    Slips,
    ToolDecl,
    ToolDocs,
    entry_path,
    flag_of,
    keys_of,
    read_powers,
    text_of,
)
from satchel.skill.model import Document, Head
from satchel.skill.problems import Problem
from satchel.skill.tree import kind_of_mode
from satchel.skill.yaml_block import Items, Pairs, Refusal, Scalar, compose, plain

if TYPE_CHECKING:
    from satchel.skill.manifest import Keys, Runtime
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


MAX_FILE = 64 * 1024
"""Bytes of a skill.yaml; the longest sensible one is far below."""
MAX_TOOLS = 32
RUNTIMES = ("python", "node", "go", "binary")
_OF_TOOL = ("name", "parameters", "docs", "returns")
_OF_SKILL = ("description", "runtime", "entry", "tools", "secrets", "network", "files", "timeout",
             "workers")  # fmt: skip
_EXAMPLES = {
    "name": "name: {prefix}_read",
    "description": "description: what the tool does, and its limits",
    "runtime": "runtime: python",
    "entry": "entry: main.py",
}


class Reading(NamedTuple):
    """What a skill.yaml says."""

    manifest: Manifest | None
    """None when there is a problem of severity `error`."""
    description: str
    """What the whole skill does: its own description, or that of its first tool."""
    fields: dict[str, Any]
    """Every top-level key, as plain values."""
    lines: dict[str, int]
    problems: tuple[Problem, ...]


def read_manifest(data: bytes, folder: str) -> Reading:
    """Read a skill.yaml.

    Args:
        data: The whole file.
        folder: The name of the skill's folder, with which its tools' names begin.
    """
    slips = Slips()
    top = _top(data, slips)
    if top is None:
        return Reading(None, "", {}, {}, tuple(slips.found))
    keys = keys_of(top, slips, "", (*_OF_TOOL, *_OF_SKILL))
    fields = {key: plain(node) for key, (_, node) in keys.items()}
    lines = {key: line for key, (line, _) in keys.items()}
    manifest, description = _manifest(keys, top, folder, slips)
    slips.found.sort(key=lambda problem: problem.line)
    if any(problem.severity == "error" for problem in slips.found):
        manifest = None
    return Reading(manifest, description, fields, lines, tuple(slips.found))


def load_manifest(folder: str) -> Reading:
    """Read the skill.yaml of a folder, and see whether its entry is there.

    Problems carry the file's path.

    Raises:
        OSError: the file is not there, or cannot be read.
    """
    path = os.path.join(folder, FILE)
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    )
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            kind = kind_of_mode(os.fstat(descriptor).st_mode)
            problem = Problem("not-a-file", path, values={"file": FILE, "kind": kind})
            return Reading(None, "", {}, {}, (problem,))
        data = os.read(descriptor, MAX_FILE + 1)
    finally:
        os.close(descriptor)
    reading = with_entry(read_manifest(data, os.path.basename(os.path.abspath(folder))), folder)
    return reading._replace(problems=tuple(problem.at(path) for problem in reading.problems))


def with_entry(reading: Reading, folder: str) -> Reading:
    """The same, or without its manifest when the entry is not a file inside the folder."""
    if reading.manifest is None:
        return reading
    values = {"entry": reading.manifest.entry}
    line = reading.lines.get("entry", 0)
    try:
        descriptor = open_beneath(folder, reading.manifest.entry)
    except AccessDenied:
        problem = Problem("tool-entry-path", line=line, values=values)
    except OSError:
        problem = Problem("tool-entry-missing", line=line, values=values)
    else:
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return reading
        finally:
            os.close(descriptor)
        problem = Problem("tool-entry-path", line=line, values=values)
    return reading._replace(manifest=None, problems=(*reading.problems, problem))


def read_powers_of(data: bytes) -> tuple[str, ...]:
    """What a skill.yaml asks for, each in a word, however wrong the rest of the file is."""
    slips = Slips()
    top = _top(data, slips)
    if top is None:
        return ()
    keys = keys_of(top, slips, "", _OF_SKILL)
    asked = read_powers(keys, (), slips)
    found = ["network"] if asked.get("network") else []
    access = asked["files"].access if "files" in asked else "none"
    if access != "none":
        found.append(f"files: {access}")
    return (*found, *(f"secret: {name}" for name in asked.get("secrets", ())))


def _top(data: bytes, slips: Slips) -> Pairs | None:
    """The file as a mapping; None when it is something else."""
    if len(data) > MAX_FILE:
        slips.add("tool-too-large", limit=str(MAX_FILE))
        return None
    text, problems = decode(data)
    if text is None:
        slips.add("tool-not-yaml", reason="it is binary")
        return None
    slips.found += [problem for problem in problems if problem.code != "bom"]
    try:
        node = compose(text)
    except Refusal as exc:
        slips.add("tool-yaml-refused", exc.line + 1, what=exc.what)
        return None
    except yaml.YAMLError as exc:
        mark: Any = getattr(exc, "problem_mark", None)
        reason = str(getattr(exc, "problem", "") or getattr(exc, "reason", "") or "it is damaged")
        slips.add("tool-not-yaml", mark.line + 1 if mark else 0, reason=reason[:200])
        return None
    if isinstance(node, Pairs):
        return node
    kind = "empty" if node is None else "a list" if isinstance(node, Items) else "text"
    slips.add("tool-not-a-mapping", 1, kind=kind)
    return None


def _manifest(
    keys: dict[str, tuple[int, Node]], top: Pairs, folder: str, slips: Slips
) -> tuple[Manifest | None, str]:
    prefix = folder.replace("-", "_")
    several = "tools" in keys
    wanted = ("runtime", "entry") if several else ("name", "description", "runtime", "entry")
    for key in wanted:
        if key not in keys:
            example = _EXAMPLES[key].format(prefix=prefix)
            slips.add("tool-key-missing", 1, key=key, example=example)
    description = ""
    if "description" in keys:
        line, node = keys["description"]
        description = text_of(node, "description", line, slips)
        description = visible(description, "description", line, slips.found)
    tools = _tools(keys, prefix, slips) if several else [read_tool(top, "", prefix, slips)]
    found = [tool for tool in tools if tool is not None]
    _same_names(found, slips)
    runtime = _runtime(keys, slips)
    entry = entry_path(keys, slips)
    # What is wrong with a tool is said already; its parameters are not known then.
    powers = read_powers(keys, found if found and all(tools) else None, slips)
    if not found:
        return None, description
    manifest = Manifest(tuple(found), cast("Runtime", runtime), entry, several, **powers)
    return manifest, description or found[0].description


def _tools(keys: dict[str, tuple[int, Node]], prefix: str, slips: Slips) -> list[ToolDecl | None]:
    """The tools of a manifest that has several."""
    for key in _OF_TOOL:
        if key in keys:
            slips.add("tool-key-place", keys[key][0], key=key)
    line, node = keys["tools"]
    if not isinstance(node, Items):
        slips.add("tool-key-type", line, key="tools", kind=slips.kind(node), wanted="a list")
        return []
    if not node.nodes:
        slips.add("tool-none", line)
    if len(node.nodes) > MAX_TOOLS:
        slips.add(
            "tool-too-many", line, key="tools", count=str(len(node.nodes)), limit=str(MAX_TOOLS)
        )
    tools: list[ToolDecl | None] = []
    for at, item in enumerate(node.nodes[:MAX_TOOLS], 1):
        key = f"tools[{at}]"
        if isinstance(item, Pairs):
            tools.append(read_tool(item, key, prefix, slips))
        else:
            slips.add(
                "tool-key-type", item.line + 1, key=key, kind=slips.kind(item), wanted="a mapping"
            )
    return tools


def _same_names(tools: list[ToolDecl], slips: Slips) -> None:
    seen: set[str] = set()
    for tool in tools:
        if tool.name and tool.name in seen:
            slips.add("tool-name-twice", tool.line, name=tool.name)
        seen.add(tool.name)


def _runtime(keys: dict[str, tuple[int, Node]], slips: Slips) -> str:
    if "runtime" not in keys:
        return "python"
    line, node = keys["runtime"]
    value = node.text.strip() if isinstance(node, Scalar) else ""
    if value in RUNTIMES:
        return value
    if not isinstance(node, Scalar):
        slips.add("tool-key-type", line, key="runtime", kind=slips.kind(node), wanted="text")
    else:
        slips.add("tool-runtime", line, value=value[:60])
    return "python"


def read_tool_head(
    data: bytes, skill_id: str, stamp: tuple[int, int, int]
) -> tuple[Head | None, tuple[Problem, ...]]:
    """The head of a skill.yaml, or the problems that say why there is none."""
    reading = read_manifest(data, skill_id.rpartition("/")[2])
    return tool_head(reading, data, skill_id, stamp), reading.problems


def tool_head(
    reading: Reading, data: bytes, skill_id: str, stamp: tuple[int, int, int]
) -> Head | None:
    """The head of what was read; None when it is no tool skill."""
    if reading.manifest is None:
        return None
    from hashlib import blake2b

    mtime, ctime, size = stamp
    extra: dict[str, Any] = {
        "tools": tuple(tool.name for tool in reading.manifest.tools),
        # All of it reaches a model or decides what the program may touch.
        "manifest": blake2b(data, digest_size=16).hexdigest(),
    }
    name = skill_id.rpartition("/")[2]
    return Head(
        name, reading.description, skill_id, FILE, mtime, ctime, size, extra, reading.problems
    )


def parse_tool_document(data: bytes, skill_id: str, stamp: tuple[int, int, int]) -> Document:
    """A skill.yaml read whole: its fields, and no body."""
    reading = read_manifest(data, skill_id.rpartition("/")[2])
    head = tool_head(reading, data, skill_id, stamp)
    return Document(reading.fields, reading.lines, "", reading.problems, head)
