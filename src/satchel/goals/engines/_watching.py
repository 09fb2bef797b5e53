"""Events of a goal from its reports, for engines whose goals run in other processes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from satchel.goals.model import ENDS, StepEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from satchel.goals.model import GoalReport


def news(report: GoalReport, told: dict[str, str]) -> list[StepEvent]:
    """What a report says that is not in `told` (step -> state) yet; it is added there.

    Steps that ended come first, in the order of their ends.
    """
    found: list[StepEvent] = []
    rows = sorted(
        report.steps.values(),
        key=lambda one: (one.state not in ENDS, one.started + one.seconds),
    )
    for result in rows:
        name, state = result.step, result.state
        known = told.get(name, "")
        if state in {"waiting", known} or known in ENDS or (known and state == "running"):
            continue
        told[name] = state
        at = result.started + result.seconds or time.time()
        text = str(result.output) if state == "asking" else ""
        found.append(StepEvent(report.id, name, state, at, text, result))
    if told.get("") != report.state:
        told[""] = report.state
        found.append(StepEvent(report.id, "", report.state, time.time(), report.reason))
    return found


async def watch_reports(
    report: Callable[[], Awaitable[GoalReport]], rest: Collection[str], pause: float
) -> AsyncIterator[StepEvent]:
    """What changes between two reports, until the goal is in one of the states of `rest`."""
    told: dict[str, str] = {}
    while True:
        now = await report()
        for event in news(now, told):
            yield event
        if now.state in rest:
            return
        await asyncio.sleep(pause)
