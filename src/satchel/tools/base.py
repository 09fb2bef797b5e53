"""The `Tool` interface, tool calls, cancellation and asynchronous twins.

A tool has a name, a description, a JSON Schema of its parameters, and `run`, which answers a
checked `ToolCall` with an envelope. It may raise any `SatchelError`: the toolset turns it into one.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from satchel.envelope import answer, failure
from satchel.runners.base import is_cancelled
from satchel.tools.schema import check

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from satchel.envelope import Envelope, ErrorCode
    from satchel.library import Snapshot
    from satchel.runners.base import Cancel, Change
    from satchel.skill.model import Skill

    ReviewChanges = Callable[[tuple[Change, ...], Callable[[Change], str]], bool | str]
    """Decides about changes that belong together, given the function that makes their diffs; a
    text is the reason why no person could decide."""


T = TypeVar("T")

_CANCEL_TIMEOUT_S = 5
_CANCEL_CHECK_S = 0.05


class ToolCall(NamedTuple):
    """One call of a tool, with arguments that passed the schema."""

    resolved: ResolvedCall
    arguments: dict[str, Any]
    received: dict[str, Any]
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
    loaded_digests: Mapping[str, str] = MappingProxyType({})
    """Names of the skills loaded in the session, with the digest of the text that was loaded."""
    review: ReviewChanges | None = None
    """Decides whether changes that the tool proposes are applied; they are discarded without it.
    Set by the session."""

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
            params=self.received,
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
            params=self.received,
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
    modes: tuple[tuple[str, int], ...] = ()
    """Path and mode of the files that may be scripts."""


class ReadSkill(NamedTuple):
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
        received: The arguments as received.
        tool: The tool; None for one of the host, or when there is none of that name.
        snapshot: The snapshot in which tool and skill were looked up.
        skill: The skill that a call of `Skill` names; it need not be available.
        session: The session that resolved the call; another one resolves it again.
        source: The text of the skill, once it was read.
        examined: The digest of the skill for whose content the permission was decided, where the
            content decides.
    """

    __slots__ = (
        "examined", "name", "received", "session", "skill", "snapshot", "source", "started", "tool"
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        received: dict[str, Any],
        tool: Tool | None,
        snapshot: Snapshot,
        skill: Skill | None = None,
        session: object = None,
    ) -> None:
        self.session = session
        self.name = name
        self.received = received
        self.tool = tool
        self.snapshot = snapshot
        self.skill = skill
        self.source: ReadSkill | None = None
        self.examined = ""
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
    unsandboxed: bool = False
    """Whether it runs a program with the user's rights: each call needs approval."""
    hints: Mapping[str, bool] = MappingProxyType({})
    """MCP annotations that replace the default ones."""
    secrets: tuple[str, ...] = ()
    """Names of the secrets that it gets."""

    @property
    def proposes(self) -> bool:
        """Whether its changes of files are proposed after the run, so that a person sees them."""
        return False

    def is_offered(self, snapshot: Snapshot) -> bool:
        """Whether it is in the list of tools for this snapshot."""
        return bool(snapshot.for_model) or not self.about_skills

    def permission_arguments(self, call: ResolvedCall) -> dict[str, Any]:
        """The arguments that patterns of permissions are compared with."""
        return call.received

    def reasons(self, call: ResolvedCall) -> tuple[str, ...]:
        """What this call may do that needs approval, in addition to what the tool may do."""
        del call
        return ()

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate the arguments and fill in defaults.

        Raises:
            SatchelError: with all errors in the message.
        """
        return check(arguments, self.parameters, self.aliases)

    def run(self, call: ToolCall) -> Envelope:
        """Run a checked call."""
        raise NotImplementedError


class CallCancelled(Exception):
    """The call was cancelled while it waited."""


class CancelToken:
    """A `Cancel` that a host sets: a pipe that becomes readable."""

    def __init__(self, loop: AbstractEventLoop | None = None) -> None:
        """Create a token.

        Args:
            loop: The loop of an asynchronous host.
        """
        self._lock = threading.Lock()
        self._read, self._write = os.pipe()
        self._loop = loop

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

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the host's loop, and wait for it in this thread.

        Raises:
            CallCancelled: the call was cancelled first.
        """
        import asyncio

        assert self._loop is not None  # noqa: S101 - only for an asynchronous host
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                return future.result(_CANCEL_CHECK_S)
            except TimeoutError:
                if future.done():
                    raise
                if is_cancelled(self):
                    future.cancel()
                    raise CallCancelled from None


async def cancellable(
    work: Callable[[CancelToken], Envelope], *, own_thread: bool = False
) -> Envelope:
    """Run a function in a thread, and cancel it when the task is cancelled.

    Args:
        work: The function.
        own_thread: Use no thread of the loop's pool, since the function may wait for a person.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    back = CancelToken(loop)

    def run() -> Envelope:
        try:
            return work(back)
        finally:
            back.close()

    if own_thread:
        running: asyncio.Future[Envelope] = loop.create_future()
        thread = threading.Thread(
            target=copy_context().run, args=(_settle, running, run), name="satchel-call"
        )
        thread.daemon = True
        thread.start()
    else:
        running = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        back.set()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({running}, timeout=_CANCEL_TIMEOUT_S)
        raise


def _settle(running: Future[Envelope], work: Callable[[], Envelope]) -> None:
    """Run a function; the future gets its result, or what it raises."""
    settle: Callable[[], None]
    try:
        settle = partial(running.set_result, work())
    except BaseException as exc:  # noqa: BLE001 - raised where the future is awaited
        settle = partial(running.set_exception, exc)
    with suppress(RuntimeError):  # the loop is closed
        running.get_loop().call_soon_threadsafe(settle)
