"""What the agent sends stays the same from the first byte on, whatever happens to the library.

Measured from the bodies that a real SDK sent: thirty turns, skills loaded, added, edited, described
anew and removed in the middle.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from itertools import pairwise
from typing import Any

import pytest
from httpx2 import AsyncClient

from model_server import ModelServer
from satchel.agent import Agent
from satchel.testing import make_tool_skill

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(os.path.dirname(HERE)), "benchmarks"))

prompt_cache: Any = importlib.import_module("prompt_cache")
talk: Any = importlib.import_module("conversation")

pytestmark = [pytest.mark.timeout(90), pytest.mark.req("D6")]


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """The whole conversation of an agent with a provider, held once."""
    kept = {}

    def of(name, provider="anthropic"):
        if (name, provider) not in kept:
            folder = tmp_path_factory.mktemp("talk")
            kept[name, provider] = asyncio.run(prompt_cache.converse(name, provider, folder))
        return kept[name, provider]

    return of


def broken(requests):
    return {now.turn for before, now in pairwise(requests) if not prompt_cache.keeps(before, now)}


@pytest.mark.parametrize("provider", prompt_cache.PROVIDERS)
def test_every_request_begins_with_the_bytes_of_the_one_before(sent, provider):
    requests = sent("satchel", provider)
    loads = sum(map(len, talk.LOADED.values()))
    assert len(requests) == talk.TURNS + loads
    assert broken(requests) == set()
    head = 2 if provider == "anthropic" else 3  # tools and system; there the system is a message
    assert len({one.parts[:head] for one in requests}) == 1
    assert all(one.parts[0] for one in requests)


@pytest.mark.req("B9")
def test_a_new_tool_is_declared_with_the_next_request_and_breaks_the_prefix_once(tmp_path):
    def add(skills):
        make_tool_skill(skills, "weigh-tea")

    talked = prompt_cache.converse("satchel", "anthropic", tmp_path, 5, changes={3: add})
    requests = asyncio.run(talked)
    assert broken(requests) == {3}
    declared = [b"weigh_tea_run" in one.parts[0] for one in requests]
    assert declared == [one.turn >= 3 for one in requests]


@pytest.mark.parametrize("provider", prompt_cache.PROVIDERS)
def test_the_report_of_a_turn_says_what_came_from_the_cache(tmp_path, provider):
    async def main():
        talk.write_library(tmp_path / ".agents" / "skills")
        with ModelServer(talk.script) as server:
            async with AsyncClient(trust_env=False) as client:
                model = prompt_cache.model_of(server, provider, client)
                agent = Agent.for_project(tmp_path, model=model, trust="all")
                reports = [(await agent.run(talk.message(turn))).report for turn in range(1, 5)]
                agent.close()
        return reports, server.accounts

    reports, accounts = asyncio.run(main())
    assert [report.requests for report in reports] == [1, 1, 2, 1]
    for key, counted in (("input_tokens", "total"), ("cache_read_tokens", "read")):
        told = sum(getattr(report, key) for report in reports)
        assert told == sum(getattr(account, counted) for account in accounts)
    assert reports[0].cached == 0
    assert reports[-1].cached > 0.9
