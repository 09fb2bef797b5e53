"""How does an agent of Microsoft's Agent Framework get skills? As a context provider.

    agent = Agent(client, context_providers=[Skills(Satchel.for_project("."))])
    await agent.run("review my change", session=session)

Before a run it tells the catalogue and the tools, and puts the shortlist behind the user's message.
Middleware that it brings answers the calls, refuses what a loaded skill forbids, and adds tools
that appear meanwhile. Each `AgentSession` has a session of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from satchel._optional import require
from satchel.integrations.base import (
    SKILL,
    acall,
    apermit,
    atail,
    forget_lost,
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
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from typing import Unpack

    from agent_framework import (
        AgentSession,
        ChatContext,
        FunctionInvocationContext,
        SessionContext,
        SupportsAgentRun,
    )

    from satchel.integrations.base import ChildOptions, SessionOptions, Sessions
    from satchel.integrations.base import Skills as Given
    from satchel.tools.session import Session

__all__ = ["Skills", "skill_tools"]


class Skills(ContextProvider):
    """The catalogue, the tools, and the shortlist behind each message."""

    def __init__(self, skills: Given | Sessions = None, **options: Unpack[SessionOptions]) -> None:
        """Take the skills.

        Args:
            skills: A `Satchel`, a folder, or the `Session` of the one conversation there is.
            options: Those of `SessionOptions`, where sessions are begun.
        """
        super().__init__("satchel")
        self.sessions = sessions_of(skills, **options)

    def child(self, **limits: Unpack[ChildOptions]) -> Skills:
        """For an agent that is a tool of another: nothing that the other may not do."""
        return Skills(self.sessions.child(**limits))

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Tell the model of the skills and of the tools there are now."""
        del agent, state
        ours = self.sessions.of(session.session_id)
        last = context.input_messages[-1] if context.input_messages else None
        if last and last.role == "user" and last.text:
            behind = await atail(ours, last.text)
            if behind:
                context.input_messages[-1] = _with(last, behind)  # is kept in the history, too
        if prompt := await ours.aprompt():
            context.extend_instructions(self.source_id, prompt)
        context.extend_tools(self.source_id, await asyncio.to_thread(skill_tools, ours))
        context.extend_middleware(self.source_id, [_Looking(ours), _Calling(ours)])


class _Looking(ChatMiddleware):
    """Sees what is sent: skills whose text was trimmed away may be loaded again."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        options = cast("dict[str, Any]", context.options or {})
        if not options.get("conversation_id"):  # else the service keeps the history
            forget_lost(self._session, _results(context.messages))
        await call_next()


class _Calling(FunctionMiddleware):
    """Refuses, lets run, and tells of new tools."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        arguments = dict(context.arguments)  # a model or a mapping
        if isinstance(context.function, _SkillTool):
            context.result = (await acall(self._session, context.function.name, arguments)).text
            if context.tools is not None:  # the list of this run, for its next request
                there = {getattr(tool, "name", "") for tool in context.tools}
                now = await asyncio.to_thread(skill_tools, self._session)
                context.tools.extend(tool for tool in now if tool.name not in there)
        elif refusal := await apermit(self._session, context.function.name, arguments):
            context.result = refusal.text
        else:
            with running(self._session):
                await call_next()


class _SkillTool(FunctionTool):
    """One tool as it is now."""


def skill_tools(session: Session) -> list[FunctionTool]:
    """The tools as they are now, for an agent of your own.

    Put `session.prompt` into its instructions. What is added to the library later is not in this
    list: `Skills` tells the model of it.
    """

    def function(name: str) -> Callable[..., Awaitable[str]]:
        async def run(**arguments: Any) -> str:
            return (await acall(session, name, arguments)).text

        return run

    return [
        _SkillTool(
            name=spec.name,
            description=spec.description,
            input_model=spec.parameters,
            func=function(spec.name),
        )
        for spec in tools_of(session)
    ]


def _with(message: Message, behind: str) -> Message:
    """The same message with more text, in one piece: some clients send each piece by itself."""
    contents = list(message.contents)
    at = max(index for index, one in enumerate(contents) if one.type == "text" and one.text)
    contents[at] = Content.from_text(f"{contents[at].text}\n\n{behind}")
    return Message(
        message.role,
        contents,
        author_name=message.author_name,
        message_id=message.message_id,
        additional_properties=message.additional_properties,
    )


def _results(messages: Sequence[Message]) -> Iterator[str]:
    """The texts of all results of `Skill`; they name only the call."""
    contents = [content for message in messages for content in message.contents]
    ours = {
        content.call_id
        for content in contents
        if content.type == "function_call" and content.name == SKILL
    }
    for content in contents:
        if content.type == "function_result" and content.call_id in ours:
            yield str(content.result)
