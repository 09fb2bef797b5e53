"""Trims conversations that become too long.

Between turns, whole old turns are dropped. Within a turn, old tool results are replaced by a short
note. The session forgets a skill whose text was dropped, so that it can be loaded again, and a
reminder names it with its digest, its purpose and how to load it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from satchel.session.history import SKILL, ConversationHistory, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from pydantic_ai.messages import ModelMessage

    from satchel.session.session import Session

MIN_REPLACED_CHARS = 400
"""Shorter results are not worth replacing."""
IMAGE_CHARS = 6_000
"""Estimated size of an image: about what providers charge for one."""
CHOSEN = "The user chose this skill. Follow it for what comes next."
"""Prefix of messages in which this program inserts a skill's text."""


def history_chars(messages: Sequence[ModelMessage]) -> int:
    """Approximate characters of a conversation, including thoughts, images and files."""
    return sum(_message_chars(message) for message in messages)


def drop_old_turns(messages: Sequence[ModelMessage], limit: int) -> list[ModelMessage]:
    """Keep the newest turns, up to half of the limit if it is exceeded; always the last turn.

    Half, so that it happens rarely: each time the provider's prompt cache is lost.
    """
    if history_chars(messages) <= limit:
        return list(messages)
    starts = [index for index, message in enumerate(messages) if _begins_turn(message)]
    for start in starts:
        if start and history_chars(messages[start:]) <= limit // 2:
            return list(messages[start:])
    return list(messages[starts[-1] :]) if starts else list(messages)


class HistoryTrimmer:
    """Trims a conversation within a turn; rarely, to preserve the prompt cache."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._trimmed_size = 0
        """The size after the last trim. It may exceed the limit: user messages are always kept."""

    def trim(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Return the conversation, trimmed if it is too long; then not again for a while."""
        size = history_chars(messages)
        if size <= self._limit:
            self._trimmed_size = 0
            return messages
        if self._trimmed_size and size <= self._trimmed_size + self._limit // 4:
            return messages
        trimmed = shorten_results(messages, self._limit)
        self._trimmed_size = history_chars(trimmed)
        return trimmed


def shorten_results(messages: list[ModelMessage], limit: int) -> list[ModelMessage]:
    """Replace the oldest tool results, down to half of the limit.

    Texts of skills are replaced last, because they contain instructions. The last request stays,
    since the model has not read it yet. Returns the same list when nothing is replaced.
    """
    size = history_chars(messages)
    if size <= limit:
        return messages
    shortened = list(messages)
    initial_excess = excess = size - limit // 2
    for is_skill in (False, True):
        for index, message in enumerate(shortened[:-1]):
            if excess <= 0:
                return shortened
            if isinstance(message, ModelRequest):
                shortened[index], saved = _shorten_request(message, excess, is_skill=is_skill)
                excess -= saved
    return shortened if excess != initial_excess else messages


def _shorten_request(
    message: ModelRequest, excess: int, *, is_skill: bool
) -> tuple[ModelRequest, int]:
    """Replace long results of a request; returns it with the number of characters saved."""
    parts = list(message.parts)
    saved = 0
    for index, part in enumerate(parts):
        if saved >= excess or not isinstance(part, ToolReturnPart):
            continue
        text = part.model_response_str()
        if len(text) < MIN_REPLACED_CHARS or (part.tool_name == SKILL) is not is_skill:
            continue
        stub = f"(a result of {len(text):,} characters, left out to save room)"
        parts[index] = replace(part, content=stub)
        saved += len(text) - len(stub)
    return (replace(message, parts=parts), saved) if saved else (message, 0)


def sync_session(session: Session, messages: Sequence[ModelMessage]) -> list[str]:
    """Make the session forget what is no longer in a conversation.

    Returns:
        The names of the skills whose text is gone.
    """
    return session.sync(read_history(messages, include_chosen=True))


def read_history(
    messages: Sequence[ModelMessage], *, include_chosen: bool = False
) -> ConversationHistory:
    """Return the results of tools and the texts of users.

    Args:
        messages: The conversation.
        include_chosen: Whether skills that the user chose count as loaded. A user message next to
            tool results may come from a tool, so it is none.
    """
    arguments = _call_arguments(messages)
    results: list[ToolResult] = []
    prompts: list[str] = []
    for message in messages:
        tool_parts = [part for part in message.parts if isinstance(part, ToolReturnPart)]
        results += (_tool_result(part, arguments) for part in tool_parts)
        for part in message.parts:
            if isinstance(part, RetryFeedbackPart):
                results.append(ToolResult("", part.model_response()))
            elif isinstance(part, UserPromptPart):
                texts = prompt_texts(part)
                prompts += texts
                if include_chosen and not tool_parts:
                    results += (
                        ToolResult(SKILL, text) for text in texts if text.startswith(CHOSEN)
                    )
    return ConversationHistory(results, prompts)


def _call_arguments(messages: Iterable[ModelMessage]) -> dict[str, str | Mapping[str, Any]]:
    """The arguments of all tool calls by the id of the call."""
    return {
        part.tool_call_id: part.args or ""
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    }


def _tool_result(
    part: ToolReturnPart, arguments: Mapping[str, str | Mapping[str, Any]]
) -> ToolResult:
    failed = part.outcome != "success"
    text = part.model_response_str()
    return ToolResult(part.tool_name, text, arguments.get(part.tool_call_id, ""), failed)


def without_open_calls(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Remove unanswered calls from an interrupted conversation."""
    complete = list(messages)
    while complete and isinstance(complete[-1], ModelResponse) and complete[-1].tool_calls:
        complete.pop()
    return complete


def _begins_turn(message: ModelMessage) -> bool:
    """Whether a turn begins with this message.

    Images of a tool, and our reminders, are next to tool results. A cut there would separate
    results from their calls.
    """
    if not isinstance(message, ModelRequest):
        return False
    has_results = any(isinstance(part, ToolReturnPart) for part in message.parts)
    return not has_results and any(isinstance(part, UserPromptPart) for part in message.parts)


def _message_chars(message: ModelMessage) -> int:
    size = sum(len(text) for text in _texts(message))
    for part in message.parts:
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            size += sum(_file_chars(item) for item in part.content)
        elif isinstance(part, ToolReturnPart):
            size += sum(_file_chars(file) for file in part.files)
        elif isinstance(part, ThinkingPart):
            size += len(part.content) + len(part.signature or "")
        elif isinstance(part, FilePart):
            size += _file_chars(part.content)
    return size


def _file_chars(content: object) -> int:
    """The estimated size of something that is not text."""
    if isinstance(content, str | TextContent):
        return 0  # counted as text
    if isinstance(content, BinaryContent) and not content.is_image:
        return len(content.data)
    return IMAGE_CHARS


def prompt_texts(part: UserPromptPart) -> list[str]:
    """The texts of a prompt, without its images and files."""
    if isinstance(part.content, str):
        return [part.content]
    texts = (item.content if isinstance(item, TextContent) else item for item in part.content)
    return [text for text in texts if isinstance(text, str)]


def _texts(message: ModelMessage) -> list[str]:
    texts: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            texts.append(part.model_response_str())
        elif isinstance(part, RetryFeedbackPart):
            texts.append(part.model_response())
        elif isinstance(part, ToolCallPart):
            texts.append(part.args_as_json_str())
        elif isinstance(part, UserPromptPart):
            texts += prompt_texts(part)
        elif isinstance(part, TextPart):
            texts.append(part.content)
    return texts
