"""Cost of empty steps on an engine, with and without goals; one contender per process.

    python benchmarks/goal_contenders.py NAME '{"goals": 200, "steps": 10, "where": "…"}'

Run by `goal_overhead.py`. Connecting, launching and a first small goal are not timed; timed is from
the first submission until every result is known here. It prints `{"wall": …, "cpu": …}`.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src"))

from satchel.goals.model import Done, Goal, Plan, Step

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from satchel.goals.engines.base import Engine
    from satchel.goals.model import Work

Wires = list[tuple[str, list[str]]]
"""Step -> what it waits for."""
AT_ONCE = 100
POLL = 0.1


def wires(steps: int) -> Wires:
    """Up to ten steps: one, then all others at once, then one. More: all of them at once."""
    if steps > 10:
        return [(f"s{n}", []) for n in range(steps)]
    middle = [f"s{n}" for n in range(1, steps - 1)]
    return [("s0", []), *((name, ["s0"]) for name in middle), (f"s{steps - 1}", middle)]


def plan(shape: Wires) -> Plan:
    """The same as a plan of ours."""
    steps = tuple(Step(name, prompt="Do it", needs=tuple(needs)) for name, needs in shape)
    return Plan("Measure", steps, parallel=len(steps))


class Empty:
    """Work that takes no time, or a known one."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    async def run(self, work: Work) -> Done:
        """Do nothing."""
        if self._seconds:
            await asyncio.sleep(self._seconds)
        return Done(work.step.id)


async def empty(name: str) -> str:
    """The same for the bare engines."""
    return name


async def timed(run: Callable[[int, Wires], Awaitable[int]], given: dict[str, Any]) -> None:
    """Once to warm up, then in earnest; every result is counted."""
    if given.get("warm", True):
        await run(2, wires(10))
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(given.get("repeats", 1)):
        clock, cpu = time.perf_counter(), time.process_time()
        done = await run(given["goals"], wires(given["steps"]))
        walls.append(time.perf_counter() - clock)
        cpus.append(time.process_time() - cpu)
        if done != given["goals"] * given["steps"]:
            raise RuntimeError(f"{done} results instead of {given['goals'] * given['steps']}")
    print(json.dumps({"wall": statistics.median(walls), "cpu": statistics.median(cpus)}))


async def ours(opened: AbstractAsyncContextManager[Engine], given: dict[str, Any]) -> None:
    """Any engine of ours, through what a user calls."""
    async with opened as engine:

        async def one(shape: Wires) -> int:
            goal = Goal(f"bench-{os.urandom(6).hex()}", plan(shape))
            await engine.submit(goal)
            report = await engine.wait(goal.id)
            return sum(result.output == name for name, result in report.steps.items())

        async def run(goals: int, shape: Wires) -> int:
            return sum(await asyncio.gather(*(one(shape) for _ in range(goals))))

        await timed(run, given)


async def bare_dbos(given: dict[str, Any]) -> None:
    """One workflow per goal with steps inside, through a queue, as our engine has it."""
    import dbos

    dbos.DBOS(
        config={
            "name": "bare",
            "system_database_url": given["where"],
            "serializer": dbos.DBOSPortableJSONSerializer(),
            "application_version": "1",
            "max_executor_threads": 16 if given["where"].startswith("sqlite") else 32,
            "log_level": "WARNING",
        }
    )
    ended = 0
    all_ended = asyncio.Event()
    expected = 0

    @dbos.DBOS.step(name="empty")
    async def step(name: str) -> str:
        return await empty(name)

    @dbos.DBOS.workflow(name="goal")
    async def workflow(shape: Wires) -> list[str]:
        nonlocal ended
        waves: dict[int, list[str]] = {}
        depth: dict[str, int] = {}
        for name, needs in shape:
            depth[name] = 1 + max((depth[need] for need in needs), default=0)
            waves.setdefault(depth[name], []).append(name)
        results: list[str] = []
        for names in waves.values():
            results += await asyncio.gather(*(step(name) for name in names))
        ended += 1
        if ended == expected:
            all_ended.set()
        return results

    dbos.DBOS.launch()
    queue = await dbos.DBOS.register_queue_async(
        "goals", worker_concurrency=AT_ONCE, polling_interval_sec=POLL
    )

    async def run(goals: int, shape: Wires) -> int:
        nonlocal ended, expected
        ended, expected = 0, goals
        all_ended.clear()
        handles = await asyncio.gather(
            *(queue.enqueue_async(workflow, shape) for _ in range(goals))
        )
        # The database is queried only when there is a result: the best possible case.
        await all_ended.wait()
        found = await asyncio.gather(
            *(one.get_result(polling_interval_sec=0.02) for one in handles)
        )
        return sum(len(names) for names in found)

    await timed(run, given)
    dbos.DBOS.destroy()


async def bare_temporal(given: dict[str, Any]) -> None:
    """One workflow per goal, one activity per step. `tuned`: a worker with our engine's options."""
    import goal_temporal
    from temporalio.client import Client
    from temporalio.worker import UnsandboxedWorkflowRunner, Worker

    client = await Client.connect(given["where"])
    queue = f"bare-{os.urandom(6).hex()}"
    options: dict[str, Any] = {}
    if given.get("tuned"):
        options = {
            "workflow_runner": UnsandboxedWorkflowRunner(),
            "max_eager_activity_reservations_per_workflow_task": 16,
            "max_concurrent_activities": AT_ONCE,
            "sticky_queue_schedule_to_start_timeout": timedelta(seconds=5),
        }
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[goal_temporal.Bare],
        activities=[goal_temporal.step],
        **options,
    )

    async def one(shape: Wires) -> int:
        names: Any = await client.execute_workflow(
            "bare", shape, id=f"bare-{os.urandom(8).hex()}", task_queue=queue, result_type=list
        )
        return len(names)

    async def run(goals: int, shape: Wires) -> int:
        return sum(await asyncio.gather(*(one(shape) for _ in range(goals))))

    async with worker:
        await timed(run, given)


async def our_local(given: dict[str, Any]) -> None:
    """In a temporary folder."""
    from satchel.goals.engines.local import LocalEngine

    await ours(LocalEngine(Empty(given.get("seconds", 0.0))), given)


async def our_dbos(given: dict[str, Any]) -> None:
    """On either database."""
    from satchel.goals.engines.dbos import DbosEngine

    await ours(DbosEngine(Empty(), given["where"], at_once=AT_ONCE, poll=POLL), given)


async def our_temporal(given: dict[str, Any]) -> None:
    """On a server."""
    from satchel.goals.engines.temporal import TemporalEngine

    queue = f"ours-{os.urandom(6).hex()}"
    await ours(TemporalEngine(Empty(), address=given["where"], queue=queue, at_once=AT_ONCE), given)


async def client_of_dbos(given: dict[str, Any]) -> None:
    """Only submits and waits: workers are elsewhere."""
    from satchel.goals.engines.dbos import DbosEngine

    await ours(DbosEngine(None, given["where"]), given)


async def worker_of_dbos(given: dict[str, Any]) -> None:
    """Works until it is killed."""
    from satchel.goals.engines.dbos import DbosEngine

    async with DbosEngine(Empty(given["seconds"]), given["where"], at_once=AT_ONCE) as engine:
        print("ready", flush=True)
        await engine.work()


CONTENDERS: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
    "local": our_local,
    "bare dbos": bare_dbos,
    "dbos": our_dbos,
    "bare temporal": bare_temporal,
    "temporal": our_temporal,
    "dbos client": client_of_dbos,
    "dbos worker": worker_of_dbos,
}


async def main(name: str, given: str) -> None:
    """Run one contender."""
    await CONTENDERS[name](json.loads(given))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
