"""A model wrapper that ends the run after `finish_exploration`.

The loop of an agent ends when the model answers without a tool call. Once the tool was called, its
summary is that answer, and no further request is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.wrapper import WrapperModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings


class UntilFinished(WrapperModel):
    """A model that is asked until the exploration is finished."""

    def __init__(self, model: Model, summary: Callable[[], str]) -> None:
        """Wrap a model; `summary` gives a text once the exploration is finished."""
        super().__init__(model)
        self._summary = summary

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """The model's answer, or the summary."""
        if summary := self._summary():
            return ModelResponse([TextPart(summary)], model_name=self.model_name)
        return await super().request(messages, model_settings, model_request_parameters)
