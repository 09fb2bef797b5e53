"""How does a chat go? A message, a turn, the next message, until the person leaves."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING

from satchel._language import say
from satchel.agent.records import TurnDone
from satchel.cli.chat.keys import unseen_keys
from satchel.cli.chat.models import choose_model, hear_retries, make_agent, surely_there
from satchel.cli.chat.orders import ORDERS, Leave, meanings, obey, read_order, unknown
from satchel.cli.chat.telling import Sum, Teller, told_arguments, told_report, told_stop
from satchel.cli.output import clean, complain, one_line
from satchel.cli.session import exit_code
from satchel.errors import Changed, InternalError, InvalidInput, SatchelError
from satchel.retelling import retell

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from satchel.agent import Agent, Limits
    from satchel.cli.chat.prompting import Prompter
    from satchel.cli.chat.telling import Board
    from satchel.cli.session import Session
    from satchel.tools.gate import Approve, Ask

_TICK = 0.1
"""Seconds between two drawings."""
_CHECKED = 200
"""Skills whose approval is checked for the header; `/skills` checks all of them."""
_LIMITED = 8
"""The exit code when a limit ended a turn, as `satchel run` has it."""
_YES = frozenset(("y", "yes", "是"))
_ALWAYS = frozenset(("a", "always", "总是"))
_NO = frozenset(("", "n", "no", "否"))


class Conversation:
    """One chat at a terminal, or in a pipe."""

    def __init__(
        self,
        terminal: Session,
        model: str,
        *,
        yes: bool = False,
        ask: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> None:
        """Be ready; the agent is made by `run`, while the person types.

        Args:
            terminal: The screens and the project.
            model: Who answers.
            yes: Whether every tool may be called.
            ask: Patterns of further tools that need the person's word.
            limits: What each turn may take.
        """
        self.terminal = terminal
        self.out = terminal.out
        self.model = model
        self.sum = Sum()
        self.last = ""
        """What the person said last."""
        self.by_hand: list[str] = []
        """Skills that the person loaded."""
        self._person = sys.stdin.isatty() and self.out.is_terminal
        self._always: set[str] = set()
        self._ask = tuple(ask)
        self._limits = limits
        self._approve: Approve = True if yes else self._asked if self._person else None
        self._board = self._make_board()
        self._prompter = self._make_prompter() if self._person else None
        self._turn: asyncio.Task[None] | None = None
        self._stopped = False
        self._unasked = asyncio.Event()
        self._unasked.set()
        self._made: Agent | None = None
        self._failed = 0
        self._again = ""
        """What came to nothing; the next prompt has it."""

    @property
    def agent(self) -> Agent:
        """Who answers; there from the first message on."""
        if self._made is None:
            raise InternalError("The agent is asked before it is made")
        return self._made

    def skills(self) -> dict[str, str]:
        """The skills that a person may load, and what they are for."""
        return {
            skill.name: skill.description
            for skill in self.terminal.satchel.list_skills()
            if not skill.is_tool
        }

    def tools(self) -> dict[str, str]:
        """The tool skills, which models call, and what they are for."""
        found = self.terminal.satchel.library.tools().only()
        return {
            one.skill.name: one.skill.description for one in found if one.skill.state == "active"
        }

    def changed(self, most: int | None = None) -> list[str]:
        """The skills that are not any more what was approved; models do not get them.

        Args:
            most: How many of the offered ones are looked at; all of them when None.
        """
        library = self.terminal.satchel.library
        asking = {*library.snapshot().asking, *library.tools().asking}
        found = [skill.name for skill in library.every() if skill.ref in asking]
        for skill in self.terminal.satchel.list_skills()[:most]:
            try:
                library.seals.check(skill, strict=False, clean=False)
            except Changed:
                found.append(skill.name)
            except SatchelError:
                continue  # said when it is loaded
        return list(dict.fromkeys(found))

    def broken(self) -> list[str]:
        """What should be a skill and cannot be read as one."""
        from satchel.library.broken import find_broken

        library = self.terminal.satchel.library
        problems = (*library.snapshot().problems, *library.tools().problems)
        return [one.name for one in find_broken(problems, library.locations)]

    def take_model(self, name: str) -> None:
        """Let another model carry the conversation on.

        Raises:
            SatchelError: it cannot be had; the one before stays.
        """
        name = choose_model(self.terminal, name)
        self._made = self._make(name, self._made)
        self.model = name

    def _make(self, name: str, like: Agent | None = None) -> Agent:
        return make_agent(
            self.terminal,
            name,
            limits=self._limits,
            approve=self._approve,
            ask=self._ask,
            like=like,
        )

    async def run(self) -> int:
        """Talk until the person leaves, then say what it took.

        Returns:
            The exit code: in a pipe that of the first message that came to nothing.

        Raises:
            SatchelError: the model cannot be had.
        """
        if not surely_there(self.model):  # better no prompt than one that leads nowhere
            self._made = self._make(self.model)
        self._greet()
        try:
            with contextlib.suppress(Leave, EOFError):
                text = await self._first()
                while True:
                    await self._once(text)
                    text = await self._message()
            self._farewell()
            return 0 if self._person else self._failed
        finally:
            if self._made is not None:
                self._made.close()

    async def _first(self) -> str:
        """The first message. The packages of a model take a second, in which one can type."""
        if self._made is not None:
            return await self._message()
        making = asyncio.ensure_future(asyncio.to_thread(self._make, self.model))
        typing = asyncio.ensure_future(self._message())
        try:
            await asyncio.wait({making, typing}, return_when=asyncio.FIRST_COMPLETED)
            if typing.done():
                self._board.open()
                self._board.busy(say("getting ready"))
                with self._ticking(), unseen_keys():
                    await asyncio.wait({making})
            self._made = await making
            self._board.close()
            return await typing
        finally:
            self._board.close()
            if not typing.done():
                typing.cancel()
                with contextlib.suppress(asyncio.CancelledError, EOFError):
                    await typing

    # --- one message ----------------------------------------------------------------------

    async def _message(self) -> str:
        """What the person says next.

        Raises:
            EOFError: there is no more.
        """
        if self._prompter is not None:
            try:
                again, self._again = self._again, ""
                return await self._prompter.message(again)
            except KeyboardInterrupt:
                self.out.line(say("Ctrl-D ends the chat"), "dim")
                return ""
        line = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            raise EOFError
        if line.strip():  # so that what is written can be read later
            self.out.write(f"{self.out.paint('>', 'bold cyan')} {clean(line.strip())}\n")
        return line.rstrip("\n")

    async def _once(self, text: str) -> None:
        if not text.strip():
            return
        try:
            order = read_order(text)
            if order is None:
                await self._say(text)
            elif order[0] in ORDERS:
                obey(self, *order)
            elif order[0] in self.tools():
                raise InvalidInput(
                    say("`/{name}` is a tool skill: models call it", name=one_line(order[0])),
                    say("Say what you want done; `/tools` shows what there is"),
                )
            elif order[0] in self.skills() or self.terminal.satchel.get_skill(order[0]):
                await self._load(*order)
            else:
                raise unknown(self, *order)
        except SatchelError as exc:
            self._failed = self._failed or exc.exit_code
            self.out.stream.flush()
            complain(retell(exc.message), retell(exc.hint), self.terminal.colour)
            if self._again:
                self.terminal.err.line(
                    say("Your message is kept: Enter sends it again. "
                        "`/model NAME` lets another model answer"),
                    "dim",
                )  # fmt: skip
        self.out.line()

    async def _load(self, name: str, args: str) -> None:
        """`/name args`: the person loads the skill, and says what it is for."""
        reply = await asyncio.to_thread(self.agent.load, name, args)
        if reply.error is not None:
            hint = reply.text.removeprefix(reply.error.message).lstrip(". ").rstrip(".")
            self.out.stream.flush()
            complain(retell(reply.error.message), retell(hint), self.terminal.colour)
            self._failed = self._failed or exit_code(reply)
            return
        loaded = str(reply.data.get("name", name))
        if loaded not in self.by_hand:
            self.by_hand.append(loaded)
        again = reply.data.get("already_loaded")
        words = say("is loaded already") if again else say("loaded by you")
        mark, shown = self.out.paint("◆", "cyan"), self.out.paint(one_line(loaded), "bold cyan")
        self.out.write(f"  {mark} {shown}  {self.out.paint(words, 'dim')}\n")
        await self._say(f"/{name} {args}".strip())

    async def _say(self, text: str) -> None:
        """One turn. Ctrl-C ends it, and not the chat."""
        self.last = text
        self._stopped = False
        self._turn = asyncio.ensure_future(self._listen(text))
        with self._interrupts(), unseen_keys(), self._ticking(), hear_retries(self._retrying):
            try:
                await self._turn
            except SatchelError:
                if self._person:
                    self._again = text
                raise
            except asyncio.CancelledError:
                self._board.close()
                if not self._stopped:
                    raise
                self.sum.uncounted += 1
                self.out.line(say("Stopped. The model does not know of this turn"), "dim")
            finally:
                self._board.close()
                self._turn = None

    def _retrying(self, why: str) -> None:
        self._board.aside(why)

    async def _listen(self, text: str) -> None:
        teller = Teller(self._board)
        self._board.open()
        async for event in self.agent.stream(text):
            if isinstance(event, TurnDone):
                self._board.close()
                self.sum.add(event.report)
                if event.report.stopped:
                    self._failed = self._failed or _LIMITED
                    self.out.line(told_stop(event.report.stopped), "yellow")
            else:
                await self._unasked.wait()  # nothing is written across a question
                teller.tell(event)

    @contextlib.contextmanager
    def _ticking(self) -> Generator[None]:
        """Let the board draw what moves."""

        async def tick() -> None:
            while True:
                await asyncio.sleep(_TICK)
                self._board.tick()

        ticking = asyncio.ensure_future(tick())
        try:
            yield
        finally:
            ticking.cancel()

    @contextlib.contextmanager
    def _interrupts(self) -> Generator[None]:
        """Let Ctrl-C cancel the turn while it runs."""
        self._catch()
        try:
            yield
        finally:
            with contextlib.suppress(NotImplementedError, ValueError):
                asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    def _catch(self) -> None:
        if not self._person:
            return  # in a pipe Ctrl-C ends everything, as usual
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stop)

    def _stop(self) -> None:
        if self._turn is not None:
            self._stopped = True
            self._turn.cancel()

    # --- asking ---------------------------------------------------------------------------

    async def _asked(self, ask: Ask) -> bool:
        """Whether the person agrees to a call; the answer may hold for the whole chat."""
        if ask.tool in self._always:
            return True
        prompter = self._prompter
        if prompter is None:
            return False
        self._unasked.clear()
        self._board.close()
        self.out.line(one_line(ask.question), "", "  ", lead=[("? ", "bold yellow")])
        if shown := told_arguments(ask.arguments):
            self.out.line(shown, "dim", "    ")
        try:
            return await self._answer(prompter, ask)
        finally:
            self._catch()  # the question had Ctrl-C for itself
            self._board.open()
            self._unasked.set()

    async def _answer(self, prompter: Prompter, ask: Ask) -> bool:
        question = say("  y yes, n no, a always in this chat: ")
        while True:
            try:
                said = (await prompter.answer(question)).strip().lower()
            except EOFError:
                return False
            except KeyboardInterrupt:
                self._stop()
                return False
            if said in _ALWAYS:
                self._always.add(ask.tool)
                return True
            if said in _YES or said in _NO:
                return said in _YES
            words = say("Type `y`, `n` or `a`, then Enter; Ctrl-C stops the turn")
            self.out.line(words, "yellow", "  ")

    # --- the frame ------------------------------------------------------------------------

    def _greet(self) -> None:
        names = list(self.skills())
        count = say("1 skill") if len(names) == 1 else say("{count} skills", count=len(names))
        parts = [one_line(self.model), count]
        if tools := len(self.tools()):
            parts.append(
                say("1 tool skill") if tools == 1 else say("{count} tool skills", count=tools)
            )
        if changed := len(self.changed(_CHECKED)):
            parts.append(say("{count} changed: `satchel trust`", count=changed))
        if broken := len(self.broken()):
            parts.append(say("{count} broken: `satchel doctor`", count=broken))
        if self._approve is True:
            parts.append(say("every tool may be called"))
        elif self._approve is None:
            parts.append(say("nobody is asked: risky tools are refused"))
        keys = [say("/help"), say("Ctrl-D ends")] if self._person else []
        self.out.line(" · ".join([*parts, *keys]), "dim", lead=[("satchel chat ", "bold")])
        self.out.line()

    def _farewell(self) -> None:
        if not self.sum.reports and not self.sum.uncounted:
            return
        for line in told_report(self.sum.total, self.by_hand, self.sum.uncounted):
            self.out.line(line, "dim")

    def _make_board(self) -> Board:
        if self.out.colour:
            from satchel.cli.chat.markdown import MarkdownBoard

            return MarkdownBoard(self.out)
        from satchel.cli.chat.plain import PlainBoard

        return PlainBoard(self.out, self.terminal.err)

    def _make_prompter(self) -> Prompter:
        from satchel.cli.chat.prompting import Names, Prompter

        return Prompter(
            self.terminal.satchel.settings.paths.state,
            Names(meanings(), self.skills, self.tools),
            colour=self.out.colour,
        )
