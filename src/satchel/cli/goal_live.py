"""How are the steps of a goal redrawn while they run? With rich, below what stands already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from satchel.cli.goal_board import Board, all_rows
from satchel.cli.goal_words import told_counts, told_end, was_done
from satchel.cli.output import cut, one_line, wrap

if TYPE_CHECKING:
    from satchel.cli.output import Screen
    from satchel.goals.model import GoalReport, StepEvent

_FREE = 4
"""Lines of the screen that the rows leave free."""


class LiveView:
    """All steps at once."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._console = Console(
            file=screen.stream,
            force_terminal=True,
            no_color=not screen.colour,
            highlight=False,
            width=screen.width or None,
            legacy_windows=False,
        )
        self._board: Board | None = None
        self._live: Live | None = None
        self._title = ""
        self._already = False

    def begin(self, report: GoalReport, since: float) -> None:
        """Begin to draw."""
        self._board = Board(report.plan, since)
        self._board.take(report)
        self._already = was_done(report, since)
        self._title = f"{report.id}  {one_line(report.plan.goal)}"
        self._live = Live(
            self._drawn(),
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def tell(self, event: StepEvent) -> None:
        """Something changed: the next tick draws it, so that a thousand events are few pictures."""
        if self._board is not None:
            self._board.tell(event)

    def tick(self) -> None:
        """Draw."""
        if self._live is not None:
            self._live.update(self._drawn(), refresh=True)

    def end(self, report: GoalReport | None) -> None:
        """Leave the last picture standing, and sum up."""
        if self._live is None or self._board is None:
            return
        if report is not None:
            self._board.take(report)
        self._live.update(Text(), refresh=True)
        self._live.stop()
        self._live = None
        self._console.print(self._drawn(last=True), end="\n" if report is None else "")
        if report is not None:
            self._screen.stream.flush()
            told_end(self._screen, report, already=self._already)

    def _drawn(self, *, last: bool = False) -> Text:
        board = self._board
        if board is None:
            return Text()
        rows = all_rows(self._screen, board, max(self._console.height - _FREE, 5))
        head = self._screen.paint(cut(self._title, self._screen.width), "bold")
        lines = [head, *rows]
        if not last:
            lines.append(f"  {self._screen.paint(told_counts(board.results), 'dim')}")
            if board.unbegun:
                told = wrap(board.unbegun, max(self._screen.width - 4, 20))
                lines += [f"  {self._screen.paint(line, 'yellow')}" for line in told]
        text = Text.from_ansi("\n".join(lines) + ("\n" if last else ""))
        text.no_wrap, text.overflow = True, "ellipsis"
        return text
