"""The reference agent: a conversation with skills, on any model that pydantic-ai supports.

    agent = Agent.for_project(".", model="anthropic:claude-sonnet-5")
    print(await agent.run("review src/app.py"))

Reading order: `agent` (the public object), `toolset` (the tools of a model), `subagents`
(pydantic-ai's agents, and sub-agents), `history_trimmer` (long conversations), `events` (results
and events). The loop is pydantic-ai's; the rules are those of `session`.

For goals: `tool_steps` and `goal_steps` (run steps, without and with a model), `planner` (asks
a model for a plan), `models` (rate limits and errors of providers).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from satchel.agent.events import (
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
    from satchel.agent.goal_steps import AgentSteps
    from satchel.agent.planner import AgentPlanner

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


_MODULES = {"Agent": "agent", "AgentPlanner": "planner", "AgentSteps": "goal_steps"}
"""Names that need pydantic-ai, imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    from satchel._optional import require

    require("pydantic_ai", "agent")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
