"""Skills for pydantic-ai, as a capability or as a toolset.

The toolset adds the catalogue as instructions and lists the tools before each request; the
capability also appends the shortlist to the user's prompt. Each conversation (`conversation_id`,
which pydantic-ai takes from the message history) has its own session.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from satchel._optional import require
from satchel.integrations.base import (
    FORBIDDEN,
    acall,
    apermit,
    atail,
    newest_forbidden,
    running,
    sessions_of,
    shadowed,
    specs_in,
)

try:
    from pydantic_ai import ToolDefinition, ToolFailed
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import InstructionPart, ModelRequest, UserPromptPart
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema

    from satchel.agent.history_trimmer import prompt_texts, read_history
except ImportError:
    require("pydantic_ai", "pydantic-ai")
    raise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Unpack

    from pydantic_ai import RunContext
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.run import AgentRunResult

    from satchel.integrations.base import ChildOptions, SessionOptions, Sessions
    from satchel.integrations.base import SkillsSource as Given
    from satchel.session.history import ConversationHistory
    from satchel.session.session import Session

__all__ = ["SkillToolset", "SkillsCapability"]

_ANYTHING = SchemaValidator(core_schema.any_schema())
"""Satchel validates arguments itself, with its own messages."""


class SkillToolset(AbstractToolset[Any]):
    """The tools, with the catalogue as their instructions; without the shortlist."""

    def __init__(self, skills: Given | Sessions = None, **options: Unpack[SessionOptions]) -> None:
        """Create a toolset; no request is made.

        Args:
            skills: A `Satchel` or a project's folder (None: the current one), from which each
                conversation gets its own session; or the session of a single conversation.
            options: As for `Satchel.session`, for the sessions that it creates; see
                `SessionOptions`.
        """
        self.sessions = sessions_of(skills, **options)
        self._hosts: WeakKeyDictionary[Session, set[str]] = WeakKeyDictionary()
        self._ours: WeakKeyDictionary[Session, set[str]] = WeakKeyDictionary()
        self._runs: WeakKeyDictionary[Session, str] = WeakKeyDictionary()
        """The run in which each session started its last turn."""

    @property
    def id(self) -> str | None:
        """Its id for durable execution."""
        return "satchel"

    def session(self, ctx: RunContext[Any]) -> Session:
        """The session of the running conversation."""
        return self.sessions.of(ctx.conversation_id or ctx.run_id or "")

    async def sync(self, ctx: RunContext[Any]) -> None:
        """Read from the history of a run what the session has to know, before a tool is called."""
        session, history = self.session(ctx), _history(ctx.messages)
        await asyncio.to_thread(session.sync, history, complete=False)

    async def _prompt_and_tools(self, ctx: RunContext[Any]) -> tuple[str, list[dict[str, Any]]]:
        """Prompt and tools; the disk is scanned once per run."""
        session = self.session(ctx)
        run = ctx.run_id or ""
        if self._runs.get(session) != run:
            self._runs[session] = run
            await session.abegin_turn()
            await self.sync(ctx)
        return await session.aprompt_and_definitions()

    async def get_instructions(self, ctx: RunContext[Any]) -> InstructionPart | None:
        """The catalogue. It is frozen, so that a provider may cache it."""
        text, _ = await self._prompt_and_tools(ctx)
        return InstructionPart(text, name="skills") if text else None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The current tools, without names that the agent's own tools have."""
        session = self.session(ctx)
        _, definitions = await self._prompt_and_tools(ctx)
        specs = specs_in(definitions)
        ours = self._ours[session] = {spec.name for spec in specs}
        hidden = shadowed(session, await self._taken(ctx), ours)
        return {
            spec.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=spec.name,
                    description=spec.description,
                    parameters_json_schema=spec.parameters,
                ),
                max_retries=0,
                args_validator=_ANYTHING,
            )
            for spec in specs
            if spec.name not in hidden
        }

    async def _taken(self, ctx: RunContext[Any]) -> set[str]:
        """The names of the agent's other tools: a duplicate would abort the run."""
        names: set[str] = set()
        for toolset in ctx.agent.toolsets if ctx.agent is not None else ():
            leaves: list[AbstractToolset[Any]] = []
            toolset.apply(leaves.append)
            if not any(isinstance(leaf, SkillToolset) for leaf in leaves):
                names.update(await toolset.get_tools(ctx))
        self._hosts[self.session(ctx)] = names
        return names

    def is_ours(self, ctx: RunContext[Any], name: str) -> bool:
        """Whether a tool is the session's, and not one of the agent's own."""
        session = self.session(ctx)
        return name in self._ours.get(session, ()) and name not in self._hosts.get(session, ())

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool. A failure is returned to the model, and not retried automatically."""
        del tool
        reply = await acall(
            self.session(ctx), name, tool_args, ctx.tool_call_id, approved=ctx.tool_call_approved
        )
        if reply.failed:
            raise ToolFailed(reply.text)
        return reply.text


class SkillsCapability(AbstractCapability[Any]):
    """Adds skills to an agent of pydantic-ai: the catalogue, the tools and the shortlist.

    Each conversation, which pydantic-ai knows by its `conversation_id`, has its own session.

    Example:
        from pydantic_ai import Agent
        from satchel import Satchel
        from satchel.integrations.pydantic_ai import SkillsCapability

        skills = SkillsCapability(Satchel.for_project("."), exclude=["draft-*"])
        agent = Agent("anthropic:claude-sonnet-5", capabilities=[skills])
        result = agent.run_sync("Please review my change")
        assert result.output == "Nothing can break."
    """

    def __init__(self, skills: Given | Sessions = None, **options: Unpack[SessionOptions]) -> None:
        """Create a capability; no request is made.

        Args:
            skills: A `Satchel` or a project's folder (None: the current one), from which each
                conversation gets its own session; or the session of a single conversation.
            options: As for `Satchel.session`, for the sessions that it creates; see
                `SessionOptions`.
        """
        self.id = "satchel"
        self.toolset = SkillToolset(skills, **options)

    def child(self, **limits: Unpack[ChildOptions]) -> SkillsCapability:
        """A capability for a sub-agent, limited to what the starting agent may do.

        Args:
            limits: What the sub-agent may use; see `ChildOptions`.
        """
        return SkillsCapability(self.toolset.sessions.child(**limits))

    def get_toolset(self) -> SkillToolset:
        """The tools."""
        return self.toolset

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: Callable[[], Awaitable[AgentRunResult[Any]]]
    ) -> AgentRunResult[Any]:
        """Run the agent; agents that its tools start become children of its session."""
        await self.toolset.sync(ctx)
        with running(self.toolset.session(ctx)):
            return await handler()

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Append the shortlist to the user's prompt, where it stays in the history."""
        session = self.toolset.session(ctx)
        history = _history(request_context.messages)
        last = request_context.messages[-1]
        prompts = [part for part in last.parts if isinstance(part, UserPromptPart)]
        if ctx.run_step > 1 or not isinstance(last, ModelRequest) or not prompts:
            await asyncio.to_thread(session.sync, history)
            if session.forbidden:  # `run_stream` does not keep the metadata of its last reply
                last.metadata = {**(last.metadata or {}), FORBIDDEN: session.forbidden}
            return request_context
        prompt = prompts[-1].content
        text = "\n".join(prompt_texts(prompts[-1]))
        if appended := await atail(session, text, history):
            content = f"{prompt}\n\n{appended}" if isinstance(prompt, str) else [*prompt, appended]
            part = replace(prompts[-1], content=content)
            last.parts = [
                part if request_part is prompts[-1] else request_part for request_part in last.parts
            ]
        return request_context

    async def after_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        """Store what the loaded skills forbid: a summary may replace their texts."""
        del request_context
        forbidden = self.toolset.session(ctx).forbidden
        if not forbidden:
            return response
        return replace(response, metadata={**(response.metadata or {}), FORBIDDEN: forbidden})

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        """Deny a host tool that a loaded skill forbids."""
        del call
        session = self.toolset.session(ctx)
        if not self.toolset.is_ours(ctx, tool_def.name) and (
            refusal := await apermit(session, tool_def.name, args)
        ):
            raise ToolFailed(refusal.text)
        return await handler(args)


def _history(messages: Sequence[ModelMessage]) -> ConversationHistory:
    forbidden = newest_forbidden(message.metadata for message in messages)
    return read_history(messages)._replace(forbidden=forbidden)
