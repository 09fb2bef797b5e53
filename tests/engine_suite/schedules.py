"""Schedules of the engines that have them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from engine_suite.bench import gives, refused, work
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.goals.engines.base import scheduled_goal

if TYPE_CHECKING:
    from engine_suite.bench import Bench

_YEARLY = "0 7 1 1 *"
_DELAY = timedelta(seconds=7)


async def schedules_are_kept(bench: Bench) -> None:
    """A schedule is listed, replaced and removed by any process; `local` says why it has none."""
    goal = bench.goal(work("a"))
    if bench.engine.name == "local":
        with pytest.raises(Refused, match="no process of it runs all the time") as caught:
            await bench.engine.schedule(goal, _YEARLY)
        assert f'{_YEARLY}  satchel goal run PLAN.yaml --id "{goal.id}-$(' in caught.value.hint
        await refused(Refused, bench.engine.schedules())
        await refused(Refused, bench.engine.unschedule(goal.id))
        return

    async def are_listed(*crons: str) -> bool:
        listed = [row for row in await client.schedules() if row.name == goal.id]
        now = datetime.now(UTC).timestamp()
        return [row.cron for row in listed if row.next > now] == list(crons)

    await refused(InvalidInput, bench.engine.schedule(goal, "61 7 * * 1"))
    await refused(InvalidInput, bench.engine.schedule(goal._replace(id="a b"), _YEARLY))
    await refused(InvalidInput, bench.engine.schedule(goal._replace(id="a" * 90), _YEARLY))
    async with bench.another() as client:
        for cron in (_YEARLY, "30 6 * * 1"):
            await client.schedule(goal, cron)
            await bench.until(lambda cron=cron: are_listed(cron))
        await client.unschedule(goal.id)
        await bench.until(are_listed)
        await refused(NotFound, client.unschedule(goal.id))


async def schedule_starts_a_goal_once(bench: Bench) -> None:
    """Each time starts one goal, whose id has the time; its steps run once."""
    if bench.engine.name == "local":
        return  # it refuses schedules
    goal = bench.goal(work("a"))
    moment = datetime.now(UTC).replace(microsecond=0) + _DELAY
    started = scheduled_goal(goal, moment)
    bench.expect(started, a=gives("scheduled"))
    cron = f"{moment.second} {moment.minute} {moment.hour} {moment.day} {moment.month} *"
    # Temporal reads the seconds only together with the year.
    await bench.engine.schedule(goal, f"{cron} *" if bench.engine.name == "temporal" else cron)

    async def is_started() -> bool:
        return started.id in {row.id for row in await bench.engine.list(limit=500)}

    await bench.until(is_started)
    report = await bench.finish(started)
    assert (report.steps["a"].output, report.revision) == ("scheduled", 1)
    assert (await bench.engine.submit(started)).id == started.id
    assert datetime.now(UTC) >= moment
    await bench.engine.unschedule(goal.id)
    await asyncio.sleep(1)
    assert bench.script(started).counts() == {"a": 1}
    ids = [row.id for row in await bench.engine.list(limit=500)]
    assert [one for one in ids if one.startswith(f"{goal.id}-")] == [started.id]
