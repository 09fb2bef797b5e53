"""Parser for skill.yaml.

    read_manifest   parses bytes
    load_manifest   parses the file of a folder, and checks that the entry exists

All problems are returned at once, each with its line. With a problem of severity `error` there is
no manifest: a tool that is only partly valid is not offered. `yaml_reader` bounds the cost of
hostile input.
"""

from __future__ import annotations

import os
import stat
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import open_beneath
from satchel.errors import AccessDenied
from satchel.skill.document import MANIFEST, SkillDocument, SkillHeader
from satchel.skill.file_tree import kind_of_mode
from satchel.skill.manifest import (
    ErrorCollector,
    ToolManifest,
    read_entry,
    read_mapping,
    read_permissions,
    read_text,
    read_yaml,
)
from satchel.skill.metadata import strip_invisible
from satchel.skill.problems import Problem
from satchel.skill.tool_parser import read_tool
from satchel.skill.yaml_reader import Items, Pairs, Scalar, to_json

if TYPE_CHECKING:
    from satchel.skill.manifest import (
        Keys,
        Runtime,
        ToolDecl,
    )

MAX_FILE_BYTES = 64 * 1024
MAX_TOOLS = 32
RUNTIMES = ("python", "node", "go", "binary")
_SINGLE_TOOL_KEYS = ("name", "parameters", "docs", "returns")
_SKILL_KEYS = ("description", "runtime", "entry", "tools", "secrets", "network", "files", "timeout")
_FILE_PROBLEM_CODES = ("tool-too-large", "tool-not-yaml", "tool-yaml-refused")
_EXAMPLE_BY_KEY = {
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
    top_level = _read_top_level(data, errors)
    if top_level is None:
        return ManifestResult(None, "", {}, {}, tuple(errors.problems))
    keys = read_mapping(top_level, errors, "", (*_SINGLE_TOOL_KEYS, *_SKILL_KEYS))
    fields = {key: to_json(node) for key, (_, node) in keys.items()}
    lines = {key: line for key, (line, _) in keys.items()}
    manifest, description = _read_manifest_keys(keys, top_level, folder, errors)
    errors.problems.sort(key=lambda problem: problem.line)
    if any(problem.severity == "error" for problem in errors.problems):
        manifest = None
    return ManifestResult(manifest, description, fields, lines, tuple(errors.problems))


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
    result = check_entry(read_manifest(data, os.path.basename(os.path.abspath(folder))), folder)
    return result._replace(problems=tuple(problem.at(path) for problem in result.problems))


def check_entry(result: ManifestResult, folder: str) -> ManifestResult:
    """Remove the manifest when the entry is no file inside the folder, or lacks its Go module."""
    if result.manifest is None:
        return result
    values = {"entry": result.manifest.entry}
    line = result.lines.get("entry", 0)
    try:
        descriptor = open_beneath(folder, result.manifest.entry)
    except AccessDenied:
        problem = Problem("tool-entry-path", line=line, values=values)
    except OSError:
        problem = Problem("tool-entry-missing", line=line, values=values)
    else:
        try:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        finally:
            os.close(descriptor)
        problem = Problem("tool-entry-path", line=line, values=values)
        if is_file:
            if result.manifest.runtime != "go" or os.path.isfile(os.path.join(folder, "go.mod")):
                return result
            problem = Problem("tool-go-module", values={"name": os.path.basename(folder)})
    return result._replace(manifest=None, problems=(*result.problems, problem))


def requested_permissions(data: bytes) -> tuple[str, ...]:
    """The permissions that a skill.yaml requests, even if other parts are invalid."""
    errors = ErrorCollector()
    top_level = _read_top_level(data, errors)
    if top_level is None:
        return ()
    keys = read_mapping(top_level, errors, "", _SKILL_KEYS)
    permissions = read_permissions(keys, (), errors)
    requests = ["network"] if permissions.get("network") else []
    access = permissions["files"].access if "files" in permissions else "none"
    if access in ("read", "write"):
        requests.append(f"files: {access}")
    return (*requests, *(f"secret: {name}" for name in permissions.get("secrets", ())))


def _read_top_level(data: bytes, errors: ErrorCollector) -> Pairs | None:
    """The mapping of a whole file; None when the file is none."""
    problem_count = len(errors.problems)
    node = read_yaml(data, MAX_FILE_BYTES, errors, _FILE_PROBLEM_CODES)
    if isinstance(node, Pairs):
        return node
    if not any(problem.code in _FILE_PROBLEM_CODES for problem in errors.problems[problem_count:]):
        kind = "empty" if node is None else "a list" if isinstance(node, Items) else "text"
        errors.add("tool-not-a-mapping", 1, kind=kind)
    return None


def _read_manifest_keys(
    keys: Keys, top_level: Pairs, folder: str, errors: ErrorCollector
) -> tuple[ToolManifest | None, str]:
    """The manifest, None without a valid tool; and the description of the skill."""
    prefix = folder.replace("-", "_")
    has_tool_list = "tools" in keys
    tool_keys = () if has_tool_list else ("name", "description")
    for key in (*tool_keys, "runtime", "entry"):
        if key not in keys:
            example = _EXAMPLE_BY_KEY[key].format(prefix=prefix)
            errors.add("tool-key-missing", 1, key=key, example=example)
    description = ""
    if "description" in keys:
        line, node = keys["description"]
        description = read_text(node, "description", line, errors)
        description = strip_invisible(description, "description", line, errors.problems)
    if has_tool_list:
        tools = _read_tools(keys, prefix, errors)
    else:
        tools = [read_tool(top_level, "", prefix, errors)]
    declared_tools = [tool for tool in tools if tool is not None]
    _check_unique(declared_tools, errors)
    runtime = _read_runtime(keys, errors)
    entry = read_entry(keys, errors)
    # The parameters of a tool with problems are not known.
    permissions = read_permissions(
        keys, declared_tools if declared_tools and all(tools) else None, errors
    )
    if not declared_tools:
        return None, description
    manifest = ToolManifest(
        tuple(declared_tools), cast("Runtime", runtime), entry, has_tool_list, **permissions
    )
    return manifest, description or declared_tools[0].description


def _read_tools(keys: Keys, prefix: str, errors: ErrorCollector) -> list[ToolDecl | None]:
    for key in _SINGLE_TOOL_KEYS:
        if key in keys:
            errors.add("tool-key-place", keys[key][0], key=key)
    line, node = keys["tools"]
    if isinstance(node, Items) and not node.nodes:
        errors.add("tool-none", line)
    tools: list[ToolDecl | None] = []
    for number, item in enumerate(errors.read_items("tools", line, node, MAX_TOOLS), 1):
        key = f"tools[{number}]"
        if isinstance(item, Pairs):
            tools.append(read_tool(item, key, prefix, errors))
        else:
            errors.add_wrong_type(key, item.line + 1, item, "a mapping")
    return tools


def _check_unique(tools: list[ToolDecl], errors: ErrorCollector) -> None:
    names: set[str] = set()
    for tool in tools:
        if tool.name and tool.name in names:
            errors.add("tool-name-twice", tool.line, name=tool.name)
        names.add(tool.name)


def _read_runtime(keys: Keys, errors: ErrorCollector) -> str:
    if "runtime" not in keys:
        return "python"
    line, node = keys["runtime"]
    value = node.text.strip() if isinstance(node, Scalar) else ""
    if value in RUNTIMES:
        return value
    if not isinstance(node, Scalar):
        errors.add_wrong_type("runtime", line, node, "text")
    else:
        errors.add("tool-runtime", line, value=value[:60])
    return "python"


def read_tool_header(
    data: bytes, skill_id: str, stamp: tuple[int, int, int]
) -> tuple[SkillHeader | None, tuple[Problem, ...]]:
    """The header of a skill.yaml; without one, the problems that explain it."""
    result = read_manifest(data, skill_id.rpartition("/")[2])
    return tool_header(result, data, skill_id, stamp), result.problems


def tool_header(
    result: ManifestResult, data: bytes, skill_id: str, stamp: tuple[int, int, int]
) -> SkillHeader | None:
    """The header of a parsed skill.yaml; None when it has no manifest."""
    if result.manifest is None:
        return None
    mtime_ns, ctime_ns, size = stamp
    extra: dict[str, Any] = {
        "tools": tuple(tool.name for tool in result.manifest.tools),
        # Every part of it is sent to models or grants permissions.
        "manifest": blake2b(data, digest_size=16).hexdigest(),
    }
    name = skill_id.rpartition("/")[2]
    return SkillHeader(
        name=name,
        description=result.description,
        id=skill_id,
        file=MANIFEST,
        mtime_ns=mtime_ns,
        ctime_ns=ctime_ns,
        size=size,
        extra=extra,
        problems=result.problems,
    )


def parse_tool_document(data: bytes, skill_id: str, stamp: tuple[int, int, int]) -> SkillDocument:
    """Parse a skill.yaml as a document without a body."""
    result = read_manifest(data, skill_id.rpartition("/")[2])
    header = tool_header(result, data, skill_id, stamp)
    return SkillDocument(result.fields, result.lines, "", result.problems, header)
