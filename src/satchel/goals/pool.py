"""How do steps run that need not be begun in a certain order? Each by the next worker that is free.

A worker is a task. There is one more than are busy, up to the limit; so work that never waits is
done by one of them, and nothing is paid for tasks that would have nothing to do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from satchel.goals.model import Step

_TURN = 64
"""Steps that a worker does before others of this process have their turn."""


class Pool:
    """Steps that wait to be done, and those who do them.

    Args:
        do: Does one step; whatever it raises is its own business.
        most: Steps that are done at once.
    """

    def __init__(self, do: Callable[[Step], Awaitable[None]], most: int) -> None:
        self.workers: list[asyncio.Task[None]] = []
        """All that were ever hired: few more than steps that had to wait."""
        self._busy = 0
        self._do = do
        self._most = most
        self._queue: deque[Step] = deque()
        self._loop = asyncio.get_running_loop()
        self._spare = False
        """Whether a worker was called that has not begun."""

    def add(self, step: Step) -> None:
        """Have a step done as soon as there is room."""
        self._queue.append(step)
        if not self._spare and self._busy < self._most:
            self._help()

    def _help(self) -> None:
        """See to it that somebody takes what is in the queue, should those who work now wait."""
        self._spare = True
        if self._busy:
            self._loop.call_soon(self._hire)
        else:
            self._hire()

    def _hire(self) -> None:
        if self._queue:
            self._busy += 1
            self.workers.append(self._loop.create_task(self._work()))
        else:
            self._spare = False

    async def _work(self) -> None:
        self._spare = False
        queue = self._queue
        turn = 0
        try:
            while queue:
                step = queue.popleft()
                if queue and not self._spare and self._busy < self._most:
                    self._help()
                await self._do(step)
                turn += 1
                if turn == _TURN:
                    turn = 0
                    await asyncio.sleep(0)
        finally:
            self._busy -= 1
