"""A provider that is busy is asked again: when it says so, or a little later each time.

Over the wire: the real SDKs, a scripted server, and the time between two requests.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise

import httpx2
import pytest

from model_server import ModelServer, Reply, model_of
from satchel import Satchel
from satchel.agent import Agent, Limits, TurnDone
from satchel.errors import ModelFailed
from satchel.testing import make_project

pytestmark = pytest.mark.req("D7")
PROVIDERS = ["anthropic", "openai", "openai-responses"]
BUSY = Reply("too many requests", status=429, headers={"retry-after": "1"})
OVERLOADED = Reply("overloaded", status=529)


@pytest.fixture
def converse(tmp_path):
    """Run an agent whose model follows a script; returns its answers and the requests."""

    def run(script, *said, provider="anthropic", stream=False, **limits):
        async def main():
            with ModelServer(script) as server:
                async with httpx2.AsyncClient(trust_env=False) as client:
                    satchel = Satchel.for_project(make_project(tmp_path, "tea"), trust="all")
                    model = model_of(server, provider, http_client=client)
                    agent = Agent(satchel, model, limits=Limits(**limits))
                    answers = []
                    for text in said:
                        try:
                            if stream:
                                events = [event async for event in agent.stream(text)]
                                assert isinstance(events[-1], TurnDone)
                                answers.append(events[-1].text)
                            else:
                                answers.append((await agent.run(text)).text)
                        except ModelFailed as exc:
                            answers.append(exc)
                    agent.close()
                return answers, server.requests

        return asyncio.run(main())

    return run


def waits(requests):
    return [now.at - before.at for before, now in pairwise(requests)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_wait_that_the_provider_asks_for_is_kept(converse, provider, stream):
    answers, requests = converse([BUSY, "done"], "hello", provider=provider, stream=stream)
    assert answers == ["done"]
    assert [wait >= 1.0 for wait in waits(requests)] == [True]
    assert requests[0].body == requests[1].body


def test_an_overloaded_provider_is_asked_a_little_later_each_time(converse):
    script = [OVERLOADED, Reply(status=500), Reply(status=503), "done"]
    answers, requests = converse(script, "hello")
    assert answers == ["done"]
    first, second, third = waits(requests)
    # Half a second, one, two; each up to a quarter shorter, so that not all come back at once.
    assert first > 0.37
    assert second > 0.74
    assert third > 1.49


@pytest.mark.parametrize("provider", PROVIDERS)
def test_it_gives_up_after_as_many_times_as_the_host_said(converse, provider):
    quick = Reply("too many requests", status=429, headers={"retry-after-ms": "10"})
    [failed], requests = converse(lambda request: quick, "hello", provider=provider, http_retries=2)
    assert isinstance(failed, ModelFailed)
    assert "429" in str(failed)
    assert len(requests) == 3
