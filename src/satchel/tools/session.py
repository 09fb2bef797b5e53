"""One conversation: what it was told, what it loaded, and what may be done in it.

The only way to call tools; the agent, each framework's adapter and the MCP server use it:

    session.prompt              for the system prompt: the same bytes until it is rebuilt
    session.definitions()       the tools, frozen the same way
    session.with_tail(message)  the user's message, with what is new in this turn behind it
    session.call(name, given)   a call of the model; checked, answered, never raising

What touches the disk has an asynchronous twin: `aprompt`, `adefinitions`, `awith_tail`, `acall`.

A skill's text comes into the conversation once, as the result of a call. Loaded again it is only
pointed at, unless it changed or the host said that it was trimmed away.

The disk is searched for changes once per turn. A turn begins with `tail` or `with_tail`; for a host
that uses neither, with each `prompt` and `definitions`. Within a turn it is searched again only
when a folder of skills got or lost an entry, or a call names a skill or tool that is not known.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, overload

from satchel.errors import InvalidInput, SatchelError
from satchel.library.narrowed import NarrowedLibrary, narrowed
from satchel.tools.base import Resolved
from satchel.tools.covering import Place
from satchel.tools.gate import Gate
from satchel.tools.loaded import Held, LoadedSkills
from satchel.tools.parameters import read_arguments
from satchel.tools.permits import as_patterns, decide
from satchel.tools.prompt import SessionPrompt
from satchel.tools.read_file import ReadFileTool
from satchel.tools.script_tools import revision_of
from satchel.tools.skill_tool import LoadedSkill, SkillTool
from satchel.tools.state import STATE_VERSION
from satchel.tools.toolset import failed_call, make_toolset

__all__ = ["Checkpoint", "Fork", "Held", "Reach", "Session"]

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.detect import Answer
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.runners.base import Cancel
    from satchel.settings import Settings
    from satchel.tools.base import Call
    from satchel.tools.engine import LocalEngine
    from satchel.tools.gate import Ruling
    from satchel.tools.permits import Grant
    from satchel.tools.prompt import PromptMark
    from satchel.tools.shortlisting import Shortlist, Shortlister
    from satchel.tools.toolset import Provider, Toolset

    Arguments = Mapping[str, Any] | str | Resolved | None
    """As a table, as JSON text, or as `Session.resolve` gave them."""


T = TypeVar("T")


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
    """A conversation before a turn that may fail."""

    loaded: Mapping[str, Held]
    prompt: PromptMark


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
        loaded: LoadedSkills | None = None,
        toolset: Toolset | None = None,
    ) -> None:
        """Begin; nothing is read yet. `Satchel.session` makes one.

        Args:
            library: Which skills there are.
            settings: Budget, form, and how changes are told.
            detector: Gives the detector that chooses for the shortlist.
            engine: What runs the programs of tool skills.
            gate: Decides about calls; nothing risky may be called without one.
            stack: Names of the skills within which it works, outermost first.
            loaded: What it has loaded already.
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
        self._loaded = loaded or LoadedSkills(self._library)
        self._in_turn = self._begun = False
        self._entries: list[int] = []
        self._prompt = SessionPrompt(
            settings, self.trace, self._tools, self._gate.offers, self._loaded.edited
        )

    # --- the library as this turn sees it -------------------------------------------------

    def _refresh(self) -> Snapshot:
        with self._lock:
            self._entries = self._stamps()
            self._library.tools(refresh=True)
            return self._library.snapshot()

    def begin_turn(self) -> None:
        """Begin a turn before its `tail` is asked for, which does not search the disk again."""
        self._look(new_turn=True)
        self._begun = True

    async def abegin_turn(self) -> None:
        """`begin_turn` in a worker thread."""
        await _in_thread(self.begin_turn)

    def _look(self, *, new_turn: bool = False) -> Snapshot:
        """The skills as this turn sees them."""
        if not self._settings.refresh_on_call:
            return self._library.snapshot()
        if new_turn or not self._in_turn or self._stamps() != self._entries:
            self._in_turn = self._in_turn or new_turn
            return self._refresh()
        return self._library.snapshot()

    def _stamps(self) -> list[int]:
        """When entries of the folders of skills last came or went."""
        found: list[int] = []
        for place in self._library.locations:
            try:
                found.append(os.stat(place.path).st_mtime_ns)
            except OSError:
                found.append(0)
        return found

    # --- what the model is told -----------------------------------------------------------

    @property
    def prompt(self) -> str:
        """Rules and list of skills for the system prompt; empty when there are no skills.

        The same bytes in every request, until a change makes it necessary to build it again.
        """
        return self._prompt.current(self._look()).prompt

    async def aprompt(self) -> str:
        """`prompt` in a worker thread."""
        return await _in_thread(lambda: self.prompt)

    def definitions(
        self, provider: Provider = "anthropic", *, catalogue: bool = False
    ) -> list[dict[str, Any]]:
        """The tools as a provider wants them described, frozen together with the prompt.

        Args:
            provider: Whose form; one of `satchel.tools.PROVIDERS`.
            catalogue: Whether the description of `Skill` has the list; for hosts without a system
                prompt of their own.

        Raises:
            InvalidInput: there is no such provider.
        """
        return self.told(provider, catalogue=catalogue)[1]

    async def adefinitions(
        self, provider: Provider = "anthropic", *, catalogue: bool = False
    ) -> list[dict[str, Any]]:
        """`definitions` in a worker thread."""
        return (await self.atold(provider, catalogue=catalogue))[1]

    def told(
        self, provider: Provider = "anthropic", *, catalogue: bool = False
    ) -> tuple[str, list[dict[str, Any]]]:
        """`prompt` and `definitions` together."""
        return self._prompt.both(self._look(), provider, catalogue=catalogue)

    async def atold(
        self, provider: Provider = "anthropic", *, catalogue: bool = False
    ) -> tuple[str, list[dict[str, Any]]]:
        """`told` in a worker thread."""
        return await _in_thread(lambda: self.told(provider, catalogue=catalogue))

    @property
    def names(self) -> tuple[str, ...]:
        """The tools that can be called now."""
        return self._prompt.names(self._look())

    async def anames(self) -> tuple[str, ...]:
        """`names` in a worker thread."""
        return await _in_thread(lambda: self.names)

    @property
    def owners(self) -> dict[str, str]:
        """The tools that can be called now, each with its skill; empty for Satchel's own."""
        names = self.names
        owners = self._tools().owners
        return {name: owners.get(name, "") for name in names}

    def offers(self, tool: str) -> bool:
        """Whether a tool, also one of the host's, is meant for this conversation at all."""
        return self._gate.offers(tool)

    def within_reach(self) -> Reach:
        """What may be planned with: skills that can be loaded, and tools whose calls can succeed.

        A tool that needs approval is no such tool where nobody can be asked. Whether one call is
        allowed is still decided when it is made.
        """
        look, tools = self._look(), self._tools()
        found: dict[str, dict[str, Any]] = {}
        for one in tools.definitions("mcp", look=look):
            name = str(one["name"])
            tool = tools.find(name)
            if tool is not None and not tool.about_skills and self._gate.may_succeed(name, tool):
                found[name] = one
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

        look = self._look()
        skills = look.for_model if self._gate.offers(SkillTool.name) else ()
        detector = self._detector().overriding(use, never)

        def amend(answer: Answer) -> Answer:
            return put_right(answer, goal, detector, look, self._settings, never)

        return select(detector, goal, skills, self.trace, limit=limit, amend=amend)

    def shortlist(self, message: str) -> Shortlist:
        """The skills that may fit a message; none without `Skill`. It never raises."""
        from satchel.tools.shortlisting import Shortlist, Shortlister

        if not self._gate.offers(SkillTool.name):
            return Shortlist("", reason="`Skill` cannot be called here")
        if self._shortlister is None:
            self._shortlister = Shortlister(
                self._library, self._settings, self._detector, self.trace
            )
        return self._shortlister.make(message, look=self._look())

    async def ashortlist(self, message: str) -> Shortlist:
        """`shortlist` in a worker thread."""
        return await _in_thread(lambda: self.shortlist(message))

    def news(self) -> str:
        """What changed in the library since the model was told, once; empty when nothing did."""
        return self._prompt.news(self._look())

    async def anews(self) -> str:
        """`news` in a worker thread."""
        return await _in_thread(self.news)

    def tail(self, message: str) -> str:
        """What stands behind this message of the user: what changed, and what may fit it.

        It begins a turn. Keep the message with it in the history as it was sent: made again later,
        it may differ.
        """
        begun, self._begun = self._begun, False
        news = self._prompt.news(self._look(new_turn=not begun))
        return "\n\n".join(part for part in (news, self.shortlist(message).text) if part)

    async def atail(self, message: str) -> str:
        """`tail` in a worker thread."""
        return await _in_thread(lambda: self.tail(message))

    @overload
    def with_tail(self, message: str) -> str: ...
    @overload
    def with_tail(self, message: list[dict[str, Any]]) -> list[dict[str, Any]]: ...
    def with_tail(self, message: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """The user's message with its tail: a text, or a list of content blocks.

        Raises:
            InvalidInput: it is neither.
        """
        from satchel.tools.shortlisting import Shortlist, put_behind

        return put_behind(message, lambda text: Shortlist(self.tail(text)))

    @overload
    async def awith_tail(self, message: str) -> str: ...
    @overload
    async def awith_tail(self, message: list[dict[str, Any]]) -> list[dict[str, Any]]: ...
    async def awith_tail(self, message: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """`with_tail` in a worker thread."""
        return await _in_thread(lambda: self.with_tail(message))

    def rebuild(self) -> bool:
        """Tell the library as it is now from the next request on; True when that is different."""
        return self._prompt.rebuild(self._look())

    async def arebuild(self) -> bool:
        """`rebuild` in a worker thread."""
        return await _in_thread(self.rebuild)

    def _tools(self) -> Toolset:
        with self._lock:
            if self._toolset is None:
                self._toolset = make_toolset(
                    self._library,
                    self._settings,
                    trace=self.trace,
                    detector=self._detector,
                    engine=self._engine,
                )
            return self._toolset

    # --- what it calls --------------------------------------------------------------------

    def resolve(self, name: str, arguments: Arguments = None) -> Resolved:
        """Parse the arguments of a call, and find its tool and its skill.

        Pass the result to `permit`, `wants_fork`, `fork` and `call` in place of the arguments:
        nothing is looked up twice then.

        Raises:
            InvalidInput: the arguments are no object.
        """
        if isinstance(arguments, Resolved):
            return arguments
        table = read_arguments(arguments)
        name, tools, look = str(name), self._tools(), self._look()
        tool = tools.find(name)
        found = Resolved(name, table, tool, look)
        if isinstance(tool, SkillTool):
            found.skill = tool.named(table, look)
        known = isinstance(tool, SkillTool) and found.skill and found.skill.state == "active"
        in_doubt = tool is None or (isinstance(tool, SkillTool) and not known)
        if in_doubt and self._in_turn and self._settings.refresh_on_call:
            found.look = self._refresh()
            found.tool = tools.find(name)
            if isinstance(found.tool, SkillTool):
                found.skill = found.tool.named(table, found.look)
        return found

    async def aresolve(self, name: str, arguments: Arguments = None) -> Resolved:
        """`resolve` in a worker thread."""
        return await _in_thread(lambda: self.resolve(name, arguments))

    def call(
        self,
        name: str,
        arguments: Arguments = None,
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
            as_person: A person asks, not a model: no approval is needed.
            key: The same for a program whenever this very call is made again.
        """
        try:
            found = self.resolve(name, arguments)
            if not as_person:
                ruling = self._gate.settle(self._judge_of(found))
                if not ruling.go:
                    return self._refused(ruling)
                found.tool = ruling.tool
        except SatchelError as exc:
            return failed_call(exc, arguments)
        return self._run(found, cancel, as_person=as_person, key=key)

    async def acall(
        self,
        name: str,
        arguments: Arguments = None,
        *,
        as_person: bool = False,
        key: str = "",
    ) -> Envelope:
        """The same in a worker thread; when the task is cancelled, a running program ends."""
        import asyncio
        from contextlib import suppress

        from satchel.tools.base import TakenBack

        try:
            found = await self.aresolve(name, arguments)
            if not as_person:
                ruling = await self._gate.asettle(self._judge_of(found))
                if not ruling.go:
                    return await _in_thread(lambda: self._refused(ruling))
                found.tool = ruling.tool
        except SatchelError as exc:
            return failed_call(exc, arguments)
        back = TakenBack()

        def work() -> Envelope:
            try:
                return self._run(found, back, as_person=as_person, key=key)
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

    def permit(self, name: str, arguments: Arguments = None) -> Envelope | None:
        """Ask whether a call may be made, of a tool of the host's too; None when it may.

        Raises:
            InvalidInput: the arguments are no object.
        """
        ruling = self._gate.settle(self._judge_of(self.resolve(name, arguments)))
        return None if ruling.go else self._refused(ruling)

    async def apermit(self, name: str, arguments: Arguments = None) -> Envelope | None:
        """The same without holding up the loop; the person may be asked asynchronously."""
        found = await self.aresolve(name, arguments)
        ruling = await self._gate.asettle(self._judge_of(found))
        return None if ruling.go else await _in_thread(lambda: self._refused(ruling))

    def _judge_of(self, found: Resolved) -> Callable[[], Ruling]:
        """What judges a call; asked again, it looks at the disk again: an answer takes time."""
        asked = False

        def judge() -> Ruling:
            nonlocal asked
            if asked:
                self._look(new_turn=True)
                found.tool = self._tools().find(found.name)
            asked = True
            return self._judge(found)

        return judge

    def _judge(self, found: Resolved) -> Ruling:
        tool, seen = found.tool, found.given
        if found.skill is not None and found.skill.state == "active":
            # `/deploy`, or a path to it, is judged as `deploy` is.
            rest = {key: value for key, value in seen.items() if key not in {"name", "skill"}}
            seen = {"name": found.skill.name, **rest}
        if isinstance(tool, ReadFileTool):
            seen = tool.meant(seen)
        grants = self._loaded.grants()
        place = Place(self._settings.project)
        ruling = self._gate.judge(
            found.name,
            seen,
            tool,
            grants,
            place=place,
            revision=lambda: revision_of(self._library, found.name),
        )
        if isinstance(tool, ReadFileTool) and ruling.verdict.answer != "no":
            # A skill that may not be loaded is not read as a file either.
            skill = tool.instructions_of(seen)
            if skill is not None:
                named = {"name": skill.name}
                rules = (*self._gate.inherited(), *grants)
                load = decide(SkillTool.name, named, risky=False, grants=rules, place=place)
                if load.answer == "no":
                    ruling = ruling._replace(verdict=load)
        return ruling._replace(ask=ruling.ask._replace(arguments=found.given))

    def _refused(self, ruling: Ruling) -> Envelope:
        verdict, why = ruling.verdict, ruling.why
        known = self.names if verdict.answer == "no" and not verdict.pattern else ()
        return self._gate.refused(ruling.ask, verdict, why if isinstance(why, str) else "", known)

    def _run(
        self,
        found: Resolved,
        cancel: Cancel | None = None,
        *,
        as_person: bool = False,
        key: str = "",
    ) -> Envelope:
        """Make a call that was judged, with the very tool that was judged."""
        return self._tools().run(
            found,
            act=self._load if isinstance(found.tool, SkillTool) else None,
            stack=self._stack,
            as_person=as_person,
            cancel=cancel,
            key=key,
            loaded=self._loaded.folders(),
        )

    def _load(self, call: Call) -> Envelope:
        assert call.resolved is not None  # noqa: S101 - `_run` made the call
        loaded = cast("SkillTool", call.resolved.tool).load(call)
        return self._loaded.record(loaded) if isinstance(loaded, LoadedSkill) else loaded

    # --- what it loaded -------------------------------------------------------------------

    @property
    def loaded(self) -> Mapping[str, Held]:
        """The skills that were loaded in this conversation, by name, in that order."""
        return self._loaded.all

    def forget(self, *names: str) -> None:
        """Say that the text of skills left the history; of all of them when none is named.

        They may be loaded again in full. What they allow ends; what they forbid stays. When none is
        named, everything went: what was told about changes too.
        """
        self._loaded.forget(names)
        if not names:
            self._prompt.forget_news()

    def drop(self, *names: str) -> None:
        """Lay skills aside: what they forbid ends too. A person's decision, never a model's."""
        self._loaded.drop(names)

    def reminder(self, *names: str) -> str:
        """What stands in place of history that was trimmed: each loaded skill, and the way back.

        Args:
            names: Which ones; all that were loaded when none is named.
        """
        return self._loaded.reminder(names)

    def reminder_due(self) -> str:
        """The reminder of forgotten skills that the model was not reminded of; empty when none.

        It comes once, until one of them is forgotten again: then the reminder was trimmed away.
        """
        return self._loaded.reminder_due()

    def forget_news(self) -> None:
        """Say that a note about changes left the history: it is told again with the next ones."""
        self._prompt.forget_news()

    # --- turns that fail ------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        """What the conversation is before a turn. When the turn goes well, let it go."""
        return Checkpoint(self._loaded.all, self._prompt.mark())

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to before a failed turn: change notices come again, loads are undone."""
        self._loaded.restore(checkpoint.loaded)
        self._prompt.restore(checkpoint.prompt)

    # --- as data --------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """The conversation as JSON can hold it, for `Satchel.restore` in another process.

        It holds what was loaded, what was told, and the limits; no text of a skill, no approval.
        Keep it where the user cannot change it, or sign it.

        Raises:
            InvalidInput: it is a sub-agent's; its rights end with the conversation above it.
        """
        if self._gate.is_inner:
            raise InvalidInput(
                "The conversation of a sub-agent cannot be kept", "Keep the one that started it"
            )
        filters: list[list[list[str]]] = []
        library = self._library
        while isinstance(library, NarrowedLibrary):
            filters.append([list(library.wanted.include), list(library.wanted.exclude)])
            library = library.whole
        return {
            "version": STATE_VERSION,
            "filters": filters,
            "tools": [list(patterns) for patterns in self._gate.within],
            "ask": list(self._gate.ask),
            "stack": list(self._stack),
            "loaded": self._loaded.dump(),
            "told": self._prompt.dump(),
        }

    def take(self, state: Mapping[str, Any]) -> None:
        """Continue with what was loaded and told; `Satchel.restore` does.

        Raises:
            InvalidInput: this is nothing that `dump` gave.
        """
        self._loaded.take(state["loaded"])
        self._prompt.take(state["told"], self._look())

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
        loaded: LoadedSkills | None = None,
    ) -> Session:
        return Session(
            narrowed(self._library, as_patterns(include), as_patterns(exclude)),
            self._settings,
            detector=self._detector,
            engine=self._engine,
            gate=self._gate.inner(tools, self._forbidden),
            stack=(*self._stack, within) if within else self._stack,
            loaded=loaded,
        )

    def _forbidden(self) -> list[Grant]:
        """What is forbidden here now, and so in every conversation within this one."""
        return [*self._gate.inherited(), *self._loaded.forbidden()]

    def wants_fork(self, arguments: Arguments, *, as_person: bool = False) -> bool:
        """Whether a call of Skill names a skill with `context: fork`."""
        try:
            found = self.resolve(SkillTool.name, arguments)
            return self._fork_fields(found, as_person=as_person) is not None
        except SatchelError:
            return False  # the call itself will say what is wrong

    async def awants_fork(self, arguments: Arguments, *, as_person: bool = False) -> bool:
        """`wants_fork` in a worker thread."""
        return await _in_thread(lambda: self.wants_fork(arguments, as_person=as_person))

    def fork(
        self,
        arguments: Arguments,
        *,
        agents: Mapping[str, Mapping[str, Any]] | None = None,
        as_person: bool = False,
    ) -> Fork | None:
        """A conversation of its own for a skill with `context: fork`; None for any other call.

        No approval is asked for: the host has called `permit` before, as for any call.

        Args:
            arguments: Those of the call of Skill.
            agents: What sub-agents are held to, by name: the arguments of `child`. It counts when
                the skill's `agent` is one of them.
            as_person: A person asks, not a model.
        """
        try:
            found = self.resolve(SkillTool.name, arguments)
            fields = self._fork_fields(found, as_person=as_person)
        except SatchelError:
            return None
        if fields is None:
            return None
        agent, model = (str(fields.get(key) or "").strip() for key in ("agent", "model"))
        first = self._child()
        reply = first._run(found, as_person=as_person)  # noqa: SLF001 - of the same class
        name = next(iter(first.loaded), "")
        limits: dict[str, Any] = dict((agents or {}).get(agent, {}))
        child = first._child(**limits, within=name, loaded=first._loaded)  # noqa: SLF001 - same
        return Fork(name, child, reply, agent, "" if model == "inherit" else model)

    def _fork_fields(self, found: Resolved, *, as_person: bool) -> Mapping[str, Any] | None:
        """The frontmatter of a skill that is to be loaded and wants to fork.

        Raises:
            SatchelError: it cannot be read.
        """
        skill, tool = found.skill, found.tool
        if not isinstance(tool, SkillTool) or skill is None or skill.state != "active":
            return None
        if not (skill.for_model or as_person):
            return None
        fields = tool.read(found).fields
        return fields if str(fields.get("context", "")).strip() == "fork" else None


async def _in_thread(work: Callable[[], T]) -> T:
    import asyncio

    return await asyncio.to_thread(work)
