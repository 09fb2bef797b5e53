"""How does a LangChain agent get skills? As middleware of `create_agent` or `create_deep_agent`.

    agent = create_agent(model, middleware=[SkillsMiddleware(Satchel.for_project("."))])

The catalogue goes into the system message, the tools into each request (so that a changed library
is seen), the shortlist behind the user's message, and calls are answered before the tool node
looks. In `create_deep_agent` it takes the place of the middleware that has the same name.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, NotRequired
from uuid import uuid4

from satchel._optional import require
from satchel.integrations.base import (
    SKILL,
    acall,
    apermit,
    call,
    forget_lost,
    joined,
    permit,
    running,
    sessions_of,
    shadowed,
    tail,
    tools_of,
)

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState
    from langchain.agents.middleware.types import PrivateStateAttr
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
    from langchain_core.tools import StructuredTool, ToolException
    from langgraph.config import get_config
    from langgraph.types import Overwrite
except ImportError:
    require("langchain", "langchain")
    raise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Unpack

    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langchain_core.messages import AnyMessage
    from langchain_core.tools import BaseTool
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.runtime import Runtime
    from langgraph.types import Command

    from satchel.integrations.base import ChildOptions, Reply, SessionOptions, Sessions, Skills
    from satchel.tools.session import Session

__all__ = ["SkillsMiddleware", "skill_tools"]


class SkillsState(AgentState[Any]):
    """What the graph remembers for us."""

    satchel_conversation: NotRequired[Annotated[str, PrivateStateAttr]]
    """Which conversation this is, also after its first messages were trimmed away."""


class SkillsMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Skills for an agent of LangChain.

    Each thread has a session of its own; without a checkpointer, each list of messages that begins
    with the same message.
    """

    state_schema = SkillsState

    def __init__(self, skills: Skills | Sessions = None, **options: Unpack[SessionOptions]) -> None:
        """Take the skills.

        Args:
            skills: A `Satchel`, a folder, or the `Session` of the one conversation there is.
            options: Those of `SessionOptions`, where sessions are begun.
        """
        super().__init__()
        self.sessions = sessions_of(skills, **options)
        self.tools = []

    def child(self, **limits: Unpack[ChildOptions]) -> SkillsMiddleware:
        """For a sub-agent: nothing that the agent which started it may not do."""
        return SkillsMiddleware(self.sessions.child(**limits))

    # --- the user's turn ------------------------------------------------------------------

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Put the shortlist behind the user's message, where it stays."""
        del runtime
        messages = list(state["messages"])
        if not messages:
            return None
        nameless = messages[0].id is None or messages[-1].id is None
        if messages[0].id is None:  # deepagents gives none, and a conversation needs one
            messages[0] = messages[0].model_copy(update={"id": str(uuid4())})
        # A sub-agent has the thread of whoever started it, and a history of its own.
        thread = get_config().get("configurable", {}).get("thread_id")
        key = str(messages[0].id if self.sessions.nested else thread or messages[0].id)
        last = messages[-1]
        if isinstance(last, HumanMessage) and (
            behind := tail(self.sessions.of(key), last.text, *_told(messages))
        ):
            own = last.content
            block = {"type": "text", "text": behind}
            told = f"{own}\n\n{behind}" if isinstance(own, str) else [*own, block]
            messages[-1] = last.model_copy(update={"content": told})
        # A message with the id of an earlier one takes its place.
        changed = Overwrite(messages) if nameless else messages[-1:]
        return {"messages": changed, "satchel_conversation": key}

    async def abefore_agent(
        self, state: AgentState[Any], runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """The same without holding up the loop."""
        return await asyncio.to_thread(self.before_agent, state, runtime)

    # --- the request ----------------------------------------------------------------------

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Tell the model of the skills and of the tools there are now."""
        return handler(self._told(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """The same without holding up the loop."""
        return await handler(await asyncio.to_thread(self._told, request))

    def _told(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        session = self._session(request.state)
        forget_lost(session, *_told(request.messages))
        own = request.system_message
        if own is None or isinstance(own.content, str):
            system = SystemMessage(joined(own.text if own else "", session.prompt))
        else:
            system = SystemMessage([*own.content, {"type": "text", "text": session.prompt}])
        ours = session.definitions("openai")
        hidden = shadowed(session, map(_name, request.tools), map(_name, ours))
        new = [item for item in ours if _name(item) not in hidden]
        return request.override(system_message=system, tools=[*request.tools, *new])

    # --- the calls ------------------------------------------------------------------------

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Answer what is ours, refuse what a skill forbids, let the others run.

        Sub-agents that they start are children of this conversation.
        """
        session = self._session(request.state)
        asked = request.tool_call
        if request.tool is None and asked["name"] in session.names:
            return _message(request, call(session, asked["name"], asked["args"]))
        if refusal := permit(session, asked["name"], asked["args"]):
            return _message(request, refusal)
        with running(session):
            return handler(request)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """The same; when the task is cancelled, so is a program that runs."""
        session = self._session(request.state)
        asked = request.tool_call
        if request.tool is None and asked["name"] in await session.anames():
            return _message(request, await acall(session, asked["name"], asked["args"]))
        if refusal := await apermit(session, asked["name"], asked["args"]):
            return _message(request, refusal)
        with running(session):
            return await handler(request)

    def _session(self, state: Any) -> Session:
        return self.sessions.of(str(state.get("satchel_conversation", "")))


def skill_tools(session: Session) -> list[StructuredTool]:
    """The tools as they are now, for graphs that are put together by hand.

    Put `session.prompt` into the system message. What is added to the library later is not in this
    list: `SkillsMiddleware` tells the model of it.
    """
    return [_structured(session, *spec) for spec in tools_of(session)]


def _structured(
    session: Session, name: str, description: str, parameters: dict[str, Any]
) -> StructuredTool:
    def run(**arguments: Any) -> str:
        return _text(call(session, name, arguments))

    async def arun(**arguments: Any) -> str:
        return _text(await acall(session, name, arguments))

    return StructuredTool(
        name=name,
        description=description,
        args_schema=parameters,
        func=run,
        coroutine=arun,
        handle_tool_error=True,  # the message's status says that it failed
    )


def _text(reply: Reply) -> str:
    if reply.failed:
        raise ToolException(reply.text)
    return reply.text


def _message(request: ToolCallRequest, reply: Reply) -> ToolMessage:
    return ToolMessage(
        reply.text,
        tool_call_id=request.tool_call["id"],
        name=request.tool_call["name"],
        status="error" if reply.failed else "success",
    )


def _told(messages: Sequence[AnyMessage]) -> tuple[list[str], list[str]]:
    """The texts of the results of `Skill`, and all texts of users and tools."""
    results = [message for message in messages if isinstance(message, ToolMessage)]
    calls = {
        call["id"]: call["name"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    skills = [
        str(message.text)
        for message in results
        if (message.name or calls.get(message.tool_call_id)) == SKILL
    ]
    said = [message for message in messages if isinstance(message, HumanMessage)]
    return skills, [str(message.text) for message in (*results, *said)]


def _name(tool: BaseTool | dict[str, Any]) -> str:
    """A tool's name; those that a provider runs itself have tables of their own kind."""
    if not isinstance(tool, dict):
        return tool.name
    return str(tool.get("function", tool).get("name", ""))
