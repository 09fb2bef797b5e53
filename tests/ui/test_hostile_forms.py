"""Hostile forms: submitted text is escaped, also when the form succeeds.

Each form names a real skill, goal or plan. The status shows that its own code was reached, not only
a check in front of it.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

import pytest

from satchel.goals.engines.factory import Background, local_folder
from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Done, Goal, Plan, Retry, Step, Usage
from ui_dom import EVIL, check

REF = ".agents/skills/mine"
SKILL = "---\nname: mine\ndescription: Does <x-evil> things. Use when asked.\n---\n"


class Nobody:
    """A process that is not running."""

    async def run(self, work):
        return Done(EVIL)

    def poll(self) -> int:
        return 0


@pytest.fixture
def mine(visit, skill):
    skill("mine", license=EVIL)
    visit.satchel.refresh()
    return visit


@pytest.fixture
def goal(visit):
    async def begin() -> None:
        async with LocalEngine(Nobody(), local_folder(visit.satchel.settings)) as engine:
            steps = (Step("ask", "human", prompt="Well?"), Step("a", prompt="x"))
            await engine.submit(Goal("week", Plan("Reach it", steps, retry=Retry(1, 0.01))))
            await engine.wait("week")

    asyncio.run(begin())
    visit.client.app.state.goals.start_process = lambda *_, **__: Background(
        cast("Any", Nobody()), "", 0
    )
    return visit


@pytest.fixture
def plan(visit):
    """The URL of a pending plan."""
    answer = visit.upload({"mine/SKILL.md": SKILL + EVIL}, "<x-evil>.zip")
    assert answer.status_code == 303, answer.text[:300]
    return answer.headers["location"]


def sent(visit, status: int, address: str, params: Any = None, **data: str):
    """Send a form as a page does, and check the response and its redirect."""
    answer = visit.post(address, params=params or {}, data=data)
    assert answer.status_code == status, (address, answer.status_code, answer.text[-600:])
    where = answer.headers.get("location", "/skills")
    assert re.match(r"/(?![/\\])", where), where
    assert "<" not in where
    if status == 303:
        return check(visit.get(where).text).text
    return check(answer.text).text


def digest(visit) -> str:
    page = visit.get("/skill/edit", params={"ref": REF}).text
    return cast("re.Match[str]", re.search(r'name="digest" value="(\w+)"', page))[1]


def test_a_new_skill(visit):
    fields = {"name": EVIL, "description": EVIL, "own": "odd"}
    text = sent(visit, 303, "/skills/add", scope="project", **fields)
    assert "x-evil" in text
    assert sent(visit, 200, "/skills/add/check", scope="project", **fields)
    assert sent(visit, 422, "/skills/add", scope=EVIL, **fields)


def test_an_address_of_a_repository(visit):
    assert "x-evil" in sent(visit, 404, "/skills/import/git", source=EVIL, ref=EVIL, path=EVIL)


def test_a_text_that_is_checked_and_saved(mine):
    own = {"ref": REF}
    assert "x-evil" in sent(mine, 200, "/skill/edit/check", own, text=SKILL + EVIL)
    assert "x-evil" in sent(mine, 409, "/skill/edit", own, text=SKILL + EVIL, digest=EVIL)
    text = sent(mine, 303, "/skill/edit", own, text=SKILL + EVIL, digest=digest(mine))
    assert "x-evil" in text
    file = mine.satchel.library.snapshot().skills
    assert any("x-evil" in one.description for one in file)


def test_a_change_that_is_taken_back(mine):
    own, number = {"ref": REF}, "1"
    sent(mine, 303, "/skill/edit", own, text=SKILL + EVIL, digest=digest(mine))
    for address in ("/undo", "/redo"):
        assert sent(mine, 422, address, number=EVIL, scope="project")
        assert sent(mine, 422, address, number=number, scope=EVIL)
        assert sent(mine, 422, address, number=number, back="https://evil.example/")
        assert sent(mine, 409, address, number="77", scope="project")
        told = mine.post(address, data={"number": number, "back": "/history"})
        assert told.status_code == 303
        page = mine.get(told.headers["location"]).text
        check(page)
        number = cast("re.Match[str]", re.search(r'name="number" value="(\d+)"', page))[1]


def test_trust(mine):
    assert sent(mine, 422, "/skill/accept", {"ref": REF}, reason=EVIL)  # the scan does not block it
    assert sent(mine, 404, "/skill/accept", {"ref": EVIL}, reason=EVIL)
    assert sent(mine, 303, "/skills/trust", x=EVIL)


def test_a_new_name_and_an_export(mine):
    assert sent(mine, 422, "/skill/rename", {"ref": REF}, name=EVIL)
    assert sent(mine, 404, "/skills/chosen", do="export", ref=EVIL)


def test_inputs_of_a_goal_stay_text(goal):
    assert "x-evil" in sent(goal, 404, "/goals/week/answer", step=EVIL)
    assert "x-evil" in sent(goal, 404, "/goals/week/retry", **{"from": EVIL})
    assert sent(goal, 303, "/goals/week/answer", step="ask", value=EVIL, note=EVIL, say=EVIL)
    assert sent(goal, 303, "/goals/week/cancel", x=EVIL)


def test_a_hostile_plan_that_is_started_stays_text(visit, plan):
    assert "x-evil" in sent(visit, 303, f"{plan}/yes", accept_risk=EVIL, take=EVIL)
    assert any(one.id == "mine" for one in visit.satchel.library.snapshot().skills)


def test_a_hostile_plan_that_is_refused_stays_text(visit, plan):
    assert sent(visit, 303, f"{plan}/no", accept_risk=EVIL)


# --- hostile goals -------------------------------------------------------------------------

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


@pytest.fixture
def hostile_goal(visit):
    """A goal whose plan and outputs are hostile."""
    words = EVIL.replace("{{7*7}}", "")  # a prompt is a template, of ours
    steps = [Step(key, prompt=f"{words} {key}", title=EVIL) for key in (*OUTPUTS, "fails")]
    steps.append(Step("asks", "human", prompt=words, title=EVIL, needs=("words",)))

    async def work():
        async with LocalEngine(Evil(), folder=local_folder(visit.satchel.settings)) as engine:
            plan = Plan(EVIL, tuple(steps), on_failure="continue", retry=Retry(1, 0.01))
            await engine.submit(Goal("evil", plan))
            await engine.wait("evil")

    asyncio.run(work())
    return visit


def test_a_goal_and_its_steps_stay_text(hostile_goal):
    visit = hostile_goal
    pages = ["/goals", "/goals/evil", "/goals/evil/board"]
    for step in (*OUTPUTS, "fails", "asks"):
        pages += [f"/goals/evil/steps/{step}", f"/goals/evil?step={step}"]
        pages.append(f"/goals/evil/steps/{step}?more=true")
    for address in pages:
        for answer in (visit.get(address), visit.part(address)):
            assert answer.status_code == 200, address
            assert "x-evil" in check(answer.text).text, address


def test_an_answer_to_no_step_is_refused_in_words(hostile_goal):
    visit = hostile_goal
    for step in (EVIL, "nobody", "..", "", "words\x00"):
        for headers in ({}, {"HX-Request": "true"}):
            form = {"step": step, "say": "yes", "value": EVIL, "note": EVIL}
            answer = visit.post("/goals/evil/answer", data=form, headers=headers)
            assert answer.status_code in {404, 409, 422}, step
            check(answer.text)


# --- values that cannot be used ------------------------------------------------------------

FOREIGN = ("required", "should be", "should have", "Maximum number", "exceeded", "valid integer")
"""Words of the frameworks' own messages."""
ASKED = {
    "nothing": ("/skills/import/git", {"source": ""}, "source is missing"),
    "too long": ("/skills/add", {"name": "x" * 300}, "name has more than 200 characters"),
    "none of some": ("/skills/add", {"name": "x", "scope": "y"}, "scope is not valid"),
    "no number": ("/undo", {"number": "one"}, "number is not valid"),
    "too little": ("/skills?page=0", None, "page is not valid"),
    "too much": ("/skills?page=99999999", None, "page is not valid"),
    "an address without a field": ("/plans/x/diff", None, "step is missing"),
}  # fmt: skip


def test_a_value_that_cannot_be_used(visit):
    for address, data, words in ASKED.values():
        answer = visit.post(address, data=data) if data else visit.get(address)
        assert answer.status_code == 422
        assert words in check(answer.text).text
        zh = {"Accept-Language": "zh-CN"}
        chinese = (
            visit.post(address, data=data, headers=zh) if data else visit.get(address, headers=zh)
        )
        assert not [one for one in FOREIGN if one in check(chinese.text).text]


def test_a_form_that_is_too_large_has_an_error_page(visit):
    many = [("f", ("a", b"x"))] * 1_100
    answer = visit.post("/skills/add", files=many)
    assert answer.status_code == 400
    assert "The upload is too large" in answer.text
