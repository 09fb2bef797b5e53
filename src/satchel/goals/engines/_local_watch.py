"""What happens to a goal? As this process hears it, or as its journal tells it from afar."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from satchel.goals.engines._local_goal import AT_REST
from satchel.goals.model import StepEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from satchel.goals.engines._local_goal import Held
    from satchel.goals.engines._local_shelf import Shelf

LOOK = 0.3
"""Seconds between two looks at what other processes do and want."""


async def watch_here(held: Held) -> AsyncIterator[StepEvent]:
    """What happens to a goal of this process, until it runs no more."""
    held.watch()
    seen = 0
    while True:
        changed = held.changed()
        while seen < len(held.events):
            yield held.events[seen]
            seen += 1
        if held.task is None:
            return
        await changed


async def watch_from_afar(shelf: Shelf, goal_id: str) -> AsyncIterator[StepEvent]:
    """The same from the journal of a goal that runs elsewhere, or has ended."""
    told: dict[str, object] = {}
    while True:
        held = shelf.known(goal_id)
        for name, result in held.results.items():
            if told.get(name) != result:
                told[name] = result
                at = result.started + result.seconds
                text = str(result.output) if result.state == "asking" else ""
                yield StepEvent(goal_id, name, result.state, at, text, result)
        if told.get("") != held.state:
            told[""] = held.state
            yield StepEvent(goal_id, "", held.state, time.time(), held.reason)
        if held.state in AT_REST:
            return
        await asyncio.sleep(LOOK)
