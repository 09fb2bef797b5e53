"""Shows an agent turn: the answer, one line per tool call, and its usage.

On a terminal with colours the answer is rendered as Markdown, elsewhere it is streamed as text.
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

from satchel.agent.events import SkillLoaded, TextDelta, ToolEnded, ToolStarted, TurnDone
from satchel.cli.console import clean, cut, one_line, plural, width_of
from satchel.i18n import join_names, render, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import ConsoleOptions, RenderResult

    from satchel.agent import Agent
    from satchel.agent.events import Event, TurnReport
    from satchel.cli.console import Screen

REFUSED = "needs a person's approval"
"""Part of the reply to a tool call that needed an approval and got none."""
_LOG_COLUMNS = 100


class TurnScreen:
    """Prints finished paragraphs and lines; only the last paragraph is redrawn."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._drawn = screen.is_terminal and screen.colour
        self._console = Console(
            file=screen.stream, width=screen.width or None, color_system="standard", highlight=False
        )
        self._live: Live | None = None
        self._text = ""
        """The unfinished paragraph; without drawing, the last piece of text."""

    def open(self) -> None:
        """Start a spinner."""
        if self._drawn:
            self._live = Live(console=self._console, transient=True, redirect_stderr=False)
            self._live.start()
            self._draw()

    def text(self, delta: str) -> None:
        """Append to the answer."""
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
        """Write a line that contains its styles."""
        if self._drawn:
            self._finish("")
            self._console.print(Text.from_ansi(text), soft_wrap=True)
        else:
            self._finish()
            self.screen.write(f"{text}\n")
            self.screen.stream.flush()

    def close(self) -> None:
        """Write the last paragraph and stop drawing."""
        self._finish()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _finish(self, *after: str) -> None:
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
    # Links are written out, so that their targets are visible.
    return _Markdown(text, code_theme="ansi_dark", hyperlinks=False)


class TurnWriter:
    """Writes the events of one turn to a screen."""

    def __init__(self, screen: TurnScreen, *, answer: bool = True) -> None:
        """Prepare for a turn; without `answer` its text is not written."""
        self.turn_screen = screen
        self.calls: list[dict[str, Any]] = []
        """The finished tool calls, for `--json`."""
        self.screen_lock = asyncio.Lock()
        """Held while a question is on the screen."""
        self._answer = answer
        self._arguments: dict[str, Mapping[str, Any]] = {}
        self._loaded: list[SkillLoaded] = []

    async def follow(self, agent: Agent, text: str) -> TurnDone:
        """Run a turn and write its events."""
        self.turn_screen.open()
        try:
            async for event in agent.stream(text):
                if isinstance(event, TurnDone):
                    return event
                async with self.screen_lock:
                    self._show(event)
        finally:
            self.turn_screen.close()
        raise AssertionError("a turn ends with `TurnDone`")

    def _show(self, event: Event) -> None:
        if isinstance(event, TextDelta) and self._answer:
            self.turn_screen.text(event.text)
        elif isinstance(event, ToolStarted):
            self._arguments[event.call_id] = event.arguments
        elif isinstance(event, SkillLoaded):
            self._loaded.append(event)
        elif isinstance(event, ToolEnded):
            self._show_call(event)

    def _show_call(self, event: ToolEnded) -> None:
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
            self._write_line("✗", "red", name, "", why, event.seconds)
        elif event.name == "Skill" and self._loaded:
            skill = self._loaded.pop(0)
            message = say("is loaded already") if skill.again else say("loaded")
            self._write_line("◆", "cyan", skill.name, "bold cyan", message, event.seconds)
        else:
            self._write_line("✓", "dim", name, "dim", format_arguments(given), event.seconds)

    def _write_line(
        self, mark: str, colour: str, name: str, style: str, more: str, seconds: float
    ) -> None:
        screen, name = self.turn_screen.screen, one_line(name)
        took = f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
        room = (screen.width or _LOG_COLUMNS) - width_of(f"  {mark} {name}    {took}")
        words = [screen.paint(part, "dim") for part in (cut(more, max(room, 12)), took) if part]
        head = f"  {screen.paint(mark, colour)} {screen.paint(name, style)}"
        self.turn_screen.line("  ".join([head, *words]))


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """Format the arguments of a call on one line: `path=src/app.py limit=20`."""
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in arguments.items()
    }
    return one_line(" ".join(f"{name}={shlex.quote(text)}" for name, text in texts.items()))


def format_usage(*reports: TurnReport) -> list[str]:
    """Format the total usage of some turns as lines."""
    requests = sum(one.requests for one in reports)
    taken = sum(one.input_tokens for one in reports)
    share = sum(one.cache_read_tokens for one in reports) / max(taken, 1)
    given = sum(one.output_tokens for one in reports)
    costs = [one.cost for one in reports if one.cost is not None]
    names = dict.fromkeys(one_line(name) for one in reports for name in one.skills)
    parts = [
        plural(requests, say("request"), say("requests")),
        say("{count} tokens in ({share} from the cache)", count=f"{taken:,}", share=f"{share:.0%}"),
        say("{count} tokens out", count=f"{given:,}"),
        *([f"${sum(costs):.4f}"] if costs else []),
    ]
    used = [say("Skills used: {names}", names=join_names(names))] if names else []
    return [say(", ").join(parts), *used]


def stop_message(reason: str) -> str:
    """The message that a limit ended a turn."""
    return say("Stopped by a limit, the task may not be done: {reason}", reason=one_line(reason))
