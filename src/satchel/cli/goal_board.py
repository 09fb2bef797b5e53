"""How do the steps of a goal stand right now? Believes reports and events; the views show it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.cli.goal_words import step_rows, told_note, told_unbegun
from satchel.goals.drawing.words import MARKS
from satchel.goals.model import StepResult

if TYPE_CHECKING:
    from satchel.cli.output import Screen
    from satchel.goals.model import GoalReport, Plan, StepEvent

_PATIENCE = 10.0
"""Seconds until somebody who waits is told that nobody has begun."""


class Board:
    """What is known about the steps of a goal right now."""

    def __init__(self, plan: Plan, since: float = 0.0) -> None:
        """Nothing is known yet.

        Args:
            plan: What is done.
            since: When looking began: engines tell the past too, which a report knows better.
        """
        self.plan = plan
        self._since = since
        self._looked = time.monotonic()
        self._report: GoalReport | None = None
        self._unbegun: str | None = None
        self.results = {step.id: StepResult(step.id, "waiting") for step in plan.steps}
        self.notes: dict[str, str] = {}
        """Step id -> what is going on, such as a new try."""
        self.people = {step.id for step in plan.steps if step.action_type == "human"}
        """The steps that people do."""

    def take(self, report: GoalReport) -> None:
        """Believe a report."""
        self.plan = report.plan
        self.people = {step.id for step in report.plan.steps if step.action_type == "human"}
        self.results.update(report.steps)
        self._report = report if report.state == "queued" and report.engine != "local" else None

    @property
    def unbegun(self) -> str:
        """What to do about a goal that nobody began for so long; empty when all is well."""
        if self._report is None or time.monotonic() - self._looked < _PATIENCE:
            return ""
        if self._unbegun is None:
            self._unbegun = told_unbegun(self._report)
        return self._unbegun

    def tell(self, event: StepEvent) -> bool:
        """Believe an event; whether it said something new."""
        report = self._report
        if report is not None and event.state == "running" and event.at >= self._since:
            # Temporal's goals run from the beginning; that somebody is there, their steps say.
            self._report = report if not event.step and report.engine == "temporal" else None
        if event.step not in self.results or event.at < self._since:
            return False
        before = self.results[event.step]
        if event.state == "retrying":
            note = told_note(event.text) or say("once more")
            new = self.notes.get(event.step) != note
            self.notes[event.step] = note
            return new
        if event.result is not None and event.result.state == event.state:
            found = event.result
        elif event.state in MARKS:
            started = before.started or event.at
            found = before._replace(state=event.state, started=started)
        else:
            return False
        self.results[event.step] = found
        if found.state != "running":
            self.notes.pop(event.step, None)
        return found.state != before.state

    @property
    def running(self) -> list[str]:
        """Ids of the steps that are at work."""
        return [name for name, result in self.results.items() if result.state == "running"]


def all_rows(screen: Screen, board: Board, most: int) -> list[str]:
    """The rows of a board in at most `most` lines; the steps that say least are left out."""
    from satchel.goals.wiring import order

    steps = order(board.plan)
    if len(steps) > most:
        first = {"asking": 0, "failed": 0, "running": 1}
        latest = sorted(
            range(len(steps)),
            key=lambda at: (
                first.get(board.results[steps[at].id].state, 2),
                -board.results[steps[at].id].started,
            ),
        )
        kept = sorted(latest[: max(most - 1, 1)])
        left = len(steps) - len(kept)
        steps = tuple(steps[at] for at in kept)
    else:
        left = 0
    rows = step_rows(screen, steps, board.results, now=time.time(), notes=board.notes)
    if left:
        rows.append("  " + screen.paint(say("… and {count} more", count=left), "dim"))
    return rows
