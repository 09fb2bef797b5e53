"""The planner on the wire: a plan as structured output, and the same conversation for repairs."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from model_server import ModelServer, Reply, model_of
from satchel import Satchel
from satchel.agent.planner import PLAN_TOOL, AgentPlanner
from satchel.goals.decomposition import PlanRequest, decompose, schema_for_models
from satchel.testing import make_skill

GOAL = "Write API documentation for the pet shop"
GOOD = {
    "steps": [
        {
            "id": "docs",
            "action_type": "skill",
            "skill": "cataloging-apis",
            "prompt": "Document {{goal}}.",
        }
    ]
}
WRONG = {"steps": [{"id": "docs", "action_type": "skill", "skill": "no-such", "prompt": "Go."}]}


@pytest.fixture(params=["anthropic", "openai", "openai-responses"])
def provider(request):
    return request.param


@pytest.fixture
def start(provider):
    with ExitStack() as stack:

        def start(script, **options):
            server = stack.enter_context(ModelServer(script))
            return AgentPlanner(model_of(server, provider), **options), server

        yield start


def ask(planner, **fields):
    request = PlanRequest("You plan.", GOAL, schema_for_models(), **fields)
    return asyncio.run(planner.plan(request))


def submit(plan):
    return Reply(calls=[(PLAN_TOOL, plan)])


def test_a_plan_is_asked_for_as_structured_output(start):
    planner, server = start([submit(GOOD)])
    proposal = ask(planner)
    [request] = server.requests
    assert proposal.plan == GOOD
    assert "You plan." in request.system
    assert request.last_user == GOAL
    assert list(request.tools) == [PLAN_TOOL]
    fields = request.tools[PLAN_TOOL]["properties"]["steps"]["items"]["properties"]
    assert {"id", "action_type", "skill", "prompt"} <= set(fields)
    assert proposal.usage.requests == 1
    assert proposal.usage.input_tokens > 0
    assert proposal.usage.output_tokens > 0


def test_errors_of_a_plan_are_the_result_of_the_models_call(start):
    planner, server = start([submit(GOOD)])
    ask(planner, before=((WRONG, "First verdict."), (WRONG, "Second verdict.")))
    [request] = server.requests
    assert [message.role for message in request.messages] == [
        "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    assert request.messages[0].text == GOAL
    assert [result.text for result in request.all_results] == ["First verdict.", "Second verdict."]
    assert [call.arguments for one in request.messages for call in one.calls] == [WRONG, WRONG]


def test_a_repair_begins_with_the_very_same_bytes(start, provider, tmp_path):
    place = tmp_path / ".agents" / "skills"
    make_skill(place, "cataloging-apis", "Writes API documentation.")
    given = {"trust": "all", "builtin": False, "packaged": False}
    satchel = Satchel.for_project(tmp_path, **given)
    planner, server = start([submit(WRONG), submit(GOOD)])
    made = asyncio.run(decompose(GOAL, satchel=satchel, planner=planner))
    first, second = server.requests
    assert made.plan.steps[0].skill == "cataloging-apis"
    assert "`no-such`, which does not exist" in second.results[0].text
    assert "cataloging-apis" in second.results[0].text
    assert (first.tools, first.system) == (second.tools, second.system)
    assert second.messages[: len(first.messages)] == first.messages
    assert made.usage.requests == 2


def test_a_model_that_answers_with_text_is_asked_for_the_plan(start):
    planner, server = start(["I would begin with the endpoints.", submit(GOOD)])
    proposal = ask(planner)
    assert proposal.plan == GOOD
    assert proposal.usage.requests == len(server.requests) == 2
