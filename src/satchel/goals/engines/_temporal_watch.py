"""What happens to a goal on Temporal? The workflow tells what is new; else reports are compared.

That a step is tried again only its worker knows: it says so with its signs of life, which the
server shows as long as the step runs. A step that ends sooner says it in its notes alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from satchel._optional import require
from satchel.goals.engines import _temporal_wire as wire
from satchel.goals.model import ENDS, OVER, StepEvent
from satchel.goals.reports import unpack

try:
    from temporalio.client import WorkflowExecutionStatus
except ImportError:
    require("temporalio", "temporal")
    raise

if TYPE_CHECKING:
    from temporalio.client import WorkflowExecutionDescription

    from satchel.goals.engines._temporal_look import Looker
    from satchel.goals.model import GoalReport, StepResult

AT_REST: frozenset[str] = OVER | {"asking"}
"""States in which nothing happens by itself."""


class Watched:
    """One goal, and what was told of it already."""

    def __init__(self, looker: Looker, goal_id: str) -> None:
        self._looker = looker
        self._goal = goal_id
        self._run = ""
        self._after = 0
        self._told: dict[str, set[str]] = {"": set()}
        """Step -> its states that were told; the goal's own under the empty name."""
        self._tries: set[tuple[str, float]] = set()
        """New tries that were told: of which step, and when."""

    async def next(self) -> tuple[list[StepEvent], bool]:
        """What is new, and whether nothing more comes by itself."""
        found = await self._looker.describe(self._goal)
        tries = await self._new_tries(found)
        events, rest = await self._others(found)
        return _merged(events, tries), rest

    async def _new_tries(self, found: WorkflowExecutionDescription) -> list[StepEvent]:
        """What workers say of steps that they try again."""
        events: list[StepEvent] = []
        for pending in found.raw_description.pending_activities:
            payloads = pending.heartbeat_details.payloads
            for said in await found.data_converter.decode(payloads) if payloads else ():
                for packed in cast("list[Any]", said) if isinstance(said, list) else ():
                    event = unpack(StepEvent, packed)
                    if (event.step, event.at) not in self._tries:
                        self._tries.add((event.step, event.at))
                        events.append(event)
        return events

    async def _others(self, found: WorkflowExecutionDescription) -> tuple[list[StepEvent], bool]:
        if found.status == WorkflowExecutionStatus.RUNNING and found.history_length > 2:
            events: list[StepEvent] = []
            if found.run_id != self._run:
                self._run, self._after = found.run_id, 0
                if self._told[""] & AT_REST:
                    self._told = {"": set()}  # another revision
                task = await self._looker.task(self._goal, found.run_id)
                for result in task.known.values():
                    events += self._told_by(result)
            said = await self._looker.ask(self._goal, self._run, wire.EVENTS, self._after)
            if said is not None:
                self._after += len(said["events"])
                for packed in said["events"]:
                    event = unpack(StepEvent, packed)
                    if self._is_new(event.step, event.state):
                        events.append(event)
                rest = not said["more"] and said["state"] in AT_REST
                if rest and self._is_new("", said["state"]):
                    events.append(StepEvent(self._goal, "", said["state"], time.time()))
                return events, rest
        report = (await self._looker.look(self._goal)).report
        return self._compared(report), report.state in AT_REST

    def _is_new(self, name: str, state: str) -> bool:
        told = self._told.setdefault(name, set())
        new = state not in told
        told.add(state)
        return new

    def _compared(self, report: GoalReport) -> list[StepEvent]:
        """What a report says that was not told yet."""
        events: list[StepEvent] = []
        if self._is_new("", "running"):
            events.append(StepEvent(self._goal, "", "running", report.started))
        for result in report.steps.values():
            events += self._told_by(result)
        if self._is_new("", report.state):
            events.append(StepEvent(self._goal, "", report.state, time.time(), report.reason))
        return events

    def _told_by(self, result: StepResult) -> list[StepEvent]:
        """A step's state, with the beginning that was missed."""
        name, state = result.step, result.state
        events: list[StepEvent] = []
        began = state == "running" or result.attempts > 0
        if began and self._is_new(name, "running"):
            events.append(StepEvent(self._goal, name, "running", result.started))
        if state == "asking" and self._is_new(name, state):
            text = str(result.output or "")
            events.append(StepEvent(self._goal, name, state, result.started, text))
        if state in ENDS and self._is_new(name, state):
            at = result.started + result.seconds
            events.append(StepEvent(self._goal, name, state, at, "", result))
        return events


def _merged(events: list[StepEvent], tries: list[StepEvent]) -> list[StepEvent]:
    """All in one row: the new tries of a step come before its end."""
    if not tries:
        return events
    merged: list[StepEvent] = []
    for event in events:
        if event.state in ENDS:
            merged += [one for one in tries if one.step == event.step]
            tries = [one for one in tries if one.step != event.step]
        merged.append(event)
    return merged + tries
