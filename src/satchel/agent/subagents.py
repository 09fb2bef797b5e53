"""Makes the pydantic-ai agents of conversations, and runs sub-agents for the tool `Task`.

A sub-agent is a separate conversation with a subset of the agent's skills and tools. It starts
with a task, has the skills and tools that both it and its parent permit, and returns only its
answer. Its usage counts for the outer turn.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent as ModelAgent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.exceptions import AgentRunError, ToolFailed, UsageLimitExceeded, UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart  # noqa: TC002 - pydantic-ai reads the signature of `trim_history`
from pydantic_ai.models import infer_model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset
from pydantic_ai.usage import UsageLimits

from satchel.agent.events import Turn
from satchel.agent.history_trimmer import HistoryTrimmer, sync_session
from satchel.agent.toolset import (
    HostPriorityToolset,
    MeteredToolset,
    PermissionToolset,
    SessionToolset,
    as_tool,
)
from satchel.errors import ModelFailed
from satchel.tools.framing import attribute, framed, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_ai import RunContext
    from pydantic_ai.models import Model
    from pydantic_ai.toolsets import ToolsetTool

    from satchel.agent.events import Limits, SubAgent
    from satchel.session.session import Session

TASK = "Task"
_SUB_AGENT_INSTRUCTIONS = (
    "You are a sub-agent: you were given one task and cannot ask back. Do it, and answer with a"
    " clear, short account of the result; nothing else of what you do is seen."
)


class AgentFactory:
    """Makes the pydantic-ai agents of a conversation and of its sub-agents, from the same parts."""

    def __init__(
        self,
        model: Model | str,
        *,
        tools: Sequence[Any] = (),
        sub_agents: Mapping[str, SubAgent] | None = None,
        models: Mapping[str, Model | str] | None = None,
        limits: Limits,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the parts.

        Args:
            model: The default model.
            tools: Tools of the host: functions, or tools and toolsets of pydantic-ai.
            sub_agents: Sub-agents by name.
            models: Further models by name, for the steps of goals.
            limits: Limits of a turn.
            settings: Further settings of pydantic-ai's models, with precedence.
        """
        self.model = resolve_model(model)
        self.sub_agents = dict(sub_agents or {})
        self.models = {name: resolve_model(named) for name, named in (models or {}).items()}
        self.limits = limits
        self.settings = ModelSettings(cache=True, max_retries=limits.http_retries)
        self.settings.update(settings or {})  # pyright: ignore[reportCallIssue, reportArgumentType] - any provider's own
        functions = [tool for tool in tools if not isinstance(tool, AbstractToolset)]
        self._host_toolsets: list[AbstractToolset[Any]] = [
            tool for tool in tools if isinstance(tool, AbstractToolset)
        ]
        if functions:
            self._host_toolsets.insert(0, FunctionToolset(functions, id="host"))

    def make_agent(
        self, session: Session, instructions: str, model: Model | None = None, output: Any = str
    ) -> ModelAgent[Turn, Any]:
        """Create a pydantic-ai agent for a session, with tools registered before its prompt.

        Args:
            session: Provides skills and tools.
            instructions: The beginning of its prompt.
            model: The model; the default when None.
            output: The output type for pydantic-ai.
        """
        toolsets: list[AbstractToolset[Turn]] = [SessionToolset(session)]
        if self._host_toolsets:
            toolsets.append(PermissionToolset(CombinedToolset(self._host_toolsets), session))
        if self.sub_agents:
            toolsets.append(PermissionToolset(TaskToolset(self, session), session))

        trimmer = HistoryTrimmer(self.limits.history)

        async def trim_history(messages: list[ModelMessage]) -> list[ModelMessage]:
            return _trim(session, messages, trimmer)

        return ModelAgent(
            model or self.model,
            deps_type=Turn,
            output_type=output,
            instructions=instructions or None,
            toolsets=[MeteredToolset(HostPriorityToolset(toolsets, session))],
            model_settings=self.settings,
            capabilities=[ProcessHistory(trim_history)],
        )

    def usage_limits(self) -> UsageLimits:
        """The limits that end a turn."""
        limits = self.limits
        return UsageLimits(
            request_limit=limits.requests,
            input_tokens_limit=limits.input_tokens,
            output_tokens_limit=limits.output_tokens,
            total_tokens_limit=limits.total_tokens,
            cost_limit=None if limits.cost is None else Decimal(str(limits.cost)),
        )

    async def run_task(self, session: Session, name: str, text: str, turn: Turn) -> str:
        """Run a sub-agent with a task; returns its framed answer.

        Raises:
            ToolFailed: there is no such sub-agent, or it returned no answer.
        """
        sub_agent = self.sub_agents.get(name)
        if sub_agent is None:
            names = ", ".join(f"`{other}`" for other in self.sub_agents)
            raise ToolFailed(f"There is no sub-agent `{one_line(name, 60)}`. Give one of {names}")
        child_session = session.child(
            include=sub_agent.include, exclude=sub_agent.exclude, tools=sub_agent.tools
        )
        message = await child_session.awith_tail(text)
        inner_turn = Turn(turn.limits, outer=turn, agent=name)
        answer = await self._run_sub_agent(sub_agent, child_session, message, inner_turn)
        # The answer may quote untrusted content.
        return framed("tool-output", f'tool="{TASK}" agent="{attribute(name)}"', answer)

    async def _run_sub_agent(
        self, sub_agent: SubAgent, session: Session, message: str, turn: Turn
    ) -> str:
        if turn.depth > self.limits.depth:
            raise ToolFailed(
                f"Sub-agents may work {self.limits.depth} deep, no deeper. Do it yourself"
            )
        model = resolve_model(sub_agent.model) if sub_agent.model is not None else None
        instructions = f"{sub_agent.instructions}\n\n{_SUB_AGENT_INSTRUCTIONS}".strip()
        model_agent = self.make_agent(session, instructions, model)
        try:
            result = await model_agent.run(
                message,
                deps=turn,
                usage=turn.usage,
                usage_limits=self.usage_limits(),
                infer_name=False,
            )
        except UsageLimitExceeded as exc:
            raise ToolFailed("The sub-agent was stopped: this turn has met a limit") from exc
        except AgentRunError as exc:
            raise ToolFailed(
                f"The sub-agent failed: {type(exc).__name__}. Try once more, or do it yourself"
            ) from exc
        return result.output


class TaskToolset(AbstractToolset[Turn]):
    """The tool `Task`."""

    def __init__(self, factory: AgentFactory, session: Session) -> None:
        self._factory = factory
        self._session = session

    @property
    def id(self) -> str:
        """Its id for pydantic-ai."""
        return "satchel-task"

    async def get_tools(self, ctx: RunContext[Turn]) -> dict[str, ToolsetTool[Turn]]:
        """`Task` with the available sub-agents; nothing beyond the depth limit."""
        if ctx.deps.depth >= self._factory.limits.depth:
            return {}
        sub_agent_lines = "\n".join(
            f"- {name}: {sub_agent.description}"
            for name, sub_agent in self._factory.sub_agents.items()
        )
        description = (
            "Give a task to a sub-agent. It works on its own, with skills and tools of its own, and"
            " only its answer comes back: put everything it has to know into the task. Several"
            f" tasks may be given at once.\n{sub_agent_lines}"
        )
        schema = {
            "type": "object",
            "properties": {
                "agent": {
                    "type": "string",
                    "enum": list(self._factory.sub_agents),
                    "description": "Which sub-agent",
                },
                "task": {"type": "string", "description": "What it is to do", "minLength": 1},
            },
            "required": ["agent", "task"],
            "additionalProperties": False,
        }
        return {TASK: as_tool(self, TASK, description, schema)}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Turn], tool: ToolsetTool[Turn]
    ) -> Any:
        """Run the task."""
        del name, tool
        agent_name, task = tool_args.get("agent"), tool_args.get("task")
        if not isinstance(agent_name, str) or not isinstance(task, str) or not task.strip():
            raise ToolFailed("`agent` and `task` must be texts. Give both")
        return await self._factory.run_task(self._session, agent_name, task, ctx.deps)


def resolve_model(model: Model | str) -> Model:
    """Resolve a model name such as `anthropic:claude-sonnet-5`; a model is returned unchanged.

    Raises:
        ModelFailed: it is unknown, or its key is missing.
    """
    try:
        return infer_model(model)
    except (UserError, ImportError, ValueError) as exc:
        raise ModelFailed(
            f"The model `{model}` cannot be used: {one_line(str(exc), 400)}",
            "Name it as `provider:model`, install the provider's package, and set its key",
        ) from exc


def _trim(
    session: Session, messages: list[ModelMessage], trimmer: HistoryTrimmer
) -> list[ModelMessage]:
    """Trim a conversation that is too long, with a reminder of the skills whose text is gone."""
    trimmed = trimmer.trim(messages)
    if trimmed is messages:
        return messages
    sync_session(session, trimmed)
    last = trimmed[-1]
    if isinstance(last, ModelRequest) and (reminder := session.reminder_due()):
        # It stays in the history, so the next request has it in the same position.
        trimmed[-1] = replace(last, parts=[*last.parts, UserPromptPart(reminder)])
    return trimmed
