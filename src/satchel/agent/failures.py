"""Why did a provider give no answer, and what is there to do? In one sentence and one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from satchel._language import say
from satchel.errors import ModelFailed
from satchel.tools.frame import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai.exceptions import AgentRunError
    from pydantic_ai.models import Model

KEYS: Mapping[str, str] = {
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
"""Provider -> the variable with its key; the ones that most people use."""
_MOST = 400
_REFUSED = frozenset((401, 403))
_ABSENT = 404
_BUSY = 429
_BROKEN = 500


def translate(exc: AgentRunError, model: Model, retries: int) -> ModelFailed:
    """What to tell about a turn that a provider ended.

    Args:
        exc: What pydantic-ai raised.
        model: Who was asked.
        retries: How often a request is sent again.
    """
    from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError

    if isinstance(exc, ModelHTTPError):
        return _of_status(exc, model, retries)
    if isinstance(exc, ModelAPIError):
        return ModelFailed(
            say("The provider cannot be reached at `{url}`: {reason}",
                url=_url(model), reason=_reason(exc)),
            say("Check the network and the address, then try again"),
        )  # fmt: skip
    return ModelFailed(
        say("The model gave no answer: {reason}", reason=one_line(str(exc), _MOST)),
        say("Try again, or choose another model"),
    )


def _of_status(exc: Any, model: Model, retries: int) -> ModelFailed:
    status: int = exc.status_code
    reason = one_line(_said(exc.body) or str(exc), _MOST)
    if status in _REFUSED:
        variable = KEYS.get(model.system, "")
        return ModelFailed(
            say("The provider refused the key ({status}): {reason}", status=status, reason=reason),
            say("Check the key in `{variable}`, and what it may do", variable=variable)
            if variable
            else say("Check the key of the provider, and what it may do"),
        )
    if status == _ABSENT:
        return ModelFailed(
            say("There is no model `{name}` at this provider: {reason}",
                name=one_line(exc.model_name, 100), reason=reason),
            say("Check the name of the model; `{url}` was asked", url=_url(model)),
        )  # fmt: skip
    if status == _BUSY or status >= _BROKEN:
        return ModelFailed(
            say("The provider is busy ({status}), tried once: {reason}",
                status=status, reason=reason)
            if retries < 1
            else say("The provider is busy ({status}), tried {count} times: {reason}",
                     status=status, count=retries + 1, reason=reason),
            say("Try again later, or choose another model"),
        )  # fmt: skip
    return ModelFailed(
        say("The provider refused the request ({status}): {reason}", status=status, reason=reason),
        say("Do what the provider says, then try again"),
    )


def _said(body: object) -> str:
    """The provider's own message, which stands a little elsewhere at each of them."""
    if isinstance(body, str):
        return body.strip()
    if not isinstance(body, dict):
        return ""
    known = cast("dict[str, object]", body)
    for key in ("error", "message", "detail"):
        if key in known and (found := _said(known[key])):
            return found
    return ""


def _reason(exc: BaseException) -> str:
    """The innermost cause: an SDK says only that there was an error."""
    while exc.__cause__ is not None:
        exc = exc.__cause__
    return one_line(str(exc) or type(exc).__name__, _MOST)


def _url(model: Model) -> str:
    return one_line(model.base_url or model.system, 200)
