"""Hostile goals: what a plan says and what a step gave stays text, in pages and in the API."""

from __future__ import annotations

import asyncio

import pytest

from satchel.goals.engines.local import LocalEngine
from satchel.goals.engines.opening import local_folder
from satchel.goals.model import Done, Goal, Plan, Retry, Step, Usage
from ui_dom import EVIL, check

OUTPUTS = {
    "words": EVIL,
    "table": {EVIL: [EVIL, {EVIL: None}]},
    "list": [EVIL] * 3,
    "large": EVIL * 2_000,
}


class Evil:
    """Whatever it is asked, its answer is an attack."""

    async def run(self, work):
        if work.step.id == "fails":
            raise ValueError(EVIL)
        found = OUTPUTS.get(work.step.id, EVIL)
        return Done(found, Usage(1, 10, 5), (EVIL,), (EVIL,), (EVIL,))


@pytest.fixture(scope="module")
def house(shared):
    words = EVIL.replace("{{7*7}}", "")  # a prompt is a template, of ours
    steps = [Step(key, prompt=f"{words} {key}", title=EVIL) for key in OUTPUTS]
    steps.append(Step("fails", prompt=words, title=EVIL))
    steps.append(Step("asks", "human", prompt=words, title=EVIL, needs=("words",)))

    async def work():
        async with LocalEngine(Evil(), folder=local_folder(shared.satchel.settings)) as engine:
            plan = Plan(EVIL, tuple(steps), on_failure="continue", retry=Retry(1, 0.01))
            await engine.submit(Goal("evil", plan))
            for _ in range(400):
                report = await engine.report("evil")
                if report.state == "asking" and report.steps["fails"].state == "failed":
                    return
                await asyncio.sleep(0.02)

    asyncio.run(work())
    return shared


@pytest.fixture
def visit(house, guest):
    return guest


@pytest.mark.parametrize("address", ["/goals", "/goals/evil", "/goals/evil/board"])
def test_a_goal_stays_text(visit, address):
    for answer in (visit.get(address), visit.part(address)):
        assert answer.status_code == 200
        assert "x-evil" in check(answer.text).text


@pytest.mark.parametrize("step", [*OUTPUTS, "fails", "asks"])
def test_a_step_stays_text(visit, step):
    for address in (f"/goals/evil/steps/{step}", f"/goals/evil?step={step}",
                    f"/goals/evil/steps/{step}?more=true"):  # fmt: skip
        for answer in (visit.get(address), visit.part(address)):
            assert answer.status_code == 200
            assert "x-evil" in check(answer.text).text


@pytest.mark.parametrize("step", [EVIL, "nobody", "..", "", "words\x00"])
def test_an_answer_to_no_step_is_refused_in_words(visit, step):
    for headers in ({}, {"HX-Request": "true"}):
        form = {"step": step, "say": "yes", "value": EVIL, "note": EVIL}
        answer = visit.post("/goals/evil/answer", data=form, headers=headers)
        assert answer.status_code in {404, 409, 422}
        check(answer.text)


def test_the_api_tells_a_goal_as_it_is(visit):
    rows = visit.get("/api/goals").json()["goals"]
    assert [(one["id"], one["state"]) for one in rows] == [("evil", "asking")]
    found = visit.get("/api/goals/evil").json()
    assert found["text"] == EVIL
    outputs = {one["id"]: one["output"] for one in found["steps"]}
    assert outputs["words"] == EVIL
    assert outputs["list"] == [EVIL] * 3
    assert visit.get("/api/goals/nobody").status_code == 404
    no = visit.post("/api/goals/evil/answer", json={"step": "nobody"})
    assert no.status_code == 404
    assert no.json()["error"]["code"] == "NOT_FOUND"
    gone = visit.post("/api/goals/evil/cancel")
    assert gone.json()["state"] in {"cancelled", "failed", "partial"}
