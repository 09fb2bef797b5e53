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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai import RunContext

    from satchel.envelope import Envelope
    from satchel.session.session import Session

_ANY = SchemaValidator(schema=core_schema.any_schema())
_MAX_INVALID_CALLS = 3
"""Consecutive calls whose arguments are no JSON."""
_MAX_ERROR_CHARS = 500
_STATUS = "satchel_status"
"""Marks a partial result in metadata that pydantic-ai does not send."""
_CONTROL = (AgentRunError, ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UserError)
"""Exceptions that pydantic-ai itself handles."""


class SessionToolset(AbstractToolset[Turn]):
    """The tools of a session for pydantic-ai, and its prompt as instructions."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last: tuple[Any, tuple[str, list[dict[str, Any]]]] | None = None

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
        found: dict[str, ToolsetTool[Turn]] = {}
        _, tools = await self._prompt_and_tools(ctx)
        for one in tools:
            name = str(one["name"])
            found[name] = as_tool(self, name, one["description"], one["input_schema"])
        return found

    async def _prompt_and_tools(self, ctx: RunContext[Turn]) -> tuple[str, list[dict[str, Any]]]:
        """Prompt and tools of a request, computed once and in a thread."""
        step = (ctx.run_id, ctx.run_step)
        if self._last is None or self._last[0] != step:
            self._last = (step, await self._session.atold())
        return self._last[1]

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        """Call a tool of the session."""
        del tool
        turn = ctx.deps
        if name != SKILL:
            return await self._answer(name, tool_args, turn)
        # In the order of calls: if a skill is loaded twice, the first call has its text.
        async with turn.loading:
            return await self._answer(name, tool_args, turn)

    async def _answer(self, name: str, tool_args: dict[str, Any], turn: Turn) -> Any:
        reply = await self._session.acall(name, tool_args)
        if reply.error is not None:
            raise ToolFailed(reply.text)
        if name == SKILL:
            self._emit_loaded(reply, turn)
        news = await self._session.anews()
        text = f"{reply.text}\n\n{news}" if news else reply.text
        if reply.status != "partial":
            return text
        return ToolReturn(text, metadata={_STATUS: "partial"})

    def _emit_loaded(self, reply: Envelope, turn: Turn) -> None:
        name = str(reply.data.get("name", ""))
        again = bool(reply.data.get("already_loaded"))
        held = self._session.loaded.get(name)
        if not again:
            turn.loaded(name)
        digest, size = (held.digest, held.characters) if held is not None else ("", 0)
        turn.emit(SkillLoaded(name, digest, 0 if again else size, again, turn.agent))


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
            most = turn.limits.tool_calls
            raise ToolFailed(
                f"`{name}` was not called: this turn has made its {most} calls of tools. "
                "Finish now with what you have"
            )
        turn.emit(ToolStarted(name, tool_args, call_id, turn.agent))
        started = time.monotonic()

        def ended(status: Any, text: str) -> None:
            seconds = round(time.monotonic() - started, 3)
            turn.emit(ToolEnded(name, status, text, seconds, call_id, turn.agent))

        try:
            result = await super().call_tool(name, tool_args, ctx, tool)
        except (ToolFailed, ModelRetry) as exc:
            ended("error", exc.message)
            raise
        except Exception as exc:
            ended("error", f"{type(exc).__name__}: {exc}")
            raise
        ended(*_outcome(result))
        return result


def _outcome(result: object) -> tuple[str, str]:
    if not isinstance(result, ToolReturn):
        return "success", str(result)
    made = cast("ToolReturn[object]", result)
    marks: object = made.metadata
    part = marks == {_STATUS: "partial"}
    return "partial" if part else "success", str(made.return_value)


@dataclass
class HostPriorityToolset(CombinedToolset[Turn]):
    """Session tools and host tools; the host's win name conflicts, so no skill replaces one.

    pydantic-ai aborts a run in which two tools have the same name, and skills may appear at any
    time.
    """

    session: Session

    _reported: set[str] = field(init=False, default_factory=set[str])

    async def get_tools(self, ctx: RunContext[Turn]) -> dict[str, ToolsetTool[Turn]]:
        """The tools for the next request."""
        ours, *others = self.toolsets
        theirs = [await one.get_tools(ctx) for one in others]
        taken = {name for tools in theirs for name in tools}
        mine = await ours.get_tools(ctx)
        for name in sorted(taken & mine.keys() - self._reported):
            self._reported.add(name)
            reason = "a tool of the host has this name"
            self.session.trace.record("shadowed", (), tool=name, reason=reason)
        first = {name: tool for name, tool in mine.items() if name not in taken}
        pairs = zip(self.toolsets, (first, *theirs), strict=True)
        known = [_ResolvedToolset(one, tools) for one, tools in pairs]
        return await CombinedToolset[Turn](known).get_tools(ctx)


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
        found = await super().get_tools(ctx)
        return {name: tool for name, tool in found.items() if self.session.offers(name)}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        """Check the permission, then call the tool."""
        refusal = await self.session.apermit(name, tool_args)
        if refusal is not None:
            raise ToolFailed(refusal.text)
        try:
            return await super().call_tool(name, tool_args, ctx, tool)
        except _CONTROL:
            raise
        except Exception as exc:
            # A tool must return a result: the model can react to it.
            words = one_line(f"{type(exc).__name__}: {exc}", _MAX_ERROR_CHARS)
            raise ToolFailed(f"`{name}` failed: {words}") from exc


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
        toolset=toolset, tool_def=definition, max_retries=_MAX_INVALID_CALLS, args_validator=_ANY
    )
