"""Removal of goals: memory, files, tables, and concurrent processes.

What every engine must do is in the conformance suite.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from satchel.errors import Conflict, NotFound
from satchel.goals.artifacts import load
from satchel.goals.engines.dbos import DbosEngine
from satchel.goals.engines.dbos_tables import DbosTables
from satchel.goals.engines.local import LocalEngine
from satchel.goals.engines.local_journal import Journal
from satchel.goals.engines.temporal import TemporalEngine
from satchel.goals.model import Done, Goal, Plan, Step

if TYPE_CHECKING:
    from satchel.goals.model import Work
    from temporal_server import TemporalServer

pytestmark = pytest.mark.timeout(60)
LARGE = "x" * 100_000
PLAN = Plan("g", (Step("a", prompt="x"), Step("b", prompt="{{steps.a.output}}")))


class Runner:
    async def run(self, work: Work) -> Done:
        return Done(LARGE)


@pytest.fixture
def where(temporal_server: TemporalServer) -> dict[str, Any]:
    """How Temporal is reached, with a queue of the test's own."""
    return {"address": temporal_server.address, "queue": f"queue-{uuid4().hex[:12]}"}


@pytest.fixture
def goal() -> Goal:
    return Goal(f"goal-{uuid4().hex[:12]}", PLAN)


def files(folder: str) -> list[str]:
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]


def test_who_waits_for_the_lock_of_a_goal_that_is_removed_gets_a_new_one(tmp_path):
    folder = str(tmp_path / "goal")
    mine = Journal(folder)
    assert mine.lock()
    mine.begin(Goal("goal", PLAN), 1.0)
    other, third = Journal(folder), Journal(folder)
    taken: list[bool] = []
    waiting = threading.Thread(target=lambda: taken.append(other.lock(5)))
    waiting.start()
    waiting.join(0.2)
    mine.remove()
    waiting.join()
    assert taken == [True]
    assert not third.lock(0)  # one lock, and not a file that is gone
    assert other.submitted_at() is None
    other.unlock()


async def test_a_goal_that_another_process_runs_is_not_removed(tmp_path):
    folder = str(tmp_path / "state")
    async with LocalEngine(Runner(), folder) as engine:
        await engine.submit(Goal("one", PLAN))
        await engine.wait("one")
        other = Journal(os.path.join(folder, "goals", "one"))
        assert other.lock()
        try:
            with pytest.raises(Conflict):
                await engine.forget("one")
        finally:
            other.unlock()
        await engine.forget("one")
        for name in ("one", "", "..", "../goals"):
            with pytest.raises(NotFound):
                await engine.forget(name)


async def test_nothing_is_left_in_the_tables(tmp_path):
    async with DbosEngine(Runner(), str(tmp_path / "goals.db")) as engine:
        await engine.submit(Goal("one", PLAN))
        await engine.wait("one", 20)
        await engine.retry("one", from_step="b")
        await engine.wait("one", 20)
        await engine.forget("one")
        store = DbosTables(str(tmp_path / "goals.db"))
        for table in ("workflow_status", "operation_outputs", "satchel_outputs", "satchel_answers"):
            assert store.rows(f"SELECT count(*) FROM {table}")[0][0] == 0, table
        store.close()


async def test_temporal_frees_the_id_before_the_server_has_removed_the_runs(where, goal, tmp_path):
    folder = str(tmp_path / "artefacts")
    async with TemporalEngine(Runner(), folder, **where) as engine:
        await engine.submit(goal)
        await engine.wait(goal.id, 20)
        assert files(folder)
        await engine.forget(goal.id)
        assert files(folder) == []
        assert await engine.list() == []
        async with TemporalEngine(**where) as other:
            assert await other.list() == []
            reports = [await other.submit(goal), await engine.submit(goal)]
            assert {one.id for one in reports} == {goal.id}
            assert (await engine.wait(goal.id, 20)).state == "done"
            assert [one.id for one in await other.list()] == [goal.id]


async def outputs(engine: TemporalEngine, goal_id: str) -> Any:
    return await load((await engine.report(goal_id)).steps["a"].output, engine.artifacts)


async def test_goals_of_another_namespace_keep_their_outputs(where, goal, tmp_path):
    folder = str(tmp_path / "artefacts")
    async with (
        TemporalEngine(Runner(), folder, **where) as engine,
        TemporalEngine(Runner(), folder, namespace="staging", **where) as staging,
    ):
        for one in (engine, staging):
            await one.submit(goal)
            assert (await one.wait(goal.id, 20)).state == "done"
        assert sorted(name.rpartition("-")[0] for name in os.listdir(folder)) == [
            "default", "staging",
        ]  # fmt: skip
        await staging.forget(goal.id)
        assert await outputs(engine, goal.id) == LARGE
        await engine.forget(goal.id)
        assert files(folder) == []
