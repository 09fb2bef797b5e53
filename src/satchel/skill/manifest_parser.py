"""Parser for skill.yaml.

    read_manifest   parses bytes
    load_manifest   parses the file of a folder, and checks that the entry exists

All problems are returned at once, each with its line. With a problem of severity `error` there is
no manifest: a tool that is only partly valid is not offered. `yaml_reader` bounds the cost of
hostile input.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import open_beneath
from satchel.errors import AccessDenied
from satchel.skill.document import MANIFEST, SkillDocument, SkillHeader
from satchel.skill.file_tree import kind_of_mode
from satchel.skill.manifest import (
    ErrorCollector,
    Example,
    Parameter,
    ToolDecl,
    ToolDocs,
    ToolManifest,
    read_entry,
    read_flag,
    read_mapping,
    read_permissions,
    read_text,
    read_yaml,
)
from satchel.skill.metadata import strip_invisible
from satchel.skill.problems import Problem
from satchel.skill.yaml_reader import Items, Pairs, Scalar, plain

if TYPE_CHECKING:
    from satchel.skill.manifest import Keys, Runtime
    from satchel.skill.yaml_reader import Node

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""Valid names of tools (matched whole)."""
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
TYPES = ("string", "integer", "number", "boolean")
MAX_TEXT_CHARS = 1024
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


def read_tool(pairs: Pairs, where: str, prefix: str, errors: ErrorCollector) -> ToolDecl | None:
    """Read one tool.

    Args:
        pairs: Its mapping: an item of `tools:`, or the whole file.
        where: Its name in messages, such as `tools[1]`; empty for the whole file.
        prefix: Required prefix of its name.
        errors: Collects the problems.
    """
    # Problems of the file's own keys have been reported.
    quiet = type(errors)() if not where else errors
    keys = read_mapping(pairs, quiet, where, _KEYS if where else _TOP)
    before = f"{where}." if where else ""
    line = keys["name"][0] if "name" in keys else pairs.line + 1
    if where:
        for key in ("name", "description"):
            if key not in keys:
                errors.add("tool-key-missing", line, key=before + key, example=f"{key}: …")
    name = _name(keys, before, prefix, errors) if "name" in keys else ""
    text = ""
    if "description" in keys:
        at, node = keys["description"]
        # The file's own description has been checked with its other keys.
        text = read_text(node, before + "description", at, quiet)
        text = strip_invisible(text, before + "description", at, quiet.found)
        _length(text, before + "description", at, errors)
    parameters = _parameters(keys, before, errors)
    docs = _docs(keys, before, errors)
    returns = _returns(keys, before, errors)
    if not name:
        return None
    return ToolDecl(name, text, parameters, docs, returns, line)


def _name(keys: Keys, before: str, prefix: str, errors: ErrorCollector) -> str:
    line, node = keys["name"]
    name = read_text(node, before + "name", line, errors)
    if not name:
        return ""
    if not NAME.fullmatch(name):
        better = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:64]
        better = better if NAME.fullmatch(better) else f"{prefix}_read"
        errors.add("tool-name", line, name=name[:80], better=better)
    elif name != prefix and not name.startswith(f"{prefix}_"):
        errors.add("tool-name-prefix", line, name=name, prefix=prefix)
    return name


def _length(text: str, key: str, line: int, errors: ErrorCollector) -> None:
    if len(text) > MAX_TEXT_CHARS:
        errors.long("tool-text-long", key, line, text, MAX_TEXT_CHARS)


def _parameters(keys: Keys, before: str, errors: ErrorCollector) -> tuple[Parameter, ...]:
    if "parameters" not in keys:
        return ()
    line, node = keys["parameters"]
    key = before + "parameters"
    if isinstance(node, Scalar) and plain(node) is None:
        return ()
    found: dict[str, Parameter] = {}
    for at, item in enumerate(errors.items(key, line, node, MAX_PARAMETERS), 1):
        where = f"{key}[{at}]"
        if not isinstance(item, Pairs):
            errors.type(where, item.line + 1, item, "a mapping")
            continue
        parameter = _parameter(item, where, errors)
        if parameter is None:
            continue
        if parameter.name in found:
            errors.add("parameter-twice", parameter.line, name=parameter.name)
        found[parameter.name] = parameter
    return tuple(found.values())


def _parameter(pairs: Pairs, where: str, errors: ErrorCollector) -> Parameter | None:
    known = ("name", "type", "required", "default", "description")
    keys = read_mapping(pairs, errors, where, known)
    line = pairs.line + 1
    for key in ("name", "type"):
        if key not in keys:
            errors.add("tool-key-missing", line, key=f"{where}.{key}", example=f"{key}: …")
    name = kind = ""
    if "name" in keys:
        line, node = keys["name"]
        name = read_text(node, f"{where}.name", line, errors)
        if name and not PARAMETER.fullmatch(name):
            errors.add("parameter-name", line, name=name[:80])
    if "type" in keys:
        at, node = keys["type"]
        kind = read_text(node, f"{where}.type", at, errors)
        if kind and kind not in TYPES:
            errors.add("parameter-type", at, name=name or where, value=kind[:60])
    text = _description(keys, f"{where}.description", errors)
    required = False
    if "required" in keys:
        at, node = keys["required"]
        required = read_flag(node, f"{where}.required", at, errors)
    default = None
    if "default" in keys and kind in TYPES:
        default = _default(*keys["default"], kind, name or where, errors)
        if required and default is not None:
            errors.add("parameter-default-unused", keys["default"][0], name=name or where)
            default = None
    if not name:
        return None
    # With a wrong type there is no manifest, but `files` may still refer to the name.
    return Parameter(name, kind if kind in TYPES else "string", required, default, text, line)


def _description(keys: Keys, key: str, errors: ErrorCollector) -> str:
    """Description of a parameter; a missing one is reported by the linter only."""
    if "description" not in keys:
        return ""
    line, node = keys["description"]
    if not isinstance(node, Scalar):
        errors.type(key, line, node, "text")
        return ""
    text = strip_invisible(node.text.strip(), key, line, errors.found)
    _length(text, key, line, errors)
    return text


def _default(line: int, node: Node, kind: str, name: str, errors: ErrorCollector) -> Any:
    value = plain(node)
    if value is None:
        return None
    if kind == "string" and isinstance(node, Scalar):
        if len(node.text) > MAX_TEXT_CHARS:
            errors.long("parameter-default-long", name, line, node.text, MAX_TEXT_CHARS)
            return None
        return node.text  # `default: 10` of a string is the text `10`
    if kind == "boolean" and isinstance(value, bool):
        return value
    if not isinstance(value, bool) and isinstance(value, int | float):
        if kind == "number":
            return value
        if kind == "integer" and value == int(value):
            return int(value)
    errors.type(name, line, node, _WANTED[kind], "parameter-default")
    return None


def _docs(keys: Keys, before: str, errors: ErrorCollector) -> ToolDocs:
    if "docs" not in keys:
        return ToolDocs()
    line, node = keys["docs"]
    key = before + "docs"
    if not isinstance(node, Pairs):
        errors.type(key, line, node, "a mapping", "tool-docs")
        return ToolDocs()
    parts = read_mapping(node, errors, key, _DOCS)
    return ToolDocs(
        _sentences(parts, "when_to_use", key, errors),
        _sentences(parts, "when_not_to_use", key, errors),
        _examples(parts, f"{key}.examples", errors),
    )


def _sentences(parts: Keys, name: str, before: str, errors: ErrorCollector) -> tuple[str, ...]:
    if name not in parts:
        return ()
    line, node = parts[name]
    key = f"{before}.{name}"
    found: list[str] = []
    for item in node.nodes if isinstance(node, Items) else [node]:
        if not isinstance(item, Scalar):
            errors.type(key, item.line + 1, item, "text", "tool-docs")
        elif item.text.strip():
            text = strip_invisible(" ".join(item.text.split()), key, item.line + 1, errors.found)
            _length(text, key, line, errors)
            found.append(text)
    return tuple(found)


def _examples(parts: Keys, key: str, errors: ErrorCollector) -> tuple[Example, ...]:
    if "examples" not in parts:
        return ()
    line, node = parts["examples"]
    if not isinstance(node, Items):
        errors.type(key, line, node, "a list", "tool-docs")
        return ()
    found: list[Example] = []
    for item in node.nodes:
        at = item.line + 1
        if not isinstance(item, Pairs):
            errors.type(key, at, item, "a mapping", "tool-docs")
            continue
        inner = read_mapping(item, errors, key, ("scenario", "arguments"))
        scenario = plain(inner["scenario"][1]) if "scenario" in inner else ""
        arguments: dict[str, Any] = {}
        given = inner["arguments"][1] if "arguments" in inner else None
        if isinstance(given, Pairs):
            arguments = cast("dict[str, Any]", plain(given))
        elif given is not None:
            errors.type(f"{key}.arguments", at, given, "a mapping", "tool-docs")
        found.append(Example(str(scenario), arguments, at))
    return tuple(found)


def _returns(keys: Keys, before: str, errors: ErrorCollector) -> dict[str, Any] | None:
    if "returns" not in keys:
        return None
    line, node = keys["returns"]
    if isinstance(node, Pairs):
        return cast("dict[str, Any]", plain(node))
    errors.type(before + "returns", line, node, "a mapping")
    return None


MAX_FILE_BYTES = 64 * 1024
MAX_TOOLS = 32
RUNTIMES = ("python", "node", "go", "binary")
_OF_TOOL = ("name", "parameters", "docs", "returns")
_OF_SKILL = ("description", "runtime", "entry", "tools", "secrets", "network", "files", "timeout",
             "workers")  # fmt: skip
_CODES = ("tool-too-large", "tool-not-yaml", "tool-yaml-refused")
_EXAMPLES = {
    "name": "name: {prefix}_read",
    "description": "description: what the tool does, and its limits",
    "runtime": "runtime: python",
    "entry": "entry: main.py",
}


class ManifestResult(NamedTuple):
    """A parsed skill.yaml."""

    manifest: ToolManifest | None
    """None when there is a problem of severity `error`."""
    description: str
    """Description of the skill, or of its first tool."""
    fields: dict[str, Any]
    """Top-level keys as plain values."""
    lines: dict[str, int]
    problems: tuple[Problem, ...]


def read_manifest(data: bytes, folder: str) -> ManifestResult:
    """Read a skill.yaml.

    Args:
        data: The whole file.
        folder: Name of the skill's folder, the prefix of its tools' names.
    """
    errors = ErrorCollector()
    top = _top(data, errors)
    if top is None:
        return ManifestResult(None, "", {}, {}, tuple(errors.found))
    keys = read_mapping(top, errors, "", (*_OF_TOOL, *_OF_SKILL))
    fields = {key: plain(node) for key, (_, node) in keys.items()}
    lines = {key: line for key, (line, _) in keys.items()}
    manifest, description = _manifest(keys, top, folder, errors)
    errors.found.sort(key=lambda problem: problem.line)
    if any(problem.severity == "error" for problem in errors.found):
        manifest = None
    return ManifestResult(manifest, description, fields, lines, tuple(errors.found))


def load_manifest(folder: str) -> ManifestResult:
    """Read the skill.yaml of a folder, and check that its entry exists.

    Problems carry the file's path.

    Raises:
        OSError: the file does not exist or cannot be read.
    """
    path = os.path.join(folder, MANIFEST)
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    )
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            kind = kind_of_mode(os.fstat(descriptor).st_mode)
            problem = Problem("not-a-file", path, values={"file": MANIFEST, "kind": kind})
            return ManifestResult(None, "", {}, {}, (problem,))
        data = os.read(descriptor, MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    reading = check_entry(read_manifest(data, os.path.basename(os.path.abspath(folder))), folder)
    return reading._replace(problems=tuple(problem.at(path) for problem in reading.problems))


def check_entry(reading: ManifestResult, folder: str) -> ManifestResult:
    """Remove the manifest when the entry is no file inside the folder."""
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


def requested_permissions(data: bytes) -> tuple[str, ...]:
    """The permissions that a skill.yaml requests, even if other parts are invalid."""
    errors = ErrorCollector()
    top = _top(data, errors)
    if top is None:
        return ()
    keys = read_mapping(top, errors, "", _OF_SKILL)
    asked = read_permissions(keys, (), errors)
    found = ["network"] if asked.get("network") else []
    access = asked["files"].access if "files" in asked else "none"
    if access in ("read", "write"):
        found.append(f"files: {access}")
    return (*found, *(f"secret: {name}" for name in asked.get("secrets", ())))


def _top(data: bytes, errors: ErrorCollector) -> Pairs | None:
    before = len(errors.found)
    node = read_yaml(data, MAX_FILE_BYTES, errors, _CODES)
    if isinstance(node, Pairs):
        return node
    if not any(problem.code in _CODES for problem in errors.found[before:]):
        kind = "empty" if node is None else "a list" if isinstance(node, Items) else "text"
        errors.add("tool-not-a-mapping", 1, kind=kind)
    return None


def _manifest(
    keys: dict[str, tuple[int, Node]], top: Pairs, folder: str, errors: ErrorCollector
) -> tuple[ToolManifest | None, str]:
    prefix = folder.replace("-", "_")
    several = "tools" in keys
    wanted = ("runtime", "entry") if several else ("name", "description", "runtime", "entry")
    for key in wanted:
        if key not in keys:
            example = _EXAMPLES[key].format(prefix=prefix)
            errors.add("tool-key-missing", 1, key=key, example=example)
    description = ""
    if "description" in keys:
        line, node = keys["description"]
        description = read_text(node, "description", line, errors)
        description = strip_invisible(description, "description", line, errors.found)
    tools = _tools(keys, prefix, errors) if several else [read_tool(top, "", prefix, errors)]
    found = [tool for tool in tools if tool is not None]
    _check_unique(found, errors)
    runtime = _runtime(keys, errors)
    entry = read_entry(keys, errors)
    # The parameters of a tool with problems are not known.
    powers = read_permissions(keys, found if found and all(tools) else None, errors)
    if not found:
        return None, description
    manifest = ToolManifest(tuple(found), cast("Runtime", runtime), entry, several, **powers)
    return manifest, description or found[0].description


def _tools(
    keys: dict[str, tuple[int, Node]], prefix: str, errors: ErrorCollector
) -> list[ToolDecl | None]:
    for key in _OF_TOOL:
        if key in keys:
            errors.add("tool-key-place", keys[key][0], key=key)
    line, node = keys["tools"]
    if isinstance(node, Items) and not node.nodes:
        errors.add("tool-none", line)
    tools: list[ToolDecl | None] = []
    for at, item in enumerate(errors.items("tools", line, node, MAX_TOOLS), 1):
        key = f"tools[{at}]"
        if isinstance(item, Pairs):
            tools.append(read_tool(item, key, prefix, errors))
        else:
            errors.type(key, item.line + 1, item, "a mapping")
    return tools


def _check_unique(tools: list[ToolDecl], errors: ErrorCollector) -> None:
    seen: set[str] = set()
    for tool in tools:
        if tool.name and tool.name in seen:
            errors.add("tool-name-twice", tool.line, name=tool.name)
        seen.add(tool.name)


def _runtime(keys: dict[str, tuple[int, Node]], errors: ErrorCollector) -> str:
    if "runtime" not in keys:
        return "python"
    line, node = keys["runtime"]
    value = node.text.strip() if isinstance(node, Scalar) else ""
    if value in RUNTIMES:
        return value
    if not isinstance(node, Scalar):
        errors.type("runtime", line, node, "text")
    else:
        errors.add("tool-runtime", line, value=value[:60])
    return "python"


def read_tool_header(
    data: bytes, skill_id: str, stamp: tuple[int, int, int]
) -> tuple[SkillHeader | None, tuple[Problem, ...]]:
    """The header of a skill.yaml; without one, the problems that explain it."""
    reading = read_manifest(data, skill_id.rpartition("/")[2])
    return tool_header(reading, data, skill_id, stamp), reading.problems


def tool_header(
    reading: ManifestResult, data: bytes, skill_id: str, stamp: tuple[int, int, int]
) -> SkillHeader | None:
    """The header of a parsed skill.yaml; None when it has no manifest."""
    if reading.manifest is None:
        return None
    from hashlib import blake2b

    mtime, ctime, size = stamp
    extra: dict[str, Any] = {
        "tools": tuple(tool.name for tool in reading.manifest.tools),
        # Every part of it is sent to models or grants permissions.
        "manifest": blake2b(data, digest_size=16).hexdigest(),
    }
    name = skill_id.rpartition("/")[2]
    return SkillHeader(
        name, reading.description, skill_id, MANIFEST, mtime, ctime, size, extra, reading.problems
    )


def parse_tool_document(data: bytes, skill_id: str, stamp: tuple[int, int, int]) -> SkillDocument:
    """Parse a skill.yaml as a document without a body."""
    reading = read_manifest(data, skill_id.rpartition("/")[2])
    head = tool_header(reading, data, skill_id, stamp)
    return SkillDocument(reading.fields, reading.lines, "", reading.problems, head)
