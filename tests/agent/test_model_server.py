"""The scripted server is only worth as much as the real SDKs believe it."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from model_server import ModelServer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*_UnionGenericAlias.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession.*"),
]


def claude(server) -> Any:
    """The real client; what it takes is not for a type checker here."""
    return anthropic.Anthropic(base_url=server.base_url("anthropic"), api_key="none")


def test_a_request_after_the_last_step_fails_the_test():
    asked = {"model": "x", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
    with (
        pytest.raises(AssertionError, match="1 steps"),
        ModelServer(["one"]) as server,
        claude(server) as client,
        pytest.raises(anthropic.BadRequestError),
    ):
        [client.messages.create(**asked) for _ in range(2)]


def marked(text):
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def test_anthropic_serves_a_marked_prefix_from_the_cache_and_nothing_else():
    long, other = "a" * 8000, "b" * 8000
    with ModelServer(lambda request: "ok") as server:
        client = claude(server)

        def usage(**asked):
            asked = {"model": "claude-x", "max_tokens": 9, **asked}
            found = client.messages.create(**asked).usage
            return found.cache_creation_input_tokens, found.cache_read_input_tokens

        with client:
            hello = {"role": "user", "content": "hello"}
            written, read = usage(system=[marked(long)], messages=[hello])
            assert (written > 2000, read) == (True, 0)
            # The same prefix, another end: read, and nothing written.
            later = [hello, {"role": "assistant", "content": "ok"}, hello]
            assert usage(system=[marked(long)], messages=later) == (0, written)
            # The mark moved to the end of the messages: the kept prefix is within its reach.
            moved = [*later[:-1], {"role": "user", "content": [marked("more")]}]
            created, read = usage(system=[{"type": "text", "text": long}], messages=moved)
            assert (0 < created < 60, read) == (True, written)
            # Another first byte, another model, no mark, a short prefix: nothing is read.
            assert usage(system=[marked(other)], messages=[hello])[1] == 0
            assert usage(system=[marked(long)], messages=[hello], model="claude-y")[1] == 0
            assert usage(system=long, messages=[hello]) == (0, 0)
            assert usage(system=[marked("short")], messages=[hello]) == (0, 0)
            assert usage(system=[marked("short")], messages=[hello]) == (0, 0)
            # The provider puts the mark itself.
            itself = {"cache_control": {"type": "ephemeral"}, "system": other, "messages": later}
            usage(**itself)
            assert usage(**itself)[1] > 2000
            with pytest.raises(anthropic.BadRequestError, match="maximum of 4"):
                usage(system=[marked(f"{i}") for i in range(5)], messages=[hello])


def test_openai_serves_the_longest_known_prefix_in_steps():
    with ModelServer(lambda request: "ok") as server:
        client: Any = openai.OpenAI(base_url=server.base_url("openai"), api_key="none")

        def cached(*texts):
            messages = [{"role": "user", "content": text} for text in texts]
            found = client.chat.completions.create(model="gpt-x", messages=messages)
            return found.usage.prompt_tokens_details.cached_tokens

        with client:
            assert cached("a" * 8000, "one") == 0
            assert cached("a" * 8000, "two") == 1920
            assert cached("a" * 5000 + "b" * 3000) == 1152
            assert cached("b" + "a" * 8000) == 0
            assert cached("c" * 4000) == 0
            assert cached("c" * 4000) == 0
