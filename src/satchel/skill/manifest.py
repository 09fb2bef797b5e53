"""What a tool skill declares: the `skill.yaml` of a folder, once read.

    Manifest    one skill.yaml: how its program is started and what it may touch
    ToolDecl    one tool that the program serves
    Parameter   one argument of a tool

A manifest is a stranger's word. Whatever it asks for beyond its own folder (secrets, network,
the workspace) is off unless it is declared here, so that a person can see it before saying yes.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from satchel.skill.model import MANIFEST

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
