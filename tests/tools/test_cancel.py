"""Cancellation of calls."""

from __future__ import annotations

import asyncio
import threading

import pytest

from satchel.testing import make_tool_skill
from satchel.tools.base import CancelToken


def test_setting_and_closing_from_two_threads_closes_once():
    wrong = []

    def go(act, start):
        start.wait()
        try:
            act()
        except OSError as exc:
            wrong.append(exc)

    for _ in range(300):
        back, start = CancelToken(), threading.Barrier(2)
        threads = [threading.Thread(target=go, args=(a, start)) for a in (back.set, back.close)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        back.close()
    assert not wrong


def test_a_cancelled_task_ends_the_program(talks, tmp_path):
    begun = tmp_path / "begun"
    program = f"import time\nopen({str(begun)!r}, 'w')\ntime.sleep(60)\n"
    make_tool_skill(talks.place, "slow", program)
    session = talks.begin(approve=True, sandbox="off")

    async def main():
        task = asyncio.create_task(session.acall("slow_run", {}))
        while not begun.exists():  # noqa: ASYNC110 - polled by file
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    ran = [event for event in session.trace.events if event.kind == "ran"]
    assert ran[-1].values["ended"] == "cancelled"
