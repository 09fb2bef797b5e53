"""Goals survive their workers: a short form of `benchmarks/goal_crashes.py`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from chaos.goal_killing import Forks, Trial, Workers, cut_off, freeze, kill_often, poison
from chaos.goal_worker import engine
from postgres import postgres_server
from sizes import sized

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from chaos.goal_killing import Verdict
    from postgres import Postgres
    from satchel.goals.model import GoalReport

__all__ = ["postgres_server"]
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def forks(request: pytest.FixtureRequest) -> Iterator[Forks]:
    with Forks(getattr(request, "param", "dbos")) as ready:
        yield ready


def tried(
    forks: Forks, folder: Path, database: str, goals: int,
    ill: Callable[[Trial], Awaitable[object]],
) -> Verdict:  # fmt: skip
    async def scene() -> Verdict:
        with Workers(forks, database, str(folder)) as workers:
            async with Trial(workers, goals) as trial:
                await ill(trial)
                return await trial.finish(60)

    return asyncio.run(scene())


@pytest.mark.parametrize(
    ("forks", "where"),
    [("local", "file"), ("dbos", "file"), *sized([], [("dbos", "server")])],
    indirect=["forks"],
)
def test_a_worker_that_is_killed_again_and_again(
    forks: Forks, where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        database = str(folder / "goals.db")
        if where == "server":
            database = request.getfixturevalue("postgres_server").database()
        verdict = tried(forks, folder, database, 16, lambda trial: kill_often(trial, 3))
        assert verdict.unharmed, verdict
        if verdict.tries > verdict.steps:
            return
    pytest.fail("no kill of nine hit a step")


def test_a_frozen_worker_wakes_when_others_have_its_goals(
    forks: Forks, postgres_server: Postgres, tmp_path: Path
) -> None:
    verdict = tried(
        forks, tmp_path, postgres_server.database(), 40, lambda trial: freeze(trial, 1, 7.5)
    )
    assert verdict.unharmed, verdict


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_a_step_that_kills_its_workers_fails_alone(
    forks: Forks, postgres_server: Postgres, tmp_path: Path
) -> None:
    database = postgres_server.database()

    async def scene() -> tuple[GoalReport, list[GoalReport], int]:
        with Workers(forks, database, str(tmp_path), 30) as workers:
            async with engine("dbos", database, str(tmp_path)) as client:
                return await poison(client, workers, 20)

    report, innocents, died = asyncio.run(scene())
    assert (report.steps["die"].error.code, report.steps["die"].attempts) == ("WORKER_LOST", died)
    assert {innocent.state for innocent in innocents} == {"done"}


@pytest.mark.soak
def test_the_database_is_restarted_in_the_middle(
    forks: Forks, postgres_server: Postgres, tmp_path: Path
) -> None:
    database = postgres_server.database()
    verdict = tried(
        forks,
        tmp_path,
        database,
        24,
        lambda trial: cut_off(trial, lambda _: postgres_server.restart(away=0.5, kill=True), 1),
    )
    assert verdict.unharmed, verdict
    assert verdict.tries == verdict.steps  # no worker died, so no step ran twice
