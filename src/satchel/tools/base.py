"""What a tool is, and what it is given and gives back.

A tool has a name, a description, a JSON Schema of its parameters, and `run`, which answers a
checked `Call` with an envelope. It may raise any `SatchelError`: the toolset turns it into one.
"""

from __future__ import annotations

import os
import threading
import time
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
)

from satchel.envelope import answer, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from satchel.envelope import Envelope, ErrorCode
    from satchel.library import Snapshot
    from satchel.runners.base import Cancel
    from satchel.skill.model import Skill


T = TypeVar("T")
S = TypeVar("S")
_Given = ParamSpec("_Given")


class Call(NamedTuple):
    """One call of a tool, its arguments checked against the schema."""

    arguments: dict[str, Any]
    given: dict[str, Any]
    """The arguments as the caller wrote them, for the reply."""
    started: float
    stack: tuple[str, ...] = ()
    """Names of the skills within which the call is made, outermost first. Set by the host."""
    as_person: bool = False
    """A person asks, not a model. Set by the host."""
    cancel: Cancel | None = None
    """How the host takes the call back, where it can take long."""
    key: str = ""
    """The same whenever this very call is made again: what has side effects is given it. Set by the
    host; a model's calls have none."""
    loaded: Sequence[str] = ()
    """The folders of the skills that this conversation loaded, latest first."""
    resolved: Resolved | None = None
    """What the call means, where a session has found that out already."""

    def answer(
        self,
        text: str,
        data: dict[str, Any],
        *,
        partial: bool = False,
        stats: dict[str, Any] | None = None,
        path: str = "",
    ) -> Envelope:
        """A usable result."""
        return answer(
            text,
            data,
            params=self.given,
            time_ms=self.elapsed(),
            partial=partial,
            stats=stats,
            context={"path_resolved": path} if path else None,
        )

    def fail(
        self,
        code: ErrorCode,
        message: str,
        next_step: str,
        data: dict[str, Any] | None = None,
        *,
        path: str = "",
    ) -> Envelope:
        """No usable result, and what to do instead."""
        return failure(
            code,
            message,
            next_step,
            params=self.given,
            time_ms=self.elapsed(),
            data=data,
            context={"path_resolved": path} if path else None,
        )

    def elapsed(self) -> int:
        """Milliseconds since the call began."""
        return round((time.perf_counter() - self.started) * 1000)


class Folder(NamedTuple):
    """The files of a skill at one moment."""

    files: tuple[tuple[str, int], ...]
    """Path below the folder, with `/`, and size in bytes; only the first are kept."""
    total: int
    """How many there are, as far as the walk went."""
    complete: bool
    """False when the walk met its bound: there are more than `total`."""
    left_out: int
    """Links that lead out of the folder, and things that are no files."""
    revision: str
    """Changes when a file is added, removed, renamed, edited or touched."""


class SkillSource(NamedTuple):
    """A skill's text, frontmatter and files, as they were read."""

    body: str
    """Without blank lines at either end."""
    fields: Mapping[str, Any]
    folder: Folder
    digest: str
    """Of its instructions and of what it says about tools."""
    changed: bool
    """The file is no longer the one that the last look saw."""


class Resolved:
    """A call whose arguments were parsed, and whose tool and skill were looked up, once."""

    __slots__ = ("given", "look", "name", "session", "skill", "source", "started", "tool")

    def __init__(
        self,
        name: str,
        given: dict[str, Any],
        tool: Tool | None,
        look: Snapshot,
        skill: Skill | None = None,
        session: object = None,
    ) -> None:
        """Take what was found.

        Args:
            name: The tool's name.
            given: The arguments as the caller wrote them.
            tool: The tool; None for one of the host, or when there is none of that name.
            look: The library in which tool and skill were looked up.
            skill: What a call of `Skill` names; it need not be available.
            session: Who found it; another session looks for itself.
        """
        self.session = session
        self.name = name
        self.given = given
        self.tool = tool
        self.look = look
        self.skill = skill
        self.source: SkillSource | None = None
        """The text of the skill, once it was read."""
        self.started = time.perf_counter()


class Tool(Protocol):
    """Something an agent may call."""

    @property
    def name(self) -> str:
        """What the model calls it."""
        ...

    @property
    def description(self) -> str:
        """What the model is told about it, without any list of skills."""
        ...

    @property
    def parameters(self) -> dict[str, Any]:
        """A JSON Schema of type `object`."""
        ...

    @property
    def aliases(self) -> Mapping[str, str]:
        """Other names of parameters that are accepted but not shown."""
        ...

    @property
    def about_skills(self) -> bool:
        """Whether the tool serves only where there are skills."""
        ...

    def run(self, call: Call) -> Envelope:
        """Do it."""
        ...


class TakenBack:
    """A `Cancel` that a host sets: a pipe that becomes readable."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        """Readable once it is set."""
        return self._read

    def set(self) -> None:
        """Take the call back."""
        with self._lock:
            write, self._write = self._write, -1
            if write >= 0:
                os.close(write)  # the end of a pipe is readable, for as many as look

    def close(self) -> None:
        """Nobody looks any more."""
        self.set()
        with self._lock:
            read, self._read = self._read, -1
            if read >= 0:
                os.close(read)


async def in_thread(work: Callable[[], T]) -> T:
    """Do something in a worker thread."""
    import asyncio

    return await asyncio.to_thread(work)


def threaded(
    work: Callable[Concatenate[S, _Given], T],
) -> Callable[Concatenate[S, _Given], Coroutine[Any, Any, T]]:
    """The asynchronous twin of a method: the same in a worker thread."""
    name = work.__name__

    async def twin(self: S, *given: _Given.args, **named: _Given.kwargs) -> T:
        return await in_thread(lambda: getattr(self, name)(*given, **named))

    twin.__name__, twin.__qualname__ = f"a{name}", work.__qualname__.replace(name, f"a{name}")
    twin.__doc__ = f"`{name}` in a worker thread."
    return twin


async def cancellable(work: Callable[[Cancel], Envelope]) -> Envelope:
    """Do something in a worker thread; when the task is cancelled, it is taken back."""
    import asyncio
    from contextlib import suppress

    back = TakenBack()

    def run() -> Envelope:
        try:
            return work(back)
        finally:
            back.close()

    running = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        back.set()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({running}, timeout=5)
        raise
