"""Skills for the OpenAI Agents SDK, as an `Agent` with a session.

With a `Session` an agent is one conversation. With a `Satchel` it serves any number of them: each
run has its own session, which reads from the run's input what was loaded before. A sub-agent gets
`session.child()`.
"""

from __future__ import annotations

import asyncio
import copy
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from satchel._optional import require
from satchel.errors import InvalidInput
from satchel.i18n import say
from satchel.integrations.base import (
    acall,
    apermit,
    atools_of,
    join_texts,
    sessions_of,
    shadowed,
    tools_of,
)
from satchel.session.history import read_messages

try:
    from agents import Agent, FunctionTool, ToolGuardrailFunctionOutput, ToolInputGuardrail
except ImportError:
    require("agents", "openai-agents")
    raise

if TYPE_CHECKING:
    from agents import RunContextWrapper, Tool, ToolInputGuardrailData
    from agents.tool_context import ToolContext

    from satchel.integrations.base import SessionOptions, Sessions, SkillsSource, ToolSpec
    from satchel.session.session import Session

__all__ = ["SkillsAgent", "skill_tools"]


@dataclass
class SkillsAgent(Agent[Any]):
    """An `Agent` of the SDK with skills: the catalogue in its system prompt, and the current tools.

    All arguments of the SDK's `Agent` can be given, too.

    Example:
        import asyncio

        from agents import Runner, set_tracing_disabled
        from satchel import Satchel
        from satchel.integrations.openai_agents import SkillsAgent

        set_tracing_disabled(disabled=True)
        session = Satchel.for_project(".").session()
        agent = SkillsAgent("Helper", instructions="You help here.", skills=session)


        async def ask(words):
            return await Runner.run(agent, session.with_tail(words))


        assert asyncio.run(ask("Please review my change")).final_output == "Nothing can break."
    """

    skills: SkillsSource | Sessions = field(default=None, kw_only=True)
    """The session of one conversation; or a `Satchel` or a folder, for any number of them."""
    session_options: SessionOptions | None = field(default=None, kw_only=True)
    """Options of the sessions that are created from them; see `Satchel.session`."""
    _run: object = field(default=None, init=False, repr=False, compare=False)
    """The run whose history was checked last."""
    _is_tool: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether it is a tool: then each run is a separate, possibly concurrent, conversation."""
    _runs: list[Any] = field(default_factory=list[Any], init=False, repr=False, compare=False)
    """Weak references to the runs that have a session of their own, with it."""

    def __post_init__(self) -> None:
        """Check where sessions come from."""
        super().__post_init__()
        self.skills = sessions_of(self.skills, **(self.session_options or {}))
        self.session_options = None  # a clone shares the sessions

    @property
    def session(self) -> Session:
        """The session of the conversation.

        Raises:
            InvalidInput: the agent has a `Satchel`, and so no single conversation.
        """
        single = cast("Sessions", self.skills).single
        if single is None:
            raise InvalidInput(
                say("This agent has a session for each run"),
                say("Pass `skills=satchel.session()`, or use `satchel.with_shortlist`"),
            )
        return single

    def as_tool(self, *args: Any, **options: Any) -> FunctionTool:
        """`Agent.as_tool`; each call starts a conversation below this session."""
        self._is_tool = True
        return super().as_tool(*args, **options)

    def _session_in(self, run: RunContextWrapper[Any]) -> Session:
        """The session of a run, with what its input tells."""
        sessions = cast("Sessions", self.skills)
        single, is_first = sessions.single, False
        if single is not None and not self._is_tool:
            session = single
            is_first, self._run = self._run is not run, run
        else:
            session = self._own_session(run, sessions)
        # Later in a run its results are not in `turn_input`, so nothing counts as trimmed.
        session.sync(read_messages(run.turn_input), complete=is_first)
        return session

    def _own_session(self, run: RunContextWrapper[Any], sessions: Sessions) -> Session:
        runs: list[tuple[weakref.ref[RunContextWrapper[Any]], Session]] = self._runs
        runs[:] = [run_entry for run_entry in runs if run_entry[0]() is not None]
        for run_reference, session in runs:
            if run_reference() is run:
                return session
        new = sessions.single.child() if sessions.single is not None else sessions.begin()
        runs.append((weakref.ref(run), new))
        return new

    async def get_system_prompt(self, run_context: RunContextWrapper[Any]) -> str | None:
        """The agent's own instructions, then the catalogue."""
        instructions = await super().get_system_prompt(run_context)
        session = await asyncio.to_thread(self._session_in, run_context)
        return join_texts(instructions, await session.aprompt()) or None

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        """The agent's own tools, then the session's current ones."""
        session = await asyncio.to_thread(self._session_in, run_context)
        tools = await super().get_all_tools(run_context)
        ours = [_function(session, spec) for spec in await atools_of(session)]
        hidden = shadowed(session, (tool.name for tool in tools), (tool.name for tool in ours))
        guarded = [_guarded(session, tool) for tool in tools]
        return [*guarded, *(tool for tool in ours if tool.name not in hidden)]


def skill_tools(session: Session) -> list[FunctionTool]:
    """The current tools, for a custom `Agent`.

    Add `session.prompt` to its instructions. Skills added later are not in this
    list; a `SkillsAgent` lists tools before each request.

    Args:
        session: The session of the conversation.
    """
    return [_function(session, spec) for spec in tools_of(session)]


def _function(session: Session, spec: ToolSpec) -> FunctionTool:
    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        call_id = context.tool_call_id
        approved = context.is_tool_approved(spec.name, call_id) is True
        return (await acall(session, spec.name, arguments, call_id, approved=approved)).text

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
