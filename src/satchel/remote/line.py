"""One connection to one server, in a daemon thread with its own event loop.

The connection is made at the first request, and again after it broke. Requests are answered one at
a time. `close` ends the connection, and with it the server's process if it has one.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from satchel._optional import require
from satchel.errors import SatchelError, ServerFailed
from satchel.remote.servers import Notes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Future

    from mcp.client.client import Client

    from satchel.remote.servers import Server

    Work = Callable[[Client], Awaitable[Any]]

_LISTEN_DELAY_S = 1.0
"""A command that ends at once needs no change notifications."""
_CLOSE_TIMEOUT_S = 6.0
"""The SDK closes a program's input, sends SIGTERM after two seconds, SIGKILL after two more."""


class Line:
    """The connection to one server, used from any thread."""

    def __init__(self, server: Server, changed: Callable[[], None]) -> None:
        """Prepare a connection. `changed` is called, in another thread, on reported changes."""
        self._server = server
        self._changed = changed
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ready = threading.Event()
        """Set once the SDK is imported, which takes a second or more, or cannot be."""
        self.ready_at = 0.0
        # Used in the event loop only:
        self._notes = Notes()
        self._turn = asyncio.Lock()
        self._opened: asyncio.Future[Client] | None = None
        self._holding: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        """Requests under way and open connections; what the SDK starts ends with them."""

    def ask(self, work: Work, seconds: float) -> Future[Any]:
        """Run `work` with the connected client; fails with a SatchelError that has the reason.

        It may take `seconds`, connecting included.
        """
        with self._lock:
            if self._loop is None:
                self._loop, self._turn = asyncio.new_event_loop(), asyncio.Lock()
                name = f"satchel-{self._server.name}"
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name=name, daemon=True
                )
                self._thread.start()
                atexit.register(self.close)
            return asyncio.run_coroutine_threadsafe(self._request(work, seconds), self._loop)

    def close(self) -> None:
        """Close the connection: requests under way are cancelled, a program is ended."""
        with self._lock:
            thread, self._thread = self._thread, None
            loop, self._loop = self._loop, None
            atexit.unregister(self.close)
        if thread is None or loop is None or not self.ready.is_set():
            return

        async def end() -> None:
            for task in self._tasks:
                if not task.cancelling():  # a second time would break off the end of a program
                    task.cancel()
            while self._tasks:
                await asyncio.wait(self._tasks)
            await loop.shutdown_asyncgens()
            loop.stop()

        asyncio.run_coroutine_threadsafe(end(), loop)
        thread.join(_CLOSE_TIMEOUT_S)
        if not thread.is_alive():
            loop.close()

    # --- in the event loop ------------------------------------------------------------------

    def _started(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _request(self, work: Work, seconds: float) -> Any:
        return await self._started(self._answer(work, seconds))

    async def _answer(self, work: Work, seconds: float) -> Any:
        """Do some work; once more if the connection turns out to be dead."""
        try:
            require("mcp", "mcp")
            from satchel.remote.wire import MCPError, reason_of
        finally:
            self.ready_at = self.ready_at or time.monotonic()
            self.ready.set()
        try:
            async with asyncio.timeout(seconds), self._turn:
                old = self._holding is not None and not self._holding.done()
                try:
                    return await work(await self._client())
                except MCPError as exc:
                    if not old or "closed" not in str(exc).lower():
                        raise
                self._drop()
                return await work(await self._client())
        except Exception as exc:
            reason = reason_of(exc, self._server, self._notes)
            if not isinstance(exc, (SatchelError, MCPError)) or self._notes.limit:
                self._drop()
            raise ServerFailed(reason) from exc

    async def _client(self) -> Client:
        if self._opened is None or self._holding is None or self._holding.done():
            self._notes = Notes()
            self._opened = asyncio.get_running_loop().create_future()
            self._holding = self._started(self._hold(self._opened))
        return await asyncio.shield(self._opened)

    def _drop(self) -> None:
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None

    async def _hold(self, opened: asyncio.Future[Client]) -> None:
        """Keep a connection open. The same task opens and closes it, as the SDK requires."""
        from satchel.remote.wire import connect, wait_for_changes

        try:
            async with connect(self._server, self._changed, self._notes) as client:
                opened.set_result(client)
                await asyncio.sleep(_LISTEN_DELAY_S)
                with suppress(Exception):  # then the list is requested when it is due
                    await wait_for_changes(client, self._changed)
                await asyncio.Event().wait()
        except Exception as exc:  # noqa: BLE001 - passed to the request that waits
            if not opened.done():
                opened.set_exception(exc)
                opened.exception()  # no request may be waiting any more
        finally:
            opened.cancel()
