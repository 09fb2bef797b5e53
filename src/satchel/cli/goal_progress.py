"""Shows a goal while it runs.

A terminal shows all steps at once and redraws them. A pipe, CI and a dumb terminal get a line per
event, so that a log can be read afterwards.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from satchel.cli.console import cut, one_line, pad, width_of, wrap
from satchel.cli.goal_format import (
    STYLES,
    count_states,
    note_text,
    print_end,
    result_text,
    step_rows,
    unbegun_text,
    was_done,
)
from satchel.goals.drawing.labels import MARKS, format_seconds
from satchel.goals.model import ENDS, StepResult
from satchel.goals.plan_checks import order
from satchel.i18n import listed, say

if TYPE_CHECKING:
    from satchel.cli.console import Screen
    from satchel.goals.model import GoalReport, Plan, StepEvent

_SILENCE_S = 10.0
"""Silence before a log reports what still runs, doubled each time; also the delay before a goal
that no worker has begun is reported."""
_FREE_LINES = 4
"""Lines of the screen left free below the rows."""


class GoalProgress:
    """The steps of a running goal on a screen."""

    def __init__(self, screen: Screen) -> None:
        env = os.environ
        self.redraws = (
            screen.is_terminal and env.get("TERM", "dumb") != "dumb" and not env.get("CI")
        )
        self._screen = screen
        self._plan: Plan | None = None
        self._results: dict[str, StepResult] = {}
        self._notes: dict[str, str] = {}
        """Step id -> remark, such as a retry."""
        self._title = ""
        self._already = False
        self._since = 0.0
        self._queued: GoalReport | None = None
        """The goal, while no worker has begun it."""
        self._unbegun = ""
        self._drawn = 0
        """Number of lines that the next drawing replaces."""
        self._began = self._moved = time.monotonic()
        self._patience = _SILENCE_S

    def begin(self, report: GoalReport, since: float) -> None:
        """Show a goal; events before `since` are not repeated."""
        self._since = since
        self._update(report)
        self._already = was_done(report, since)
        self._title = f"{report.id}  {one_line(report.plan.goal)}"
        if self.redraws:
            self._draw()
        elif not self._already:
            count = len(report.plan.steps)
            words = say("{id}: 1 step", id=report.id) if count == 1 else ""
            self._screen.line(words or say("{id}: {count} steps", id=report.id, count=count), "dim")

    def tell(self, event: StepEvent) -> None:
        """Process an event: a log gets a line when a step ends, waits or is retried."""
        if not self._is_new(event) or self.redraws or event.state in {"running", "waiting"}:
            return
        self._moved, self._patience = time.monotonic(), _SILENCE_S
        if event.state == "retrying":
            self._line(event.step, "↻", "yellow", self._notes.get(event.step, ""))
        else:
            self._print_result(self._results[event.step])

    def tick(self) -> None:
        """Redraw; a log reports what still runs after a long silence."""
        if self.redraws:
            self._draw()
            return
        waited = time.monotonic() - self._moved
        if waited < self._patience:
            return
        self._patience *= 2
        names = [name for name, result in self._results.items() if result.state == "running"]
        shown = listed([*map(one_line, names[:5]), *(["…"] if len(names) > 5 else [])])
        words = say(
            "still at work ({time}): {names}", time=format_seconds(int(waited)), names=shown
        )
        if unbegun := self._unbegun_text():
            self._screen.line(unbegun, "yellow", "  ")
        else:
            self._screen.line(words if names else say("still waiting"), "dim", "  ")
        self._screen.stream.flush()

    def end(self, report: GoalReport | None) -> None:
        """Draw for the last time and sum up; None when the state of the goal is unknown."""
        if self.redraws:
            if report is not None:
                self._update(report)
            self._draw(last=True)
        elif report is not None:
            # Also changes without an event, which clocks of other machines can cause.
            for name, result in report.steps.items():
                if result.state in {*ENDS, "asking"} and self._results[name].state != result.state:
                    self._print_result(result)
        if report is not None:
            print_end(self._screen, report, already=self._already)

    # --- state --------------------------------------------------------------------------------

    def _update(self, report: GoalReport) -> None:
        self._plan = report.plan
        for step in report.plan.steps:
            self._results.setdefault(step.id, StepResult(step.id, "waiting"))
        self._results.update(report.steps)
        self._queued = report if report.state == "queued" and report.engine != "local" else None

    def _is_new(self, event: StepEvent) -> bool:
        """Process an event; False if it changes nothing. Engines also send past events."""
        queued = self._queued
        if queued is not None and event.state == "running" and event.at >= self._since:
            # Temporal's goals run from the beginning; their steps run when there is a worker.
            self._queued = queued if not event.step and queued.engine == "temporal" else None
        if event.step not in self._results or event.at < self._since:
            return False
        before = self._results[event.step]
        if event.state == "retrying":
            note = note_text(event.text) or say("once more")
            new = self._notes.get(event.step) != note
            self._notes[event.step] = note
            return new
        if event.result is not None and event.result.state == event.state:
            found = event.result
        elif event.state in MARKS:
            found = before._replace(state=event.state, started=before.started or event.at)
        else:
            return False
        self._results[event.step] = found
        if found.state != "running":
            self._notes.pop(event.step, None)
        return found.state != before.state

    def _unbegun_text(self) -> str:
        """The message about a goal that no worker has begun; empty before the delay."""
        if self._queued is None or time.monotonic() - self._began < _SILENCE_S:
            return ""
        self._unbegun = self._unbegun or unbegun_text(self._queued)
        return self._unbegun

    # --- output -------------------------------------------------------------------------------

    def _print_result(self, result: StepResult) -> None:
        steps = self._plan.steps if self._plan is not None else ()
        step = next((one for one in steps if one.id == result.step), None)
        words = result_text(step, result) if step is not None else ""
        self._line(result.step, MARKS[result.state], STYLES[result.state], words)

    def _line(self, step: str, mark: str, style: str, words: str) -> None:
        wide = min(max(map(width_of, self._results)), 32)
        lead = ((f"{mark} ", style), (f"{pad(one_line(step), wide)}  ", ""))
        self._screen.line(words, "dim" if style == "green" else style, "  ", "    ", lead)
        self._screen.stream.flush()

    def _draw(self, *, last: bool = False) -> None:
        screen = self._screen
        rows = self.rows(max(shutil.get_terminal_size().lines - _FREE_LINES, 5))
        lines = [screen.paint(cut(self._title, screen.width), "bold"), *rows]
        if not last:
            lines.append(f"  {screen.paint(count_states(self._results), 'dim')}")
            if unbegun := self._unbegun_text():
                wrapped = wrap(unbegun, max(screen.width - 4, 20))
                lines += [f"  {screen.paint(line, 'yellow')}" for line in wrapped]
        up = f"\x1b[{self._drawn}F" if self._drawn else "\r"
        screen.write(f"{up}\x1b[J" + "".join(f"{line}\n" for line in lines))
        screen.stream.flush()
        self._drawn = 0 if last else len(lines)

    def rows(self, most: int) -> list[str]:
        """Return the steps in at most `most` lines; the least interesting are left out."""
        steps = order(self._plan) if self._plan is not None else ()
        left = 0
        if len(steps) > most:
            first = {"asking": 0, "failed": 0, "running": 1}
            found = [self._results[step.id] for step in steps]
            latest = sorted(
                range(len(steps)),
                key=lambda at: (first.get(found[at].state, 2), -found[at].started),
            )
            kept = sorted(latest[: max(most - 1, 1)])
            left = len(steps) - len(kept)
            steps = tuple(steps[at] for at in kept)
        rows = step_rows(self._screen, steps, self._results, now=time.time(), notes=self._notes)
        if left:
            rows.append("  " + self._screen.paint(say("… and {count} more", count=left), "dim"))
        return rows
