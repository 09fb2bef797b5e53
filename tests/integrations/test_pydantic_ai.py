"""An agent of pydantic-ai has skills."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai import Agent

from framework_chat import LOAD, SHIP, converse, forbid_deploy, place_of
from model_server import Reply, loopback
from satchel.integrations.pydantic_ai import SkillsCapability, SkillToolset
from satchel.testing import make_skill, make_tool_skill

pytestmark = pytest.mark.timeout(60)  # the first request of a process imports much
MODEL = "anthropic:claude-sonnet-5"


def run(agent, words, **more):
    return asyncio.run(agent.run(words, **more))


@pytest.mark.req("A12", "B9", "D6")
@pytest.mark.timeout(90)
def test_the_example_gets_through_the_conversation(tmp_path):
    converse("pydantic_ai/agent.py", tmp_path, marks_errors=True)


def test_a_toolset_alone_has_the_catalogue(satchel):
    with loopback(["Hello."]) as server:
        agent = Agent(MODEL, toolsets=[SkillToolset(satchel)])
        assert run(agent, "Hm").output == "Hello."
    (request,) = server.requests
    assert "Helps with code-review." in request.system
    assert list(request.tools) == ["Skill", "ReadFile", "SkillSearch"]


def test_conversations_do_not_share_what_they_loaded(satchel):
    def script(request):
        if request.results:
            return request.results[0].text.partition("\n")[0]
        return LOAD

    with loopback(script):
        agent = Agent(MODEL, capabilities=[SkillsCapability(satchel)])
        first = run(agent, "One")
        other = run(agent, "Two")
        later = run(agent, "Three", message_history=first.all_messages())
    opening = '<skill-loaded name="code-review" digest='
    assert first.output.startswith(opening)
    assert other.output.startswith(opening)
    assert "already loaded" in later.output


def test_a_trimmed_skill_is_announced_and_can_be_loaded_again(satchel):
    with loopback([LOAD, "Done.", LOAD, "Again."]) as server:
        agent = Agent(MODEL, capabilities=[SkillsCapability(satchel)])
        first = run(agent, "One")
        kept = [message for message in first.all_messages() if message.kind == "response"][-1:]
        run(agent, "Two", message_history=kept)
    assert "<skills-loaded-before>" in server.requests[2].last_user
    assert "<skill-loaded" in server.requests[3].results[0].text


def test_a_tool_of_the_host_is_refused_while_a_skill_forbids_it(satchel):
    forbid_deploy(satchel)
    done = []
    with loopback([*SHIP, "Well."]) as server:
        agent = Agent(MODEL, capabilities=[SkillsCapability(satchel)])

        @agent.tool_plain
        def deploy() -> str:
            done.append(1)
            return "deployed"

        run(agent, "Ship it")
    assert done == [1]
    assert server.requests[1].results[0].text == "deployed"
    assert server.requests[3].results[0].error
    assert "`careful`" in server.requests[3].results[0].text


@pytest.mark.req("D3")
def test_a_sub_agent_has_what_its_parent_has_and_less(satchel):
    forbid_deploy(satchel)

    def script(request):
        if "You are the sub-agent." in request.system:
            return "Below." if request.results else Reply(calls=[("deploy", {})])
        if not request.all_results:
            return Reply(calls=[("Skill", {"name": "careful"})])
        return "Done." if len(request.all_results) > 1 else Reply(calls=[("delegate", {})])

    with loopback(script) as server:
        skills = SkillsCapability(satchel)
        inner = Agent(
            MODEL,
            instructions="You are the sub-agent.",
            capabilities=[skills.child(include=["code-review"])],
        )
        agent = Agent(MODEL, capabilities=[skills])

        @inner.tool_plain
        def deploy() -> str:
            return "deployed"

        @agent.tool_plain
        async def delegate() -> str:
            return (await inner.run("Do it")).output

        assert run(agent, "Ship it").output == "Done."
    below = [request for request in server.requests if "sub-agent." in request.system]
    assert "code-review" in below[0].system
    assert "write-docs" not in below[0].system
    assert "deployed" not in below[1].results[0].text
    assert "careful" in below[1].results[0].text


def test_a_tool_of_the_host_wins_over_one_of_a_skill(satchel):
    make_tool_skill(place_of(satchel), "lookup", tool="lookup")
    make_skill(place_of(satchel), "careful", disallowed_tools=["lookup"])

    def lookup(q: str) -> str:
        """Look something up."""
        return f"found {q}"

    look = ("lookup", {"q": "x"})
    replies = [Reply(calls=[look]), Reply(calls=[("Skill", {"name": "careful"})])]
    with loopback([*replies, Reply(calls=[look]), "Done."]) as server:
        agent = Agent(MODEL, tools=[lookup], capabilities=[SkillsCapability(satchel)])
        assert run(agent, "Go").output == "Done."
    assert server.requests[1].results[0].text == "found x"
    assert "`careful`" in server.requests[3].results[0].text
    told = [event.values for event in satchel.trace.events if event.kind == "shadowed"]
    assert [values["tool"] for values in told if "tool" in values] == ["lookup"]
