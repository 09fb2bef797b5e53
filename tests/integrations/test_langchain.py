"""An agent of LangChain has skills, and so has one of deepagents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_core.messages import RemoveMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode

from framework_chat import LOAD, SHIP, converse, forbid_deploy, was_held_to_its_part
from model_server import Reply, loopback
from satchel.integrations.langchain import SkillsMiddleware, skill_tools

pytestmark = pytest.mark.timeout(60)  # the first request of a process imports much


def agent_of(*middleware, **more) -> Any:
    return create_agent(ChatOpenAI(model="gpt-5.4-mini"), middleware=middleware, **more)


@tool
def deploy() -> str:
    """Ship it."""
    return "deployed"


@pytest.mark.req("A12", "B9", "D6")
@pytest.mark.timeout(90)
@pytest.mark.parametrize("example", ["langchain/agent.py", "langchain/deep_agent.py"])
def test_the_example_gets_through_the_conversation(example, tmp_path):
    converse(example, tmp_path)


def test_without_a_thread_the_first_message_tells_conversations_apart(satchel):
    with loopback([LOAD, "1", LOAD, "2", LOAD, "3"]) as server:
        agent = agent_of(SkillsMiddleware(satchel))
        first = agent.invoke({"messages": [("user", "One")]})
        agent.invoke({"messages": [("user", "Two")]})
        asyncio.run(agent.ainvoke({"messages": [*first["messages"], ("user", "Three")]}))
    assert "<skill-loaded" in server.requests[1].results[0].text
    assert "<skill-loaded" in server.requests[3].results[0].text
    assert "already loaded" in server.requests[5].results[0].text


def test_a_tool_of_the_host_is_refused_while_a_skill_forbids_it(satchel):
    forbid_deploy(satchel)
    with loopback([*SHIP, "Well."] * 2) as server:
        agent = agent_of(SkillsMiddleware(satchel), tools=[deploy])
        agent.invoke({"messages": [("user", "Ship it")]})
        asyncio.run(agent.ainvoke({"messages": [("user", "Ship it")]}))
    for at in (0, 4):
        assert server.requests[at + 1].results[0].text == "deployed"
        assert "`careful`" in server.requests[at + 3].results[0].text


def test_trimmed_history_ends_what_a_skill_allows_and_not_what_it_forbids(satchel):
    forbid_deploy(satchel)
    careful = Reply(calls=[("Skill", {"name": "careful"})])
    steps = [careful, "1", Reply(calls=[("deploy", {})]), careful, "2"]
    with loopback(steps) as server:
        agent = agent_of(SkillsMiddleware(satchel), tools=[deploy], checkpointer=InMemorySaver())
        thread = {"configurable": {"thread_id": "1"}}
        agent.invoke({"messages": [("user", "One")]}, thread)
        agent.update_state(thread, {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})
        agent.invoke({"messages": [("user", "Two")]}, thread)
    assert "<skills-loaded-before>" in server.requests[2].last_user
    assert "`careful`" in server.requests[3].results[0].text
    assert "<skill-loaded" in server.requests[4].results[0].text


@pytest.mark.req("D3")
@pytest.mark.parametrize("checkpointer", [None, InMemorySaver()], ids=["bare", "threads"])
def test_a_sub_agent_of_deepagents_is_a_child(satchel, checkpointer):
    forbid_deploy(satchel)

    def script(request):
        if "You are the sub-agent." in request.system:
            if len(request.all_results) > 1:
                return "Below."
            return LOAD if not request.results else Reply(calls=[("deploy", {})])
        task = {"description": "Do it", "subagent_type": "below"}
        done = len(request.all_results)
        if done == 0:
            return Reply(calls=[("Skill", {"name": "careful"})])
        return Reply(calls=[("task", task)]) if done < 3 else "Done."

    with loopback(script) as server:
        skills = SkillsMiddleware(satchel)
        agent: Any = create_deep_agent(
            ChatOpenAI(model="gpt-5.4-mini"),
            middleware=[skills],
            subagents=[
                {
                    "name": "below",
                    "description": "Does it.",
                    "system_prompt": "You are the sub-agent.",
                    "tools": [deploy],
                    "middleware": [skills.child(include=["code-review"])],
                }
            ],
            checkpointer=checkpointer,
        )
        thread = {"configurable": {"thread_id": "1"}}
        result = agent.invoke({"messages": [("user", "Ship it")]}, thread)
    assert result["messages"][-1].text == "Done."
    below = [request for request in server.requests if "sub-agent." in request.system]
    was_held_to_its_part(below)


def test_it_takes_the_place_of_the_middleware_of_deepagents(satchel):
    with loopback(["Yes."]) as server:
        agent: Any = create_deep_agent(
            ChatOpenAI(model="gpt-5.4-mini"),
            skills=["/skills/"],
            middleware=[SkillsMiddleware(satchel)],
        )
        agent.invoke({"messages": [("user", "Hm")]})
    assert server.requests[0].system.count("Helps with code-review.") == 1
    assert "Skills System" not in server.requests[0].system


def test_the_tools_alone_fit_a_graph_put_together_by_hand(satchel):
    session = satchel.session()
    tools = {one.name: one for one in skill_tools(session)}
    assert "<skill-loaded" in tools["Skill"].invoke({"name": "code-review"})
    assert "<skill-loaded" in asyncio.run(tools["Skill"].ainvoke({"name": "write-docs"}))
    call = {"name": "Skill", "args": {"name": "nowhere"}, "id": "1", "type": "tool_call"}
    message = tools["Skill"].invoke(call)
    assert message.status == "error"
    assert "There is no skill `nowhere`" in message.content
    assert ToolNode(list(tools.values())).tools_by_name.keys() == tools.keys()
