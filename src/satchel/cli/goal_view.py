"""What does somebody see while a goal runs? Lines that are added, or rows that are redrawn.

A terminal with rich installed shows all steps at once and redraws them. A pipe, CI and a dumb
terminal get a line for each thing that happened, so that a log can be read afterwards.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Protocol

from satchel._language import listed, say
from satchel.cli.goal_board import Board
from satchel.cli.goal_words import STYLES, state_word, told_end, told_error, was_done
from satchel.cli.output import one_line, pad, width_of
from satchel.goals.drawing.words import MARKS, seconds, took
from satchel.goals.model import ENDS

if TYPE_CHECKING:
    from satchel.cli.output import Screen
    from satchel.goals.model import GoalReport, StepEvent, StepResult

_PATIENCE = 10.0
"""Seconds of silence before a log says that it goes on; then twice as many, and so on."""


class View(Protocol):
    """Somebody who looks at a goal."""

    def begin(self, report: GoalReport, since: float) -> None:
        """Here it is; what it knows, and what happened before `since`, is not told again."""
        ...

    def tell(self, event: StepEvent) -> None:
        """Something happened."""
        ...

    def tick(self) -> None:
        """Time passed."""
        ...

    def end(self, report: GoalReport | None) -> None:
        """It ended, or waits for somebody; None when nobody knows how it went on."""
        ...


def make_view(screen: Screen) -> View:
    """The view that fits where it is shown."""
    from satchel._optional import available

    env = os.environ
    redraws = screen.is_terminal and env.get("TERM", "dumb") != "dumb" and not env.get("CI")
    if redraws and available("rich"):
        from satchel.cli.goal_live import LiveView

        return LiveView(screen)
    return PlainView(screen)


class PlainView:
    """A line for each step that ended, and a sign of life."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._board: Board | None = None
        self._wide = 0
        self._already = False
        self._since = time.monotonic()
        self._next = _PATIENCE

    def begin(self, report: GoalReport, since: float) -> None:
        """Know the steps; say which goal it is."""
        first = self._board is None
        self._board = Board(report.plan, since)
        self._board.take(report)
        self._wide = min(max(width_of(step.id) for step in report.plan.steps), 32)
        self._already = was_done(report, since)
        if first and not self._already:
            count = len(report.plan.steps)
            words = say("{id}: 1 step", id=report.id) if count == 1 else ""
            self._screen.line(words or say("{id}: {count} steps", id=report.id, count=count), "dim")
        self._moved()

    def tell(self, event: StepEvent) -> None:
        """Write what ended, what asks, and what is tried again."""
        board = self._board
        if board is None or not board.tell(event):
            return
        if event.state in {"running", "waiting"}:
            return
        self._moved()
        if event.state == "retrying":
            self._line(event.step, "↻", "yellow", board.notes.get(event.step, ""))
        else:
            self._tell(board, board.results[event.step])

    def _tell(self, board: Board, result: StepResult) -> None:
        words = state_word(result.state)
        if result.state == "done":
            person = result.step in board.people
            words = one_line(str(result.output)) if person else took(result)
        if result.error is not None and result.state in {"failed", "skipped"}:
            words = told_error(result.error)
        self._line(result.step, MARKS[result.state], STYLES[result.state], words)

    def _line(self, step: str, mark: str, style: str, words: str) -> None:
        lead = ((f"{mark} ", style), (f"{pad(one_line(step), self._wide)}  ", ""))
        self._screen.line(words, "dim" if style == "green" else style, "  ", "    ", lead)
        self._screen.stream.flush()

    def tick(self) -> None:
        """Say what is still at work when nothing was said for long."""
        waited = time.monotonic() - self._since
        if waited < self._next or self._board is None:
            return
        self._next *= 2
        names = self._board.running
        shown = listed([*map(one_line, names[:5]), *(["…"] if len(names) > 5 else [])])
        words = say("still at work ({time}): {names}", time=seconds(int(waited)), names=shown)
        if self._board.unbegun:
            self._screen.line(self._board.unbegun, "yellow", "  ")
        else:
            self._screen.line(words if names else say("still waiting"), "dim", "  ")
        self._screen.stream.flush()

    def end(self, report: GoalReport | None) -> None:
        """Sum it up; also what nobody told on the way, as machines with other clocks may not."""
        board = self._board
        if report is None or board is None:
            return
        for name, result in report.steps.items():
            if result.state in {*ENDS, "asking"} and board.results[name].state != result.state:
                self._tell(board, result)
        told_end(self._screen, report, already=self._already)

    def _moved(self) -> None:
        self._since = time.monotonic()
        self._next = _PATIENCE
