"""An agent of the OpenAI Agents SDK has skills."""

from __future__ import annotations

import asyncio

import pytest
from agents import Agent, Runner, function_tool, set_tracing_disabled

from framework_chat import LOAD, SHIP, converse, forbid_deploy
from model_server import Reply, loopback
from satchel.errors import InvalidInput
from satchel.integrations.openai_agents import SkillsAgent, skill_tools

pytestmark = pytest.mark.timeout(60)  # the first request of a process imports much


@pytest.fixture(autouse=True)
def _no_traces():
    set_tracing_disabled(disabled=True)


def run(agent, message):
    async def once():
        return await Runner.run(agent, message)

    return asyncio.run(once())


@function_tool
def deploy() -> str:
    """Ship it."""
    return "deployed"


@pytest.mark.req("A12", "B9", "D6")
@pytest.mark.timeout(90)
def test_the_example_gets_through_the_conversation(tmp_path):
    converse("openai_agents/agent.py", tmp_path)


def test_an_agent_with_a_session_is_one_conversation(satchel):
    session = satchel.session()
    agent = SkillsAgent("A", instructions=lambda _context, _agent: "Own words.", skills=session)
    with loopback(["Yes."]) as server:
        run(agent, agent.session.with_tail("Use code-review"))
    assert server.requests[0].system.startswith("Own words.\n\n<skills>")
    twin = agent.clone(name="B")
    assert isinstance(twin, SkillsAgent)
    assert twin.session is agent.session is session


def test_an_agent_with_a_satchel_does_not_mix_conversations_that_run_at_once(satchel):
    forbid_deploy(satchel)
    careful = Reply(calls=[("Skill", {"name": "careful"})])

    def script(request):
        if request.last_user == "Careful":
            return "Done." if request.results else careful
        return [Reply(calls=[("deploy", {})]), LOAD, "Done."][len(request.all_results)]

    agent = SkillsAgent("A", skills=satchel, tools=[deploy])

    async def both():
        await Runner.run(agent, "Careful")
        return await asyncio.gather(*(Runner.run(agent, words) for words in ("Ship", "Ship")))

    with loopback(script) as server:
        asyncio.run(both())
    results = [[one.text for one in request.all_results] for request in server.requests]
    ships = [texts for texts in results if len(texts) == 2]
    assert len(ships) == 2
    for texts in ships:
        assert texts[0] == "deployed"
        assert "<skill-loaded" in texts[1]


def test_an_agent_with_a_satchel_has_the_options_of_its_sessions_and_no_single_one(satchel):
    agent = SkillsAgent("A", skills=satchel, session_options={"exclude": ["write-*"]})
    with loopback(["Yes."]) as server:
        run(agent, "Ship")
    assert "write-docs" not in server.requests[0].system
    with pytest.raises(InvalidInput, match="a session for each run"):
        _ = agent.session


def test_the_tools_alone_fit_an_agent_of_ones_own(satchel):
    session = satchel.session()
    agent = Agent("A", instructions=session.prompt, tools=list(skill_tools(session)))
    with loopback([LOAD, "Yes."]) as server:
        assert run(agent, "Review").final_output == "Yes."
    assert "<skill-loaded" in server.requests[1].results[0].text


def test_a_run_without_history_can_load_again(satchel):
    agent = SkillsAgent("A", skills=satchel)
    with loopback([LOAD, "1", LOAD, "2", LOAD, LOAD, "3"]) as server:
        first = run(agent, "One")
        run(agent, [*first.to_input_list(), {"role": "user", "content": "Two"}])
        run(agent, "Three")
    assert "already loaded" in server.requests[3].results[0].text
    assert "<skill-loaded" in server.requests[5].results[0].text
    assert "already loaded" in server.requests[6].results[0].text


def test_a_tool_of_the_host_is_refused_while_a_skill_forbids_it(satchel):
    forbid_deploy(satchel)
    with loopback([*SHIP, "Well."]) as server:
        run(SkillsAgent("A", skills=satchel, tools=[deploy]), "Ship it")
    assert server.requests[1].results[0].text == "deployed"
    assert "`careful`" in server.requests[3].results[0].text


@pytest.mark.req("D3")
def test_a_sub_agent_has_what_its_parent_has_and_less(satchel):
    forbid_deploy(satchel)

    def script(request):
        if request.system.startswith("Below."):
            return "Below." if request.results else Reply(calls=[("deploy", {})])
        if request.all_results:
            return Reply(calls=[("delegate", {"input": "x"})]) if request.step == 1 else "Done."
        return Reply(calls=[("Skill", {"name": "careful"})])

    session = satchel.session()

    @function_tool
    async def delegate(input: str) -> str:  # noqa: A002 - the model's word
        """Hand it on."""
        child = session.child(include=["code-review"])
        below = SkillsAgent("B", instructions="Below.", skills=child, tools=[deploy])
        return (await Runner.run(below, input)).final_output

    with loopback(script) as server:
        assert run(SkillsAgent("A", skills=session, tools=[delegate]), "Go").final_output == "Done."
    below = [request for request in server.requests if request.system.startswith("Below.")]
    assert "code-review" in below[0].system
    assert "write-docs" not in below[0].system
    assert "careful" in below[1].results[0].text
    assert "deployed" not in below[1].results[0].text
