"""A goal decomposer: four locations, a detector, `{{skills}}`, steps of `action_type: skill`."""

from __future__ import annotations

import asyncio
import os

import pytest
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from model_server import ModelServer, Reply
from satchel.agent.goal_steps import AgentSteps
from satchel.agent.planner import PLAN_TOOL, AgentPlanner
from satchel.detect import MinimalSkillDetector
from satchel.goals.decomposition import decompose
from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Goal
from seeds.conftest import skill

GOAL = "Prepare API documentation for the pet shop service"
ABOUT = "Lists the endpoints of a service and writes API documentation."
BODY = "List every endpoint with its method.\n"
PLACE = ".agents/skills/cataloging-apis/SKILL.md"
FILES = {
    PLACE: skill("cataloging-apis", ABOUT, BODY),
    "skills/cataloging-apis/SKILL.md": skill("cataloging-apis", "Another one."),
    "skills/making-tea/SKILL.md": skill("making-tea", "Makes tea for guests."),
    "skills/post/SKILL.md": skill("sorting-mail", "Sorts the mail of an office."),
    "SKILL.md": skill("pet-shop", "Explains this project."),
    "api.txt": "GET /pets\nPOST /pets\n",
}
PLAN = {
    "steps": [
        {
            "id": "endpoints",
            "action_type": "skill",
            "skill": "cataloging-apis",
            "prompt": "Catalogue the endpoints of the pet shop.",
        },
        {
            "id": "page",
            "action_type": "llm",
            "prompt": "Write one page about {{steps.endpoints.output}} for: {{goal}}",
        },
    ]
}

pytestmark = pytest.mark.timeout(90)


def script(request):
    """The planner's model and the model of the steps: the request shows which one is asked."""
    if PLAN_TOOL in request.tools:
        return Reply(calls=[(PLAN_TOOL, PLAN)])
    if "Catalogue" not in request.last_user and not request.results:
        return f"The page has {request.last_user.count('/pets')} endpoints."
    if not request.results:
        return Reply(calls=[("ReadFile", {"path": "api.txt"})])
    assert "GET /pets" in request.results[0].text
    return "GET /pets, POST /pets"


@pytest.fixture
def shop(project, monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")
    project.write(FILES)
    everywhere = project.home / ".config/agents/skills/writing-letters"
    everywhere.mkdir(parents=True)
    (everywhere / "SKILL.md").write_text(skill("writing-letters", "Writes letters."))
    return project


@pytest.mark.req("C1", "C2", "C4")
def test_the_registry_has_four_locations_and_the_first_wins(shop):
    satchel = shop.open()
    satchel.library.discover()
    assert [(one.name, one.ref) for one in satchel.list_skills()] == [
        ("cataloging-apis", ".agents/skills/cataloging-apis"),
        ("making-tea", "skills/making-tea"),
        ("sorting-mail", "skills/post"),
        ("pet-shop", "./"),
        ("writing-letters", "~/.config/agents/skills/writing-letters"),
    ]
    assert satchel.get_skill("cataloging-apis").description == ABOUT
    assert satchel.load_content("cataloging-apis") == BODY
    assert "name-mismatch" in [one.code for one in satchel.problems()]


class Chosen:
    """A detector of one's own: names are enough."""

    def detect(self, goal_text, skills):
        return ["making-tea"]


@pytest.mark.req("C3", "C10")
def test_a_detector_chooses_by_words_and_can_be_replaced(shop):
    satchel = shop.open()
    found = MinimalSkillDetector().detect("about api DOCUMENTATION", satchel.list_skills())
    assert [one.name for one in found] == ["cataloging-apis"]
    for words in ("use skill making-tea", "now --skill making-tea", "Use the making-tea skill"):
        assert [one.name for one in satchel.which(words).matches] == ["making-tea"]
    assert shop.open(detector=Chosen()).which(GOAL).matches[0].name == "making-tea"


def dbos(request, runner, folder):
    from satchel.goals.engines.dbos import DbosEngine

    return DbosEngine(runner, database=f"sqlite:///{folder / 'goals.db'}")


def temporal(request, runner, folder):
    from satchel.goals.engines.temporal import TemporalEngine

    server = request.getfixturevalue("temporal_server")
    queue = f"goal-{os.path.basename(folder)}"
    return TemporalEngine(runner, str(folder / "files"), address=server.address, queue=queue)


ENGINES = {
    "local": lambda request, runner, folder: LocalEngine(runner, str(folder / "goals")),
    "dbos": dbos,
    "temporal": temporal,
}
MODELS = {
    "anthropic": lambda **given: AnthropicModel("claude-s", provider=AnthropicProvider(**given)),
    "openai": lambda **given: OpenAIChatModel("gpt", provider=OpenAIProvider(**given)),
}


@pytest.mark.req("C5", "C6", "C7", "C9")
@pytest.mark.parametrize(
    ("engine", "provider"), [("local", "openai"), *((name, "anthropic") for name in ENGINES)]
)
def test_a_goal_about_api_documentation_is_reached_with_the_skill(
    engine, provider, shop, tmp_path, request
):
    satchel = shop.open()
    with ModelServer(script) as server:
        model = MODELS[provider](base_url=server.base_url(provider), api_key="none")
        runner = AgentSteps(satchel, model)

        async def main():
            made = await decompose(GOAL, satchel=satchel, planner=AgentPlanner(model))
            # A plan reads no skill: each step reads its own when it runs.
            shop.write({PLACE: FILES[PLACE] + "Sort them.\n"})
            async with ENGINES[engine](request, runner, tmp_path) as works:
                await works.submit(Goal("docs", made.plan))
                return made, await works.wait("docs", 60)

        made, report = asyncio.run(main())

    assert made.skills == ("cataloging-apis",)
    first = [*satchel.trace.history()][-1]
    assert (first["kind"], tuple(first["skills"])) == ("selected", made.skills)
    planning, step = server.requests[:2]
    assert "{{skills}}" not in planning.system
    assert f'<skill name="cataloging-apis">{ABOUT}</skill>' in planning.system
    assert BODY.strip() not in planning.body.decode()
    assert f"{BODY}Sort them." in step.system
    assert step.last_user == "Catalogue the endpoints of the pet shop."
    assert report.state == "done", report
    assert report.steps["endpoints"].skills == ("cataloging-apis",)
    assert report.steps["page"].output == "The page has 2 endpoints."


@pytest.mark.req("C6", "C9")
def test_after_one_yes_the_commands_plan_and_run_with_the_skill(shop):
    with ModelServer(script) as server:
        known = {**server.environment(), "SATCHEL_MODEL": "anthropic:claude-sonnet-5"}
        plan = ("goal", "plan", GOAL, "-o", "plan.yaml")
        waiting = shop.run(*plan, **known)
        assert waiting.status == 1, "a plan with a skill that may not be used is none"
        assert "5 skills of this folder are not trusted yet: run `satchel trust`" in waiting.err
        assert "cataloging-apis" not in server.requests[0].system
        assert "plan.yaml" in shop.say_yes(*plan, **known)
        done = shop.run("goal", "run", "plan.yaml", **known)
    assert (done.status, done.out) == (0, "The page has 2 endpoints.\n"), done.err
