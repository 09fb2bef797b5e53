"""The loop of `satchel chat`: a message, a turn, the next message, until the person leaves."""

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

from satchel._language import render, say
from satchel.agent.records import TurnReport
from satchel.cli.chat.models import choose_model, make_agent
from satchel.cli.chat.telling import STOPPED, Board, Teller, told_arguments, told_report, told_stop
from satchel.cli.explaining import why
from satchel.cli.listing import show_list
from satchel.cli.output import clean, complain, one_line, pad, width_of
from satchel.cli.session import exit_code
from satchel.cli.tooling import tools
from satchel.errors import InvalidInput, SatchelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History

    from satchel.agent import Limits
    from satchel.cli.session import Session
    from satchel.tools.gate import Approve, Ask

_YES = frozenset(("y", "yes", "是"))
_ALWAYS = frozenset(("a", "always", "总是"))
_ORDER = re.compile(r"/([\w:.-]+)(?:\s+(.*))?\Z", re.DOTALL).match
"""`/etc/hosts` is a path and no order."""


class Conversation:
    """One chat at a terminal, or in a pipe."""

    def __init__(
        self, session: Session, model: str, limits: Limits, asked: tuple[str, ...], *, yes: bool
    ) -> None:
        """Prepare the chat; tools that match `asked` need approval too, none does with `yes`."""
        self._session = session
        self._out = session.out
        self._model = model
        self._person = sys.stdin.isatty() and self._out.is_terminal
        self._approve: Approve = True if yes else self._asked if self._person else None
        self._given: dict[str, Any] = {"limits": limits, "approve": self._approve, "ask": asked}
        self._agent = make_agent(session, model, **self._given)
        self._teller = Teller(Board(self._out))
        self._runner = asyncio.Runner()  # one loop: the connections to the provider belong to it
        self._always: set[str] = set()
        self._reports: list[TurnReport] = []
        self._last = ""
        self._failed = 0

    def run(self) -> int:
        """Talk until the person leaves; the exit code is that of the first failure in a pipe."""
        self._greet()
        with self._runner, closing(self._agent):
            for text in self._messages():
                if text.strip() == "/quit":
                    break
                self._once(text)
        for line in told_report(*self._reports) if self._reports else ():
            self._out.line(line, "dim")
        return 0 if self._person else self._failed

    def _greet(self) -> None:
        count = sum(skill.source != "builtin" for skill in self._session.satchel.list_skills())
        parts = [
            one_line(self._model),
            say("1 skill") if count == 1 else say("{count} skills", count=count),
        ]
        if self._approve is True:
            parts.append(say("every tool may be called"))
        elif self._approve is None:
            parts.append(say("not a terminal: risky tools are refused"))
        keys = [say("/help"), say("Ctrl-D ends")] if self._person else []
        self._out.line(" · ".join([*parts, *keys]), "dim", lead=[("satchel chat ", "bold")])
        self._out.line()

    def _skills(self) -> dict[str, str]:
        """What each skill that a person may load is for."""
        found = self._session.satchel.list_skills()
        return {skill.name: skill.description for skill in found if not skill.is_tool}

    def _messages(self) -> Iterator[str]:
        if not self._person:
            for line in filter(str.strip, sys.stdin):
                self._out.write(f"{self._out.paint('>', 'bold cyan')} {clean(line.strip())}\n")
                yield line
            return
        prompt = _make_prompt(self._session.satchel.settings.paths.state, self._skills)
        while True:
            try:
                text = prompt.prompt("> ")
            except EOFError:
                return
            except KeyboardInterrupt:
                self._out.line(say("Ctrl-D ends the chat"), "dim")
                continue
            if text.strip():
                yield text

    def _once(self, text: str) -> None:
        order = _ORDER(text.rstrip())
        try:
            if order is None:
                self._say(text.strip())
            else:
                self._obey(order[1], order[2] or "")
        except SatchelError as exc:
            self._complain(exc.message, exc.hint, exc.exit_code)
        self._out.line()

    def _complain(self, message: str, hint: str, code: int) -> None:
        self._failed = self._failed or code
        self._out.stream.flush()
        complain(render(message), render(hint), self._session.colour)

    def _load(self, name: str, args: str) -> None:
        """Load a skill for the person, and send the message."""
        reply = self._agent.load(name, args)
        if reply.error is not None:
            self._complain(reply.error.message, reply.error.hint, exit_code(reply))
            return
        loaded = str(reply.data.get("name", name))
        self._reports.append(TurnReport(skills=(loaded,)))
        again = reply.data.get("already_loaded")
        words = say("is loaded already") if again else say("loaded by you")
        lead = [("◆ ", "cyan"), (f"{one_line(loaded)}  ", "bold cyan")]
        self._out.line(words, "dim", "  ", lead=lead)
        self._say(f"/{name} {args}".strip())

    def _say(self, text: str) -> None:
        """Run one turn. Ctrl-C ends it, and not the chat."""
        self._last = text
        self._teller = Teller(Board(self._out))
        try:
            report = self._runner.run(self._teller.follow(self._agent, text)).report
        except KeyboardInterrupt:
            if not self._person:
                raise
            words = say("Stopped. The model does not know of this turn, and it is not counted")
            self._out.line(words, "dim")
            return
        self._reports.append(report)
        if report.stopped:
            self._failed = self._failed or STOPPED
            self._out.line(told_stop(report.stopped), "yellow")

    async def _asked(self, asked: Ask) -> bool:
        """Whether the person agrees to a call; the answer may hold for the whole chat."""
        async with self._teller.free:
            if asked.tool in self._always:
                return True
            self._teller.board.close()
            self._out.line(one_line(asked.question), "", "  ", lead=[("? ", "bold yellow")])
            self._out.line(told_arguments(asked.arguments), "dim", "    ")
            said = ""
            try:
                said = (await _ask(say("  y yes, n no, a always in this chat: "))).strip().lower()
            except EOFError:
                pass  # as much as no
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)  # the runner cancels the turn
            if said in _ALWAYS:
                self._always.add(asked.tool)
            self._teller.board.open()
            return said in _YES | _ALWAYS

    def _obey(self, name: str, rest: str) -> None:
        session = self._session
        if name == "help":
            self._help()
        elif name == "skills":
            show_list(session.satchel, colour=session.colour)
        elif name == "tools":
            tools.main([], obj=session, standalone_mode=False)
        elif name == "why" and rest:
            goal = ["--goal", self._last] if self._last else []
            why.main([*goal, "--", rest], obj=session, standalone_mode=False)
        elif name == "why":
            raise InvalidInput(say("`/why` needs the name of a skill"), say("Try `/skills`"))
        elif name == "model":
            if rest:
                chosen, before = choose_model(session, rest), self._agent
                self._agent = make_agent(session, chosen, session=before.session, **self._given)
                self._agent.history, self._model = before.history, chosen
            self._out.line(say("{name} answers", name=one_line(self._model)))
        elif name == "reset":
            self._agent.reset()
            self._last = ""
            self._out.line(say("A new conversation begins; nothing is loaded"), "dim")
        else:
            self._load(name, rest)

    def _help(self) -> None:
        rows = {
            **_orders(),
            say("/SKILL words"): say("load a skill yourself, and say what it is for"),
            say("$SKILL"): say("name a skill within a message"),
            "Ctrl-C": say("stop the answer, and stay"),
        }
        width = max(map(width_of, rows)) + 2
        for first, text in rows.items():
            self._out.write(f"  {self._out.paint(pad(first, width), 'cyan')}{text}\n")


def _orders() -> dict[str, str]:
    """What each order does."""
    return {
        "/help": say("show this"),
        "/skills": say("the skills that are offered here"),
        "/tools": say("the tools that models may call"),
        "/why NAME": say("how a skill did for your last message, and its whole story"),
        "/model [NAME]": say("who answers; with a name: who answers from now on"),
        "/reset": say("begin a new conversation"),
        "/quit": say("end the chat, as Ctrl-D does"),
    }


class _Names(Completer):
    """Completes `/name` at the start of a message, and `$name` anywhere."""

    def __init__(self, skills: Callable[[], Mapping[str, str]]) -> None:
        self._skills = skills

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """The names that begin like the word before the cursor."""
        del complete_event
        word = document.get_word_before_cursor(WORD=True)
        if not word.startswith("$") and not (word.startswith("/") and document.text == word):
            return
        known = {**_orders(), **{word[0] + name: text for name, text in self._skills().items()}}
        for name, about in sorted(known.items()):
            if name.startswith(word):
                yield Completion(name.split()[0], -len(word), display_meta=one_line(about))


def _make_prompt(state: str, skills: Callable[[], Mapping[str, str]]) -> PromptSession[str]:
    """A prompt that completes names, and keeps its history in the folder `state`."""
    path = os.path.join(state, "chat-history")
    history: History = InMemoryHistory()
    with suppress(OSError):
        os.makedirs(state, mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        history = FileHistory(path)
    return PromptSession(history=history, completer=_Names(skills))


async def _ask(question: str) -> str:
    """The answer to a question. Keys that were pressed before it do not count."""
    prompt: PromptSession[str] = PromptSession()
    with suppress(ImportError):  # not on Windows
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    clear_typeahead(prompt.input)
    return await prompt.prompt_async(question, handle_sigint=False)
