"""The framework-independent part of adapters: sessions of conversations, tool calls, notices.

An adapter gets the session of a conversation from `Sessions`, gives its framework the session's
`prompt` and `tools_of`, passes each tool call of the model to `call` or `acall`, checks tools of
the host with `permit`, and appends the `tail` to the user's message.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakKeyDictionary, WeakSet

from satchel.errors import InvalidInput
from satchel.i18n import join_names, say
from satchel.satchel import Satchel
from satchel.session.history import SKILL, ConversationHistory, ToolResult
from satchel.session.options import ChildOptions, SessionOptions, check_options
from satchel.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from typing import Unpack

    from satchel.envelope import Envelope

    SkillsSource = Session | Satchel | str | os.PathLike[str] | None
    """A session of one conversation, or the skills that sessions are created from."""

MAX_CONVERSATIONS = 1_000
"""An adapter drops the longest inactive conversation beyond this number."""

FORBIDDEN = "satchel_forbidden"
"""Where an adapter stores `Session.forbidden`: in a state, or in the metadata of a message."""

__all__ = [
    "FORBIDDEN",
    "MAX_CONVERSATIONS",
    "SKILL",
    "AdapterReply",
    "ChildOptions",
    "ConversationHistory",
    "SessionOptions",
    "Sessions",
    "ToolResult",
    "ToolSpec",
    "acall",
    "apermit",
    "atail",
    "atools_of",
    "call",
    "join_texts",
    "newest_forbidden",
    "permit",
    "running",
    "sessions_of",
    "shadowed",
    "tail",
    "tools_of",
]

_running: ContextVar[Session | None] = ContextVar("satchel_session", default=None)


_recorded_shadowed: WeakKeyDictionary[Session, set[str]] = WeakKeyDictionary()
"""The tools of each session whose names the host has too, once they are recorded."""
_shadowed_lock = threading.Lock()


class ToolSpec(NamedTuple):
    """A framework-independent tool definition."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema."""


class AdapterReply(NamedTuple):
    """The reply of a tool call for the model."""

    text: str
    failed: bool
    """For frameworks that mark results as errors."""
    envelope: Envelope


class Sessions:
    """The sessions of an adapter by conversation; they share no loaded skills and no approvals."""

    def __init__(
        self, begin: Callable[[], Session], *, nested: bool = False, single: Session | None = None
    ) -> None:
        """Create a map; `sessions_of` does so from user input.

        Args:
            begin: Creates the session of a new conversation.
            nested: Whether these are conversations of sub-agents.
            single: The session of the only conversation.
        """
        self.nested = nested
        self.single = single
        self.begin = begin
        self._sessions_by_key: OrderedDict[str, Session] = OrderedDict()
        self._known: WeakSet[Session] = WeakSet()
        """Includes dropped sessions, while they are still in use."""
        self._lock = threading.RLock()

    def of(self, key: str = "", history: ConversationHistory | None = None) -> Session:
        """The session of a conversation; what the history tells is added to it.

        The longest inactive conversation is dropped when there are too many. If it continues, the
        history tells what it had loaded, as after a restart.

        Args:
            key: The id of the conversation, as the framework has it.
            history: What the framework's messages say, such as after a restart.
        """
        with self._lock:
            session = self._sessions_by_key.get(key)
            if session is None:
                session = self._sessions_by_key[key] = self.begin()
                self._known.add(session)
                if len(self._sessions_by_key) > MAX_CONVERSATIONS:
                    dropped_key, dropped = self._sessions_by_key.popitem(last=False)
                    reason = f"more than {MAX_CONVERSATIONS:,} conversations"
                    names = tuple(dropped.loaded)
                    dropped.trace.record(
                        "forgotten", names, conversation=dropped_key, reason=reason
                    )
            self._sessions_by_key.move_to_end(key)
        if history is not None:
            session.sync(history, complete=False)
        return session

    def child(self, **limits: Unpack[ChildOptions]) -> Sessions:
        """For a sub-agent: its session is a child of the session that is running when it starts.

        Args:
            limits: What the sub-agent may use; see `ChildOptions`.
        """
        check_options(limits, ChildOptions)
        return Sessions(lambda: self._parent().child(**limits), nested=True)

    def _parent(self) -> Session:
        """The parent of a sub-agent: the running session, or the only one there is.

        Raises:
            InvalidInput: there are several, and their restrictions may differ.
        """
        running_now = _running.get()
        with self._lock:
            if running_now is not None and running_now in self._known:
                return running_now
            sessions = {id(session): session for session in self._known}
            if len(sessions) > 1:
                raise InvalidInput(
                    say("It is not known which conversation starts this sub-agent"),
                    say("Start it inside `running(session)` of `satchel.integrations.base`"),
                )
            return next(iter(sessions.values())) if sessions else self.of()


def sessions_of(
    skills: SkillsSource | Sessions = None, **options: Unpack[SessionOptions]
) -> Sessions:
    """Create a `Sessions` from an adapter's arguments.

    Args:
        skills: A `Satchel` or a project's folder (None: the current one), from which each
            conversation gets its own session; or the session of a single conversation.
        options: As for `Satchel.session`, for new sessions.

    Raises:
        InvalidInput: an option has a wrong name or value, or is combined with an existing session;
            or `skills` is something else.

    Example:
        from satchel.integrations.base import sessions_of

        sessions = sessions_of(".", exclude=["draft-*"])
        assert sessions.of("ada") is sessions.of("ada")
        assert sessions.of("ada") is not sessions.of("grace")
    """
    check_options(options)
    if skills is None or isinstance(skills, str | os.PathLike):
        skills = Satchel.for_project(skills or ".")
    if isinstance(skills, Satchel):
        satchel = skills
        satchel.session(**options)  # reports a wrong option now, not at the first request
        return Sessions(lambda: satchel.session(**options))
    if not isinstance(cast("object", skills), Session | Sessions):
        raise InvalidInput(
            say("An adapter cannot take skills from a `{kind}`", kind=type(skills).__name__),
            say("Pass a `Satchel`, the path of a project, or a `Session`"),
        )
    if options:
        names = join_names(f"`{name}`" for name in options)
        raise InvalidInput(
            say("{names} cannot be given to a session that exists", names=names),
            say("Pass them to `Satchel.session`"),
        )
    if isinstance(skills, Sessions):
        return skills
    session = skills
    return Sessions(lambda: session, single=session)


@contextmanager
def running(session: Session) -> Generator[None]:
    """Within this context, new sub-agents are children of this session.

    Args:
        session: The session whose tools run.
    """
    token = _running.set(session)
    try:
        yield
    finally:
        _running.reset(token)


def tools_of(session: Session) -> list[ToolSpec]:
    """The tools for the next request; the list may change for the one after it."""
    return specs_in(session.definitions())


async def atools_of(session: Session) -> list[ToolSpec]:
    """`tools_of` in a worker thread."""
    return specs_in(await session.adefinitions())


def specs_in(definitions: Iterable[Mapping[str, Any]]) -> list[ToolSpec]:
    """Convert definitions in the format of `anthropic`."""
    return [
        ToolSpec(item["name"], item["description"], item["input_schema"]) for item in definitions
    ]


def call(
    session: Session, name: str, arguments: Mapping[str, Any] | str, call_id: str | None = ""
) -> AdapterReply:
    """Call a tool. It never raises."""
    envelope = session.call(name, arguments, call_id=call_id or "")
    return _make_reply(envelope, join_texts(session.change_notice(), session.reminder_due()))


async def acall(
    session: Session,
    name: str,
    arguments: Mapping[str, Any] | str,
    call_id: str | None = "",
    *,
    approved: bool = False,
) -> AdapterReply:
    """Call a tool without blocking the loop; cancelling the task ends the program.

    Args:
        session: The session.
        name: Name of the tool.
        arguments: Its arguments.
        call_id: The provider's id of the call.
        approved: The framework asked a person before this call.
    """
    envelope = await session.acall(name, arguments, call_id=call_id or "", approved=approved)
    return _make_reply(envelope, join_texts(await session.achange_notice(), session.reminder_due()))


def permit(session: Session, name: str, arguments: Mapping[str, Any] | str) -> AdapterReply | None:
    """The reply for a host tool that a loaded skill forbids; None when it is allowed."""
    refusal = session.refusal_for(name, arguments)
    return _make_reply(refusal) if refusal else None


async def apermit(
    session: Session, name: str, arguments: Mapping[str, Any] | str
) -> AdapterReply | None:
    """`permit` with asynchronous approval."""
    refusal = await session.arefusal_for(name, arguments)
    return _make_reply(refusal) if refusal else None


def _make_reply(envelope: Envelope, notices: str = "") -> AdapterReply:
    """The part of an envelope for the model, with change notices."""
    text = f"{envelope.text}"  # stores take plain texts
    if notices:
        text += f"\n\n{notices}"
    return AdapterReply(text, envelope.status == "error", envelope)


def newest_forbidden(metadata: Iterable[Mapping[str, Any] | None]) -> dict[str, list[str]] | None:
    """What loaded skills forbid, in the newest metadata that have it; None where none has.

    A summary replaces old messages, and not the newest one.
    """
    rows = [row[FORBIDDEN] for row in metadata if row and isinstance(row.get(FORBIDDEN), dict)]
    return {str(name): list(map(str, tools)) for name, tools in rows[-1].items()} if rows else None


def join_texts(instructions: str | None, prompt: str) -> str:
    """The host's instructions, then ours: the constant part comes first."""
    return f"{instructions}\n\n{prompt}" if instructions and prompt else instructions or prompt


def shadowed(session: Session, host_names: Iterable[str], session_names: Iterable[str]) -> set[str]:
    """The session's tools to omit because the host has tools of the same names."""
    names = set(host_names) & set(session_names)
    with _shadowed_lock:
        recorded = _recorded_shadowed.setdefault(session, set())
        new = sorted(names - recorded)
        recorded.update(new)
    for name in new:
        reason = "a tool of the host has this name"
        session.trace.record("shadowed", (), tool=name, reason=reason)
    return names


def tail(session: Session, message: str, history: ConversationHistory | None = None) -> str:
    """The text to append to a user message: change notices, shortlist, reminders of trimmed skills.

    Args:
        session: The session.
        message: The user's message.
        history: All that the model will see, this message included; None when unknown.
    """
    if history is not None:
        session.sync(history)
    parts = (session.reminder_due(), session.tail(message))
    return "\n\n".join(part for part in parts if part)


async def atail(session: Session, message: str, history: ConversationHistory | None = None) -> str:
    """`tail` in a worker thread."""
    return await asyncio.to_thread(tail, session, message, history)
