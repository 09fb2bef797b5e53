"""Reads what a session has to know from the messages of its conversation.

A session can be rebuilt from the results of the tool `Skill`: each carries the skill's name, its
digest and the tools that it forbids. So a restart, another worker and a dropped session need no
store. Hosts also trim and summarise, turns fail, and some hosts start over with the same session:
what left the history must be sent again.

Messages can be forged. Only results of `Skill` count as texts of skills, and a skill allows tools
again only if its whole present text is there, as the result of a call that names it
(`LoadedSkills.adopt`). What a text forbids is believed: a forged one only takes away.
"""

from __future__ import annotations

import json
import re
from html import unescape
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel.tools.permission_rules import patterns_of
from satchel.tools.skill_tool import SkillTool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SKILL = SkillTool.name
_NEWS = re.compile(r"<skills-changed>.*?</skills-changed>", re.DOTALL)
_REMINDER = re.compile(r"<skills-loaded-before>.*?</skills-loaded-before>", re.DOTALL)
_FRAME = re.compile(r'^<skill-loaded ([^>\n]* )?nonce="([0-9a-f]{12})">$', re.MULTILINE)
_ROW = re.compile(r"<skill ([^>\n]*)>")
_MARK = re.compile(r'([a-z-]+)="([^"]*)"')
_BETWEEN = re.compile(r",\s+(?![^()]*\))")
"""A comma that is not in the argument of a pattern."""


class ToolResult(NamedTuple):
    """The result of one tool call in a conversation, whatever the host's format is."""

    tool: str
    text: str
    arguments: Mapping[str, Any] | str = ""
    """Of the call with the same id; empty when that call is not in the history."""
    failed: bool | None = None
    """None where the format does not tell."""


class ConversationHistory(NamedTuple):
    """The messages of a conversation, whatever the host's format is."""

    results: Sequence[ToolResult] = ()
    prompts: Sequence[str] | None = None
    """The texts of users; None when unknown."""
    forbidden: Mapping[str, Sequence[str]] | None = None
    """The tools that each skill forbids, where the host kept `Session.forbidden` itself."""

    @property
    def texts(self) -> list[str] | None:
        """The texts of users and tools; None when unknown."""
        if self.prompts is None:
            return None
        return [*self.prompts, *(result.text for result in self.results)]


class SkillText(NamedTuple):
    """The text of a loaded skill in a conversation."""

    name: str
    digest: str
    """Of the skill's instructions and tool rules; empty when unknown."""
    disallowed: tuple[str, ...]
    nonce: str = ""
    """Of the frame around it; empty when the text is not there, or was cut."""


def find_change_notices(*texts: str) -> list[str]:
    """The change notices in the texts of a history."""
    return [notice for text in texts for notice in _NEWS.findall(text)]


def skill_text(text: str, name: str = "") -> SkillText | None:
    """The frame of a skill in the result of `Skill`: of this name, else the first one."""
    frames: list[SkillText] = []
    for match in _FRAME.finditer(text):
        is_closed = f'</skill-loaded nonce="{match[2]}">' in text
        frames.append(_described(_marks(match[1] or ""), match[2] if is_closed else ""))
    return next((frame for frame in frames if frame.name == name), frames[0] if frames else None)


def is_whole(text: str, nonce: str, characters: int) -> bool:
    """Whether the frame with a nonce is there with at least as many characters in it."""
    start = text.find(f' nonce="{nonce}">')
    end = text.find(f'</skill-loaded nonce="{nonce}">')
    return start >= 0 and end - start > characters


def reminded_skills(texts: Iterable[str]) -> Iterator[SkillText]:
    """The skills that reminders name; their texts are not in the history."""
    for text in texts:
        for block in _REMINDER.findall(text):
            for match in _ROW.finditer(block):
                yield _described(_marks(match[1]))


def _marks(text: str) -> dict[str, str]:
    return {key: unescape(value) for key, value in _MARK.findall(text)}


def _described(marks: Mapping[str, str], nonce: str = "") -> SkillText:
    forbidden = patterns_of(_BETWEEN.split(marks.get("disallowed-tools", "")), forbidding=True)
    return SkillText(marks.get("name", ""), marks.get("digest", ""), forbidden, nonce)


# --- messages of providers ---------------------------------------------------------------------


def read_messages(messages: Iterable[Any]) -> ConversationHistory:
    """Read the messages of a provider's API, as tables or as objects of its package.

    Anthropic Messages, OpenAI Chat Completions and Responses, Gemini and Bedrock Converse; the
    formats of `Session.definitions`.
    """
    calls: dict[str, tuple[str, Any]] = {}
    results: list[ToolResult] = []
    prompts: list[str] = []
    for message in messages:
        table = _table(message)
        role = table.get("role")
        for block in _blocks(table):
            called, answered = _call(block), _answer(block)
            if called is not None:
                calls[called[0]] = called[1:]
            elif answered is not None:
                call_id, text, failed = answered
                name, arguments = calls.get(call_id, ("", ""))
                results.append(ToolResult(name, text, arguments, failed))
            elif role == "user":
                prompts.append(text_of(block.get("text", block.get("content"))))
    return ConversationHistory(results, prompts)


def _table(value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    dump = getattr(value, "model_dump", None)
    return cast("dict[str, Any]", dump(by_alias=True)) if callable(dump) else {}


def _blocks(table: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parts of a message; the message itself where its content is no list of parts."""
    for key in ("content", "parts", "tool_calls"):
        value = table.get(key)
        if isinstance(value, list) and table.get("role") != "tool":
            yield from (_table(part) for part in cast("list[Any]", value))
        elif key == "content" and "parts" not in table:
            yield table


def _call(block: Mapping[str, Any]) -> tuple[str, str, Any] | None:
    kind = block.get("type")
    if kind == "tool_use":
        return str(block.get("id")), str(block.get("name")), block.get("input")
    if kind == "function_call":
        return str(block.get("call_id")), str(block.get("name")), block.get("arguments")
    if function := block.get("function"):
        inner = _table(function)
        return str(block.get("id")), str(inner.get("name")), inner.get("arguments")
    if inner := _table(block.get("functionCall", block.get("function_call"))):
        return _gemini_id(inner), str(inner.get("name")), inner.get("args")
    if inner := _table(block.get("toolUse")):
        return str(inner.get("toolUseId")), str(inner.get("name")), inner.get("input")
    return None


def _answer(block: Mapping[str, Any]) -> tuple[str, str, bool | None] | None:
    kind = block.get("type")
    if kind == "tool_result":
        return str(block.get("tool_use_id")), text_of(block.get("content")), block.get("is_error")
    if kind == "function_call_output":
        return str(block.get("call_id")), text_of(block.get("output")), None
    if block.get("role") == "tool":
        return str(block.get("tool_call_id")), text_of(block.get("content")), None
    if inner := _table(block.get("functionResponse", block.get("function_response"))):
        response = _table(inner.get("response"))
        return _gemini_id(inner), text_of(list(response.values())), "error" in response
    if inner := _table(block.get("toolResult")):
        failed = inner.get("status") == "error"
        return str(inner.get("toolUseId")), text_of(inner.get("content")), failed
    return None


def _gemini_id(inner: Mapping[str, Any]) -> str:
    """Gemini may leave out ids; then a result belongs to the last call of its name."""
    return str(inner.get("id") or inner.get("name"))


def text_of(content: Any) -> str:
    """The text of a result, which may be a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(part) for part in cast("list[Any]", content))
    table = _table(content)
    if "text" in table:
        return text_of(table["text"])
    return json.dumps(table, ensure_ascii=False, default=str) if table else ""
