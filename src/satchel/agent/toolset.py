"""Toolsets for pydantic-ai: the tools of a session, the host's tools, and delegation.

Every call is counted, checked and reported in one place, whichever toolset it belongs to. Tools
that appear during a turn are declared in its next request: pydantic-ai lists the tools before each
one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai.exceptions import (
    AgentRunError,
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    UserError,
)
from pydantic_ai.messages import InstructionPart, ToolReturn
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, ToolsetTool, WrapperToolset
from pydantic_core import SchemaValidator, core_schema

from satchel.agent.events import SkillLoaded, ToolEnded, ToolStarted, Turn
from satchel.session.history import SKILL
from satchel.tools.framing import one_line
from satchel.tools.proposed_changes import change_notes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai import RunContext

    from satchel.envelope import Envelope
    from satchel.session.session import Session

_ANY_VALIDATOR = SchemaValidator(schema=core_schema.any_schema())
_MAX_INVALID_CALLS = 3
"""Consecutive calls whose arguments are no JSON."""
_MAX_ERROR_CHARS = 500
_STATUS_KEY = "satchel_status"
"""Key of the status of a partial result, in metadata that pydantic-ai does not send."""
_PYDANTIC_AI_ERRORS = (
    AgentRunError,
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    UserError,
)
"""Exceptions that pydantic-ai itself handles."""


class SessionToolset(AbstractToolset[Turn]):
    """The tools of a session for pydantic-ai, and its prompt as instructions."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cached_step: tuple[str | None, int] | None = None
        self._cached_prompt_and_tools: tuple[str, list[dict[str, Any]]] = ("", [])

    @property
    def id(self) -> str:
        """Its id for pydantic-ai."""
        return "satchel"

    async def get_instructions(self, ctx: RunContext[Turn]) -> InstructionPart | None:
        """The frozen prompt, as a part that providers may cache."""
        text, _ = await self._prompt_and_tools(ctx)
        return InstructionPart(content=text, dynamic=False) if text else None

    async def get_tools(self, ctx: RunContext[Turn]) -> dict[str, ToolsetTool[Turn]]:
        """The tools for the next request."""
        tools_by_name: dict[str, ToolsetTool[Turn]] = {}
        _, tools = await self._prompt_and_tools(ctx)
        for tool in tools:
            name = str(tool["name"])
            tools_by_name[name] = as_tool(self, name, tool["description"], tool["input_schema"])
        return tools_by_name

    async def _prompt_and_tools(self, ctx: RunContext[Turn]) -> tuple[str, list[dict[str, Any]]]:
        """Prompt and tools of a request, computed once and in a thread."""
        step = (ctx.run_id, ctx.run_step)
        if self._cached_step != step:
            self._cached_prompt_and_tools = await self._session.aprompt_and_definitions()
            self._cached_step = step
        return self._cached_prompt_and_tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        """Call a tool of the session."""
        del tool
        turn = ctx.deps
        if name != SKILL:
            return await self._call_session(name, tool_args, turn)
        # In the order of calls: if a skill is loaded twice, the first call has its text.
        async with turn.load_lock:
            return await self._call_session(name, tool_args, turn)

    async def _call_session(self, name: str, tool_args: dict[str, Any], turn: Turn) -> Any:
        reply = await self._session.acall(name, tool_args)
        if reply.error is not None:
            raise ToolFailed(reply.text)
        if name == SKILL:
            self._emit_loaded(reply, turn)
        turn.changes += change_notes(reply.data)
        notice = await self._session.achange_notice()
        text = f"{reply.text}\n\n{notice}" if notice else reply.text
        if reply.status != "partial":
            return text
        return ToolReturn(text, metadata={_STATUS_KEY: "partial"})

    def _emit_loaded(self, reply: Envelope, turn: Turn) -> None:
        name = str(reply.data.get("name", ""))
        is_repeated = bool(reply.data.get("already_loaded"))
        if not is_repeated:
            turn.count_skill(name)
        record = self._session.loaded.get(name)
        turn.emit(
            SkillLoaded(
                name,
                digest=record.digest if record is not None else "",
                characters=record.characters if record is not None and not is_repeated else 0,
                again=is_repeated,
                agent=turn.agent,
            )
        )


@dataclass
class MeteredToolset(WrapperToolset[Turn]):
    """Counts each call, refuses it beyond the limit, and emits its events."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        """Call a tool with counting and events."""
        turn = ctx.deps
        call_id = ctx.tool_call_id or ""
        if not turn.count_call(name):
            limit = turn.limits.tool_calls
            raise ToolFailed(
                f"`{name}` was not called: this turn has made its {limit} calls of tools. "
                "Finish now with what you have"
            )
        turn.emit(ToolStarted(name, tool_args, call_id, turn.agent))
        started = time.monotonic()

        def emit_end(status: Any, text: str) -> None:
            seconds = round(time.monotonic() - started, 3)
            turn.emit(
                ToolEnded(name, status, text, seconds=seconds, call_id=call_id, agent=turn.agent)
            )

        try:
            result = await super().call_tool(name, tool_args, ctx, tool)
        except (ToolFailed, ModelRetry) as exc:
            emit_end("error", exc.message)
            raise
        except Exception as exc:
            emit_end("error", f"{type(exc).__name__}: {exc}")
            raise
        emit_end(*_status_and_text(result))
        return result


def _status_and_text(result: object) -> tuple[str, str]:
    """Return the status of a result for `ToolEnded`, and what the model reads."""
    if not isinstance(result, ToolReturn):
        return "success", str(result)
    tool_return = cast("ToolReturn[object]", result)
    metadata: object = tool_return.metadata
    is_partial = metadata == {_STATUS_KEY: "partial"}
    return "partial" if is_partial else "success", str(tool_return.return_value)


@dataclass
class HostPriorityToolset(CombinedToolset[Turn]):
    """Session tools and host tools; the host's win name conflicts, so no skill replaces one.

    pydantic-ai aborts a run in which two tools have the same name, and skills may appear at any
    time.
    """

    session: Session

    _reported: set[str] = field(init=False, default_factory=set[str])
    """Names whose conflict the trace has already."""

    async def get_tools(self, ctx: RunContext[Turn]) -> dict[str, ToolsetTool[Turn]]:
        """The tools for the next request."""
        session_toolset, *host_toolsets = self.toolsets
        host_tools = [await toolset.get_tools(ctx) for toolset in host_toolsets]
        host_names = {name for tools in host_tools for name in tools}
        session_tools = await session_toolset.get_tools(ctx)
        for name in sorted(host_names & session_tools.keys() - self._reported):
            self._reported.add(name)
            reason = "a tool of the host has this name"
            self.session.trace.record("shadowed", (), tool=name, reason=reason)
        unshadowed = {name: tool for name, tool in session_tools.items() if name not in host_names}
        pairs = zip(self.toolsets, (unshadowed, *host_tools), strict=True)
        resolved = [_ResolvedToolset(toolset, tools) for toolset, tools in pairs]
        return await CombinedToolset[Turn](resolved).get_tools(ctx)


@dataclass
class _ResolvedToolset(WrapperToolset[Turn]):
    """A toolset whose tools were listed already."""

    tools: dict[str, ToolsetTool[Turn]]

    async def get_tools(self, ctx: RunContext[Turn]) -> dict[str, ToolsetTool[Turn]]:
        del ctx
        return self.tools


@dataclass
class PermissionToolset(WrapperToolset[Turn]):
    """The host's tools, as far as the session's permissions allow."""

    session: Session

    async def get_tools(self, ctx: RunContext[Turn]) -> dict[str, ToolsetTool[Turn]]:
        """The permitted tools of this conversation."""
        tools = await super().get_tools(ctx)
        return {name: tool for name, tool in tools.items() if self.session.offers(name)}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        """Check the permission, then call the tool."""
        refusal = await self.session.arefusal_for(name, tool_args)
        if refusal is not None:
            raise ToolFailed(refusal.text)
        try:
            return await super().call_tool(name, tool_args, ctx, tool)
        except _PYDANTIC_AI_ERRORS:
            raise
        except Exception as exc:
            # A tool must return a result: the model can react to it.
            reason = one_line(f"{type(exc).__name__}: {exc}", _MAX_ERROR_CHARS)
            raise ToolFailed(f"`{name}` failed: {reason}") from exc


def as_tool(
    toolset: AbstractToolset[Turn], name: str, description: str, schema: Mapping[str, Any]
) -> ToolsetTool[Turn]:
    """Convert a tool for pydantic-ai. The session validates the arguments, with better messages."""
    definition = ToolDefinition(
        name=name,
        description=description,
        parameters_json_schema=cast("dict[str, Any]", schema),
        strict=False,
    )
    return ToolsetTool(
        toolset=toolset,
        tool_def=definition,
        max_retries=_MAX_INVALID_CALLS,
        args_validator=_ANY_VALIDATOR,
    )
