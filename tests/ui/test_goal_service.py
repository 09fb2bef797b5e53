"""The goal service: opens its engine once, and starts one process per goal."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from satchel.errors import ServerFailed
from satchel.goals.engines.factory import Background, local_folder
from satchel.goals.engines.local import LocalEngine
from satchel.goals.model import Done, Goal, Plan, Retry, Step
from satchel.ui.events import LiveEvents
from satchel.ui.goal_service import GoalService


class Slow:
    """An engine that opens in a thread, which cannot be cancelled."""

    name = "slow"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.opened = self.closed = 0

    async def __aenter__(self):
        await asyncio.to_thread(self.go.wait, 10)
        self.opened += 1
        return self

    async def __aexit__(self, *_):
        self.closed += 1


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("SATCHEL_MODEL", "anthropic:claude-sonnet-5")


@pytest.fixture
def slow(monkeypatch):
    made: list[Slow] = []

    def open_engine(_):
        made.append(Slow())
        return made[-1]

    monkeypatch.setattr("satchel.ui.goal_service.open_engine", open_engine)
    monkeypatch.setattr("satchel.ui.goal_service.ENGINE_TIMEOUT_S", 0.05)
    monkeypatch.setattr("satchel.ui.goal_service.EVENT_MERGE_S", 0.01)
    return made


def test_an_engine_that_opens_slowly_is_opened_once(satchel, slow):
    async def ask() -> None:
        service = GoalService(satchel, LiveEvents(satchel))
        for _ in range(3):
            with pytest.raises(ServerFailed, match="it takes too long"):
                await service.engine()
        slow[0].go.set()
        found = None
        while found is None:
            try:
                found = await service.engine()
            except ServerFailed:
                await asyncio.sleep(0.01)
        assert found is cast("Any", slow[0])
        await service.close()

    asyncio.run(asyncio.wait_for(ask(), 10))
    assert [(one.opened, one.closed) for one in slow] == [(1, 1)]


class Process:
    """A process that runs until `code` is set."""

    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code


class Starts(list[str]):
    """The goals that processes were started for."""

    last: Process


class Fails:
    async def run(self, work):
        if "fail" in work.prompt:
            raise ValueError("no luck")
        return Done("did it")


@pytest.fixture
def starts(visit):
    """The goals that processes were started for; none of them does anything."""
    found = Starts()

    def start(_, goal_id, *__, **___):
        found.append(goal_id)
        found.last = Process()
        return Background(cast("Any", found.last), "", 0)

    visit.client.app.state.goals.start = start
    return found


def begin(visit, *steps: Step):
    async def run():
        async with LocalEngine(Fails(), local_folder(visit.satchel.settings)) as engine:
            await engine.submit(Goal("week", Plan("Reach it", steps, retry=Retry(1, 0.01))))
            return await engine.wait("week")

    return asyncio.run(run())


ASK = Step("ask", "human", prompt="Well?")


def test_three_clicks_start_one_process(visit, starts):
    begin(visit, ASK)
    for _ in range(3):
        assert visit.post("/goals/week/resume").status_code == 303
    assert starts == ["week"]
    for _ in range(3):
        assert visit.post("/goals/week/answer", data={"step": "ask"}).status_code == 303
    assert starts == ["week"]
    # That process ended before it got the answer: the same answer starts another.
    starts.last.code = 8
    assert visit.post("/goals/week/answer", data={"step": "ask"}).status_code == 303
    assert starts == ["week", "week"]


TWO = (ASK, Step("too", "human", prompt="And this?"))


def test_who_lets_tools_write_has_a_process_that_may(visit, starts):
    begin(visit, *TWO)
    visit.post("/goals/week/answer", data={"step": "ask"})
    visit.post("/goals/week/answer", data={"step": "too", "allow": "1"})
    assert starts == ["week", "week"]


def test_a_second_try_of_the_same_is_refused(visit, starts):
    begin(visit, Step("a", prompt="fail"))
    codes = [visit.post("/goals/week/retry", data={}).status_code for _ in range(3)]
    assert codes == [303, 409, 409]
    assert starts == ["week"]


def test_a_goal_whose_engine_is_away_says_so_and_is_loaded_again(project, monkeypatch, request):
    visit = request.getfixturevalue("visit")

    def away(_):
        raise OSError("no database")

    monkeypatch.setattr("satchel.ui.goal_service.open_engine", away)
    answer = visit.get("/goals/week")
    assert answer.status_code == 503
    assert "does not answer: no database" in answer.text
    assert 'href="/goals/week"' in answer.text
    assert answer.headers["refresh"] == answer.headers["retry-after"] == "3"
    assert visit.get("/goals/..%20x").status_code == 404
