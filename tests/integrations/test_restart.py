"""A conversation goes on in another process, with what the framework stored of it and no more.

The first process loads `careful`, which forbids a tool of the host, and `forecast`, which allows a
tool that needs approval. The second one has a new `Satchel` and a new agent.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import agents
import pytest
from agent_framework import Agent as FrameworkAgent
from agent_framework import AgentSession
from agent_framework import tool as framework_tool
from agent_framework.openai import OpenAIChatClient
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.events import Event
from google.adk.runners import InMemoryRunner
from google.genai import types
from langchain.agents import create_agent
from langchain_core.messages import messages_from_dict, messages_to_dict
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter
from smolagents import LogLevel, OpenAIModel
from smolagents import tool as host_tool
from smolagents.memory import ActionStep, TaskStep, ToolCall
from smolagents.monitoring import Timing

from framework_chat import place_of
from model_server import ModelServer, Reply, loopback
from satchel import Satchel
from satchel.integrations.agent_framework import SkillsProvider
from satchel.integrations.google_adk import SkillsToolset
from satchel.integrations.langchain import SkillsMiddleware
from satchel.integrations.openai_agents import SkillsAgent
from satchel.integrations.pydantic_ai import SkillsCapability
from satchel.integrations.smolagents import SkillsToolCallingAgent
from satchel.testing import make_skill, make_tool_skill

if TYPE_CHECKING:
    from collections.abc import Callable

    from model_server import Request

pytestmark = pytest.mark.timeout(90)  # the first request of a process imports much


def deploy() -> str:
    """Ship it."""
    return "deployed"


def with_pydantic_ai(satchel: Satchel, words: str, stored: str) -> str:
    agent = Agent(
        "anthropic:claude-sonnet-5", tools=[deploy], capabilities=[SkillsCapability(satchel)]
    )
    history = ModelMessagesTypeAdapter.validate_json(stored) if stored else None
    result = asyncio.run(agent.run(words, message_history=history))
    return result.all_messages_json().decode()


def with_langchain(satchel: Satchel, words: str, stored: str) -> str:
    model = ChatOpenAI(model="gpt-5.4-mini")
    agent: Any = create_agent(
        model, tools=[langchain_tool(deploy)], middleware=[SkillsMiddleware(satchel)]
    )
    history = messages_from_dict(json.loads(stored)) if stored else []
    result = agent.invoke({"messages": [*history, ("user", words)]})
    return json.dumps(messages_to_dict(result["messages"]))


def with_openai_agents(satchel: Satchel, words: str, stored: str) -> str:
    agents.set_tracing_disabled(disabled=True)
    agent = SkillsAgent("A", skills=satchel, tools=[agents.function_tool(deploy)])
    history = json.loads(stored) if stored else []

    async def talk() -> Any:
        return await agents.Runner.run(agent, [*history, {"role": "user", "content": words}])

    return json.dumps(asyncio.run(talk()).to_input_list())


def with_google_adk(satchel: Satchel, words: str, stored: str) -> str:
    skills = SkillsToolset(satchel)
    agent = LlmAgent(name="a", model="gemini-3.5-flash", tools=[deploy, skills])
    state, rows = json.loads(stored) if stored else ({}, [])

    async def talk() -> str:
        app = App(name="app", root_agent=agent, plugins=[skills.plugin])
        async with InMemoryRunner(app=app) as runner:
            service = runner.session_service
            session = await service.create_session(app_name="app", user_id="me", state=state)
            for row in rows:
                await service.append_event(session, Event.model_validate(row))
            message = types.UserContent(parts=[types.Part(text=words)])
            async for _ in runner.run_async(
                user_id="me", session_id=session.id, new_message=message
            ):
                pass
            ended = await service.get_session(app_name="app", user_id="me", session_id=session.id)
            assert ended is not None
            return json.dumps(
                [ended.state, [json.loads(e.model_dump_json()) for e in ended.events]]
            )

    return asyncio.run(talk())


def with_agent_framework(satchel: Satchel, words: str, stored: str) -> str:
    agent = FrameworkAgent(
        OpenAIChatClient("gpt-5.4-mini"),
        context_providers=[SkillsProvider(satchel)],
        default_options={"store": False},
        tools=[framework_tool(approval_mode="never_require")(deploy)],
    )
    session = AgentSession.from_dict(json.loads(stored)) if stored else agent.create_session()

    async def talk() -> None:
        await agent.run(words, session=session)

    asyncio.run(talk())
    return json.dumps(session.to_dict())


def with_smolagents(satchel: Satchel, words: str, stored: str) -> str:
    with ModelServer(CURRENT[0]) as server:
        model = OpenAIModel("gpt-5.4-mini", api_base=server.base_url("openai"), api_key="none")
        agent: Any = SkillsToolCallingAgent(
            model=model,
            tools=[host_tool(deploy)],
            skills=satchel,
            verbosity_level=LogLevel.OFF,
        )
        for row in json.loads(stored) if stored else ():
            if "task" in row:
                agent.memory.steps.append(TaskStep(row["task"]))
                continue
            calls = [
                ToolCall(one["function"]["name"], one["function"]["arguments"], one["id"])
                for one in row["tool_calls"] or ()
            ]
            step = ActionStep(
                row["step_number"],
                Timing(0.0),
                tool_calls=calls,
                observations=row["observations"],
                model_output=row["model_output"],
            )
            agent.memory.steps.append(step)
        agent.run(words, reset=not stored)
        return json.dumps(agent.memory.get_full_steps(), default=str)


CURRENT: list[Callable[[Request], Reply]] = []
HOSTS = [
    with_pydantic_ai,
    with_langchain,
    with_openai_agents,
    with_google_adk,
    with_agent_framework,
    with_smolagents,
]
DEPLOY, WEATHER = ("deploy", {}), ("weather_run", {})


def turn(
    host: Callable[[Satchel, str, str], str],
    satchel: Satchel,
    stored: str,
    *calls: tuple[str, dict[str, Any]],
) -> tuple[str, list[str]]:
    """One turn of a new process, in which the model makes some calls; and their results."""
    seen: list[str] = []
    todo = [Reply(calls=[one]) for one in calls]
    end = Reply(calls=[("final_answer", {"answer": "Done."})])

    def script(request: Request) -> Reply:
        if len(todo) < len(calls):
            results = [result.text for result in request.results]
            users = [message.text for message in request.messages if message.role == "user"]
            seen.append(results[-1] if results else users[-1])
        if todo:
            return todo.pop(0)
        return end if host is with_smolagents else Reply("Done.")

    CURRENT[:] = [script]
    with loopback(script):
        stored = host(new(satchel), "Go on", stored)
    return stored, seen


def new(satchel: Satchel) -> Satchel:
    return Satchel.for_project(satchel.settings.project, trust="all", builtin=False, packaged=False)


def load(name: str) -> tuple[str, dict[str, Any]]:
    return ("Skill", {"name": name})


@pytest.fixture
def project(satchel: Satchel) -> Satchel:
    """A skill that forbids, and one that allows a tool for which nobody can be asked."""
    make_skill(place_of(satchel), "careful", disallowed_tools=["deploy"])
    make_skill(place_of(satchel), "forecast", body="Look at the sky.\n", allowed_tools="weather_*")
    make_tool_skill(place_of(satchel), "weather", more="network: true\n")
    return satchel


def edited(stored: str, change: Callable[[str], str]) -> str:
    """The history with each of its texts changed."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walk(one) for key, one in value.items()}
        if isinstance(value, list):
            return [walk(one) for one in value]
        return change(value) if isinstance(value, str) else value

    return json.dumps(walk(json.loads(stored)))


@pytest.mark.parametrize("host", HOSTS)
def test_after_a_restart_what_was_forbidden_is_and_what_was_loaded_is_known(project, host):
    stored, seen = turn(host, project, "", WEATHER, load("careful"), load("forecast"), WEATHER)
    assert "nobody can be asked" in seen[0]
    assert "nobody can be asked" not in seen[3]
    _, seen = turn(host, project, stored, DEPLOY, load("careful"), WEATHER)
    assert "`careful`" in seen[0]
    assert "is already loaded" in seen[1]
    assert "nobody can be asked" not in seen[2]


@pytest.mark.parametrize("host", HOSTS)
def test_a_text_that_was_cut_out_allows_nothing_forbids_still_and_comes_again(project, host):
    stored, _ = turn(host, project, "", load("careful"), load("forecast"))
    stored = edited(stored, lambda text: "(cut)" if "<skill-loaded" in text else text)
    _, seen = turn(host, project, stored, DEPLOY, WEATHER, load("careful"))
    assert "deployed" not in seen[0]
    assert "nobody can be asked" in seen[1]
    assert "<skill-loaded" in seen[2]


@pytest.mark.parametrize("host", HOSTS)
def test_a_text_that_was_forged_allows_nothing(project, host):
    stored, _ = turn(host, project, "", load("careful"), load("forecast"))
    stored = edited(stored, lambda text: text.replace("at the sky", "at nothing"))
    _, seen = turn(host, project, stored, DEPLOY, WEATHER, load("forecast"))
    assert "deployed" not in seen[0]
    assert "nobody can be asked" in seen[1]
    assert "<skill-loaded" in seen[2]


@pytest.mark.parametrize("host", HOSTS)
def test_a_skill_that_changed_since_allows_nothing_and_forbids_as_before(project, host):
    stored, _ = turn(host, project, "", load("careful"), load("forecast"))
    place = place_of(project)
    make_skill(place, "careful", body="Other text.\n")
    make_skill(place, "forecast", body="Other text.\n", allowed_tools="weather_*")
    _, seen = turn(host, project, stored, DEPLOY, WEATHER, load("forecast"))
    assert "deployed" not in seen[0]
    assert "nobody can be asked" in seen[1]
    assert "Other text." in seen[2]
