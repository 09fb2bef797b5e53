"""What do all adapters share? Which session a conversation has, and what a framework is told.

An adapter asks `Sessions` for the session of the conversation at hand, tells its framework the
session's `prompt` and the `tools_of` it, hands each call of the model to `call` or `acall`, asks
`permit` about tools of the host's, and puts the `tail` behind the user's message. No framework is
known here.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict
from weakref import WeakKeyDictionary, WeakSet

from satchel._language import say
from satchel.errors import InvalidInput
from satchel.tools.presence import SKILL, news_in, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from typing import Literal

    from satchel.envelope import Envelope
    from satchel.facade import Satchel
    from satchel.tools.gate import Approve
    from satchel.tools.session import Session

    Skills = Session | Satchel | str | os.PathLike[str] | None
    """Whose skills: one conversation's, everybody's, or those of a project's folder."""

CONVERSATIONS = 1_000
"""How many conversations an adapter remembers; the one that was silent longest is dropped."""

__all__ = [
    "CONVERSATIONS",
    "SKILL",
    "ChildOptions",
    "Reply",
    "SessionOptions",
    "Sessions",
    "ToolSpec",
    "acall",
    "apermit",
    "atail",
    "atools_of",
    "call",
    "forget_lost",
    "joined",
    "permit",
    "running",
    "sessions_of",
    "shadowed",
    "tail",
    "tools_of",
]

_running: ContextVar[Session | None] = ContextVar("satchel_session", default=None)


class SessionOptions(TypedDict, total=False):
    """Options of the sessions that an adapter begins; see `Satchel.session`."""

    approve: Approve
    ask: Sequence[str]
    changes: Literal["tail", "rebuild"] | None


class ChildOptions(TypedDict, total=False):
    """Limits of a sub-agent; see `Session.child`."""

    include: Sequence[str]
    exclude: Sequence[str]
    tools: Sequence[str] | None


class _Notes:
    """What an adapter told in one conversation, and may have to tell again."""

    def __init__(self) -> None:
        self.news: list[str] = []
        self.shadowed: set[str] = set()


_notes: WeakKeyDictionary[Session, _Notes] = WeakKeyDictionary()


class ToolSpec(NamedTuple):
    """A tool as every framework wants it described."""

    name: str
    description: str
    parameters: dict[str, Any]
    """A JSON schema."""


class Reply(NamedTuple):
    """What a framework hands back to its model."""

    text: str
    failed: bool
    """For frameworks that mark results as errors."""
    envelope: Envelope


class Sessions:
    """Which session a conversation has: what one loaded or was allowed is nothing to another."""

    def __init__(self, begin: Callable[[], Session], *, nested: bool = False) -> None:
        """Take what begins a session; `sessions_of` knows what people hand over.

        Args:
            begin: Called for each conversation that is met for the first time.
            nested: Whether these are conversations of sub-agents.
        """
        self.nested = nested
        self._begin = begin
        self._made: OrderedDict[str, Session] = OrderedDict()
        self._known: WeakSet[Session] = WeakSet()
        """Those that were dropped too, as long as somebody works with them."""
        self._lock = threading.RLock()

    def of(self, key: str = "") -> Session:
        """The session of one conversation, the same every time.

        The conversation that was silent longest is dropped when there are too many. If it goes on,
        it begins with nothing loaded; the trace says so.
        """
        with self._lock:
            session = self._made.get(key)
            if session is None:
                session = self._made[key] = self._begin()
                self._known.add(session)
                if len(self._made) > CONVERSATIONS:
                    gone, dropped = self._made.popitem(last=False)
                    reason = f"more than {CONVERSATIONS:,} conversations"
                    names = tuple(dropped.loaded)
                    dropped.trace.record("forgotten", names, conversation=gone, reason=reason)
            self._made.move_to_end(key)
        return session

    def child(
        self,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        tools: Sequence[str] | None = None,
    ) -> Sessions:
        """For a sub-agent: its session is a child of the one that is running when it is started.

        Args:
            include: As for `Session.child`.
            exclude: The same.
            tools: The same.
        """

        def begin() -> Session:
            return self._parent().child(include=include, exclude=exclude, tools=tools)

        return Sessions(begin, nested=True)

    def _parent(self) -> Session:
        """Who starts a sub-agent: whoever runs, or the only conversation there is.

        Raises:
            InvalidInput: there are several. What one of them forbids must not be lost.
        """
        running_now = _running.get()
        with self._lock:
            if running_now is not None and running_now in self._known:
                return running_now
            known = {id(session): session for session in self._known}
            if len(known) > 1:
                raise InvalidInput(
                    say("It is not known which conversation starts this sub-agent"),
                    say("Start it inside `running(session)` of `satchel.integrations.base`"),
                )
            return next(iter(known.values())) if known else self.of()


def sessions_of(
    skills: Skills | Sessions = None,
    *,
    approve: Approve = None,
    ask: Sequence[str] = (),
    changes: Literal["tail", "rebuild"] | None = None,
) -> Sessions:
    """What an adapter's user handed over, as sessions.

    Args:
        skills: A `Satchel` or a project's folder (None: the one at hand), of which each
            conversation gets a session of its own; or the session of the one conversation.
        approve: As for `Satchel.session`, where sessions are begun.
        ask: The same.
        changes: The same.

    Raises:
        InvalidInput: an option has a wrong value, or is given beside a session that exists.
    """
    from satchel.facade import Satchel

    if skills is None or isinstance(skills, str | os.PathLike):
        skills = Satchel.for_project(skills or ".")
    if isinstance(skills, Satchel):
        satchel = skills

        def begin() -> Session:
            return satchel.session(approve=approve, ask=ask, changes=changes)

        begin()  # a wrong option is said now, not at the first request
        return Sessions(begin)
    if approve is not None or ask or changes is not None:
        raise InvalidInput(
            say("`approve`, `ask` and `changes` are options of a session, and this one exists"),
            say("Pass them to `Satchel.session`"),
        )
    if isinstance(skills, Sessions):
        return skills
    session = skills
    return Sessions(lambda: session)


@contextmanager
def running(session: Session) -> Generator[None]:
    """While this lasts, sub-agents that are started are children of this session."""
    token = _running.set(session)
    try:
        yield
    finally:
        _running.reset(token)


def tools_of(session: Session) -> list[ToolSpec]:
    """The tools for the next request; ask again for the one after it."""
    return specs_in(session.definitions())


async def atools_of(session: Session) -> list[ToolSpec]:
    """`tools_of` in a worker thread."""
    return specs_in(await session.adefinitions())


def specs_in(definitions: Iterable[Mapping[str, Any]]) -> list[ToolSpec]:
    """Definitions for `anthropic`, as adapters want them."""
    return [
        ToolSpec(item["name"], item["description"], item["input_schema"]) for item in definitions
    ]


def call(session: Session, name: str, arguments: Mapping[str, Any] | str) -> Reply:
    """Call a tool. It never raises."""
    return _reply(session.call(name, arguments), _meanwhile(session))


async def acall(session: Session, name: str, arguments: Mapping[str, Any] | str) -> Reply:
    """Call a tool without holding up the loop; if the task is cancelled so is the program."""
    envelope = await session.acall(name, arguments)
    news = _noted(session, await session.anews())
    return _reply(envelope, joined(news, session.reminder_due()))


def permit(session: Session, name: str, arguments: Mapping[str, Any] | str) -> Reply | None:
    """What to answer instead of calling a tool of the host's that a loaded skill forbids."""
    refusal = session.permit(name, arguments)
    return _reply(refusal) if refusal else None


async def apermit(session: Session, name: str, arguments: Mapping[str, Any] | str) -> Reply | None:
    """The same where a person may be asked asynchronously."""
    refusal = await session.apermit(name, arguments)
    return _reply(refusal) if refusal else None


def _reply(envelope: Envelope, news: str = "") -> Reply:
    """The part of an envelope that is for the model, and what changed meanwhile."""
    text = f"{envelope.text}\n\n{news}" if news else envelope.text
    return Reply(text, envelope.status == "error", envelope)


def joined(own: str | None, prompt: str) -> str:
    """The host's own instructions, then ours: what is set for good stays in front."""
    return f"{own}\n\n{prompt}" if own and prompt else own or prompt


def shadowed(session: Session, taken: Iterable[str], ours: Iterable[str]) -> set[str]:
    """Which of our tools a framework must not be told of: the host has tools of these names.

    Args:
        session: Whose.
        taken: The names of the host's tools.
        ours: The names of the session's tools.
    """
    found = set(taken) & set(ours)
    with _noting:
        told = _of(session).shadowed
        new = sorted(found - told)
        told.update(new)
    for name in new:
        reason = "a tool of the host has this name"
        session.trace.record("shadowed", (), tool=name, reason=reason)
    return found


def tail(
    session: Session,
    message: str,
    history: Iterable[str] | None = None,
    seen: Iterable[str] | None = None,
) -> str:
    """What stands behind a message of the user: news, shortlist, and what was trimmed away.

    Args:
        session: Whose.
        message: What the user wrote.
        history: The texts of all results of `Skill` that the model sees; None when nobody knows.
        seen: All texts of users and tools that the model sees; None when nobody knows.
    """
    if history is not None:
        forget_lost(session, history, seen)
    parts = (session.reminder_due(), _noted(session, session.tail(message)))
    return "\n\n".join(part for part in parts if part)


async def atail(
    session: Session,
    message: str,
    history: Iterable[str] | None = None,
    seen: Iterable[str] | None = None,
) -> str:
    """`tail` in a worker thread."""
    return await asyncio.to_thread(tail, session, message, history, seen)


def forget_lost(
    session: Session, history: Iterable[str], seen: Iterable[str] | None = None
) -> list[str]:
    """Let that be told again which is no longer in the history.

    Hosts summarise and trim, turns fail, and some hosts begin anew with the same session. Without
    this a model is told that it has read what it can no longer see. The next `tail` has a reminder.

    Args:
        session: Whose.
        history: The texts of all results of `Skill` that the model sees. Those of other tools prove
            nothing: anybody can write a page that looks like a skill.
        seen: All texts of users and tools that the model sees, this turn's too; for what changed in
            the library, which stands there.

    Returns:
        The names of the skills whose text is gone.
    """
    with _noting:
        told = list(_of(session).news)
    texts = None if seen is None else list(seen)
    lost = settle(session, history, texts, told)
    if texts is not None and told:
        with _noting:
            notes = _of(session)
            notes.news = [note for note in notes.news if any(note in text for text in texts)]
    return lost


_noting = threading.Lock()


def _of(session: Session) -> _Notes:
    return _notes.setdefault(session, _Notes())


def _meanwhile(session: Session) -> str:
    """What stands behind a result: what changed, and which skills were trimmed away."""
    return joined(_noted(session, session.news()), session.reminder_due())


def _noted(session: Session, text: str) -> str:
    """Remember what a text tells of changes."""
    if found := news_in(text):
        with _noting:
            _of(session).news += found
    return text
