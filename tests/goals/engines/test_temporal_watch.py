"""Whoever watches a goal on Temporal hears of new tries, while they are made."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from satchel.errors import StepFailed
from satchel.goals.engines.temporal import TemporalEngine, connect
from satchel.goals.model import Done, Goal, Plan, Retry, Step, StepEvent
from satchel.goals.reports import pack
from temporal_server import temporal_server

if TYPE_CHECKING:
    from satchel.goals.model import Work
    from temporal_server import TemporalServer

__all__ = ["temporal_server"]


class Slow:
    """Takes a moment."""

    async def run(self, work: Work) -> Done:
        await asyncio.sleep(4)
        return Done(work.prompt)


@pytest.mark.timeout(90)
def test_what_a_sign_of_life_says_is_told_once_and_before_the_end(temporal_server: TemporalServer):
    async def body() -> None:
        queue, address = f"queue-{uuid4().hex[:12]}", temporal_server.address
        goal = Goal(f"goal-{uuid4().hex[:12]}", Plan("Try", (Step("a", prompt="x"),)))
        client = await connect(address, "")
        tries = [StepEvent(goal.id, "a", "retrying", float(at), f"try {at}") for at in (1, 2)]

        async def beat() -> None:
            handle = client.get_workflow_handle(goal.id)
            pending = None
            while not pending:
                pending = (await handle.describe()).raw_description.pending_activities
            live = client.get_async_activity_handle(
                workflow_id=goal.id, run_id=None, activity_id=pending[0].activity_id
            )
            await live.heartbeat([pack(tries[0])])
            await asyncio.sleep(0.6)
            await live.heartbeat([pack(one) for one in tries])

        async with TemporalEngine(Slow(), address=address, queue=queue) as engine:
            await engine.submit(goal)
            beating = asyncio.create_task(beat())
            heard = [event async for event in engine.watch(goal.id)]
            await beating
        of_step = [event for event in heard if event.step == "a"]
        assert [event.state for event in of_step] == ["running", "retrying", "retrying", "done"]
        assert of_step[1:3] == tries

    asyncio.run(body())


class Thrice:
    """Succeeds at the third try."""

    async def run(self, work: Work) -> Done:
        await asyncio.sleep(0.01)
        if work.attempt < 3:
            raise StepFailed("BUSY", f"not now ({work.attempt})", retryable=True)
        return Done("at last")


@pytest.mark.timeout(90)
def test_new_tries_are_told_before_the_next_one_begins(temporal_server: TemporalServer):
    async def body() -> None:
        queue = f"queue-{uuid4().hex[:12]}"
        retry = Retry(3, first=3.0, factor=1.0, jitter=0.0)
        goal = Goal(f"goal-{uuid4().hex[:12]}", Plan("Try", (Step("a", prompt="x"),), retry=retry))
        async with TemporalEngine(Thrice(), address=temporal_server.address, queue=queue) as engine:
            await engine.submit(goal)
            heard = [(event, time.time()) async for event in engine.watch(goal.id)]
        states = [event.state for event, _ in heard if event.step == "a"]
        assert states == ["running", "retrying", "retrying", "done"]
        tries = [(event, at) for event, at in heard if event.state == "retrying"]
        assert ["not now (1)" in event.text for event, _ in tries] == [True, False]
        assert all(at - event.at < 2.9 for event, at in tries)

    asyncio.run(body())
