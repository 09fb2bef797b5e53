"""The reference agent: a conversation with skills, on any model that pydantic-ai supports.

agent = Agent.for_project(".", model="anthropic:claude-sonnet-5")
print(await agent.run("review src/app.py"))

Reading order: `agent` (the object hosts hold), `toolset` (what a model may call), `delegation`
(sub-agents, and skills that run in one), `trimming` (what stays of a long conversation),
`records` (what comes back). The loop itself is pydantic-ai's; the rules are `tools.session`'s.

For goals: `tool_steps` and `steps` (who does them, without and with a model), `planner` (who asks
a model for a plan), `limited` (how a provider is kept from being asked too often).
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
    from satchel.agent.planner import AgentPlanner
    from satchel.agent.steps import AgentSteps

__all__ = [
    "Agent",
    "AgentPlanner",
    "AgentSteps",
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


_WHERE = {"Agent": "agent", "AgentPlanner": "planner", "AgentSteps": "steps"}
"""What needs the package of models, and is imported when it is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from satchel._optional import require

    require("pydantic_ai", "agent")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
