"""An agent of smolagents has skills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool

from framework_chat import ASKED, LOAD, SHIP, converse, forbid_deploy, was_held_to_its_part
from model_server import ModelServer, Reply
from satchel.integrations.base import sessions_of
from satchel.integrations.smolagents import SkillsCodeAgent, SkillsToolCallingAgent, skill_tools

if TYPE_CHECKING:
    from collections.abc import Callable

    from smolagents import MultiStepAgent

pytestmark = pytest.mark.timeout(60)  # the first request of a process imports much


def done(answer="Done."):
    return Reply(calls=[("final_answer", {"answer": answer})])


@tool
def deploy() -> str:
    """Ship it."""
    return "deployed"


def agent_of(server, kind: Callable[..., MultiStepAgent] = SkillsToolCallingAgent, **more):
    model = OpenAIModel("gpt-5.4-mini", api_base=server.base_url("openai"), api_key="none")
    settled = {"tools": [], "verbosity_level": LogLevel.OFF, **more}
    return kind(model=model, **settled)


def seen(request):
    """What the last calls gave: smolagents sends results as words of the user."""
    found = [message.text for message in request.messages if message.role == "user"]
    return found[-1].removeprefix("Observation:\n")


def script(request):
    """Answer a task, which follows the last user message; an answer is a call."""
    words = request.last_user.rpartition("New task:\n")[2].partition("\n")[0]
    if words in ASKED:
        return Reply(calls=[ASKED[words]])
    return done(f"Reply {request.turn}")


@pytest.mark.req("A12", "B9", "D6")
@pytest.mark.timeout(90)
def test_the_example_gets_through_the_conversation(tmp_path):
    converse("smolagents/agent.py", tmp_path, script, seen, marks_errors=None)


def test_a_run_that_begins_anew_can_load_again(satchel):
    with ModelServer([LOAD, done(), LOAD, done(), LOAD, done()]) as server:
        agent = agent_of(server, skills=satchel)
        agent.run("One")
        agent.run("Two", reset=False)
        agent.run("Three")
    assert "<skill-loaded" in seen(server.requests[1])
    assert "already loaded" in seen(server.requests[3])
    assert "<skill-loaded" in seen(server.requests[5])


def test_a_tool_of_the_host_is_refused_while_a_skill_forbids_it(satchel):
    forbid_deploy(satchel)
    with ModelServer([*SHIP, done()]) as server:
        agent_of(server, tools=[deploy], skills=satchel).run("Ship it")
    assert seen(server.requests[1]) == "deployed"
    assert "`careful`" in seen(server.requests[3])


@pytest.mark.req("D3")
def test_a_team_member_is_a_child(satchel):
    forbid_deploy(satchel)

    def delegating(request):
        results = sum(message.text.startswith("Observation:") for message in request.messages)
        if "You are below." in request.system:
            if results > 1:
                return done("Below.")
            return Reply(calls=[("deploy", {})]) if results else LOAD
        if results == 0:
            return Reply(calls=[("Skill", {"name": "careful"})])
        return Reply(calls=[("below", {"task": "Go"})]) if results < 3 else done()

    with ModelServer(delegating) as server:
        sessions = sessions_of(satchel)
        below = agent_of(
            server,
            name="below",
            description="Does it.",
            instructions="You are below.",
            tools=[deploy],
            skills=sessions.child(include=["code-review"]),
        )
        boss = agent_of(server, managed_agents=[below], skills=sessions)
        assert boss.run("Ship it") == "Done."
    asked = [request for request in server.requests if "You are below." in request.system]
    was_held_to_its_part(asked, seen)


def test_an_agent_that_writes_python(satchel):
    code = "Thought: load it\n<code>\nprint(Skill(name='code-review'))\n</code>"
    end = "Thought: done\n<code>\nfinal_answer('Done.')\n</code>"
    with ModelServer([code, end]) as server:
        agent = agent_of(server, SkillsCodeAgent, skills=satchel)
        assert agent.run("Review") == "Done."
    assert "Helps with code-review." in server.requests[0].system
    assert "def Skill(name: string, args: string)" in server.requests[0].system
    assert "<skill-loaded" in seen(server.requests[1])


def test_the_tools_alone_fit_an_agent_of_ones_own(satchel):
    session = satchel.session()
    with ModelServer([LOAD, done()]) as server:
        agent = agent_of(
            server, ToolCallingAgent, tools=skill_tools(session), instructions=session.prompt
        )
        assert agent.run("Review") == "Done."
    assert "<skill-loaded" in seen(server.requests[1])
