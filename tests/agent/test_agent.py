"""The agent over HTTP with real SDKs: requests, loaded skills, permissions, usage."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest

from model_server import Reply
from satchel.agent import Limits, SkillLoaded, SubAgent, TextDelta, ToolEnded, ToolStarted, TurnDone
from satchel.testing import make_skill


def add(project, name, description="", **fields):
    path = make_skill(project / ".agents" / "skills", name, description, **fields)
    later = time.time_ns() + 1_000_000_000
    os.utime(path, ns=(later, later))


def head_of(request):
    """The beginning of a request that a provider would cache: tools and system prompt."""
    body = request.json
    if request.provider == "anthropic":
        return body["tools"], body["system"]
    return body["tools"], body["messages"][0]


# --- how a turn is built ---------------------------------------------------------------------


@pytest.mark.req("A12")
@pytest.mark.req("A13")
@pytest.mark.req("D6")
def test_the_first_request_has_the_skill_tool_the_rules_and_the_shortlist(start):
    agent, server = start(["Hello."], instructions="You are terse.")
    assert str(agent.run_sync("please use the code-review skill")) == "Hello."
    request = server.requests[0]
    assert "Skill" in request.tools
    assert request.system.index("You are terse.") < request.system.index("<skills>")
    assert "$code-review" in request.system
    assert "Never load all of them in advance" in request.system
    assert "Look at each line." not in request.system
    assert request.last_user.startswith("please use the code-review skill\n\n<skills-shortlist>")


@pytest.mark.req("A13")
@pytest.mark.req("D6")
def test_a_skill_comes_through_a_result_and_the_beginning_stays(start, project):
    replies = [
        Reply("", calls=[("Skill", {"name": "code-review"})]),
        "Done.",
        Reply("", calls=[("Skill", {"name": "code-review"})]),
        "Again.",
    ]
    agent, server = start(replies)
    first = agent.run_sync("review this")
    assert (first.report.skills, first.report.tools) == (("code-review",), ("Skill",))
    add(project, "brand-new", "Makes coffee.")
    second = agent.run_sync("and this")
    assert second.report.skills == ()
    assert "Look at each line." in server.requests[1].results[0].text
    assert "already loaded" in server.requests[3].results[0].text
    assert len({repr(head_of(request)) for request in server.requests}) == 1
    for before, after in zip(server.requests, server.requests[1:], strict=False):
        assert [one._replace() for one in after.messages[: len(before.messages)]] == list(
            before.messages
        )


@pytest.mark.req("B9")
def test_the_next_request_knows_a_change_even_in_the_middle_of_a_turn(start, project):
    def script(request):
        if request.number == 0:
            add(project, "brand-new", "Makes coffee.")
            return Reply("", calls=[("ReadFile", {"path": "a.md"})])
        assert "brand-new" in request.results[0].text
        return "Fine."

    (project / "a.md").write_text("hello")
    agent, server = start(script)
    agent.run_sync("look at a.md")
    assert len({repr(head_of(request)) for request in server.requests}) == 1


@pytest.mark.req("D5")
def test_without_a_folder_for_skills_the_agent_starts(start, tmp_path):
    folder = tmp_path / "nothing-here"
    folder.mkdir()
    agent, server = start(["Hello."], folder=folder)
    assert agent.run_sync("hello").text == "Hello."
    assert "Skill" not in server.requests[0].tools
    assert "<skills>" not in server.requests[0].system


# --- streaming -------------------------------------------------------------------------------


def test_a_turn_streams_its_events(start):
    agent, _ = start(
        [Reply("Let me see. ", calls=[("Skill", {"name": "code-review"})]), "All is well."]
    )

    async def main():
        return [event async for event in agent.stream("review this")]

    events = asyncio.run(main())
    kinds = [type(event) for event in events if not isinstance(event, TextDelta)]
    assert kinds == [ToolStarted, SkillLoaded, ToolEnded, TurnDone]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == "Let me see. All is well."
    assert events[-1].text == "All is well."
    assert events[-1].report.requests == 2
    ended = next(event for event in events if isinstance(event, ToolEnded))
    assert (ended.name, ended.status) == ("Skill", "success")


def test_a_turn_whose_listener_leaves_is_ended_and_not_recorded(start):
    agent, _ = start(
        [Reply("", calls=[("Skill", {"name": "code-review"})]), Reply("late", delay=2), "Fresh."]
    )

    async def main():
        async for event in agent.stream("review this"):
            if isinstance(event, ToolEnded):
                break
        await asyncio.sleep(0)

    asyncio.run(main())
    assert agent.history == []
    assert not agent.session.loaded


# --- limits, failures, retries ---------------------------------------------------------------


def test_calls_beyond_the_limit_are_answered_with_finish_now(start):
    def script(request):
        if any("Finish now" in one.text for one in request.results):
            return "I finish."
        return Reply("", calls=[("ReadFile", {"path": "a.md"})])

    agent, _ = start(script, limits=Limits(tool_calls=3))
    result = agent.run_sync("go")
    assert result.text == "I finish."
    assert result.report.tools == ("ReadFile",) * 3


def test_a_turn_with_too_many_requests_ends_and_can_be_continued(start):
    def script(request):
        if "continue" in request.last_user:
            return "Done."
        return Reply("", calls=[("Skill", {"name": "code-review"})])

    agent, _ = start(script, limits=Limits(requests=2))
    result = agent.run_sync("go")
    assert result.report.stopped == "Limit reached: `requests` = 2"
    assert result.report.requests == 2
    assert agent.run_sync("continue").text == "Done."


def test_a_turn_that_takes_too_long_ends(start):
    far = Reply("come back later", status=429, headers={"retry-after": "60"})
    agent, _ = start([far, "Here."], limits=Limits(seconds=0.5))
    result = agent.run_sync("go")
    assert result.report.stopped == "Limit reached: `seconds` = 0.5"
    assert agent.run_sync("again").text == "Here."


# --- the host's tools and the person ---------------------------------------------------------


def shop(article: str) -> str:
    """Orders an article."""
    return f"ordered {article}"


def test_a_tool_of_the_host_is_asked_about_and_forbidden_like_any_other(start, project):
    add(project, "careful", disallowed_tools="shop")
    asked = []

    async def approve(ask):
        asked.append(ask.tool)
        return ask.arguments["article"] == "tea"

    def script(request):
        steps = [("shop", {"article": "tea"}), ("shop", {"article": "gold"}),
                 ("Skill", {"name": "careful"}), ("shop", {"article": "tea"})]  # fmt: skip
        if request.number >= len(steps):
            return "Done."
        return Reply("", calls=[steps[request.number]])

    agent, server = start(script, tools=[shop], ask=("shop",), approve=approve)
    agent.run_sync("go")
    texts = [request.results[0].text for request in server.requests[1:]]
    assert "ordered tea" in texts[0]
    assert "did not agree" in texts[1]
    assert "`careful` forbids `shop`" in texts[3]
    assert asked == ["shop", "shop"]


# --- sub-agents ------------------------------------------------------------------------------


@pytest.mark.req("D3")
def test_a_sub_agent_carries_its_part_of_the_skills_and_only_its_answer_returns(start):
    def script(request):
        if "sub-agent" in request.system:
            if not request.results:
                return Reply("", calls=[("Skill", {"name": "code-review"})])
            return "Three faults."
        if not request.results:
            tasks = [("Task", {"agent": "reviewer", "task": f"review file {n}"}) for n in (1, 2)]
            return Reply("", calls=tasks)
        return "Reviewed."

    crew = {
        "reviewer": SubAgent(
            "Reviews one file.",
            "You review.",
            include=("code-*",),
            tools=("Skill", "ReadFile", "shop"),
        )
    }
    agent, server = start(script, sub_agents=crew, tools=[shop])
    result = agent.run_sync("review both")
    inner = next(one for one in server.requests if "sub-agent" in one.system)
    assert "Reviews code for faults." in inner.system
    assert "Writes documentation." not in inner.system
    assert set(inner.tools) == {"Skill", "ReadFile", "shop"}
    outer = [one for one in server.requests if "sub-agent" not in one.system]
    assert "- reviewer: Reviews one file." in str(outer[0].json["tools"])
    assert [("Three faults." in one.text) for one in outer[1].results] == [True, True]
    assert "Look at each line." not in str(outer[1].messages)
    assert result.report.requests == 6
    assert sorted(result.report.tools) == ["Task", "Task", "reviewer/Skill", "reviewer/Skill"]
    assert agent.session.loaded == {}


def test_sub_agents_work_only_so_deep(start):
    def script(request):
        if request.results:
            return "Done."
        if "Task" in request.tools:
            return Reply("", calls=[("Task", {"agent": "worker", "task": "go on"})])
        return "I am the last."

    agent, server = start(script, sub_agents={"worker": SubAgent("Works.")}, limits=Limits(depth=2))
    agent.run_sync("go")
    assert sum("Task" not in one.tools for one in server.requests) == 1


def test_a_sub_agent_that_fails_is_a_result(start):
    def script(request):
        if "sub-agent" in request.system:
            return Reply("bad", status=400)
        if not request.results:
            return Reply("", calls=[("Task", {"agent": "worker", "task": "go"}),
                                    ("Task", {"agent": "nobody", "task": "go"})])  # fmt: skip
        return " ".join(one.text for one in request.results)

    agent, _ = start(script, sub_agents={"worker": SubAgent("Works.")})
    text = agent.run_sync("go").text
    assert "The sub-agent failed" in text
    assert "no sub-agent `nobody`" in text


# --- long conversations ----------------------------------------------------------------------


def test_a_skill_that_was_trimmed_away_is_remembered_and_loaded_again_in_full(start):
    filler = "words " * 700

    def script(request):
        if "review" in request.last_user.partition("\n")[0] and not request.results:
            return Reply("", calls=[("Skill", {"name": "code-review"})])
        return filler

    agent, server = start(script, limits=Limits(history=9_000))
    agent.run_sync("review it")
    for number in range(3):
        agent.run_sync(f"talk {number}")
    reminded = [one for one in server.requests if "<skills-loaded-before>" in one.last_user]
    assert len(reminded) == 1
    digest = agent.session.loaded["code-review"].digest
    assert digest in reminded[0].last_user
    assert "Look at each line." not in str(reminded[0].messages)
    agent.run_sync("review it")
    assert "Look at each line." in server.requests[-1].results[0].text


def test_old_results_are_left_out_within_a_turn_with_a_note(start, project):
    for number in range(4):
        (project / f"{number}.md").write_text("words " * 500)

    def script(request):
        if request.number == 0:
            return Reply("", calls=[("Skill", {"name": "code-review"})])
        if request.number <= 4:
            return Reply("", calls=[("ReadFile", {"path": f"{request.number - 1}.md"})])
        return "Done."

    agent, server = start(script, limits=Limits(history=8_000))
    assert agent.run_sync("go").text == "Done."
    assert "left out to save room" in str(server.requests[-1].messages)
    assert "Look at each line." in str(server.requests[-1].messages)  # skills go last


def test_a_new_conversation_begins_with_nothing(start):
    agent, server = start([Reply("", calls=[("Skill", {"name": "code-review"})]), "One.", "Two."])
    agent.run_sync("go")
    agent.reset()
    agent.run_sync("hello")
    assert agent.session.loaded == {}
    assert len(server.requests[-1].messages) == 1


def test_a_skill_that_the_user_loads_precedes_the_next_message(start):
    agent, server = start(["One.", "Two."])
    reply = agent.load("code-review", "src/app.py")
    assert reply.error is None
    agent.run_sync("go")
    agent.run_sync("go on")
    first, second = server.requests
    said = "\n".join(message.text for message in first.messages)
    assert said.index("Look at each line.") < said.index("go")
    assert "<skills-loaded-before>" not in said
    assert second.messages[: len(first.messages)] == first.messages
    assert agent.session.loaded["code-review"].present
    assert agent.load("no-such-skill").error.code == "NOT_FOUND"


def test_an_agent_that_is_not_closed_ends_without_a_warning(project):
    lines = (
        "import asyncio, atexit, threading",
        "from pydantic_ai.models.test import TestModel",
        "from satchel.agent import Agent",
        "def slow(): return 'x'",
        "async def tool() -> str: return await asyncio.to_thread(slow)",
        "agent = Agent.for_project('.', model=TestModel(call_tools=['tool']), tools=[tool])",
        "print(agent.run_sync('hello').text)",
        "def refuse(*_): raise RuntimeError('no new thread at exit')",  # as Python 3.12 does
        "atexit.register(setattr, threading.Thread, 'start', refuse)",
    )
    words = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(
        words, cwd=project, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "x" in done.stdout
