"""What did the agent ask for? One view of a request, whichever provider's protocol it speaks."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

Json = dict[str, Any]


class Call(NamedTuple):
    """A tool call that an assistant's message holds."""

    id: str
    name: str
    arguments: Json


class Result(NamedTuple):
    """What a tool answered, as the model is told."""

    id: str
    name: str
    """Empty where the protocol names the call only and the call is not in the history."""
    text: str
    error: bool = False


class Message(NamedTuple):
    """One turn: `user` (also with tool results) or `assistant`."""

    role: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()


class Request(NamedTuple):
    """One request for a reply, in the words of no provider, with its raw bytes beside it."""

    provider: str
    """`anthropic`, `openai`, `openai-responses` or `gemini`."""
    number: int
    """The first request of a server is 0."""
    path: str
    headers: dict[str, str]
    """With lower-case names."""
    body: bytes
    json: Json
    model: str
    stream: bool
    system: str
    messages: tuple[Message, ...]
    tools: dict[str, Json]
    """Declared tools: name to JSON schema, in the order of the request."""
    at: float
    """When it arrived, by `time.monotonic()`."""

    @property
    def last_user(self) -> str:
        """The last text of the user; tool results are not counted."""
        return next((m.text for m in reversed(self.messages) if m.role == "user" and m.text), "")

    @property
    def results(self) -> tuple[Result, ...]:
        """Answers of the tools that the last reply called; empty when the user spoke last."""
        found: list[Result] = []
        for message in reversed(self.messages):
            if message.role == "system":  # Claude Code puts notes of its own between the messages
                continue
            if message.role != "user" or (message.text and not message.results):
                break
            found[:0] = message.results
        return tuple(found)

    @property
    def all_results(self) -> tuple[Result, ...]:
        """Every tool result of the conversation."""
        return tuple(result for message in self.messages for result in message.results)

    @property
    def turn(self) -> int:
        """How many texts of the user there are: 1 in the first turn. A note beside tool results
        is none.
        """
        return sum(m.role == "user" and bool(m.text) and not m.results for m in self.messages)

    @property
    def step(self) -> int:
        """How many replies there are since the user spoke last: 0 when a turn begins."""
        found = 0
        for message in reversed(self.messages):
            if message.role == "user" and message.text and not message.results:
                break
            found += message.role == "assistant"
        return found


def parse(
    provider: str, number: int, path: str, headers: dict[str, str], body: bytes, at: float
) -> Request:
    """Read a body as the provider would."""
    data: Json = json.loads(body)
    system, messages, tools = _READERS[provider](data)
    stream = bool(data.get("stream"))
    model = str(data.get("model", ""))
    if provider == "gemini":
        model, _, verb = path.partition("?")[0].rpartition("/")[2].partition(":")
        stream = verb.startswith("stream")
    return Request(
        provider, number, path, headers, body, data, model, stream,
        system, tuple(_named(_merged(messages))), tools, at,
    )  # fmt: skip


def _merged(messages: list[Message]) -> list[Message]:
    """One reply is one message, and so are the answers to it, also where each is an item."""
    found: list[Message] = []
    for message in messages:
        last = found[-1] if found else Message("")
        said = message.role == last.role == "assistant"
        answered = bool(message.results and last.results) and not message.text
        if said or answered:
            found[-1] = Message(
                last.role,
                "\n".join(text for text in (last.text, message.text) if text),
                last.calls + message.calls,
                last.results + message.results,
            )
        else:
            found.append(message)
    return found


def _named(messages: list[Message]) -> list[Message]:
    """Results with the name of the tool, found in the calls before them."""
    names = {call.id: call.name for message in messages for call in message.calls}
    return [
        m._replace(results=tuple(r._replace(name=r.name or names.get(r.id, "")) for r in m.results))
        for m in messages
    ]


def text_of(content: Any) -> str:
    """The text of a string or of a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = content.get("parts") or [content]
    parts = (item if isinstance(item, str) else item.get("text", "") for item in content or ())
    return "\n".join(part for part in parts if part)


def _anthropic(data: Json) -> tuple[str, list[Message], dict[str, Json]]:
    messages: list[Message] = []
    for item in data["messages"]:
        content = item["content"]
        text: list[Json] = [{"type": "text", "text": content}]
        blocks: list[Json] = text if isinstance(content, str) else content
        calls = [b for b in blocks if b["type"] == "tool_use"]
        results = [b for b in blocks if b["type"] == "tool_result"]
        messages.append(
            Message(
                item["role"],
                text_of([b for b in blocks if b["type"] == "text"]),
                tuple(Call(b["id"], b["name"], b["input"]) for b in calls),
                tuple(
                    Result(b["tool_use_id"], "", text_of(b.get("content")), bool(b.get("is_error")))
                    for b in results
                ),
            )
        )
    tools = {tool["name"]: tool.get("input_schema", {}) for tool in data.get("tools") or ()}
    return text_of(data.get("system")), messages, tools


def _chat(data: Json) -> tuple[str, list[Message], dict[str, Json]]:
    system: list[str] = []
    messages: list[Message] = []
    for item in data["messages"]:
        text = text_of(item.get("content"))
        if item["role"] in {"system", "developer"}:
            system.append(text)
        elif item["role"] == "tool":
            messages.append(Message("user", results=(Result(item["tool_call_id"], "", text),)))
        else:
            calls = tuple(
                Call(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"] or "{}"))
                for c in item.get("tool_calls") or ()
            )
            messages.append(Message(item["role"], text, calls))
    declared = (t["function"] for t in data.get("tools") or () if t["type"] == "function")
    return "\n".join(system), messages, {t["name"]: t.get("parameters", {}) for t in declared}


def _responses(data: Json) -> tuple[str, list[Message], dict[str, Json]]:
    system = [data["instructions"]] if data.get("instructions") else []
    messages: list[Message] = []
    asked = data["input"]
    for item in [{"role": "user", "content": asked}] if isinstance(asked, str) else asked:
        kind = item.get("type", "message")
        if kind == "function_call":
            arguments = json.loads(item["arguments"] or "{}")
            call = Call(item["call_id"], item["name"], arguments)
            messages.append(Message("assistant", calls=(call,)))
        elif kind == "function_call_output":
            result = Result(item["call_id"], "", text_of(item["output"]))
            messages.append(Message("user", results=(result,)))
        elif kind == "message" and item["role"] in {"system", "developer"}:
            system.append(text_of(item["content"]))
        elif kind == "message":
            messages.append(Message(item["role"], text_of(item["content"])))
    declared = (t for t in data.get("tools") or () if t["type"] == "function")
    return "\n".join(system), messages, {t["name"]: t.get("parameters", {}) for t in declared}


def _gemini(data: Json) -> tuple[str, list[Message], dict[str, Json]]:
    messages: list[Message] = []
    for item in data["contents"]:
        parts = item.get("parts") or []
        calls = [call for part in parts if (call := either(part, "functionCall"))]
        results = [result for part in parts if (result := either(part, "functionResponse"))]
        messages.append(
            Message(
                "assistant" if item.get("role") == "model" else "user",
                text_of([part for part in parts if "text" in part]),
                tuple(Call(c.get("id", ""), c["name"], c.get("args") or {}) for c in calls),
                tuple(Result(r.get("id", ""), r["name"], _answer(r)) for r in results),
            )
        )
    declared = [
        function
        for tool in data.get("tools") or ()
        for function in either(tool, "functionDeclarations") or ()
    ]
    tools = {
        f["name"]: either(f, "parametersJsonSchema") or f.get("parameters") or {} for f in declared
    }
    return text_of(either(data, "systemInstruction")), messages, tools


def either(data: Json, name: str) -> Any:
    """A field of Gemini's by its JSON name or by its proto name: the API takes both."""
    proto = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return data.get(name) or data.get(proto)


def _answer(response: Json) -> str:
    """Gemini's tools answer with an object; one with a single text is that text."""
    told = response.get("response") or {}
    values = list(told.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return json.dumps(told, ensure_ascii=False)


_READERS = {
    "anthropic": _anthropic,
    "openai": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
