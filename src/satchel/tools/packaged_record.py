"""What a packaged skill says about itself: one record, from which everything else is made.

    PackagedSkill       a library, wrapped for agents: its label, its tools, when to use it
    ├── PackagedTool    one tool: description, parameters, ways to fail, and what runs it
    │   ├── PackagedParameter
    │   └── Failure     one way to fail: what the model is told, and what to do
    ├── Scenario        one call that shows what it is for
    └── Choice          a part of the library that is offered, or left out, and why

Models get the schema, people the page under `docs/skills`, the linter the sentences. Each sentence
is written in English and in Chinese; which one a model reads is the setting `tool_language`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel.tools.workspace import Failure, Text, ToolFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import Distribution

    from satchel.tools.workspace import Workspace

__all__ = [
    "Answer",
    "Choice",
    "Failure",
    "Job",
    "PackagedParameter",
    "PackagedSkill",
    "PackagedTool",
    "Scenario",
    "Text",
    "ToolFailed",
    "switch_of",
]

Kind = Literal["string", "integer", "number", "boolean", "array"]


class PackagedParameter(NamedTuple):
    """One parameter of a tool."""

    name: str
    type: Kind
    required: bool
    default: Any
    """None for a required one."""
    description: Text
    """Three things: what it is, what holds for it, and an example."""
    rule: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """Further JSON Schema, such as `maxLength`."""


class Job(NamedTuple):
    """What a tool is given: checked arguments with defaults filled in, and a safe place to work."""

    arguments: dict[str, Any]
    workspace: Workspace
    language: str
    key: str = ""
    """The same whenever this very call is made again; empty for a model's calls."""

    def say(self, text: Text, **values: object) -> str:
        """A sentence for the model."""
        sentence = text.to(self.language)
        return sentence.format(**values) if values else sentence


class Answer(NamedTuple):
    """What a tool gives back."""

    text: str
    """What the model reads. A stranger's words belong into a frame."""
    data: dict[str, Any]
    truncated: bool = False
    """Something is missing in it; `text` says what, and how to get it."""
    stats: dict[str, Any] = {}  # noqa: RUF012 - never changed
    path: str = ""
    """The file that was meant, relative to the project."""


class PackagedTool(NamedTuple):
    """One tool of a packaged skill."""

    name: str
    """`<domain>_<action>`: begins with the skill's name and `_`."""
    description: Text
    """20 to 80 characters: a verb first, then what limits it."""
    parameters: tuple[PackagedParameter, ...]
    failures: tuple[Failure, ...]
    """Every way to fail; raising another one is a bug."""
    run: Callable[[Job], Answer]
    example: dict[str, Any]
    """Arguments of the call whose real output the page shows."""
    writes: bool = False
    """It changes files, so a host may want to ask first."""

    def schema(self, language: str = "en") -> dict[str, Any]:
        """The JSON Schema of its arguments, as models get it."""
        properties: dict[str, Any] = {}
        for one in self.parameters:
            rule: dict[str, Any] = {"type": one.type, "description": one.description.to(language)}
            if one.default is not None:
                rule["default"] = one.default
            properties[one.name] = {**rule, **one.rule}
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        required = [one.name for one in self.parameters if one.required]
        if required:
            schema["required"] = required
        return {**schema, "additionalProperties": False}


class Scenario(NamedTuple):
    """A complete example: what somebody wants, and the call that does it."""

    title: Text
    tool: str
    arguments: dict[str, Any]


class Choice(NamedTuple):
    """A part of the wrapped library, and why it is offered or left out."""

    what: Text
    why: Text


class PackagedSkill(NamedTuple):
    """A library, wrapped for agents."""

    name: str
    """The domain: what the entry point is called and what names of tools begin with."""
    label: str
    """What people call it: `Excel`."""
    mark: str
    """One sign before the label in the start-up line."""
    wraps: str
    """The library's name, as it is installed."""
    needs: tuple[str, ...]
    """Modules that must be importable; they are looked for, and imported at the first call."""
    install: str
    """The command that installs what is missing."""
    overview: Text
    tools: tuple[PackagedTool, ...]
    when: tuple[Text, ...]
    """Three situations or more."""
    when_not: tuple[Text, ...]
    """Neighbouring tools, and where they are the better ones."""
    cannot: tuple[Text, ...]
    """What nobody should expect of it."""
    scenarios: tuple[Scenario, ...]
    """Two or more."""
    exposed: tuple[Choice, ...]
    left_out: tuple[Choice, ...]
    prepare: Callable[[str], None] | None = None
    """Writes the files that the examples need into a folder, so that their output is real."""

    @property
    def switch(self) -> str:
        """The environment variable that turns it off."""
        return switch_of(self.name)


def switch_of(name: str) -> str:
    """The variable for a skill's name: `SKILL_EXCEL_ENABLED`."""
    return f"SKILL_{name.upper().replace('-', '_')}_ENABLED"


class EntryPoint(NamedTuple):
    """One line that a package wrote for us."""

    name: str
    value: str
    """`module:attribute`."""
    package: str
    version: str


_found: dict[tuple[str, tuple[str, ...]], list[EntryPoint]] = {}


def entry_points(group: str) -> list[EntryPoint]:
    """What installed packages declare in a group, by package, then by name.

    It is looked up once for each `sys.path`: a package that is installed meanwhile is seen by the
    next process.
    """
    key = (group, tuple(sys.path))
    if key not in _found:
        from importlib import metadata

        found = [
            EntryPoint(one.name, one.value.partition("[")[0].strip(), *_whose(one.dist))
            for one in metadata.entry_points(group=group)
        ]
        found.sort(key=lambda one: (one.package != "satchel", one.package, one.name))
        _found[key] = found
    return list(_found[key])


def forget() -> None:
    """Look again: somebody installed a package in this process."""
    _found.clear()


def _whose(package: Distribution | None) -> tuple[str, str]:
    """Package and version; empty when its metadata lacks them."""
    try:
        found = (package.name, package.version) if package is not None else ("", "")
    except Exception:  # noqa: BLE001 - each finder fails in its own way
        return "", ""
    name, version = (str(one or "") for one in found)
    return name.lower().replace("_", "-").replace(".", "-"), version
