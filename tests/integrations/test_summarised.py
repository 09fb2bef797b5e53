"""A framework's own summariser replaces the texts of skills, and then the process restarts.

The first process loads `careful`, which forbids a tool of the host, and `forecast`, which allows a
tool that needs approval; no message that could hold a reminder follows. The second process has
what the framework stored, a new `Satchel` and a new agent.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import agents
import httpx2
import pytest
from agent_framework import Agent as FrameworkAgent
from agent_framework import (
    AgentSession,
    CompactionProvider,
    InMemoryHistoryProvider,
    SummarizationStrategy,
)
from agent_framework import tool as framework_tool
from agent_framework.openai import OpenAIChatClient
from agents.memory import OpenAIResponsesCompactionSession
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.models import Gemini
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import messages_from_dict, messages_to_dict
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from openai import AsyncOpenAI
from pydantic_ai import Agent, ModelMessagesTypeAdapter
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,  # noqa: TC002 - pydantic-ai reads the annotations
    ModelRequest,
)

from framework_chat import place_of
from model_server import Reply, loopback
from satchel import Satchel
from satchel.integrations.agent_framework import SkillsProvider
from satchel.integrations.google_adk import SkillsToolset
from satchel.integrations.langchain import SkillsMiddleware
from satchel.integrations.openai_agents import SkillsAgent
from satchel.integrations.pydantic_ai import SkillsCapability
from satchel.testing import make_skill, make_tool_skill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from model_server import Request

pytestmark = [
    pytest.mark.timeout(90),  # the first request of a process imports much
    pytest.mark.filterwarnings("ignore:.EXPERIMENTAL. EventsCompactionConfig:UserWarning"),
]

SAVERS: dict[Path, InMemorySaver] = {}
"""What LangGraph stored; its saver keeps bytes, as one with a database does."""
MODEL = "gpt-5.4-mini"


def deploy() -> str:
    """Ship it."""
    return "deployed"


def look() -> str:
    """Look out."""
    return "It is light."


def with_pydantic_ai(satchel: Satchel, store: Path) -> None:
    model = "anthropic:claude-sonnet-5"
    writer = Agent(model)

    async def summarise(messages: list[ModelMessage]) -> list[ModelMessage]:
        if len(messages) < 4:
            return messages
        result = await writer.run("Summarise", message_history=messages[:-2])
        return [ModelRequest([CompactionPart(result.output)]), *messages[-2:]]

    skills = [SkillsCapability(satchel), ProcessHistory(summarise)]
    agent = Agent(model, tools=[deploy, look], capabilities=skills)
    history = ModelMessagesTypeAdapter.validate_json(store.read_bytes()) if store.exists() else None
    result = asyncio.run(agent.run("Go on", message_history=history))
    store.write_bytes(result.all_messages_json())


def langchain_agent(satchel: Satchel, **options: Any) -> Any:
    model = ChatOpenAI(model=MODEL)
    summary = SummarizationMiddleware(model, trigger=("messages", 4), keep=("messages", 2))
    tools = [langchain_tool(deploy), langchain_tool(look)]
    skills = SkillsMiddleware(satchel)
    return create_agent(model, tools=tools, middleware=[summary, skills], **options)


def with_langchain(satchel: Satchel, store: Path) -> None:
    history = messages_from_dict(json.loads(store.read_text())) if store.exists() else []
    result = langchain_agent(satchel).invoke({"messages": [*history, ("user", "Go on")]})
    store.write_text(json.dumps(messages_to_dict(result["messages"])))


def with_langgraph(satchel: Satchel, store: Path) -> None:
    saver = SAVERS.setdefault(store, InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    agent = langchain_agent(satchel, checkpointer=saver)
    agent.invoke({"messages": [("user", "Go on")]}, config)


def with_google_adk(satchel: Satchel, store: Path) -> None:
    skills = SkillsToolset(satchel)
    compaction = EventsCompactionConfig(
        compaction_interval=1,
        overlap_size=0,
        summarizer=LlmEventSummarizer(Gemini(model="gemini-3.5-flash")),
    )
    app = App(
        name="app",
        root_agent=LlmAgent(name="a", model="gemini-3.5-flash", tools=[deploy, look, skills]),
        plugins=[skills.plugin],
        events_compaction_config=compaction,
    )
    message = types.UserContent(parts=[types.Part(text="Go on")])

    async def talk() -> None:
        service = SqliteSessionService(str(store))
        runner = Runner(app=app, session_service=service, auto_create_session=True)
        async with runner:
            async for _ in runner.run_async(user_id="me", session_id="1", new_message=message):
                pass

    asyncio.run(talk())


def with_agent_framework(satchel: Satchel, store: Path) -> None:
    client = OpenAIChatClient(MODEL)
    history = InMemoryHistoryProvider(skip_excluded=True)
    summary = SummarizationStrategy(client=client, target_count=1, threshold=0)
    compaction = CompactionProvider(after_strategy=summary, history_source_id=history.source_id)
    own = framework_tool(approval_mode="never_require")
    agent = FrameworkAgent(
        client,
        context_providers=[compaction, history, SkillsProvider(satchel)],  # from the last one
        default_options={"store": False},
        tools=[own(deploy), own(look)],
    )
    known = AgentSession.from_dict(json.loads(store.read_text())) if store.exists() else None
    session = known or agent.create_session()

    async def talk() -> None:
        await agent.run("Go on", session=session)

    asyncio.run(talk())
    store.write_text(json.dumps(session.to_dict()))


def with_openai_agents(satchel: Satchel, store: Path) -> None:
    """The host stores the session, because opaque summaries of OpenAI replace all but prompts."""
    agents.set_tracing_disabled(disabled=True)
    state = store.with_suffix(".json")
    ours = satchel.restore(json.loads(state.read_text())) if state.exists() else satchel.session()
    own = [agents.function_tool(deploy), agents.function_tool(look)]
    agent = SkillsAgent("A", model=MODEL, skills=ours, tools=[*own])

    def compact(request: httpx2.Request) -> httpx2.Response:
        rows = [row for row in json.loads(request.content)["input"] if row.get("role") == "user"]
        summary = {"type": "compaction", "id": "cmp_1", "encrypted_content": "A summary."}
        details = {"cached_tokens": 0, "cache_write_tokens": 0}
        usage = {
            **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 1),
            "input_tokens_details": details,
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        kept = [{"type": "message", "id": "msg_1", "status": "completed", **row} for row in rows]
        body = {"id": "c1", "created_at": 1, "object": "response.compaction", "usage": usage}
        return httpx2.Response(200, json={**body, "output": [*kept, summary]})

    async def talk() -> None:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(compact))
        async with AsyncOpenAI(api_key="none", http_client=http) as client:
            session = OpenAIResponsesCompactionSession(
                "1",
                agents.SQLiteSession("1", store),
                client=client,
                should_trigger_compaction=lambda _context: True,
                compaction_mode="input",
            )
            await agents.Runner.run(agent, ours.with_tail("Go on"), session=session)

    asyncio.run(talk())
    state.write_text(json.dumps(ours.dump()))


DEPLOY, LOOK, WEATHER = ("deploy", {}), ("look", {}), ("weather_run", {})
CAREFUL, FORECAST = ("Skill", {"name": "careful"}), ("Skill", {"name": "forecast"})


def turn(
    host: Callable[[Satchel, Path], None],
    project: Satchel,
    store: Path,
    *calls: tuple[str, dict[str, Any]],
) -> tuple[list[str], str]:
    """A new process, in which the model makes some calls: their results, and its first request."""
    todo = [Reply(calls=[call]) for call in calls]
    results: list[str] = []

    def script(request: Request) -> Reply:
        if not request.tools:
            return Reply("A summary.")
        if len(todo) < len(calls):
            results.append(request.results[-1].text)
        return todo.pop(0) if todo else Reply("Done.")

    settings = {"trust": "all", "builtin": False, "packaged": False}
    with loopback(script) as server:
        host(Satchel.for_project(project.settings.project, **settings), store)
    return results, server.requests[0].body.decode()


@pytest.mark.parametrize(
    "host",
    [
        with_pydantic_ai,
        with_langchain,
        with_langgraph,
        with_google_adk,
        with_agent_framework,
        with_openai_agents,
    ],
)
def test_what_was_forbidden_is_after_a_summary_and_a_restart_and_nothing_more_is_allowed(
    satchel, tmp_path, host
):
    place = place_of(satchel)
    make_skill(place, "careful", disallowed_tools=["deploy"])
    make_skill(place, "forecast", body="Look at the sky.\n", allowed_tools="weather_*")
    make_tool_skill(place, "weather", more="network: true\n")
    store = tmp_path / "store"
    results, _ = turn(host, satchel, store, CAREFUL, FORECAST, WEATHER, LOOK, LOOK)
    assert "nobody can be asked" not in results[2]
    results, first = turn(host, satchel, store, DEPLOY, WEATHER, CAREFUL, FORECAST, WEATHER, DEPLOY)
    assert "A summary." in first
    assert "<skill-loaded" not in first
    assert "satchel_forbidden" not in first
    assert "`careful`" in results[0]
    assert "nobody can be asked" in results[1]
    assert "<skill-loaded" in results[2]
    assert "<skill-loaded" in results[3]
    assert "nobody can be asked" not in results[4]
    assert "`careful`" in results[5]
