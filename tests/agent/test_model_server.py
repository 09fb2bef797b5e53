"""The scripted server is only worth as much as the real SDKs believe it."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from importlib import import_module
from typing import Any

import anthropic
import openai
import pytest

from model_server import ModelServer, Reply, loopback

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*_UnionGenericAlias.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession.*"),
]

WORDS = "Tea has a temperature: green at eighty, black at a hundred degrees."
SCHEMA = {"type": "object", "properties": {"tea": {"type": "string"}}, "required": ["tea"]}
PROVIDERS = ["anthropic", "openai", "openai-responses", "gemini"]


@pytest.fixture(autouse=True)
def _direct(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")


def claude(server, **options) -> Any:
    """The real client; what it takes is not for a type checker here."""
    return anthropic.Anthropic(base_url=server.base_url("anthropic"), api_key="none", **options)


def gpt(server, **options) -> Any:
    return openai.OpenAI(base_url=server.base_url("openai"), api_key="none", **options)


def tea(request):
    """Calls the tool once, then says what it answered."""
    if request.results:
        return Reply(f"It says {request.results[-1].text}: {WORDS}")
    return Reply("Let me look.", calls=[("brew", {"tea": "sencha"}), ("brew", {"tea": "assam"})])


class Talk:
    """Two turns of one conversation with a tool, by each SDK: `(text, calls)` of a reply."""

    def __init__(self, server, *, stream):
        self.server, self.stream = server, stream

    def anthropic(self):
        tools = [{"name": "brew", "description": "Brews.", "input_schema": SCHEMA}]
        messages: list[Any] = [{"role": "user", "content": "How hot?"}]
        with claude(self.server, max_retries=0) as client:
            while True:
                asked = {"model": "claude-x", "max_tokens": 99, "system": "Be brief.",
                         "tools": tools, "messages": messages}  # fmt: skip
                if self.stream:
                    with client.messages.stream(**asked) as events:
                        seen = "".join(events.text_stream)
                        reply = events.get_final_message()
                    assert seen == reply.content[0].text
                else:
                    reply = client.messages.create(**asked)
                calls = [block for block in reply.content if block.type == "tool_use"]
                assert reply.stop_reason == ("tool_use" if calls else "end_turn")
                assert reply.usage.input_tokens == self.server.accounts[-1].total
                yield reply.content[0].text, [(call.name, call.input) for call in calls]
                messages.append(
                    {"role": "assistant", "content": [b.to_dict() for b in reply.content]}
                )
                results = [
                    {"type": "tool_result", "tool_use_id": c.id, "content": f"{c.input['tea']} ok"}
                    for c in calls
                ]
                messages.append({"role": "user", "content": results})

    def openai(self):
        function = {"name": "brew", "description": "Brews.", "parameters": SCHEMA}
        messages: list[Any] = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How hot?"},
        ]
        with gpt(self.server, max_retries=0) as client:
            while True:
                asked = {"model": "gpt-x", "messages": messages,
                         "tools": [{"type": "function", "function": function}]}  # fmt: skip
                if self.stream:
                    more = {"stream_options": {"include_usage": True}}
                    with client.chat.completions.stream(**asked, **more) as events:
                        seen = "".join(e.delta for e in events if e.type == "content.delta")
                        reply = events.get_final_completion()
                    assert seen == reply.choices[0].message.content
                else:
                    reply = client.chat.completions.create(**asked)
                assert reply.usage.prompt_tokens == self.server.accounts[-1].total
                said = reply.choices[0].message
                calls = said.tool_calls or []
                yield (
                    said.content,
                    [(c.function.name, json.loads(c.function.arguments)) for c in calls],
                )
                messages.append(
                    {"role": "assistant", "content": said.content,
                     "tool_calls": [{"id": c.id, "type": "function", "function": {
                         "name": c.function.name, "arguments": c.function.arguments}}
                         for c in calls]}
                )  # fmt: skip
                messages += [
                    {"role": "tool", "tool_call_id": c.id,
                     "content": json.loads(c.function.arguments)["tea"] + " ok"}
                    for c in calls
                ]  # fmt: skip

    def openai_responses(self):
        tools = [{"type": "function", "name": "brew", "parameters": SCHEMA, "strict": False}]
        messages: list[Any] = [{"role": "user", "content": "How hot?"}]
        with gpt(self.server, max_retries=0) as client:
            while True:
                asked = {"model": "gpt-x", "input": messages, "tools": tools,
                         "instructions": "Be brief."}  # fmt: skip
                if self.stream:
                    with client.responses.stream(**asked) as events:
                        kinds = [event.type for event in events]
                        reply = events.get_final_response()
                    assert kinds.count("response.output_text.delta") > 0
                    assert kinds[-1] == "response.completed"
                else:
                    reply = client.responses.create(**asked)
                assert reply.usage.input_tokens == self.server.accounts[-1].total
                calls = [item for item in reply.output if item.type == "function_call"]
                yield reply.output_text, [(c.name, json.loads(c.arguments)) for c in calls]
                messages.append({"role": "assistant", "content": reply.output_text})
                messages += [
                    {"type": "function_call", "call_id": c.call_id, "name": c.name,
                     "arguments": c.arguments}
                    for c in calls
                ]  # fmt: skip
                messages += [
                    {"type": "function_call_output", "call_id": c.call_id,
                     "output": json.loads(c.arguments)["tea"] + " ok"}
                    for c in calls
                ]  # fmt: skip

    def gemini(self):
        genai: Any = import_module("google.genai")  # slow, and for this one only

        types: Any = genai.types
        declared = types.FunctionDeclaration(name="brew", parameters_json_schema=SCHEMA)
        options = types.HttpOptions(base_url=self.server.base_url("gemini"))
        config = types.GenerateContentConfig(
            system_instruction="Be brief.",
            tools=[types.Tool(function_declarations=[declared])],
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )
        contents = [types.Content(role="user", parts=[types.Part(text="How hot?")])]
        with genai.Client(api_key="none", http_options=options) as client:
            while True:
                asked = {"model": "gemini-x", "contents": contents, "config": config}
                if self.stream:
                    replies: list[Any] = list(client.models.generate_content_stream(**asked))
                else:
                    replies = [client.models.generate_content(**asked)]
                parts = [p for r in replies for p in r.candidates[0].content.parts]
                counted = replies[-1].usage_metadata.prompt_token_count
                assert counted == self.server.accounts[-1].total
                calls = [part.function_call for part in parts if part.function_call]
                yield "".join(p.text or "" for p in parts), [(c.name, c.args) for c in calls]
                contents.append(types.Content(role="model", parts=parts))
                contents.append(
                    types.Content(
                        role="user",
                        parts=[
                            types.Part(
                                function_response=types.FunctionResponse(
                                    id=c.id, name=c.name, response={"output": c.args["tea"] + " ok"}
                                )
                            )
                            for c in calls
                        ],
                    )
                )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_sdk_calls_tools_and_hears_the_end(provider, stream):
    with ModelServer(tea) as server:
        talk = getattr(Talk(server, stream=stream), provider.replace("-", "_"))()
        first = next(talk)
        second = next(talk)
        talk.close()
    assert first == ("Let me look.", [("brew", {"tea": "sencha"}), ("brew", {"tea": "assam"})])
    assert second == (f"It says assam ok: {WORDS}", [])
    asked, again = server.requests
    assert asked.provider == provider
    assert asked.stream is stream
    assert asked.system == again.system == "Be brief."
    assert asked.tools == {"brew": SCHEMA}
    assert asked.last_user == again.last_user == "How hot?"
    assert asked.results == ()
    assert [(r.name, r.text) for r in again.results] == [
        ("brew", "sencha ok"),
        ("brew", "assam ok"),
    ]
    calls = [call.arguments for message in again.messages for call in message.calls]
    assert calls == [{"tea": "sencha"}, {"tea": "assam"}]
    assert [message.role for message in again.messages] == ["user", "assistant", "user"]
    assert asked.turn == again.turn == 1
    assert json.loads(asked.body) == asked.json


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


def test_a_scripted_refusal_is_waited_for_by_the_sdk():
    script = [Reply("slow down", status=429, headers={"retry-after": "1"}), "done"]
    with ModelServer(script) as server:
        client = claude(server)
        with client:
            assert ask(client, "hello") == "done"
    first, second = server.requests
    assert second.at - first.at >= 1.0
    assert server.accounts[0].total == 0


@pytest.mark.parametrize("status", [429, 500, 529])
def test_a_refusal_is_an_error_in_the_words_of_each_provider(status):
    with ModelServer([Reply("no", status=status)] * 2) as server:
        client = claude(server, max_retries=0)
        with client, pytest.raises(anthropic.APIStatusError, match="no") as caught:
            ask(client, "hello")
        assert caught.value.status_code == status
        other = gpt(server, max_retries=0)
        with other, pytest.raises(openai.APIStatusError, match="no") as caught:
            other.responses.create(model="gpt-x", input="hello")
        assert caught.value.status_code == status


def test_a_stream_can_break_in_the_middle():
    with ModelServer([Reply(WORDS, cut=4)]) as server:
        client = claude(server, max_retries=0)
        message = {"role": "user", "content": "hello"}
        with (
            client,
            pytest.raises(Exception, match=r"incomplete|closed"),
            client.messages.stream(model="c", max_tokens=9, messages=[message]) as events,
        ):
            list(events)


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


def test_a_server_leaves_no_thread_and_no_socket_behind():
    before = threading.active_count()
    server = ModelServer(lambda request: Reply("late", delay=60)).start()
    idle = socket.create_connection(("127.0.0.1", server.port))
    answers = []

    def asks():
        url = server.base_url("anthropic") + "/v1/messages"
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body)) as found:
                answers.append(found.status)
        except OSError as wrong:
            answers.append(wrong)

    waiting = threading.Thread(target=asks)
    waiting.start()
    while not server.requests:
        time.sleep(0.01)
    begun = time.monotonic()
    server.close()
    server.close()
    waiting.join()
    idle.close()
    assert time.monotonic() - begun < 2
    assert threading.active_count() == before
    assert len(answers) == 1


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
