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

from satchel.i18n import similar_names
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
    to_json,
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
        required = [parameter.name for parameter in self.parameters if parameter.required]
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

    @property
    def has_texts(self) -> bool:
        """Whether an argument of one of its tools may be a path."""
        return any(
            parameter.type == "string" for tool in self.tools for parameter in tool.parameters
        )


Keys = dict[str, tuple[int, "Node"]]
"""Key -> its line and its value."""
MIN_TIMEOUT_S = 0.1
MAX_TIMEOUT_S = 600.0
MAX_SECRETS = 32
_SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]{1,63}")
_RUNTIME_VARIABLE_NAME = re.compile(
    r"(?:LD|DYLD|PYTHON|NODE|NPM|GO|GIT|SATCHEL|SKILLS?|SSH|XDG|LC|UV|PIP|BASH|DBUS|GCONV|MALLOC"
    r"|GLIBC)(?:_.*)?"
    r"|PYTHON.*|GO[A-Z]+|PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|TEMP|TMP|PWD|OLDPWD|LANG|LANGUAGE|TZ"
    r"|TERM|DISPLAY|IFS|ENV|CDPATH|EDITOR|VIRTUAL_ENV|SSLKEYLOGFILE|OPENSSL_CONF|.*_PROXY"
    r"|LOCPATH|NLSPATH|HOSTALIASES|RES_OPTIONS|GETCONF_DIR"
)
"""Variables that runtimes and systems read: with these a skill could change how it is started."""
_UNSAFE_ENTRY = re.compile(r"[\x00-\x1f\x7f\\]|^/|^[A-Za-z]:|(?:^|/)\.{1,2}(?:/|$)|//|/$")


class ErrorCollector:
    """Collects the problems of one file."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, code: str, line: int = 0, **values: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(code, line=line, values=values))

    def add_too_long(self, code: str, key: str, line: int, text: str, limit: int) -> None:
        """Add the problem of a text that is too long."""
        self.add(code, line, key=key, length=str(len(text)), limit=str(limit))

    def add_wrong_type(
        self, key: str, line: int, node: Node, expected: str, code: str = "tool-key-type"
    ) -> None:
        """Add the problem of a value of the wrong type."""
        self.add(code, line, key=key, kind=kind_of(to_json(node)), wanted=expected)

    def read_items(self, key: str, line: int, node: Node, limit: int) -> list[Node]:
        """The items of a list, at most `limit`; anything else is a problem."""
        if not isinstance(node, Items):
            self.add_wrong_type(key, line, node, "a list")
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
    errors.problems += [problem for problem in problems if problem.code != "bom"]
    try:
        return compose(text)
    except YamlRefusal as exc:
        errors.add(refused, exc.line + 1, what=exc.what)
    except yaml.YAMLError as exc:
        reason, line = yaml_error(exc)
        errors.add(not_yaml, line, reason=reason)
    return None


def read_mapping(
    pairs: Pairs, errors: ErrorCollector, parent_key: str, allowed_names: Sequence[str]
) -> Keys:
    """Return the entries of a mapping by key; unknown keys are reported and omitted.

    A misspelt key is an error and is read as the correct one, so that its absence is not reported
    as well.

    Args:
        pairs: The mapping.
        errors: Collects the problems.
        parent_key: Prefix of keys in messages, such as `tools[1]`; empty at the top level.
        allowed_names: The valid keys.
    """
    keys: Keys = {}
    written_names = {key.text for key, _ in pairs.entries() if isinstance(key, Scalar)}
    for key, value in pairs.entries():
        line = key.line + 1
        if not isinstance(key, Scalar):
            errors.add("tool-yaml-refused", line, what="a list or mapping as a key")
            continue
        name = key.text
        full_key = f"{parent_key}.{name}" if parent_key else name
        if key.plain and name == "<<":
            errors.add("tool-yaml-refused", line, what="a merge key")
        elif name not in allowed_names:
            missing = [allowed for allowed in allowed_names if allowed not in written_names]
            better = _correct_name(name, missing)
            if better and better not in keys:
                errors.add("tool-key-misspelt", line, key=full_key[:100], better=better)
                keys[better] = (line, value)
            else:
                errors.add("tool-key-unknown", line, key=full_key[:100])
        elif name in keys:
            errors.add("tool-key-twice", line, key=full_key)
        else:
            keys[name] = (line, value)
    return keys


def _correct_name(name: str, missing: list[str]) -> str:
    """The valid key that a word misspells, or empty."""
    return "".join(similar_names(name.lower().replace("-", "_"), missing, ratio=0.8))


def read_text(node: Node, key: str, line: int, errors: ErrorCollector) -> str:
    """A text; a number or a date as it is written."""
    if isinstance(node, Scalar):
        text = node.text.strip()
        if text and not (node.plain and _is_null(node)):
            return text
        example = f"{key.rpartition('.')[2]}: …"
        errors.add("tool-key-missing", line, key=key, example=example)
        return ""
    errors.add_wrong_type(key, line, node, "text")
    return ""


def _is_null(node: Scalar) -> bool:
    try:
        return value_of(node) is None
    except (BadValue, YamlRefusal):
        return False


def read_flag(node: Node, key: str, line: int, errors: ErrorCollector) -> bool:
    """A boolean."""
    value = to_json(node)
    if isinstance(value, bool):
        return value
    errors.add_wrong_type(key, line, node, "true or false")
    return False


def read_entry(keys: Keys, errors: ErrorCollector) -> str:
    """Path of the program's file."""
    if "entry" not in keys:
        return ""
    line, node = keys["entry"]
    entry = read_text(node, "entry", line, errors)
    entry = entry.removeprefix("./")
    if entry and (_UNSAFE_ENTRY.search(entry) or len(entry) > 255):
        errors.add("tool-entry-path", line, entry=entry[:100])
    return entry


def read_permissions(
    keys: Keys, tools: Sequence[ToolDecl] | None, errors: ErrorCollector
) -> dict[str, Any]:
    """Parse the permissions and the timeout of a program.

    Args:
        keys: The entries of the file.
        tools: The tools, whose parameters may be paths; None when not all could be read.
        errors: Collects the problems.
    """
    permissions: dict[str, Any] = {}
    if "secrets" in keys:
        permissions["secrets"] = _read_secrets(*keys["secrets"], errors)
    if "network" in keys:
        line, node = keys["network"]
        permissions["network"] = read_flag(node, "network", line, errors)
    if "files" in keys:
        permissions["files"] = _read_file_access(*keys["files"], tools, errors)
    if "timeout" in keys:
        permissions["timeout"] = _read_timeout(*keys["timeout"], errors)
    return permissions


def _read_secrets(line: int, node: Node, errors: ErrorCollector) -> tuple[str, ...]:
    names: list[str] = []
    for number, item in enumerate(errors.read_items("secrets", line, node, MAX_SECRETS), 1):
        item_line = item.line + 1
        if not isinstance(item, Scalar):
            errors.add_wrong_type(f"secrets[{number}]", item_line, item, "text")
        elif not _SECRET_NAME.fullmatch(item.text) or _RUNTIME_VARIABLE_NAME.fullmatch(item.text):
            errors.add("secret-name", item_line, name=item.text[:64])
        elif item.text in names:
            errors.add("tool-key-twice", item_line, key=item.text)
        else:
            names.append(item.text)
    return tuple(names)


def _read_file_access(
    line: int, node: Node, tools: Sequence[ToolDecl] | None, errors: ErrorCollector
) -> FileAccess:
    if isinstance(node, Scalar):
        if node.text in ("read", "write", "none"):
            return FileAccess(node.text)
        errors.add_wrong_type("files", line, node, "`read`, `write`, `none` or a mapping of both")
        return FileAccess("none")
    if not isinstance(node, Pairs):
        errors.add_wrong_type("files", line, node, "`read`, `write`, `none` or a mapping of both")
        return FileAccess("none")
    keys = read_mapping(node, errors, "files", ("read", "write"))
    paths = {key: _read_path_parameters(key, keys[key], tools, errors) for key in keys}
    access: Access = "write" if "write" in keys else "read" if "read" in keys else "none"
    return FileAccess(access, paths.get("read", ()), paths.get("write", ()))


def _read_path_parameters(
    key: str, entry: tuple[int, Node], tools: Sequence[ToolDecl] | None, errors: ErrorCollector
) -> tuple[str, ...]:
    """The parameters that `files.read` or `files.write` names; they are texts of the tools."""
    line, value = entry
    parameters = [parameter for tool in tools or () for parameter in tool.parameters]
    text_names = {parameter.name for parameter in parameters if parameter.type == "string"}
    names: list[str] = []
    for item in value.nodes if isinstance(value, Items) else [value]:
        if not isinstance(item, Scalar):
            errors.add_wrong_type(f"files.{key}", line, item, "text")
        elif item.text in text_names or tools is None:
            names.append(item.text)
        else:
            errors.add("files-parameter", item.line + 1, name=item.text[:64], access=key)
    return tuple(dict.fromkeys(names))


def _read_timeout(line: int, node: Node, errors: ErrorCollector) -> float:
    value = to_json(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        errors.add_wrong_type("timeout", line, node, "a number")
    elif not MIN_TIMEOUT_S <= value <= MAX_TIMEOUT_S:
        limits = {"least": f"{MIN_TIMEOUT_S:g}", "most": f"{MAX_TIMEOUT_S:g}"}
        errors.add("tool-number", line, key="timeout", value=f"{value:g}", **limits)
    else:
        return float(value)
    return 0.0
