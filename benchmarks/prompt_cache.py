"""Share of an agent's input that its provider could serve from the prompt cache.

    python benchmarks/prompt_cache.py [--out FILE]

One conversation of thirty turns (`conversation.py`), held by the reference agent and, in the same
run, by agents that write their list of skills anew in each turn. All of them speak the real
protocols, by pydantic-ai and the providers' own SDKs, to a scripted server on loopback. It keeps
every body and counts by the providers' published rules (`tests/model_cache.py`).

A request *keeps the prefix* when its bytes (tools, system, messages) begin with all bytes of the
request before it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import conversation
from conversation import CHANGES, INSTRUCTIONS, TURNS, message, script, write_library
from httpx2 import AsyncClient
from pydantic_ai import Agent, Tool

from model_server import ModelServer
from satchel import Satchel
from satchel.agent import Agent as Reference

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model

    from model_server import Account, Reply, Request
    from satchel.session.session import Session

    Say = Callable[[str], Awaitable[object]]
    Make = Callable[[Path, Model], Say]

RESULT = Path(__file__).resolve().parent / "results" / "prompt-cache.json"
PROVIDERS = ("anthropic", "openai")
WRITE, READ = 1.25, 0.1
"""What Anthropic takes for a token that is written to the cache, and for one that is read."""


class Sent(NamedTuple):
    """One request of an agent."""

    turn: int
    parts: tuple[bytes, ...]
    """Tools, system and messages of a body, in prompt order."""
    account: Account


# --- what was sent ------------------------------------------------------------------------


def raw_parts(body: bytes) -> tuple[bytes, ...]:
    """Tools, system and messages as they stand in a body, in the order of the prompt."""
    text = body.decode()
    top = dict(_members(text, 0))
    found = [text[slice(*top[key])] if key in top else "" for key in ("tools", "system")]
    start, _ = top["messages"]
    found += [text[slice(*span)] for span in _items(text, start)]
    return tuple(part.encode() for part in found)


def _items(text: str, start: int) -> list[tuple[int, int]]:
    """Where the elements of an array are."""
    spans: list[tuple[int, int]] = []
    at = _skip(text, start + 1)
    while text[at] != "]":
        _, end = json.JSONDecoder().raw_decode(text, at)
        spans.append((at, end))
        at = _skip(text, end)
    return spans


def _members(text: str, start: int) -> list[tuple[str, tuple[int, int]]]:
    """Where the values of an object are."""
    found: list[tuple[str, tuple[int, int]]] = []
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, end = json.JSONDecoder().raw_decode(text, at)
        at = _skip(text, end)
        _, end = json.JSONDecoder().raw_decode(text, at)
        found.append((str(key), (at, end)))
        at = _skip(text, end)
    return found


def _skip(text: str, at: int) -> int:
    while text[at] in " \n\r\t,:":
        at += 1
    return at


def keeps(before: Sent, now: Sent) -> bool:
    """Whether a request begins with every byte of the one before it."""
    return now.parts[: len(before.parts)] == before.parts


# --- who speaks ---------------------------------------------------------------------------


def model_of(server: ModelServer, provider: str, client: AsyncClient) -> Model:
    """A model of a provider, as a host would configure it, with the prompt cache on."""
    url = server.base_url(provider)
    settings: Any = {"cache": True, "max_tokens": 1000}
    if provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        there = AnthropicProvider(base_url=url, api_key="none", http_client=client)
        return AnthropicModel("claude-sonnet-5", provider=there, settings=settings)
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    there = OpenAIProvider(base_url=url, api_key="none", http_client=client)
    return OpenAIChatModel("gpt-5", provider=there, settings=settings)


def satchel_agent(**settings: Any) -> Make:
    """The reference agent, with settings of Satchel."""

    def make(folder: Path, model: Model) -> Say:
        satchel = Satchel.for_project(folder, trust="all", **settings)
        return Reference(satchel, model, instructions=INSTRUCTIONS).run

    return make


def listing_agent(*, by_use: bool, in_system: bool) -> Make:
    """An agent that lists its skills anew for every request, with the same tools.

    Args:
        by_use: The skills that were used most come first; else always in one order.
        in_system: The text of a loaded skill goes into the system prompt; else into the result.
    """

    def make(folder: Path, model: Model) -> Say:
        satchel = Satchel.for_project(folder, trust="all")
        session = satchel.session()
        used: Counter[str] = Counter()
        bodies: dict[str, str] = {}

        def instructions() -> str:
            skills = sorted(satchel.library.refresh().for_model, key=lambda skill: skill.name)
            if by_use:
                skills.sort(key=lambda skill: -used[skill.name])
            rows = [f"- {skill.name}: {skill.description}" for skill in skills]
            return "\n".join((INSTRUCTIONS, "Skills:", *rows, *bodies.values()))

        def loaded(name: str, arguments: Mapping[str, Any], text: str) -> str:
            if name != "Skill":
                return text
            skill = str(arguments["name"])
            used[skill] += 1
            if not in_system:
                return text
            bodies[skill] = text
            return f"{skill} is loaded."

        agent: Agent[object, str] = Agent(
            model, instructions=instructions, tools=_tools(session, loaded)
        )
        history: list[ModelMessage] = []

        async def say(text: str) -> object:
            done = await agent.run(text, message_history=history)
            history[:] = done.all_messages()
            return done.output

        return say

    return make


def _tools(
    session: Session, told: Callable[[str, Mapping[str, Any], str], str] | None = None
) -> list[Tool[object]]:
    """The tools of a session; `told` returns the text of a result for the model."""

    def tool(definition: dict[str, Any]) -> Tool[object]:
        name = str(definition["name"])

        async def call(**arguments: Any) -> str:
            text = (await session.acall(name, arguments)).text
            return told(name, arguments, text) if told else text

        schema = definition["input_schema"]
        return Tool[object].from_schema(call, name, definition["description"], schema)

    return [tool(definition) for definition in session.definitions("anthropic")]


AGENTS: dict[str, Make] = {
    "satchel": satchel_agent(),
    "satchel, shortlist = 0": satchel_agent(shortlist=0),
    "list in each request, one order": listing_agent(by_use=False, in_system=False),
    "the same, most used first": listing_agent(by_use=True, in_system=False),
    "the same, loaded skills in the system prompt": listing_agent(by_use=True, in_system=True),
}


# --- the run ------------------------------------------------------------------------------


async def converse(
    name: str,
    provider: str,
    folder: Path,
    turns: int = TURNS,
    *,
    changes: Mapping[int, Callable[[Path], object]] = CHANGES,
    script: Callable[[Request], Reply] = script,
) -> list[Sent]:
    """Hold the conversation; what was sent.

    Args:
        name: Which agent.
        provider: With whose protocol.
        folder: Where the library is written.
        turns: How long.
        changes: What happens to the folder of the skills, before which turn.
        script: What the model says.
    """
    skills = folder / ".agents" / "skills"
    write_library(skills)
    turn_of: list[int] = []
    with ModelServer(script) as server:
        async with AsyncClient(trust_env=False) as client:  # no proxy between us
            say = AGENTS[name](folder, model_of(server, provider, client))
            for turn in range(1, turns + 1):
                if turn in changes:
                    changes[turn](skills)
                await say(message(turn))
                turn_of += [turn] * (len(server.requests) - len(turn_of))
    return [
        Sent(turn, raw_parts(request.body), account)
        for turn, request, account in zip(turn_of, server.requests, server.accounts, strict=True)
    ]


def figures(sent: list[Sent]) -> dict[str, Any]:
    """What is kept of one conversation."""
    total = sum(one.account.total for one in sent)
    read = sum(one.account.read for one in sent)
    written = sum(one.account.written for one in sent)
    pairs = list(pairwise(sent))
    best = sum(before.account.total for before, _ in pairs)
    price = (total - read - written + WRITE * written + READ * read) / total
    return {
        "requests": len(sent),
        "input tokens": total,
        "read": read,
        "written": written,
        "share": round(read / total, 4),
        "best share": round(best / total, 4),
        "price": round(price, 4),
        "paid tokens": round(price * total),
        "keeps": sum(keeps(before, now) for before, now in pairs),
        "breaks in turns": sorted({now.turn for before, now in pairs if not keeps(before, now)}),
        "by request": [[one.turn, one.account.total, one.account.read] for one in sent],
    }


async def run(folder: Path, agents: list[str], turns: int = TURNS) -> dict[str, Any]:
    """Every agent with every provider."""
    found: dict[str, Any] = {}
    for provider in PROVIDERS:
        rows: dict[str, Any] = {}
        found[provider] = rows
        for name in agents:
            rows[name] = figures(await converse(name, provider, folder / provider, turns))
            row = rows[name]
            print(
                f"{provider:10} {name:46} {row['share']:6.1%} of {row['input tokens']:9,} tokens,"
                f" price {row['price']:.2f}, prefix kept {row['keeps']} of {row['requests'] - 1}"
            )
    return {"turns": turns, "skills": conversation.SKILLS, "agents": found}


def main() -> None:
    """Run everything and keep the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--turns", type=int, default=TURNS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(run(Path(folder), list(AGENTS), options.turns))
    options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
