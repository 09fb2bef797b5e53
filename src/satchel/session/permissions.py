"""Decides allow / ask / deny for the tool calls of a session, and queues approval requests.

`permission_rules` has the rules. A gate adds the state of one session: which tools need approval,
the rules inherited from parent sessions, and the host's `approve`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from satchel.envelope import failure
from satchel.errors import SatchelError
from satchel.i18n import Message, join_names, say
from satchel.tools.framing import one_line
from satchel.tools.permission_rules import (
    NOWHERE,
    as_patterns,
    decide,
    is_overbroad,
    may_match_name,
    names,
    patterns_of,
)
from satchel.tools.schema import echo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Library
    from satchel.skill.model import Skill
    from satchel.tools.base import Tool
    from satchel.tools.permission_rules import BaseFolder, RuleResult, SkillToolRules
    from satchel.trace import Trace


_POLL_INTERVAL_S = 0.02
_ASYNC = "Approval is asynchronous here: the host has to use `acall`"
_CHANGED = "The tool changed while the user was asked"

NEEDS_APPROVAL = Message(
    "`{tool}` needs a person's approval, and nobody can be asked here", tool=""
).template
"""Template of the refusal of a call that only a person may allow."""


class ToolGrants(NamedTuple):
    """The tools that a skill asks to call without approval, and those that the user granted."""

    requested: tuple[str, ...] = ()
    """The patterns of `allowed-tools` that name a tool."""
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
    requested = _precise(patterns_of(fields.get("allowed-tools")))
    granted: tuple[str, ...] = ()
    if requested:
        with suppress(SatchelError):  # unreadable: nothing is granted
            content = digest or library.integrity.digest(skill)
            granted = requested if library.integrity.grants_tools(skill, content) else ()
    if not skill.origin.remote:
        configured = _precise(library.trust.configured_tools(skill.name))
        granted = tuple(dict.fromkeys((*granted, *configured)))
    return ToolGrants(requested, granted)


def _precise(patterns: Iterable[str]) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if not is_overbroad(pattern))


class ApprovalRequest(NamedTuple):
    """The request for approval that `approve` gets."""

    tool: str
    arguments: Mapping[str, Any]
    skill: str = ""
    """The skill that has the tool; empty for Satchel's own tools and the host's."""
    reasons: tuple[str, ...] = ()
    """What the tool may do."""
    revision: str = ""
    """Of the skill's folder: an approval holds for this revision only."""

    @property
    def question(self) -> str:
        """The question for the user."""
        whose = say(" of the skill `{name}`", name=one_line(self.skill, 100)) if self.skill else ""
        may = say(" It may {deeds}.", deeds=join_names(self.reasons)) if self.reasons else ""
        return say("Call the tool `{tool}`{whose}?", tool=self.tool, whose=whose) + may


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
            InvalidInput: a value is not a list of patterns.
        """
        self.approvals = approvals or ApprovalQueue()
        self.trace = trace
        self.approve: Approve = approve
        self.ask = as_patterns(ask)
        self.within = tuple(as_patterns(patterns) for patterns in within)
        self.inherited: Callable[[], Iterable[SkillToolRules]] = inherited or tuple
        self.is_inner = inherited is not None

    def inner(
        self, tools: Sequence[str] | None, forbidden: Callable[[], Iterable[SkillToolRules]]
    ) -> PermissionGate:
        """The gate of a subsession: the same rules, further limited to `tools` unless None."""
        within = self.within if tools is None else (*self.within, as_patterns(tools))
        return PermissionGate(self.trace, self.approve, self.ask, within, forbidden, self.approvals)

    def offers(self, tool: str) -> bool:
        """Whether the tool is within the limits of this session."""
        return all(any(names(one, tool) for one in patterns) for patterns in self.within)

    def may_succeed(self, name: str, tool: Tool) -> bool:
        """Whether a call of the tool can be allowed at all."""
        risky = bool(_reasons(tool)) or any(may_match_name(pattern, name) for pattern in self.ask)
        return self.offers(name) and not (risky and (self.approve is None or self.approve is False))

    def evaluate(
        self,
        name: str,
        arguments: Mapping[str, Any],
        tool: Tool | None,
        grants: Iterable[SkillToolRules],
        *,
        base: BaseFolder = NOWHERE,
        revision: Callable[[], str] = str,
    ) -> PermissionDecision:
        """Apply the rules to a call and build its approval request."""
        reasons = _reasons(tool)
        risky = bool(reasons) or any(may_match_name(pattern, name) for pattern in self.ask)
        found = decide(
            name,
            arguments,
            risky=risky,
            grants=(*self.inherited(), *grants),
            within=self.within,
            base=base,
        )
        owner = tool.owner if tool is not None else ""
        asked = revision() if found.answer == "ask" and callable(self.approve) else ""
        return PermissionDecision(
            found, ApprovalRequest(name, arguments, owner, reasons, asked), tool
        )

    def resolve(self, evaluate: Callable[[], PermissionDecision]) -> PermissionDecision:
        """Evaluate a call, and request approval where needed.

        It is evaluated again when its turn in the queue comes and after an approval: a skill that
        forbids it may have been loaded meanwhile. An approval does not hold for a changed tool.
        """
        found = evaluate()
        if found.verdict.answer != "ask" or not callable(self.approve):
            return self._finish(found)
        if not self.approvals.acquire():
            return self._finish(found._replace(approval=_ASYNC))
        try:
            found = evaluate()
            if found.verdict.answer == "ask":
                answer = self._request_approval(found.ask)
                again = evaluate() if answer is True else found
                found = _after_answer(found, again._replace(approval=answer))
            return self._finish(found)
        finally:
            self.approvals.turn.release()

    async def aresolve(self, evaluate: Callable[[], PermissionDecision]) -> PermissionDecision:
        """`resolve` without blocking the event loop."""
        import asyncio

        found = await asyncio.to_thread(evaluate)
        if found.verdict.answer != "ask" or not callable(self.approve):
            return self._finish(found)
        await self.approvals.aacquire()
        held = [self.approvals.turn]
        try:
            found = await asyncio.to_thread(evaluate)
            if found.verdict.answer == "ask":
                answer = await self._arequest_approval(found.ask, held)
                again = await asyncio.to_thread(evaluate) if answer is True else found
                found = _after_answer(found, again._replace(approval=answer))
            return self._finish(found)
        finally:
            for turn in held:
                turn.release()

    def _request_approval(self, ask: ApprovalRequest) -> bool | str:
        """Whether `approve` returns True; a text is the reason why it could not answer."""
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
        return answer is True

    async def _arequest_approval(
        self, ask: ApprovalRequest, held: list[threading.Lock]
    ) -> bool | str:
        """The same; a synchronous `approve` runs in a thread.

        Args:
            ask: The request.
            held: The acquired turn; removed when a cancelled task leaves the request open.
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
                    turn = held.pop()  # the user still sees the question
                    asking.add_done_callback(lambda _: turn.release())
                    raise
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as exc:  # noqa: BLE001 - same
            return self._approval_failed(exc)
        return answer is True

    def _finish(self, found: PermissionDecision) -> PermissionDecision:
        """Apply a blanket approval, and record the decision."""
        verdict, ask = found.verdict, found.ask
        if verdict.answer == "ask" and (self.approve is True or self.approve == "all"):
            found = found._replace(approval=True)
        if verdict.answer == "allow" and verdict.pattern:
            self.trace.record(
                "approved", (verdict.by,), tool=ask.tool, pattern=verdict.pattern, by="skill"
            )
        elif verdict.answer == "ask" and found.approval is True:
            by = "person" if callable(self.approve) else "host"
            self.trace.record("approved", (ask.skill,) if ask.skill else (), tool=ask.tool, by=by)
        return found

    def _approval_failed(self, exc: Exception) -> str:
        self.trace.record("failed", (), what="approval", reason=f"{type(exc).__name__}: {exc}")
        return "Nobody could be asked: the approval failed"

    def refused(self, decision: PermissionDecision, known: Sequence[str]) -> Envelope:
        """The envelope for a denied call; `known` are the tools to name when there is none."""
        ask, verdict, reason = decision.ask, decision.verdict, decision.approval
        shown = one_line(ask.tool, 60)
        if verdict.answer == "deny" and not verdict.pattern:
            code, message = "NOT_FOUND", f"There is no tool `{shown}` here"
            step = "The tools are " + (", ".join(f"`{name}`" for name in known) or "none")
        elif verdict.answer == "deny" and not verdict.by:
            code = "PERMISSION_DENIED"
            message = f"`{shown}` may be called here only as `{one_line(verdict.pattern, 100)}`"
            step = "Call it that way, or go on without it"
        elif verdict.answer == "deny":
            by, pattern = one_line(verdict.by, 100), one_line(verdict.pattern, 100)
            code = "PERMISSION_DENIED"
            message = f"The loaded skill `{by}` forbids `{shown}` (`disallowed-tools: {pattern}`)"
            step = "Go on without it, as the skill wants it"
        elif isinstance(reason, str):
            code, message = "PERMISSION_DENIED", f"`{shown}` was not called. {reason}"
            step = "Try again" if reason == _CHANGED else "Go on without it, and tell the user"
        elif callable(self.approve):
            code, message = "PERMISSION_DENIED", f"The user did not agree to call `{shown}`"
            step = "Do not call it again this way: ask what is wanted, or go on without"
        else:
            code = "PERMISSION_DENIED"
            message = Message(NEEDS_APPROVAL, tool=shown)
            step = "Go on without it, and tell the user what you wanted to do with it"
        who = tuple(name for name in (verdict.by or ask.skill,) if name)
        self.trace.record("refused", who, tool=ask.tool, reason=message)
        given = echo(dict(ask.arguments))
        return failure(code, message, step, params=given, time_ms=0)


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
    found: list[str] = []
    if tool.hints.get("openWorldHint"):
        found.append(say("use the network"))
    if tool.hints.get("destructiveHint"):
        found.append(say("read and change the project's files"))
    elif tool.writes:
        found.append(say("write files of the project"))
    return tuple(found)
