"""Steps are done by as few tasks as they need, and by no more at once than allowed."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.goals.model import Step
from satchel.goals.pool import Pool

pytestmark = pytest.mark.timeout(60)  # many examples, and machines that are busy


def done(
    steps: int, most: int, waits: set[int], pause: float = 0.001
) -> tuple[list[str], int, int]:
    """Who ended in which order, how many were at work at once, and how many tasks that took."""
    ended: list[str] = []
    busy = highest = 0

    async def main() -> int:
        over = asyncio.Event()

        async def do(step: Step) -> None:
            nonlocal busy, highest
            busy += 1
            highest = max(highest, busy)
            if int(step.id) in waits:
                await asyncio.sleep(pause)
            busy -= 1
            ended.append(step.id)
            if len(ended) == steps:
                over.set()

        pool = Pool(do, most)
        for n in range(steps):
            pool.add(Step(str(n)))
        await over.wait()
        return len(pool.workers)

    tasks = asyncio.run(main())
    return ended, highest, tasks


def test_work_that_never_waits_is_done_by_one():
    ended, highest, tasks = done(50, 64, set())
    assert ended == [str(n) for n in range(50)]
    assert (highest, tasks) == (1, 1)


def test_others_have_their_turn():
    turns: list[int] = []

    async def main() -> None:
        async def do(step: Step) -> None:
            turns.append(len(turns))

        pool = Pool(do, 1)
        for n in range(1_000):
            pool.add(Step(str(n)))
        await asyncio.sleep(0)
        assert 0 < len(turns) < 1_000
        while len(turns) < 1_000:  # noqa: ASYNC110
            await asyncio.sleep(0)

    asyncio.run(main())


@pytest.mark.parametrize("most", [1, 3, 100])
def test_all_that_wait_wait_at_once_up_to_the_limit(most):
    _, highest, tasks = done(20, most, set(range(20)), pause=0.1)
    assert highest == tasks == min(most, 20)


@given(st.integers(1, 30), st.integers(1, 5), st.sets(st.integers(0, 30)))
def test_whoever_waits_every_step_ends(steps, most, waits):
    ended, highest, _ = done(steps, most, waits)
    assert sorted(ended, key=int) == [str(n) for n in range(steps)]
    assert highest <= most


def test_what_comes_later_is_done_too():
    async def main() -> list[str]:
        ended: list[str] = []

        async def do(step: Step) -> None:
            await asyncio.sleep(0)
            ended.append(step.id)

        pool = Pool(do, 2)
        for name in "abc":
            pool.add(Step(name))
            await asyncio.sleep(0.005)
        return ended

    assert asyncio.run(main()) == ["a", "b", "c"]
