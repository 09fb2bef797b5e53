"""What a goal took counts every try of it, on every engine; so does its budget."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from satchel.errors import StepFailed
from satchel.goals.engines.dbos import DbosEngine
from satchel.goals.engines.local import LocalEngine
from satchel.goals.engines.temporal import TemporalEngine
from satchel.goals.model import Done, Goal, Plan, Retry, Step, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from satchel.goals.model import Work

pytestmark = pytest.mark.timeout(90)
EACH = Usage(1, 60, 40, 0.5)


class Costly:
    """Each step takes 100 tokens; `b` fails until it is told not to."""

    def __init__(self) -> None:
        self.fails = True

    async def run(self, work: Work) -> Done:
        await asyncio.sleep(0)
        if work.step.id == "b" and self.fails:
            raise StepFailed("not yet", code="NO", retryable=False, usage=EACH)
        return Done(work.step.id, EACH)


@pytest.fixture(params=["local", "folder", "dbos", "temporal"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Opens the engine; a second time it is another process, as far as it knows."""
    runner = Costly()
    queue = f"queue-{uuid4().hex[:12]}"
    memory = LocalEngine(runner)

    @asynccontextmanager
    async def engine() -> AsyncIterator[tuple[Any, Costly]]:
        kind = request.param
        if kind == "local":
            made: Any = memory
        elif kind == "folder":
            made = LocalEngine(runner, str(tmp_path / "goals"))
        elif kind == "dbos":
            made = DbosEngine(runner, str(tmp_path / "goals.db"))
        else:
            server = request.getfixturevalue("temporal_server")
            made = TemporalEngine(runner, address=server.address, queue=queue)
        async with made:
            yield made, runner

    return engine


def goal(**fields: Any) -> Goal:
    steps = (Step("a", prompt="x"), Step("b", prompt="y", needs=("a",)))
    plan = Plan("Count", steps, retry=Retry(attempts=1), **fields)
    return Goal(f"goal-{uuid4().hex[:12]}", plan)


def test_the_total_counts_all_revisions_and_what_is_kept_once(opened: Any):
    async def body() -> None:
        wanted = goal()
        async with opened() as (engine, runner):
            await engine.submit(wanted)
            report = await engine.wait(wanted.id, 30)
            assert report.state == "failed"
            assert report.usage == Usage(2, 120, 80, 1.0)
            begun = await engine.retry(wanted.id)
            assert begun.usage == Usage(2, 120, 80, 1.0)
            report = await engine.wait(wanted.id, 30)
            assert report.usage == Usage(3, 180, 120, 1.5)
            runner.fails = False
            await engine.retry(wanted.id)
            report = await engine.wait(wanted.id, 30)
            assert (report.state, report.revision) == ("done", 3)
            assert report.usage == Usage(4, 240, 160, 2.0)
            assert (await engine.report(wanted.id)).usage == report.usage
            await engine.retry(wanted.id, from_step="a")
            report = await engine.wait(wanted.id, 30)
            assert report.usage == Usage(6, 360, 240, 3.0)
        async with opened() as (engine, _):
            assert (await engine.report(wanted.id)).usage == Usage(6, 360, 240, 3.0)

    asyncio.run(body())
