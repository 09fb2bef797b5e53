"""What a model may call: the tools of a session, the host's own, and delegation, all behind it.

Each call is counted, checked and told in one place, whoever's tool it is. A tool that can be
called in the next request is declared in it: pydantic-ai asks for the tools before each one.
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

from satchel.agent.records import SkillLoaded, ToolEnded, ToolStarted
from satchel.agent.turn import Turn
from satchel.errors import SatchelError
from satchel.goals.clock import working
from satchel.tools.frame import one_line
from satchel.tools.presence import SKILL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pydantic_ai import RunContext

    from satchel.envelope import Envelope
    from satchel.tools.base import Resolved
    from satchel.tools.session import Arguments, Session

_ANY = SchemaValidator(schema=core_schema.any_schema())
_SLIPS = 3
"""Times in a row that a model may send arguments that are no JSON."""
_LONGEST = 500
_STATUS = "satchel_status"
"""Where a result says that it is only a part; in what pydantic-ai sends to nobody."""
_CONTROL = (AgentRunError, ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UserError)
"""What pydantic-ai itself wants to see."""


class SkillToolset(AbstractToolset[Turn]):
    """The tools of a session for pydantic-ai, and its prompt as instructions."""

    def __init__(
        self,
        session: Session,
        *,
        fork: Callable[[Resolved, Turn], Awaitable[str]] | None = None,
    ) -> None:
        """Offer a session.

        Args:
            session: Whose tools.
            fork: Runs a skill that wants a sub-agent.
        """
        self._session = session
        self._fork = fork
        self._last: tuple[Any, tuple[str, list[dict[str, Any]]]] | None = None

    @property
    def id(self) -> str:
        """Names it for pydantic-ai."""
        return "satchel"

    async def get_instructions(self, ctx: RunContext[Turn]) -> InstructionPart | None:
        """The frozen prompt, as a part that providers may cache."""
        text, _ = await self._told(ctx)
        return InstructionPart(content=text, dynamic=False) if text else None

    async def get_tools(self, ctx: RunContext[Turn]) -> dict[str, ToolsetTool[Turn]]:
        """What can be called in the next request."""
        found: dict[str, ToolsetTool[Turn]] = {}
        _, tools = await self._told(ctx)
        for one in tools:
            name = str(one["name"])
            found[name] = as_tool(self, name, one["description"], one["input_schema"])
        return found

    async def _told(self, ctx: RunContext[Turn]) -> tuple[str, list[dict[str, Any]]]:
        """Prompt and tools of a request: looked for once, off the event loop."""
        step = (ctx.run_id, ctx.run_step)
        if self._last is None or self._last[0] != step:
            self._last = (step, await self._session.atold())
        return self._last[1]

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        """Call one."""
        del tool
        turn = ctx.deps
        if name != SKILL:
            return await self._answer(name, tool_args, turn)
        # In the order of the calls: where one skill is asked for twice, the first has its text.
        async with turn.loading:
            fork = self._fork
            try:
                found = await self._session.aresolve(name, tool_args)
            except SatchelError:  # the answer says what is wrong
                return await self._answer(name, tool_args, turn)
            if fork is None or not await self._session.awants_fork(found):
                return await self._answer(name, found, turn)
            refusal = await self._session.apermit(name, found)
        if refusal is not None:
            raise ToolFailed(refusal.text)
        return await fork(found, turn) + await self._news(turn)

    async def _answer(self, name: str, tool_args: Arguments, turn: Turn) -> Any:
        with working():
            reply = await self._session.acall(name, tool_args)
        if reply.error is not None:
            raise ToolFailed(reply.text)
        if name == SKILL:
            self._tell_loaded(reply, turn)
        text = reply.text + await self._news(turn)
        if reply.status != "partial":
            return text
        return ToolReturn(text, metadata={_STATUS: "partial"})

    async def _news(self, turn: Turn) -> str:
        """What changed meanwhile: the next request is to know it."""
        text = turn.note(await self._session.anews())
        return f"\n\n{text}" if text else ""

    def _tell_loaded(self, reply: Envelope, turn: Turn) -> None:
        name = str(reply.data.get("name", ""))
        again = bool(reply.data.get("already_loaded"))
        held = self._session.loaded.get(name)
        if not again:
            turn.loaded(name)
        digest, size = (held.digest, held.characters) if held is not None else ("", 0)
        turn.tell(SkillLoaded(name, digest, 0 if again else size, again, turn.agent))


@dataclass
class Watched(WrapperToolset[Turn]):
    """Counts each call, refuses it beyond the limit, and tells of it."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        """Call it, with everything around."""
        turn = ctx.deps
        call_id = ctx.tool_call_id or ""
        if not turn.may_call(name):
            most = turn.limits.tool_calls
            raise ToolFailed(
                f"`{name}` was not called: this turn has made its {most} calls of tools. "
                "Finish now with what you have"
            )
        turn.tell(ToolStarted(name, tool_args, call_id, turn.agent))
        started = time.monotonic()

        def ended(status: Any, text: str) -> None:
            seconds = round(time.monotonic() - started, 3)
            turn.tell(ToolEnded(name, status, text, seconds, call_id, turn.agent))

        try:
            result = await super().call_tool(name, tool_args, ctx, tool)
        except (ToolFailed, ModelRetry) as exc:
            ended("error", exc.message)
            raise
        except Exception as exc:
            ended("error", f"{type(exc).__name__}: {exc}")
            raise
        ended(*_ending(result))
        return result


def _ending(result: object) -> tuple[str, str]:
    """How a call ended, and what the model reads."""
    if not isinstance(result, ToolReturn):
        return "success", str(result)
    made = cast("ToolReturn[object]", result)
    marks: object = made.metadata
    part = marks == {_STATUS: "partial"}
    return "partial" if part else "success", str(made.return_value)


@dataclass
class HostFirst(CombinedToolset[Turn]):
    """Ours first, then those of the host, whose names win: no skill replaces a tool of the host.

    pydantic-ai ends a run in which two tools have one name, and a skill may come at any time.
    """

    session: Session

    _told: set[str] = field(init=False, default_factory=set[str])

    async def get_tools(self, ctx: RunContext[Turn]) -> dict[str, ToolsetTool[Turn]]:
        """Those that can be called in the next request."""
        ours, *others = self.toolsets
        theirs = [await one.get_tools(ctx) for one in others]
        taken = {name for tools in theirs for name in tools}
        mine = await ours.get_tools(ctx)
        for name in sorted(taken & mine.keys() - self._told):
            self._told.add(name)
            reason = "a tool of the host has this name"
            self.session.trace.record("shadowed", (), tool=name, reason=reason)
        first = {name: tool for name, tool in mine.items() if name not in taken}
        pairs = zip(self.toolsets, (first, *theirs), strict=True)
        known = [_Known(one, tools) for one, tools in pairs]
        return await CombinedToolset[Turn](known).get_tools(ctx)


@dataclass
class _Known(WrapperToolset[Turn]):
    """A toolset whose tools were looked up already."""

    tools: dict[str, ToolsetTool[Turn]]

    async def get_tools(self, ctx: RunContext[Turn]) -> dict[str, ToolsetTool[Turn]]:
        del ctx
        return self.tools


@dataclass
class Guarded(WrapperToolset[Turn]):
    """The host's own tools, as far as the session lets them be called."""

    session: Session

    async def get_tools(self, ctx: RunContext[Turn]) -> dict[str, ToolsetTool[Turn]]:
        """Those that are there for this conversation."""
        found = await super().get_tools(ctx)
        return {name: tool for name, tool in found.items() if self.session.offers(name)}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        """Ask whether it may be called, then call it."""
        refusal = await self.session.apermit(name, tool_args)
        if refusal is not None:
            raise ToolFailed(refusal.text)
        try:
            return await super().call_tool(name, tool_args, ctx, tool)
        except _CONTROL:
            raise
        except Exception as exc:
            # A tool must answer, whatever happens: the model can do something about it.
            words = one_line(f"{type(exc).__name__}: {exc}", _LONGEST)
            raise ToolFailed(f"`{name}` failed: {words}") from exc


def as_tool(
    toolset: AbstractToolset[Turn], name: str, description: str, schema: Mapping[str, Any]
) -> ToolsetTool[Turn]:
    """One tool as pydantic-ai wants it. The session checks the arguments, and in better words."""
    definition = ToolDefinition(
        name=name,
        description=description,
        parameters_json_schema=cast("dict[str, Any]", schema),
        strict=False,
    )
    return ToolsetTool(
        toolset=toolset, tool_def=definition, max_retries=_SLIPS, args_validator=_ANY
    )
