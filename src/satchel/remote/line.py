"""One connection to one server, in a thread of its own, asked from any thread.

Nobody waits for it longer than he wants to. The connection is made at the first question and again
after it broke. It is kept while somebody asks, and longer when the server tells of changes or is a
program, which is expensive to start.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._optional import require
from satchel.errors import SatchelError, ServerFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.client.client import Client

    from satchel.remote.servers import Server

    Work = Callable[[Client], Awaitable[Any]]

_IDLE = 60.0
"""Seconds that an unused connection is kept."""
_BEFORE_LISTENING = 1.0
"""A command that ends at once need not be told of changes."""
_GOODBYE = 2.0
"""Seconds that hanging up may take: a program needs one to be ended against its will."""


class _Question(NamedTuple):
    work: Work
    seconds: float
    answer: Future[Any]


class _Call:
    """What a thread of a line works on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.questions: asyncio.Queue[_Question | None] = asyncio.Queue()
        self.talk: asyncio.Task[_Question | None] | None = None
        self.closing = False
        self.ending = False
        """The connection is being closed already, which must not be disturbed."""

    def hang_up(self) -> None:
        """End it, whatever is being waited for. Called in the thread."""
        self.closing = True
        if self.talk is not None and not self.ending:
            self.talk.cancel()
        self.questions.put_nowait(None)


class Line:
    """The way to one server."""

    def __init__(self, server: Server, changed: Callable[[], None]) -> None:
        """Prepare a line; nothing is connected and nothing imported yet.

        Args:
            server: Which one.
            changed: Called, in another thread, when the server says that its files are others.
        """
        self._server = server
        self._changed = changed
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._call: _Call | None = None
        self._early: list[_Question] = []
        self.ready = threading.Event()
        """The packages are imported, or cannot be: from here on it is the server that is slow."""

    def ask(self, work: Work, seconds: float) -> Future[Any]:
        """Have something done over the connection.

        Args:
            work: Gets the client.
            seconds: How long it may take, the connecting too.

        Returns:
            What came of it, or a SatchelError that says why nothing did.
        """
        question = _Question(work, seconds, Future())
        with self._lock:
            if self._thread is None:
                self.ready.clear()
                self._thread = threading.Thread(
                    target=self._run, name=f"satchel-{self._server.name}", daemon=True
                )
                self._thread.start()
                atexit.register(self.close)
            call = self._call
            if call is None:
                self._early.append(question)
            else:
                try:
                    call.loop.call_soon_threadsafe(call.questions.put_nowait, question)
                except RuntimeError:  # the loop has just ended
                    _fail(question, _closed())
        return question.answer

    def close(self) -> None:
        """Hang up: what is being waited for has failed, and a program is ended."""
        with self._lock:
            thread, self._thread = self._thread, None
            call, self._call = self._call, None
            early, self._early = self._early, []
            atexit.unregister(self.close)
        for question in early:
            _fail(question, _closed())
        if thread is None or call is None:
            return  # a thread that is still importing sees that it is not wanted
        with suppress(RuntimeError):  # the loop has just ended
            call.loop.call_soon_threadsafe(call.hang_up)
        if thread is not threading.current_thread():
            thread.join(_GOODBYE)

    # --- in the thread ----------------------------------------------------------------------

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            require("mcp", "mcp")
            from satchel.remote import wire

            self.ready.set()
            asyncio.run(self._serve(wire))
        except BaseException as exc:  # noqa: BLE001 - whoever asked is told
            failure = exc
        self.ready.set()
        early: list[_Question] = []
        with self._lock:
            if self._thread is threading.current_thread():  # else it was closed, or begun anew
                early, self._early = self._early, []
                self._thread = self._call = None
        for question in early:
            _fail(question, failure or _closed())

    async def _serve(self, wire: Any) -> None:
        call = _Call(asyncio.get_running_loop())
        with self._lock:
            if self._thread is not threading.current_thread():
                return
            self._call = call
            for question in self._early:
                call.questions.put_nowait(question)
            self._early = []
        question = await call.questions.get()
        while question is not None and not call.closing:
            # A task for each connection: what breaks one must not end the line.
            call.ending = False
            call.talk = asyncio.create_task(self._talk(wire, question, call))
            await asyncio.wait({call.talk})
            again: _Question | None = None
            if call.talk.cancelled() or call.talk.exception() is not None:
                _fail(question, ServerFailed("the connection broke"))
            else:
                again = call.talk.result()
            if again is not None and call.closing:
                _fail(again, _closed())
            question = again or await call.questions.get()
        while not call.questions.empty():
            if (rest := call.questions.get_nowait()) is not None:
                _fail(rest, _closed())

    async def _talk(self, wire: Any, first: _Question, call: _Call) -> _Question | None:
        """Connect and answer until nobody asks.

        Returns:
            The question that was asked when an old connection turned out to be dead: a new one may
            answer it.
        """
        stack = AsyncExitStack()
        listening: asyncio.Task[bool] | None = None
        question: _Question | None = first
        heard = wire.Heard(wire.MAX_ANSWER)

        def reason(exc: BaseException) -> str:
            return wire.reason_of(exc, self._server, heard)

        try:
            async with asyncio.timeout(first.seconds):
                client = await stack.enter_async_context(
                    wire.connect(self._server, self._changed, heard)
                )
            listening = asyncio.create_task(self._listen(wire, client))
            while question is not None:
                if not await _answer(question, client, wire, reason, last=question is first):
                    return None if question.answer.done() else question
                question = None
                keep = bool(self._server.command) or not listening.done() or listening.result()
                try:
                    async with asyncio.timeout(None if keep else _IDLE):
                        question = await call.questions.get()
                except TimeoutError:
                    return None
            return None
        except asyncio.CancelledError:
            if question is not None:
                _fail(question, _closed())
            raise
        except Exception as exc:  # noqa: BLE001 - told to whoever asked
            if question is not None:
                _fail(question, ServerFailed(reason(exc)))
            return None
        finally:
            call.ending = True
            if listening is not None:
                listening.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await listening
            with suppress(Exception):
                async with asyncio.timeout(_GOODBYE):
                    await stack.aclose()

    async def _listen(self, wire: Any, client: Client) -> bool:
        """Pass on what the server says of changes; False when it will never say anything."""
        await asyncio.sleep(_BEFORE_LISTENING)
        try:
            told = await wire.wait_for_changes(client, self._changed)
        except Exception:  # noqa: BLE001 - then the list is asked for now and then, as ever
            return False
        if told:
            self._changed()  # it hung up: what happened since is not known
        return told


async def _answer(
    question: _Question,
    client: Client,
    wire: Any,
    reason: Callable[[BaseException], str],
    *,
    last: bool,
) -> bool:
    """Do what was asked; False when the connection is of no use any more.

    Args:
        question: What was asked.
        client: The connection.
        wire: The module of that name.
        reason: Says why something failed.
        last: Whether a connection that is dead fails the question. Else it is left unanswered.
    """
    try:
        async with asyncio.timeout(question.seconds):
            result = await question.work(client)
    except TimeoutError as exc:
        _fail(question, ServerFailed(reason(exc)))
        return False
    except Exception as exc:  # noqa: BLE001 - told to whoever asked
        if isinstance(exc, (SatchelError, wire.MCPError)) and "closed" not in str(exc).lower():
            _fail(question, ServerFailed(reason(exc)))
            return True
        if last:
            _fail(question, ServerFailed(reason(exc)))
        return False
    if not question.answer.done():
        question.answer.set_result(result)
    return True


def _closed() -> ServerFailed:
    return ServerFailed("the connection was closed")


def _fail(question: _Question, exc: BaseException) -> None:
    if question.answer.done():
        return
    if not isinstance(exc, SatchelError):
        exc = ServerFailed(f"{type(exc).__name__}: {exc}"[:300])
    question.answer.set_exception(exc)
