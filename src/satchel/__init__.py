"""Satchel: the skill system for agents.

Layers, from the top down:

    cli, ui       terminal and web UI
    presentation  records that both of them show
    integrations  adapters for agent frameworks, and the MCP server
    authoring     writes and checks skills
    agent         reference agent, built on pydantic-ai
    goals         plans whose steps survive a crash
    satchel       Satchel, one object that composes the layers below; SkillLoader, for one folder
    session       Session: one conversation and its permissions
    tools, store  tools that a model calls; changes of skills on disk
    library       finds skills                  (Library, Location)
    catalogue     renders the list for prompts  (Catalogue, Budget)
    detect        selects skills                (Detector, Match)
    runners       runs programs in a sandbox
    security      scans skills
    skill         parses skills                 (Skill, Problem)
    settings, envelope, trace, errors

Names are imported on first use to keep `import satchel` fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers read it as True; importing `typing` takes 10 ms

__version__ = "0.2.0"

if TYPE_CHECKING:
    from typing import Any

    from satchel.catalogue import Budget, Catalogue, build_catalogue
    from satchel.detect import Detector, Match
    from satchel.envelope import Envelope
    from satchel.errors import SatchelError
    from satchel.library import Filter, Library, Location
    from satchel.library.skill_source import SkillSource, skill_from_text
    from satchel.satchel import Satchel
    from satchel.session.options import SessionOptions
    from satchel.session.permissions import ApprovalRequest, Approve
    from satchel.session.session import Session
    from satchel.skill import Problem, Skill
    from satchel.skill_loader import SkillLoader
    from satchel.store.store import Store
    from satchel.trace import Trace

_HOMES = {
    "ApprovalRequest": "satchel.session.permissions",
    "Approve": "satchel.session.permissions",
    "Budget": "satchel.catalogue",
    "Catalogue": "satchel.catalogue",
    "Detector": "satchel.detect",
    "Envelope": "satchel.envelope",
    "Filter": "satchel.library",
    "Library": "satchel.library",
    "Location": "satchel.library",
    "Match": "satchel.detect",
    "Problem": "satchel.skill",
    "Satchel": "satchel.satchel",
    "SatchelError": "satchel.errors",
    "Session": "satchel.session.session",
    "SessionOptions": "satchel.session.options",
    "Skill": "satchel.skill",
    "SkillLoader": "satchel.skill_loader",
    "SkillSource": "satchel.library.skill_source",
    "Store": "satchel.store.store",
    "Trace": "satchel.trace",
    "build_catalogue": "satchel.catalogue",
    "skill_from_text": "satchel.library.skill_source",
}

__all__ = [
    "ApprovalRequest",
    "Approve",
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
    "SessionOptions",
    "Skill",
    "SkillLoader",
    "SkillSource",
    "Store",
    "Trace",
    "build_catalogue",
    "skill_from_text",
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
