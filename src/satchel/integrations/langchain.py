"""Skills for LangChain, as middleware of `create_agent` or `create_deep_agent`.

The catalogue goes into the system message, the current tools into each request, the shortlist after
the user's message, and calls are answered before they reach the tool node. In `create_deep_agent`
it replaces the middleware of the same name.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, NotRequired
from uuid import uuid4

from satchel._optional import require
from satchel.integrations.base import (
    FORBIDDEN,
    ConversationHistory,
    ToolResult,
    acall,
    apermit,
    call,
    join_texts,
    newest_forbidden,
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

    from satchel.integrations.base import (
        AdapterReply,
        ChildOptions,
        SessionOptions,
        Sessions,
        SkillsSource,
    )
    from satchel.session.session import Session

__all__ = ["SkillsMiddleware", "skill_tools"]


class SkillsState(AgentState[Any]):
    """Private state in the graph."""

    satchel_conversation: NotRequired[Annotated[str, PrivateStateAttr]]
    """The id of the conversation, which survives trimming of its first messages."""
    satchel_forbidden: NotRequired[Annotated[dict[str, list[str]], PrivateStateAttr]]
    """The tools that each loaded skill forbids, which survives trimming of its text."""


class SkillsMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Adds skills to an agent of LangChain, LangGraph or deepagents.

    Each thread has its own session; without a checkpointer, each list of messages that begins with
    the same message has one.

    Example:
        from langchain.agents import create_agent
        from langchain_openai import ChatOpenAI
        from satchel import Satchel
        from satchel.integrations.langchain import SkillsMiddleware

        skills = SkillsMiddleware(Satchel.for_project("."), exclude=["draft-*"])
        agent = create_agent(ChatOpenAI(model="gpt-5.4-mini"), middleware=[skills])
        result = agent.invoke({"messages": [("user", "Please review my change")]})
        assert result["messages"][-1].text == "Nothing can break."
    """

    state_schema = SkillsState

    def __init__(
        self, skills: SkillsSource | Sessions = None, **options: Unpack[SessionOptions]
    ) -> None:
        """Create the middleware; no request is made.

        Args:
            skills: A `Satchel` or a project's folder (None: the current one), from which each
                conversation gets its own session; or the session of a single conversation.
            options: As for `Satchel.session`, for the sessions that it creates; see
                `SessionOptions`.
        """
        super().__init__()
        self.sessions = sessions_of(skills, **options)
        self.tools = []

    def child(self, **limits: Unpack[ChildOptions]) -> SkillsMiddleware:
        """Middleware for a sub-agent, limited to what the starting agent may do.

        Args:
            limits: What the sub-agent may use; see `ChildOptions`.
        """
        return SkillsMiddleware(self.sessions.child(**limits))

    # --- user messages --------------------------------------------------------------------

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Append the shortlist to the user's message, where it stays."""
        del runtime
        messages = list(state["messages"])
        if not messages:
            return None
        nameless = messages[0].id is None or messages[-1].id is None
        if messages[0].id is None:  # deepagents sets none, and a conversation needs one
            messages[0] = messages[0].model_copy(update={"id": str(uuid4())})
        # A sub-agent has the thread id of its parent, and its own history.
        thread = get_config().get("configurable", {}).get("thread_id")
        key = str(messages[0].id if self.sessions.nested else thread or messages[0].id)
        last = messages[-1]
        if isinstance(last, HumanMessage) and (
            appended := tail(self.sessions.of(key), last.text, _history(messages, state))
        ):
            prompt = last.content
            block = {"type": "text", "text": appended}
            content = f"{prompt}\n\n{appended}" if isinstance(prompt, str) else [*prompt, block]
            messages[-1] = last.model_copy(update={"content": content})
        # A message with an existing id replaces the message of that id.
        changed = Overwrite(messages) if nameless else messages[-1:]
        return {"messages": changed, "satchel_conversation": key}

    async def abefore_agent(
        self, state: AgentState[Any], runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """`before_agent` without blocking the loop."""
        return await asyncio.to_thread(self.before_agent, state, runtime)

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Store what the loaded skills forbid: their text may be trimmed before a restart."""
        del runtime
        forbidden = self._session(state).forbidden
        is_new = forbidden != state.get(FORBIDDEN, {})
        return {FORBIDDEN: forbidden} if is_new else None

    # --- requests -------------------------------------------------------------------------

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Add the current skills and tools to the request."""
        return self._with_forbidden(request, handler(self._with_skills(request)))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """`wrap_model_call` without blocking the loop."""
        response = await handler(await asyncio.to_thread(self._with_skills, request))
        return await asyncio.to_thread(self._with_forbidden, request, response)

    def _with_skills(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        session = self._session(request.state)
        session.sync(_history(request.messages, request.state))
        message = request.system_message
        if message is None or isinstance(message.content, str):
            system = SystemMessage(join_texts(message.text if message else "", session.prompt))
        else:
            system = SystemMessage([*message.content, {"type": "text", "text": session.prompt}])
        ours = session.definitions("openai")
        hidden = shadowed(session, map(_name, request.tools), map(_name, ours))
        new = [item for item in ours if _name(item) not in hidden]
        return request.override(system_message=system, tools=[*request.tools, *new])

    def _with_forbidden(
        self, request: ModelRequest[Any], response: ModelResponse[Any]
    ) -> ModelResponse[Any]:
        """Store what the loaded skills forbid: without a checkpointer there is no state."""
        if forbidden := self._session(request.state).forbidden:
            for message in response.result:
                message.response_metadata[FORBIDDEN] = forbidden
        return response

    # --- tool calls -----------------------------------------------------------------------

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Answer calls of our tools, deny what a skill forbids, and run the others.

        Sub-agents that they start are children of this conversation.
        """
        session = self._session(request.state)
        request_call = request.tool_call
        if request.tool is None and request_call["name"] in session.names:
            return _message(
                request,
                call(session, request_call["name"], request_call["args"], request_call["id"]),
            )
        if refusal := permit(session, request_call["name"], request_call["args"]):
            return _message(request, refusal)
        with running(session):
            return handler(request)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """`wrap_tool_call`; cancelling the task ends a running program."""
        session = await asyncio.to_thread(self._session, request.state)
        request_call = request.tool_call
        if request.tool is None and request_call["name"] in await session.anames():
            return _message(
                request,
                await acall(
                    session, request_call["name"], request_call["args"], request_call["id"]
                ),
            )
        if refusal := await apermit(session, request_call["name"], request_call["args"]):
            return _message(request, refusal)
        with running(session):
            return await handler(request)

    def _session(self, state: Any) -> Session:
        """The session, with what the messages tell: another process may have begun this run."""
        key = str(state.get("satchel_conversation", ""))
        return self.sessions.of(key, _history(state["messages"], state))


def skill_tools(session: Session) -> list[StructuredTool]:
    """The current tools, for custom graphs.

    Add `session.prompt` to the system message. Skills added later are not in this
    list; `SkillsMiddleware` adds them.

    Args:
        session: The session of the conversation.
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
        handle_tool_error=True,  # the message's status marks the failure
    )


def _text(reply: AdapterReply) -> str:
    if reply.failed:
        raise ToolException(reply.text)
    return reply.text


def _message(request: ToolCallRequest, reply: AdapterReply) -> ToolMessage:
    return ToolMessage(
        reply.text,
        tool_call_id=request.tool_call["id"],
        name=request.tool_call["name"],
        status="error" if reply.failed else "success",
    )


def _history(messages: Sequence[AnyMessage], state: Any) -> ConversationHistory:
    calls = {
        call["id"]: call
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    results: list[ToolResult] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            call = calls.get(message.tool_call_id)
            name, arguments = (call["name"], call["args"]) if call else (message.name or "", "")
            failed = message.status == "error"
            results.append(ToolResult(name, str(message.text), arguments, failed))
    prompts = [str(message.text) for message in messages if isinstance(message, HumanMessage)]
    forbidden = state.get(FORBIDDEN) or newest_forbidden(
        message.response_metadata for message in messages
    )
    return ConversationHistory(results, prompts, forbidden)


def _name(tool: BaseTool | dict[str, Any]) -> str:
    """A tool's name; tools that a provider runs itself are mappings of various forms."""
    if not isinstance(tool, dict):
        return tool.name
    return str(tool.get("function", tool).get("name", ""))
