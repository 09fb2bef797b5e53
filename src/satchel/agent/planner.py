"""Who asks a model for a plan? The planner that `decompose` is given.

The plan comes as the arguments of a tool, since every provider has those. A plan that was not
accepted stays in the conversation as the model's own call, and what is wrong with it as the result:
so the beginning of each request is the one before it, and the provider's cache keeps it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai import Agent as Loop
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

from satchel._language import say
from satchel.agent.delegation import resolve
from satchel.agent.failures import translate
from satchel.agent.limited import limited
from satchel.errors import InvalidInput, ModelFailed
from satchel.goals.decomposition import Proposal
from satchel.goals.model import Usage
from satchel.tools.frame import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai.messages import ModelMessage, ModelRequestPart
    from pydantic_ai.models import Model

    from satchel.goals.decomposition import PlanRequest
    from satchel.goals.limits.base import Limiter

TOOL = "submit_plan"
"""What the model calls to hand its plan over."""
_ABOUT = "Hand over the whole plan."
_NUDGES = 2
"""Times that a model is told to call it, when it only talks."""


class AgentPlanner:
    """Plans goals with a model of pydantic-ai; the `planner` of `decompose`."""

    def __init__(
        self,
        model: Model | str,
        *,
        limiter: Limiter | None = None,
        retries: int = 4,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Take a model.

        Args:
            model: Any model of pydantic-ai, or its name such as `openai:gpt-5`.
            limiter: Who gives slots for requests; shared by all workers.
            retries: Times that a request is sent again when a provider is busy or not there.
            settings: Further settings of pydantic-ai's models.

        Raises:
            ModelFailed: nobody knows the model, or its key is missing.
        """
        self.model = limited(resolve(model), limiter, retries=retries)
        self._retries = retries
        self._settings = ModelSettings(cache=True, max_retries=retries)
        self._settings.update(settings or {})  # pyright: ignore[reportCallIssue, reportArgumentType] - any provider's own

    async def plan(self, request: PlanRequest) -> Proposal:
        """Ask the model once.

        Raises:
            ModelFailed: the model cannot be reached, or gives no plan at all.
            InvalidInput: the schema cannot be used with this model.
        """
        schema = json.loads(json.dumps(dict(request.schema)))
        usage = RunUsage()
        try:
            loop = Loop(
                self.model,
                instructions=request.system,
                output_type=ToolOutput(
                    StructuredDict(schema), name=TOOL, description=_ABOUT, strict=False
                ),
                model_settings=self._settings,
                retries={"output": _NUDGES},
            )
            result = await loop.run(
                None if request.before else request.message,
                message_history=_history(request) or None,
                usage=usage,
                usage_limits=UsageLimits(request_limit=_NUDGES + 1),
                infer_name=False,
            )
        except UserError as exc:
            raise InvalidInput(
                say("The parts of the agent do not fit: {reason}", reason=one_line(str(exc), 600)),
                say("Change the settings that were given to it"),
            ) from exc
        except AgentRunError as exc:
            raise translate(exc, self.model, self._retries) from exc
        except FallbackExceptionGroup as exc:
            last = exc.exceptions[-1]
            if isinstance(last, AgentRunError):
                raise translate(last, self.model, self._retries) from exc
            raise ModelFailed(one_line(str(last), 400)) from exc
        return Proposal(cast("Any", result.output), _taken(usage))


def _history(request: PlanRequest) -> list[ModelMessage]:
    """The conversation so far: each plan as the call that it was, and the verdict as its result."""
    found: list[ModelMessage] = []
    parts: list[ModelRequestPart] = [UserPromptPart(request.message)]
    for number, (plan, verdict) in enumerate(request.before, 1):
        call = f"plan_{number}"
        found += (
            ModelRequest(parts=parts, instructions=request.system),
            ModelResponse(parts=[ToolCallPart(TOOL, _arguments(plan), call)]),
        )
        parts = [ToolReturnPart(TOOL, verdict, call)]
    return [*found, ModelRequest(parts=parts, instructions=request.system)] if found else []


def _arguments(plan: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", plan) if isinstance(plan, dict) else {"plan": plan}


def _taken(usage: RunUsage) -> Usage:
    cost = None if usage.cost is None else float(usage.cost)
    return Usage(usage.requests, usage.input_tokens, usage.output_tokens, cost)
