"""Skills for Microsoft's Agent Framework, as a context provider.

Before a run it adds the catalogue and the tools, and appends the shortlist to the user's message.
Its middleware answers tool calls, denies tools that a loaded skill forbids, and adds tools that
appear during a run. Each `AgentSession` has its own session.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from satchel._optional import require
from satchel.integrations.base import (
    ConversationHistory,
    ToolResult,
    acall,
    apermit,
    atail,
    running,
    sessions_of,
    tools_of,
)

try:
    from agent_framework import (
        ChatMiddleware,
        Content,
        ContextProvider,
        FunctionMiddleware,
        FunctionTool,
        Message,
    )
except ImportError:
    require("agent_framework", "agent-framework")
    raise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Unpack

    from agent_framework import (
        AgentSession,
        ChatContext,
        FunctionInvocationContext,
        SessionContext,
        SupportsAgentRun,
    )

    from satchel.integrations.base import AdapterReply, ChildOptions, SessionOptions, Sessions
    from satchel.integrations.base import SkillsSource as Given
    from satchel.session.session import Session

__all__ = ["SkillsProvider", "skill_tools"]


class SkillsProvider(ContextProvider):
    """A context provider that adds the catalogue, the tools, and the shortlist of each message.

    Example:
        import asyncio

        from agent_framework import Agent
        from agent_framework.openai import OpenAIChatClient
        from satchel import Satchel
        from satchel.integrations.agent_framework import SkillsProvider

        agent = Agent(
            OpenAIChatClient("gpt-5.4-mini"),
            context_providers=[SkillsProvider(Satchel.for_project("."))],
            default_options={"store": False},
        )
        result = asyncio.run(agent.run("Please review my change"))
        assert result.text == "Nothing can break."
    """

    def __init__(self, skills: Given | Sessions = None, **options: Unpack[SessionOptions]) -> None:
        """Create a provider; no request is made.

        Args:
            skills: A `Satchel` or a project's folder (None: the current one), from which each
                conversation gets its own session; or the session of a single conversation.
            options: As for `Satchel.session`, for the sessions that it creates; see
                `SessionOptions`.
        """
        super().__init__("satchel")
        self.sessions = sessions_of(skills, **options)

    def child(self, **limits: Unpack[ChildOptions]) -> SkillsProvider:
        """A provider for an agent that is a tool of another, limited to what the other may do.

        Args:
            limits: What the sub-agent may use; see `ChildOptions`.
        """
        return SkillsProvider(self.sessions.child(**limits))

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Add the current skills and tools to the request."""
        del agent
        history = _history(context.get_messages(include_input=True), state.get("forbidden"))
        ours = await asyncio.to_thread(self.sessions.of, session.session_id, history)
        last = context.input_messages[-1] if context.input_messages else None
        if last and last.role == "user" and last.text:
            appended = await atail(ours, last.text)
            if appended:
                context.input_messages[-1] = _append_text(last, appended)  # stays in the history
        if prompt := await ours.aprompt():
            context.extend_instructions(self.source_id, prompt)
        context.extend_tools(self.source_id, await asyncio.to_thread(skill_tools, ours))
        context.extend_middleware(self.source_id, [_HistoryMiddleware(ours), _ToolMiddleware(ours)])

    async def after_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Store what the loaded skills forbid: their text may be trimmed before a restart."""
        del agent, context
        state["forbidden"] = self.sessions.of(session.session_id).forbidden


class _HistoryMiddleware(ChatMiddleware):
    """Checks the sent messages: skills whose text was trimmed may be loaded again."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        options = cast("dict[str, Any]", context.options or {})
        if not options.get("conversation_id"):  # otherwise the service has the history
            await asyncio.to_thread(self._session.sync, _history(context.messages))
        await call_next()


class _ToolMiddleware(FunctionMiddleware):
    """Denies forbidden tools, calls the others, and adds new tools."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        arguments = dict(context.arguments)  # a model or a mapping
        if isinstance(context.function, _FrameworkTool):
            context.result = (await _call(self._session, context.function, arguments)).text
            if context.tools is not None:  # the list of this run, for its next request
                there = {getattr(tool, "name", "") for tool in context.tools}
                now = await asyncio.to_thread(skill_tools, self._session)
                context.tools.extend(tool for tool in now if tool.name not in there)
        elif refusal := await apermit(self._session, context.function.name, arguments):
            context.result = refusal.text
        else:
            with running(self._session):
                await call_next()


class _FrameworkTool(FunctionTool):
    """One tool of a session."""


async def _call(session: Session, tool: FunctionTool, arguments: dict[str, Any]) -> AdapterReply:
    """Call a tool; the framework runs one that requires approval only after it was approved."""
    approved = tool.approval_mode == "always_require"
    return await acall(session, tool.name, arguments, approved=approved)


def skill_tools(session: Session) -> list[FunctionTool]:
    """The current tools, for a custom agent.

    Add `session.prompt` to its instructions. Skills added later are not in this
    list; `SkillsProvider` adds them.

    Args:
        session: The session of the conversation.
    """
    tools: dict[str, FunctionTool] = {}

    def function(name: str) -> Callable[..., Awaitable[str]]:
        async def run(**arguments: Any) -> str:
            return (await _call(session, tools[name], arguments)).text

        return run

    for spec in tools_of(session):
        tools[spec.name] = _FrameworkTool(
            name=spec.name,
            description=spec.description,
            input_model=spec.parameters,
            func=function(spec.name),
        )
    return list(tools.values())


def _append_text(message: Message, appended: str) -> Message:
    """Append text to a message, in one piece: some clients send each piece separately."""
    contents = list(message.contents)
    index = max(
        index for index, content in enumerate(contents) if content.type == "text" and content.text
    )
    contents[index] = Content.from_text(f"{contents[index].text}\n\n{appended}")
    return Message(
        message.role,
        contents,
        author_name=message.author_name,
        message_id=message.message_id,
        additional_properties=message.additional_properties,
    )


def _history(
    messages: Sequence[Message], forbidden: dict[str, list[str]] | None = None
) -> ConversationHistory:
    calls: dict[str | None, Content] = {}
    results: list[ToolResult] = []
    prompts = [message.text for message in messages if message.role == "user"]
    for content in (content for message in messages for content in message.contents):
        if content.type == "function_call":
            calls[content.call_id] = content
        elif content.type == "function_result" and (call := calls.get(content.call_id)):
            results.append(ToolResult(call.name or "", str(content.result), call.arguments or ""))
    return ConversationHistory(results, prompts, forbidden)
