"""Every engine does what the suite asks: local, with a folder, DBOS on two databases, Temporal."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest

from postgres import NoPostgres, Postgres
from satchel.goals.engines.dbos import DbosEngine
from satchel.goals.engines.local import LocalEngine
from satchel.goals.engines.temporal import TemporalEngine
from satchel.testing.engine_suite import CASES, Bench, Setup, run_case
from temporal_server import TemporalServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from satchel.testing.engine_suite import Case, Trait

EVERYTHING: frozenset[Trait] = frozenset(("keeps", "shares", "goes-on"))
PATIENCE = 28.0
"""Seconds, on a machine that has much else to do; three times that is still below the timeout."""


def local(services: ExitStack, folder: str) -> Setup:
    return Setup(LocalEngine, patience=8)


def local_with_a_folder(services: ExitStack, folder: str) -> Setup:
    return Setup(lambda runner: LocalEngine(runner, folder), EVERYTHING, patience=8)


def dbos_on_sqlite(services: ExitStack, folder: str) -> Setup:
    return _dbos(os.path.join(folder, "goals.db"))


def dbos_on_postgresql(services: ExitStack, folder: str) -> Setup:
    try:
        server = services.enter_context(Postgres(fsync=False))
    except NoPostgres as exc:
        pytest.skip(str(exc))
    return _dbos(server.database())


def _dbos(database: str) -> Setup:
    return Setup(
        lambda runner: DbosEngine(runner, database),
        EVERYTHING,
        lambda: DbosEngine(None, database),
        PATIENCE,
    )


def temporal(services: ExitStack, folder: str) -> Setup:
    server = services.enter_context(TemporalServer(folder))
    outputs = os.path.join(folder, "artefacts")
    return Setup(
        lambda runner: TemporalEngine(runner, outputs, address=server.address),
        EVERYTHING,
        lambda: TemporalEngine(None, outputs, address=server.address),
        PATIENCE,
    )


SUBJECTS: dict[str, Callable[[ExitStack, str], Setup]] = {
    "local": local,
    "local-folder": local_with_a_folder,
    "dbos-sqlite": dbos_on_sqlite,
    "dbos-postgresql": dbos_on_postgresql,
    "temporal": temporal,
}


class Opened(NamedTuple):
    """A bench and the loop that it lives in."""

    loop: asyncio.Runner
    bench: Bench

    def run(self, case: Case) -> None:
        async def run() -> None:
            await self.bench.open()  # a case that failed while it reopened it hurts nobody else
            await run_case(case, self.bench)

        self.loop.run(run())


@pytest.fixture(scope="module")
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    """One engine for all of its cases; each case has goals of its own."""
    folder = str(tmp_path_factory.mktemp(request.param))
    with ExitStack() as services, asyncio.Runner() as loop:
        bench = Bench(SUBJECTS[request.param](services, folder))
        yield Opened(loop, bench)
        loop.run(bench.close())


PLAIN = [case for case in CASES if not case.needs]
KEPT = [case for case in CASES if case.needs]
"""Not for `local` in memory, which keeps nothing and shares it with nobody."""


@pytest.mark.timeout(90)
@pytest.mark.parametrize("opened", SUBJECTS, indirect=True, scope="module")
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_the_engine_does_what_it_must(opened: Opened, case: Case):
    opened.run(case)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("opened", [*SUBJECTS][1:], indirect=True, scope="module")
@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_the_engine_keeps_what_it_has(opened: Opened, case: Case):
    assert case.needs <= opened.bench.setup.traits
    opened.run(case)
