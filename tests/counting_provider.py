"""A provider that counts: when requests arrive, and how many are with it at once.

python counting_provider.py KIND WHERE PER_SECOND AT_ONCE PORT COUNT      one of its clients
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from typing import Self

from satchel.goals.rate_limits import Limit, SharedLimiter


class Provider:
    """Answers each request after a while, on loopback."""

    def __init__(self, seconds: tuple[float, float] = (0.05, 0.6)) -> None:
        self._seconds = seconds
        self.arrivals: list[float] = []
        self.now = self.most = 0
        self.port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        async with server:
            await self._over.wait()
        answers = asyncio.all_tasks() - {asyncio.current_task()}
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        await asyncio.sleep(0)  # their connections are closed now

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if not line:
            writer.close()
            return
        self.arrivals.append(time.monotonic())
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(random.uniform(*self._seconds))
            writer.write(b"done\n")
        finally:
            self.now -= 1
            writer.close()

    def busiest(self, seconds: float = 1.0) -> int:
        """The most requests that arrived within any so many seconds."""
        times = sorted(self.arrivals)
        return max(
            (sum(begin <= at < begin + seconds for at in times) for begin in times), default=0
        )

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()


def limiter(where: str, limit: Limit) -> SharedLimiter:
    """The limiter, which soon gives up who is killed."""
    return SharedLimiter({"model": limit}, where, lease=1.0)


async def ask(port: int) -> None:
    """One request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"ask\n")
    await writer.drain()
    await reader.readline()
    writer.close()
    await writer.wait_closed()


async def main() -> None:
    where, per_second, at_once, port, count = sys.argv[1:]
    limit = Limit(float(per_second) or None, int(at_once) or None)
    async with limiter(where, limit) as limits:

        async def one() -> None:
            async with limits.slot("model"):
                sys.stdout.write(f"{os.getpid()}\n")
                sys.stdout.flush()
                await ask(int(port))

        await asyncio.gather(*(one() for _ in range(int(count))))


if __name__ == "__main__":
    asyncio.run(main())
