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

from satchel.errors import InvalidInput
from satchel.i18n import Message, for_model
from satchel.tools.framing import one_line
from satchel.tools.permission_rules import parse_patterns
from satchel.tools.skill_tool import SkillTool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

SKILL = SkillTool.name
_LOADING_TOOLS = (SKILL, f"mcp__satchel__{SKILL}")
"""`Skill`, also as hosts name it that have it from the MCP server."""
_REMINDER = re.compile(
    r"<skills-loaded-before>((?:(?!<skills-).)*)</skills-loaded-before>(?=\s*(?:<skills-|\Z))",
    re.DOTALL,
)
"""At the end of a text, or followed by what `Session.tail` appends: not within a quoted page."""
_SKILL_FRAME = re.compile(r'^<skill-loaded ([^>\n]* )?nonce="([0-9a-f]{12})">$', re.MULTILINE)
_REMINDED_SKILL = re.compile(r"<skill ([^>\n]*)>")
_ATTRIBUTE = re.compile(r'([a-z-]+)="([^"]*)"')
_PATTERN_SEPARATOR = re.compile(r",\s+(?![^()]*\))")
"""A comma that is not in the argument of a pattern."""
_LANGCHAIN_TYPES = frozenset(("human", "ai", "system", "tool", "function", "chat"))
"""Types of the messages of LangChain, which no provider has."""


class ToolResult(NamedTuple):
    """The result of one tool call in a conversation, whatever the host's format is."""

    tool: str
    """The name of the tool."""
    text: str
    """What the model read."""
    arguments: Mapping[str, Any] | str = ""
    """Of the call with the same id; empty when that call is not in the history."""
    failed: bool | None = None
    """None where the format does not tell."""


class ConversationHistory(NamedTuple):
    """The messages of a conversation, whatever the host's format is.

    Example:
        from satchel import Satchel
        from satchel.session.history import ConversationHistory, ToolResult

        satchel = Satchel.for_project(".")
        text = satchel.session().call("Skill", {"name": "code-review"}).text
        session = satchel.session()
        session.sync(ConversationHistory([ToolResult("Skill", text, {"name": "code-review"})]))
        assert list(session.loaded) == ["code-review"]
    """

    results: Sequence[ToolResult] = ()
    """The results of tool calls, oldest first."""
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


def find_skill_text(text: str, name: str = "") -> SkillText | None:
    """Return the text of a skill in the result of `Skill`: of this name, else the first one."""
    texts: list[SkillText] = []
    for match in _SKILL_FRAME.finditer(text):
        is_closed = f'</skill-loaded nonce="{match[2]}">' in text
        attributes = _parse_attributes(match[1] or "")
        texts.append(_make_skill_text(attributes, match[2] if is_closed else ""))
    return next(
        (skill_text for skill_text in texts if skill_text.name == name), texts[0] if texts else None
    )


def is_load(tool: str) -> bool:
    """Whether a tool of this name loads skills."""
    return tool in _LOADING_TOOLS


def is_refusal(text: str, name: str) -> bool:
    """Whether the result of a load says that there is no such skill, or no tool to load one."""
    refusals = (
        Message("There is no skill `{name}`", name=one_line(name, 100)),
        Message("There is no tool `{name}` here", name=SKILL),
    )
    return text.startswith(tuple(for_model(refusal) for refusal in refusals))


def is_whole(text: str, nonce: str, characters: int) -> bool:
    """Whether the frame with a nonce is there with at least as many characters in it."""
    start = text.find(f' nonce="{nonce}">')
    end = text.find(f'</skill-loaded nonce="{nonce}">')
    return start >= 0 and end - start > characters


def reminded_skills(
    history: ConversationHistory, has_tool: Callable[[str], Any]
) -> list[SkillText]:
    """Return the skills that reminders name, whose texts are not in the history.

    Args:
        history: Reminders stand in its prompts, and at the end of results.
        has_tool: Whether a tool of this session has a name: results of others do not count.
    """
    texts = list(history.prompts or ())
    texts += [
        result.text
        for result in history.results
        if result.text.endswith("</skills-loaded-before>") and has_tool(result.tool)
    ]
    skills: list[SkillText] = []
    for text in texts:
        for block in _REMINDER.findall(text):
            rows = _REMINDED_SKILL.findall(block)
            skills += [_make_skill_text(_parse_attributes(row)) for row in rows]
    return skills


def _parse_attributes(text: str) -> dict[str, str]:
    return {key: unescape(value) for key, value in _ATTRIBUTE.findall(text)}


def _make_skill_text(attributes: Mapping[str, str], nonce: str = "") -> SkillText:
    patterns = _PATTERN_SEPARATOR.split(attributes.get("disallowed-tools", ""))
    return SkillText(
        name=attributes.get("name", ""),
        digest=attributes.get("digest", ""),
        disallowed=parse_patterns(patterns, forbidding=True),
        nonce=nonce,
    )


# --- messages of providers ---------------------------------------------------------------------


class _Call(NamedTuple):
    """A tool call in a message."""

    id: str
    tool: str
    arguments: Any


class _CallResult(NamedTuple):
    """The result of a tool call in a message."""

    call_id: str
    text: str
    failed: bool | None = None


def read_messages(messages: Iterable[Any]) -> ConversationHistory:
    """Read the messages of a provider's API, as tables or as objects of its package.

    Anthropic Messages, OpenAI Chat Completions and Responses, Gemini and Bedrock Converse; the
    formats of `Session.definitions`.

    Raises:
        InvalidInput: these are no messages of such an API.
    """
    value = cast("Any", messages)
    if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__"):
        raise _messages_error(cast("object", value))
    calls: dict[str, _Call] = {}
    results: list[ToolResult] = []
    prompts: list[str] = []
    for message in messages:
        table = _table(message)
        role = table.get("role")
        if not (role or _is_item(table)):
            raise _messages_error(message)
        for block in _blocks(table):
            call, result = _read_call(block), _read_result(block)
            if call is not None:
                calls[call.id] = call
            elif result is not None:
                call = calls.get(result.call_id, _Call("", "", ""))
                results.append(ToolResult(call.tool, result.text, call.arguments, result.failed))
            elif role == "user":
                prompts.append(text_of(block.get("text", block.get("content"))))
    return ConversationHistory(results, prompts)


def _table(value: Any) -> Mapping[str, Any]:
    """Return a message or a part of it as a table; empty when it is neither that nor a model."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    dump = getattr(value, "model_dump", None)
    return cast("dict[str, Any]", dump(by_alias=True)) if callable(dump) else {}


def _is_item(table: Mapping[str, Any]) -> bool:
    """Whether a message without a role is one of the Responses API or of Gemini."""
    kind = table.get("type")
    if "parts" in table and "kind" not in table:  # Gemini; messages of Pydantic AI have both
        return True
    return isinstance(kind, str) and kind not in _LANGCHAIN_TYPES


def _messages_error(value: object) -> InvalidInput:
    return InvalidInput(
        f"A `{type(value).__name__}` cannot be read as messages of a provider's API",
        "Give a list of messages in the format of Anthropic, OpenAI, Gemini or Bedrock; with a "
        "framework use its adapter of `satchel.integrations`, or make a `ConversationHistory` "
        "(`satchel.integrations.base`)",
    )


def _blocks(table: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parts of a message; the message itself where its content is no list of parts."""
    for key in ("content", "parts", "tool_calls"):
        value = table.get(key)
        if isinstance(value, list) and table.get("role") != "tool":
            yield from (_table(part) for part in cast("list[Any]", value))
        elif key == "content" and "parts" not in table:
            yield table


def _read_call(block: Mapping[str, Any]) -> _Call | None:
    """Read a tool call of any provider; None when the block is something else."""
    kind = block.get("type")
    if kind == "tool_use":
        return _Call(str(block.get("id")), str(block.get("name")), block.get("input"))
    if kind == "function_call":
        return _Call(str(block.get("call_id")), str(block.get("name")), block.get("arguments"))
    if block.get("function"):
        function = _table(block["function"])
        return _Call(str(block.get("id")), str(function.get("name")), function.get("arguments"))
    if gemini_call := _table(block.get("functionCall", block.get("function_call"))):
        name, arguments = str(gemini_call.get("name")), gemini_call.get("args")
        return _Call(_gemini_id(gemini_call), name, arguments)
    if tool_use := _table(block.get("toolUse")):
        return _Call(
            str(tool_use.get("toolUseId")), str(tool_use.get("name")), tool_use.get("input")
        )
    return None


def _read_result(block: Mapping[str, Any]) -> _CallResult | None:
    """Read the result of a tool call of any provider; None when the block is something else."""
    kind = block.get("type")
    if kind == "tool_result":
        text, failed = text_of(block.get("content")), block.get("is_error")
        return _CallResult(str(block.get("tool_use_id")), text, failed)
    if kind == "function_call_output":
        return _CallResult(str(block.get("call_id")), text_of(block.get("output")))
    if block.get("role") == "tool":
        return _CallResult(str(block.get("tool_call_id")), text_of(block.get("content")))
    if gemini_result := _table(block.get("functionResponse", block.get("function_response"))):
        response = _table(gemini_result.get("response"))
        text = text_of(list(response.values()))
        return _CallResult(_gemini_id(gemini_result), text, "error" in response)
    if tool_result := _table(block.get("toolResult")):
        text, failed = text_of(tool_result.get("content")), tool_result.get("status") == "error"
        return _CallResult(str(tool_result.get("toolUseId")), text, failed)
    return None


def _gemini_id(table: Mapping[str, Any]) -> str:
    """Return the id of a call; Gemini may leave it out, and the name of the tool stands for it."""
    return str(table.get("id") or table.get("name"))


def text_of(content: Any) -> str:
    """Return the text of a result, which may be a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(part) for part in cast("list[Any]", content))
    table = _table(content)
    if "text" in table:
        return text_of(table["text"])
    return json.dumps(table, ensure_ascii=False, default=str) if table else ""
