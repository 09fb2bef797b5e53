"""Seed C's validation, end to end, on every engine, through the real SDKs.

A goal that mentions "API documentation" finds `cataloging-apis`; the decomposer's prompt has it in
place of `{{skills}}`; the plan has a step of the type `skill`; that step runs with the SKILL.md as
its system context. What was sent is read from the wire.
"""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from model_server import ModelServer, Reply
from satchel import Satchel
from satchel.agent.planner import TOOL, AgentPlanner
from satchel.agent.steps import AgentSteps
from satchel.goals.decompose import decompose
from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Goal
from satchel.goals.plan_file import read_plan, write_plan
from satchel.testing import make_skill, make_tool_skill

GOAL = "Prepare API documentation for the pet shop service"
ABOUT = "Lists the endpoints of a service and writes API documentation."
BODY = "# Cataloging\n\nList every endpoint with its method.\nSort them by path.\n"
PLAN = {
    "steps": [
        {
            "id": "endpoints",
            "title": "Catalogue the endpoints",
            "action_type": "skill",
            "skill": "cataloging-apis",
            "prompt": "Catalogue the endpoints of the pet shop.",
            "output": {
                "type": "object",
                "properties": {"endpoints": {"type": "array", "items": {"type": "string"}}},
                "required": ["endpoints"],
            },
        },
        {
            "id": "page",
            "action_type": "llm",
            "prompt": "Write one page about {{steps.endpoints.output.endpoints}} for: {{goal}}",
        },
        {
            "id": "publish",
            "action_type": "tool",
            "tool": "publisher_run",
            "arguments": {"text": "{{steps.page.output}}"},
        },
    ]
}
PUBLISHER = """\
import json
import sys

request = json.loads(sys.stdin.readline())
said = json.dumps([request["arguments"]["text"], request["key"]])
print(json.dumps({"output": said, "error": ""}))
"""
TEXT = "parameters:\n  - {name: text, type: string, required: true, description: The page}\n"

pytestmark = pytest.mark.timeout(90)


def local(request, runner, folder):
    return LocalEngine(runner)


def local_with_a_folder(request, runner, folder):
    return LocalEngine(runner, str(folder / "goals"))


def dbos_on_sqlite(request, runner, folder):
    from satchel.goals.engines.dbos import DbosEngine

    return DbosEngine(runner, database=f"sqlite:///{folder / 'goals.db'}")


def temporal(request, runner, folder):
    from satchel.goals.engines.temporal import TemporalEngine

    server = request.getfixturevalue("temporal_server")
    return TemporalEngine(
        runner,
        str(folder / "artefacts"),
        address=server.address,
        queue=f"seed-{os.path.basename(folder)}",
    )


ENGINES = {
    "local": local,
    "local-folder": local_with_a_folder,
    "dbos-sqlite": dbos_on_sqlite,
    "temporal": temporal,
}


def model_of(server, provider):
    given = {"base_url": server.base_url(provider), "api_key": "none"}
    if provider == "anthropic":
        return AnthropicModel("claude-sonnet-5", provider=AnthropicProvider(**given))
    return OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(**given))


def script(request):
    """The planner's model and the steps' model: who is asked shows in the request."""
    if TOOL in request.tools:
        return Reply(calls=[(TOOL, PLAN)])
    if "final_result" in request.tools:
        if not request.results:
            return Reply(calls=[("ReadFile", {"path": "api.txt"})])
        assert "GET /pets" in request.results[0].text
        return Reply(calls=[("final_result", {"endpoints": ["GET /pets", "POST /pets"]})])
    return f"The pet shop has {request.last_user.count('/pets')} endpoints."


@pytest.fixture(params=["anthropic", "openai"])
def provider(request):
    return request.param


@pytest.fixture(autouse=True)
def _direct(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    place = folder / ".agents" / "skills"
    make_skill(place, "cataloging-apis", ABOUT, body=BODY)
    make_skill(place, "making-tea", "Makes tea for guests.")
    make_skill(place, "sorting-mail", "Sorts the mail of an office.")
    make_tool_skill(place, "publisher", PUBLISHER, more=TEXT)
    (folder / "api.txt").write_text("GET /pets\nPOST /pets\n")
    return folder


@pytest.fixture
def satchel(project):
    found = Satchel.for_project(project, trust="all", builtin=False, packaged=False)
    yield found
    found.close()


@pytest.mark.req("C5")
@pytest.mark.req("C6")
@pytest.mark.req("C7")
@pytest.mark.req("C9")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_goal_about_api_documentation_is_reached_with_the_skill(
    engine, provider, satchel, project, tmp_path, request
):
    name = f"api-docs-{provider}"
    with ModelServer(script) as server:
        model = model_of(server, provider)
        runner = AgentSteps(satchel, model)

        async def main():
            made = await decompose(
                GOAL, satchel=satchel, planner=AgentPlanner(model), session=runner.session()
            )
            sent_for_the_plan = len(server.requests)
            loaded_for_the_plan = loads(satchel)
            async with ENGINES[engine](request, runner, tmp_path) as works:
                await works.submit(Goal(name, made.plan))
                report = await works.wait(name, 60)
            return made, sent_for_the_plan, loaded_for_the_plan, report

        made, asked, loaded, report = asyncio.run(main())

    # The registry discovers it, and the detector picks it.
    assert satchel.get_skill("cataloging-apis").description == ABOUT
    assert made.skills[0] == "cataloging-apis"
    assert made.answer.matches[0].reason
    # The decomposer receives `{{skills}}` filled.
    [planning] = server.requests[:asked]
    assert "{{skills}}" not in planning.body.decode()
    assert '<skill name="cataloging-apis">' in planning.system
    assert ABOUT in planning.system
    assert "List every endpoint" not in planning.body.decode()
    assert '<tool name="publisher_run">' in planning.system
    assert planning.last_user == GOAL
    # The skill is loaded when its step runs, and its text is the system context.
    assert loaded == []
    assert loads(satchel) == ["cataloging-apis"]
    skill = server.requests[asked]
    assert '<skill-loaded name="cataloging-apis"' in skill.system
    assert BODY.strip() in skill.system
    assert skill.last_user == "Catalogue the endpoints of the pet shop."
    # What it gave flows on, and the goal is reached.
    assert report.state == "done", report
    assert report.steps["endpoints"].output == {"endpoints": ["GET /pets", "POST /pets"]}
    assert report.steps["endpoints"].skills == ("cataloging-apis",)
    assert "ReadFile" in report.steps["endpoints"].tools
    page = server.requests[-1]
    assert page.last_user == f'Write one page about ["GET /pets", "POST /pets"] for: {GOAL}'
    assert "List every endpoint" not in page.system
    assert json.loads(report.steps["publish"].output) == [
        "The pet shop has 2 endpoints.",
        f"{name}:publish:1",
    ]
    assert report.usage.requests == len(server.requests) - asked
    assert report.usage.input_tokens > 0
    # And how it came about is known.
    kinds = [event.kind for event in made.trace]
    assert kinds == ["selected", "planned"]
    assert next(iter(made.trace[0].skills)) == "cataloging-apis"


@pytest.mark.req("C6")
def test_the_plan_may_go_through_a_file_in_between(provider, satchel, project, tmp_path):
    path = project / "plan.yaml"
    with ModelServer(script) as server:
        model = model_of(server, provider)
        runner = AgentSteps(satchel, model)

        async def main():
            made = await decompose(GOAL, satchel=satchel, planner=AgentPlanner(model))
            path.write_text(write_plan(made.plan))
            plan, problems = read_plan(str(path))
            assert (plan, problems) == (made.plan, [])
            async with LocalEngine(runner) as engine:
                await engine.submit(Goal("again", plan))
                return await engine.wait("again", 60)

        assert asyncio.run(main()).state == "done"


@pytest.mark.req("C6")
def test_a_skill_that_changed_after_the_plan_is_read_as_it_is_then(provider, satchel, project):
    with ModelServer(script) as server:
        model = model_of(server, provider)

        async def main():
            made = await decompose(GOAL, satchel=satchel, planner=AgentPlanner(model))
            place = project / ".agents" / "skills"
            make_skill(place, "cataloging-apis", ABOUT, body="Now list them backwards, please.\n")
            async with LocalEngine(AgentSteps(satchel, model)) as engine:
                await engine.submit(Goal("later", made.plan))
                return await engine.wait("later", 60)

        assert asyncio.run(main()).state == "done"
    skill = server.requests[1]
    assert "Now list them backwards" in skill.system
    assert "List every endpoint" not in skill.system


def loads(satchel):
    return [
        name for event in satchel.trace.events if event.kind == "loaded" for name in event.skills
    ]
