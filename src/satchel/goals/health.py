"""The address at which a worker answers whether it can work: `GET /health`.

The answer is 200 with `{"status": "ok"}`, or 503 with `{"status": "failing", "reason": "…"}`. It
names no goal. Time and size of a request are limited, and so is the number of connections.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from satchel.errors import InvalidInput, Refused, SatchelError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

PATH = "/health"
_LOOPBACK = "127.0.0.1"
_MAX_PORT = 65_535
_MAX_REQUEST_BYTES = 4_096
_REQUEST_TIMEOUT_S = 3.0
_CHECK_TIMEOUT_S = 3.0
_MAX_CLIENTS = 32
_match_address = re.compile(
    r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:\s/]+):)?(?P<port>\d{1,5})"
).fullmatch


class HealthAddress(NamedTuple):
    """Where a worker answers."""

    host: str
    """A name or an IP address, without brackets."""
    port: int
    """0 for any free port."""

    @classmethod
    def parse(cls, text: str) -> HealthAddress:
        """Parse `PORT` or `HOST:PORT`; without a host only this machine can connect.

        Args:
            text: The text.

        Raises:
            InvalidInput: it has another form.
        """
        match = _match_address(text.strip())
        if match is None or int(match["port"]) > _MAX_PORT:
            raise InvalidInput(
                say("`{value}` is not valid", value=text),
                say("Write `PORT` or `HOST:PORT`, such as `8900` or `0.0.0.0:8900`"),
            )
        return cls((match["host"] or _LOOPBACK).strip("[]"), int(match["port"]))


class HealthServer:
    """Answers requests about the health of a worker.

    Args:
        check: Returns why the worker cannot work; an empty text when it can.
    """

    def __init__(self, check: Callable[[], Awaitable[str]]) -> None:
        self._check = check
        self._client_count = 0

    @asynccontextmanager
    async def serve(self, address: HealthAddress) -> AsyncGenerator[str]:
        """Answer requests; yields the URL.

        Args:
            address: Where to listen.

        Raises:
            Refused: the address cannot be used.
        """
        host, port = address
        try:
            server = await asyncio.start_server(self._answer, host, port, limit=_MAX_REQUEST_BYTES)
        except OSError as exc:
            raise Refused(
                say("The address `{address}` cannot be used: {reason}",
                    address=f"{host}:{port}", reason=exc.strerror or exc),
                say("Choose another one with `--health`"),
            ) from exc  # fmt: skip
        port = server.sockets[0].getsockname()[1]
        shown_host = f"[{host}]" if ":" in host else host
        try:
            yield f"http://{shown_host}:{port}{PATH}"
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection."""
        self._client_count += 1
        try:
            if self._client_count <= _MAX_CLIENTS:
                async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                    request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._reply(request))
                async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it sent no request in time, too large a one, or is gone
        finally:
            self._client_count -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _reply(self, request: bytes) -> bytes:
        """The response to a request."""
        method, _, rest = request.partition(b"\r\n")[0].partition(b" ")
        target = rest.partition(b" ")[0].partition(b"?")[0]
        if target != PATH.encode():
            return _response(HTTPStatus.NOT_FOUND, {"status": "unknown"}, method)
        if method not in {b"GET", b"HEAD"}:
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, {"status": "unknown"}, method)
        reason = await self._find_problem()
        if not reason:
            return _response(HTTPStatus.OK, {"status": "ok"}, method)
        body = {"status": "failing", "reason": reason}
        return _response(HTTPStatus.SERVICE_UNAVAILABLE, body, method)

    async def _find_problem(self) -> str:
        """Why the worker cannot work; empty when it can."""
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                return await self._check()
        except TimeoutError:
            return say("The engine does not answer")
        except SatchelError as exc:
            return exc.message
        except Exception as exc:  # noqa: BLE001 - a worker in an unknown state is not healthy
            return type(exc).__name__


def _response(status: HTTPStatus, body: dict[str, str], method: bytes) -> bytes:
    content = json.dumps(body).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else content)
