"""Tools from installed Python packages: discovery, switches, argument checks, calls.

A package offers tools by an entry point in the group `satchel.skills` that names a `PackagedSkill`.
It is enabled when it is installed; `SKILL_<NAME>_ENABLED=false` disables it, and then it is not
imported. A broken package is reported and affects no other.
"""

from __future__ import annotations

import logging
import re
import sys
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from satchel.errors import InvalidInput
from satchel.i18n import Message, join_names, language, model_language, render, say
from satchel.settings import is_enabled
from satchel.skill.problems import Problem
from satchel.tools.base import Tool
from satchel.tools.failures import Failure, Text, ToolFailed
from satchel.tools.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.metadata import Distribution

    from satchel.envelope import Envelope
    from satchel.settings import Settings
    from satchel.tools.base import ToolCall
    from satchel.trace import Trace

__all__ = [
    "ALWAYS",
    "GROUP",
    "Choice",
    "Failure",
    "Job",
    "Packaged",
    "PackagedParameter",
    "PackagedSkill",
    "PackagedTool",
    "Scenario",
    "Text",
    "ToolAnswer",
    "ToolFailed",
    "find_packaged",
    "packaged_problems",
    "packaged_tools",
    "startup_lines",
    "switch_of",
]

Kind = Literal["string", "integer", "number", "boolean", "array"]
MAX_TEXT_CHARS = 8_000
"""The longest text of an answer."""
_MIN_SIZE_RULES = {"string": "minLength", "array": "minItems"}
"""The rule by which a required parameter of a type is not empty."""
GROUP = "satchel.skills"
"""For `pyproject.toml`: `[project.entry-points."satchel.skills"]`."""
State = Literal["enabled", "disabled", "missing", "broken", "shadowed"]
_SKILL_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
WRONG_ARGUMENTS = Failure(
    "wrong-arguments",
    "INVALID_PARAM",
    Text("The arguments are wrong", "参数错误"),
    Text("{slips}"),
    Text("The parameters are {names}", "可用参数：{names}"),
)
FAULT = Failure(
    "fault",
    "INTERNAL_ERROR",
    Text("The tool has a fault", "工具内部故障"),
    Text("{name}"),
    Text(
        "Do not repeat the call; tell the user that it failed", "请勿重复调用，请告知用户调用失败"
    ),
)
ALWAYS = (WRONG_ARGUMENTS, FAULT)
"""Failures that every packaged tool has."""
_TRUNCATION_NOTE = Text(
    "[Cut to {limit} of {total} characters: ask for less at once]",
    "[已截断为 {limit} / {total} 个字符：请缩小范围]",
)
_recorded_lines: WeakKeyDictionary[Trace, set[tuple[str, str, str]]] = WeakKeyDictionary()
"""Start-up lines already recorded in each trace."""
_cached_entry_points: dict[tuple[str, ...], list[EntryPoint]] = {}
"""The entry points for each `sys.path`."""


class PackagedParameter(NamedTuple):
    """One parameter of a tool."""

    name: str
    """The name."""
    type: Kind
    """The type in JSON Schema."""
    required: bool
    """Whether a call has to give it."""
    default: Any
    """Its value in calls that do not give it."""
    description: Text
    """Three things: what it is, what holds for it, and an example."""
    rule: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """Further JSON Schema, such as `maxLength`."""


class Job(NamedTuple):
    """One call of a packaged tool: checked arguments with defaults, and file access."""

    arguments: dict[str, Any]
    """The arguments of the call."""
    workspace: Workspace
    """The files of the project."""
    language: str
    """The language of the model, `en` or `zh`."""
    key: str = ""
    """Idempotency key; empty for calls of a model."""

    def say(self, text: Text, **values: object) -> str:
        """Format a sentence in the language of the call.

        Args:
            text: The sentence.
            values: What stands in its braces.
        """
        sentence = text.to(self.language)
        return sentence.format(**values) if values else sentence


class ToolAnswer(NamedTuple):
    """The result of a packaged tool."""

    text: str
    """For the model. Untrusted text belongs in a frame."""
    data: dict[str, Any]
    """The same as JSON values."""
    truncated: bool = False
    """Something is missing; `text` names it and how to get it."""
    stats: dict[str, Any] = {}  # noqa: RUF012 - never changed
    """Counts and sizes for the envelope."""
    path: str = ""
    """The file of the call, relative to the project."""


class PackagedTool(NamedTuple):
    """One tool of a packaged skill.

    Example:
        from satchel.tools.packaged import ALWAYS, PackagedParameter, PackagedTool, Text, ToolAnswer
        from satchel.tools.workspace import READING


        def count(job):
            words = job.workspace.read(job.arguments["path"], (".txt",)).decode().split()
            return ToolAnswer(f"{len(words)} words", {"words": len(words)})


        path = Text("Path relative to the project; required, .txt. Example: notes.txt")
        tool = PackagedTool(
            name="text_count",
            description=Text("Count the words of a text file of the project; files up to 20 MB."),
            parameters=(PackagedParameter("path", "string", True, None, path),),
            failures=(*ALWAYS, *READING),
            run=count,
            example={"path": "notes.txt"},
        )
        assert tool.schema()["required"] == ["path"]
    """

    name: str
    """`<domain>_<action>`: begins with the skill's name and `_`."""
    description: Text
    """20 to 80 characters: a verb first, then the limits."""
    parameters: tuple[PackagedParameter, ...]
    """Its parameters."""
    failures: tuple[Failure, ...]
    """All declared failures; raising another one is a bug."""
    run: Callable[[Job], ToolAnswer]
    """The function that does the work; it raises `ToolFailed`."""
    example: dict[str, Any]
    """Arguments of the call whose real output is on the page."""
    writes: bool = False
    """Whether it changes files, which needs approval."""

    def schema(self, language: str = "en") -> dict[str, Any]:
        """The JSON Schema of its arguments.

        Args:
            language: `en` or `zh`, for the descriptions.
        """
        properties: dict[str, Any] = {}
        for parameter in self.parameters:
            description = parameter.description.to(language)
            rule: dict[str, Any] = {"type": parameter.type, "description": description}
            if parameter.default is not None:
                rule["default"] = parameter.default
            if parameter.required and parameter.type in _MIN_SIZE_RULES:
                rule[_MIN_SIZE_RULES[parameter.type]] = 1
            properties[parameter.name] = {**rule, **parameter.rule}
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        required = [parameter.name for parameter in self.parameters if parameter.required]
        if required:
            schema["required"] = required
        return {**schema, "additionalProperties": False}


class Scenario(NamedTuple):
    """A complete example: a task, and the call that does it."""

    title: Text
    """The task."""
    tool: str
    """The tool that does it."""
    arguments: dict[str, Any]
    """The arguments of the call."""


class Choice(NamedTuple):
    """A part of the wrapped library, and why it is offered or left out."""

    what: Text
    """The part."""
    why: Text
    """The reason."""


class PackagedSkill(NamedTuple):
    """A library, wrapped for agents."""

    name: str
    """The domain: name of the entry point and prefix of the tools' names."""
    label: str
    """Display name: `Excel`."""
    mark: str
    """One character before the label in the start-up line."""
    wraps: str
    """Name of the library's distribution."""
    needs: tuple[str, ...]
    """Modules that must be importable; imported at the first call."""
    install: str
    """The command that installs what is missing."""
    overview: Text
    """What it is for, in one sentence."""
    tools: tuple[PackagedTool, ...]
    """Its tools."""
    when: tuple[Text, ...]
    """Three situations or more."""
    when_not: tuple[Text, ...]
    """Neighbouring tools, and where they are better."""
    cannot: tuple[Text, ...]
    """Known limits."""
    scenarios: tuple[Scenario, ...]
    """Two or more."""
    exposed: tuple[Choice, ...]
    """Parts of the library that are offered."""
    left_out: tuple[Choice, ...]
    """Parts of the library that are not offered."""
    prepare: Callable[[str], None] | None = None
    """Writes the files that the examples need into a folder."""

    @property
    def switch(self) -> str:
        """The environment variable that disables it."""
        return switch_of(self.name)


def switch_of(name: str) -> str:
    """The environment variable for a skill's name: `SKILL_EXCEL_ENABLED`."""
    return f"SKILL_{name.upper().replace('-', '_')}_ENABLED"


class EntryPoint(NamedTuple):
    """One declared entry point."""

    name: str
    value: str
    """`module:attribute`."""
    package: str
    """Name and version of its distribution."""


def entry_points() -> list[EntryPoint]:
    """The entry points of packaged skills; ours first, then by package and name.

    Cached for each `sys.path`: a package installed later is seen by the next process.
    """
    key = tuple(sys.path)
    if key not in _cached_entry_points:
        points = [
            EntryPoint(
                entry.name, entry.value.partition("[")[0].strip(), _distribution_of(entry.dist)
            )
            for entry in metadata.entry_points(group=GROUP)
        ]
        points.sort(
            key=lambda point: (not point.package.startswith("satchel "), point.package, point.name)
        )
        _cached_entry_points[key] = points
    return list(_cached_entry_points[key])


def clear_entry_points() -> None:
    """Clear the cache after a package was installed in this process."""
    _cached_entry_points.clear()


def _distribution_of(package: Distribution | None) -> str:
    """Normalised name, and version; empty when the metadata lacks them."""
    try:
        fields = (package.name, package.version) if package is not None else ("", "")
    except Exception:  # noqa: BLE001 - each finder fails in its own way
        return ""
    name, version = (str(field or "") for field in fields)
    return f"{name.lower().replace('_', '-').replace('.', '-')} {version}".strip()


class Packaged(NamedTuple):
    """One installed packaged skill and its state."""

    name: str
    package: str
    """Name and version: `satchel 0.2.0`."""
    state: State
    """`missing`: a library that it wraps is not installed."""
    skill: PackagedSkill | None
    """None when it was not imported, or could not be."""
    reason: str = ""
    """Why it is not enabled, for people."""

    @property
    def label(self) -> str:
        """Display name."""
        return self.skill.label if self.skill else self.name.replace("_", " ").capitalize()

    @property
    def line(self) -> str:
        """The start-up line."""
        mark = f"{self.skill.mark} " if self.skill and self.skill.mark else ""
        if self.state == "enabled":
            return mark + say("{label} skill enabled", label=self.label)
        return mark + say("{label} skill off: {reason}", label=self.label, reason=self.reason)


def packaged_tools(settings: Settings, trace: Trace | None = None) -> list[Tool]:
    """The tools of every enabled packaged skill.

    Start-up lines are recorded and logged (level INFO, logger `satchel`) once per trace.
    """
    if not settings.packaged:
        return []
    tools: list[Tool] = []
    for entry in find_packaged():
        if trace is not None:
            _record_startup(trace, entry)
        if entry.state == "enabled" and entry.skill is not None:
            tools += [PackageTool(entry.skill, tool, settings) for tool in entry.skill.tools]
    return tools


def startup_lines(settings: Settings | None = None) -> list[str]:
    """One line for each installed packaged skill, for hosts that show them.

    Args:
        settings: The settings in force; without them, packaged skills are enabled.
    """
    if settings is not None and not settings.packaged:
        return []
    return [entry.line for entry in find_packaged()]


def packaged_problems(settings: Settings | None = None) -> list[Problem]:
    """The packaged skills that cannot be used, for `satchel doctor`."""
    if settings is not None and not settings.packaged:
        return []
    return [
        Problem("package-broken", values={"name": entry.package, "reason": entry.reason})
        for entry in find_packaged()
        if entry.state in {"broken", "shadowed"}
    ]


def find_packaged(env: Mapping[str, str] | None = None) -> list[Packaged]:
    """Every installed packaged skill, enabled or not. Never raises.

    Satchel's own come first, then by the package's name. The first skill of a name wins; a tool
    that an earlier one has is not replaced.
    """
    all_packaged: list[Packaged] = []
    names: dict[str, str] = {}
    for point in entry_points():
        entry = _inspect_entry_point(point, env)
        if entry.name in names:
            reason = say(
                "`{name}` is the one of `{owner}`", name=entry.name, owner=names[entry.name]
            )
            entry = entry._replace(state="shadowed", reason=reason)
        names.setdefault(entry.name, entry.package)
        all_packaged.append(entry)
    return all_packaged


def _inspect_entry_point(point: EntryPoint, env: Mapping[str, str] | None) -> Packaged:
    package = point.package
    if not _SKILL_NAME.fullmatch(point.name):
        return Packaged(point.name, package, "broken", None, _invalid_name(point.name))
    switch = switch_of(point.name)
    if not is_enabled(switch, env):
        # Checked before the import: a disabled package runs no code.
        reason = say("`{name}` says so", name=switch)
        return Packaged(point.name, package, "disabled", None, reason)
    try:
        skill = _load_skill(point.value)
        error = _find_record_error(skill, point.name)
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - third-party code
        reason = f"{type(exc).__name__}: {' '.join(str(exc).split())[:200]}"
        return Packaged(point.name, package, "broken", None, reason)
    if error:
        return Packaged(point.name, package, "broken", None, error)
    missing = [module for module in skill.needs if not _is_installed(module)]
    if missing:
        reason = say(
            "it needs {names}; run `{command}`",
            names=join_names(f"`{module}`" for module in missing),
            command=skill.install,
        )
        return Packaged(point.name, package, "missing", skill, reason)
    return Packaged(point.name, package, "enabled", skill)


def _load_skill(value: str) -> PackagedSkill:
    module, _, path = value.partition(":")
    target: object = import_module(module.strip())
    for attribute in filter(None, path.strip().split(".")):
        target = getattr(target, attribute)
    if not isinstance(target, PackagedSkill):
        raise TypeError(f"{value} is {type(target).__name__}, not PackagedSkill")
    return target


def _find_record_error(skill: PackagedSkill, name: str) -> str:
    if skill.name != name:
        return _invalid_name(skill.name)
    names = [tool.name for tool in skill.tools]
    wrong = [
        tool for tool in names if not (_SKILL_NAME.fullmatch(tool) and tool.startswith(f"{name}_"))
    ]
    if wrong or not names or len(set(names)) < len(names):
        return _invalid_name((wrong or names or [""])[0])
    return ""


def _invalid_name(name: str) -> str:
    return say("`{name}` is not a valid name", name=name[:60])


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _record_startup(trace: Trace, entry: Packaged) -> None:
    recorded = _recorded_lines.setdefault(trace, set())
    if (entry.name, entry.package, entry.state) not in recorded:
        recorded.add((entry.name, entry.package, entry.state))
        trace.record(
            "packaged", (entry.name,), state=entry.state, package=entry.package, line=entry.line
        )
        logging.getLogger("satchel").info("%s", entry.line)


class PackageTool(Tool):
    """A packaged tool as a `Tool`."""

    def __init__(self, skill: PackagedSkill, tool: PackagedTool, settings: Settings) -> None:
        self._tool = tool
        self._language = model_language()
        self._settings = settings
        self.name = tool.name
        self.description = tool.description.to(self._language)
        self.parameters = tool.schema(self._language)
        self.owner = skill.name
        self.writes = tool.writes

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate the arguments and fill in defaults, before any file is touched.

        Raises:
            ToolFailed: with all errors in the message.
        """
        try:
            return super().check(arguments)
        except InvalidInput as exc:
            slips = render(exc.message) if self._language == "zh" else str(exc.message)
            names = ", ".join(f"`{parameter.name}`" for parameter in self._tool.parameters)
            failed = ToolFailed(WRONG_ARGUMENTS, slips=slips, names=names)
            failed.message = WRONG_ARGUMENTS.message(self._language, failed.values)
            raise failed from None

    def run(self, call: ToolCall) -> Envelope:
        """Run the call."""
        job = Job(call.arguments, Workspace(self._settings.project), self._language, call.key)
        try:
            answer = self._tool.run(job)
        except ToolFailed as exc:
            return self._reply_to_failure(call, exc)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - third-party code
            failed = ToolFailed(FAULT, name=f"`{self.name}` ({type(exc).__name__})")
            return self._reply_to_failure(call, failed)
        text, data, cut = answer.text, answer.data, answer.truncated
        if len(text) > MAX_TEXT_CHARS:
            # Fallback: the tool should have cut at a better place and named the next step.
            note = self._say(_TRUNCATION_NOTE, limit=MAX_TEXT_CHARS, total=len(text))
            text, cut = text[: MAX_TEXT_CHARS - len(note) - 1] + "\n" + note, True
        if cut:
            data = {**data, "truncated": True}
        return call.answer(text, data, partial=cut, stats=answer.stats, path=answer.path)

    def _reply_to_failure(self, call: ToolCall, exc: ToolFailed) -> Envelope:
        full_message = exc.failure.message(self._language, exc.values)
        # The remedy is the model's: people get the problem, in their language.
        problem = exc.failure.message(language(), exc.values, short=True)
        message = Message("{whole}", people="{problem}", whole=full_message, problem=problem)
        return call.fail(exc.failure.code, message, "", {"failure": exc.failure.id})

    def _say(self, text: Text, **values: object) -> str:
        return text.to(self._language).format(**values)
