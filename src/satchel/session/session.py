"""`Session`: one conversation with its prompt, its tools, its loaded skills and permissions.

The only way to call tools; the agent, each framework's adapter and the MCP server use it.

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
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from satchel._threads import in_thread, threaded
from satchel.errors import InvalidInput, SatchelError
from satchel.library.snapshot import Filter
from satchel.session.call_permissions import CallPermissions
from satchel.session.history import (
    ConversationHistory,
    SkillText,
    find_skill_text,
    is_load,
    is_refusal,
    is_whole,
    read_messages,
    reminded_skills,
)
from satchel.session.loaded_skills import LoadedRecord, LoadedSkills
from satchel.session.options import STATE_VERSION
from satchel.session.permissions import PermissionGate
from satchel.session.prompt import SessionPrompt
from satchel.session.shortlist import Shortlist, append_shortlist, make_shortlist
from satchel.tools.base import ResolvedCall, cancellable
from satchel.tools.permission_rules import (
    check_patterns,
)
from satchel.tools.schema import read_arguments
from satchel.tools.selection import select
from satchel.tools.skill_tool import LoadedSkill, SkillTool
from satchel.tools.toolset import failed_call, make_toolset

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
    from satchel.tools.base import CancelToken, ReviewChanges, ToolCall
    from satchel.tools.permission_rules import SkillToolRules
    from satchel.tools.program_runner import ProgramRunner
    from satchel.tools.toolset import Provider, Toolset

    Arguments = Mapping[str, Any] | str | ResolvedCall | None
    """A table, JSON text, or the result of `Session.resolve`."""


_UserMessage = TypeVar("_UserMessage", str, "list[dict[str, Any]]")
"""A text, or a list of content blocks."""
_OLD_NAMES = {
    "permit": "refusal_for",
    "apermit": "arefusal_for",
    "news": "change_notice",
    "anews": "achange_notice",
}
"""Methods of 0.2 with their names since 0.3."""


class AvailableTools(NamedTuple):
    """The skills and tools that a session can use."""

    skills: frozenset[str]
    """Names of the skills that a model may load."""
    tools: dict[str, dict[str, Any]]
    """MCP definitions by name, without the tools about skills."""


class Session:
    """One conversation: prompt, tools, loaded skills, permissions. `Satchel.session` creates one.

    Example:
        from satchel import Satchel

        session = Satchel.for_project(".").session()
        prompt, tools = session.prompt, session.definitions("anthropic")
        reply = session.call("Skill", {"name": "code-review", "args": "src/"})
    """

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
        self._permissions = CallPermissions(self._gate, self._loaded, library, settings.project)
        self._is_in_turn = False
        self._is_turn_begun = False
        """Whether `begin_turn` has begun the turn of the next `tail`."""
        self._location_stamps: list[int] = []
        """Modification times of the folders of skills at the last refresh."""
        self._prompt = SessionPrompt(
            settings, library, self._tools, self._gate.offers, self._loaded.edited
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _OLD_NAMES:
                raise AttributeError(f"`Session` has no attribute `{name}`")
            text = f"`Session.{name}` is called `{_OLD_NAMES[name]}` now"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return getattr(self, _OLD_NAMES[name])

    # --- the library as this turn sees it -------------------------------------------------

    def _refresh(self) -> Snapshot:
        """Search the disk for changes."""
        with self._lock:
            self._location_stamps = self._read_location_stamps()
            return self._library.refresh()

    def begin_turn(self) -> None:
        """Begin a turn before `tail` does: search the disk for changes now."""
        self._snapshot(new_turn=True)
        self._is_turn_begun = True

    abegin_turn = threaded(begin_turn)

    def _snapshot(self, *, new_turn: bool = False) -> Snapshot:
        """Return the skills that this session may use, with changes on disk where they are due."""
        return self._library.screened(self._current_snapshot(new_turn=new_turn))

    def _current_snapshot(self, *, new_turn: bool) -> Snapshot:
        if not self._settings.refresh_on_call:
            return self._library.snapshot()
        if (
            new_turn
            or not self._is_in_turn
            or self._read_location_stamps() != self._location_stamps
        ):
            self._is_in_turn = self._is_in_turn or new_turn
            return self._refresh()
        return self._library.snapshot()

    def _read_location_stamps(self) -> list[int]:
        stamps: list[int] = []
        for location in self._library.locations:
            try:
                stamps.append(os.stat(location.path).st_mtime_ns)
            except OSError:
                stamps.append(0)
        return stamps

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
        return self.prompt_and_definitions(provider, catalogue=catalogue)[1]

    adefinitions = threaded(definitions)

    def prompt_and_definitions(
        self, provider: Provider = "anthropic", *, catalogue: bool = False
    ) -> tuple[str, list[dict[str, Any]]]:
        """`prompt` and `definitions` together."""
        return self._prompt.prompt_and_tools(self._snapshot(), provider, catalogue=catalogue)

    aprompt_and_definitions = threaded(prompt_and_definitions)

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
        owners = self._tools().owners
        return {name: owners.get(name, "") for name in self.names}

    def offers(self, tool: str) -> bool:
        """Whether this session has a tool, or lets the host offer one of that name."""
        return self._gate.offers(tool)

    def available_tools(self) -> AvailableTools:
        """The skills and tools that a plan may use: those that can be loaded and called here.

        Tools that need approval are left out when no approval can be asked for. Whether a call is
        allowed is still decided when it is made.
        """
        snapshot, tools = self._snapshot(), self._tools()
        definitions: dict[str, dict[str, Any]] = {}
        for definition in tools.definitions("mcp", snapshot=snapshot):
            name = str(definition["name"])
            tool = tools.find(name)
            if tool is not None and not tool.about_skills and self._gate.may_succeed(name, tool):
                definitions[name] = definition
        skills = snapshot.for_model if self._gate.offers(SkillTool.name) else ()
        return AvailableTools(frozenset(skill.name for skill in skills), definitions)

    def lacks_approval(self, name: str) -> bool:
        """Whether a tool proposes changes that cannot be accepted here."""
        tool = self._tools().find(name)
        return tool is not None and tool.proposes and not self._gate.can_approve

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

    def change_notice(self) -> str:
        """The notice of changes in the library that the model has not seen; each is given once."""
        return self._prompt.change_notice(self._snapshot())

    achange_notice = threaded(change_notice)

    def tail(self, message: str) -> str:
        """The text to append to the user's message: changes, and skills that may fit.

        Begins a turn. Keep the message in the history as it was sent; made again, the text may
        differ.

        Args:
            message: The user's message.
        """
        snapshot = self._snapshot(new_turn=not self._is_turn_begun)
        self._is_turn_begun = False
        blocks = (self._prompt.change_notice(snapshot), self.shortlist(message).text)
        return "\n\n".join(block for block in blocks if block)

    atail = threaded(tail)

    def with_tail(self, message: _UserMessage) -> _UserMessage:
        """Append `tail` to the user's message, which is a text or a list of content blocks.

        Raises:
            InvalidInput: it is neither.
        """
        return append_shortlist(message, lambda text: Shortlist(self.tail(text)))

    async def awith_tail(self, message: _UserMessage) -> _UserMessage:
        """`with_tail` in a worker thread."""
        return await in_thread(lambda: self.with_tail(message))

    def _tools(self) -> Toolset:
        """Return the tools, made at the first use."""
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

        Pass the result to `refusal_for` and `call` in place of the arguments: nothing is looked up
        twice then.

        Raises:
            InvalidInput: the arguments are no object.
        """
        if isinstance(arguments, ResolvedCall) and arguments.session is self:
            return arguments
        table = (
            arguments.received if isinstance(arguments, ResolvedCall) else read_arguments(arguments)
        )
        name = str(name)
        snapshot = self._snapshot()  # may refresh the library, and with it the tools
        call = ResolvedCall(name, table, self._tools().find(name), snapshot, session=self)
        is_found = call.tool is not None
        if isinstance(call.tool, SkillTool):
            call.skill = call.tool.find_named(table, call.snapshot)
            is_found = call.skill is not None and call.skill.state == "active"
        if not is_found and self._is_in_turn and self._settings.refresh_on_call:
            call.snapshot = self._refresh()
            call.tool = self._tools().find(name)
            if isinstance(call.tool, SkillTool):
                call.skill = call.tool.find_named(table, call.snapshot)
        return call

    def _refresh_tool(self, call: ResolvedCall) -> None:
        """Look up the tool of a call again, since the library may have changed meanwhile."""
        self._snapshot(new_turn=True)
        call.tool = self._tools().find(call.name)

    aresolve = threaded(resolve)

    def call(
        self,
        name: str,
        arguments: Arguments = None,
        *,
        cancel: Cancel | None = None,
        as_person: bool = False,
        approved: bool = False,
        key: str = "",
        call_id: str = "",
    ) -> Envelope:
        """Call a tool. Errors and refusals are returned as an envelope; never raises.

        Args:
            name: Which tool.
            arguments: Its arguments, as a table or as JSON text.
            cancel: Ends the call while a program runs.
            as_person: The user calls, not the model: no approval is needed before the call.
            approved: The host asked a person before the call. Without `approve`, what the rules
                permit is applied, too.
            key: An idempotency key that is passed to the program.
            call_id: The provider's id of the call, for the span of OpenTelemetry.
        """
        try:
            call = self.resolve(name, arguments)
            refusal = None if as_person else self.refusal_for(name, call, approved=approved)
        except SatchelError as exc:
            return failed_call(exc, arguments)
        if refusal is not None:
            return refusal
        review = self._permissions.reviewer(call, approved=approved)
        return self._run(call, cancel, as_person=as_person, key=key, call_id=call_id, review=review)

    async def acall(
        self,
        name: str,
        arguments: Arguments = None,
        *,
        as_person: bool = False,
        approved: bool = False,
        key: str = "",
        call_id: str = "",
    ) -> Envelope:
        """`call` in a worker thread; when the task is cancelled, a running program ends."""
        try:
            call = await self.aresolve(name, arguments)
            refusal = None if as_person else await self.arefusal_for(name, call, approved=approved)
        except SatchelError as exc:
            return failed_call(exc, arguments)
        if refusal is not None:
            return refusal

        def work(cancel: CancelToken) -> Envelope:
            review = self._permissions.reviewer(call, approved=approved, cancel=cancel)
            return self._run(
                call, cancel, as_person=as_person, key=key, call_id=call_id, review=review
            )

        # A person may take longer than the loop's few worker threads can wait.
        own_thread = call.tool is not None and call.tool.proposes
        return await cancellable(work, own_thread=own_thread)

    def refusal_for(
        self, name: str, arguments: Arguments = None, *, approved: bool = False
    ) -> Envelope | None:
        """Check a call, also of a tool of the host; None when it is allowed, else the refusal.

        Args:
            name: Which tool.
            arguments: Its arguments.
            approved: The host asked a person already.

        Raises:
            InvalidInput: the arguments are no object.
        """
        call = self.resolve(name, arguments)
        decision = self._permissions.decide(call, self._refresh_tool, approved=approved)
        return None if decision.allowed else self._refuse(decision)

    async def arefusal_for(
        self, name: str, arguments: Arguments = None, *, approved: bool = False
    ) -> Envelope | None:
        """`refusal_for` without blocking the event loop; `approve` may be asynchronous."""
        call = await self.aresolve(name, arguments)
        decision = await self._permissions.adecide(call, self._refresh_tool, approved=approved)
        return None if decision.allowed else await in_thread(lambda: self._refuse(decision))

    def _refuse(self, decision: PermissionDecision) -> Envelope:
        """Return the refusal of a call; where there is no such tool, it names those there are."""
        verdict = decision.verdict
        is_missing = verdict.answer == "deny" and not verdict.pattern
        return self._gate.refused(decision, self.names if is_missing else ())

    def _run(
        self,
        call: ResolvedCall,
        cancel: Cancel | None = None,
        *,
        as_person: bool = False,
        key: str = "",
        call_id: str = "",
        review: ReviewChanges | None = None,
    ) -> Envelope:
        return self._tools().run(
            call,
            act=self._load if isinstance(call.tool, SkillTool) else None,
            stack=self._stack,
            as_person=as_person,
            cancel=cancel,
            key=key,
            loaded=self._loaded.folders(),
            loaded_digests=self._loaded.digests(),
            call_id=call_id,
            review=review,
        )

    def _load(self, call: ToolCall) -> Envelope:
        """Load a skill and record it; the reply of a failed load is returned unchanged."""
        can_run_scripts = self._gate.offers("RunScript")
        loaded = cast("SkillTool", call.resolved.tool).load(call, names_scripts=can_run_scripts)
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
            self._prompt.forget_notices()

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

        Raises:
            InvalidInput: these are no messages of such a format.
        """
        history = messages if isinstance(messages, ConversationHistory) else read_messages(messages)
        loads = [result for result in history.results if is_load(result.tool)]
        reminders = reminded_skills(history, self._tools().find)
        for reminder in reminders:
            self._loaded.forbid(reminder.name, reminder.disallowed, reminder.digest)
        for name, patterns in (history.forbidden or {}).items():
            self._loaded.forbid(name, patterns)
        for result in loads:
            if self._adopt(result):
                self._prompt.check_again()
        if not complete:
            return []
        texts = history.texts
        if texts is not None:
            self._prompt.find_missing(texts)

        def has_text(record: LoadedRecord) -> bool:
            return any(is_whole(result.text, record.nonce, record.characters) for result in loads)

        reminded_names = {reminder.name for reminder in reminders}
        return self._loaded.forget_missing(has_text, None if texts is None else reminded_names)

    def _adopt(self, result: ToolResult) -> bool:
        """Take over the skill in a result of `Skill`; True when something was new."""
        loaded_text = find_skill_text(result.text)
        if loaded_text is not None and self._loaded.has_examined(loaded_text.nonce):
            return False
        try:
            table = read_arguments(result.arguments or None)
        except SatchelError:
            table = {}
        tool, snapshot = self._tools().find(SkillTool.name), self._snapshot()
        skill = tool.find_named(table, snapshot) if isinstance(tool, SkillTool) else None
        loaded_text = find_skill_text(result.text, skill.name if skill is not None else "")
        is_refused = result.failed or is_refusal(result.text, str(table.get("name")))
        if loaded_text is None and skill is not None and not is_refused:
            loaded_text = SkillText(skill.name, "", ())  # a pointer, or a text that was cut out
        if loaded_text is None:
            return False

        def may_grant() -> bool:
            call = ResolvedCall(SkillTool.name, table, tool, snapshot, skill, session=self)
            is_offered = skill is not None and skill.for_model
            return is_offered and self._permissions.evaluate(call).verdict.answer == "allow"

        return self._loaded.adopt(loaded_text, result.text, skill, table, may_grant)

    @property
    def forbidden(self) -> dict[str, list[str]]:
        """The tools that each loaded skill forbids: for a host that keeps them with its history."""
        return {rules.skill: list(rules.disallowed) for rules in self._loaded.forbidden()}

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
            "filters": [
                [list(skill_filter.include), list(skill_filter.exclude)]
                for skill_filter in self._library.filters
            ],
            "tools": [list(patterns) for patterns in self._gate.within],
            "ask": list(self._gate.ask),
            "stack": list(self._stack),
            "loaded": self._loaded.dump(),
            "dropped": self._loaded.dropped,
            "prompt": self._prompt.dump(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
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
            self._library.filtered(Filter(check_patterns(include), check_patterns(exclude))),
            self._settings,
            detector=self._detector,
            runner=self._runner,
            gate=self._gate.inner(tools, self._forbidding_rules),
            stack=(*self._stack, within) if within else self._stack,
        )

    def _forbidding_rules(self) -> list[SkillToolRules]:
        """Return the rules that forbid tools here, and so in every subsession."""
        return [*self._gate.inherited(), *self._loaded.forbidden()]
