"""How does an agent of Google's ADK get skills? As a toolset, and a plugin for the whole app.

    skills = Skills(Satchel.for_project("."))
    agent = LlmAgent(name="helper", model="gemini-3-flash", tools=[skills])
    app = App(name="helper", root_agent=agent, plugins=[skills.plugin])

The toolset tells the catalogue and lists the tools anew before each request. What an agent cannot
do belongs to the plugin: the note behind the user's message, before ADK keeps it, and the refusal
of other tools. Each session of ADK has a session of its own.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from satchel._optional import require
from satchel.integrations.base import (
    SKILL,
    acall,
    apermit,
    atail,
    atools_of,
    forget_lost,
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
    from collections.abc import Iterable, Iterator
    from typing import Unpack

    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.tool_context import ToolContext

    from satchel.integrations.base import ChildOptions, Reply, SessionOptions, Sessions, ToolSpec
    from satchel.integrations.base import Skills as Given
    from satchel.tools.session import Session

__all__ = ["Skills", "SkillsPlugin"]

_caller: ContextVar[Session | None] = ContextVar("satchel_adk_caller", default=None)
"""The session that called the tool which is running: an agent that it starts is its child."""


class Skills(BaseToolset):
    """The tools, and the catalogue in the system instruction."""

    def __init__(self, skills: Given | Sessions = None, **options: Unpack[SessionOptions]) -> None:
        """Take the skills.

        Args:
            skills: A `Satchel`, a folder, or the `Session` of the one conversation there is.
            options: Those of `SessionOptions`, where sessions are begun.
        """
        super().__init__()
        self._use_invocation_cache = False  # a changed library is seen in the same turn
        self.sessions = sessions_of(skills, **options)
        self.plugin = SkillsPlugin(self)
        self.below: list[Skills] = []
        self.agents: set[str] = set()
        """The names of the agents that have these skills."""
        self._above: Skills | None = None

    def child(self, **limits: Unpack[ChildOptions]) -> Skills:
        """For a sub-agent, or an agent as a tool: nothing that the starting agent may not do."""
        child = Skills(self.sessions.child(**limits))
        child._above = self
        self.below.append(child)
        return child

    def session(self, context: ReadonlyContext) -> Session:
        """The session of the conversation that is running."""
        key = f"{context.user_id}/{context.session.id}"
        if self._above is None:
            return self.sessions.of(key)
        # An agent as a tool has a session of ADK's of its own, one that took over has not.
        with running(_caller.get() or self._above.session(context)):
            return self.sessions.of(f"{key}/{context.agent_name}")

    def serving(self, agent: str) -> Skills:
        """The skills of an agent: these, or those of a child."""
        found = (one.serving(agent) for one in self.below)
        return next((one for one in found if agent in one.agents), self)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools there are now."""
        session = self.session(readonly_context) if readonly_context else self.sessions.of()
        specs = await atools_of(session)
        tools = [_SkillTool(self, spec) for spec in specs]
        return [tool for tool in tools if self._is_tool_selected(tool, readonly_context)]

    async def process_llm_request(
        self, *, tool_context: ToolContext, llm_request: LlmRequest
    ) -> None:
        """Tell the model of the skills."""
        self.agents.add(tool_context.agent_name)
        session = self.session(tool_context)
        forget_lost(session, _results(llm_request.contents))
        if prompt := await session.aprompt():
            llm_request.append_instructions([prompt])


class SkillsPlugin(BasePlugin):
    """A plugin for the app: appends shortlists, and refuses tools that a loaded skill forbids."""

    def __init__(self, skills: Skills) -> None:
        """Take the skills of the app's first agent."""
        super().__init__("satchel")
        self._skills = skills

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: types.Content
    ) -> types.Content | None:
        """Put the shortlist behind the user's message, where it stays."""
        from google.adk.agents.readonly_context import ReadonlyContext

        # The agent that answers may be one below, and one without skills needs no note.
        tools: list[object] = getattr(invocation_context.agent, "tools", [self._skills])
        own = [tool for tool in tools if isinstance(tool, Skills)]
        text = "\n".join(part.text for part in user_message.parts or () if part.text)
        if not own or not text:
            return None
        session = own[0].session(ReadonlyContext(invocation_context))
        history = [event.content for event in invocation_context.session.events if event.content]
        behind = await atail(session, text, list(_results(history)))
        if not behind:
            return None
        parts = [*(user_message.parts or ()), types.Part(text=behind)]
        return user_message.model_copy(update={"parts": parts})

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Refuse what a loaded skill forbids; agents that the others start are its children."""
        if isinstance(tool, _SkillTool):
            return None
        session = self._skills.serving(tool_context.agent_name).session(tool_context)
        _caller.set(session)  # ends with the task, and each call has a task of its own
        refusal = await apermit(session, tool.name, tool_args)
        return _response(refusal) if refusal else None


class _SkillTool(BaseTool):
    """One tool as it is now."""

    def __init__(self, skills: Skills, spec: ToolSpec) -> None:
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
        return _response(await acall(session, self._spec.name, args))


def _response(reply: Reply) -> dict[str, Any]:
    """Gemini knows two keys, and one of them says that the call failed."""
    return {"error" if reply.failed else "result": reply.text}


def _results(contents: Iterable[types.Content]) -> Iterator[str]:
    """The texts of all results of `Skill`."""
    for content in contents:
        for part in content.parts or ():
            found = part.function_response
            if found and found.name == SKILL and found.response:
                yield str(found.response.get("result", ""))
