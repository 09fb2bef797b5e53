"""Builds the agent from skills, tools, sub-agents and limits, and runs one exploration."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
from filelock import FileLock

from news_explorer import prompts
from news_explorer.fetcher import HEADERS, Fetcher
from news_explorer.finishing import UntilFinished
from news_explorer.hacker_news import BASE_URL, HackerNews
from news_explorer.pages import Pages
from news_explorer.reports import Reports
from news_explorer.seen import Seen
from news_explorer.tools import Tools
from satchel import Satchel
from satchel.agent import Agent, Limits, SubAgent
from satchel.agent.subagents import resolve_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_ai.models import Model

    from satchel.agent import TurnReport

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""Where `.skills/` is."""

TOOL_CALLS = 30
ANALYSES = 4

ANALYZE_STORY = SubAgent(
    prompts.ANALYST_TASKS,
    prompts.ANALYST,
    include=("hn-analysis", "web-extraction"),
    tools=("Skill", "ReadFile", "read_story", "read_page", "read_comments"),
)


@dataclass(frozen=True)
class Options:
    """What can be chosen for a run."""

    model: Model | str
    """A model of pydantic-ai, or its name such as `anthropic:claude-sonnet-5`."""
    base_url: str = BASE_URL
    """Where Hacker News has its API."""
    output: str = "reports"
    """The folder for reports, and for what was seen."""
    project: str = HOME
    """The folder whose skills are used."""
    request: str = prompts.REQUEST
    private: bool = False
    """Also read pages on this machine; for a recorded server."""
    pause: float = 0.5
    """Seconds before a busy server is asked again for the first time."""
    tool_calls: int = TOOL_CALLS
    clock: Callable[[], datetime] = datetime.now


class Outcome(NamedTuple):
    """What came of a run."""

    finished: bool
    """`finish_exploration` was called."""
    text: str
    reported: tuple[int, ...]
    """The reported stories."""
    path: str
    """The report's path; empty when there was no news."""
    turn: TurnReport


def skills_of(project: str) -> Satchel:
    """Open the skills of a folder; they ship with this program and are trusted."""
    ours = os.path.realpath(project) == os.path.realpath(HOME)
    given: dict[str, Any] = {"trust": "all"} if ours else {}
    return Satchel.for_project(project, builtin=False, packaged=False, **given)


async def explore(options: Options, satchel: Satchel | None = None) -> Outcome:
    """Explore once: report what is new since the last run.

    Raises:
        ModelFailed: the model cannot be used or does not answer.
        Timeout: another run with the same output is under way.
    """
    folder = options.output
    os.makedirs(folder, exist_ok=True)
    with FileLock(os.path.join(folder, ".lock"), timeout=0):
        async with httpx2.AsyncClient(headers=HEADERS, timeout=10) as client:
            fetcher = Fetcher(client, pause=options.pause)
            tools = Tools(
                HackerNews(fetcher, options.base_url),
                Pages(fetcher, private=options.private),
                Seen(os.path.join(folder, "seen.json")),
                Reports(folder),
                options.clock,
            )
            return await _run(options, tools, satchel or skills_of(options.project))


async def _run(options: Options, tools: Tools, satchel: Satchel) -> Outcome:
    agent = Agent(
        satchel,
        UntilFinished(resolve_model(options.model), lambda: tools.summary),
        instructions=prompts.EXPLORER.format(tool_calls=options.tool_calls, analyses=ANALYSES),
        tools=tools.all,
        sub_agents={"analyze_story": ANALYZE_STORY},
        limits=Limits(tool_calls=options.tool_calls, requests=2 * options.tool_calls),
    )
    result = await agent.run(options.request)
    return Outcome(
        bool(tools.summary),
        result.text,
        tuple(story.id for story in tools.reported),
        tools.report,
        result.report,
    )
