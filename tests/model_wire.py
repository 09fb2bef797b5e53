"""How does each provider say a reply? JSON, or the events of a stream, as its SDK expects them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from model_cache import Account
    from model_request import Json, Request

CREATED = 1_767_225_600
"""Replies are the same bytes every day."""


class Said(NamedTuple):
    """What a reply holds, with ids, ready to be written."""

    number: int
    text: str
    calls: tuple[tuple[str, str, Json], ...]
    """Id, name and arguments of each."""
    account: Account
    output: int


class Event(NamedTuple):
    """One server-sent event; without a name it is a bare `data:` line."""

    name: str
    data: Any

    def encode(self) -> bytes:
        """As it stands in the stream."""
        text = self.data if isinstance(self.data, str) else dumps(self.data)
        return (
            f"event: {self.name}\n" if self.name else ""
        ).encode() + f"data: {text}\n\n".encode()


def dumps(data: Any) -> str:
    """JSON on one line."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def pieces(text: str) -> list[str]:
    """A text in the parts in which it is streamed: about three words each."""
    return re.findall(r"(?:\S*\s*){1,3}", text)[:-1] if text else []


def halves(text: str) -> list[str]:
    """JSON arguments come in parts that are no JSON by themselves."""
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


# --- Anthropic Messages ----------------------------------------------------------------------


def anthropic(request: Request, said: Said) -> Json:
    """A whole message."""
    content: list[Json] = [{"type": "text", "text": said.text}] if said.text else []
    content += [
        {"type": "tool_use", "id": id_, "name": name, "input": arguments}
        for id_, name, arguments in said.calls
    ]
    return {
        "id": f"msg_{said.number:06}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": "tool_use" if said.calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": said.account.fresh,
            "cache_creation_input_tokens": said.account.written,
            "cache_read_input_tokens": said.account.read,
            "output_tokens": said.output,
        },
    }


def anthropic_events(request: Request, said: Said) -> Iterator[Event]:
    """The same as a stream."""
    whole = anthropic(request, said)
    usage = whole["usage"]
    begun = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield Event("message_start", {"type": "message_start", "message": begun})
    yield Event("ping", {"type": "ping"})
    for index, block in enumerate(whole["content"]):
        text = block["type"] == "text"
        empty = {**block, "text": ""} if text else {**block, "input": {}}
        yield _typed("content_block_start", index=index, content_block=empty)
        if text:
            for part in pieces(block["text"]):
                delta = {"type": "text_delta", "text": part}
                yield _typed("content_block_delta", index=index, delta=delta)
        else:
            for part in ["", *halves(dumps(block["input"]))]:
                delta = {"type": "input_json_delta", "partial_json": part}
                yield _typed("content_block_delta", index=index, delta=delta)
        yield _typed("content_block_stop", index=index)
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield _typed("message_delta", delta=ended, usage=usage)
    yield _typed("message_stop")


def _typed(kind: str, **fields: Any) -> Event:
    return Event(kind, {"type": kind, **fields})


# --- OpenAI Chat Completions -----------------------------------------------------------------


def chat(request: Request, said: Said) -> Json:
    """A whole completion."""
    message: Json = {"role": "assistant", "content": said.text or None, "refusal": None}
    if said.calls:
        message["tool_calls"] = [_chat_call(call) for call in said.calls]
    reason = "tool_calls" if said.calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {**_chat_head(request, said, "chat.completion"), "choices": [choice],
            "usage": _chat_usage(said)}  # fmt: skip


def chat_events(request: Request, said: Said) -> Iterator[Event]:
    """The same as a stream; usage only when it was asked for."""
    head = _chat_head(request, said, "chat.completion.chunk")

    def chunk(delta: Json, reason: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return Event("", {**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    for part in pieces(said.text):
        yield chunk({"content": part})
    for index, call in enumerate(said.calls):
        whole = _chat_call(call)
        arguments = whole["function"]["arguments"]
        begun = {**whole, "index": index, "function": {"name": call[1], "arguments": ""}}
        yield chunk({"tool_calls": [begun]})
        for part in halves(arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield chunk({}, "tool_calls" if said.calls else "stop")
    if (request.json.get("stream_options") or {}).get("include_usage"):
        yield Event("", {**head, "choices": [], "usage": _chat_usage(said)})
    yield Event("", "[DONE]")


def _chat_head(request: Request, said: Said, kind: str) -> Json:
    id_ = f"chatcmpl-{said.number:06}"
    return {"id": id_, "object": kind, "created": CREATED, "model": request.model}


def _chat_call(call: tuple[str, str, Json]) -> Json:
    id_, name, arguments = call
    return {
        "id": id_,
        "type": "function",
        "function": {"name": name, "arguments": dumps(arguments)},
    }


def _chat_usage(said: Said) -> Json:
    return {
        "prompt_tokens": said.account.total,
        "completion_tokens": said.output,
        "total_tokens": said.account.total + said.output,
        "prompt_tokens_details": {
            "cached_tokens": said.account.read,
            "cache_write_tokens": said.account.written,
        },
    }


# --- OpenAI Responses ------------------------------------------------------------------------


def responses(request: Request, said: Said) -> Json:
    """A whole response."""
    output: list[Json] = []
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
        output.append(
            {"id": f"msg_{said.number:06}", "type": "message", "role": "assistant",
             "status": "completed", "content": [part]}
        )  # fmt: skip
    output += [
        {"id": f"fc_{id_}", "type": "function_call", "call_id": id_, "name": name,
         "arguments": dumps(arguments), "status": "completed"}
        for id_, name, arguments in said.calls
    ]  # fmt: skip
    asked = request.json
    return {
        "id": f"resp_{said.number:06}",
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": asked.get("instructions"),
        "metadata": asked.get("metadata") or {},
        "model": request.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": asked.get("tool_choice") or "auto",
        "tools": asked.get("tools") or [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": said.account.total,
            "input_tokens_details": {
                "cached_tokens": said.account.read,
                "cache_write_tokens": said.account.written,
            },
            "output_tokens": said.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": said.account.total + said.output,
        },
    }


def responses_events(request: Request, said: Said) -> Iterator[Event]:
    """The same as a stream, numbered."""
    for number, (kind, fields) in enumerate(_responses_parts(responses(request, said))):
        yield Event(kind, {"type": kind, "sequence_number": number, **fields})


def _responses_parts(whole: Json) -> Iterator[tuple[str, Json]]:
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(whole["output"]):
        at = {"item_id": item["id"], "output_index": index}
        empty = {"content": []} if item["type"] == "message" else {"arguments": ""}
        added = {**item, **empty, "status": "in_progress"}
        yield "response.output_item.added", {"output_index": index, "item": added}
        if item["type"] == "message":
            part, at = item["content"][0], {**at, "content_index": 0}
            yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
            for delta in pieces(part["text"]):
                yield "response.output_text.delta", {**at, "delta": delta, "logprobs": []}
            yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**at, "part": part}
        else:
            for delta in halves(item["arguments"]):
                yield "response.function_call_arguments.delta", {**at, "delta": delta}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield "response.function_call_arguments.done", {**at, **done}
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": whole}


# --- Gemini generateContent ------------------------------------------------------------------


def gemini(request: Request, said: Said) -> Json:
    """A whole response."""
    parts: list[Json] = [{"text": said.text}] if said.text else []
    return _gemini(request, said, [*parts, *_gemini_calls(said)], last=True)


def gemini_events(request: Request, said: Said) -> Iterator[Event]:
    """The same as a stream: a call comes whole."""
    texts = [[{"text": part}] for part in pieces(said.text)]
    bits = [*texts, _gemini_calls(said)] if said.calls else texts or [[{"text": ""}]]
    for place, parts in enumerate(bits):
        yield Event("", _gemini(request, said, parts, last=place == len(bits) - 1))


def _gemini_calls(said: Said) -> list[Json]:
    return [
        {"functionCall": {"id": id_, "name": name, "args": arguments}}
        for id_, name, arguments in said.calls
    ]


def _gemini(request: Request, said: Said, parts: list[Json], *, last: bool) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    if last:
        candidate["finishReason"] = "STOP"
    return {
        "candidates": [candidate],
        "modelVersion": request.model,
        "responseId": f"gemini-{said.number:06}",
        "usageMetadata": {
            "promptTokenCount": said.account.total,
            "cachedContentTokenCount": said.account.read,
            "candidatesTokenCount": said.output,
            "totalTokenCount": said.account.total + said.output,
        },
    }


# --- errors ----------------------------------------------------------------------------------

KINDS = {
    400: ("invalid_request_error", "INVALID_ARGUMENT"),
    401: ("authentication_error", "UNAUTHENTICATED"),
    403: ("permission_error", "PERMISSION_DENIED"),
    404: ("not_found_error", "NOT_FOUND"),
    413: ("request_too_large", "INVALID_ARGUMENT"),
    429: ("rate_limit_error", "RESOURCE_EXHAUSTED"),
    500: ("api_error", "INTERNAL"),
    503: ("api_error", "UNAVAILABLE"),
    529: ("overloaded_error", "UNAVAILABLE"),
}


def error(provider: str, status: int, message: str) -> Json:
    """A refusal in the provider's words."""
    kind, word = KINDS.get(status, ("api_error", "UNKNOWN"))
    if provider == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}}
    if provider == "gemini":
        return {"error": {"code": status, "message": message, "status": word}}
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


WIRES = {
    "anthropic": (anthropic, anthropic_events),
    "openai": (chat, chat_events),
    "openai-responses": (responses, responses_events),
    "gemini": (gemini, gemini_events),
}
"""Who writes a reply of a provider: whole, and as a stream."""
