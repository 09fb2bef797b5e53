"""What only DBOS has: a database, workers that take over, one engine per process, draining.

What every engine must do is in the conformance suite; kills at random are in `chaos`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from ports import free_port
from satchel.errors import InvalidInput, ServerFailed
from satchel.goals import step_runner
from satchel.goals.engines.dbos import DbosEngine
from satchel.goals.engines.dbos_tables import DbosTables, database_url
from satchel.goals.model import Done, Goal, Plan, Step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from postgres import Postgres
    from satchel.goals.model import Work

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def server(postgres_server: Postgres) -> Postgres:
    return postgres_server


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "goals.db")
    return request.getfixturevalue("server").database()


class Runner:
    """Records its steps; waits where configured."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []

    async def run(self, work: Work) -> Done:
        self.begun.append(work.step.id)
        try:
            await asyncio.sleep(self.seconds.get(work.step.id, 0))
        except asyncio.CancelledError:
            self.cancelled.append(work.step.id)
            raise
        self.ended.append(work.step.id)
        return Done(f"{work.goal}/{work.step.id}")


def chain(*steps: str, **more: Any) -> Plan:
    """Steps one after the other."""
    return Plan(
        "One after the other",
        tuple(
            Step(name, prompt="do" if not number else f"{{{{steps.{steps[number - 1]}.output}}}}")
            for number, name in enumerate(steps)
        ),
        **more,
    )


def modes_in(folder: Path) -> dict[str, int]:
    return {one.name: one.stat().st_mode & 0o777 for one in folder.iterdir()}


async def until(ready: Callable[[], Any], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it never happened"
        await asyncio.sleep(0.02)


async def test_a_worker_that_leaves_finishes_its_steps_and_releases_the_rest(database):
    first, second = Runner(b=1.0), Runner()
    async with DbosEngine(first, database) as engine:
        working = asyncio.create_task(engine.work(drain=10))
        await engine.submit(Goal("handed-on", chain("a", "b", "c")))
        await until(lambda: "b" in first.begun)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        report = await engine.report("handed-on")
        assert first.ended == ["a", "b"]
        assert report.state == "queued"
        assert report.steps["b"].state == "done"
    async with DbosEngine(second, database) as engine:
        assert (await engine.wait("handed-on", 10)).state == "done"
    assert first.begun == ["a", "b"]
    assert second.begun == ["c"]


async def test_a_worker_elsewhere_that_lives_keeps_its_goals(tmp_path):
    database = str(tmp_path / "goals.db")
    async with DbosEngine(None, database) as client:
        await client.submit(Goal("theirs", chain("a")))
    _put_with(database, "another-machine", "theirs.1.1", lease=60.0)
    runner = Runner()
    async with DbosEngine(runner, database, lease=0.5) as engine:
        assert (await engine.wait("theirs", 3)).state == "running"
    assert runner.begun == []


def _put_with(database: str, worker: str, workflow: str, lease: float) -> None:
    """Give a run to a worker on another machine, which is silent from then on."""
    store = DbosTables(database)
    try:
        store.execute(
            "UPDATE {in}workflow_status SET status = 'PENDING', executor_id = ?,"
            " owner_xid = 'theirs' WHERE workflow_uuid = ?",
            worker,
            workflow,
        )
        store.execute("UPDATE {in}satchel_begun SET worker = ? WHERE worker <> ''", worker)
        store.renew_lease(worker, lease)
    finally:
        store.close()


async def test_a_run_of_another_worker_begins_no_step_here(tmp_path):
    database = str(tmp_path / "goals.db")
    runner = Runner(a=60)
    async with DbosEngine(runner, database) as engine:
        await engine.submit(Goal("taken", chain("a", "b")))
        await until(lambda: runner.begun)
        await asyncio.to_thread(_put_with, database, "another-machine", "taken.1.1", 60.0)
        await until(lambda: runner.cancelled)
        report = await engine.report("taken")
    assert runner.begun == ["a"]
    assert report.steps["a"].state != "done"  # what it gave was refused: another has the run


async def test_an_invalid_database_is_refused(tmp_path):
    assert database_url("postgres://h/d") == "postgresql://h/d"
    assert database_url(str(tmp_path / "a.db")) == f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(InvalidInput, match="`mysql` is not valid"):
        DbosEngine(None, "mysql://h/d")

    url = f"postgresql://nobody:secret@127.0.0.1:{free_port()}/nothing"
    with pytest.raises(ServerFailed, match="cannot be used") as caught:
        async with DbosEngine(None, url):
            pass
    assert "secret" not in str(caught.value)


async def test_a_process_for_one_goal_leaves_those_of_others_alone(database):
    async with DbosEngine(None, database) as client:
        for name in ("theirs", "mine-2", "Mine"):
            await client.submit(Goal(name, chain("a")))
    runner = Runner()
    async with DbosEngine(runner, database, only="mine") as engine:
        await engine.submit(Goal("mine", chain("a", "b")))
        assert (await engine.wait("mine", 10)).state == "done"
        await asyncio.sleep(0.5)
        for name in ("theirs", "mine-2", "Mine"):
            assert (await engine.report(name)).state == "queued"
    assert runner.begun == ["a", "b"]
    async with DbosEngine(runner, database) as engine:  # a worker does all
        for name in ("theirs", "mine-2", "Mine"):
            assert (await engine.wait(name, 10)).state == "done"


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
async def test_only_the_owner_reads_the_database(tmp_path):
    async with DbosEngine(Runner(), str(tmp_path / "goals.db")) as engine:
        await engine.submit(Goal("secret", chain("a")))
        await engine.wait("secret", 10)
        modes = modes_in(tmp_path)
    assert {"goals.db", "goals.db-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}


async def test_a_step_whose_workers_die_fails_and_can_be_retried(database, monkeypatch):
    monkeypatch.setattr(step_runner, "MAX_WORKER_DEATHS", 2)
    begun: list[list[str]] = []
    for _ in range(2):
        runner = Runner(b=60)
        async with DbosEngine(runner, database, lease=0.3) as engine:
            await engine.submit(Goal("killer", chain("a", "b")))
            await until(lambda: "b" in runner.begun)  # noqa: B023
            await asyncio.to_thread(_put_with, database, "another-machine", "killer.1.1", lease=-1)
        begun.append(runner.begun)
    async with DbosEngine(Runner(), database, lease=0.3) as engine:
        report = await engine.wait("killer", 20)
        assert (report.state, report.steps["a"].state) == ("failed", "done")
        assert report.steps["b"].error.message == "Its worker died 2 times while it ran"
        assert (report.steps["b"].attempts, report.steps["b"].error.code) == (2, "WORKER_LOST")
        assert begun == [["a", "b"], ["b"]]  # `a` is recorded
        await engine.retry("killer")
        assert (await engine.wait("killer", 10)).state == "done"


async def test_unfinished_steps_of_one_process_are_done_by_others(database):
    runner = Runner(a=60)
    async with DbosEngine(None, database, only="mine") as client:  # it does no steps
        await client.submit(Goal("mine", chain("a")))
    async with DbosEngine(runner, database, only="mine"):
        await until(lambda: runner.begun)
    async with DbosEngine(Runner(), database) as engine:
        assert (await engine.wait("mine", 10)).state == "done"


async def test_removed_goals_leave_no_rows(tmp_path):
    async with DbosEngine(Runner(), str(tmp_path / "goals.db")) as engine:
        await engine.submit(Goal("one", chain("a", "b")))
        await engine.wait("one", 20)
        await engine.retry("one", from_step="b")
        await engine.wait("one", 20)
        await engine.forget("one")
        store = DbosTables(str(tmp_path / "goals.db"))
        for table in ("workflow_status", "operation_outputs", "satchel_outputs", "satchel_answers"):
            assert store.rows(f"SELECT count(*) FROM {table}")[0][0] == 0, table
        store.close()


DIES = """
import os, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from satchel.goals.engines.dbos_tables import DbosTables

made = []

@event.listens_for(Engine, "before_cursor_execute")
def die(connection, cursor, statement, *rest):
    if "CREATE TABLE" in statement.upper():
        made.append(statement)
    if len(made) > 3:
        os._exit(9)

DbosTables(sys.argv[1]).prepare()
"""


def test_a_file_whose_first_worker_was_killed_can_be_used(tmp_path):
    database = str(tmp_path / "goals.db")
    command = [sys.executable, "-c", DIES, database]
    assert subprocess.run(command, check=False).returncode == 9
    tables = DbosTables(database)
    tables.prepare()
    assert tables.rows("SELECT count(*) FROM satchel_workers") == [(0,)]
    tables.close()


def test_the_reason_why_a_file_cannot_be_used_is_named(tmp_path):
    file = tmp_path / "goals.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE dbos_migrations (other TEXT)")
    connection.close()
    with pytest.raises(ServerFailed, match="version"):
        DbosTables(str(file)).prepare()


async def test_many_wait_for_goals_and_each_hears_of_its_own(database):
    runner = Runner(slow=60)
    names = [f"goal-{number}" for number in range(30)]
    async with DbosEngine(None, database) as client, DbosEngine(runner, database) as engine:
        await client.submit(Goal("slow", chain("slow")))
        for name in names:
            await client.submit(Goal(name, chain("a")))
        waits = [client.wait(name, 20) for name in [*names, names[0]]]
        slow = asyncio.create_task(client.wait("slow"))
        reports = await asyncio.gather(*waits, client.wait("slow", 0.3))
        assert [report.state for report in reports] == ["done"] * 31 + ["running"]
        await until(lambda: "slow" in runner.begun)
        await engine.cancel("slow")
        assert (await asyncio.wait_for(slow, 10)).state == "cancelled"


async def test_a_worker_has_a_limited_number_of_goals(tmp_path: Path):
    runner = Runner(a=0.3)
    async with DbosEngine(runner, str(tmp_path / "goals.db"), at_once=1) as engine:
        goals = [Goal(f"g{number}", chain("a")) for number in range(3)]
        for goal in goals:
            await engine.submit(goal)
        while len(runner.ended) < len(goals):
            assert len(runner.begun) - len(runner.ended) <= 1
            await asyncio.sleep(0.02)
        assert await engine.health() == ""


async def test_a_goal_with_priority_goes_before_those_that_wait(database):
    runner = Runner(first=0.5)
    goals = [Goal("first", chain("first")), *(Goal(f"later-{n}", chain("a")) for n in range(5))]
    async with DbosEngine(runner, database, at_once=1) as engine:
        await engine.submit(goals[0])
        await until(lambda: runner.begun)
        for goal in goals[1:]:
            await engine.submit(goal)
        await engine.submit(Goal("last", chain("last"), priority=5))
        await engine.submit(Goal("urgent", chain("urgent"), priority=1))
        await engine.wait("last", 20)
    assert runner.begun == ["first", "urgent", "a", "a", "a", "a", "a", "last"]


async def test_projects_with_databases_of_their_own_share_nothing(server):
    runners = Runner(), Runner()
    databases = [server.database() for _ in runners]
    async with (
        DbosEngine(runners[0], databases[0]) as one,
        DbosEngine(None, databases[1]) as other,
    ):
        await other.submit(Goal("same", chain("theirs")))
        await one.submit(Goal("same", chain("ours")))
        assert (await one.wait("same", 20)).state == "done"
        assert [goal.state for goal in await one.list()] == ["done"]
        assert [goal.state for goal in await other.list()] == ["queued"]
        await other.cancel("same")
        assert (await one.report("same")).state == "done"
    assert runners[0].begun == ["ours"]


def copy_goal(path: str, goal: str, count: int) -> None:
    """Copy the rows of a goal, as if it had run `count` times more."""
    keys = {"workflow_status": "workflow_uuid", "workflow_input": "workflow_uuid",
            "workflow_output": "workflow_uuid", "operation_outputs": "workflow_uuid"}  # fmt: skip
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        for table, key in keys.items():
            columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
            values = [
                f"replace({name}, '{goal}', '{goal}-' || n)" if name in {key, "inputs"} else name
                for name in columns
            ]
            file.execute(
                f"WITH copies(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copies WHERE n < {count})"
                f" INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)}"
                f" FROM {table}, copies WHERE {key} LIKE '{goal}.%'"
            )


async def test_lists_and_the_status_do_not_read_all_ended_goals(tmp_path):
    path = str(tmp_path / "goals.db")

    async def seconds(**which: Any) -> float:
        began = time.perf_counter()
        await engine.list(limit=20, **which)
        return time.perf_counter() - began

    async with DbosEngine(Runner(), path) as engine:
        await engine.submit(Goal("old", chain("a", "b")))
        await engine.wait("old", 20)
        copy_goal(path, "old", 20_000)
        await engine.submit(Goal("open", Plan("Ask", (Step("ask", "human", prompt="?"),))))
        await engine.wait("open", 20)
        assert [goal.id for goal in await engine.list(states=("asking",))] == ["open"]
        assert (await engine.status()).ended == 20_001
        all_goals = await seconds()
        assert await seconds(states=("asking",)) < all_goals * 3
        assert await seconds(states=("queued", "running")) < all_goals * 3
        assert await seconds(states=("done",), before=time.time() + 1) < all_goals * 5


def test_one_process_takes_over_a_dead_worker(database):
    store = DbosTables(database)
    store.prepare()
    store.renew_lease("dead", -1.0)
    claims = [store.claim_worker("dead", store.workers()["dead"], 5.0) for _ in range(3)]
    store.close()
    assert claims == [True, False, False]
