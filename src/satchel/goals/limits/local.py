"""Limits within one process: nothing but asyncio."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from satchel.goals.limits.base import MARGIN, limit_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from satchel.goals.limits.base import Limit


class LocalLimiter:
    """Limits for what this process asks.

    Args:
        limits: Provider -> limit; `*` is for those without one.
        margin: Seconds that a window is longer than a second.
    """

    def __init__(self, limits: Mapping[str, Limit], *, margin: float = MARGIN) -> None:
        self._limits = dict(limits)
        self._margin = margin
        self._gates: dict[str, _Gate] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Nothing is held."""

    @asynccontextmanager
    async def slot(self, provider: str) -> AsyncGenerator[None]:
        """Wait for a turn."""
        gate = self._gates.get(provider)
        if gate is None:
            limit = limit_for(self._limits, provider)
            if limit is None:
                yield
                return
            gate = self._gates[provider] = _Gate(limit, self._margin)
        if gate.room is None:
            await gate.start()
            yield
            return
        async with gate.room:
            await gate.start()
            yield


class _Gate:
    """One provider."""

    def __init__(self, limit: Limit, margin: float) -> None:
        self._count, window = limit.window
        self._window = window + margin
        self._starts: deque[float] = deque(maxlen=self._count or None)
        self._turn = asyncio.Lock()
        self.room = None if limit.at_once is None else asyncio.Semaphore(limit.at_once)

    async def start(self) -> None:
        """Wait until another request may begin. First come, first served."""
        if not self._count:
            return
        async with self._turn:
            if len(self._starts) == self._count:
                await asyncio.sleep(max(0.0, self._starts[0] + self._window - time.monotonic()))
            self._starts.append(time.monotonic())
