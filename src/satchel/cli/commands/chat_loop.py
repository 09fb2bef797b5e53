"""The loop of `satchel chat`: reads messages, runs turns, and handles `/commands`."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.history import FileHistory, InMemoryHistory

from satchel.agent.events import TurnReport
from satchel.cli import EXIT_INCOMPLETE
from satchel.cli.commands.list_skills import show_list
from satchel.cli.commands.why import why
from satchel.cli.console import clean, count_skills, one_line, pad, print_error, width_of
from satchel.cli.context import exit_code
from satchel.cli.models import make_agent
from satchel.cli.turn_view import (
    TurnApproval,
    TurnScreen,
    TurnWriter,
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
    from satchel.session.permissions import Approve

_COMMAND = re.compile(r"/([\w:.-]+)(?:\s+(.*))?\Z", re.DOTALL)
"""Matches `/name arguments`, but not a path such as `/etc/hosts`."""


class ChatLoop:
    """One chat, at a terminal or in a pipe."""

    def __init__(
        self,
        context: CliContext,
        model: str,
        limits: Limits,
        ask_patterns: tuple[str, ...],
        *,
        allow_tools: bool,
    ) -> None:
        """Prepare the chat; without `allow_tools`, tools of `ask_patterns` need approval too."""
        self._context = context
        self._out = context.out
        self._model = model
        self._is_terminal = sys.stdin.isatty() and self._out.is_terminal
        self._approve: Approve = True if allow_tools else None
        if self._is_terminal and not allow_tools:
            self._approve = TurnApproval(self._out, lambda: self._writer, repeats=True)
        self._agent = make_agent(
            context, model, limits=limits, approve=self._approve, ask=ask_patterns
        )
        self._writer = TurnWriter(TurnScreen(self._out))
        self._runner = asyncio.Runner()  # one loop, to which the provider's connections belong
        self._reports: list[TurnReport] = []
        self._last_message = ""
        self._exit_code = 0

    def run(self) -> int:
        """Handle messages until the end of the input; in a pipe, return the first error's code."""
        self._print_header()
        with self._runner, closing(self._agent):
            for text in self._read_messages():
                if text.strip() == "/quit":
                    break
                self._handle(text)
        for line in format_usage(*self._reports) if self._reports else ():
            self._out.line(line, "dim")
        return 0 if self._is_terminal else self._exit_code

    def _print_header(self) -> None:
        library = self._context.satchel.library
        skills = (
            *library.list_skills(),
            *(tool_skill.skill for tool_skill in library.tools().skills),
        )
        count = len({skill.ref for skill in skills if skill.source != "builtin"})
        facts = [one_line(self._model), count_skills(count)]
        if self._approve is None:
            facts.append(say("not a terminal: risky tools are refused"))
        keys = ["/help", say("{key} ends it", key="Ctrl-D")] if self._is_terminal else []
        self._out.line(" · ".join([*facts, *keys]), "dim", lead=[("satchel chat ", "bold")])
        self._out.line()

    def _skills(self) -> dict[str, str]:
        """Name -> description of the skills that can be loaded."""
        skills = self._context.satchel.list_skills()
        return {skill.name: skill.description for skill in skills if not skill.is_tool}

    def _read_messages(self) -> Iterator[str]:
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
        command = _COMMAND.match(text.rstrip())
        try:
            if command is None:
                self._run_turn(text.strip())
            else:
                self._run_command(command[1], command[2] or "")
        except SatchelError as exc:
            self._print_error(exc.message, exc.hint, exc.exit_code)
        self._out.line()

    def _print_error(self, message: str, hint: str, code: int) -> None:
        self._exit_code = self._exit_code or code
        self._out.stream.flush()
        print_error(message, hint)

    def _load(self, name: str, args: str) -> None:
        """Load a skill, then send the message."""
        reply = self._agent.load(name, args)
        if reply.error is not None:
            self._print_error(reply.error.message, reply.error.hint, exit_code(reply))
            return
        skill_name = str(reply.data.get("name", name))
        self._reports.append(TurnReport(skills=(skill_name,)))
        is_loaded = reply.data.get("already_loaded")
        message = say("is loaded already") if is_loaded else say("loaded")
        lead = [("◆ ", "cyan"), (f"{one_line(skill_name)}  ", "bold cyan")]
        self._out.line(message, "dim", indent="  ", lead=lead)
        self._run_turn(f"/{name} {args}".strip())

    def _run_turn(self, text: str) -> None:
        """Run one turn; Ctrl-C ends the turn, not the chat."""
        self._last_message = text
        self._writer = TurnWriter(TurnScreen(self._out))
        try:
            report = self._runner.run(self._writer.follow(self._agent, text)).report
        except KeyboardInterrupt:
            if not self._is_terminal:
                raise
            self._out.line(say("Stopped"), "dim")
            return
        self._reports.append(report)
        if report.stopped:
            self._exit_code = self._exit_code or EXIT_INCOMPLETE
            self._out.line(stop_message(report.stopped), "yellow")

    def _run_command(self, name: str, arguments: str) -> None:
        context = self._context
        if name == "help":
            self._print_help()
        elif name == "skills":
            show_list(context.satchel)
        elif name == "why" and arguments:
            goal = ["--goal", self._last_message] if self._last_message else []
            why.main([*goal, "--", arguments], obj=context, standalone_mode=False)
        elif name == "why":
            raise InvalidInput(
                say("`{name}` is missing", name="NAME"), say("Run `{command}`", command="/skills")
            )
        elif name == "reset":
            self._agent.reset()
            self._last_message = ""
            self._out.line(say("New conversation"), "dim")
        else:
            self._load(name, arguments)

    def _print_help(self) -> None:
        rows = {**_command_help(), "/SKILL": say("load a skill")}
        width = max(map(width_of, rows)) + 2
        for name, text in rows.items():
            self._out.write(f"  {self._out.paint(pad(name, width), 'cyan')}{text}\n")


def _command_help() -> dict[str, str]:
    return {
        "/help": say("Commands"),
        "/skills": say("Skills"),
        "/why NAME": say("Status"),
        "/reset": say("New conversation"),
        "/quit": say("{key} ends it", key="Ctrl-D"),
    }


class _NameCompleter(Completer):
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
        completions = {
            **_command_help(),
            **{word[0] + name: text for name, text in self._skills().items()},
        }
        for name, description in sorted(completions.items()):
            if name.startswith(word):
                yield Completion(name.split()[0], -len(word), display_meta=one_line(description))


def _make_prompt(state: str, skills: Callable[[], Mapping[str, str]]) -> PromptSession[str]:
    """Make a prompt that completes names and stores its history in the folder `state`."""
    path = os.path.join(state, "chat-history")
    history: History = InMemoryHistory()
    with suppress(OSError):
        os.makedirs(state, mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        history = FileHistory(path)
    return PromptSession(history=history, completer=_NameCompleter(skills))
