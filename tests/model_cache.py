"""Which part of a request could the provider serve from its prompt cache?

The published rules, with a token for every four bytes of JSON and entries that never expire:

- Anthropic: the order is tools, system, messages. A block with `cache_control` ends a prefix that
  is kept, when it has 1,024 tokens or more. A later request reads the longest kept prefix that
  ends at one of its own marks or within 20 blocks before it. At most four marks. (The provider
  counts a run of tool blocks as one there; here each counts, so nothing is promised too much.)
- OpenAI and Gemini: automatic. The longest prefix that any earlier request had, in steps of
  128 tokens, from 1,024 on.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from model_request import Json, Request

BYTES_A_TOKEN = 4
MINIMUM = 1024
STEP = 128
LOOKBACK = 20
MARKS = 4


class Account(NamedTuple):
    """The input tokens of one request. `fresh + read + written` is all of them."""

    total: int
    read: int = 0
    """Served from the cache."""
    written: int = 0
    """Put into the cache by this request, not counted again in `read`."""

    @property
    def fresh(self) -> int:
        """Neither read nor written."""
        return self.total - self.read - self.written


class TooManyMarksError(ValueError):
    """The provider refuses such a request."""


class PromptCache:
    """What one provider remembers, apart for each model."""

    def __init__(self, minimum: int = MINIMUM) -> None:
        self.minimum = minimum
        self._kept: set[bytes] = set()

    def account(self, request: Request, *, keep: bool = True) -> Account:
        """Count a request and remember its prefixes."""
        if request.provider == "anthropic":
            return self._marked(request, keep=keep)
        return self._automatic(request, keep=keep)

    def _marked(self, request: Request, *, keep: bool) -> Account:
        chain = hashlib.sha256(f"anthropic {request.model}".encode())
        size, at = 0, []  # (digest, tokens) after each block
        marks: list[int] = []
        for block, mark in anthropic_blocks(request.json):
            size += len(block)
            chain.update(len(block).to_bytes(8, "big") + block)
            if mark:
                marks.append(len(at))
            at.append((chain.digest(), size // BYTES_A_TOKEN))
        if len(marks) > MARKS:
            raise TooManyMarksError(
                f"A maximum of {MARKS} blocks with cache_control may be provided. "
                f"Found {len(marks)}."
            )
        total = size // BYTES_A_TOKEN
        good = [mark for mark in marks if at[mark][1] >= self.minimum]
        read = 0
        for mark in good:
            for digest, tokens in at[max(0, mark - LOOKBACK + 1) : mark + 1]:
                if digest in self._kept:
                    read = max(read, tokens)
        if keep:
            self._kept.update(at[mark][0] for mark in good)
        written = max((at[mark][1] for mark in good), default=0) - read
        return Account(total, read, max(0, written))

    def _automatic(self, request: Request, *, keep: bool) -> Account:
        prompt = automatic_prefix(request)
        total = len(prompt) // BYTES_A_TOKEN
        step = STEP * BYTES_A_TOKEN
        chain = hashlib.sha256(f"{request.provider} {request.model}".encode())
        digests: list[bytes] = []
        for start in range(0, len(prompt) - step + 1, step):
            chain.update(prompt[start : start + step])
            digests.append(chain.digest())
        hit = 0
        while hit < len(digests) and digests[hit] in self._kept:
            hit += 1
        read = hit * STEP if hit * STEP >= self.minimum else 0
        kept = len(digests) * STEP if len(digests) * STEP >= self.minimum else 0
        if keep and kept:
            self._kept.update(digests)
        return Account(total, read, max(0, kept - read))


def anthropic_blocks(data: Json) -> list[tuple[bytes, bool]]:
    """Every block of a request in the provider's order, without its mark; and: is it marked?

    A change of `tool_choice` or `thinking` makes the messages another prefix, not tools or system.
    """
    found = [_block("tool", tool) for tool in data.get("tools") or ()]
    system = data.get("system") or ()
    if isinstance(system, str):
        system = [{"type": "text", "text": system}]
    found += [_block("system", block) for block in system]
    aside = {key: data[key] for key in ("tool_choice", "thinking") if data.get(key)}
    first = len(found)
    for message in data["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [_block(message["role"], block) for block in blocks]
    if aside and first < len(found):
        found[first] = (bytes_of(aside) + found[first][0], found[first][1])
    if data.get("cache_control") and found:  # the provider marks the last block itself
        found[-1] = (found[-1][0], True)
    return found


def automatic_prefix(request: Request) -> bytes:
    """The prompt in the provider's order. Tools first: kind to agents that change the system."""
    data = request.json
    parts: list[Any] = list(data.get("tools") or ())
    told = ("instructions", "systemInstruction", "system_instruction")
    parts += [data[key] for key in told if data.get(key)]
    asked = data.get("messages") or data.get("input") or data.get("contents") or ()
    parts += [asked] if isinstance(asked, str) else list(asked)
    return b"\n".join(bytes_of(part) for part in parts)


def bytes_of(part: Any) -> bytes:
    """JSON in the order of the request: a provider sees another order as another text."""
    return json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode()


def _block(role: str, block: Any) -> tuple[bytes, bool]:
    if not isinstance(block, dict) or "cache_control" not in block:
        return bytes_of([role, block]), False
    bare = {key: value for key, value in block.items() if key != "cache_control"}
    return bytes_of([role, bare]), bool(block["cache_control"])
