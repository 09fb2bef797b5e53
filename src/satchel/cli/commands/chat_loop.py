"""The loop of `satchel chat`: reads messages, runs turns, and handles `/commands`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead

from satchel.agent.events import TurnReport
from satchel.cli import EXIT_INCOMPLETE
from satchel.cli.commands.list_skills import show_list
from satchel.cli.commands.why import why
from satchel.cli.console import clean, count_skills, one_line, pad, print_error, width_of
from satchel.cli.context import exit_code
from satchel.cli.models import make_agent
from satchel.cli.turn_view import (
    TurnScreen,
    TurnWriter,
    format_arguments,
    format_usage,
    stop_message,
)
from satchel.errors import InvalidInput, SatchelError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History

    from satchel.agent import Limits
    from satchel.cli.context import CliContext
    from satchel.session.permissions import ApprovalRequest, Approve

_YES = frozenset(("y", "yes", "是"))
_ALWAYS = frozenset(("a", "always", "总是"))
_COMMAND = re.compile(r"/([\w:.-]+)(?:\s+(.*))?\Z", re.DOTALL).match
"""Matches `/name arguments`, but not a path such as `/etc/hosts`."""


class ChatLoop:
    """One chat, at a terminal or in a pipe."""

    def __init__(
        self, context: CliContext, model: str, limits: Limits, asked: tuple[str, ...], *, yes: bool
    ) -> None:
        """Prepare the chat; tools that match `asked` need approval too; with `yes` none does."""
        self._context = context
        self._out = context.out
        self._model = model
        self._is_terminal = sys.stdin.isatty() and self._out.is_terminal
        self._approve: Approve = True if yes else self._ask_approval if self._is_terminal else None
        self._agent = make_agent(context, model, limits=limits, approve=self._approve, ask=asked)
        self._writer = TurnWriter(TurnScreen(self._out))
        self._runner = asyncio.Runner()  # one loop, to which the provider's connections belong
        self._always: set[str] = set()
        """Tools that are approved for the whole chat."""
        self._reports: list[TurnReport] = []
        self._last = ""
        self._failed = 0

    def run(self) -> int:
        """Handle messages until the end of the input; in a pipe, return the first error's code."""
        self._print_header()
        with self._runner, closing(self._agent):
            for text in self._messages():
                if text.strip() == "/quit":
                    break
                self._handle(text)
        for line in format_usage(*self._reports) if self._reports else ():
            self._out.line(line, "dim")
        return 0 if self._is_terminal else self._failed

    def _print_header(self) -> None:
        library = self._context.satchel.library
        skills = (*library.list_skills(), *(one.skill for one in library.tools().skills))
        count = len({skill.ref for skill in skills if skill.source != "builtin"})
        parts = [one_line(self._model), count_skills(count)]
        if self._approve is None:
            parts.append(say("not a terminal: risky tools are refused"))
        keys = ["/help", say("{key} ends it", key="Ctrl-D")] if self._is_terminal else []
        self._out.line(" · ".join([*parts, *keys]), "dim", lead=[("satchel chat ", "bold")])
        self._out.line()

    def _skills(self) -> dict[str, str]:
        """Name -> description of the skills that can be loaded."""
        found = self._context.satchel.list_skills()
        return {skill.name: skill.description for skill in found if not skill.is_tool}

    def _messages(self) -> Iterator[str]:
        if not self._is_terminal:
            for line in filter(str.strip, sys.stdin):
                self._out.write(f"{self._out.paint('>', 'bold cyan')} {clean(line.strip())}\n")
                yield line
            return
        prompt = _make_prompt(self._context.satchel.settings.paths.state, self._skills)
        while True:
            try:
                text = prompt.prompt("> ")
            except EOFError:
                return
            except KeyboardInterrupt:
                self._out.line(say("{key} ends it", key="Ctrl-D"), "dim")
                continue
            if text.strip():
                yield text

    def _handle(self, text: str) -> None:
        command = _COMMAND(text.rstrip())
        try:
            if command is None:
                self._run_turn(text.strip())
            else:
                self._run_command(command[1], command[2] or "")
        except SatchelError as exc:
            self._print_error(exc.message, exc.hint, exc.exit_code)
        self._out.line()

    def _print_error(self, message: str, hint: str, code: int) -> None:
        self._failed = self._failed or code
        self._out.stream.flush()
        print_error(message, hint)

    def _load(self, name: str, args: str) -> None:
        """Load a skill, then send the message."""
        reply = self._agent.load(name, args)
        if reply.error is not None:
            self._print_error(reply.error.message, reply.error.hint, exit_code(reply))
            return
        loaded = str(reply.data.get("name", name))
        self._reports.append(TurnReport(skills=(loaded,)))
        again = reply.data.get("already_loaded")
        message = say("is loaded already") if again else say("loaded")
        lead = [("◆ ", "cyan"), (f"{one_line(loaded)}  ", "bold cyan")]
        self._out.line(message, "dim", "  ", lead=lead)
        self._run_turn(f"/{name} {args}".strip())

    def _run_turn(self, text: str) -> None:
        """Run one turn; Ctrl-C ends the turn, not the chat."""
        self._last = text
        self._writer = TurnWriter(TurnScreen(self._out))
        try:
            report = self._runner.run(self._writer.follow(self._agent, text)).report
        except KeyboardInterrupt:
            if not self._is_terminal:
                raise
            message = say("Stopped")
            self._out.line(message, "dim")
            return
        self._reports.append(report)
        if report.stopped:
            self._failed = self._failed or EXIT_INCOMPLETE
            self._out.line(stop_message(report.stopped), "yellow")

    async def _ask_approval(self, request: ApprovalRequest) -> bool:
        """Ask whether a call is approved."""
        async with self._writer.screen_lock:
            if request.tool in self._always:
                return True
            self._writer.turn_screen.close()
            self._out.line(one_line(request.question), "", "  ", lead=[("? ", "bold yellow")])
            self._out.line(format_arguments(request.arguments), "dim", "    ")
            answer = ""
            try:
                answer = await _ask(say("  y yes, n no, a always in this chat: "))
            except EOFError:
                pass  # means no
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)  # the runner cancels the turn
            answer = answer.strip().lower()
            if answer in _ALWAYS:
                self._always.add(request.tool)
            self._writer.turn_screen.open()
            return answer in _YES | _ALWAYS

    def _run_command(self, name: str, rest: str) -> None:
        context = self._context
        if name == "help":
            self._help()
        elif name == "skills":
            show_list(context.satchel)
        elif name == "why" and rest:
            goal = ["--goal", self._last] if self._last else []
            why.main([*goal, "--", rest], obj=context, standalone_mode=False)
        elif name == "why":
            raise InvalidInput(
                say("`{name}` is missing", name="NAME"), say("Run `{command}`", command="/skills")
            )
        elif name == "reset":
            self._agent.reset()
            self._last = ""
            self._out.line(say("New conversation"), "dim")
        else:
            self._load(name, rest)

    def _help(self) -> None:
        rows = {**_commands(), "/SKILL": say("load a skill")}
        width = max(map(width_of, rows)) + 2
        for first, text in rows.items():
            self._out.write(f"  {self._out.paint(pad(first, width), 'cyan')}{text}\n")


def _commands() -> dict[str, str]:
    return {
        "/help": say("Commands"),
        "/skills": say("Skills"),
        "/why NAME": say("Status"),
        "/reset": say("New conversation"),
        "/quit": say("{key} ends it", key="Ctrl-D"),
    }


class _Names(Completer):
    """Completes `/name` at the start of a message, and `$name` anywhere."""

    def __init__(self, skills: Callable[[], Mapping[str, str]]) -> None:
        self._skills = skills

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Complete the word before the cursor."""
        del complete_event
        word = document.get_word_before_cursor(WORD=True)
        if not word.startswith("$") and not (word.startswith("/") and document.text == word):
            return
        known = {**_commands(), **{word[0] + name: text for name, text in self._skills().items()}}
        for name, about in sorted(known.items()):
            if name.startswith(word):
                yield Completion(name.split()[0], -len(word), display_meta=one_line(about))


def _make_prompt(state: str, skills: Callable[[], Mapping[str, str]]) -> PromptSession[str]:
    """Make a prompt that completes names and stores its history in the folder `state`."""
    path = os.path.join(state, "chat-history")
    history: History = InMemoryHistory()
    with suppress(OSError):
        os.makedirs(state, mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        history = FileHistory(path)
    return PromptSession(history=history, completer=_Names(skills))


async def _ask(question: str) -> str:
    """Ask a question; keys that were pressed before it are discarded."""
    prompt: PromptSession[str] = PromptSession()
    with suppress(ImportError):  # not on Windows
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    clear_typeahead(prompt.input)
    return await prompt.prompt_async(question, handle_sigint=False)
