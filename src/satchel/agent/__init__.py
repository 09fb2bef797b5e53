"""THE REFERENCE AGENT: skills in a conversation with any model that pydantic-ai speaks to.

agent = Agent.for_project(".", model="anthropic:claude-sonnet-5")
print(await agent.run("review src/app.py"))

Reading order: `agent` (the object hosts hold), `toolset` (what a model may call), `delegation`
(sub-agents, and skills that run in one), `trimming` (what stays of a long conversation),
`records` (what comes back). The loop itself is pydantic-ai's; the rules are `tools.session`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.agent.records import (
    Event,
    Limits,
    SkillLoaded,
    SubAgent,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnDone,
    TurnReport,
    TurnResult,
)

if TYPE_CHECKING:
    from satchel.agent.agent import Agent

__all__ = [
    "Agent",
    "Event",
    "Limits",
    "SkillLoaded",
    "SubAgent",
    "TextDelta",
    "ToolEnded",
    "ToolStarted",
    "TurnDone",
    "TurnReport",
    "TurnResult",
]


def __getattr__(name: str) -> Any:
    if name != "Agent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from satchel._optional import require

    require("pydantic_ai", "agent")
    from satchel.agent.agent import Agent

    return Agent
