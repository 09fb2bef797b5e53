"""An agent of the Claude Agent SDK has skills: the bundled Claude Code runs, without a network."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

from framework_chat import ASKED, converse, history_of, place_of
from model_server import ModelServer, Reply
from satchel import Satchel
from satchel.errors import InvalidInput
from satchel.integrations.claude_agent_sdk import SkillsOptions
from satchel.testing import make_skill

if TYPE_CHECKING:
    from claude_agent_sdk import HookContext, HookInput, HookJSONOutput
    from claude_agent_sdk.types import SystemPromptCustom, SystemPromptPreset

pytestmark = pytest.mark.timeout(60)  # Claude Code is a program of 350 MB
LOAD = Reply(calls=[("mcp__skills__Skill", {"name": "code-review"})])
QUIET: dict[str, Any] = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
}


@pytest.fixture
def options(tmp_path):
    def made(server, **more):
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        settled = {"tools": [], "setting_sources": [], "model": "claude-sonnet-5", **more}
        env = {**server.environment(), **QUIET, "HOME": str(home)}
        return ClaudeAgentOptions(cwd=tmp_path, env=env, **settled)

    return made


def run(skills, options, *prompts):
    async def talk():
        said = []
        async with ClaudeSDKClient(skills.options(options)) as client:
            for prompt in prompts:
                await skills.refresh(client)
                await client.query(prompt)
                said += [
                    message.result
                    async for message in client.receive_response()
                    if isinstance(message, ResultMessage)
                ]
        return said

    return asyncio.run(talk())


def notes_of(request):
    """What Claude Code wrote between the messages, last."""
    return [message.text for message in request.messages if message.role == "system"][-1]


def script(request):
    words = request.last_user
    if words in ASKED and not request.results:
        name, arguments = ASKED[words]
        return Reply(calls=[(f"mcp__skills__{name}", arguments)])
    return Reply(f"Reply {request.turn}")


@pytest.mark.req("A12", "B9", "D6")
@pytest.mark.timeout(120)
def test_the_example_gets_through_the_conversation(tmp_path):
    (tmp_path / "home").mkdir()
    server = converse(
        "claude_agent_sdk/agent.py",
        tmp_path / "project",
        script,
        marks_errors=True,
        mark="mcp__skills__",
        told=notes_of,
        prefix=lambda request: json.dumps([request.json["tools"], request.json["system"]]),
        history=texts_of,
        HOME=str(tmp_path / "home"),
        **QUIET,
    )
    first, last = server.requests[0], server.requests[-2]  # of the last turn, before its call
    assert "`mcp__skills__` before its name" in first.system
    assert '<skill name="code-review">' in notes_of(first)
    # The system prompt stays, so the list as it is now comes as a note.
    assert last.system == first.system
    assert "Writes a haiku." in notes_of(last)
    assert not server.strangers  # nothing else was asked of the network


def texts_of(request):
    """The history without the marks for the cache, which move to the end with each request."""
    found = []
    for message in history_of(request):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kept = [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]
        found.append((message["role"], kept))
    return found


def words_of(options: ClaudeAgentOptions, key: str) -> Any:
    """One part of a system prompt that has parts."""
    assert isinstance(options.system_prompt, dict)
    return dict(options.system_prompt)[key]


def test_options_of_the_host_stay(satchel):
    async def hook(data: HookInput, use: str | None, context: HookContext) -> HookJSONOutput:
        del data, use, context
        return {}

    matcher = HookMatcher(hooks=[hook])
    server = create_sdk_mcp_server("own")
    skills = SkillsOptions(satchel)
    preset: SystemPromptPreset = {"type": "preset", "preset": "claude_code", "append": "Own words."}
    own = ClaudeAgentOptions(
        system_prompt=preset,
        mcp_servers={"own": server},
        allowed_tools=["Read"],
        hooks={"PreToolUse": [matcher]},
        skills="all",
    )
    made = skills.options(own)
    assert words_of(made, "append").startswith("Own words.\n\n<skills>")
    assert isinstance(made.mcp_servers, dict)
    assert set(made.mcp_servers) == {"own", "skills"}
    assert made.allowed_tools == ["Read", "mcp__skills"]
    assert made.hooks is not None
    assert made.hooks["PreToolUse"][0] is matcher
    assert made.skills == "all"
    assert own.hooks == {"PreToolUse": [matcher]}  # the host's object is as it was
    assert own.allowed_tools == ["Read"]
    assert skills.options().skills == []
    custom: SystemPromptCustom = {"type": "custom", "prompt": "Own.", "snapshot": True}
    made = skills.options(ClaudeAgentOptions(system_prompt=custom))
    assert words_of(made, "prompt").startswith("Own.\n\n<skills>")
    assert words_of(made, "snapshot")
    with pytest.raises(InvalidInput, match="system_prompt"):
        skills.options(ClaudeAgentOptions(system_prompt={"type": "file", "path": "x"}))
    with pytest.raises(InvalidInput, match="mcp_servers"):
        skills.options(ClaudeAgentOptions(mcp_servers="servers.json"))


def test_a_new_conversation_can_load_again(satchel, options):
    skills = SkillsOptions(satchel)

    async def ask(made):
        return [message async for message in query(prompt="Review", options=made)]

    with ModelServer([LOAD, LOAD, "1", LOAD, "2"]) as server:
        made = skills.options(options(server))
        asyncio.run(ask(made))
        asyncio.run(ask(made))
    assert "already loaded" in server.requests[2].results[0].text
    assert "<skill-loaded" in server.requests[4].results[0].text


def test_a_tool_of_the_host_is_refused_while_a_skill_forbids_it(satchel, options):
    place = place_of(satchel)
    make_skill(place, "careful", disallowed_tools=["mcp__own__deploy"])

    @tool("deploy", "Ship it.", {})
    async def deploy(arguments):
        del arguments
        return {"content": [{"type": "text", "text": "deployed"}]}

    steps = [
        Reply(calls=[("mcp__own__deploy", {})]),
        Reply(calls=[("mcp__skills__Skill", {"name": "careful"})]),
        Reply(calls=[("mcp__own__deploy", {})]),
        "Well.",
    ]
    with ModelServer(steps) as server:
        own = {"own": create_sdk_mcp_server("own", tools=[deploy])}
        made = options(server, mcp_servers=own, allowed_tools=["mcp__own"])
        assert run(SkillsOptions(satchel), made, "Ship it") == ["Well."]
    assert server.requests[1].results[0].text == "deployed"
    assert "`careful`" in server.requests[3].results[0].text
    assert server.requests[3].results[0].error


def test_a_conversation_that_is_resumed_is_read_from_the_transcript(satchel, options):
    make_skill(place_of(satchel), "careful", disallowed_tools=["mcp__own__deploy"])

    @tool("deploy", "Ship it.", {})
    async def deploy(arguments):
        del arguments
        return {"content": [{"type": "text", "text": "deployed"}]}

    async def ask(made):
        found = [message async for message in query(prompt="Go", options=made)]
        return next(one.session_id for one in found if isinstance(one, ResultMessage))

    careful = Reply(calls=[("mcp__skills__Skill", {"name": "careful"})])
    steps = [careful, "1", Reply(calls=[("mcp__own__deploy", {})]), careful, "2"]
    with ModelServer(steps) as server:
        own = {"own": create_sdk_mcp_server("own", tools=[deploy])}
        made = options(server, mcp_servers=own, allowed_tools=["mcp__own"])
        session = asyncio.run(ask(SkillsOptions(satchel).options(made)))
        made.resume = session
        again = Satchel.for_project(satchel.settings.project, trust="all", builtin=False)
        asyncio.run(ask(SkillsOptions(again).options(made)))
    assert "`careful`" in server.requests[3].results[0].text
    assert "already loaded" in server.requests[4].results[0].text


def test_after_a_compaction_a_skill_can_be_loaded_again(satchel, options):
    def compacting(request):
        if "summary" in request.last_user:
            return "<summary>They spoke.</summary>"
        if request.last_user.endswith("Review") and not request.results:
            return LOAD
        return "Done."

    with ModelServer(compacting) as server:
        run(SkillsOptions(satchel), options(server), "Review", "/compact", "Review")
    first, summed, told, again = server.requests[1:]
    assert "<skill-loaded" in first.results[0].text
    assert "REMINDER" in summed.last_user
    assert "<skills-loaded-before>" in notes_of(told)
    assert "<skill-loaded" in again.results[0].text


@pytest.mark.req("D3")
def test_a_sub_agent_has_what_its_parent_has_and_less(satchel, options):
    task = {
        "description": "Do it",
        "prompt": "Go",
        "subagent_type": "below",
        "run_in_background": False,  # else it ends with the client, in the middle of something
    }

    def delegating(request):
        if "You are below." in request.system:
            if len(request.all_results) > 1:
                return "Below."
            name = "write-docs" if request.results else "code-review"
            return Reply(calls=[("mcp__skills__Skill", {"name": name})])
        done = len(request.all_results)
        if done == 0:
            return LOAD
        return Reply(calls=[("Agent", task)]) if done < 3 else "Done."

    with ModelServer(delegating) as server:
        skills = SkillsOptions(satchel)
        below = AgentDefinition("Does it.", "You are below.", tools=[])
        agents = {"below": skills.agent("below", below, include=["code-review"])}
        made = options(server, tools=["Agent"], allowed_tools=["Agent"], agents=agents)
        assert run(skills, made, "Go") == ["Done."]
    asked = [request for request in server.requests if "You are below." in request.system]
    assert len(asked) == 6  # the task was given twice
    assert "code-review" in asked[0].system
    assert "write-docs" not in asked[0].system
    assert "mcp__skills__Skill" in asked[0].tools
    for at in (0, 3):  # each has a history of its own, so it gets the whole text
        assert "<skill-loaded" in asked[at + 1].results[0].text
        assert "There is no skill `write-docs`" in asked[at + 2].results[0].text
