"""`Session`: one conversation with its prompt, its tools, its loaded skills and permissions.

The only way to call tools; the agent, each framework's adapter and the MCP server use it:

    session.prompt              for the system prompt: the same bytes until it is rebuilt
    session.definitions()       the tools, frozen the same way
    session.with_tail(message)  the user's message, followed by changes and fitting skills
    session.call(name, given)   a tool call of the model; never raises

What touches the disk has an asynchronous twin: `aprompt`, `adefinitions`, `awith_tail`, `acall`.

A skill's text enters the conversation once, as the result of a call. A repeated load is answered
with a pointer, unless the skill changed or the host reported that its text was trimmed away.

A call is resolved once (`resolve`): arguments parsed, tool and skill looked up, library refreshed
at most once. Permission check, load and record work on the result.

The disk is searched for changes once per turn. A turn begins with `tail` or `with_tail`; for a host
that uses neither, with each `prompt` and `definitions`. Within a turn it is searched again only
when a folder of skills got or lost an entry, or a call names an unknown skill or tool.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from satchel._threads import in_thread, threaded
from satchel.errors import InvalidInput, SatchelError
from satchel.library.snapshot import Filter
from satchel.session.history import (
    SKILL,
    ConversationHistory,
    SkillText,
    is_whole,
    read_messages,
    reminded_skills,
    skill_text,
)
from satchel.session.loaded_skills import (
    ALREADY_LOADED,
    STATE_VERSION,
    LoadedRecord,
    LoadedSkills,
)
from satchel.session.permissions import PermissionGate
from satchel.session.prompt import SessionPrompt
from satchel.session.shortlist import Shortlist, append_shortlist, make_shortlist
from satchel.tools.base import ResolvedCall, cancellable
from satchel.tools.permission_rules import BaseFolder, as_patterns, decide, may_match_name, names
from satchel.tools.read_file import ReadFileTool
from satchel.tools.schema import read_arguments
from satchel.tools.selection import select
from satchel.tools.skill_tool import LoadedSkill, SkillTool
from satchel.tools.toolset import failed_call, make_toolset, revision_of

__all__ = ["AvailableTools", "LoadedRecord", "Session"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from satchel.detect import Detection
    from satchel.detect.pipeline import SelectionPipeline
    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.runners.base import Cancel
    from satchel.session.history import ToolResult
    from satchel.session.permissions import PermissionDecision
    from satchel.settings import Settings
    from satchel.tools.base import ToolCall
    from satchel.tools.permission_rules import SkillToolRules
    from satchel.tools.program_runner import ProgramRunner
    from satchel.tools.toolset import Provider, Toolset

    Arguments = Mapping[str, Any] | str | ResolvedCall | None
    """A table, JSON text, or the result of `Session.resolve`."""


_Said = TypeVar("_Said", str, "list[dict[str, Any]]")
"""A text, or a list of content blocks."""


class AvailableTools(NamedTuple):
    """The skills and tools that a session can use."""

    skills: frozenset[str]
    """Names of the skills that a model may load."""
    tools: dict[str, dict[str, Any]]
    """MCP definitions by name, without the tools about skills."""


class Session:
    """One conversation: the only way to call tools. `Satchel.session` and `restore` make one."""

    def __init__(
        self,
        library: Library,
        settings: Settings,
        *,
        detector: Callable[[], SelectionPipeline],
        runner: ProgramRunner | None = None,
        gate: PermissionGate | None = None,
        stack: tuple[str, ...] = (),
        loaded: LoadedSkills | None = None,
        toolset: Toolset | None = None,
    ) -> None:
        self._library = library
        self._settings = settings
        self._detector = detector
        self._runner = runner
        self._stack = stack
        self.trace = library.trace
        self._gate = gate or PermissionGate(self.trace)
        self._lock = threading.RLock()
        self._toolset = toolset
        self._loaded = loaded or LoadedSkills(self._library)
        self._in_turn = self._begun = False
        self._entries: list[int] = []
        self._prompt = SessionPrompt(
            settings, library, self._tools, self._gate.offers, self._loaded.edited
        )

    # --- the library as this turn sees it -------------------------------------------------

    def _refresh(self) -> Snapshot:
        with self._lock:
            self._entries = self._stamps()
            return self._library.refresh()

    def begin_turn(self) -> None:
        """Begin a turn before `tail` does: search the disk for changes now."""
        self._snapshot(new_turn=True)
        self._begun = True

    abegin_turn = threaded(begin_turn)

    def _snapshot(self, *, new_turn: bool = False) -> Snapshot:
        if not self._settings.refresh_on_call:
            return self._library.snapshot()
        if new_turn or not self._in_turn or self._stamps() != self._entries:
            self._in_turn = self._in_turn or new_turn
            return self._refresh()
        return self._library.snapshot()

    def _stamps(self) -> list[int]:
        found: list[int] = []
        for place in self._library.locations:
            try:
                found.append(os.stat(place.path).st_mtime_ns)
            except OSError:
                found.append(0)
        return found

    # --- what the model gets --------------------------------------------------------------

    @property
    def prompt(self) -> str:
        """The rules and the list of skills for the system prompt; empty without skills.

        The bytes stay the same during the conversation, unless it has to be rebuilt.
        """
        return self._prompt.current(self._snapshot()).prompt

    async def aprompt(self) -> str:
        """`prompt` in a worker thread."""
        return await in_thread(lambda: self.prompt)

    def definitions(
        self, provider: Provider = "anthropic", *, catalogue: bool = False
    ) -> list[dict[str, Any]]:
        """The tools in the format of a provider's API; they change only with the prompt.

        Args:
            provider: One of `satchel.tools.PROVIDERS`.
            catalogue: Whether the description of `Skill` has the list; for hosts without a system
                prompt of their own.

        Raises:
            InvalidInput: there is no such provider.
        """
        return self.told(provider, catalogue=catalogue)[1]

    adefinitions = threaded(definitions)

    def told(
        self, provider: Provider = "anthropic", *, catalogue: bool = False
    ) -> tuple[str, list[dict[str, Any]]]:
        """`prompt` and `definitions` together."""
        return self._prompt.prompt_and_tools(self._snapshot(), provider, catalogue=catalogue)

    atold = threaded(told)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools that can be called now."""
        return self._prompt.names(self._snapshot())

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of all tools, also of those that are not offered here."""
        return self._tools().names

    async def anames(self) -> tuple[str, ...]:
        """`names` in a worker thread."""
        return await in_thread(lambda: self.names)

    @property
    def owners(self) -> dict[str, str]:
        """The skill that provides each of those tools; empty for Satchel's own."""
        names = self.names
        owners = self._tools().owners
        return {name: owners.get(name, "") for name in names}

    def offers(self, tool: str) -> bool:
        """Whether this session has a tool, or lets the host offer one of that name."""
        return self._gate.offers(tool)

    def within_reach(self) -> AvailableTools:
        """The skills and tools that a plan may use: those that can be loaded and called here.

        Tools that need approval are left out when no approval can be asked for. Whether a call is
        allowed is still decided when it is made.
        """
        snapshot, tools = self._snapshot(), self._tools()
        found: dict[str, dict[str, Any]] = {}
        for one in tools.definitions("mcp", snapshot=snapshot):
            name = str(one["name"])
            tool = tools.find(name)
            if tool is not None and not tool.about_skills and self._gate.may_succeed(name, tool):
                found[name] = one
        skills = snapshot.for_model if self._gate.offers(SkillTool.name) else ()
        return AvailableTools(frozenset(skill.name for skill in skills), found)

    def which(
        self, goal: str, *, limit: int, use: Sequence[str] = (), never: Sequence[str] = ()
    ) -> Detection:
        """Choose skills for a goal among those that can be loaded here.

        Args:
            goal: The request.
            limit: How many at most.
            use: Choose these, by name, whatever the goal says.
            never: Do not choose these.

        Raises:
            InvalidInput: the goal is no text, the limit is below 1, or a skill is in both lists.
        """
        return select(
            self._detector().overriding(use, never),
            goal,
            self._snapshot(),
            self._settings,
            self.trace,
            limit=limit,
            never=never,
            waiting=self._library.untrusted_notice(),
            none=not self._gate.offers(SkillTool.name),
        )

    def shortlist(self, message: str) -> Shortlist:
        """Name the skills that may fit a message, in a short block; never raises."""
        if not self._gate.offers(SkillTool.name):
            return Shortlist("", reason="`Skill` cannot be called here")
        snapshot = self._snapshot()
        return make_shortlist(
            self._library, self._settings, self._detector, message, snapshot=snapshot
        )

    ashortlist = threaded(shortlist)

    def news(self) -> str:
        """The notice of changes in the library that the model has not seen; each is given once."""
        return self._prompt.news(self._snapshot())

    anews = threaded(news)

    def tail(self, message: str) -> str:
        """The text to append to the user's message: changes, and skills that may fit.

        Begins a turn. Keep the message in the history as it was sent; made again, the text may
        differ.
        """
        begun, self._begun = self._begun, False
        news = self._prompt.news(self._snapshot(new_turn=not begun))
        return "\n\n".join(part for part in (news, self.shortlist(message).text) if part)

    atail = threaded(tail)

    def with_tail(self, message: _Said) -> _Said:
        """Append `tail` to the user's message, which is a text or a list of content blocks.

        Raises:
            InvalidInput: it is neither.
        """
        return append_shortlist(message, lambda text: Shortlist(self.tail(text)))

    async def awith_tail(self, message: _Said) -> _Said:
        """`with_tail` in a worker thread."""
        return await in_thread(lambda: self.with_tail(message))

    def _tools(self) -> Toolset:
        with self._lock:
            if self._toolset is None:
                self._toolset = make_toolset(
                    self._library,
                    self._settings,
                    trace=self.trace,
                    detector=self._detector,
                    runner=self._runner,
                )
            return self._toolset

    # --- tool calls -----------------------------------------------------------------------

    def resolve(self, name: str, arguments: Arguments = None) -> ResolvedCall:
        """Parse the arguments of a call and look up its tool and skill.

        Pass the result to `permit` and `call` in place of the arguments: nothing is looked up twice
        then.

        Raises:
            InvalidInput: the arguments are no object.
        """
        if isinstance(arguments, ResolvedCall) and arguments.session is self:
            return arguments
        table = (
            arguments.given if isinstance(arguments, ResolvedCall) else read_arguments(arguments)
        )
        name, tools, snapshot = str(name), self._tools(), self._snapshot()
        tool = tools.find(name)
        found = ResolvedCall(name, table, tool, snapshot, session=self)
        if isinstance(tool, SkillTool):
            found.skill = tool.named(table, snapshot)
        known = isinstance(tool, SkillTool) and found.skill and found.skill.state == "active"
        in_doubt = tool is None or (isinstance(tool, SkillTool) and not known)
        if in_doubt and self._in_turn and self._settings.refresh_on_call:
            found.snapshot = self._refresh()
            found.tool = tools.find(name)
            if isinstance(found.tool, SkillTool):
                found.skill = found.tool.named(table, found.snapshot)
        return found

    aresolve = threaded(resolve)

    def call(
        self,
        name: str,
        arguments: Arguments = None,
        *,
        cancel: Cancel | None = None,
        as_person: bool = False,
        key: str = "",
        call_id: str = "",
    ) -> Envelope:
        """Call a tool. Errors and refusals are returned as an envelope; never raises.

        Args:
            name: Which tool.
            arguments: Its arguments, as a table or as JSON text.
            cancel: Ends the call while a program runs.
            as_person: The user calls, not the model: no approval is needed.
            key: An idempotency key that is passed to the program.
            call_id: The provider's id of the call, for the span of OpenTelemetry.
        """
        try:
            found = self.resolve(name, arguments)
            refusal = None if as_person else self.permit(name, found)
        except SatchelError as exc:
            return failed_call(exc, arguments)
        return refusal or self._run(found, cancel, as_person=as_person, key=key, call_id=call_id)

    async def acall(
        self,
        name: str,
        arguments: Arguments = None,
        *,
        as_person: bool = False,
        key: str = "",
        call_id: str = "",
    ) -> Envelope:
        """`call` in a worker thread; when the task is cancelled, a running program ends."""
        try:
            found = await self.aresolve(name, arguments)
            refusal = None if as_person else await self.apermit(name, found)
        except SatchelError as exc:
            return failed_call(exc, arguments)
        if refusal is not None:
            return refusal
        return await cancellable(
            lambda back: self._run(found, back, as_person=as_person, key=key, call_id=call_id)
        )

    def permit(self, name: str, arguments: Arguments = None) -> Envelope | None:
        """Check a call, also of a tool of the host; None when it is allowed, else the refusal.

        Raises:
            InvalidInput: the arguments are no object.
        """
        found = self.resolve(name, arguments)
        decision = self._gate.resolve(self._evaluator(found))
        found.tool = decision.tool
        return None if decision.allowed else self._refused(decision)

    async def apermit(self, name: str, arguments: Arguments = None) -> Envelope | None:
        """`permit` without blocking the event loop; `approve` may be asynchronous."""
        found = await self.aresolve(name, arguments)
        decision = await self._gate.aresolve(self._evaluator(found))
        found.tool = decision.tool
        return None if decision.allowed else await in_thread(lambda: self._refused(decision))

    def _evaluator(self, found: ResolvedCall) -> Callable[[], PermissionDecision]:
        """Evaluate a call; from the second time on, with a refreshed library."""
        asked = False

        def evaluate() -> PermissionDecision:
            nonlocal asked
            if asked:
                self._snapshot(new_turn=True)
                found.tool = self._tools().find(found.name)
            asked = True
            return self._evaluate(found)

        return evaluate

    def _evaluate(self, found: ResolvedCall) -> PermissionDecision:
        tool, seen = found.tool, found.given
        if found.skill is not None and found.skill.state == "active":
            # `/deploy`, or a path to it, follows the rules for `deploy`.
            rest = {key: value for key, value in seen.items() if key not in {"name", "skill"}}
            seen = {"name": found.skill.name, **rest}
        if isinstance(tool, ReadFileTool):
            seen = tool.with_paths(seen)
        grants = self._loaded.grants()
        base = BaseFolder(self._settings.project)
        decision = self._gate.evaluate(
            found.name,
            seen,
            tool,
            grants,
            base=base,
            revision=lambda: revision_of(self._library, found.name),
        )
        if isinstance(tool, ReadFileTool) and decision.verdict.answer != "deny":
            # A skill that may not be loaded may not be read as a file either.
            skill = tool.instructions_of(seen)
            if skill is not None:
                named = {"name": skill.name}
                rules = (*self._gate.inherited(), *grants)
                gate, tool_name = self._gate, SkillTool.name
                within = [one for one in gate.within if any(names(at, tool_name) for at in one)]
                risky = any(may_match_name(pattern, tool_name) for pattern in gate.ask)
                load = decide(tool_name, named, risky=risky, grants=rules, within=within, base=base)
                if load.answer != "allow":
                    decision = decision._replace(verdict=load)
        return decision._replace(ask=decision.ask._replace(arguments=found.given))

    def _refused(self, decision: PermissionDecision) -> Envelope:
        verdict = decision.verdict
        known = self.names if verdict.answer == "deny" and not verdict.pattern else ()
        return self._gate.refused(decision, known)

    def _run(
        self,
        found: ResolvedCall,
        cancel: Cancel | None = None,
        *,
        as_person: bool = False,
        key: str = "",
        call_id: str = "",
    ) -> Envelope:
        return self._tools().run(
            found,
            act=self._load if isinstance(found.tool, SkillTool) else None,
            stack=self._stack,
            as_person=as_person,
            cancel=cancel,
            key=key,
            loaded=self._loaded.folders(),
            call_id=call_id,
        )

    def _load(self, call: ToolCall) -> Envelope:
        loaded = cast("SkillTool", call.resolved.tool).load(call)
        return self._loaded.record(loaded) if isinstance(loaded, LoadedSkill) else loaded

    # --- loaded skills --------------------------------------------------------------------

    @property
    def loaded(self) -> Mapping[str, LoadedRecord]:
        """The skills loaded in this conversation by name, in the order of loading."""
        return self._loaded.all

    def forget(self, *names: str) -> None:
        """Note that the text of these skills, or of all, was removed from the history.

        They can be loaded again in full. Tools that they allow need approval again; tools that they
        forbid stay forbidden. Without names, change notices are repeated too.
        """
        self._loaded.forget(names)
        if not names:
            self._prompt.forget_news()

    def drop(self, *names: str) -> None:
        """Unload skills on the user's behalf: tools that they forbid are allowed again."""
        self._loaded.drop(names)

    def reminder(self, *names: str) -> str:
        """Text for a trimmed history: names the loaded skills and how to load them again.

        Args:
            names: Which ones; all that were loaded when none is named.
        """
        return self._loaded.reminder(names)

    def reminder_due(self) -> str:
        """`reminder` for forgotten skills that no reminder has named yet; empty when none.

        Each comes once, and again when `forget` is called for it again.
        """
        return self._loaded.reminder_due()

    def sync(
        self, messages: Iterable[Any] | ConversationHistory, *, complete: bool = True
    ) -> list[str]:
        """Read from the messages what this session has to know: which skills were loaded.

        Call it at the start of a turn with the history. A new session, in another process, then
        continues like the one before it: tools that a loaded skill forbids stay forbidden,
        and a text that is there is not sent twice. A skill allows tools again only if its whole
        present text is the result of a call of `Skill`. What left the history is sent again.

        Args:
            messages: In the format of a provider's API (Anthropic, OpenAI, Gemini, Bedrock), or
                a `ConversationHistory` (`satchel.integrations.base`) made from another format.
            complete: Whether these are all messages that the model will see; otherwise skills are
                added, and none is considered lost.

        Returns:
            Names of the skills whose text was there before and is gone.
        """
        history = messages if isinstance(messages, ConversationHistory) else read_messages(messages)
        results = [result for result in history.results if result.tool == SKILL]
        prompts, tools = history.prompts or (), self._tools()
        ends = [
            result.text
            for result in history.results
            if result.text.endswith("</skills-loaded-before>") and tools.find(result.tool)
        ]
        for known in reminded_skills((*prompts, *ends)):
            self._loaded.forbid(known.name, known.disallowed, known.digest)
        for name, patterns in (history.forbidden or {}).items():
            self._loaded.forbid(name, patterns)
        for result in results:
            if self._adopt(result):
                self._prompt.check_again()
        if not complete:
            return []
        texts = history.texts
        if texts is not None:
            self._prompt.find_missing(texts)
        names = {known.name for known in reminded_skills((*prompts, *ends))}
        return self._loaded.forget_missing(
            lambda held: any(
                is_whole(result.text, held.nonce, held.characters) for result in results
            ),
            None if texts is None else names.__contains__,
        )

    def _adopt(self, result: ToolResult) -> bool:
        """Take over the skill in a result of `Skill`; True when something was new."""
        found = skill_text(result.text)
        if found is not None and self._loaded.knows(found.nonce):
            return False
        try:
            table = read_arguments(result.arguments or None)
        except SatchelError:
            table = {}
        tool, snapshot = self._tools().find(SkillTool.name), self._snapshot()
        skill = tool.named(table, snapshot) if isinstance(tool, SkillTool) else None
        found = skill_text(result.text, skill.name if skill is not None else "")
        if found is None and skill is not None and self._was_loaded(result):
            found = SkillText(skill.name, "", ())
        if found is None:
            return False

        def may_grant() -> bool:
            call = ResolvedCall(SkillTool.name, table, tool, snapshot, skill, session=self)
            is_offered = skill is not None and skill.for_model
            return is_offered and self._evaluate(call).verdict.answer == "allow"

        return self._loaded.adopt(found, result.text, skill, table, may_grant)

    @staticmethod
    def _was_loaded(result: ToolResult) -> bool:
        """Whether a result without a skill's text followed a load: a pointer, or a text cut out.

        A refusal has names in backticks, and what hosts put in place of a text has none.
        """
        if result.failed is None:
            return ALREADY_LOADED in result.text or "`" not in result.text
        return not result.failed

    @property
    def forbidden(self) -> dict[str, list[str]]:
        """The tools that each loaded skill forbids: for a host that keeps them with its history."""
        return {one.skill: list(one.disallowed) for one in self._loaded.forbidden()}

    # --- stored sessions ------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """The conversation as JSON data, for `Satchel.restore` in another process.

        Holds names and digests of loaded skills, the prompt's state and the limits; no text of a
        skill and no approval. Store it where users cannot change it, or sign it.

        Raises:
            InvalidInput: it is the session of a sub-agent.
        """
        if self._gate.is_inner:
            raise InvalidInput(
                "The conversation of a sub-agent cannot be kept", "Keep the one that started it"
            )
        return {
            "version": STATE_VERSION,
            "filters": [[list(one.include), list(one.exclude)] for one in self._library.filters],
            "tools": [list(patterns) for patterns in self._gate.within],
            "ask": list(self._gate.ask),
            "stack": list(self._stack),
            "loaded": self._loaded.dump(),
            "dropped": self._loaded.dropped,
            "prompt": self._prompt.dump(),
        }

    def take(self, state: Mapping[str, Any]) -> None:
        """Load a dumped state; called by `Satchel.restore`.

        Raises:
            InvalidInput: `dump` did not return this state.
        """
        self._loaded.load_state(state["loaded"], state["dropped"])
        self._prompt.load_state(state["prompt"], self._snapshot())

    # --- subsessions ----------------------------------------------------------------------

    def child(
        self,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        tools: Sequence[str] | None = None,
        within: str = "",
    ) -> Session:
        """Start a session for a sub-agent, which never has more skills or tools than this one.

        Args:
            include: Only skills whose name or id matches one of these patterns; all when empty.
            exclude: No skill that matches one of these.
            tools: Patterns of the tools it may call; all that can be called here when None.
            within: The skill that it works for; a cycle of skills is refused.
        """
        return Session(
            self._library.filtered(Filter(as_patterns(include), as_patterns(exclude))),
            self._settings,
            detector=self._detector,
            runner=self._runner,
            gate=self._gate.inner(tools, self._forbidden),
            stack=(*self._stack, within) if within else self._stack,
        )

    def _forbidden(self) -> list[SkillToolRules]:
        """Rules that forbid tools here and so in every subsession."""
        return [*self._gate.inherited(), *self._loaded.forbidden()]
