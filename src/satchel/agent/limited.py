"""How is a provider kept from being asked too often, by all workers together?

Each request takes a slot of a limiter that the workers share, and gives it back when its answer is
there: a step with a skill makes many requests, so a slot for a step would say little. The SDK must
not repeat requests then, since nobody would count those. They are repeated here, each with a slot
of its own, and not before the provider said.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from satchel.goals.clock import waiting, working

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pydantic_ai import RunContext
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse

    from satchel.goals.limits.base import Limiter

_FIRST = 0.5
"""Seconds before a request is repeated, where the provider does not say; then twice as long."""
_MOST = 30.0
_JITTER = 0.25
LONGEST = 120.0
"""Who asks to wait longer than this many seconds is not waited for here: a worker that sleeps holds
its place. The step's own retries may wait."""
_PASSING = (ModelRateLimitError, ModelUnavailableError, ModelServerError, ModelConnectionError)
_PASSING_STATUS = frozenset((408, 409, 425, 429))
_BROKEN = 500


class Limited(WrapperModel):
    """A model whose every request takes a slot of a limiter."""

    def __init__(self, wrapped: Model, limiter: Limiter, *, retries: int = 4) -> None:
        """Wrap a model.

        Args:
            wrapped: Who is asked.
            limiter: Who gives slots, by the provider's name.
            retries: Times that a request is repeated when the provider is busy or not there.
        """
        super().__init__(wrapped)
        self.limiter = limiter
        self.retries = retries

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask, and ask again where that helps."""
        settings = _once(model_settings)
        attempt = 0
        while True:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    await self._turn(stack)
                    stack.enter_context(working())
                    return await self.wrapped.request(messages, settings, model_request_parameters)
            except ModelAPIError as exc:
                pause = self._pause(exc, attempt)
                if pause is None:
                    raise
            attempt += 1
            with waiting():
                await asyncio.sleep(pause)  # without a slot: others may be served meanwhile

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """The same for an answer in pieces: its slot is held until the last one.

        What breaks after the first piece is not repeated: somebody has read it.
        """
        settings = _once(model_settings)
        attempt = 0
        while True:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    await self._turn(stack)
                    stack.enter_context(working())
                    response = await stack.enter_async_context(
                        self.wrapped.request_stream(
                            messages, settings, model_request_parameters, run_context
                        )
                    )
                except ModelAPIError as exc:
                    pause = self._pause(exc, attempt)
                    if pause is None:
                        raise
                else:
                    yield response
                    return
            attempt += 1
            with waiting():
                await asyncio.sleep(pause)

    async def _turn(self, stack: contextlib.AsyncExitStack) -> None:
        """Take a slot; standing in line for it is not the step's time."""
        with waiting():
            await stack.enter_async_context(self.limiter.slot(self.wrapped.system))

    def _pause(self, exc: ModelAPIError, attempt: int) -> float | None:
        """Seconds until the next request; None when there is to be none."""
        if attempt >= self.retries or not passes(exc):
            return None
        wanted = exc.retry_after
        if wanted is None:
            pause = min(_MOST, _FIRST * 2**attempt)
            return pause * (1 - random.uniform(0, _JITTER))  # noqa: S311 - no secret
        if wanted > LONGEST:
            return None
        # Never earlier than it said; a little later, so that not all come back at once.
        return wanted + random.uniform(0, _JITTER)  # noqa: S311 - same


def limited(model: Model, limiter: Limiter | None, *, retries: int = 4) -> Model:
    """A model behind a limiter; the models of a `FallbackModel` each for themselves.

    Args:
        model: Who is asked.
        limiter: Who gives slots; the model comes back as it is when None.
        retries: Times that a request is repeated when the provider is busy or not there.
    """
    if limiter is None or isinstance(model, Limited):
        return model
    if isinstance(model, FallbackModel):
        other = copy.copy(model)
        other.models = [limited(one, limiter, retries=retries) for one in model.models]
        return other
    if isinstance(model, WrapperModel) and _has_own(model.wrapped):
        around = copy.copy(model)
        around.wrapped = limited(model.wrapped, limiter, retries=retries)
        return around
    return Limited(model, limiter, retries=retries)


def _has_own(model: Model) -> bool:
    """Whether slots are to be taken further inside: of several providers, or they are already."""
    while isinstance(model, WrapperModel) and not isinstance(model, Limited):
        model = model.wrapped
    return isinstance(model, FallbackModel | Limited)


def passes(exc: BaseException) -> bool:
    """Whether waiting helps: the provider is busy, broken or not there. A wrong key stays wrong."""
    if isinstance(exc, ModelQuotaExceededError):
        return False
    if isinstance(exc, _PASSING):
        return True
    if isinstance(exc, ModelHTTPError):
        return exc.status_code in _PASSING_STATUS or exc.status_code >= _BROKEN
    return False


def _once(settings: ModelSettings | None) -> ModelSettings:
    """The settings, without retries of the SDK's own."""
    made = ModelSettings()
    made.update(settings or {})
    made["max_retries"] = 0
    return made
