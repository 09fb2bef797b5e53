"""Skills for Google's ADK, as a toolset and a plugin for the whole app.

The toolset adds the catalogue and lists the tools before each request. The plugin does what an
agent cannot do: it appends the shortlist to the user's message before ADK stores it, and denies
other tools. Each ADK session has its own session.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from satchel._optional import require
from satchel.integrations.base import (
    FORBIDDEN,
    ConversationHistory,
    ToolResult,
    acall,
    apermit,
    atail,
    atools_of,
    running,
    sessions_of,
)

try:
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.genai import types
except ImportError:
    require("google.adk", "google-adk")
    raise

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Unpack

    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from satchel.integrations.base import (
        AdapterReply,
        ChildOptions,
        SessionOptions,
        Sessions,
        ToolSpec,
    )
    from satchel.integrations.base import SkillsSource as Given
    from satchel.session.session import Session

__all__ = ["SkillsPlugin", "SkillsToolset"]

_caller: ContextVar[Session | None] = ContextVar("satchel_adk_caller", default=None)
"""The session that called the running tool: an agent that the tool starts is its child."""


class SkillsToolset(BaseToolset):
    """The tools, and the catalogue in the system instruction; its `plugin` belongs to the app.

    Example:
        from google.adk.agents import LlmAgent
        from google.adk.apps import App
        from satchel import Satchel
        from satchel.integrations.google_adk import SkillsToolset

        skills = SkillsToolset(Satchel.for_project("."))
        agent = LlmAgent(name="helper", model="gemini-3.5-flash", tools=[skills])
        app = App(name="helper", root_agent=agent, plugins=[skills.plugin])
    """

    def __init__(self, skills: Given | Sessions = None, **options: Unpack[SessionOptions]) -> None:
        """Create a toolset; no request is made.

        Args:
            skills: A `Satchel` or a project's folder (None: the current one), from which each
                conversation gets its own session; or the session of a single conversation.
            options: As for `Satchel.session`, for the sessions that it creates; see
                `SessionOptions`.
        """
        super().__init__()
        self._use_invocation_cache = False  # changes of the library apply within a turn
        self.sessions = sessions_of(skills, **options)
        self.plugin = SkillsPlugin(self)
        self.children: list[SkillsToolset] = []
        self.agents: set[str] = set()
        """The names of the agents that have these skills."""
        self._parent: SkillsToolset | None = None

    def child(self, **limits: Unpack[ChildOptions]) -> SkillsToolset:
        """A toolset for a sub-agent, limited to what the starting agent may do.

        Args:
            limits: What the sub-agent may use; see `ChildOptions`.
        """
        child = SkillsToolset(self.sessions.child(**limits))
        child._parent = self
        self.children.append(child)
        return child

    def session(self, context: ReadonlyContext) -> Session:
        """The session of the running conversation."""
        key = f"{context.user_id}/{context.session.id}"
        history = self.history(context)
        if self._parent is None:
            return self.sessions.of(key, history)
        # An agent as a tool has its own ADK session; one that took over has not.
        with running(_caller.get() or self._parent.session(context)):
            return self.sessions.of(f"{key}/{context.agent_name}", history)

    def history(self, context: ReadonlyContext) -> ConversationHistory:
        """What the ADK session has of the agents with these skills."""
        authors = self._authors(context)
        events = [event for event in context.session.events if event.author in authors]
        contents = [event.content for event in events if event.content]
        return _history(contents, context.state.get(self._state_key))

    def _authors(self, context: ReadonlyContext) -> set[str]:
        """The agents with these skills: what others loaded is not in their requests."""
        invocation = context._invocation_context  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to the agent
        todo: list[Any] = [getattr(invocation.agent, "root_agent", invocation.agent)]
        authors = {"user"}
        while todo:
            agent = todo.pop()
            todo += agent.sub_agents
            if any(tool is self for tool in getattr(agent, "tools", ())):
                authors.add(agent.name)
        return authors

    @property
    def _state_key(self) -> str:
        parent = self._parent
        return FORBIDDEN if parent is None else f"{FORBIDDEN}_{parent.children.index(self)}"

    def keep_forbidden(self, context: ToolContext) -> None:
        """Store what the loaded skills forbid: their text may be trimmed before a restart."""
        forbidden = self.session(context).forbidden
        if forbidden != context.state.get(self._state_key, {}):
            context.state[self._state_key] = forbidden

    def toolset_for(self, agent: str) -> SkillsToolset:
        """The toolset of an agent: this one, or that of a child."""
        toolsets = (child.toolset_for(agent) for child in self.children)
        return next((toolset for toolset in toolsets if agent in toolset.agents), self)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The current tools."""
        session = self.session(readonly_context) if readonly_context else self.sessions.of()
        specs = await atools_of(session)
        tools = [_AdkTool(self, spec) for spec in specs]
        return [tool for tool in tools if self._is_tool_selected(tool, readonly_context)]

    async def process_llm_request(
        self, *, tool_context: ToolContext, llm_request: LlmRequest
    ) -> None:
        """Add the catalogue to the request."""
        self.agents.add(tool_context.agent_name)
        session = self.session(tool_context)
        session.sync(_history(llm_request.contents))
        if prompt := await session.aprompt():
            llm_request.append_instructions([prompt])


class SkillsPlugin(BasePlugin):
    """A plugin for the app: appends shortlists, and denies tools that a loaded skill forbids.

    The attribute `plugin` of a `SkillsToolset` has one.
    """

    def __init__(self, skills: SkillsToolset) -> None:
        """Create a plugin for the toolset of the app's first agent.

        Args:
            skills: The toolset of the app's first agent.
        """
        super().__init__("satchel")
        self._skills = skills

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: types.Content
    ) -> types.Content | None:
        """Append the shortlist to the user's message, where it stays."""
        from google.adk.agents.readonly_context import ReadonlyContext

        # The answering agent may be a sub-agent, and one without skills needs no shortlist.
        tools: list[object] = getattr(invocation_context.agent, "tools", [self._skills])
        toolsets = [tool for tool in tools if isinstance(tool, SkillsToolset)]
        text = "\n".join(part.text for part in user_message.parts or () if part.text)
        if not toolsets or not text:
            return None
        context = ReadonlyContext(invocation_context)
        appended = await atail(toolsets[0].session(context), text, toolsets[0].history(context))
        if not appended:
            return None
        parts = [*(user_message.parts or ()), types.Part(text=appended)]
        return user_message.model_copy(update={"parts": parts})

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Deny what a loaded skill forbids; agents that tools start become children."""
        if isinstance(tool, _AdkTool):
            return None
        session = self._skills.toolset_for(tool_context.agent_name).session(tool_context)
        _caller.set(session)  # ends with the task; each call has its own
        refusal = await apermit(session, tool.name, tool_args)
        return _response(refusal) if refusal else None


class _AdkTool(BaseTool):
    """One tool of a session."""

    def __init__(self, skills: SkillsToolset, spec: ToolSpec) -> None:
        super().__init__(name=spec.name, description=spec.description)
        self._skills = skills
        self._spec = spec

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._spec.parameters,
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        session = self._skills.session(tool_context)
        reply = await acall(session, self._spec.name, args, tool_context.function_call_id)
        self._skills.keep_forbidden(tool_context)
        return _response(reply)


def _response(reply: AdapterReply) -> dict[str, Any]:
    """A response with the keys that Gemini knows, one of which marks a failure."""
    return {"error" if reply.failed else "result": reply.text}


def _history(
    contents: Iterable[types.Content], forbidden: dict[str, list[str]] | None = None
) -> ConversationHistory:
    calls: dict[str, types.FunctionCall] = {}
    results: list[ToolResult] = []
    prompts: list[str] = []
    for content in contents:
        for part in content.parts or ():
            if part.function_call:
                calls[part.function_call.id or ""] = part.function_call
            elif answer := part.function_response:
                response = answer.response or {}
                call = calls.get(answer.id or "")
                arguments = call.args if call and call.name == answer.name else None
                text = str(response.get("result", response.get("error", "")))
                name = answer.name or ""
                results.append(ToolResult(name, text, arguments or "", "error" in response))
            elif part.text and content.role == "user":
                prompts.append(part.text)
    return ConversationHistory(results, prompts, forbidden)
