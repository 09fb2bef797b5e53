"""Decides allow / ask / deny for the tool calls of a session, and queues approval requests.

`permission_rules` has the rules. A gate adds the state of one session: which tools need approval,
the rules inherited from parent sessions, and the host's `approve`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from satchel.envelope import failure
from satchel.errors import InvalidInput, SatchelError
from satchel.i18n import Message, join_names, say
from satchel.tools.argument_patterns import UNKNOWN_BASE
from satchel.tools.framing import one_line
from satchel.tools.permission_rules import (
    RuleResult,
    check_patterns,
    decide_call,
    is_grantable,
    is_overbroad,
    is_tool_named,
    may_name_tool,
    parse_patterns,
)
from satchel.tools.proposed_changes import NEEDS_CONSENT, NEEDS_PERSON, show_changes
from satchel.tools.schema import echo
from satchel.tools.skill_tool import SkillTool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.envelope import Envelope, ErrorCode
    from satchel.library import Library
    from satchel.runners.base import Change
    from satchel.skill.model import Skill
    from satchel.tools.argument_patterns import BaseFolder
    from satchel.tools.base import CancelToken, ReviewChanges, Tool
    from satchel.tools.permission_rules import SkillToolRules
    from satchel.tools.proposed_changes import ProposedChange
    from satchel.trace import Trace

    ShowChanges = Callable[[], tuple[ProposedChange, ...]]


_POLL_INTERVAL_S = 0.02
_ASYNC = Message("Approval is asynchronous here: the host has to use `acall`")
_CHANGED = Message("The tool changed while the user was asked")

NEEDS_APPROVAL = Message(
    "`{tool}` needs a person's approval, and nobody can be asked here", tool=""
).template
"""Template of the refusal of a call that only a person may allow."""


class ToolGrants(NamedTuple):
    """The tools that a skill asks to call without approval, and those that the user granted."""

    requested: tuple[str, ...] = ()
    """The patterns of `allowed-tools` that can be granted."""
    granted: tuple[str, ...] = ()
    """The patterns that count, also those of the setting `grants`."""

    @property
    def refused(self) -> tuple[str, ...]:
        """The requested patterns that do not count."""
        return tuple(pattern for pattern in self.requested if pattern not in self.granted)


def tool_grants(
    library: Library, skill: Skill, fields: Mapping[str, Any], digest: str = ""
) -> ToolGrants:
    """Decide which tools need no approval while a skill is loaded.

    Args:
        library: The library of the skill.
        skill: The skill.
        fields: Its frontmatter.
        digest: The digest of its content; of its present content when empty.
    """
    requested = tuple(filter(is_grantable, parse_patterns(fields.get("allowed-tools"))))
    granted: tuple[str, ...] = ()
    if requested:
        with suppress(SatchelError):  # unreadable: nothing is granted
            content = digest or library.integrity.digest(skill)
            granted = requested if library.integrity.grants_tools(skill, content) else ()
    if not skill.origin.remote:
        configured = library.trust.configured_tools(skill.name)
        precise = (pattern for pattern in configured if not is_overbroad(pattern))
        granted = tuple(dict.fromkeys((*granted, *precise)))
    return ToolGrants(requested, granted)


class ApprovalRequest(NamedTuple):
    """The request for approval that `approve` gets.

    Example:
        from satchel import ApprovalRequest, Satchel


        def approve(request: ApprovalRequest) -> bool:
            print(request.question)
            for change in request.changes:
                print(change.kind, change.path, change.diff)
            return not request.reasons and not any(c.needs_consent for c in request.changes)


        session = Satchel.for_project(".").session(approve=approve)
    """

    tool: str
    """The name of the tool."""
    arguments: Mapping[str, Any]
    """The arguments of the call."""
    skill: str = ""
    """The skill that has the tool; empty for Satchel's own tools and the host's."""
    reasons: tuple[str, ...] = ()
    """What the tool may do."""
    revision: str = ""
    """Of the skill's folder: an approval holds for this revision only."""
    changes: tuple[ProposedChange, ...] = ()
    """What the tool proposes to change, after it ran; empty before. True applies these."""
    script: str = ""
    """The script that `RunScript` runs, as `SKILL/PATH`; empty for other tools."""

    @property
    def question(self) -> str:
        """The question for the user."""
        whose = say(" of the skill `{name}`", name=one_line(self.skill, 100)) if self.skill else ""
        caller = say("the tool `{tool}`{whose}", tool=self.tool, whose=whose)
        if self.script:
            caller = say("the script `{path}`", path=one_line(self.script, 200))
        if any(change.needs_consent for change in self.changes):
            return say(
                "Apply the change of `{path}` that {caller} proposes? "
                "The file runs automatically or changes how other programs behave.",
                path=self.changes[0].path, caller=caller,
            )  # fmt: skip
        if self.changes:
            return say("Apply the changes that {caller} proposes?", caller=caller)
        may = say(" It may {deeds}.", deeds=join_names(self.reasons)) if self.reasons else ""
        if self.script:
            return say("Run {script}?", script=caller) + may
        return say("Call {tool}?", tool=caller) + may


Approve = Callable[[ApprovalRequest], bool | Awaitable[bool]] | bool | Literal["all"] | None
"""A function that asks the user, sync or async; True or `all` approves every call; None or
False denies."""


class PermissionDecision(NamedTuple):
    """The decision about one call."""

    verdict: RuleResult
    ask: ApprovalRequest
    """The approval request, used if the rules answer `ask`."""
    tool: Tool | None
    """The tool that the decision is about; None for a tool of the host."""
    approval: bool | str = False
    """Whether the call was approved; a text is the reason why no approval was possible."""

    @property
    def allowed(self) -> bool:
        """Whether the call may be made."""
        answer = self.verdict.answer
        return answer == "allow" or (answer == "ask" and self.approval is True)


class ApprovalQueue:
    """Serialises approval requests across concurrent calls."""

    def __init__(self) -> None:
        self._waiting: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.turn = threading.Lock()

    def acquire(self) -> bool:
        """Wait for the turn; False in an event loop, where waiting would deadlock."""
        return self.turn.acquire(blocking=not _in_loop())

    async def aacquire(self) -> None:
        """Wait for the turn without blocking the event loop, in order within the loop."""
        import asyncio

        async with self._waiting.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            while not self.turn.acquire(blocking=False):  # noqa: ASYNC110 - threads wait too
                await asyncio.sleep(_POLL_INTERVAL_S)


class PermissionGate:
    """Permission decisions of one session."""

    def __init__(
        self,
        trace: Trace,
        approve: Approve = None,
        ask: Sequence[str] = (),
        within: Sequence[Sequence[str]] = (),
        inherited: Callable[[], Iterable[SkillToolRules]] | None = None,
        approvals: ApprovalQueue | None = None,
    ) -> None:
        """Set up the rules.

        Args:
            trace: Where decisions are recorded.
            approve: Answers approval requests.
            ask: Patterns of further tools that need approval.
            within: Lists of patterns; each list must cover a call.
            inherited: Gives the current rules of the parent session.
            approvals: Queue shared by all sessions with the same `approve`.

        Raises:
            InvalidInput: a value is not a list of patterns, or `approve` is something else.
        """
        if not (approve in (None, True, False, "all") or callable(approve)):
            raise InvalidInput(
                f"`approve` cannot be {approve!r}",
                "Give a function that asks the user, True or 'all' to approve every call, or None",
            )
        self.approvals = approvals or ApprovalQueue()
        self.trace = trace
        self.approve: Approve = approve
        self.ask = check_patterns(ask)
        self.within = tuple(check_patterns(patterns) for patterns in within)
        self.inherited: Callable[[], Iterable[SkillToolRules]] = inherited or tuple
        self.is_inner = inherited is not None

    def inner(
        self, tools: Sequence[str] | None, forbidden: Callable[[], Iterable[SkillToolRules]]
    ) -> PermissionGate:
        """The gate of a subsession: the same rules, further limited to `tools` unless None."""
        within = self.within if tools is None else (*self.within, check_patterns(tools))
        return PermissionGate(self.trace, self.approve, self.ask, within, forbidden, self.approvals)

    def offers(self, tool: str) -> bool:
        """Whether the tool is within the limits of this session."""
        return all(
            any(is_tool_named(pattern, tool) for pattern in patterns) for patterns in self.within
        )

    def may_succeed(self, name: str, tool: Tool) -> bool:
        """Whether a call of the tool can be allowed at all."""
        risky = bool(_reasons(tool)) or any(may_name_tool(pattern, name) for pattern in self.ask)
        risky = risky or tool.proposes
        return self.offers(name) and (self.can_approve or not risky)

    @property
    def can_approve(self) -> bool:
        """Whether a call that needs approval can get one."""
        return self.approve is not None and self.approve is not False

    def evaluate(  # noqa: PLR0913 - what the session knows about a call
        self,
        name: str,
        arguments: Mapping[str, Any],
        tool: Tool | None,
        grants: Iterable[SkillToolRules],
        *,
        base: BaseFolder = UNKNOWN_BASE,
        script: str = "",
        reasons: tuple[str, ...] = (),
        revision: Callable[[], str] = str,
        changes: Sequence[Change] = (),
        show: ShowChanges = tuple,
    ) -> PermissionDecision:
        """Apply the rules to a call, or to changes that it proposes, and build the request.

        Args:
            name: Name of the tool.
            arguments: Its arguments.
            tool: The tool; None for one of the host.
            grants: Rules of the loaded skills.
            base: Where relative paths begin.
            script: The script that the call runs, as `SKILL/PATH`.
            reasons: What this call needs approval for beside what the tool may do; no grant covers
                it.
            revision: Gives the revision of the skill's folder.
            changes: What the call proposes to change; a grant does not cover what needs consent.
            show: Makes these changes readable.
        """
        uncovered = bool(reasons) or any(change.needs_consent for change in changes)
        reasons = () if changes else (*_reasons(tool), *reasons)
        risky = bool(reasons or changes)
        risky = risky or any(may_name_tool(pattern, name) for pattern in self.ask)
        verdict = decide_call(
            name,
            arguments,
            needs_approval=risky,
            skill_rules=(*self.inherited(), *grants),
            boundaries=self.within,
            base=base,
        )
        if verdict.answer == "allow" and uncovered:
            verdict = RuleResult("ask")
        owner = tool.owner if tool is not None else ""
        request = ApprovalRequest(name, arguments, owner, reasons, script=script)
        if verdict.answer == "ask" and callable(self.approve):
            details = {"changes": show()} if changes else {"revision": revision()}
            request = request._replace(**details)
        return PermissionDecision(verdict, request, tool)

    def evaluate_load(
        self, name: str, grants: Sequence[SkillToolRules], base: BaseFolder
    ) -> RuleResult:
        """Decide about loading a skill: one that may not be loaded may not be read as a file."""
        boundaries = [
            patterns
            for patterns in self.within
            if any(is_tool_named(pattern, SkillTool.name) for pattern in patterns)
        ]
        return decide_call(
            SkillTool.name,
            {"name": name},
            needs_approval=any(may_name_tool(pattern, SkillTool.name) for pattern in self.ask),
            skill_rules=(*self.inherited(), *grants),
            boundaries=boundaries,
            base=base,
        )

    def resolve(self, evaluate: Callable[[], PermissionDecision]) -> PermissionDecision:
        """Evaluate a call, and request approval where needed.

        It is evaluated again when its turn in the queue comes and after an approval: a skill that
        forbids it may have been loaded meanwhile. An approval does not hold for a changed tool.
        """
        decision = evaluate()
        if decision.verdict.answer != "ask" or not callable(self.approve):
            return self._finish(decision)
        if not self.approvals.acquire():
            return self._finish(decision._replace(approval=_ASYNC))
        try:
            decision = evaluate()
            if decision.verdict.answer == "ask":
                answer = self._request_approval(decision.ask)
                again = evaluate() if answer is True else decision
                decision = _after_answer(decision, again._replace(approval=answer))
            return self._finish(decision)
        finally:
            self.approvals.turn.release()

    async def aresolve(self, evaluate: Callable[[], PermissionDecision]) -> PermissionDecision:
        """`resolve` without blocking the event loop."""
        import asyncio

        decision = await asyncio.to_thread(evaluate)
        if decision.verdict.answer != "ask" or not callable(self.approve):
            return self._finish(decision)
        await self.approvals.aacquire()
        acquired = [self.approvals.turn]
        try:
            decision = await asyncio.to_thread(evaluate)
            if decision.verdict.answer == "ask":
                answer = await self._arequest_approval(decision.ask, acquired)
                again = await asyncio.to_thread(evaluate) if answer is True else decision
                decision = _after_answer(decision, again._replace(approval=answer))
            return self._finish(decision)
        finally:
            for turn in acquired:
                turn.release()

    def reviewer(
        self,
        evaluate: Callable[[tuple[Change, ...], ShowChanges], PermissionDecision],
        *,
        asked: bool,
        cancel: CancelToken | None = None,
    ) -> ReviewChanges:
        """Make the function that decides about the changes which a call proposes.

        Args:
            evaluate: Applies the rules to changes of the call.
            asked: Whether the host asked a person before the call: enough without `approve`.
            cancel: Of an asynchronous call, which makes requests in the loop.
        """

        def review(changes: tuple[Change, ...], diff: Callable[[Change], str]) -> bool | str:
            can_ask = callable(self.approve)
            if not can_ask and any(change.needs_consent for change in changes):
                return NEEDS_CONSENT
            show = cache(lambda: show_changes(changes, diff))

            def decide() -> PermissionDecision:
                return evaluate(changes, show)

            if cancel is None:
                decision = self.resolve(decide)
            else:
                decision = cancel.wait_for(self.aresolve(decide))
            if decision.allowed or (asked and not can_ask and decision.verdict.answer == "ask"):
                return True
            if decision.verdict.answer == "deny":
                return Message("a loaded skill forbids the tool")
            if isinstance(decision.approval, str):
                return decision.approval
            return False if can_ask else NEEDS_PERSON

        return review

    def _request_approval(self, ask: ApprovalRequest) -> bool | str:
        """Whether `approve` returns True; a text is the reason why it could not answer.

        An adapter's own `approve` returns such a reason as a `Message`.
        """
        assert callable(self.approve)  # noqa: S101 - checked by `resolve`
        try:
            answer: Any = self.approve(ask)
            if inspect.isawaitable(answer):
                if _in_loop():
                    if inspect.iscoroutine(answer):
                        answer.close()
                    return _ASYNC
                import asyncio

                answer = asyncio.run(_wait_for(answer))
        except Exception as exc:  # noqa: BLE001 - a failed approval is a denial
            return self._approval_failed(exc)
        return answer if isinstance(answer, Message) else answer is True

    async def _arequest_approval(
        self, ask: ApprovalRequest, acquired: list[threading.Lock]
    ) -> bool | str:
        """The same; a synchronous `approve` runs in a thread.

        Args:
            ask: The request.
            acquired: The acquired turn; removed when a cancelled task leaves the request open.
        """
        import asyncio

        approve = self.approve
        assert callable(approve)  # noqa: S101 - same
        try:
            answer: Any
            if _is_async(approve):
                answer = approve(ask)
            else:
                asking = asyncio.ensure_future(asyncio.to_thread(approve, ask))
                try:
                    answer = await asyncio.shield(asking)
                except asyncio.CancelledError:
                    turn = acquired.pop()  # the user still sees the question
                    asking.add_done_callback(lambda _: turn.release())
                    raise
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as exc:  # noqa: BLE001 - same
            return self._approval_failed(exc)
        return answer if isinstance(answer, Message) else answer is True

    def _finish(self, decision: PermissionDecision) -> PermissionDecision:
        """Apply a blanket approval, and record the decision."""
        verdict, ask = decision.verdict, decision.ask
        if verdict.answer == "ask" and (self.approve is True or self.approve == "all"):
            decision = decision._replace(approval=True)
        if verdict.answer == "allow" and verdict.pattern:
            self.trace.record(
                "approved", (verdict.by,), tool=ask.tool, pattern=verdict.pattern, by="skill"
            )
        elif verdict.answer == "ask" and decision.approval is True:
            by = "person" if callable(self.approve) else "host"
            self.trace.record("approved", (ask.skill,) if ask.skill else (), tool=ask.tool, by=by)
        return decision

    def _approval_failed(self, exc: Exception) -> str:
        self.trace.record("failed", (), what="approval", reason=f"{type(exc).__name__}: {exc}")
        import logging

        logging.getLogger("satchel").warning("`approve` failed", exc_info=exc)
        return Message("The user could not be asked: the approval failed")

    def refused(self, decision: PermissionDecision, tool_names: Sequence[str]) -> Envelope:
        """The envelope for a denied call; `tool_names` are named when there is none."""
        ask, verdict, reason = decision.ask, decision.verdict, decision.approval
        tool = one_line(ask.tool, 60)
        code: ErrorCode = "PERMISSION_DENIED"
        if verdict.answer == "deny" and not verdict.pattern:
            code = "NOT_FOUND"
            message = Message("There is no tool `{name}` here", name=tool)
            step = Message(
                "The tools are {names}", names=[f"`{name}`" for name in tool_names] or "none"
            )
        elif verdict.answer == "deny" and not verdict.by:
            form = one_line(verdict.pattern, 100)
            message = Message("`{tool}` may be called here only as `{form}`", tool=tool, form=form)
            step = Message("Call it that way, or go on without it")
        elif verdict.answer == "deny":
            message = Message(
                "The loaded skill `{name}` forbids `{tool}` (`disallowed-tools: {pattern}`)",
                name=one_line(verdict.by, 100),
                tool=tool,
                pattern=one_line(verdict.pattern, 100),
            )
            step = Message("Go on without it")
        elif isinstance(reason, str):
            message = Message("`{tool}` was not called. {reason}", tool=tool, reason=reason)
            step = Message("Go on without it, and tell the user")
            step = Message("Try again") if reason == _CHANGED else step
        elif callable(self.approve):
            message = Message("The user did not agree to call `{tool}`", tool=tool)
            step = Message(
                "Do not call it again this way: ask what is wanted, or go on without it",
                people="Run it again to agree",
            )
        else:
            message = Message(NEEDS_APPROVAL, tool=tool)
            step = Message("Go on without it, and tell the user what you wanted to do with it")
        who = tuple(name for name in (verdict.by or ask.skill,) if name)
        self.trace.record("refused", who, tool=ask.tool, reason=message)
        params = echo(dict(ask.arguments))
        return failure(code, message, step, params=params, time_ms=0)


async def _wait_for(answer: Awaitable[Any]) -> Any:
    return await answer


def _in_loop() -> bool:
    """Whether this thread runs an event loop, which must not be blocked."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of objects that can be called
    )


def _after_answer(asked: PermissionDecision, now: PermissionDecision) -> PermissionDecision:
    """The decision after an answer; an approval holds only for the request it answered."""
    has_changed = now.verdict.answer == "ask" and now.ask != asked.ask
    return now._replace(approval=_CHANGED) if has_changed else now


def _reasons(tool: Tool | None) -> tuple[str, ...]:
    if tool is None:
        return ()
    reasons = [say("do everything that you can do")] if tool.unsandboxed else []
    if tool.hints.get("openWorldHint"):
        reasons.append(say("use the network"))
    if tool.proposes:
        if tool.secrets:  # which could end up in a file
            names = join_names(f"`{one_line(name, 60)}`" for name in tool.secrets)
            reasons.append(say("use the secrets {names}", names=names))
    elif tool.hints.get("destructiveHint"):
        text = say("change the project's files directly, since it runs without a sandbox")
        reasons.append(
            text if tool.owner or tool.unsandboxed else say("read and change the project's files")
        )
    elif tool.writes:
        reasons.append(say("write files of the project"))
    return tuple(reasons)
