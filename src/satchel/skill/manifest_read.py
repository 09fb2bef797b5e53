"""The bytes of a skill.yaml -> a Manifest, or every slip at once, each with its line.

    read_manifest   bytes -> Reading; touches no disk
    load_manifest   a folder -> Reading; also sees whether the entry is there

A slip that makes the manifest unusable is a Problem of severity `error`, and then there is no
Manifest at all: a tool that is half understood is not offered. The YAML reader is the bounded one
of `yaml_block`, so hostile input costs no time.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import yaml

from satchel._fs import open_beneath
from satchel.errors import AccessDenied
from satchel.skill.file_kind import kind_of_mode
from satchel.skill.interpret import visible
from satchel.skill.manifest import FILE, Manifest
from satchel.skill.manifest_nodes import Slips, entry_path, keys_of, plain, read_powers, text_of
from satchel.skill.manifest_tools import read_tool
from satchel.skill.problems import Problem
from satchel.skill.split import decode
from satchel.skill.yaml_block import Items, Pairs, Refusal, Scalar, compose

if TYPE_CHECKING:
    from satchel.skill.manifest import Runtime, ToolDecl
    from satchel.skill.yaml_block import Node

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
