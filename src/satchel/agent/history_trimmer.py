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
    from collections.abc import Sequence

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
    starts = [place for place, message in enumerate(messages) if _is_question(message)]
    for start in starts:
        if start and history_chars(messages[start:]) <= limit // 2:
            return list(messages[start:])
    return list(messages[starts[-1] :]) if starts else list(messages)


class HistoryTrimmer:
    """Trims a conversation within a turn; rarely, to preserve the prompt cache."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = 0
        """The size after the last trim. It may exceed the limit: user messages are always kept."""

    def trim(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Return the conversation, trimmed if it is too long; then not again for a while."""
        size = history_chars(messages)
        if size <= self._limit:
            self._rest = 0
            return messages
        if self._rest and size <= self._rest + self._limit // 4:
            return messages
        found = shorten_results(messages, self._limit)
        self._rest = history_chars(found)
        return found


def shorten_results(messages: list[ModelMessage], limit: int) -> list[ModelMessage]:
    """Replace the oldest tool results, down to half of the limit.

    Texts of skills are replaced last, because they contain instructions. The last request stays,
    since the model has not read it yet. Returns the same list when nothing is replaced.
    """
    size = history_chars(messages)
    if size <= limit:
        return messages
    found = list(messages)
    too_many = wanted = size - limit // 2
    for of_skills in (False, True):
        for place, message in enumerate(found[:-1]):
            if too_many <= 0:
                return found
            if isinstance(message, ModelRequest):
                found[place], saved = _shorten_request(message, too_many, of_skills=of_skills)
                too_many -= saved
    return found if too_many != wanted else messages


def _shorten_request(
    message: ModelRequest, too_many: int, *, of_skills: bool
) -> tuple[ModelRequest, int]:
    """Replace long results of a request; returns it with the number of characters saved."""
    parts = list(message.parts)
    saved = 0
    for at, part in enumerate(parts):
        if saved >= too_many or not isinstance(part, ToolReturnPart):
            continue
        text = part.model_response_str()
        if len(text) < MIN_REPLACED_CHARS or (part.tool_name == SKILL) is not of_skills:
            continue
        stub = f"(a result of {len(text):,} characters, left out to save room)"
        parts[at] = replace(part, content=stub)
        saved += len(text) - len(stub)
    return (replace(message, parts=parts), saved) if saved else (message, 0)


def sync_session(session: Session, messages: Sequence[ModelMessage]) -> list[str]:
    """Make the session forget what is no longer in a conversation.

    Returns:
        The names of the skills whose text is gone.
    """
    return session.sync(read_history(messages, chosen=True))


def read_history(messages: Sequence[ModelMessage], *, chosen: bool = False) -> ConversationHistory:
    """The results of tools and the texts of users.

    Args:
        messages: The conversation.
        chosen: Whether skills that the user chose count as loaded. A user message next to tool
            results may come from a tool, so it is none.
    """
    calls = {
        part.tool_call_id: part.args or ""
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    }
    results: list[ToolResult] = []
    prompts: list[str] = []
    for message in messages:
        answers = [part for part in message.parts if isinstance(part, ToolReturnPart)]
        for part in answers:
            arguments = calls.get(part.tool_call_id, "")
            failed = part.outcome != "success"
            text = part.model_response_str()
            results.append(ToolResult(part.tool_name, text, arguments, failed))
        for part in message.parts:
            if isinstance(part, RetryFeedbackPart):
                results.append(ToolResult("", part.model_response()))
            for text in prompt_texts(part) if isinstance(part, UserPromptPart) else ():
                prompts.append(text)
                if chosen and not answers and text.startswith(CHOSEN):
                    results.append(ToolResult(SKILL, text))
    return ConversationHistory(results, prompts)


def without_open_calls(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Remove unanswered calls from an interrupted conversation."""
    found = list(messages)
    while found and isinstance(found[-1], ModelResponse) and found[-1].tool_calls:
        found.pop()
    return found


def _is_question(message: ModelMessage) -> bool:
    """Whether a turn begins with this message.

    Images of a tool, and our reminders, are next to tool results. A cut there would separate
    results from their calls.
    """
    if not isinstance(message, ModelRequest):
        return False
    answers = any(isinstance(part, ToolReturnPart) for part in message.parts)
    return not answers and any(isinstance(part, UserPromptPart) for part in message.parts)


def _message_chars(message: ModelMessage) -> int:
    size = sum(len(text) for text in _texts(message))
    for part in message.parts:
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            size += sum(_file_chars(one) for one in part.content)
        elif isinstance(part, ToolReturnPart):
            size += sum(_file_chars(one) for one in part.files)
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
    found = (one.content if isinstance(one, TextContent) else one for one in part.content)
    return [one for one in found if isinstance(one, str)]


def _texts(message: ModelMessage) -> list[str]:
    found: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            found.append(part.model_response_str())
        elif isinstance(part, RetryFeedbackPart):
            found.append(part.model_response())
        elif isinstance(part, ToolCallPart):
            found.append(part.args_as_json_str())
        elif isinstance(part, UserPromptPart):
            found += prompt_texts(part)
        elif isinstance(part, TextPart):
            found.append(part.content)
    return found
