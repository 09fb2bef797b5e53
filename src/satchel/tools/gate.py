"""Who says yes to a call that needs a person's word? The gate of one conversation.

`permits` has the rules. Here is what a session keeps for them: which tools are risky, what the
loaded skills allow and forbid, and the person who is asked.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from satchel._language import Message, listed, say
from satchel.envelope import failure
from satchel.tools.frame import one_line
from satchel.tools.parameters import echo
from satchel.tools.permits import NOWHERE, as_patterns, decide, may_name, names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from satchel.envelope import Envelope
    from satchel.tools.base import Tool
    from satchel.tools.permits import Grant, Place, Verdict
    from satchel.trace import Trace


_PAUSE = 0.02
_ASYNC = "Approval is asynchronous here: the host has to use `acall`"
_CHANGED = "The tool changed while the user was asked"


class Ask(NamedTuple):
    """What a person is asked."""

    tool: str
    arguments: Mapping[str, Any]
    skill: str = ""
    """Whose tool it is; empty for Satchel's own and the host's."""
    reasons: tuple[str, ...] = ()
    """Why it is asked: what the tool may do."""
    revision: str = ""
    """Of the skill's folder: a yes is for what is in it now."""

    @property
    def question(self) -> str:
        """The question in words."""
        whose = say(" of the skill `{name}`", name=one_line(self.skill, 100)) if self.skill else ""
        may = say(" It may {deeds}.", deeds=listed(self.reasons)) if self.reasons else ""
        return say("Call the tool `{tool}`{whose}?", tool=self.tool, whose=whose) + may


if TYPE_CHECKING:
    Approve = (
        Callable[[Ask], bool | Awaitable[bool]] | bool | Literal["all"] | None
    )  # fmt: skip
    """A function that asks a person, also an asynchronous one; True or `all` says yes to
    everything; None says no."""


class Ruling(NamedTuple):
    """What was found about one call, and for which tool."""

    verdict: Verdict
    ask: Ask
    """What a person is asked, if one is."""
    tool: Tool | None
    """The very tool that was judged; None for one of the host's."""
    why: bool | str = False
    """Whether a person said yes; a text says why nobody could be asked."""

    @property
    def go(self) -> bool:
        """Whether the call may be made."""
        return self.verdict.answer == "go" or (self.verdict.answer == "ask" and self.why is True)


class Bell:
    """Lets one question at a time reach a person, whoever asks: calls may be made side by side."""

    def __init__(self) -> None:
        self._waiting: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.turn = threading.Lock()

    def ring(self) -> bool:
        """Wait for one's turn; False where the one who is asked could never answer then."""
        return self.turn.acquire(blocking=not _in_loop())

    async def aring(self) -> None:
        """Wait for one's turn without holding up the loop, first come first served in it."""
        import asyncio

        async with self._waiting.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            while not self.turn.acquire(blocking=False):  # noqa: ASYNC110 - threads wait too
                await asyncio.sleep(_PAUSE)


class Gate:
    """Decides about the calls of one conversation."""

    def __init__(
        self,
        trace: Trace,
        approve: Approve = None,
        ask: Sequence[str] = (),
        within: Sequence[Sequence[str]] = (),
        inherited: Callable[[], Iterable[Grant]] | None = None,
        bell: Bell | None = None,
    ) -> None:
        """Take the rules.

        Args:
            trace: Where decisions are recorded.
            approve: Who is asked.
            ask: Patterns of tools that are risky beside those that are anyway.
            within: Lists of patterns; each must cover a call.
            inherited: Gives what is forbidden now by skills of whoever gave the task.
            bell: Shared by all who ask the same person.

        Raises:
            InvalidInput: the patterns are none.
        """
        self.bell = bell or Bell()
        self.trace = trace
        self.approve: Approve = approve
        self.ask = as_patterns(ask)
        self.within = tuple(as_patterns(patterns) for patterns in within)
        self.inherited: Callable[[], Iterable[Grant]] = inherited or tuple
        self.is_inner = inherited is not None

    def inner(self, tools: Sequence[str] | None, forbidden: Callable[[], Iterable[Grant]]) -> Gate:
        """The gate of a conversation within this one: the same rules, and `tools` too.

        Args:
            tools: Patterns of the tools that may be called; all that can be called here when None.
            forbidden: Gives what is forbidden here at the time of a call.
        """
        within = self.within if tools is None else (*self.within, as_patterns(tools))
        return Gate(self.trace, self.approve, self.ask, within, forbidden, self.bell)

    def offers(self, tool: str) -> bool:
        """Whether the tool is there at all for this conversation."""
        return all(any(names(one, tool) for one in patterns) for patterns in self.within)

    def may_succeed(self, name: str, tool: Tool) -> bool:
        """Whether any call of a tool could go through: somebody can be asked, if it needs that."""
        risky = bool(_reasons(tool)) or any(may_name(pattern, name) for pattern in self.ask)
        return self.offers(name) and not (risky and (self.approve is None or self.approve is False))

    def judge(
        self,
        name: str,
        arguments: Mapping[str, Any],
        tool: Tool | None,
        grants: Iterable[Grant],
        *,
        place: Place = NOWHERE,
        revision: Callable[[], str] = str,
    ) -> Ruling:
        """What the rules say, and what a person would be asked.

        Args:
            name: The tool's name.
            arguments: What it is called with.
            tool: The tool, unless it is the host's.
            grants: What the loaded skills say.
            place: Where relative paths begin.
            revision: Gives the revision of the tool's skill, when somebody is to be asked.
        """
        reasons = _reasons(tool)
        risky = bool(reasons) or any(may_name(pattern, name) for pattern in self.ask)
        found = decide(
            name,
            arguments,
            risky=risky,
            grants=(*self.inherited(), *grants),
            within=self.within,
            place=place,
        )
        owner = str(getattr(tool, "owner", "")) if tool is not None else ""
        asked = revision() if found.answer == "ask" and callable(self.approve) else ""
        return Ruling(found, Ask(name, arguments, owner, reasons, asked), tool)

    def settle(self, judge: Callable[[], Ruling]) -> Ruling:
        """Judge a call, and ask a person where that is needed.

        It is judged again when the person's turn comes and after a yes: meanwhile a skill may have
        been loaded that forbids it. A yes does not hold for a tool that has changed since.
        """
        found = judge()
        if found.verdict.answer != "ask" or not callable(self.approve):
            return self._done(found)
        if not self.bell.ring():
            return self._done(found._replace(why=_ASYNC))
        try:
            found = judge()
            if found.verdict.answer == "ask":
                answer = self._agreed(found.ask)
                again = judge() if answer is True else found
                found = _answered(found, again._replace(why=answer))
            return self._done(found)
        finally:
            self.bell.turn.release()

    async def asettle(self, judge: Callable[[], Ruling]) -> Ruling:
        """The same for a host with an event loop, which is not held up."""
        import asyncio

        found = await asyncio.to_thread(judge)
        if found.verdict.answer != "ask" or not callable(self.approve):
            return self._done(found)
        await self.bell.aring()
        held = [self.bell.turn]
        try:
            found = await asyncio.to_thread(judge)
            if found.verdict.answer == "ask":
                answer = await self._aagreed(found.ask, held)
                again = await asyncio.to_thread(judge) if answer is True else found
                found = _answered(found, again._replace(why=answer))
            return self._done(found)
        finally:
            for turn in held:
                turn.release()

    def _agreed(self, ask: Ask) -> bool | str:
        """Whether the person says yes; a text says why it could not be asked."""
        assert callable(self.approve)  # noqa: S101 - nobody is asked otherwise
        try:
            answer: Any = self.approve(ask)
            if inspect.isawaitable(answer):
                if _in_loop():
                    if inspect.iscoroutine(answer):
                        answer.close()
                    return _ASYNC
                import asyncio

                answer = asyncio.run(_wait_for(answer))
        except Exception as exc:  # noqa: BLE001 - whoever cannot answer has not said yes
            return self._broken(exc)
        return answer is True

    async def _aagreed(self, ask: Ask, held: list[threading.Lock]) -> bool | str:
        """The same; a function that is not asynchronous is called in a thread.

        Args:
            ask: The question.
            held: The person's turn; taken out when it ends later than this.
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
                    turn = held.pop()  # the person still sees the question
                    asking.add_done_callback(lambda _: turn.release())
                    raise
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as exc:  # noqa: BLE001 - same
            return self._broken(exc)
        return answer is True

    def _done(self, found: Ruling) -> Ruling:
        """The ruling, with the word of a host that approves everything, and recorded."""
        verdict, ask = found.verdict, found.ask
        if verdict.answer == "ask" and (self.approve is True or self.approve == "all"):
            found = found._replace(why=True)
        if verdict.answer == "go" and verdict.pattern:
            self.trace.record(
                "approved", (verdict.by,), tool=ask.tool, pattern=verdict.pattern, by="skill"
            )
        elif verdict.answer == "ask" and found.why is True:
            by = "person" if callable(self.approve) else "host"
            self.trace.record("approved", (ask.skill,) if ask.skill else (), tool=ask.tool, by=by)
        return found

    def _broken(self, exc: Exception) -> str:
        self.trace.record("failed", (), what="approval", reason=f"{type(exc).__name__}: {exc}")
        return "Nobody could be asked: the approval failed"

    def refused(self, ask: Ask, verdict: Verdict, why: str, known: Sequence[str]) -> Envelope:
        """The answer to a call that is not made."""
        shown = one_line(ask.tool, 60)
        if verdict.answer == "no" and not verdict.pattern:
            code, message = "NOT_FOUND", f"There is no tool `{shown}` here"
            step = "The tools are " + (", ".join(f"`{name}`" for name in known) or "none")
        elif verdict.answer == "no" and not verdict.by:
            code = "PERMISSION_DENIED"
            message = f"`{shown}` may be called here only as `{one_line(verdict.pattern, 100)}`"
            step = "Call it that way, or go on without it"
        elif verdict.answer == "no":
            by, pattern = one_line(verdict.by, 100), one_line(verdict.pattern, 100)
            code = "PERMISSION_DENIED"
            message = f"The loaded skill `{by}` forbids `{shown}` (`disallowed-tools: {pattern}`)"
            step = "Go on without it, as the skill wants it"
        elif why:
            code, message = "PERMISSION_DENIED", f"`{shown}` was not called. {why}"
            step = "Call it again" if why == _CHANGED else "Go on without it, and tell the user"
        elif callable(self.approve):
            code, message = "PERMISSION_DENIED", f"The user did not agree to call `{shown}`"
            step = "Do not call it again this way: ask what is wanted, or go on without"
        else:
            code = "PERMISSION_DENIED"
            message = Message(
                "`{tool}` needs a person's approval, and nobody can be asked here", tool=shown
            )
            step = "Go on without it, and tell the user what you wanted to do with it"
        who = tuple(name for name in (verdict.by or ask.skill,) if name)
        self.trace.record("refused", who, tool=ask.tool, reason=message)
        given = echo(dict(ask.arguments))
        return failure(code, message, step, params=given, time_ms=0)


async def _wait_for(answer: Awaitable[Any]) -> Any:
    return await answer


def _in_loop() -> bool:
    """Whether this thread runs an event loop, which must not be held up."""
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


def _answered(asked: Ruling, now: Ruling) -> Ruling:
    """What holds after an answer; a yes is only for the tool that the person was asked about."""
    has_changed = now.verdict.answer == "ask" and now.ask != asked.ask
    return now._replace(why=_CHANGED) if has_changed else now


def _reasons(tool: Tool | None) -> tuple[str, ...]:
    """What a tool may do that a person would want to know before."""
    if tool is None:
        return ()
    hints: Mapping[str, Any] = getattr(tool, "hints", {})
    found: list[str] = []
    if hints.get("openWorldHint"):
        found.append(say("use the network"))
    if hints.get("destructiveHint"):
        found.append(say("read and change the project's files"))
    elif getattr(tool, "writes", False):
        found.append(say("write files of the project"))
    return tuple(found)
