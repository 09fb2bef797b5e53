"""Every engine passes every case: local, DBOS on two databases, Temporal."""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from engine_suite import (
    answers,
    begun,
    cancelling,
    execution,
    outputs,
    races,
    removal,
    reports,
    restarts,
    revisions,
    schedules,
    status,
    substeps,
    versions,
)
from engine_suite import bench as benches
from satchel.goals.engines import temporal_worker
from satchel.goals.engines.dbos import DbosEngine
from satchel.goals.engines.local import LocalEngine
from satchel.goals.engines.temporal import TemporalEngine
from sizes import sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_suite.bench import Bench, Setup

PATIENCE = 28.0
"""Seconds, on a machine that has much else to do; three times that is still below the timeout."""


def local(request: pytest.FixtureRequest, folder: str) -> Setup:
    return benches.Setup(lambda runner: LocalEngine(runner, folder), patience=8)


def dbos_on_sqlite(request: pytest.FixtureRequest, folder: str) -> Setup:
    return _dbos(os.path.join(folder, "goals.db"))


def dbos_on_postgresql(request: pytest.FixtureRequest, folder: str) -> Setup:
    return _dbos(request.getfixturevalue("postgres_server").database())


def _dbos(database: str) -> Setup:
    return benches.Setup(
        lambda runner: DbosEngine(runner, database, poll=0.02),
        lambda: DbosEngine(None, database),
        PATIENCE,
    )


def temporal(request: pytest.FixtureRequest, folder: str) -> Setup:
    outputs = os.path.join(folder, "artefacts")
    where = {"address": request.getfixturevalue("temporal_server").address, "queue": "conformance"}
    patch = pytest.MonkeyPatch()
    patch.setattr(temporal_worker, "HEARTBEAT_INTERVAL_S", 0.1)  # cancellation arrives soon
    request.addfinalizer(patch.undo)
    return benches.Setup(
        lambda runner: TemporalEngine(runner, outputs, **where),
        lambda: TemporalEngine(None, outputs, **where),
        PATIENCE,
    )


SUBJECTS: dict[str, Callable[[pytest.FixtureRequest, str], Setup]] = {
    "local": local,
    "dbos-sqlite": dbos_on_sqlite,
    "dbos-postgresql": dbos_on_postgresql,
    "temporal": temporal,
}


def cases(*modules: Any) -> list[Any]:
    return [
        pytest.param(case, id=name)
        for module in modules
        for name, case in vars(module).items()
        if inspect.iscoroutinefunction(case)
        and case.__module__ == module.__name__
        and not name.startswith("_")
    ]


class Opened(NamedTuple):
    """A bench and the loop that it lives in."""

    loop: asyncio.Runner
    bench: Bench

    def run(self, case: Any) -> None:
        async def run() -> None:
            await self.bench.open()  # a case that failed while it reopened it hurts no other
            await case(self.bench)

        self.loop.run(run())


@pytest.fixture(scope="module")
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    """One engine for all of its cases; each case has goals of its own."""
    folder = str(tmp_path_factory.mktemp(request.param))
    with asyncio.Runner() as loop:
        bench = benches.Bench(SUBJECTS[request.param](request, folder))
        yield Opened(loop, bench)
        loop.run(bench.close())


@pytest.mark.timeout(90)
@pytest.mark.parametrize("opened", SUBJECTS, indirect=True, scope="module")
@pytest.mark.parametrize(
    "case",
    cases(
        execution,
        outputs,
        answers,
        begun,
        cancelling,
        revisions,
        reports,
        status,
        restarts,
        substeps,
        schedules,
    ),
)
def test_the_engine_passes(opened, case):
    opened.run(case)


@pytest.mark.timeout(sized(90, 3600))
@pytest.mark.parametrize("opened", SUBJECTS, indirect=True, scope="module")
@pytest.mark.parametrize("case", cases(races))
def test_changes_race(opened, case):
    opened.run(case)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("opened", [*SUBJECTS][1:], indirect=True, scope="module")
@pytest.mark.parametrize("case", cases(versions))
def test_versions_are_waited_for(opened, case):
    """The engine `local` has no other workers, and refuses goals that want versions."""
    opened.run(case)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("opened", [*SUBJECTS][:-1], indirect=True, scope="module")
@pytest.mark.parametrize("case", cases(removal))
def test_goals_can_be_removed(opened, case):
    """Temporal removes goals by itself."""
    opened.run(case)
