"""Skills for smolagents, as agents with a session.

smolagents has one conversation per agent, its memory, so each agent has one session. The
catalogue goes into the instructions, the shortlist after the task, and the tools are listed
before each step. `SkillsCodeAgent` is the same for an agent that writes Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from satchel._optional import require
from satchel.integrations.base import (
    SKILL,
    ConversationHistory,
    ToolResult,
    call,
    join_texts,
    permit,
    running,
    sessions_of,
    tail,
    tools_of,
)

try:
    from smolagents import (  # pyright: ignore[reportMissingTypeStubs] - it has none
        CodeAgent,
        MultiStepAgent,
        Tool,
        ToolCallingAgent,
    )
except ImportError:
    require("smolagents", "smolagents")
    raise

if TYPE_CHECKING:
    from satchel.integrations.base import SessionOptions, Sessions, SkillsSource, ToolSpec
    from satchel.session.session import Session

__all__ = ["SkillsCodeAgent", "SkillsToolCallingAgent", "skill_tools"]

_KNOWN = {"string", "boolean", "integer", "number", "array", "object", "null"}


class SmolagentsTool(Tool):
    """One tool of a session."""

    output_type = "string"
    skip_forward_signature_validation = True

    def __init__(self, session: Session, spec: ToolSpec) -> None:
        self.name = spec.name
        self.description = spec.description
        required = spec.parameters.get("required", ())
        self.inputs = {
            name: _input(schema, needed=name in required)
            for name, schema in spec.parameters.get("properties", {}).items()
        }
        self._session = session
        cast("Any", super()).__init__()

    def forward(self, **arguments: Any) -> str:
        """Call the tool. A failure is part of the text, so that the model can react."""
        values = {name: value for name, value in arguments.items() if value is not None}
        return call(self._session, self.name, values).text


class _SkillsAgentBase(MultiStepAgent):
    """The shared part of both kinds of agents."""

    tools: dict[str, Any]
    managed_agents: dict[str, Any]

    def __init__(
        self,
        *args: Any,
        skills: SkillsSource | Sessions = None,
        instructions: str = "",
        session_options: SessionOptions | None = None,
        **options: Any,
    ) -> None:
        """Create an agent with skills.

        Args:
            args: Arguments of the agent.
            skills: The session of the conversation, or a `Satchel` or a folder to create one.
            instructions: The host's own; the catalogue follows.
            session_options: Options of the session that is created; see `Satchel.session`.
            options: Options of the agent.
        """
        self._sessions = sessions_of(skills, **(session_options or {}))
        self._runs = 0
        self._own_instructions = instructions
        self.session = self._sessions.of()
        combined = join_texts(instructions, self.session.prompt)
        cast("Any", super()).__init__(*args, instructions=combined, **options)
        self._host = dict(self.tools)
        self._refresh()

    def run(self, task: str, *args: Any, reset: bool = True, **options: Any) -> Any:
        """Run, with the shortlist after the task."""
        if reset and self._sessions.nested:  # a team member starts a new conversation for each task
            self._runs += 1
            self.session = self._sessions.of(str(self._runs))
        history = ConversationHistory(prompts=()) if reset else self._history()
        appended = tail(self.session, task, history)
        self._refresh()
        task = f"{task}\n\n{appended}" if appended else task
        with running(self.session):
            return cast("Any", super()).run(task, *args, reset=reset, **options)

    def _step_stream(self, memory_step: Any) -> Any:
        self.session.sync(self._history())
        self._refresh()
        yield from super()._step_stream(memory_step)

    def _refresh(self) -> None:
        ours = {spec.name: SmolagentsTool(self.session, spec) for spec in tools_of(self.session)}
        before = list(self.tools)
        self.tools = {**self._host, **ours, **self._host}  # the host's come first, and win
        self.instructions = join_texts(self._own_instructions, self.session.prompt)
        executor = getattr(self, "python_executor", None)
        if executor is not None and before != list(self.tools):
            executor.send_tools({**self.tools, **self.managed_agents})

    def _history(self) -> ConversationHistory:
        """The memory, as it is or as the host stored it.

        A step has the results of all its calls in one text. Results of a program that calls `Skill`
        have no arguments, so such a skill allows nothing after a restart until it is loaded again.
        """
        results: list[ToolResult] = []
        prompts: list[str] = []
        for step in self.memory.steps:
            prompts.append(str(getattr(step, "task", None) or ""))
            text = getattr(step, "observations", None) or ""
            for tool_call in getattr(step, "tool_calls", None) or ():
                if tool_call.name == "python_interpreter" and f"{SKILL}(" in str(
                    tool_call.arguments
                ):
                    results.append(ToolResult(SKILL, text))
                else:
                    results.append(ToolResult(tool_call.name, text, tool_call.arguments))
        return ConversationHistory(results, prompts)


class SkillsToolCallingAgent(_SkillsAgentBase, ToolCallingAgent):
    """A `ToolCallingAgent` of smolagents with skills.

    Example:
        import os

        from satchel import Satchel
        from satchel.integrations.smolagents import SkillsToolCallingAgent
        from smolagents import OpenAIModel

        model = OpenAIModel(
            "gpt-5.4-mini",
            api_base=os.environ.get("OPENAI_BASE_URL"),
            api_key=os.environ.get("OPENAI_API_KEY"),
        )
        agent = SkillsToolCallingAgent(tools=[], model=model, skills=Satchel.for_project("."))
        assert agent.run("Please review my change") == "Nothing can break."
    """

    def execute_tool_call(self, tool_name: str, arguments: dict[str, str] | str) -> Any:
        """Deny what a loaded skill forbids; run the others."""
        tools = {**self.tools, **self.managed_agents}
        if tool_name in tools and not isinstance(tools[tool_name], SmolagentsTool):
            refusal = tool_name != "final_answer" and permit(self.session, tool_name, arguments)
            if refusal:
                return refusal.text
        with running(self.session):
            return super().execute_tool_call(tool_name, arguments)


class SkillsCodeAgent(_SkillsAgentBase, CodeAgent):
    """A `CodeAgent` of smolagents with skills; the tools are functions that print their results.

    Functions of your own are not checked against what a loaded skill forbids.
    """


def skill_tools(session: Session) -> list[SmolagentsTool]:
    """The current tools, for a custom agent.

    Add `session.prompt` to its instructions. Skills added later are not in this
    list; a `SkillsToolCallingAgent` lists tools before each step.

    Args:
        session: The session of the conversation.
    """
    return [SmolagentsTool(session, spec) for spec in tools_of(session)]


def _input(schema: dict[str, Any], *, needed: bool) -> dict[str, Any]:
    """A parameter with one of smolagents' types and a description."""
    kinds = cast("str | list[str] | None", schema.get("type"))
    is_supported = bool(kinds) and _KNOWN.issuperset([kinds] if isinstance(kinds, str) else kinds)
    described = {"description": "", **schema, "type": kinds if is_supported else "any"}
    return described if needed else {**described, "nullable": True}
