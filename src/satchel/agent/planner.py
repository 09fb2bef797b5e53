"""`AgentPlanner`: asks a model for a plan, as the planner of `decompose`.

The plan is the arguments of a tool call, which every provider supports. A rejected plan stays in
the conversation as the model's own call, with its problems as the result: each request extends the
one before it, and hits the provider's prompt cache.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai import Agent as ModelAgent
from pydantic_ai.exceptions import AgentRunError, FallbackExceptionGroup, UserError
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.output import StructuredDict, ToolOutput
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage, UsageLimits

from satchel.agent.models import rate_limited, translate
from satchel.agent.subagents import resolve_model
from satchel.errors import InvalidInput, ModelFailed
from satchel.goals.decomposition import Proposal
from satchel.goals.model import Usage
from satchel.i18n import say
from satchel.tools.framing import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai.messages import ModelMessage, ModelRequestPart
    from pydantic_ai.models import Model

    from satchel.goals.decomposition import PlanRequest
    from satchel.goals.rate_limits import SharedLimiter

PLAN_TOOL = "submit_plan"
_TOOL_DESCRIPTION = "Hand over the whole plan."
_MAX_REMINDERS = 2
"""Reminders to call the tool, when the model only answers with text."""


class AgentPlanner:
    """Plans goals with a model of pydantic-ai; the `planner` of `decompose`."""

    def __init__(
        self,
        model: Model | str,
        *,
        limiter: SharedLimiter | None = None,
        retries: int = 4,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a planner.

        Args:
            model: Any model of pydantic-ai, or its name such as `openai:gpt-5`.
            limiter: Rate limiter of requests, shared by all workers.
            retries: Repetitions of a request when a provider is busy or unreachable.
            settings: Further settings of pydantic-ai's models.

        Raises:
            ModelFailed: the model is unknown, or its key is missing.
        """
        self.model = rate_limited(resolve_model(model), limiter, retries=retries)
        self._settings = ModelSettings(cache=True, max_retries=retries)
        self._settings.update(settings or {})  # pyright: ignore[reportCallIssue, reportArgumentType] - any provider's own

    async def plan(self, request: PlanRequest) -> Proposal:
        """Ask the model once.

        Args:
            request: The prompt and the schema of a plan.

        Raises:
            ModelFailed: the model cannot be reached, or returns no plan.
            InvalidInput: the schema cannot be used with this model.
        """
        schema = json.loads(json.dumps(dict(request.schema)))  # with plain dicts and lists only
        usage = RunUsage()
        try:
            model_agent = ModelAgent(
                self.model,
                instructions=request.system,
                output_type=ToolOutput(
                    StructuredDict(schema),
                    name=PLAN_TOOL,
                    description=_TOOL_DESCRIPTION,
                    strict=False,
                ),
                model_settings=self._settings,
                retries={"output": _MAX_REMINDERS},
            )
            result = await model_agent.run(
                None if request.before else request.message,
                message_history=_history(request) or None,
                usage=usage,
                usage_limits=UsageLimits(request_limit=_MAX_REMINDERS + 1),
                infer_name=False,
            )
        except UserError as exc:
            raise InvalidInput(
                say("The parts of the agent do not fit: {reason}", reason=one_line(str(exc), 600)),
                say("Check the tools and settings of the agent"),
            ) from exc
        except AgentRunError as exc:
            raise translate(exc, self.model) from exc
        except FallbackExceptionGroup as exc:
            last_error = exc.exceptions[-1]
            if isinstance(last_error, AgentRunError):
                raise translate(last_error, self.model) from exc
            raise ModelFailed(one_line(str(last_error), 400)) from exc
        return Proposal(cast("Any", result.output), _convert_usage(usage))


def _history(request: PlanRequest) -> list[ModelMessage]:
    """The conversation so far: each plan as a tool call, with its problems as the result."""
    history: list[ModelMessage] = []
    parts: list[ModelRequestPart] = [UserPromptPart(request.message)]
    for number, (plan, verdict) in enumerate(request.before, 1):
        call_id = f"plan_{number}"
        history += (
            ModelRequest(parts=parts, instructions=request.system),
            ModelResponse(parts=[ToolCallPart(PLAN_TOOL, _arguments(plan), call_id)]),
        )
        parts = [ToolReturnPart(PLAN_TOOL, verdict, call_id)]
    return [*history, ModelRequest(parts=parts, instructions=request.system)] if history else []


def _arguments(plan: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", plan) if isinstance(plan, dict) else {"plan": plan}


def _convert_usage(usage: RunUsage) -> Usage:
    cost = None if usage.cost is None else float(usage.cost)
    return Usage(usage.requests, usage.input_tokens, usage.output_tokens, cost)
