"""Providers that are busy: a slot for each request, and requests that are repeated politely.

Over the wire: the real SDKs, a scripted server, and the time between two requests. The limiter here
only counts.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from pydantic_ai import Agent as Loop
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.models.fallback import FallbackModel

from model_server import ModelServer, Reply, model_of
from satchel import Satchel
from satchel.agent import Agent, Limits
from satchel.agent.models import MAX_RETRY_AFTER_S, RateLimitedModel, is_temporary, rate_limited
from satchel.errors import ModelFailed
from satchel.testing import make_project

PROVIDERS = ["anthropic", "openai", "openai-responses"]
BUSY = Reply("too many requests", status=429, headers={"retry-after": "1"})
OVERLOADED = Reply("overloaded", status=529)


class Counting:
    """A limiter that only counts its slots."""

    def __init__(self, most: int = 1_000) -> None:
        self.held = 0
        self.most_held = 0
        self.asked: list[str] = []
        self._room = asyncio.Semaphore(most)

    @asynccontextmanager
    async def slot(self, provider):
        self.asked.append(provider)
        async with self._room:
            self.held += 1
            self.most_held = max(self.held, self.most_held)
            try:
                yield
            finally:
                self.held -= 1


@pytest.fixture
def ask():
    """Ask a limited model some questions at once: answers or errors, requests, and the limiter."""

    def run(script, *said, provider="anthropic", most=1_000):
        async def one(loop, text):
            try:
                return (await loop.run(text)).output
            except ModelAPIError as exc:
                return exc

        async def main():
            limiter: Any = Counting(most)
            with ModelServer(script) as server:
                async with httpx2.AsyncClient(trust_env=False) as client:
                    model = rate_limited(model_of(server, provider, http_client=client), limiter)
                    loop = Loop(model, model_settings={"max_retries": 5})
                    answers = await asyncio.gather(*(one(loop, text) for text in said))
                return answers, server.requests, limiter

        return asyncio.run(main())

    return run


def waits(requests):
    return [now.at - before.at for before, now in pairwise(requests)]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_request_takes_a_slot_and_waits_for_the_providers_delay(ask, provider):
    answers, requests, limiter = ask([BUSY, "done"], "hello", provider=provider)
    assert answers == ["done"]
    assert [wait >= 1.0 for wait in waits(requests)] == [True]
    assert requests[0].body == requests[1].body
    assert limiter.asked == ["anthropic" if provider == "anthropic" else "openai"] * 2
    assert limiter.held == 0


def test_a_slot_is_free_while_its_owner_waits_for_the_next_try(ask):
    def script(request):
        first = sum(one.last_user == request.last_user for one in server_requests) == 0
        server_requests.append(request)
        return BUSY if request.last_user == "busy" and first else request.last_user

    server_requests = []
    answers, requests, limiter = ask(script, "busy", "other", most=1)
    assert answers == ["busy", "other"]
    assert limiter.most_held == 1
    assert [one.last_user for one in requests] == ["busy", "other", "busy"]


def test_a_slot_is_held_until_the_answer_is_there(ask):
    script = [Reply("one", delay=0.2, pause=0.05)] * 3
    answers, requests, limiter = ask(script, "a", "b", "c", most=1)
    assert answers == ["one"] * 3
    assert limiter.most_held == 1
    assert min(waits(requests)) >= 0.2


def test_a_provider_that_wants_hours_is_not_waited_for(ask):
    long = Reply("later", status=429, headers={"retry-after": str(int(MAX_RETRY_AFTER_S) + 1)})
    [failed], requests, _ = ask([long], "hello")
    assert failed.retry_after == MAX_RETRY_AFTER_S + 1
    assert is_temporary(failed)
    assert len(requests) == 1


def test_a_cancelled_request_gives_its_slot_back():
    async def main():
        limiter: Any = Counting()
        with ModelServer([Reply("late", delay=5)]) as server:
            async with httpx2.AsyncClient(trust_env=False) as client:
                loop = Loop(
                    rate_limited(model_of(server, "anthropic", http_client=client), limiter)
                )
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(loop.run("hello"), 0.3)
        return limiter

    limiter = asyncio.run(main())
    assert (limiter.held, limiter.most_held) == (0, 1)


def test_each_model_of_a_fallback_has_slots_of_its_own_provider():
    async def main():
        limiter: Any = Counting()
        with ModelServer(
            lambda request: OVERLOADED if request.provider == "anthropic" else "fine"
        ) as s:
            async with httpx2.AsyncClient(trust_env=False) as client:
                both = FallbackModel(
                    *(model_of(s, name, http_client=client) for name in PROVIDERS[:2])
                )
                model = rate_limited(both, limiter, retries=0)
                output = (await Loop(model).run("hello")).output
        return output, limiter.asked, both

    output, asked, both = asyncio.run(main())
    assert (output, asked) == ("fine", ["anthropic", "openai"])
    assert not any(isinstance(one, RateLimitedModel) for one in both.models)


# --- without a limiter: the SDK asks again --------------------------------------------------


@pytest.fixture
def converse(tmp_path):
    """Run an agent whose model follows a script; returns its answers and the requests."""

    def run(script, *said, provider="anthropic", **limits):
        async def main():
            with ModelServer(script) as server:
                async with httpx2.AsyncClient(trust_env=False) as client:
                    satchel = Satchel.for_project(make_project(tmp_path, "tea"), trust="all")
                    model = model_of(server, provider, http_client=client)
                    agent = Agent(satchel, model, limits=Limits(**limits))
                    answers = []
                    for text in said:
                        try:
                            answers.append((await agent.run(text)).text)
                        except ModelFailed as exc:
                            answers.append(exc)
                    agent.close()
                return answers, server.requests

        return asyncio.run(main())

    return run


@pytest.mark.req("D7")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_wait_that_the_provider_asks_for_is_kept(converse, provider):
    answers, requests = converse([BUSY, "done"], "hello", provider=provider)
    assert answers == ["done"]
    assert [wait >= 1.0 for wait in waits(requests)] == [True]
    assert requests[0].body == requests[1].body


@pytest.mark.req("D7")
def test_an_overloaded_provider_is_asked_a_little_later_each_time(converse):
    script = [OVERLOADED, Reply(status=500), Reply(status=503), "done"]
    answers, requests = converse(script, "hello")
    assert answers == ["done"]
    first, second, third = waits(requests)
    # Half a second, one, two; each up to a quarter shorter, so that not all come back at once.
    assert first > 0.37
    assert second > 0.74
    assert third > 1.49


@pytest.mark.req("D7")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_it_gives_up_after_as_many_times_as_the_host_said(converse, provider):
    quick = Reply("too many requests", status=429, headers={"retry-after-ms": "10"})
    [failed], requests = converse(lambda request: quick, "hello", provider=provider, http_retries=2)
    assert isinstance(failed, ModelFailed)
    assert "429" in str(failed)
    assert len(requests) == 3
