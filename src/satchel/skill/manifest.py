"""Records of a `skill.yaml`, and the parsing of everything in it but the tools.

    ToolManifest  one skill.yaml: how its program is started, and its permissions
    ToolDecl      one tool of the program
    Parameter     one argument of a tool

A manifest is untrusted. Access beyond the skill's own folder (secrets, network, the workspace) must
be declared, so that a user can review it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import yaml

from satchel.skill.frontmatter import decode
from satchel.skill.problems import Problem
from satchel.skill.yaml_reader import (
    BadValue,
    Items,
    Pairs,
    Scalar,
    YamlRefusal,
    compose,
    kind_of,
    plain,
    value_of,
    yaml_error,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.skill.yaml_reader import Node

Runtime = Literal["python", "node", "go", "binary"]
ParameterType = Literal["string", "integer", "number", "boolean"]
Access = Literal["none", "named", "read", "write"]


class Parameter(NamedTuple):
    """One argument of a tool."""

    name: str
    type: ParameterType
    required: bool
    default: Any
    """None when there is none; a required parameter has none."""
    description: str
    line: int


class Example(NamedTuple):
    """One example call."""

    scenario: str
    arguments: dict[str, Any]
    line: int


class ToolDocs(NamedTuple):
    """The author's guidance on when to use a tool."""

    when_to_use: tuple[str, ...] = ()
    when_not_to_use: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()


class ToolDecl(NamedTuple):
    """One tool of a manifest."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    docs: ToolDocs
    returns: dict[str, Any] | None
    """JSON Schema of the `data` of a reply; None when it has only text."""
    line: int

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        properties: dict[str, Any] = {}
        for parameter in self.parameters:
            rule: dict[str, Any] = {"type": parameter.type, "description": parameter.description}
            if parameter.default is not None:
                rule["default"] = parameter.default
            properties[parameter.name] = rule
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        required = [one.name for one in self.parameters if one.required]
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        return schema


class FileAccess(NamedTuple):
    """Access of a program to the workspace."""

    access: Access = "named"
    """`named`, without a declaration: the files and folders that arguments name may be read, and
    nothing else of the workspace is visible. `none`: nothing is."""
    read: tuple[str, ...] = ()
    """Parameters with paths of existing files in the workspace, of at most 20 MB."""
    write: tuple[str, ...] = ()
    """Parameters with paths of files in the workspace that the program writes."""


class ToolManifest(NamedTuple):
    """One skill.yaml."""

    tools: tuple[ToolDecl, ...]
    runtime: Runtime
    entry: str
    """The program's file, relative to the folder, with `/`."""
    several: bool = False
    """Declared with `tools:`: each request names its tool."""
    secrets: tuple[str, ...] = ()
    """Environment variables that are passed to the program."""
    network: bool = False
    files: FileAccess = FileAccess()
    timeout: float = 0.0
    """Seconds per call; 0 means the setting."""
    workers: int = 0
    """Processes kept running between calls; 0 means one process per call."""

    @property
    def has_texts(self) -> bool:
        """Whether an argument of one of its tools may be a path."""
        return any(one.type == "string" for tool in self.tools for one in tool.parameters)


Keys = dict[str, tuple[int, "Node"]]
"""Key -> its line and its value."""
MAX_TIMEOUT_S = 600.0
MAX_WORKERS = 16
MAX_SECRETS = 32
_SECRET = re.compile(r"[A-Z][A-Z0-9_]{1,63}")
_NOT_SECRET = re.compile(
    r"(?:LD|DYLD|PYTHON|NODE|NPM|GO|GIT|SATCHEL|SKILLS?|SSH|XDG|LC|UV|PIP|BASH|DBUS|GCONV|MALLOC"
    r"|GLIBC)(?:_.*)?"
    r"|PYTHON.*|GO[A-Z]+|PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|TEMP|TMP|PWD|OLDPWD|LANG|LANGUAGE|TZ"
    r"|TERM|DISPLAY|IFS|ENV|CDPATH|EDITOR|VIRTUAL_ENV|SSLKEYLOGFILE|OPENSSL_CONF|.*_PROXY"
    r"|LOCPATH|NLSPATH|HOSTALIASES|RES_OPTIONS|GETCONF_DIR"
)
"""Variables that runtimes and systems read: with these a skill could change how it is started."""
_ENTRY_WRONG = re.compile(r"[\x00-\x1f\x7f\\]|^/|^[A-Za-z]:|(?:^|/)\.{1,2}(?:/|$)|//|/$")


class ErrorCollector:
    """Collects the problems of one file."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, code: str, line: int = 0, **values: str) -> None:
        """Add a problem."""
        self.found.append(Problem(code, line=line, values=values))

    def long(self, code: str, key: str, line: int, text: str, limit: int) -> None:
        """Add the problem of a text that is too long."""
        self.add(code, line, key=key, length=str(len(text)), limit=str(limit))

    def type(
        self, key: str, line: int, node: Node, wanted: str, code: str = "tool-key-type"
    ) -> None:
        """Add the problem of a value of the wrong type."""
        self.add(code, line, key=key, kind=kind_of(plain(node)), wanted=wanted)

    def items(self, key: str, line: int, node: Node, limit: int) -> list[Node]:
        """The items of a list, at most `limit`; anything else is a problem."""
        if not isinstance(node, Items):
            self.type(key, line, node, "a list")
            return []
        if len(node.nodes) > limit:
            count = str(len(node.nodes))
            self.add("tool-too-many", line, key=key, count=count, limit=str(limit))
        return node.nodes[:limit]


def read_yaml(
    data: bytes, limit: int, errors: ErrorCollector, codes: tuple[str, str, str]
) -> Node | None:
    """Parse a whole file; None when it is empty or cannot be parsed.

    Args:
        data: The file.
        limit: Its maximum size in bytes.
        errors: Collects the problems.
        codes: The problems of a file that is too large, is not YAML, or uses a refused feature.
    """
    too_large, not_yaml, refused = codes
    if len(data) > limit:
        errors.add(too_large, limit=str(limit))
        return None
    text, problems = decode(data)
    if text is None:
        errors.add(not_yaml, reason="it is binary")
        return None
    errors.found += [problem for problem in problems if problem.code != "bom"]
    try:
        return compose(text)
    except YamlRefusal as exc:
        errors.add(refused, exc.line + 1, what=exc.what)
    except yaml.YAMLError as exc:
        reason, line = yaml_error(exc)
        errors.add(not_yaml, line, reason=reason)
    return None


def read_mapping(pairs: Pairs, errors: ErrorCollector, where: str, known: Sequence[str]) -> Keys:
    """Return the entries of a mapping by key; unknown keys are reported and omitted.

    A misspelt key is an error and is read as the correct one, so that its absence is not reported
    as well.

    Args:
        pairs: The mapping.
        errors: Collects the problems.
        where: Prefix of keys in messages, such as `tools[1]`; empty at the top level.
        known: The valid keys.
    """
    found: Keys = {}
    written = {key.text for key in pairs.nodes[::2] if isinstance(key, Scalar)}
    nodes = iter(pairs.nodes)
    for key in nodes:
        value = next(nodes)
        line = key.line + 1
        name = key.text if isinstance(key, Scalar) else ""
        shown = f"{where}.{name}" if where else name
        if not isinstance(key, Scalar) or (key.plain and name == "<<"):
            what = "a merge key" if isinstance(key, Scalar) else "a list or mapping as a key"
            errors.add("tool-yaml-refused", line, what=what)
        elif name not in known:
            better = _meant(name, [one for one in known if one not in written])
            if better and better not in found:
                errors.add("tool-key-misspelt", line, key=shown[:100], better=better)
                found[better] = (line, value)
            else:
                errors.add("tool-key-unknown", line, key=shown[:100])
        elif name in found:
            errors.add("tool-key-twice", line, key=shown)
        else:
            found[name] = (line, value)
    return found


def _meant(name: str, missing: list[str]) -> str:
    """The valid key that a word misspells, or empty."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower().replace("-", "_")[:40], missing, 1, cutoff=0.8)
    return near[0] if near else ""


def read_text(node: Node, key: str, line: int, errors: ErrorCollector) -> str:
    """A text; a number or a date as it is written."""
    if isinstance(node, Scalar):
        text = node.text.strip()
        if text and not (node.plain and _is_null(node)):
            return text
        example = f"{key.rpartition('.')[2]}: …"
        errors.add("tool-key-missing", line, key=key, example=example)
        return ""
    errors.type(key, line, node, "text")
    return ""


def _is_null(node: Scalar) -> bool:
    try:
        return value_of(node) is None
    except (BadValue, YamlRefusal):
        return False


def read_flag(node: Node, key: str, line: int, errors: ErrorCollector) -> bool:
    """A boolean."""
    value = plain(node)
    if isinstance(value, bool):
        return value
    errors.type(key, line, node, "true or false")
    return False


def read_entry(keys: Keys, errors: ErrorCollector) -> str:
    """Path of the program's file."""
    if "entry" not in keys:
        return ""
    line, node = keys["entry"]
    entry = read_text(node, "entry", line, errors)
    entry = entry.removeprefix("./")
    if entry and (_ENTRY_WRONG.search(entry) or len(entry) > 255):
        errors.add("tool-entry-path", line, entry=entry[:100])
    return entry


def read_permissions(
    keys: Keys, tools: Sequence[ToolDecl] | None, errors: ErrorCollector
) -> dict[str, Any]:
    """Parse the permissions, timeout and workers of a program.

    Args:
        keys: The entries of the file.
        tools: The tools, whose parameters may be paths; None when not all could be read.
        errors: Collects the problems.
    """
    powers: dict[str, Any] = {}
    if "secrets" in keys:
        powers["secrets"] = _secrets(*keys["secrets"], errors)
    if "network" in keys:
        line, node = keys["network"]
        powers["network"] = read_flag(node, "network", line, errors)
    if "files" in keys:
        powers["files"] = _files(*keys["files"], tools, errors)
    if "timeout" in keys:
        powers["timeout"] = _number("timeout", *keys["timeout"], 0.1, MAX_TIMEOUT_S, errors)
    if "workers" in keys:
        powers["workers"] = int(_number("workers", *keys["workers"], 0, MAX_WORKERS, errors))
    return powers


def _secrets(line: int, node: Node, errors: ErrorCollector) -> tuple[str, ...]:
    names: list[str] = []
    for at, item in enumerate(errors.items("secrets", line, node, MAX_SECRETS), 1):
        where = item.line + 1
        if not isinstance(item, Scalar):
            errors.type(f"secrets[{at}]", where, item, "text")
        elif not _SECRET.fullmatch(item.text) or _NOT_SECRET.fullmatch(item.text):
            errors.add("secret-name", where, name=item.text[:64])
        elif item.text in names:
            errors.add("tool-key-twice", where, key=item.text)
        else:
            names.append(item.text)
    return tuple(names)


def _files(
    line: int, node: Node, tools: Sequence[ToolDecl] | None, errors: ErrorCollector
) -> FileAccess:
    if isinstance(node, Scalar):
        if node.text in ("read", "write", "none"):
            return FileAccess(node.text)
        errors.type("files", line, node, "`read`, `write`, `none` or a mapping of both")
        return FileAccess("none")
    if not isinstance(node, Pairs):
        errors.type("files", line, node, "`read`, `write`, `none` or a mapping of both")
        return FileAccess("none")
    keys = read_mapping(node, errors, "files", ("read", "write"))
    texts = {one.name for tool in tools or () for one in tool.parameters if one.type == "string"}
    lists: dict[str, tuple[str, ...]] = {}
    for key, (at, value) in keys.items():
        items = value.nodes if isinstance(value, Items) else [value]
        names: list[str] = []
        for item in items:
            name = item.text if isinstance(item, Scalar) else ""
            if not isinstance(item, Scalar):
                errors.type(f"files.{key}", at, item, "text")
            elif name in texts or tools is None:
                names.append(name)
            else:
                errors.add("files-parameter", item.line + 1, name=name[:64], access=key)
        lists[key] = tuple(dict.fromkeys(names))
    access: Access = "write" if "write" in keys else "read" if "read" in keys else "none"
    return FileAccess(access, lists.get("read", ()), lists.get("write", ()))


def _number(
    key: str, line: int, node: Node, least: float, most: float, errors: ErrorCollector
) -> float:
    value = plain(node)
    whole = key == "workers"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        errors.type(key, line, node, "a whole number" if whole else "a number")
    elif not least <= value <= most:
        given = f"{value:g}"
        errors.add("tool-number", line, key=key, value=given, least=f"{least:g}", most=f"{most:g}")
    else:
        return float(value)
    return 0.0
