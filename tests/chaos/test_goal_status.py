"""The status of goals is true while workers are killed, steps fail, and skills are deployed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from chaos.goal_killing import Forks, Workers
from chaos.goal_truth import Scene, Truth, row_count
from chaos.goal_worker import engine
from postgres import postgres_server
from satchel.goals.model import Goal, Plan, Step
from sizes import sized

if TYPE_CHECKING:
    from pathlib import Path

    from postgres import Postgres

__all__ = ["postgres_server"]
SAMPLES = sized(150, 1_000)
GOALS = sized(20, 50)


@pytest.mark.timeout(sized(120, 600))
def test_no_row_of_a_status_is_untrue(postgres_server: Postgres, tmp_path: Path) -> None:
    database = postgres_server.database()

    async def run() -> Scene:
        with Forks("dbos") as forks, Workers(forks, database, str(tmp_path), 30) as workers:
            async with engine("dbos", database, str(tmp_path)) as client:
                scene = Scene(client, workers, GOALS)
                await scene.run(SAMPLES, worker_count=3, seconds_between_kills=sized(1.5, 4.0))
                return scene

    scene = asyncio.run(run())
    truth = Truth(scene)
    count = sum(row_count(sample.status) for sample in scene.samples)
    untrue = [row for sample in scene.samples for row in truth.untrue_rows(sample)]
    assert untrue == [], f"{len(untrue)} of {count} rows"
    assert any(sample.status.stuck for sample in scene.samples)
    assert any(sample.status.waiting for sample in scene.samples)
    # A status of another moment is found out.
    middle = len(scene.samples) // 2
    shifted = [
        sample._replace(status=other.status)
        for sample, other in zip(scene.samples, scene.samples[middle:], strict=False)
    ]
    assert sum(any(truth.untrue_rows(sample)) for sample in shifted) > len(shifted) / 2


def skilled_goal(name: str, version: str) -> Goal:
    """A goal whose step needs the skill `weekly` in a version."""
    steps = (
        Step("read", prompt="do"),
        Step("report", "skill", skill="weekly", prompt="do", needs=("read",)),
    )
    return Goal(name, Plan("Report", steps), {"skill:weekly": version})


@pytest.mark.timeout(120)
def test_a_skill_is_deployed_worker_by_worker(postgres_server: Postgres, tmp_path: Path) -> None:
    """Workers without the skill, with an older and a newer version: no goal fails for that."""
    database = postgres_server.database()
    new = [f"new{number}" for number in range(6)]
    old = [f"old{number}" for number in range(6)]

    async def run() -> None:
        with Forks("dbos") as forks, Workers(forks, database, str(tmp_path)) as workers:
            async with engine("dbos", database, str(tmp_path)) as client:
                lacking, older = workers.start({}), workers.start({"weekly": "version-1"})
                for name in new:
                    await client.submit(skilled_goal(name, "version-2"))
                while True:
                    status = await client.status()
                    if len(status.waiting) == len(new):
                        break
                    await asyncio.sleep(0.05)
                reasons = {step.reason.partition("@")[0] for step in status.waiting}
                assert reasons <= {f"Worker `{lacking}", f"Worker `{older}"}
                assert {step.step for step in status.waiting} == {"report"}
                assert not status.needs_attention
                newer = workers.start({"weekly": "version-2"})
                for name in old:
                    await client.submit(skilled_goal(name, "version-1"))
                reports = [await client.wait(name, 60) for name in (*old, *new)]
                assert {report.state for report in reports} == {"done"}
                assert {report.steps["report"].attempts for report in reports} == {1}
                status = await client.status()
                assert (status.waiting, status.goals["failed"]) == ((), 0)
                skills = {worker.name.partition("@")[0]: worker.skills for worker in status.workers}
                assert skills == {
                    str(lacking): {},
                    str(older): {"weekly": "version-1"},
                    str(newer): {"weekly": "version-2"},
                }
                ran = {
                    line.goal[:3]: line.process
                    for line in workers.lines()
                    if (line.what, line.step) == ("end", "report")
                }
                assert ran == {"new": newer, "old": older}

    asyncio.run(run())
