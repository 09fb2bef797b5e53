"""Writes a turn: the answer, one line for each call, and what it took.

On a terminal with colours the answer is drawn as Markdown, elsewhere it is written as it comes.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from satchel._language import listed, render, say
from satchel.agent.records import SkillLoaded, TextDelta, ToolEnded, ToolStarted, TurnDone
from satchel.cli.output import clean, cut, one_line, width_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import ConsoleOptions, RenderResult

    from satchel.agent import Agent
    from satchel.agent.records import Event, TurnReport
    from satchel.cli.output import Screen

STOPPED = 8
"""The exit code when a limit ended a turn."""
REFUSED = "needs a person's approval"
"""Part of the answer of a tool that was refused because there was no one to approve it."""
_WIDE = 100
"""Columns of a line in a log."""


class Board:
    """Prints finished paragraphs and lines; only the last paragraph is redrawn."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._drawn = screen.is_terminal and screen.colour
        self._console = Console(
            file=screen.stream, width=screen.width or None, color_system="standard", highlight=False
        )
        self._live: Live | None = None
        self._text = ""
        """The paragraph that is not finished; without drawing: the last piece of text."""

    def open(self) -> None:
        """Show that the model is at work."""
        if self._drawn:
            self._live = Live(console=self._console, transient=True, redirect_stderr=False)
            self._live.start()
            self._draw()

    def text(self, delta: str) -> None:
        """Write some more of the answer."""
        if not self._drawn:
            self._text = clean(delta)
            self.screen.write(self._text)
            self.screen.stream.flush()
            return
        self._text += clean(delta)
        done, gap, rest = self._text.rpartition("\n\n")
        if gap and rest[:1].strip() and done.count("```") % 2 == 0:
            self._console.print(_markdown(done), "")
            self._text = rest
        self._draw()

    def line(self, text: str) -> None:
        """Write a line of its own, which is painted already."""
        if self._drawn:
            self._finish("")
            self._console.print(Text.from_ansi(text), soft_wrap=True)
        else:
            self._finish()
            self.screen.write(f"{text}\n")
            self.screen.stream.flush()

    def close(self) -> None:
        """Write what is left and stop drawing."""
        self._finish()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _finish(self, *after: str) -> None:
        """Write the last paragraph as it will stay."""
        text, self._text = self._text, ""
        if self._drawn and text.strip():
            self._draw()
            self._console.print(_markdown(text), *after)
        elif not self._drawn and text and not text.endswith("\n"):
            self.screen.write("\n")

    def _draw(self) -> None:
        if self._live is not None:
            waiting = Spinner("dots", Text(say("thinking"), "dim"), style="cyan")
            shown = _markdown(self._text) if self._text.strip() else waiting
            self._live.update(shown, refresh=True)


class _Markdown(Markdown):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for at, part in enumerate(super().__rich_console__(console, options)):
            if at or part != Segment.line():  # rich writes an empty line before a list
                yield part


def _markdown(text: str) -> Markdown:
    # Links are written out: nothing on the screen leads where it does not say.
    return _Markdown(text, code_theme="ansi_dark", hyperlinks=False)


class Teller:
    """Writes the events of one turn on a board."""

    def __init__(self, board: Board, *, answer: bool = True) -> None:
        """Prepare for a turn; `answer` says whether the text of the answer is written too."""
        self.board = board
        self.calls: list[dict[str, Any]] = []
        """The calls that have ended, as `--json` has them."""
        self.free = asyncio.Lock()
        """Held by what needs the screen for itself, such as a question."""
        self._answer = answer
        self._arguments: dict[str, Mapping[str, Any]] = {}
        self._loaded: list[SkillLoaded] = []

    async def follow(self, agent: Agent, text: str) -> TurnDone:
        """Run a turn and write what happens.

        Raises:
            SatchelError: the turn failed.
        """
        self.board.open()
        try:
            async for event in agent.stream(text):
                if isinstance(event, TurnDone):
                    return event
                async with self.free:
                    self._tell(event)
        finally:
            self.board.close()
        raise AssertionError("a turn ends with `TurnDone`")

    def _tell(self, event: Event) -> None:
        if isinstance(event, TextDelta) and self._answer:
            self.board.text(event.text)
        elif isinstance(event, ToolStarted):
            self._arguments[event.call_id] = event.arguments
        elif isinstance(event, SkillLoaded):
            self._loaded.append(event)
        elif isinstance(event, ToolEnded):
            self._ended(event)

    def _ended(self, event: ToolEnded) -> None:
        given = self._arguments.pop(event.call_id, {})
        call: dict[str, Any] = {
            "name": event.name,
            "agent": event.agent,
            "arguments": dict(given),
            "status": event.status,
            "seconds": event.seconds,
            "error": event.text if event.status == "error" else None,
        }
        self.calls.append(call)
        name = f"{event.agent}/{event.name}" if event.agent else event.name
        if event.status == "error":
            why = one_line(render(event.text).partition("\n")[0])
            self._write("✗", "red", name, "", why, event.seconds)
        elif event.name == "Skill" and self._loaded:
            skill = self._loaded.pop(0)
            count = f"{skill.characters:,}"
            words = say("loaded, {count} characters", count=count)
            words = say("is loaded already") if skill.again else words
            self._write("◆", "cyan", skill.name, "bold cyan", words, event.seconds)
        else:
            self._write("✓", "dim", name, "dim", told_arguments(given), event.seconds)

    def _write(
        self, mark: str, colour: str, name: str, style: str, more: str, seconds: float
    ) -> None:
        screen, name = self.board.screen, one_line(name)
        took = say("{count} s", count=f"{seconds:.1f}")
        took = say("{count} ms", count=round(seconds * 1000)) if seconds < 1 else took
        room = (screen.width or _WIDE) - width_of(f"  {mark} {name}    {took}")
        words = [screen.paint(part, "dim") for part in (cut(more, max(room, 12)), took) if part]
        head = f"  {screen.paint(mark, colour)} {screen.paint(name, style)}"
        self.board.line("  ".join([head, *words]))


def told_arguments(arguments: Mapping[str, Any]) -> str:
    """Arguments of a call on one line: `path=src/app.py limit=20`."""
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in arguments.items()
    }
    return one_line(" ".join(f"{name}={shlex.quote(text)}" for name, text in texts.items()))


def told_report(*reports: TurnReport) -> list[str]:
    """What turns took together, in lines for people."""
    requests = sum(one.requests for one in reports)
    taken = sum(one.input_tokens for one in reports)
    share = sum(one.cache_read_tokens for one in reports) / max(taken, 1)
    given = sum(one.output_tokens for one in reports)
    costs = [one.cost for one in reports if one.cost is not None]
    names = dict.fromkeys(one_line(name) for one in reports for name in one.skills)
    parts = [
        say("1 request") if requests == 1 else say("{count} requests", count=requests),
        say("{count} tokens in ({share} from the cache)", count=f"{taken:,}", share=f"{share:.0%}"),
        say("{count} tokens out", count=f"{given:,}"),
        f"${sum(costs):.4f}" if costs else say("the price is not known"),
    ]
    used = [say("Skills used: {names}", names=listed(names))] if names else []
    return [say(", ").join(parts), *used]


def told_stop(reason: str) -> str:
    """That a limit ended a turn, and which."""
    return say("Stopped by a limit, the task may not be done: {reason}", reason=one_line(reason))
