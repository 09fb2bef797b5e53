"""Estimates the cost of an evaluation, and ends it at a limit.

`MeteredModel` asks the `CostBudget` before each request, so that a limit is exceeded by at most the
requests that are under way: one for each worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

_BYTES_OF_TOKEN_COUNT = 4
ANSWER_TOKENS = 500
"""What an answer is taken to have before any was seen."""
CALL_TOKENS = 40
GRADE_TOKENS = 60
GRADE_FRAME_TOKENS = 420
"""Instructions and format of a request to the judge."""
_MIN_CACHED_TOKENS = 1_024


class EvaluationStopped(Exception):
    """The evaluation ends: a limit is reached, or the user interrupted it."""


class CostBudget:
    """What was spent, and whether more may be."""

    def __init__(self, max_cost: float | None = None) -> None:
        self.max_cost = max_cost
        self.cost = 0.0
        self.requests = 0
        self.unpriced = 0
        """Requests whose price is unknown."""
        self.stop_reason = ""
        """Why the evaluation ends early; empty while it goes on."""

    def stop(self, reason: str) -> None:
        """End the evaluation; the first reason counts."""
        self.stop_reason = self.stop_reason or reason

    def check(self) -> None:
        """Allow one more request.

        Raises:
            EvaluationStopped: it is not allowed.
        """
        if self.max_cost is not None and self.cost >= self.max_cost:
            self.stop("max-cost")
        if self.stop_reason:
            raise EvaluationStopped(self.stop_reason)

    def add(self, response: ModelResponse) -> None:
        """Add the cost of a response."""
        self.requests += 1
        cost = cost_of(response)
        if cost is None:
            self.unpriced += 1
        else:
            self.cost += cost


class MeteredModel(WrapperModel):
    """A model whose requests count for a budget."""

    def __init__(self, wrapped: Model, budget: CostBudget) -> None:
        super().__init__(wrapped)
        self.budget = budget

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Send a request, if the budget allows it."""
        self.budget.check()
        response = await self.wrapped.request(messages, model_settings, model_request_parameters)
        self.budget.add(response)
        return response


def cost_of(response: ModelResponse) -> float | None:
    """The price of a response in US dollars; None when it is unknown."""
    if response.usage.cost is not None:
        return float(response.usage.cost)
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


class Exchange(NamedTuple):
    """The expected requests of one run, by tokens."""

    prompts: tuple[int, ...]
    """Tokens of each request's whole prompt; each continues the one before."""
    replies: tuple[int, ...]
    prefix: int = 0
    """Tokens at the beginning that other runs share."""


def tokens_of(*texts: str) -> int:
    """About how many tokens texts have."""
    return sum(len(text.encode("utf-8", "replace")) for text in texts) // _BYTES_OF_TOKEN_COUNT


def price(model: Model, exchanges: Sequence[tuple[int, Exchange]]) -> float | None:
    """The expected cost of exchanges, each with its number; None when the price is unknown.

    What a prompt shares with an earlier one is taken to be read from the provider's cache.
    """
    total = 0.0
    for number, exchange in exchanges:
        shared_tokens = exchange.prefix
        for prompt, reply in zip(exchange.prompts, exchange.replies, strict=True):
            cached = shared_tokens if shared_tokens >= _MIN_CACHED_TOKENS else 0
            writes = model.system == "anthropic" and prompt >= _MIN_CACHED_TOKENS
            usage = RequestUsage(
                input_tokens=prompt,
                output_tokens=reply,
                cache_read_tokens=cached,
                cache_write_tokens=prompt - cached if writes else 0,
            )
            response = ModelResponse(
                parts=[], usage=usage, model_name=model.model_name, provider_name=model.system
            )
            cost = cost_of(response)
            if cost is None:
                return None
            total += number * cost
            shared_tokens = prompt
    return total
