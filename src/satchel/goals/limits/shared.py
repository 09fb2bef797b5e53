"""Limits that several processes keep together: each turn is a row of a shared table.

To begin, a process takes one of the places (`at_once`), which is leased: who is killed loses it
soon. With it goes a time to begin, later than the last ones by what `per_second` asks. Who wakes
then looks once more: others may have begun later than they had planned, and count from there. A
process has one such time at most, so that few are lost with it; the rest of it stands in line.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from satchel.goals.limits.base import MARGIN, limit_for
from satchel.goals.limits.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from satchel.goals.limits.base import Limit

_FIRST, _MOST = 0.02, 0.25
"""Seconds between two tries to get a place."""
_LATE = 0.05
"""Seconds between being told to begin and doing so; after more, it is asked again."""
_AGAIN = 3
"""How often that happens at most: on a machine so slow the margin has to do."""


class SharedLimiter:
    """Limits that all processes on one database keep together.

    Args:
        limits: Provider -> limit; `*` is for those without one.
        database: `postgresql://…`, or the path of an SQLite file.
        margin: Seconds that a window is longer than a second.
        lease: Seconds after which the place of a process that does not answer is free.
    """

    def __init__(
        self,
        limits: Mapping[str, Limit],
        database: str,
        *,
        margin: float = MARGIN,
        lease: float = 15.0,
    ) -> None:
        self._limits = dict(limits)
        self._ledger = Ledger(database)
        self._margin = margin
        self._lease = lease
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._turns: dict[str, asyncio.Lock] = {}
        self._held: set[str] = set()
        self._stop = threading.Event()
        self._renewing: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Let go of the ledger."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)
        with self._lock:
            self._ledger.close()

    @asynccontextmanager
    async def slot(self, provider: str) -> AsyncGenerator[None]:
        """Wait for a turn."""
        limit = limit_for(self._limits, provider)
        if limit is None:
            yield
            return
        turn = secrets.token_hex(12)
        try:
            await self._wait(provider, turn, limit)
            yield
        finally:
            self._held.discard(turn)
            await asyncio.shield(self._do("give_back", turn))

    async def _wait(self, provider: str, turn: str, limit: Limit) -> None:
        """Only one of a process tries at a time; the others stand in line behind it."""
        async with self._turns.setdefault(provider, asyncio.Lock()):
            await self._begin(provider, turn, limit)

    async def _begin(self, provider: str, turn: str, limit: Limit) -> None:
        pause = _FIRST
        while True:
            asked = time.monotonic()
            left = await self._do("take", provider, turn, limit, self._margin, self._lease)
            if left >= 0:
                break
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(_MOST, pause * 1.5)
        self._held.add(turn)
        again = 0
        while limit.per_second is not None:
            if left > 0:
                await asyncio.sleep(left)
            elif time.monotonic() - asked <= _LATE or again >= _AGAIN:
                break
            else:
                again += 1
            asked = time.monotonic()
            left = await self._do("begin", provider, turn, limit, self._margin)

    async def _do(self, what: str, *given: Any) -> Any:
        if self._thread is None:
            self._stop.clear()
            self._thread = ThreadPoolExecutor(1, "satchel-limits")
            self._renewing = threading.Thread(
                target=self._renew, name="satchel-limits-lease", daemon=True
            )
            self._renewing.start()
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._call, what, *given
        )

    def _call(self, what: str, *given: Any) -> Any:
        with self._lock:
            return getattr(self._ledger, what)(*given)

    def _renew(self) -> None:
        """In a thread of its own: a busy loop must not cost somebody a place."""
        while not self._stop.wait(self._lease / 4):
            held = list(self._held)
            if held:
                try:
                    self._call("renew", held, self._lease)
                except Exception:
                    logging.getLogger(__name__).exception("renewing the places failed")
