"""Goals survive their workers: a short form of `benchmarks/goal_crashes.py`."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from chaos.goal_killing import (
    Forks,
    Line,
    Trial,
    Workers,
    cut_off,
    freeze,
    kill_often,
    kill_one_of_two,
    recoveries,
)
from postgres import postgres_server
from sizes import sized

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from chaos.goal_killing import Verdict
    from postgres import Postgres

__all__ = ["postgres_server"]
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("dbos") as ready:
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


@pytest.mark.parametrize("where", sized(["sqlite"], ["sqlite", "postgresql"]))
def test_a_worker_that_is_killed_again_and_again(
    forks: Forks, where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        database = (
            os.path.join(folder, "goals.db")
            if where == "sqlite"
            else request.getfixturevalue("postgres_server").database()
        )
        verdict = tried(forks, folder, database, 16, lambda trial: kill_often(trial, 3))
        assert verdict.unharmed, verdict
        if verdict.tries > verdict.steps:
            assert verdict.recoveries
            return
    pytest.fail("no kill of nine hit a step")


def test_one_of_two_workers_is_killed(
    forks: Forks, postgres_server: Postgres, tmp_path: Path
) -> None:
    verdict = tried(
        forks, tmp_path, postgres_server.database(), 24, lambda trial: kill_one_of_two(trial, 1)
    )
    assert verdict.unharmed, verdict


def test_a_frozen_worker_wakes_when_others_have_its_goals(
    forks: Forks, postgres_server: Postgres, tmp_path: Path
) -> None:
    verdict = tried(
        forks, tmp_path, postgres_server.database(), 40, lambda trial: freeze(trial, 1, 7.5)
    )
    assert verdict.unharmed, verdict


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


def test_the_judge_sees_what_it_is_for() -> None:
    """A check that never fails proves nothing."""

    class Found:
        state = "done"

        def __init__(self, output: str) -> None:
            self.output = output
            self.steps = {"s0": self}

    class Told:
        killed = ((2.5, 7),)

        def __init__(self, *lines: Line) -> None:
            self._lines = list(lines)

        def lines(self) -> list[Line]:
            return self._lines

    def judged(output: str, *lines: Line, recorded: str = "") -> Verdict:
        trial = Trial(Told(*lines), 1)  # type: ignore[arg-type]
        if recorded:
            trial.recorded["g", "s0"] = recorded
        return trial.judge({"g": Found(output)})

    first = (Line(1, "begin", "g", "s0", "7-1"), Line(2, "end", "g", "s0", "7-1"))
    again = (Line(3, "begin", "g", "s0", "8-1"), Line(4, "end", "g", "s0", "8-1"))
    assert judged("g/s0#7-1", *first).unharmed
    assert judged("g/s0#8-1", *first, *again).unharmed  # the first was never recorded
    assert judged("g/s0#7-1", *first, *again).rerun == 1
    assert judged("g/s0#8-1", *first, *again, recorded="g/s0#7-1").replaced == 1
    assert judged("g/s1#7-1", *first).swapped == 1
    assert judged("g/s0#7-1", *first, Line(1, "swapped", "g", "s0", "7-1")).swapped == 1
    assert recoveries([*first, *again], [(2.5, 7)]) == [0.5]
