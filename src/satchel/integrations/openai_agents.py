"""Skills for the OpenAI Agents SDK, as an `Agent` with a session.

    session = Satchel.for_project(".").session()
    agent = SkillsAgent("Helper", instructions="...", skills=session)
    result = await Runner.run(agent, session.with_tail("review my change"))

The SDK gives tools no conversation id, so one session is one conversation: create an
agent for each, which is cheap. A sub-agent gets `session.child()`.
"""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from satchel._optional import require
from satchel.integrations.base import (
    SKILL,
    acall,
    apermit,
    atools_of,
    forget_lost,
    joined,
    sessions_of,
    shadowed,
    tools_of,
)

try:
    from agents import Agent, FunctionTool, ToolGuardrailFunctionOutput, ToolInputGuardrail
except ImportError:
    require("agents", "openai-agents")
    raise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agents import RunContextWrapper, Tool, ToolInputGuardrailData
    from agents.tool_context import ToolContext

    from satchel.integrations.base import SkillsSource, ToolSpec
    from satchel.session.session import Session

__all__ = ["SkillsAgent", "skill_tools"]


@dataclass
class SkillsAgent(Agent[Any]):
    """An agent with skills: the catalogue in its system prompt, and the current tools."""

    skills: SkillsSource = field(default=None, kw_only=True)
    """The session of the conversation, or a `Satchel` or a folder to create one."""
    _run: object = field(default=None, init=False, repr=False, compare=False)
    """The run whose history was checked last."""
    _is_tool: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether it is a tool: then each run is a separate, possibly concurrent, conversation."""
    _child_runs: list[Any] = field(default_factory=list[Any], init=False, repr=False, compare=False)
    """Weak references to those runs, with the session of each."""

    def __post_init__(self) -> None:
        """Create a session if there is none."""
        super().__post_init__()
        self.skills = sessions_of(self.skills).of()

    @property
    def session(self) -> Session:
        """The session of this conversation."""
        return cast("Session", self.skills)

    def as_tool(self, *args: Any, **more: Any) -> FunctionTool:
        """`Agent.as_tool`; each call starts a conversation below this session."""
        self._is_tool = True
        return super().as_tool(*args, **more)

    def _session_in(self, run: RunContextWrapper[Any]) -> Session:
        if not self._is_tool:
            return self.session
        runs: list[tuple[weakref.ref[RunContextWrapper[Any]], Session]] = self._child_runs
        runs[:] = [one for one in runs if one[0]() is not None]
        for known, session in runs:
            if known() is run:
                return session
        runs.append((weakref.ref(run), self.session.child()))
        return runs[-1][1]

    async def get_system_prompt(self, run_context: RunContextWrapper[Any]) -> str | None:
        """The agent's own instructions, then the catalogue."""
        own = await super().get_system_prompt(run_context)
        session = self._session_in(run_context)
        return joined(own, await session.aprompt()) or None

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """The agent's own tools, then the session's current ones."""
        session = self._session_in(run_context)
        if self._run is not run_context and not self._is_tool:
            self._run = run_context  # later in a run its results are not in `turn_input`
            forget_lost(session, _results(run_context.turn_input))
        own = await super().get_all_tools(run_context)
        ours = [_function(session, spec) for spec in await atools_of(session)]
        hidden = shadowed(session, (tool.name for tool in own), (tool.name for tool in ours))
        guarded = [_guarded(session, tool) for tool in own]
        return [*guarded, *(tool for tool in ours if tool.name not in hidden)]


def skill_tools(session: Session) -> list[FunctionTool]:
    """The current tools, for a custom `Agent`.

    Add `session.prompt` to its instructions. Skills added later are not in this
    list; a `SkillsAgent` lists tools before each request.
    """
    return [_function(session, spec) for spec in tools_of(session)]


def _function(session: Session, spec: ToolSpec) -> FunctionTool:
    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        del context
        return (await acall(session, spec.name, arguments)).text

    return FunctionTool(
        name=spec.name,
        description=spec.description,
        params_json_schema=spec.parameters,
        on_invoke_tool=invoke,
        strict_json_schema=False,  # strict mode forbids optional parameters
    )


def _guarded(session: Session, tool: Tool) -> Tool:
    """Wrap a host tool, denied while a loaded skill forbids it."""
    if not isinstance(tool, FunctionTool):
        return tool

    async def satchel(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        refusal = await apermit(session, tool.name, data.context.tool_arguments)
        if refusal:
            return ToolGuardrailFunctionOutput.reject_content(refusal.text)
        return ToolGuardrailFunctionOutput.allow()

    guarded = copy.copy(tool)
    guarded.tool_input_guardrails = [
        ToolInputGuardrail(satchel),
        *(tool.tool_input_guardrails or ()),
    ]
    return guarded


def _results(items: Sequence[object]) -> Iterator[str]:
    tables = [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]
    ours = {
        item.get("call_id")
        for item in tables
        if item.get("type") == "function_call" and item.get("name") == SKILL
    }
    for item in tables:
        if item.get("type") == "function_call_output" and item.get("call_id") in ours:
            yield str(item.get("output"))
