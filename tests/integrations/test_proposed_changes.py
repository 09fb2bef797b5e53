"""What a tool proposes to change, decided by `approve` or by a framework's own approval."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from framework_chat import place_of
from model_server import Reply, loopback
from satchel.testing import make_tool_skill
from tool_bench import answering

if TYPE_CHECKING:
    from satchel.session.options import SessionOptions

pytestmark = pytest.mark.timeout(120)
WRITES = """
for path in ("a.txt", "AGENTS.md"):
    with open(path, "w") as file:
        file.write("new\\n")
return {"output": "done", "error": ""}
"""
SCRIPT = [Reply(calls=[("job_run", {})]), "Done."]


@pytest.fixture
def writer(satchel):
    """Skills with the tool `job_run`, which writes two files."""
    make_tool_skill(place_of(satchel), "job", answering(WRITES), more="files: write\n")
    return satchel


def written(satchel):
    project = Path(satchel.settings.project)
    return [name for name in ("a.txt", "AGENTS.md") if (project / name).exists()]


def pydantic_ai(satchel, **options):
    from pydantic_ai import Agent

    from satchel.integrations.pydantic_ai import SkillsCapability

    agent = Agent("anthropic:claude-sonnet-5", capabilities=[SkillsCapability(satchel, **options)])
    asyncio.run(agent.run("Write"))


def langchain(satchel, **options):
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI

    from satchel.integrations.langchain import SkillsMiddleware

    agent = create_agent(
        ChatOpenAI(model="gpt-5.4-mini"), middleware=[SkillsMiddleware(satchel, **options)]
    )
    asyncio.run(agent.ainvoke({"messages": [HumanMessage("Write")]}))


def openai_agents(satchel, **options):
    from agents import Runner, set_tracing_disabled

    from satchel.integrations.openai_agents import SkillsAgent

    set_tracing_disabled(disabled=True)
    agent = SkillsAgent("A", skills=satchel, session_options=cast("SessionOptions", options))
    asyncio.run(Runner.run(agent, "Write"))


@pytest.mark.parametrize("framework", [pydantic_ai, langchain, openai_agents])
def test_the_approve_of_a_host_gets_the_changes(writer, framework):
    asked = []

    def approve(request):
        asked.append([change.path for change in request.changes])
        return "a.txt" in asked[-1]

    with loopback(SCRIPT) as server:
        framework(writer, approve=approve)
    assert asked == [["a.txt"], ["AGENTS.md"]]
    assert written(writer) == ["a.txt"]
    text = server.requests[1].results[0].text
    assert "Changed files: `a.txt`" in text
    assert "`AGENTS.md` was not changed: the user did not agree" in text


async def approve_in_pydantic_ai(satchel):
    from pydantic_ai import Agent, DeferredToolRequests

    from satchel.integrations.pydantic_ai import SkillToolset

    tools = SkillToolset(satchel).approval_required()
    agent = Agent(
        "anthropic:claude-sonnet-5", toolsets=[tools], output_type=[str, DeferredToolRequests]
    )
    first = await agent.run("Write")
    assert isinstance(first.output, DeferredToolRequests)
    answers = first.output.build_results(approve_all=True)
    await agent.run(message_history=first.all_messages(), deferred_tool_results=answers)


async def approve_in_openai_agents(satchel):
    from agents import Agent, Runner, set_tracing_disabled

    from satchel.integrations.openai_agents import skill_tools

    set_tracing_disabled(disabled=True)
    tools = skill_tools(satchel.session())
    for tool in tools:
        tool.needs_approval = True
    agent = Agent("A", tools=[*tools])
    first = await Runner.run(agent, "Write")
    state = first.to_state()
    state.approve(first.interruptions[0])
    await Runner.run(agent, state)


async def approve_in_agent_framework(satchel):
    from agent_framework import Agent, Message
    from agent_framework.openai import OpenAIChatClient

    from satchel.integrations.agent_framework import skill_tools

    tools = skill_tools(satchel.session())
    for tool in tools:
        tool.approval_mode = "always_require"
    client = OpenAIChatClient("gpt-5.4-mini")
    agent = Agent(client, tools=tools, default_options={"store": False})
    session = agent.create_session()
    first = await agent.run("Write", session=session)
    (request,) = first.user_input_requests
    answer = Message("user", [request.to_function_approval_response(approved=True)])
    await agent.run(answer, session=session)


@pytest.mark.parametrize(
    "ask", [approve_in_pydantic_ai, approve_in_openai_agents, approve_in_agent_framework]
)
def test_an_approval_of_the_framework_applies_what_the_rules_permit(writer, ask):
    with loopback(SCRIPT) as server:
        asyncio.run(ask(writer))
    text = server.requests[1].results[0].text
    assert "Changed files: `a.txt`" in text
    assert "so a person must accept it" in text
    assert written(writer) == ["a.txt"]
