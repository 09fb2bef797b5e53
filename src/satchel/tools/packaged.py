"""Which packaged skills there are here, which of them are on, and what they say at start-up.

A Python package offers tools to agents by an entry point in the group `satchel.skills` that names
a `PackagedSkill`. It is on when it is installed; `SKILL_<NAME>_ENABLED=false` turns one off, and
then it is not even imported. A package that cannot be used is said, and nothing else fails.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple
from weakref import WeakKeyDictionary

from satchel._language import listed, say
from satchel.settings import is_switched_on
from satchel.tools.entry_points import entry_points
from satchel.tools.failures import Failure, Text, ToolFailed
from satchel.tools.packaged_call import ALWAYS, PackageTool
from satchel.tools.packaged_record import (
    Answer,
    Choice,
    Job,
    PackagedParameter,
    PackagedSkill,
    PackagedTool,
    Scenario,
    switch_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from satchel.settings import Settings
    from satchel.skill.problems import Problem
    from satchel.tools.base import Tool
    from satchel.tools.entry_points import EntryPoint
    from satchel.trace import Trace

__all__ = [
    "ALWAYS",
    "GROUP",
    "Answer",
    "Choice",
    "Failure",
    "Job",
    "Packaged",
    "PackagedParameter",
    "PackagedSkill",
    "PackagedTool",
    "Scenario",
    "Text",
    "ToolFailed",
    "find_packaged",
    "packaged_problems",
    "packaged_tools",
    "startup_lines",
]

GROUP = "satchel.skills"
"""What a package writes in its `pyproject.toml`: `[project.entry-points."satchel.skills"]`."""
State = Literal["enabled", "disabled", "missing", "broken", "shadowed"]
_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_said: WeakKeyDictionary[Trace, set[tuple[str, str, str]]] = WeakKeyDictionary()
"""What was said to which trace."""


class Packaged(NamedTuple):
    """One packaged skill that is installed here."""

    name: str
    package: str
    """Whose it is: `satchel 0.1.0`."""
    state: State
    """`missing`: a library that it wraps is not installed."""
    skill: PackagedSkill | None
    """None when it was not imported, or could not be."""
    reason: str = ""
    """Why it is not on, for people."""

    @property
    def label(self) -> str:
        """What people call it."""
        return self.skill.label if self.skill else self.name.replace("_", " ").capitalize()

    @property
    def line(self) -> str:
        """What is said at start-up."""
        mark = f"{self.skill.mark} " if self.skill and self.skill.mark else ""
        if self.state == "enabled":
            return mark + say("{label} skill enabled", label=self.label)
        return mark + say("{label} skill off: {reason}", label=self.label, reason=self.reason)


def packaged_tools(settings: Settings, trace: Trace | None = None) -> list[Tool]:
    """The tools of every packaged skill that is on; what each one says goes to the trace, once.

    Args:
        settings: The project, and the language that tools speak.
        trace: Where the start-up lines go.
    """
    if not settings.packaged:
        return []
    tools: list[Tool] = []
    for one in find_packaged():
        if trace is not None:
            _tell(trace, one)
        if one.state == "enabled" and one.skill is not None:
            tools += [PackageTool(one.skill, tool, settings) for tool in one.skill.tools]
    return tools


def startup_lines(settings: Settings | None = None) -> list[str]:
    """One line for each installed packaged skill, for a host that shows what is on."""
    if settings is not None and not settings.packaged:
        return []
    return [one.line for one in find_packaged()]


def packaged_problems(settings: Settings | None = None) -> list[Problem]:
    """The packaged skills that cannot be used, as `satchel doctor` shows them."""
    from satchel.skill.problems import Problem

    if settings is not None and not settings.packaged:
        return []
    return [
        Problem("package-broken", values={"name": one.package, "reason": one.reason})
        for one in find_packaged()
        if one.state in {"broken", "shadowed"}
    ]


def find_packaged(env: Mapping[str, str] | None = None) -> list[Packaged]:
    """Every packaged skill that is installed, whether it is on or not. Never raises.

    Satchel's own come first, then by the package's name. The first one of a name is used, and of a
    tool's name too: a later package does not replace what an agent already has.

    Args:
        env: Where the switches are looked for; the process's own environment when None.
    """
    found: list[Packaged] = []
    names: dict[str, str] = {}
    tools: dict[str, str] = {}
    for point in entry_points(GROUP):
        one = _look(point, env)
        if one.name in names:
            reason = say("`{name}` is the one of `{owner}`", name=one.name, owner=names[one.name])
            one = one._replace(state="shadowed", reason=reason)
        names.setdefault(one.name, one.package)
        if one.state == "enabled" and one.skill is not None:
            taken = [tool.name for tool in one.skill.tools if tool.name in tools]
            if taken:
                owner = tools[taken[0]]
                reason = say("`{name}` is the one of `{owner}`", name=taken[0], owner=owner)
                one = one._replace(state="shadowed", reason=reason)
            else:
                tools.update((tool.name, one.package) for tool in one.skill.tools)
        found.append(one)
    return found


def _look(point: EntryPoint, env: Mapping[str, str] | None) -> Packaged:
    package = f"{point.package} {point.version}".strip()
    if not _NAME.fullmatch(point.name):
        reason = say("`{name}` is not lower-case words joined by `_`", name=point.name[:60])
        return Packaged(point.name, package, "broken", None, reason)
    switch = switch_of(point.name)
    if not is_switched_on(switch, env):
        # Before it is imported: what is off runs nothing.
        reason = say("`{name}` says so", name=switch)
        return Packaged(point.name, package, "disabled", None, reason)
    try:
        skill = _load(point.value)
        slip = _slip(skill, point.name)
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - a stranger's package is no reason to fail
        reason = f"{type(exc).__name__}: {' '.join(str(exc).split())[:200]}"
        return Packaged(point.name, package, "broken", None, reason)
    if slip:
        return Packaged(point.name, package, "broken", None, slip)
    missing = [module for module in skill.needs if not _is_installed(module)]
    if missing:
        reason = say(
            "it needs {names}; run `{command}`",
            names=listed(f"`{module}`" for module in missing),
            command=skill.install,
        )
        return Packaged(point.name, package, "missing", skill, reason)
    return Packaged(point.name, package, "enabled", skill)


def _load(value: str) -> PackagedSkill:
    from importlib import import_module

    module, _, path = value.partition(":")
    found: object = import_module(module.strip())
    for attribute in filter(None, path.strip().split(".")):
        found = getattr(found, attribute)
    if not isinstance(found, PackagedSkill):
        raise TypeError(f"{value} is {type(found).__name__}, not PackagedSkill")
    return found


def _slip(skill: PackagedSkill, name: str) -> str:
    """What is wrong with a record that calls itself a skill, or nothing."""
    if skill.name != name:
        return say("the skill calls itself `{name}`", name=skill.name[:60])
    names = [tool.name for tool in skill.tools]
    wrong = [tool for tool in names if not (_NAME.fullmatch(tool) and tool.startswith(f"{name}_"))]
    if wrong:
        return say("the tool `{tool}` does not begin with `{name}_`", tool=wrong[0][:60], name=name)
    if not names or len(set(names)) < len(names):
        return say("it has no tools, or two of one name")
    return ""


def _is_installed(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _tell(trace: Trace, one: Packaged) -> None:
    """Record a start-up line, once for each trace; another toolset says nothing new."""
    said = _said.setdefault(trace, set())
    if (one.name, one.package, one.state) not in said:
        said.add((one.name, one.package, one.state))
        trace.record("packaged", (one.name,), state=one.state, package=one.package, line=one.line)
