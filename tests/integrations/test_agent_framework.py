"""An agent of Microsoft Agent Framework has skills."""

from __future__ import annotations

import asyncio

import pytest
from agent_framework import Agent, Content, Message, tool
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

from framework_chat import LOAD, SHIP, converse, forbid_deploy, place_of, was_held_to_its_part
from model_server import Reply, loopback
from satchel.integrations.agent_framework import SkillsProvider, skill_tools
from satchel.testing import make_tool_skill

pytestmark = pytest.mark.timeout(60)  # the first request of a process imports much


@tool(approval_mode="never_require")
def deploy() -> str:
    """Ship it."""
    return "deployed"


def agent_of(*providers, **more):
    client = OpenAIChatClient("gpt-5.4-mini")
    return Agent(client, context_providers=providers, default_options={"store": False}, **more)


def run(agent, *messages, session=None):
    async def talk():
        kept = session or agent.create_session()
        return [(await agent.run(message, session=kept)).text for message in messages]

    return asyncio.run(talk())


@pytest.mark.req("A12", "B9", "D6")
@pytest.mark.timeout(90)
def test_the_example_gets_through_the_conversation(tmp_path):
    converse("agent_framework/agent.py", tmp_path)


def test_the_host_s_message_is_not_changed(satchel):
    picture = Content.from_uri("data:image/png;base64,aGk=", media_type="image/png")
    message = Message("user", ["Use code-review", picture])
    with loopback(["Yes."]) as server:
        run(agent_of(SkillsProvider(satchel)), message)
    assert message.text == "Use code-review"
    (sent,) = [one for one in server.requests[0].json["input"] if one.get("role") == "user"]
    assert sent["content"][0]["text"].startswith("Use code-review\n\n<skills-shortlist>")
    assert sent["content"][1]["type"] == "input_image"


def test_a_tool_that_appears_in_a_turn_can_be_called_in_it(satchel):
    @tool(approval_mode="never_require")
    def grow() -> str:
        """Add a tool."""
        make_tool_skill(place_of(satchel), "echo")
        satchel.refresh()
        return "added"

    steps = [Reply(calls=[("grow", {})]), LOAD, Reply(calls=[("echo_run", {})]), "Done."]
    with loopback(steps) as server:
        assert run(agent_of(SkillsProvider(satchel, approve=True), tools=[grow]), "Go") == ["Done."]
    assert "echo_run" not in server.requests[0].tools
    assert "echo_run" in server.requests[2].tools  # declared after the next result of ours


def test_each_session_is_a_conversation(satchel):
    with loopback([LOAD, "1", LOAD, "2", LOAD, "3"]) as server:
        agent = agent_of(SkillsProvider(satchel))
        run(agent, "One", "Two")
        run(agent, "Three")
    assert "<skill-loaded" in server.requests[1].results[0].text
    assert "already loaded" in server.requests[3].results[0].text
    assert "<skill-loaded" in server.requests[5].results[0].text


def test_a_tool_of_the_host_is_refused_while_a_skill_forbids_it(satchel):
    forbid_deploy(satchel)
    with loopback([*SHIP, "Well."]) as server:
        run(agent_of(SkillsProvider(satchel), tools=[deploy]), "Ship it")
    assert server.requests[1].results[0].text == "deployed"
    assert "`careful`" in server.requests[3].results[0].text


@pytest.mark.req("D3")
def test_an_agent_that_is_a_tool_is_a_child(satchel):
    forbid_deploy(satchel)

    def script(request):
        done = len(request.all_results)
        if "You are below." in request.system:
            if done > 1:
                return "Below."
            return Reply(calls=[("deploy", {})]) if done else LOAD
        if done == 0:
            return Reply(calls=[("Skill", {"name": "careful"})])
        return Reply(calls=[("below", {"task": "Go"})]) if done < 3 else "Done."

    with loopback(script) as server:
        skills = SkillsProvider(satchel)
        below = agent_of(
            skills.child(include=["code-review"]),
            name="below",
            instructions="You are below.",
            tools=[deploy],
        )
        assert run(agent_of(skills, tools=[below.as_tool()]), "Ship it") == ["Done."]
    asked = [request for request in server.requests if "You are below." in request.system]
    was_held_to_its_part(asked)


def test_the_tools_alone_fit_an_agent_of_ones_own(satchel):
    session = satchel.session()
    with loopback([LOAD, "Yes."]) as server:
        client = OpenAIChatCompletionClient("gpt-5.4-mini")
        agent = Agent(client, instructions=session.prompt, tools=skill_tools(session))
        assert run(agent, "Review") == ["Yes."]
    assert "<skill-loaded" in server.requests[1].results[0].text
