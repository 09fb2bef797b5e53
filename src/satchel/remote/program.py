"""A server that is a program: started, listened to within bounds, and ended for certain.

It gets the end of its input, then half a second, then a signal, then half a second: after that it
is killed, with what it started. That also happens when whoever waits for it waits no more.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from anyio.abc import Process
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from satchel.remote.heard import Heard

    Streams = tuple[
        MemoryObjectReceiveStream[SessionMessage | Exception],
        MemoryObjectSendStream[SessionMessage],
    ]

GRACE = 0.5
"""Seconds for a program to end by itself, and again after it was told to."""
_LOOK = 0.01
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)


@asynccontextmanager
async def running(
    command: Sequence[str], env: Mapping[str, str], heard: Heard
) -> AsyncGenerator[Streams]:
    """Start a program and speak with it, a line for each message.

    Args:
        command: The program and its words.
        env: All that it sees of the environment.
        heard: Counts what it says, and keeps the end of what it writes for people.
    """
    process = await anyio.open_process(
        [_found(command[0]), *command[1:]], env=env, start_new_session=True
    )
    # No await from here to the group: a program that nobody knows of could not be ended.
    into, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, out = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_listen, process, into, heard)
            group.start_soon(_speak, process, out, into)
            group.start_soon(_overhear, process, heard)
            try:
                yield read, write
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(process)
                group.cancel_scope.cancel()
    finally:
        _kill(process)
        with anyio.CancelScope(shield=True):
            await _has_ended(process)  # at once but for a cancellation while it was being ended
        for stream in (into, read, write, out):
            stream.close()
        _release(process)


async def _listen(
    process: Process, into: MemoryObjectSendStream[SessionMessage | Exception], heard: Heard
) -> None:
    assert process.stdout is not None  # noqa: S101 - it was opened with pipes
    line, items = bytearray(), 0
    with suppress(*_GONE):
        async with into:
            async for chunk in process.stdout:
                parts = chunk.split(b"\n")
                for number, part in enumerate(parts):
                    if number:
                        await into.send(_message(bytes(line)))
                        line, items = bytearray(), 0
                    line += part
                    try:
                        items = heard.take(part, len(line), items)
                    except ValueError:
                        return  # `heard` says why; to the session the connection has ended


async def _speak(
    process: Process,
    out: MemoryObjectReceiveStream[SessionMessage],
    into: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    assert process.stdin is not None  # noqa: S101 - it was opened with pipes
    try:
        async with out:
            async for one in out:
                text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(text.encode() + b"\n")
    except _GONE:
        into.close()  # whoever waits for an answer learns that there will be none


async def _overhear(process: Process, heard: Heard) -> None:
    assert process.stderr is not None  # noqa: S101 - it was opened with pipes
    with suppress(*_GONE):
        async for chunk in process.stderr:
            heard.say(chunk)


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as exc:
        return exc


async def _end(process: Process) -> None:
    """Let a program end, then make it."""
    if process.stdin is not None:
        with suppress(*_GONE):
            await process.stdin.aclose()
    if await _has_ended(process):
        return
    _signal(process, signal.SIGTERM)
    if not await _has_ended(process):
        _kill(process)
        await _has_ended(process)


async def _has_ended(process: Process) -> bool:
    """Whether it ends within the grace. Its pipes say nothing: what it started may hold them."""
    with anyio.move_on_after(GRACE):
        while process.returncode is None:  # noqa: ASYNC110 - nobody tells but the system
            await anyio.sleep(_LOOK)
    return process.returncode is not None


def _kill(process: Process) -> None:
    """End a program and what it started, at once."""
    if sys.platform == "win32":
        with suppress(OSError):
            process.kill()
        return
    _signal(process, signal.SIGKILL)


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(OSError):
        if sys.platform == "win32":
            process.terminate()
        else:
            os.killpg(process.pid, number)  # it leads a group of its own


def _release(process: Process) -> None:
    """Let go of the pipes, even if something that outlived the program holds them."""
    transport: Any = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(OSError):
            transport.close()


def _found(program: str) -> str:
    if sys.platform == "win32":
        from mcp.os.win32.utilities import get_windows_executable_command

        return get_windows_executable_command(program)
    return program
