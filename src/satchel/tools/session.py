"""One conversation: what it was told, what it loaded, and what may be done in it.

Every door uses it, our own agent, each framework's adapter and the MCP server:

    session.prompt              for the system prompt: the same bytes until it is rebuilt
    session.definitions()       the tools, frozen the same way
    session.with_tail(message)  the user's message, with what is new in this turn behind it
    session.call(name, given)   a call of the model; checked, answered, never raising

A skill's text comes into the conversation once, as the result of a call. Loaded again it is only
pointed at, unless it changed or the host said that it was trimmed away.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from satchel.errors import SatchelError
from satchel.tools.covering import Place
from satchel.tools.forking import (
    forbidden_by,
    fork_fields,
    narrowed,
    narrowed_gate,
    wishes,
)
from satchel.tools.gate import Gate
from satchel.tools.holding import Held, Holding
from satchel.tools.meaning import failed_call, named_skill, revision_of, with_name
from satchel.tools.parameters import read_arguments
from satchel.tools.permits import decide
from satchel.tools.read_file import ReadFileTool
from satchel.tools.shortlisting import Shortlist, Shortlister, put_behind
from satchel.tools.skill_tool import SkillTool
from satchel.tools.telling import Telling
from satchel.tools.toolset import Toolset, make_toolset

__all__ = ["Checkpoint", "Fork", "Held", "Reach", "Session"]

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.detect import Answer
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.envelope import Envelope
    from satchel.library import Library
    from satchel.runners.base import Cancel
    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.tools.base import Tool
    from satchel.tools.engine import LocalEngine
    from satchel.tools.gate import Ruling
    from satchel.tools.holding import HoldingMark
    from satchel.tools.permits import Grant
    from satchel.tools.telling import TellingMark


class Reach(NamedTuple):
    """What a conversation can use."""

    skills: frozenset[str]
    """Names of the skills that a model may load."""
    tools: dict[str, dict[str, Any]]
    """Tools by name, described as for `mcp`; without those that are about skills."""


class Fork(NamedTuple):
    """A skill that wants a conversation of its own, and that conversation."""

    name: str
    session: Session
    reply: Envelope
    """Its text as loaded there; or why it could not be."""
    agent: str = ""
    """Which sub-agent its author wants."""
    model: str = ""
    """Which model its author wants."""


class Checkpoint(NamedTuple):
    """A conversation before a turn that may fail. Its parts are the session's own."""

    holding: HoldingMark
    telling: TellingMark


class Session:
    """One conversation with the skills of a library."""

    def __init__(
        self,
        library: Library,
        settings: Settings,
        *,
        detector: Callable[[], SelectionPipeline],
        engine: LocalEngine | None = None,
        gate: Gate | None = None,
        stack: tuple[str, ...] = (),
        holding: Holding | None = None,
        toolset: Toolset | None = None,
    ) -> None:
        """Begin; nothing is read yet. `Satchel.session` makes one.

        Args:
            library: Which skills there are.
            settings: Budget, form, and how changes are told.
            detector: Gives who chooses for the shortlist.
            engine: What runs the programs of tool skills.
            gate: Who decides about calls; nothing risky may be called without one.
            stack: Names of the skills within which it works, outermost first.
            holding: What it has loaded already.
            toolset: What it calls, when it shares that with others; else it makes its own.
        """
        self._library = library
        self._settings = settings
        self._detector = detector
        self._engine = engine
        self._stack = stack
        self.trace = library.trace
        self._gate = gate or Gate(self.trace)
        self._lock = threading.RLock()
        self._toolset = toolset
        self._shortlister: Shortlister | None = None
        self._holding = holding or Holding(library)
        self._telling = Telling(
            library, settings, self._tools, self._gate.offers, self._holding.edited
        )

    # --- what the model is told -----------------------------------------------------------

    @property
    def prompt(self) -> str:
        """Rules and list of skills for the system prompt; empty when there are no skills.

        The same bytes in every request, until a change makes it necessary to build it again.
        """
        return self._telling.current().prompt

    def definitions(
        self, provider: str = "anthropic", *, catalogue: bool = False
    ) -> list[dict[str, Any]]:
        """The tools as a provider wants them described, frozen together with the prompt.

        Args:
            provider: `anthropic`, `openai`, `openai-responses`, `gemini`, `bedrock` or `mcp`.
            catalogue: Whether the description of `Skill` has the list; for hosts without a system
                prompt of their own.

        Raises:
            InvalidInput: nobody knows that provider.
        """
        return self._telling.definitions(provider, catalogue=catalogue)

    def told(
        self, provider: str = "anthropic", *, catalogue: bool = False
    ) -> tuple[str, list[dict[str, Any]]]:
        """`prompt` and `definitions` together, by one look at the disk."""
        return self._telling.both(provider, catalogue=catalogue)

    @property
    def names(self) -> tuple[str, ...]:
        """What can be called now."""
        return self._telling.names()

    def offers(self, tool: str) -> bool:
        """Whether a tool, also one of the host's, is meant for this conversation at all."""
        return self._gate.offers(tool)

    def within_reach(self) -> Reach:
        """What may be planned with: skills that can be loaded, and tools whose calls can succeed.

        A tool that needs a person's word is no such tool where nobody can be asked. Whether one
        call is allowed is still decided when it is made.
        """
        tools = self._tools()
        found: dict[str, dict[str, Any]] = {}
        for one in tools.definitions("mcp", catalogue=False):
            name = str(one["name"])
            tool = tools.find(name)
            if tool is not None and not tool.about_skills and self._gate.may_succeed(name, tool):
                found[name] = one
        look = self._telling.look()
        skills = look.for_model if self._gate.offers(SkillTool.name) else ()
        return Reach(frozenset(skill.name for skill in skills), found)

    def which(
        self, goal: str, *, limit: int, use: Sequence[str] = (), never: Sequence[str] = ()
    ) -> Answer:
        """The skills for a goal, of those that can be loaded here; the choice is recorded.

        Args:
            goal: What somebody wants.
            limit: How many at most.
            use: Choose these, by name, whatever the goal says.
            never: Do not choose these.

        Raises:
            InvalidInput: the goal is no text, the limit is no number that is at least 1, or a skill
                is in both lists.
        """
        from satchel.tools.selecting import select
        from satchel.tools.waiting import put_right

        look = self._telling.look()
        skills = look.for_model if self._gate.offers(SkillTool.name) else ()
        detector = self._detector().overriding(use, never)

        def amend(answer: Answer) -> Answer:
            return put_right(answer, goal, detector, look, self._settings, never)

        return select(detector, goal, skills, self.trace, limit=limit, amend=amend)

    def shortlist(self, message: str) -> Shortlist:
        """The skills that may fit a message; none for who cannot load any. It never raises."""
        if not self._gate.offers(SkillTool.name):
            return Shortlist("", reason="`Skill` cannot be called here")
        if self._shortlister is None:
            self._shortlister = Shortlister(
                self._library, self._settings, self._detector, self.trace
            )
        return self._shortlister.make(message)

    def news(self) -> str:
        """What changed in the library since the model was told, once; empty when nothing did."""
        return self._telling.news()

    def tail(self, message: str) -> str:
        """What stands behind this message of the user: what changed, and what may fit it.

        Keep the message with it in the history as it was sent: made anew later, it may differ.
        """
        return "\n\n".join(part for part in (self.news(), self.shortlist(message).text) if part)

    @overload
    def with_tail(self, message: str) -> str: ...
    @overload
    def with_tail(self, message: list[dict[str, Any]]) -> list[dict[str, Any]]: ...
    def with_tail(self, message: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """The user's message with its tail: a text, or a list of content blocks.

        Raises:
            InvalidInput: it is neither.
        """
        return put_behind(message, lambda text: Shortlist(self.tail(text)))

    def rebuild(self) -> bool:
        """Tell the library as it is now from the next request on; True when that is different."""
        return self._telling.rebuild()

    def _tools(self) -> Toolset:
        with self._lock:
            if self._toolset is None:
                made = make_toolset(
                    self._library,
                    self._settings,
                    trace=self.trace,
                    detector=self._detector(),
                    engine=self._engine,
                )
                self._toolset = made.within(*self._stack) if self._stack else made
            return self._toolset

    # --- what it calls --------------------------------------------------------------------

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        cancel: Cancel | None = None,
        as_person: bool = False,
        key: str = "",
    ) -> Envelope:
        """Call a tool. Whatever is wrong, or not allowed, comes back as an envelope.

        Args:
            name: Which tool.
            arguments: Its arguments, as a table or as JSON text.
            cancel: How the call is taken back while a program runs.
            as_person: A person asks, not a model: nobody else is asked.
            key: What a program is told to know this call by, when it may be made again.
        """
        try:
            table = self._meant(name, arguments)
            tool: Tool | None = None
            if not as_person:
                ruling = self._gate.settle(lambda: self._judge(name, table))
                if not ruling.go:
                    return self._refused(ruling)
                tool = ruling.tool
            return self._do(name, table, cancel, tool=tool, as_person=as_person, key=key)
        except SatchelError as exc:
            return failed_call(exc, arguments)

    async def acall(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        as_person: bool = False,
        key: str = "",
    ) -> Envelope:
        """The same in a worker thread; when the task is cancelled, a running program ends."""
        import asyncio
        from contextlib import suppress

        from satchel.tools.base import TakenBack

        tool: Tool | None = None
        try:
            table = await asyncio.to_thread(self._meant, name, arguments)
            if not as_person:
                ruling = await self._gate.asettle(lambda: self._judge(name, table))
                if not ruling.go:
                    return await asyncio.to_thread(self._refused, ruling)
                tool = ruling.tool
        except SatchelError as exc:
            return failed_call(exc, arguments)
        back = TakenBack()

        def work() -> Envelope:
            try:
                return self._do(name, table, back, tool=tool, as_person=as_person, key=key)
            except SatchelError as exc:
                return failed_call(exc, arguments)
            finally:
                back.close()

        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            back.set()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({running}, timeout=5)
            raise

    def permit(
        self, name: str, arguments: Mapping[str, Any] | str | None = None
    ) -> Envelope | None:
        """Ask whether a call may be made, of a tool of the host's too; None when it may.

        Raises:
            InvalidInput: the arguments are no object.
        """
        table = self._meant(name, arguments)
        ruling = self._gate.settle(lambda: self._judge(name, table))
        return None if ruling.go else self._refused(ruling)

    async def apermit(
        self, name: str, arguments: Mapping[str, Any] | str | None = None
    ) -> Envelope | None:
        """The same without holding up the loop; the person may be asked asynchronously."""
        import asyncio

        table = await asyncio.to_thread(self._meant, name, arguments)
        ruling = await self._gate.asettle(lambda: self._judge(name, table))
        return None if ruling.go else await asyncio.to_thread(self._refused, ruling)

    def _meant(self, name: str, arguments: Any) -> dict[str, Any]:
        """The arguments; a call of Skill names its skill as the library does."""
        table = read_arguments(arguments)
        return with_name(table, self._named(table)) if name == SkillTool.name else table

    def _named(self, table: Mapping[str, Any]) -> Skill | None:
        """The skill that a call of Skill will load; the disk is read only where needed."""
        looks = (self._library.snapshot, self._telling.look)
        return named_skill(table, looks, self._settings.project)

    def _judge(self, name: str, table: dict[str, Any]) -> Ruling:
        tool = self._tools().find(str(name))
        grants = self._holding.grants()
        seen = tool.meant(table) if isinstance(tool, ReadFileTool) else table
        place = Place(self._settings.project)
        found = self._gate.judge(
            str(name),
            seen,
            tool,
            grants,
            place=place,
            revision=lambda: revision_of(self._library, str(name)),
        )
        if isinstance(tool, ReadFileTool) and found.verdict.answer != "no":
            # Whoever may not load a skill does not read its instructions as a file.
            skill = tool.instructions_of(seen)
            if skill is not None:
                named = {"name": skill.name}
                rules = (*self._gate.inherited(), *grants)
                load = decide(SkillTool.name, named, risky=False, grants=rules, place=place)
                if load.answer == "no":
                    found = found._replace(verdict=load)
        return found._replace(ask=found.ask._replace(arguments=table))

    def _refused(self, ruling: Ruling) -> Envelope:
        verdict, why = ruling.verdict, ruling.why
        known = self.names if verdict.answer == "no" and not verdict.pattern else ()
        return self._gate.refused(ruling.ask, verdict, why if isinstance(why, str) else "", known)

    def _do(
        self,
        name: str,
        table: dict[str, Any],
        cancel: Cancel | None,
        *,
        tool: Tool | None = None,
        as_person: bool = False,
        key: str = "",
    ) -> Envelope:
        """Call it.

        Args:
            name: Which tool.
            table: Its arguments.
            cancel: How it is taken back.
            tool: The very tool that was judged: no other of that name is run in its place.
            as_person: Whether a person asks.
            key: Names the call to a program.
        """
        tools = self._tools() if tool is None else self._only(tool)
        loaded = self._holding.folders()
        reply = tools.call(name, table, cancel=cancel, as_person=as_person, key=key, loaded=loaded)
        if name != SkillTool.name or reply.error is not None:
            return reply
        return self._holding.keep(reply)

    def _only(self, tool: Tool) -> Toolset:
        return Toolset((tool,), self._library, self._settings, self.trace, stack=self._stack)

    # --- what it loaded -------------------------------------------------------------------

    @property
    def loaded(self) -> Mapping[str, Held]:
        """The skills that were loaded in this conversation, by name, in that order."""
        return self._holding.all

    def forget(self, *names: str) -> None:
        """Say that the text of skills left the history; of all of them when none is named.

        They may be loaded again in full. What they allow ends; what they forbid stays. When none is
        named, everything went: what was told about changes too.
        """
        self._holding.forget(names)
        if not names:
            self._telling.forget_news()

    def drop(self, *names: str) -> None:
        """Lay skills aside: what they forbid ends too. A person's decision, never a model's."""
        self._holding.drop(names)

    def reminder(self, *names: str) -> str:
        """What stands in place of history that was trimmed: each loaded skill, and the way back.

        Args:
            names: Which ones; all that were loaded when none is named.
        """
        return self._holding.reminder(names)

    def reminder_due(self) -> str:
        """The reminder of forgotten skills that the model was not reminded of; empty when none.

        It comes once, until one of them is forgotten again: then the reminder was trimmed away.
        """
        return self._holding.reminder_due()

    def forget_news(self) -> None:
        """Say that a note about changes left the history: it is told again with the next ones."""
        self._telling.forget_news()

    # --- turns that fail ------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        """What the conversation is before a turn. When the turn goes well, let it go."""
        return Checkpoint(self._holding.mark(), self._telling.mark())

    def restore(self, checkpoint: Checkpoint) -> None:
        """The turn came to nothing: what was told in it was read by nobody, what it loaded went.

        News come again, and skills are loaded as they were before it.
        """
        self._holding.restore(checkpoint.holding)
        self._telling.restore(checkpoint.telling)

    # --- conversations within it ----------------------------------------------------------

    def child(
        self,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        tools: Sequence[str] | None = None,
        within: str = "",
    ) -> Session:
        """A sub-agent's session. It has what passes here and there, never more than this one.

        Args:
            include: Only skills whose name or id matches one of these patterns; all when empty.
            exclude: No skill that matches one of these.
            tools: Patterns of the tools it may call; all that can be called here when None.
            within: The skill for which it works, so that skills do not load each other for ever.
        """
        return self._child(include, exclude, tools, within)

    def _child(
        self,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        tools: Sequence[str] | None = None,
        within: str = "",
        holding: Holding | None = None,
    ) -> Session:
        return Session(
            narrowed(self._library, include, exclude),
            self._settings,
            detector=self._detector,
            engine=self._engine,
            gate=narrowed_gate(self._gate, self.trace, tools, self._forbidden),
            stack=(*self._stack, within) if within else self._stack,
            holding=holding,
        )

    def _forbidden(self) -> list[Grant]:
        """What is forbidden here now, and so in every conversation within this one."""
        return [*self._gate.inherited(), *forbidden_by(self.loaded.values())]

    def wants_fork(
        self, arguments: Mapping[str, Any] | str | None, *, as_person: bool = False
    ) -> bool:
        """Whether a call of Skill names a skill with `context: fork`."""
        return self._fork_fields(arguments, as_person=as_person) is not None

    def fork(
        self,
        arguments: Mapping[str, Any] | str | None,
        *,
        agents: Mapping[str, Mapping[str, Any]] | None = None,
        as_person: bool = False,
    ) -> Fork | None:
        """A conversation of its own for a skill with `context: fork`; None for any other call.

        Nobody is asked: the host has asked `permit` before, as for any call.

        Args:
            arguments: Those of the call of Skill.
            agents: What sub-agents are held to, by name: the arguments of `child`. It counts when
                the skill's `agent` is one of them.
            as_person: A person asks, not a model.
        """
        fields = self._fork_fields(arguments, as_person=as_person)
        if fields is None:
            return None
        agent, model = wishes(fields)
        first = self._child()
        try:
            table = self._meant(SkillTool.name, arguments)
            reply = first._do(SkillTool.name, table, None, as_person=as_person)  # noqa: SLF001 - of the same class
        except SatchelError as exc:
            reply = failed_call(exc, arguments)
        name = next(iter(first.loaded), "")
        limits: dict[str, Any] = dict((agents or {}).get(agent, {}))
        child = first._child(**limits, within=name, holding=first._holding)  # noqa: SLF001 - same
        return Fork(name, child, reply, agent, model)

    def _fork_fields(self, arguments: Any, *, as_person: bool) -> Mapping[str, Any] | None:
        """The frontmatter of a skill that is to be loaded and wants to fork."""
        try:
            skill = self._named(read_arguments(arguments))
            return skill and fork_fields(self._library, skill, as_person=as_person)
        except SatchelError:
            return None  # the call itself will say what is wrong
