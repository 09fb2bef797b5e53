"""Shows an agent turn: the answer, one line per tool call, and its usage.

On a terminal with colours the answer is rendered as Markdown, elsewhere it is streamed as text.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.output import create_output
from prompt_toolkit.utils import is_dumb_terminal
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from satchel.agent.events import SkillLoaded, TextDelta, ToolEnded, ToolStarted, TurnDone
from satchel.cli.change_view import ApprovalPrompt, may_repeat
from satchel.cli.console import clean, cut, one_line, plural, width_of
from satchel.i18n import join_names, render, say
from satchel.tools.proposed_changes import NEEDS_PERSON

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import ConsoleOptions, RenderResult

    from satchel.agent import Agent
    from satchel.agent.events import Event, TurnReport
    from satchel.cli.console import Screen
    from satchel.session.permissions import ApprovalRequest

_REFUSAL_PARTS = ("needs a person's approval", NEEDS_PERSON.template)
"""Parts of the reply to a tool call that needed an approval and got none."""
_LOG_COLUMNS = 100
_MIN_DETAIL_COLUMNS = 12


class TurnScreen:
    """Prints finished paragraphs and lines; only the last paragraph is redrawn."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._is_drawn = screen.is_terminal and screen.colour
        self._console = Console(
            file=screen.stream, width=screen.width or None, color_system="standard", highlight=False
        )
        self._live: Live | None = None
        self._text = ""
        """The unfinished paragraph; without drawing, the last piece of text."""

    def open(self) -> None:
        """Start a spinner."""
        if self._is_drawn:
            self._live = Live(console=self._console, transient=True, redirect_stderr=False)
            self._live.start()
            self._draw()

    def text(self, delta: str) -> None:
        """Append to the answer."""
        if not self._is_drawn:
            self._text = clean(delta)
            self.screen.write(self._text)
            self.screen.stream.flush()
            return
        self._text += clean(delta)
        complete, separator, remainder = self._text.rpartition("\n\n")
        if separator and remainder[:1].strip() and complete.count("```") % 2 == 0:
            self._console.print(_markdown(complete), "")
            self._text = remainder
        self._draw()

    def line(self, text: str) -> None:
        """Write a line that contains its styles."""
        if self._is_drawn:
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
        if self._is_drawn and text.strip():
            self._draw()
            self._console.print(_markdown(text), *after)
        elif not self._is_drawn and text and not text.endswith("\n"):
            self.screen.write("\n")

    def _draw(self) -> None:
        if self._live is not None:
            spinner = Spinner("dots", Text(say("thinking"), "dim"), style="cyan")
            content = _markdown(self._text) if self._text.strip() else spinner
            self._live.update(content, refresh=True)


class _Markdown(Markdown):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for index, segment in enumerate(super().__rich_console__(console, options)):
            if index or segment != Segment.line():  # rich writes an empty line before a list
                yield segment


def _markdown(text: str) -> Markdown:
    # Links are written out, so that their targets are visible.
    return _Markdown(text, code_theme="ansi_dark", hyperlinks=False)


class TurnWriter:
    """Writes the events of one turn to a screen."""

    def __init__(self, screen: TurnScreen, *, prints_answer: bool = True) -> None:
        """Prepare for a turn; without `prints_answer` its text is not written."""
        self.turn_screen = screen
        self.calls: list[dict[str, Any]] = []
        """The finished tool calls, for `--json`."""
        self.refused: list[str] = []
        """Tools that needed an approval and got none, for the call or for their changes."""
        self.screen_lock = asyncio.Lock()
        """Held while a question is on the screen."""
        self._prints_answer = prints_answer
        self._arguments: dict[str, Mapping[str, Any]] = {}
        self._loaded: list[SkillLoaded] = []

    async def follow(self, agent: Agent, text: str) -> TurnDone:
        """Run a turn and write its events."""
        self.turn_screen.open()
        try:
            async for event in agent.stream(text):
                if isinstance(event, TurnDone):
                    for note in event.report.notes:
                        if note.startswith("files: "):  # changed, or not applied
                            line = self.turn_screen.screen.paint(one_line(render(note)), "dim")
                            self.turn_screen.line(f"  {line}")
                    return event
                async with self.screen_lock:
                    self._show(event)
        finally:
            self.turn_screen.close()
        raise AssertionError("a turn ends with `TurnDone`")

    def _show(self, event: Event) -> None:
        if isinstance(event, TextDelta) and self._prints_answer:
            self.turn_screen.text(event.text)
        elif isinstance(event, ToolStarted):
            self._arguments[event.call_id] = event.arguments
        elif isinstance(event, SkillLoaded):
            self._loaded.append(event)
        elif isinstance(event, ToolEnded):
            self._show_call(event)

    def _show_call(self, event: ToolEnded) -> None:
        arguments = self._arguments.pop(event.call_id, {})
        call: dict[str, Any] = {
            "name": event.name,
            "agent": event.agent,
            "arguments": dict(arguments),
            "status": event.status,
            "seconds": event.seconds,
            "error": event.text if event.status == "error" else None,
        }
        self.calls.append(call)
        if event.name not in self.refused and any(part in event.text for part in _REFUSAL_PARTS):
            self.refused.append(event.name)
        name = f"{event.agent}/{event.name}" if event.agent else event.name
        if event.status == "error":
            reason = one_line(render(event.text).partition("\n")[0])
            self._write_line("✗", "red", name, "", reason, event.seconds)
        elif event.name == "Skill" and self._loaded:
            skill = self._loaded.pop(0)
            message = say("is loaded already") if skill.again else say("loaded")
            self._write_line("◆", "cyan", skill.name, "bold cyan", message, event.seconds)
        else:
            self._write_line("✓", "dim", name, "dim", format_arguments(arguments), event.seconds)

    def _write_line(
        self, mark: str, colour: str, name: str, style: str, details: str, seconds: float
    ) -> None:
        screen, name = self.turn_screen.screen, one_line(name)
        duration = f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
        room = (screen.width or _LOG_COLUMNS) - width_of(f"  {mark} {name}    {duration}")
        texts = filter(None, (cut(details, max(room, _MIN_DETAIL_COLUMNS)), duration))
        call = f"  {screen.paint(mark, colour)} {screen.paint(name, style)}"
        self.turn_screen.line("  ".join([call, *(screen.paint(text, "dim") for text in texts)]))


class TurnApproval:
    """Asks on a terminal during a turn: an `approve` for sessions."""

    def __init__(
        self, screen: Screen, writer: Callable[[], TurnWriter], *, repeats: bool = False
    ) -> None:
        """Prepare for any number of turns.

        Args:
            screen: Where to ask.
            writer: Gives the writer of the turn, which pauses meanwhile.
            repeats: Whether an answer may cover all later calls of a tool.
        """
        self._screen, self._writer, self._repeats = screen, writer, repeats
        self._approved_tools: set[str] = set()
        """Tools that need no further approval."""

    async def __call__(self, request: ApprovalRequest) -> bool:
        """Ask whether a call is approved, or the changes that it proposes."""
        writer, screen = self._writer(), self._screen
        async with writer.screen_lock:
            if request.tool in self._approved_tools and may_repeat(request):
                return True
            writer.turn_screen.close()
            prompt = ApprovalPrompt(screen, request, always=self._repeats)
            if not request.changes:
                screen.line(format_arguments(request.arguments), "dim", indent="    ")
            decision: bool | None = None
            try:
                while decision is None:
                    decision = prompt.answer(await self._read(prompt.keys))
            except EOFError:
                decision = False
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)  # the runner cancels the turn
            if prompt.always:
                self._approved_tools.add(request.tool)
            writer.turn_screen.open()
            return bool(decision)

    async def _read(self, question: str) -> str:
        """Ask a question; keys that were pressed before it are discarded."""
        # An output of its own would make it move the cursor also where the terminal cannot.
        output = None if is_dumb_terminal() else create_output(self._screen.stream)
        prompt: PromptSession[str] = PromptSession(output=output)
        with suppress(ImportError):  # not on Windows
            import termios

            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        clear_typeahead(prompt.input)
        return await prompt.prompt_async(question, handle_sigint=False)


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """Format the arguments of a call on one line: `path=src/app.py limit=20`."""
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in arguments.items()
    }
    return one_line(" ".join(f"{name}={shlex.quote(text)}" for name, text in texts.items()))


def format_usage(*reports: TurnReport) -> list[str]:
    """Format the total usage of some turns as lines."""
    requests = sum(report.requests for report in reports)
    input_tokens = sum(report.input_tokens for report in reports)
    share = sum(report.cache_read_tokens for report in reports) / max(input_tokens, 1)
    output_tokens = sum(report.output_tokens for report in reports)
    costs = [report.cost for report in reports if report.cost is not None]
    names = dict.fromkeys(one_line(name) for report in reports for name in report.skills)
    facts = [
        plural(requests, say("request"), say("requests")),
        say(
            "{count} tokens in ({share} from the cache)",
            count=f"{input_tokens:,}",
            share=f"{share:.0%}",
        ),
        say("{count} tokens out", count=f"{output_tokens:,}"),
        *([f"${sum(costs):.4f}"] if costs else []),
    ]
    skills_line = [say("Skills used: {names}", names=join_names(names))] if names else []
    return [say(", ").join(facts), *skills_line]


def stop_message(reason: str) -> str:
    """Return the message that a limit ended a turn."""
    return say("Stopped by a limit, the task may not be done: {reason}", reason=one_line(reason))
