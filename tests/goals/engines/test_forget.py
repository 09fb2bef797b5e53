"""Removal of goals: memory, files, tables, and concurrent processes.

What every engine must do is in the conformance suite.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from satchel.errors import Conflict, NotFound
from satchel.goals.artifacts import FolderArtifacts, load
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


async def test_a_goal_that_is_being_removed_cannot_be_begun_again(tmp_path):
    """On DBOS the place of the next revision is taken first."""
    async with DbosEngine(Runner(), str(tmp_path / "goals.db")) as engine:
        await engine.submit(Goal("one", PLAN))
        await engine.wait("one", 20)
        runs = engine._reserve("one")  # noqa: SLF001 - as far as it comes before it dies
        assert runs == ["one.1.1", "one.2.1"]
        with pytest.raises(Conflict):
            await engine.retry("one")
        with pytest.raises(Conflict):
            await engine.forget("one")
        # The process that removed it died: it is cancelled, and removed again.
        await engine.cancel("one")
        await engine.forget("one")
        with pytest.raises(NotFound):
            await engine.report("one")
        tables = ("workflow_status", "operation_outputs", "satchel_outputs", "satchel_answers")
        store = DbosTables(str(tmp_path / "goals.db"))
        for table in tables:
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


class Slow(FolderArtifacts):
    """A folder whose disk takes its time."""

    reached, free = asyncio.Event(), asyncio.Event()

    async def forget(self, goal: str) -> None:
        self.reached.set()
        await self.free.wait()
        await super().forget(goal)


async def test_temporal_holds_the_id_of_a_goal_while_it_is_removed(where, goal, tmp_path):
    folder = str(tmp_path / "artefacts")
    place = Slow(folder)
    async with (
        TemporalEngine(Runner(), artifacts=place, **where) as engine,
        TemporalEngine(None, artifacts=place, **where) as other,
    ):
        await engine.submit(goal)
        await engine.wait(goal.id, 20)
        removal = asyncio.create_task(other.forget(goal.id))
        await place.reached.wait()
        with pytest.raises(Conflict, match="is not over: removed"):
            await engine.submit(goal)
        with pytest.raises(Conflict, match="is not over: removed"):
            await engine.forget(goal.id)
        with pytest.raises(NotFound):
            await engine.retry(goal.id)
        place.free.set()
        await removal
        await engine.submit(goal)
        assert (await engine.wait(goal.id, 20)).state == "done"
        assert await outputs(engine, goal.id) == LARGE
        await engine.forget(goal.id)
        assert files(folder) == []


class Full(FolderArtifacts):
    """A folder that fails once."""

    fails = True

    async def forget(self, goal: str) -> None:
        if self.fails:
            self.fails = False
            raise OSError("no")
        await super().forget(goal)


async def test_temporal_goes_on_with_a_removal_that_broke_off(where, goal, tmp_path):
    folder = str(tmp_path / "artefacts")
    async with TemporalEngine(Runner(), artifacts=Full(folder), **where) as engine:
        await engine.submit(goal)
        await engine.wait(goal.id, 20)
        with pytest.raises(OSError, match="no"):
            await engine.forget(goal.id)
        assert files(folder) != []
        with pytest.raises(NotFound):
            await engine.forget(goal.id)
        assert files(folder) == []


async def test_temporal_does_not_begin_again_what_was_ended_by_force(where, goal, tmp_path):
    async with TemporalEngine(None, str(tmp_path), **where) as engine:
        await engine.submit(goal)  # without a worker
        client = await Client.connect(where["address"])
        await client.get_workflow_handle(goal.id).terminate()
        with pytest.raises(Conflict, match="another plan"):
            await engine.submit(goal._replace(plan=PLAN._replace(goal="Something else")))
        assert (await engine.submit(goal)).state != "queued"


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
