"""The scripted server is only worth as much as the real SDKs believe it."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

import anthropic
import openai
import pytest

from model_server import ModelServer, loopback

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*_UnionGenericAlias.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession.*"),
]


@pytest.fixture(autouse=True)
def _direct(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")


def claude(server, **options) -> Any:
    """The real client; what it takes is not for a type checker here."""
    return anthropic.Anthropic(base_url=server.base_url("anthropic"), api_key="none", **options)


def gpt(server, **options) -> Any:
    return openai.OpenAI(base_url=server.base_url("openai"), api_key="none", **options)


def test_a_list_of_steps_is_taken_in_order():
    with ModelServer(["one", lambda request: request.last_user.upper()]) as server:
        assert asked_of(server, 2) == ["one", "HELLO"]


def test_a_request_after_the_last_step_fails_the_test():
    with pytest.raises(AssertionError, match="1 steps"):
        with_a_refusal(["one"], 2)


def test_an_assertion_in_the_script_fails_the_test():
    def script(request):
        assert request.system == "another"

    with pytest.raises(AssertionError):
        with_a_refusal(script, 1)


def asked_of(server, times):
    with claude(server) as client:
        return [ask(client, "hello") for _ in range(times)]


def with_a_refusal(script, times):
    with ModelServer(script) as server, pytest.raises(anthropic.BadRequestError):
        asked_of(server, times)


def ask(client, text, **more):
    return client.messages.create(
        model="claude-x", max_tokens=9, messages=[{"role": "user", "content": text}], **more
    ).content[0].text  # fmt: skip


def test_tokens_are_counted_without_a_step_of_the_script():
    with ModelServer([]) as server:
        client = claude(server)
        with client:
            message = {"role": "user", "content": "x" * 4000}
            found = client.messages.count_tokens(model="claude-x", messages=[message])
    assert 1000 <= found.input_tokens <= 1020
    assert server.requests == []
    assert len(server.counted) == 1


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
        client = gpt(server)

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


def test_what_no_provider_has_is_told():
    with loopback([]) as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{server.base_url('anthropic')}/v1/models")
        caught.value.close()
    assert server.strangers == ["GET /v1/models"]


def test_the_sdks_come_here_by_the_environment_alone():
    with loopback(["one", "two"]) as server:
        with anthropic.Anthropic() as client:
            assert ask(client, "hello") == "one"
        with openai.OpenAI() as client:
            assert client.responses.create(model="gpt-x", input="hello").output_text == "two"
    assert [request.provider for request in server.requests] == ["anthropic", "openai-responses"]
