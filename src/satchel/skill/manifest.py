"""What a tool skill declares in its `skill.yaml`, and the parts of it that are not tools.

    Manifest    one skill.yaml: how its program is started and what it may touch
    ToolDecl    one tool that the program serves
    Parameter   one argument of a tool

A manifest is a stranger's word. Whatever it asks for beyond its own folder (secrets, network,
the workspace) is off unless it is declared here, so that a person can see it before saying yes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.skill.model import MANIFEST
from satchel.skill.problems import Problem
from satchel.skill.yaml_block import (
    BadValue,
    Items,
    Pairs,
    Refusal,
    Scalar,
    kind_of,
    plain,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.skill.yaml_block import Node

FILE = MANIFEST
Runtime = Literal["python", "node", "go", "binary"]
ParameterType = Literal["string", "integer", "number", "boolean"]
Access = Literal["none", "read", "write"]


class Parameter(NamedTuple):
    """One argument of a tool."""

    name: str
    type: ParameterType
    required: bool
    default: Any
    """None when there is none; a required parameter has none."""
    description: str
    line: int
    """Where it is declared, counted from one."""


class Example(NamedTuple):
    """One call that an author shows."""

    scenario: str
    arguments: dict[str, Any]
    line: int


class ToolDocs(NamedTuple):
    """What the author says about a tool, for models and for people."""

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
    """A JSON Schema of the `data` that a reply carries beside its text; None when it has none."""
    line: int

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, as models get it."""
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


class Files(NamedTuple):
    """What of the workspace a program may touch."""

    access: Access = "none"
    """`none`: it does not see the workspace at all."""
    read: tuple[str, ...] = ()
    """Parameters that name files which must exist, inside the workspace, of at most 20 MB."""
    write: tuple[str, ...] = ()
    """Parameters that name files which the program writes, inside the workspace."""


class Manifest(NamedTuple):
    """One skill.yaml."""

    tools: tuple[ToolDecl, ...]
    runtime: Runtime
    entry: str
    """The program's file, relative to the folder, with `/`."""
    several: bool = False
    """Written with `tools:`: each request names its tool."""
    secrets: tuple[str, ...] = ()
    """Names of environment variables that the program is given."""
    network: bool = False
    files: Files = Files()
    timeout: float = 0.0
    """Seconds that one call may take; 0 means the setting."""
    workers: int = 0
    """Processes that are kept between calls and read line after line; 0 means one per call."""


Keys = dict[str, tuple[int, "Node"]]
"""Key -> its line and its value."""
MAX_TIMEOUT = 600.0
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
"""What runtimes and systems read by themselves: a skill that chose these would choose how it is
started."""
_ENTRY_WRONG = re.compile(r"[\x00-\x1f\x7f\\]|^/|^[A-Za-z]:|(?:^|/)\.{1,2}(?:/|$)|//|/$")


class Slips:
    """The problems of one file, gathered while it is read."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, code: str, line: int = 0, **values: str) -> None:
        """Note a problem."""
        self.found.append(Problem(code, line=line, values=values))

    def kind(self, node: Node) -> str:
        """How the type of a value is called in a sentence."""
        return kind_of(plain(node))

    def type(self, key: str, line: int, node: Node, wanted: str) -> None:
        """A value is of another type than it must be."""
        self.add("tool-key-type", line, key=key, kind=self.kind(node), wanted=wanted)


def keys_of(pairs: Pairs, slips: Slips, where: str, known: Sequence[str]) -> Keys:
    """The entries of a mapping by key; unknown ones are noted and left out.

    A key that is surely misspelt is an error, and is read as the one that is meant: what would
    follow from its absence is not said as well.

    Args:
        pairs: The mapping.
        slips: Where problems go.
        where: What stands before the key in a sentence, such as `tools[1]`; nothing at the top.
        known: The keys that there are.
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
            slips.add("tool-yaml-refused", line, what=what)
        elif name not in known:
            better = _meant(name, [one for one in known if one not in written])
            if better and better not in found:
                slips.add("tool-key-misspelt", line, key=shown[:100], better=better)
                found[better] = (line, value)
            else:
                slips.add("tool-key-unknown", line, key=shown[:100])
        elif name in found:
            slips.add("tool-key-twice", line, key=shown)
        else:
            found[name] = (line, value)
    return found


def _meant(name: str, missing: list[str]) -> str:
    """The key that a word is a slip of; nothing when it may be a word of its own."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower().replace("-", "_")[:40], missing, 1, cutoff=0.8)
    return near[0] if near else ""


def text_of(node: Node, key: str, line: int, slips: Slips) -> str:
    """A text, on one or more lines; a number or a date is the text that was written."""
    if isinstance(node, Scalar):
        text = node.text.strip()
        if text and not (node.plain and _is_null(node)):
            return text
        example = f"{key.rpartition('.')[2]}: …"
        slips.add("tool-key-missing", line, key=key, example=example)
        return ""
    slips.type(key, line, node, "text")
    return ""


def _is_null(node: Scalar) -> bool:
    try:
        return value_of(node) is None
    except (BadValue, Refusal):
        return False


def flag_of(node: Node, key: str, line: int, slips: Slips) -> bool:
    """True or false."""
    value = plain(node)
    if isinstance(value, bool):
        return value
    slips.type(key, line, node, "true or false")
    return False


def entry_path(keys: Keys, slips: Slips) -> str:
    """The program's file."""
    if "entry" not in keys:
        return ""
    line, node = keys["entry"]
    entry = text_of(node, "entry", line, slips)
    entry = entry.removeprefix("./")
    if entry and (_ENTRY_WRONG.search(entry) or len(entry) > 255):
        slips.add("tool-entry-path", line, entry=entry[:100])
    return entry


def read_powers(keys: Keys, tools: Sequence[ToolDecl] | None, slips: Slips) -> dict[str, Any]:
    """What the program wants beside its own folder, and how it is kept running.

    Args:
        keys: Those of the file.
        tools: Whose parameters may hold paths; None when they could not all be read.
        slips: Where problems go.
    """
    powers: dict[str, Any] = {}
    if "secrets" in keys:
        powers["secrets"] = _secrets(*keys["secrets"], slips)
    if "network" in keys:
        line, node = keys["network"]
        powers["network"] = flag_of(node, "network", line, slips)
    if "files" in keys:
        powers["files"] = _files(*keys["files"], tools, slips)
    if "timeout" in keys:
        powers["timeout"] = _number("timeout", *keys["timeout"], 0.1, MAX_TIMEOUT, slips)
    if "workers" in keys:
        powers["workers"] = int(_number("workers", *keys["workers"], 0, MAX_WORKERS, slips))
    return powers


def _secrets(line: int, node: Node, slips: Slips) -> tuple[str, ...]:
    if not isinstance(node, Items):
        slips.type("secrets", line, node, "a list")
        return ()
    if len(node.nodes) > MAX_SECRETS:
        count = str(len(node.nodes))
        slips.add("tool-too-many", line, key="secrets", count=count, limit=str(MAX_SECRETS))
    names: list[str] = []
    for at, item in enumerate(node.nodes[:MAX_SECRETS], 1):
        where = item.line + 1
        if not isinstance(item, Scalar):
            slips.type(f"secrets[{at}]", where, item, "text")
        elif not _SECRET.fullmatch(item.text) or _NOT_SECRET.fullmatch(item.text):
            slips.add("secret-name", where, name=item.text[:64])
        elif item.text in names:
            slips.add("tool-key-twice", where, key=item.text)
        else:
            names.append(item.text)
    return tuple(names)


def _files(line: int, node: Node, tools: Sequence[ToolDecl] | None, slips: Slips) -> Files:
    if isinstance(node, Scalar):
        if node.text in ("read", "write", "none"):
            return Files(node.text)
        slips.type("files", line, node, "`read`, `write` or a mapping of both")
        return Files()
    if not isinstance(node, Pairs):
        slips.type("files", line, node, "`read`, `write` or a mapping of both")
        return Files()
    keys = keys_of(node, slips, "files", ("read", "write"))
    texts = {one.name for tool in tools or () for one in tool.parameters if one.type == "string"}
    lists: dict[str, tuple[str, ...]] = {}
    for key, (at, value) in keys.items():
        items = value.nodes if isinstance(value, Items) else [value]
        names: list[str] = []
        for item in items:
            name = item.text if isinstance(item, Scalar) else ""
            if not isinstance(item, Scalar):
                slips.type(f"files.{key}", at, item, "a list of parameters")
            elif name in texts or tools is None:
                names.append(name)
            else:
                slips.add("files-parameter", item.line + 1, name=name[:64])
        lists[key] = tuple(dict.fromkeys(names))
    access: Access = "write" if "write" in keys else "read" if "read" in keys else "none"
    return Files(access, lists.get("read", ()), lists.get("write", ()))


def _number(key: str, line: int, node: Node, least: float, most: float, slips: Slips) -> float:
    value = plain(node)
    whole = key == "workers"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        slips.type(key, line, node, "a whole number" if whole else "a number")
    elif not least <= value <= most:
        given = f"{value:g}"
        slips.add("tool-number", line, key=key, value=given, least=f"{least:g}", most=f"{most:g}")
    else:
        return float(value)
    return 0.0
