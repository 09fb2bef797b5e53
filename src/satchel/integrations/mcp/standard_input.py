"""How is stdin read so that a signal can end the server while it waits there?

A read that waits cannot be taken back, and the SDK's would hold the process until the client says
something more. Here it happens in a thread that the end of the process does not wait for.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

_CHUNK = 1 << 16


@contextmanager
def taken() -> Generator[int]:
    """Stdin under another number: programs that skills start must not read what a client says."""
    source = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        yield source
    finally:
        os.dup2(source, 0)  # `source` stays open: somebody may still wait there


async def lines(source: int) -> AsyncGenerator[str]:
    """The lines that come from a descriptor, until it ends."""
    loop = asyncio.get_running_loop()
    sending, receiving = anyio.create_memory_object_stream[str](0)

    def give(line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        asyncio.run_coroutine_threadsafe(sending.send(text), loop).result()

    def read() -> None:
        rest = bytearray()
        with suppress(OSError, RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while chunk := os.read(source, _CHUNK):
                rest += chunk
                if b"\n" in chunk:
                    *whole, last = rest.split(b"\n")
                    for line in whole:
                        give(bytes(line))
                    rest = last
            if rest:
                give(bytes(rest))
            asyncio.run_coroutine_threadsafe(sending.aclose(), loop).result()

    threading.Thread(target=read, name="satchel-stdin", daemon=True).start()
    async with receiving:
        async for line in receiving:
            yield line
