"""Satchel: the skill system for agents.

Layers, from the top down:

    integrations  adapters for agent frameworks, and the MCP server
    agent         the reference agent, on pydantic-ai
    goals         plans whose steps survive a crash
    facade        Satchel, one object that composes the rest
    tools         Session: one conversation, and the tools that a model calls in it
    remote        skills from MCP servers
    library       finds skills                  (Library, Location)
    catalogue     the list for the prompt       (Catalogue, Budget)
    detect        chooses skills                (Detector, Match)
    skill         parses skills                 (Skill, Problem)
    settings, envelope, trace, errors

Names are imported when first used, so that `import satchel` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for True; importing `typing` takes 10 ms

__version__ = "0.1.0"

if TYPE_CHECKING:
    from typing import Any

    from satchel.catalogue import Budget, Catalogue, build_catalogue
    from satchel.detect import Detector, Match
    from satchel.envelope import Envelope
    from satchel.errors import SatchelError
    from satchel.facade import Satchel
    from satchel.library import Filter, Library, Location
    from satchel.skill import Problem, Skill
    from satchel.tools.session import Session
    from satchel.trace import Trace

_HOMES = {
    "Budget": "satchel.catalogue",
    "Catalogue": "satchel.catalogue",
    "Detector": "satchel.detect",
    "Envelope": "satchel.envelope",
    "Filter": "satchel.library",
    "Library": "satchel.library",
    "Location": "satchel.library",
    "Match": "satchel.detect",
    "Problem": "satchel.skill",
    "Satchel": "satchel.facade",
    "SatchelError": "satchel.errors",
    "Session": "satchel.tools.session",
    "Skill": "satchel.skill",
    "Trace": "satchel.trace",
    "build_catalogue": "satchel.catalogue",
}

__all__ = [
    "Budget",
    "Catalogue",
    "Detector",
    "Envelope",
    "Filter",
    "Library",
    "Location",
    "Match",
    "Problem",
    "Satchel",
    "SatchelError",
    "Session",
    "Skill",
    "Trace",
    "build_catalogue",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `satchel` has no attribute `{name}`")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
