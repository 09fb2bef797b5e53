"""What happens to a goal on Temporal? The workflow tells what is new; else reports are compared."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

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

    async def next(self) -> tuple[list[StepEvent], bool]:
        """What is new, and whether nothing more comes by itself."""
        found = await self._looker.describe(self._goal)
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
