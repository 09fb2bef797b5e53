"""Rate-limited models and readable errors of model providers.

Each request takes a slot of a limiter that all workers share, and returns it with the response: a
skill step makes many requests, so one slot per step would not limit them. Retries of the SDK are
off, since they would not be counted. Requests are repeated here, each with its own slot, and not
before the time that the provider asks for.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
from typing import TYPE_CHECKING, Any, cast

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

from satchel.errors import ModelFailed
from satchel.goals.step_runner import paused, running
from satchel.i18n import say
from satchel.tools.framing import one_line

if TYPE_CHECKING:
    from pydantic_ai.exceptions import AgentRunError
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters

    from satchel.goals.rate_limits import SharedLimiter

_FIRST_PAUSE_S = 0.5
"""The first delay where the provider asks for none; doubled for each further one."""
_MAX_PAUSE_S = 30.0
_JITTER_S = 0.25
MAX_RETRY_AFTER_S = 120.0
"""A provider that asks to wait longer is not waited for here: a sleeping worker holds its slot. The
step's own retries may wait."""
_TEMPORARY_ERRORS = (
    ModelRateLimitError,
    ModelUnavailableError,
    ModelServerError,
    ModelConnectionError,
)
_TEMPORARY_STATUS = frozenset((408, 409, 425, 429))
_SERVER_ERROR_STATUS = 500
_NOT_FOUND_STATUS = 404
KEYS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "cerebras": "CEREBRAS_API_KEY",
    "cohere": "CO_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "google": "GOOGLE_API_KEY",
    "groq": "GROQ_API_KEY",
    "huggingface": "HF_TOKEN",
    "mistral": "MISTRAL_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}
"""Provider -> the environment variable of its key, for the most common ones."""
_MAX_REASON_CHARS = 400
_REFUSED_STATUS = frozenset((401, 403))


class RateLimitedModel(WrapperModel):
    """A model whose every request takes a slot of a limiter; steps of goals do not stream."""

    def __init__(self, wrapped: Model, limiter: SharedLimiter, *, retries: int = 4) -> None:
        super().__init__(wrapped)
        self.limiter = limiter
        self.retries = retries

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Send a request, and repeat it if that may help."""
        settings = _without_sdk_retries(model_settings)
        attempt = 0
        while True:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    await self._enter_slot(stack)
                    stack.enter_context(running())
                    return await self.wrapped.request(messages, settings, model_request_parameters)
            except ModelAPIError as exc:
                pause = self._find_pause(exc, attempt)
                if pause is None:
                    raise
            attempt += 1
            with paused():
                await asyncio.sleep(pause)  # without a slot: other requests may proceed

    async def _enter_slot(self, stack: contextlib.AsyncExitStack) -> None:
        """Take a slot; waiting for it does not count for the step's timeout."""
        with paused():
            await stack.enter_async_context(self.limiter.slot(self.wrapped.system))

    def _find_pause(self, exc: ModelAPIError, attempt: int) -> float | None:
        """Return the seconds until the next request; None when it is not repeated."""
        if attempt >= self.retries or not is_temporary(exc):
            return None
        requested_pause = exc.retry_after
        if requested_pause is None:
            pause = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2**attempt)
            return pause * (1 - random.uniform(0, _JITTER_S))  # noqa: S311 - no secret
        if requested_pause > MAX_RETRY_AFTER_S:
            return None
        # Never earlier than asked for; randomly later, so that not all retry at once.
        return requested_pause + random.uniform(0, _JITTER_S)  # noqa: S311 - same


def rate_limited(model: Model, limiter: SharedLimiter | None, *, retries: int = 4) -> Model:
    """Wrap a model with a limiter; the models of a `FallbackModel` individually.

    Args:
        model: The model.
        limiter: Provides slots; the model is returned unchanged when None.
        retries: Repetitions of a request when the provider is busy or unreachable.
    """
    if limiter is None or isinstance(model, RateLimitedModel):
        return model
    if isinstance(model, FallbackModel):
        limited = copy.copy(model)
        limited.models = [rate_limited(member, limiter, retries=retries) for member in model.models]
        return limited
    return RateLimitedModel(model, limiter, retries=retries)


def is_temporary(exc: BaseException) -> bool:
    """Whether waiting may help: the provider is busy, broken or unreachable."""
    if isinstance(exc, ModelQuotaExceededError):
        return False
    if isinstance(exc, _TEMPORARY_ERRORS):
        return True
    if isinstance(exc, ModelHTTPError):
        return exc.status_code in _TEMPORARY_STATUS or exc.status_code >= _SERVER_ERROR_STATUS
    return False


def _without_sdk_retries(settings: ModelSettings | None) -> ModelSettings:
    copied = ModelSettings()
    copied.update(settings or {})
    copied["max_retries"] = 0
    return copied


# --- errors of providers ------------------------------------------------------------------


def translate(exc: AgentRunError, model: Model) -> ModelFailed:
    """Convert an error of a provider to `ModelFailed`."""
    if isinstance(exc, ModelHTTPError):
        return _status_error(exc, model)
    if isinstance(exc, ModelAPIError):
        return ModelFailed(
            say("The provider cannot be reached at `{url}`: {reason}",
                url=_url(model), reason=_reason(exc)),
            say("Check the address and the model's name"),
        )  # fmt: skip
    return ModelFailed(
        say(
            "The model gave no usable answer: {reason}",
            reason=one_line(str(exc), _MAX_REASON_CHARS),
        ),
        say("Try again, or choose another model"),
    )


def _status_error(exc: Any, model: Model) -> ModelFailed:
    status: int = exc.status_code
    reason = one_line(_provider_message(exc.body) or str(exc), _MAX_REASON_CHARS)
    message = say(
        "The provider refused the request ({status}): {reason}", status=status, reason=reason
    )
    if status in _REFUSED_STATUS:
        variable = KEYS.get(model.system, model.system)
        return ModelFailed(message, say("Check the API key `{variable}`", variable=variable))
    if status == _NOT_FOUND_STATUS:
        return ModelFailed(
            say("There is no model `{name}` at this provider: {reason}",
                name=one_line(exc.model_name, 100), reason=reason),
            say("Check the address and the model's name"),
        )  # fmt: skip
    return ModelFailed(message, say("Try again, or choose another model"))


def _provider_message(body: object) -> str:
    """The provider's own message, whose location differs between providers."""
    if isinstance(body, str):
        return body.strip()
    if not isinstance(body, dict):
        return ""
    fields = cast("dict[str, object]", body)
    for key in ("error", "message", "detail"):
        if key in fields and (message := _provider_message(fields[key])):
            return message
    return ""


def _reason(exc: BaseException) -> str:
    """The innermost cause: an SDK's own message is generic."""
    while exc.__cause__ is not None:
        exc = exc.__cause__
    return one_line(str(exc) or type(exc).__name__, _MAX_REASON_CHARS)


def _url(model: Model) -> str:
    return one_line(model.base_url or model.system, 200)
