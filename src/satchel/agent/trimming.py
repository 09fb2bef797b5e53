"""What stays of a conversation that became too long?

Between two turns whole old turns go. Within a turn, old results of tools are replaced by a line
that says so. A skill whose text went is forgotten by the session, so that it can be loaded again,
and a reminder names it: its digest, what it is for, and how to get it back.
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

from satchel.tools.presence import SKILL, news_in, settle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pydantic_ai.messages import ModelMessage

    from satchel.tools.session import Session

WORTH_IT = 400
"""A shorter result is not worth replacing."""
PICTURE = 6_000
"""What a picture counts: about what providers charge for one, in characters."""
CHOSEN = "The user chose this skill. Follow it for what comes next."
FORKED = "Do what this skill says. Answer with the result alone."
_OURS = (CHOSEN, FORKED)
"""How messages begin with which this program itself puts a skill's text into a conversation."""


def size_of(messages: Sequence[ModelMessage]) -> int:
    """Characters of a conversation, near enough; thoughts, pictures and files count too."""
    return sum(_size(message) for message in messages)


def drop_old_turns(messages: Sequence[ModelMessage], limit: int) -> list[ModelMessage]:
    """The newest turns, at most half of the limit when it is exceeded; the last turn always.

    Half, so that it happens seldom: each time, the provider has to read the conversation anew.
    """
    if size_of(messages) <= limit:
        return list(messages)
    starts = [place for place, message in enumerate(messages) if _is_question(message)]
    for start in starts:
        if start and size_of(messages[start:]) <= limit // 2:
            return list(messages[start:])
    return list(messages[starts[-1] :]) if starts else list(messages)


class Shortener:
    """Makes a conversation fit that grows too long within a turn; seldom, for the cache's sake."""

    def __init__(self, limit: int) -> None:
        """Begin; `limit` is in characters."""
        self._limit = limit
        self._rest = 0
        """What was left the last time. It may be more than the limit: questions always stay."""

    def shorten(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """The same conversation, or one with results left out; then not again for a while."""
        size = size_of(messages)
        if size <= self._limit:
            self._rest = 0
            return messages
        if self._rest and size <= self._rest + self._limit // 4:
            return messages
        found = shorten_results(messages, self._limit)
        self._rest = size_of(found)
        return found


def shorten_results(messages: list[ModelMessage], limit: int) -> list[ModelMessage]:
    """The same conversation with its oldest results of tools left out, down to half of the limit.

    Texts of skills go last: they say how to go on. The last request stays as it is, since the model
    has not read it yet. The very same list comes back when nothing has to go, or nothing can.
    """
    size = size_of(messages)
    if size <= limit:
        return messages
    found = list(messages)
    too_many = wanted = size - limit // 2
    for of_skills in (False, True):
        for place, message in enumerate(found[:-1]):
            if too_many <= 0:
                return found
            if isinstance(message, ModelRequest):
                found[place], saved = _shortened(message, too_many, of_skills=of_skills)
                too_many -= saved
    return found if too_many != wanted else messages


def _shortened(
    message: ModelRequest, too_many: int, *, of_skills: bool
) -> tuple[ModelRequest, int]:
    """A request without long results, and how many characters that saves."""
    parts = list(message.parts)
    saved = 0
    for at, part in enumerate(parts):
        if saved >= too_many or not isinstance(part, ToolReturnPart):
            continue
        text = part.model_response_str()
        if len(text) < WORTH_IT or (part.tool_name == SKILL) is not of_skills:
            continue
        stub = f"(a result of {len(text):,} characters, left out to save room)"
        parts[at] = replace(part, content=stub)
        saved += len(text) - len(stub)
    return (replace(message, parts=parts), saved) if saved else (message, 0)


def forget_lost(
    session: Session, messages: Sequence[ModelMessage], told: Iterable[str] = ()
) -> tuple[str, ...]:
    """Tell the session what is no longer in a conversation.

    Args:
        session: Whose.
        messages: The conversation as it is now.
        told: Notes about changes that were in it, or should be.

    Returns:
        The names of the skills whose text went.
    """
    texts = [text for message in messages for text in _texts(message)]
    return tuple(settle(session, _skills(messages), texts, told))


def notes_in(messages: Sequence[ModelMessage]) -> list[str]:
    """The notes about changes that a conversation has."""
    return news_in(*(text for message in messages for text in _texts(message)))


def _skills(messages: Sequence[ModelMessage]) -> Iterator[str]:
    """Where texts of skills can be: results of `Skill`, and what we put before a question.

    A message beside results may be a tool's, so it is none of ours.
    """
    for message in messages:
        if not isinstance(message, ModelRequest):
            continue
        results = [part for part in message.parts if isinstance(part, ToolReturnPart)]
        for part in results:
            if part.tool_name == SKILL:
                yield part.model_response_str()
        for part in () if results else message.parts:
            if isinstance(part, UserPromptPart):
                yield from (text for text in _said(part) if text.startswith(_OURS))


def complete(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """A conversation that was broken off, without calls that nobody answered."""
    found = list(messages)
    while found and isinstance(found[-1], ModelResponse) and found[-1].tool_calls:
        found.pop()
    return found


def _is_question(message: ModelMessage) -> bool:
    """Whether a turn begins here.

    Pictures that a tool gave, and our reminders, stand beside results. Cut there, these would lose
    their calls.
    """
    if not isinstance(message, ModelRequest):
        return False
    answers = any(isinstance(part, ToolReturnPart) for part in message.parts)
    return not answers and any(isinstance(part, UserPromptPart) for part in message.parts)


def _size(message: ModelMessage) -> int:
    size = sum(len(text) for text in _texts(message))
    for part in message.parts:
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
            size += sum(_weight(one) for one in part.content)
        elif isinstance(part, ToolReturnPart):
            size += sum(_weight(one) for one in part.files)
        elif isinstance(part, ThinkingPart):
            size += len(part.content) + len(part.signature or "")
        elif isinstance(part, FilePart):
            size += _weight(part.content)
    return size


def _weight(content: object) -> int:
    """What something that is no text counts."""
    if isinstance(content, str | TextContent):
        return 0  # counted as text
    if isinstance(content, BinaryContent) and not content.is_image:
        return len(content.data)
    return PICTURE


def _said(part: UserPromptPart) -> list[str]:
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
            found += _said(part)
        elif isinstance(part, TextPart):
            found.append(part.content)
    return found
