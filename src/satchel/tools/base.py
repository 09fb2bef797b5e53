"""The `Tool` interface, tool calls, cancellation and asynchronous twins.

A tool has a name, a description, a JSON Schema of its parameters, and `run`, which answers a
checked `ToolCall` with an envelope. It may raise any `SatchelError`: the toolset turns it into one.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.envelope import answer, failure
from satchel.tools.schema import check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from satchel.envelope import Envelope, ErrorCode
    from satchel.library import Snapshot
    from satchel.runners.base import Cancel
    from satchel.skill.model import Skill


_CANCEL_TIMEOUT_S = 5


class ToolCall(NamedTuple):
    """One call of a tool, with arguments that passed the schema."""

    resolved: ResolvedCall
    arguments: dict[str, Any]
    given: dict[str, Any]
    """The arguments as received, for the reply."""
    started: float
    stack: tuple[str, ...] = ()
    """Names of the skills within which the call is made, outermost first. Set by the host."""
    as_person: bool = False
    """The user calls, not the model. Set by the host."""
    cancel: Cancel | None = None
    key: str = ""
    """Idempotency key, the same for every repetition of the call. Set by the host; calls of a model
    have none."""
    loaded: Sequence[str] = ()
    """Folders of the skills loaded in the session, latest first."""

    def answer(
        self,
        text: str,
        data: dict[str, Any],
        *,
        partial: bool = False,
        stats: dict[str, Any] | None = None,
        path: str = "",
    ) -> Envelope:
        """Build the envelope of a usable result."""
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
        """Build the envelope of an error, with the next step."""
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
    """Listing of a skill's files."""

    files: tuple[tuple[str, int], ...]
    """Path below the folder, with `/`, and size in bytes; a limited number."""
    total: int
    """Number of files."""
    revision: str
    """Changes when a file is added, removed, renamed, edited or touched."""


class SkillSource(NamedTuple):
    """A skill's text, frontmatter and files."""

    body: str
    """Without blank lines at either end."""
    fields: Mapping[str, Any]
    folder: Folder
    digest: str
    """Of the instructions and of the tool rules."""
    tree_digest: str
    """Of all its files."""
    changed: bool
    """Whether the file differs from the one in the snapshot."""


class ResolvedCall:
    """A call whose arguments were parsed, and whose tool and skill were looked up, once.

    Attributes:
        name: Name of the tool.
        given: The arguments as received.
        tool: The tool; None for one of the host, or when there is none of that name.
        snapshot: The snapshot in which tool and skill were looked up.
        skill: The skill that a call of `Skill` names; it need not be available.
        session: The session that resolved the call; another one resolves it again.
        source: The text of the skill, once it was read.
    """

    __slots__ = ("given", "name", "session", "skill", "snapshot", "source", "started", "tool")

    def __init__(
        self,
        name: str,
        given: dict[str, Any],
        tool: Tool | None,
        snapshot: Snapshot,
        skill: Skill | None = None,
        session: object = None,
    ) -> None:
        self.session = session
        self.name = name
        self.given = given
        self.tool = tool
        self.snapshot = snapshot
        self.skill = skill
        self.source: SkillSource | None = None
        self.started = time.perf_counter()


class Tool:
    """A tool that a model can call; subclasses define `run`."""

    name: str
    description: str
    """For the model, without the list of skills."""
    parameters: dict[str, Any]
    """A JSON Schema of type `object`."""
    aliases: Mapping[str, str] = MappingProxyType({})
    """Alternative parameter names, accepted but not shown."""
    about_skills: bool = False
    """Whether the tool is offered only where there are skills."""
    owner: str = ""
    """The skill that provides the tool; empty for Satchel's own."""
    writes: bool = False
    """Whether it writes files of the project."""
    hints: Mapping[str, bool] = MappingProxyType({})
    """MCP annotations that replace the default ones."""

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate the arguments and fill in defaults.

        Raises:
            SatchelError: with all errors in the message.
        """
        return check(arguments, self.parameters, self.aliases)

    def run(self, call: ToolCall) -> Envelope:
        """Run a checked call."""
        raise NotImplementedError


class CancelToken:
    """A `Cancel` that a host sets: a pipe that becomes readable."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        """The read end, readable once the token is set."""
        return self._read

    def set(self) -> None:
        """Cancel the call."""
        with self._lock:
            write, self._write = self._write, -1
            if write >= 0:
                os.close(write)  # end of file is readable for every reader

    def close(self) -> None:
        """Release the pipe."""
        self.set()
        with self._lock:
            read, self._read = self._read, -1
            if read >= 0:
                os.close(read)


async def cancellable(work: Callable[[Cancel], Envelope]) -> Envelope:
    """Run a function in a worker thread, and cancel it when the task is cancelled."""
    import asyncio

    back = CancelToken()

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
            await asyncio.wait({running}, timeout=_CANCEL_TIMEOUT_S)
        raise
