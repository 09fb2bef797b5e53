"""Satchel: the skill system for agents.

General layout, from the front door down:

    integrations  other people's agents: MCP, and one file per framework
    agent       the reference agent, on pydantic-ai
    facade      Satchel, one object that composes the rest
    why         the whole story of one skill
    tools       what an agent may call, and Session: one conversation behind every door
    remote      skills that live on a server
    library     which skills exist here          (Library, Location, Snapshot)
    catalogue   what the model is told           (Catalogue, Budget)
    detect      which skill fits                 (Detector, Match)
    skill       what a skill is                  (Skill, Document, Problem)
    settings, envelope, trace, errors            what crosses every border

Names are loaded when first used, so that `import satchel` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for True; importing `typing` takes 10 ms

__version__ = "0.1.0"

if TYPE_CHECKING:
    from typing import Any

    from satchel.catalogue import Budget, Catalogue, build_catalogue, fill_template
    from satchel.detect import Detector, Match
    from satchel.envelope import Envelope
    from satchel.errors import SatchelError
    from satchel.facade import Satchel
    from satchel.library import Filter, Library, Location, Snapshot
    from satchel.settings import Settings, load_settings
    from satchel.skill import Document, Problem, Skill
    from satchel.skill.validate import validate_folder
    from satchel.tools.session import Session
    from satchel.trace import Trace

_HOMES = {
    "Budget": "satchel.catalogue",
    "Catalogue": "satchel.catalogue",
    "Detector": "satchel.detect",
    "Document": "satchel.skill",
    "Envelope": "satchel.envelope",
    "Filter": "satchel.library",
    "Library": "satchel.library",
    "Location": "satchel.library",
    "Match": "satchel.detect",
    "Problem": "satchel.skill",
    "Satchel": "satchel.facade",
    "SatchelError": "satchel.errors",
    "Session": "satchel.tools.session",
    "Settings": "satchel.settings",
    "Skill": "satchel.skill",
    "Snapshot": "satchel.library",
    "Trace": "satchel.trace",
    "build_catalogue": "satchel.catalogue",
    "fill_template": "satchel.catalogue",
    "load_settings": "satchel.settings",
    "validate_folder": "satchel.skill.validate",
}

__all__ = [
    "Budget",
    "Catalogue",
    "Detector",
    "Document",
    "Envelope",
    "Filter",
    "Library",
    "Location",
    "Match",
    "Problem",
    "Satchel",
    "SatchelError",
    "Session",
    "Settings",
    "Skill",
    "Snapshot",
    "Trace",
    "build_catalogue",
    "fill_template",
    "load_settings",
    "validate_folder",
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
