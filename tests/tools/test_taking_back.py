"""A call is taken back by whoever may."""

from __future__ import annotations

import asyncio
import select
import threading
import time

import pytest

from satchel.testing import make_tool_skill
from satchel.tools.taking_back import TakenBack


def is_set(back):
    return bool(select.select([back], [], [], 0)[0])


def test_setting_and_closing_from_two_threads_closes_once():
    wrong = []

    def go(act, start):
        start.wait()
        try:
            act()
        except OSError as exc:
            wrong.append(exc)

    for _ in range(300):
        back, start = TakenBack(), threading.Barrier(2)
        threads = [threading.Thread(target=go, args=(a, start)) for a in (back.set, back.close)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        back.close()
    assert not wrong


def test_it_follows_another_and_not_the_other_way_round():
    host, mine, other = TakenBack(), TakenBack(), TakenBack()
    mine.follow(host)
    other.follow(host)
    mine.set()
    assert not is_set(host)
    assert not is_set(other)
    host.set()
    assert select.select([other], [], [], 2)[0]
    for one in (host, mine, other):
        one.close()
    TakenBack().follow(host)  # closed: nothing to follow


@pytest.mark.parametrize("by", ["task", "host"])
def test_a_host_with_a_cancel_of_its_own_may_cancel_the_task_too(talks, by):
    make_tool_skill(talks.place, "slow", "import time\ntime.sleep(60)\n")
    session = talks.begin(approve=True, sandbox="off")
    cancel = TakenBack()

    async def main():
        task = asyncio.create_task(session.acall("slow_run", {}, cancel=cancel))
        await asyncio.sleep(1.0)
        if by == "host":
            cancel.set()
            return await task
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return None

    started = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - started < 6
    ran = [event for event in session.trace.events if event.kind == "ran"]
    assert ran[-1].values["ended"] == "cancelled"
    cancel.close()
