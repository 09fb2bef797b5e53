"""Hostile goals: text of plans and outputs is escaped."""

from __future__ import annotations

import asyncio

import pytest

from satchel.goals.engines.factory import local_folder
from satchel.goals.engines.local import LocalEngine
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
def hostile_server(shared):
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
def visit(hostile_server, guest):
    return guest


def test_a_goal_and_its_steps_stay_text(visit):
    pages = ["/goals", "/goals/evil", "/goals/evil/board"]
    for step in (*OUTPUTS, "fails", "asks"):
        pages += [f"/goals/evil/steps/{step}", f"/goals/evil?step={step}"]
        pages.append(f"/goals/evil/steps/{step}?more=true")
    for address in pages:
        for answer in (visit.get(address), visit.part(address)):
            assert answer.status_code == 200, address
            assert "x-evil" in check(answer.text).text, address


def test_an_answer_to_no_step_is_refused_in_words(visit):
    for step in (EVIL, "nobody", "..", "", "words\x00"):
        for headers in ({}, {"HX-Request": "true"}):
            form = {"step": step, "say": "yes", "value": EVIL, "note": EVIL}
            answer = visit.post("/goals/evil/answer", data=form, headers=headers)
            assert answer.status_code in {404, 409, 422}, step
            check(answer.text)
