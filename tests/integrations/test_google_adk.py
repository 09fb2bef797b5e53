"""An agent of Google's Agent Development Kit has skills."""

from __future__ import annotations

import asyncio

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from framework_chat import LOAD, SHIP, converse, forbid_deploy
from model_server import Reply, loopback
from satchel.integrations.google_adk import SkillsToolset

pytestmark = [
    pytest.mark.timeout(60),  # the first request of a process imports much
    # ADK's own `AgentTool` still hands plugins over the old way.
    pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning"),
]
MODEL = "gemini-3.5-flash"


def deploy() -> str:
    """Ship it."""
    return "deployed"


def run(agent, skills, *messages):
    """Send each message in one session; returns the agent's answers."""

    async def talk():
        said = []
        app = App(name="app", root_agent=agent, plugins=[skills.plugin])
        async with InMemoryRunner(app=app) as runner:
            session = await runner.session_service.create_session(app_name="app", user_id="me")
            for message in messages:
                content = types.UserContent(parts=[types.Part(text=message)])
                events = runner.run_async(user_id="me", session_id=session.id, new_message=content)
                said += [
                    event.content.parts[0].text
                    async for event in events
                    if event.is_final_response() and event.content and event.content.parts
                ]
        return said

    return asyncio.run(talk())


@pytest.mark.req("A12", "B9", "D6")
@pytest.mark.timeout(90)
def test_the_example_gets_through_the_conversation(tmp_path):
    server = converse("google_adk/agent.py", tmp_path)
    answers = [
        part["functionResponse"]["response"]
        for content in server.requests[-1].json["contents"]
        for part in content["parts"]
        if "functionResponse" in part
    ]
    assert [list(one) for one in answers].count(["error"]) == 1  # Gemini's mark for a failed call


def test_each_session_is_a_conversation(satchel):
    with loopback([LOAD, "1", LOAD, "2"]) as server:
        skills = SkillsToolset(satchel)
        agent = LlmAgent(name="a", model=MODEL, tools=[skills])
        run(agent, skills, "Review")
        run(agent, skills, "Review")
    assert "<skill-loaded" in server.requests[1].results[0].text
    assert "<skill-loaded" in server.requests[3].results[0].text


def test_a_tool_of_the_host_is_refused_while_a_skill_forbids_it(satchel):
    forbid_deploy(satchel)
    with loopback([*SHIP, "Well."]) as server:
        skills = SkillsToolset(satchel)
        run(LlmAgent(name="a", model=MODEL, tools=[deploy, skills]), skills, "Ship it")
    assert "deployed" in server.requests[1].results[0].text
    assert "`careful`" in server.requests[3].results[0].text


@pytest.mark.req("D3")
@pytest.mark.parametrize("transfer", [True, False], ids=["sub-agent", "tool"])
def test_an_agent_below_is_a_child(satchel, transfer):
    forbid_deploy(satchel)

    def script(request):
        mine = [result.name for result in request.all_results]
        if "You are below." in request.system:
            if not mine:  # calls of other agents are described to it in words
                return LOAD
            return "Below." if len(mine) > 1 else Reply(calls=[("deploy", {})])
        if not mine:
            return Reply(calls=[("Skill", {"name": "careful"})])
        if len(mine) > 1:
            return "Done."
        if transfer:
            return Reply(calls=[("transfer_to_agent", {"agent_name": "below"})])
        return Reply(calls=[("below", {"request": "Use code-review or write-docs"})])

    with loopback(script) as server:
        skills = SkillsToolset(satchel)
        below = LlmAgent(
            name="below",
            model=MODEL,
            instruction="You are below.",
            tools=[deploy, skills.child(include=["code-review"])],
        )
        if transfer:
            agent = LlmAgent(name="a", model=MODEL, tools=[skills], sub_agents=[below])
        else:
            agent = LlmAgent(name="a", model=MODEL, tools=[skills, AgentTool(below)])
        run(agent, skills, "Ship it")
    asked = [request for request in server.requests if "You are below." in request.system]
    assert len(asked) == 3
    assert "code-review" in asked[0].system
    assert "write-docs" not in asked[0].system
    if not transfer:
        note = asked[0].last_user.partition("\n")[2]
        assert "code-review" in note
        assert "write-docs" not in note
    assert "<skill-loaded" in asked[1].results[0].text
    assert "careful" in asked[2].results[0].text
    assert "deployed" not in asked[2].results[0].text
