"""The connection of the web UI to the engine of goals: one for each server.

The engine is opened with the first page of goals and runs no steps. A slow open continues in the
background, because an open in a thread cannot be cancelled. Pages wait for it until
`ENGINE_TIMEOUT_S` after its beginning, and show an error then. A page that is loaded later finds
the engine open, or fails at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

from satchel.errors import SatchelError, ServerFailed
from satchel.goals.engines.factory import is_shared, open_engine
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from satchel.goals.engines.base import Engine
    from satchel.settings import Settings

_Result = TypeVar("_Result")
ENGINE_TIMEOUT_S = 15.0
"""Time to open the engine, and for one call."""
MIN_ENGINE_WAIT_S = 0.15
"""The wait of a page that comes after the time to open the engine is over."""
CLOSE_TIMEOUT_S = 5.0
"""Time for an engine that is being opened when the server ends."""


class EngineConnection:
    """Opens, calls and closes the engine."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine: Engine | None = None
        self._opening_task: asyncio.Task[Engine] | None = None
        self._opening_started = 0.0
        self._is_closing = False

    @property
    def is_shared(self) -> bool:
        """Whether workers of other machines run the steps."""
        return is_shared(self._settings, None)

    @property
    def engine_name(self) -> str:
        """The name of the engine."""
        return self._settings.engine.partition(":")[0]

    async def engine(self) -> Engine:
        """Return the engine, and open it first if necessary.

        A slow open continues in the background for later callers.

        Raises:
            SatchelError: it is not open yet, or cannot be opened; the next call tries again.
        """
        if self._engine is not None:
            return self._engine
        if self._is_closing:
            raise self.stopping_error()
        if self._opening_task is None:
            self._opening_started = time.monotonic()
            self._opening_task = asyncio.create_task(self._open())
            self._opening_task.add_done_callback(retrieve_error)
        opening_task = self._opening_task
        remaining_s = self._opening_started + ENGINE_TIMEOUT_S - time.monotonic()
        timeout = max(MIN_ENGINE_WAIT_S, remaining_s)
        finished, _ = await asyncio.wait((opening_task,), timeout=timeout)
        if opening_task not in finished:
            raise self._engine_error(TimeoutError())
        return opening_task.result()

    async def _open(self) -> Engine:
        """Open the engine without a timeout: an open in a thread cannot be cancelled."""
        try:
            engine = await open_engine(self._settings).__aenter__()
        except Exception as exc:
            raise exc if isinstance(exc, SatchelError) else self._engine_error(exc) from exc
        finally:
            self._opening_task = None
        if self._is_closing:  # the server has ended meanwhile
            await engine.__aexit__(None, None, None)
            raise self.stopping_error()
        self._engine = engine
        return engine

    async def call(self, operation: Callable[[Engine], Awaitable[_Result]]) -> _Result:
        """Call the engine.

        Raises:
            SatchelError: it cannot be opened, does not answer, or refuses.
        """
        engine = await self.engine()
        try:
            async with asyncio.timeout(ENGINE_TIMEOUT_S):
                if engine.name != "local":
                    return await operation(engine)
                # Its journals are files: reading them must not block other requests.
                return await asyncio.to_thread(lambda: asyncio.run(_await(operation(engine))))
        except SatchelError:
            raise
        except Exception as exc:
            raise self._engine_error(exc) from exc

    def stop_opening(self) -> None:
        """Refuse to open the engine; one that is open can still be called until `close`."""
        self._is_closing = True

    async def close(self) -> None:
        """Close the engine. One that is being opened closes itself."""
        self.stop_opening()
        if self._opening_task is not None:
            await asyncio.wait((self._opening_task,), timeout=CLOSE_TIMEOUT_S)
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.__aexit__(None, None, None)

    def stopping_error(self) -> ServerFailed:
        """Return the error of a call while the server stops."""
        return self._engine_error(RuntimeError(say("the server is stopping")))

    def _engine_error(self, exc: Exception) -> ServerFailed:
        """Return an error that names the engine and why it does not answer."""
        reason = say("it takes too long") if isinstance(exc, TimeoutError) else str(exc).strip()
        return ServerFailed(
            say(
                "The engine `{engine}` does not answer: {reason}",
                engine=self.engine_name,
                reason=(reason or type(exc).__name__).splitlines()[0],
            ),
        )


async def _await(awaitable: Awaitable[_Result]) -> _Result:
    """`asyncio.run` takes coroutines only."""
    return await awaitable


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a task that may have no caller left: asyncio would log it."""
    if not task.cancelled():
        task.exception()
