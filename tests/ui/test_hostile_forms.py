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
from satchel.goals.model import Done, Goal, Plan, Retry, Step
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
    visit.client.app.state.goals.start = lambda *_, **__: Background(cast("Any", Nobody()), "", 0)
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


def test_other_agents(mine):
    own = {"ref": REF}
    assert sent(mine, 404, "/skill/agents", own, agent=EVIL[:64], turn="on")
    assert sent(mine, 303, "/skill/agents", own, agent="claude-code", turn="on")
    assert sent(mine, 422, "/skill/rename", own, name=EVIL)
    assert sent(mine, 404, "/skills/chosen", do="export", ref=EVIL)


def test_what_a_goal_is_told(goal):
    assert "x-evil" in sent(goal, 404, "/goals/week/answer", step=EVIL)
    assert "x-evil" in sent(goal, 404, "/goals/week/retry", **{"from": EVIL})
    assert sent(goal, 303, "/goals/week/answer", step="ask", value=EVIL, note=EVIL, say=EVIL)
    assert sent(goal, 303, "/goals/week/cancel", x=EVIL)


def test_a_plan_that_is_agreed_to(visit, plan):
    assert "x-evil" in sent(visit, 303, f"{plan}/yes", accept_risk=EVIL, take=EVIL)
    assert any(one.id == "mine" for one in visit.satchel.library.snapshot().skills)


def test_a_plan_that_is_refused(visit, plan):
    assert sent(visit, 303, f"{plan}/no", accept_risk=EVIL)
