"""Requests of the Skills extension over the official SDK's client, with limits.

Answers over HTTP are limited in bytes, every request in time, lists in pages, entries and bytes.
Nothing in an answer is trusted: `listed_skills` validates lists, `ServedSkills` verifies files.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.extension import advertise
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

from satchel._unicode import replace_unprintable
from satchel.errors import ServerFailed
from satchel.i18n import say
from satchel.library.remote.config import DEPTH, without_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator

    from satchel.library.remote.config import McpServer

EXTENSION = "io.modelcontextprotocol/skills"
MAX_SKILLS = 20_000
MAX_PAGES = 1_000
MAX_LIST_BYTES = 32 << 20
"""All pages of a list together."""
MAX_ANSWER_BYTES = 64 << 20
"""One HTTP response: the largest file there may be, however it is encoded as JSON."""
_CONNECT_TIMEOUT_S = 5.0
_READ_TIMEOUT_S = 300.0
_MAX_STDERR_BYTES = 2048
_MAX_REASON_CHARS = 200


class ServerListing(NamedTuple):
    """A server's list."""

    entries: list[Any]
    ttl_s: float
    """Seconds for which the server allows caching."""
    exceeded_limit: int = 0
    """The limit that it exceeded and is not complete for; 0 when it is complete."""


@dataclass
class ConnectionNotes:
    """What explains a failure of one connection."""

    exceeded_limit: str = ""
    """The limit that an answer exceeded, as a sentence."""
    stderr: bytearray = field(default_factory=bytearray)
    """The end of a program's standard error."""


@asynccontextmanager
async def connect(server: McpServer, notes: ConnectionNotes) -> AsyncGenerator[Client]:
    """Connect to a server."""
    version = next(
        (distribution.version for distribution in metadata.distributions(name="satchel")), "0"
    )

    def make_client(transport: Any) -> Client:
        return Client(
            transport,
            client_info=types.Implementation(name="satchel", version=version),
            cache=None,
            extensions=[advertise(EXTENSION)],
        )

    open_transport = _open_program if server.command else _open_http
    async with open_transport(server, notes) as transport, make_client(transport) as client:
        yield client


@asynccontextmanager
async def _open_program(server: McpServer, notes: ConnectionNotes) -> AsyncGenerator[Any]:
    """The transport to a server that is a program."""
    allowed = {name: os.environ[name] for name in server.env if name in os.environ}
    # DEPTH: a program that uses served skills itself must not start this program again.
    command = StdioServerParameters(
        command=server.command[0], args=list(server.command[1:]), env={**allowed, DEPTH: "1"}
    )
    with _stderr_pipe(notes.stderr) as errors:
        yield stdio_client(command, errors)


@asynccontextmanager
async def _open_http(server: McpServer, notes: ConnectionNotes) -> AsyncGenerator[Any]:
    """The transport to a server with an address."""

    async def limit_response(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            # The size of a compressed answer is not known in advance.
            reason = "the answer is packed, which was not asked for"
            raise httpx2.ReadError(reason, request=response.request)
        response.stream = _LimitedStream(response, notes)

    async with httpx2.AsyncClient(
        headers=_headers(server),
        timeout=httpx2.Timeout(_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S),
        event_hooks={"response": [limit_response]},
    ) as http:
        yield streamable_http_client(
            server.address, http_client=http, max_sse_event_size=MAX_ANSWER_BYTES
        )


async def list_skills(client: Client) -> ServerListing:
    """Return everything that a server lists.

    Raises:
        ServerFailed: it has no skills, or its answers are not valid.
        MCPError: it answers with an error.
    """
    if EXTENSION not in (client.server_capabilities.extensions or {}):
        raise ServerFailed("it does not offer skills (the extension is not declared)")
    entries: list[Any] = []
    ttl_seconds = float("inf")
    cursor: Any = None
    exceeded_limit = list_bytes = 0
    for _ in range(MAX_PAGES):
        result = await _send_request(
            client, "skills/list", **({"cursor": cursor} if cursor else {})
        )
        page = result.get("skills")
        if not isinstance(page, list):
            raise ServerFailed("its list of skills is none")
        list_bytes += len(json.dumps(page))
        if list_bytes > MAX_LIST_BYTES:
            exceeded_limit = MAX_LIST_BYTES
            break
        entries += cast("list[Any]", page)
        ttl_seconds = min(ttl_seconds, _ttl_seconds(result.get("ttlMs")))
        if len(entries) > MAX_SKILLS:
            exceeded_limit = MAX_SKILLS
            break
        cursor = result.get("nextCursor")
        if not isinstance(cursor, str):
            break
    else:
        exceeded_limit = MAX_PAGES
    return ServerListing(entries[:MAX_SKILLS], ttl_seconds, exceeded_limit)


async def get_skill(client: Client, uri: str) -> Any:
    """Return the entry of one skill, which the list may lack.

    Raises:
        MCPError: the server serves no skill at this address.
    """
    return (await _send_request(client, "skills/get", uri=uri)).get("skill")


class _AnyResult(BaseModel, extra="allow"):
    """Any result; its fields are checked by the callers."""


async def _send_request(client: Client, method: str, **params: str | None) -> dict[str, Any]:
    request = types.Request[dict[str, Any], str](method=method, params=params)
    return (await client.session.send_request(request, _AnyResult)).model_extra or {}


async def read_file(client: Client, uri: str) -> bytes:
    """Return the bytes of one file.

    Raises:
        ServerFailed: the answer has no such file.
        MCPError: the server answers with an error.
    """
    contents = (await _send_request(client, "resources/read", uri=uri)).get("contents")
    for content in cast("list[Any]", contents) if isinstance(contents, list) else ():
        table = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
        text, blob = table.get("text"), table.get("blob")
        if table.get("uri") != uri:
            continue
        if isinstance(text, str):
            return text.encode("utf-8", "surrogatepass")
        if isinstance(blob, str):
            with suppress(binascii.Error):
                return base64.b64decode(blob, validate=True)
    raise ServerFailed("its answer holds no such file")


def reason_of(exc: BaseException, server: McpServer, notes: ConnectionNotes) -> str:
    """Describe a failure in one line without secrets."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    if isinstance(exc, ServerFailed):
        return without_secrets(server, exc.message)
    if isinstance(exc, FileNotFoundError):
        return say("`{name}` is not installed", name=exc.filename)
    if notes.exceeded_limit:
        return notes.exceeded_limit
    if isinstance(exc, TimeoutError):
        reason = say("it took too long")
    else:
        text = without_secrets(server, str(exc) or type(exc).__name__)
        reason = _one_line(text)[:_MAX_REASON_CHARS]
    stderr_text = _one_line(without_secrets(server, notes.stderr.decode("utf-8", "replace")))
    return f"{reason}; it said: {stderr_text[-_MAX_REASON_CHARS:]}" if stderr_text else reason


def _one_line(text: str) -> str:
    return " ".join(replace_unprintable(text, " ").split())


def _headers(server: McpServer) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity"}
    variables = [(name, variable, "") for name, variable in server.headers]
    if server.token:
        variables.append(("Authorization", server.token, "Bearer "))
    for name, variable, prefix in variables:
        value = os.environ.get(variable, "").strip()
        if not value:
            raise ServerFailed(f"the environment variable `{variable}` is not set")
        if not value.isascii() or not value.isprintable():
            raise ServerFailed(
                f"the environment variable `{variable}` has signs that no header may have"
            )
        headers[name] = prefix + value
    return headers


def _ttl_seconds(milliseconds: Any) -> float:
    is_number = isinstance(milliseconds, (int, float)) and not isinstance(milliseconds, bool)
    return float(milliseconds) / 1000 if is_number and milliseconds > 0 else 0.0


@contextmanager
def _stderr_pipe(tail: bytearray) -> Generator[TextIO]:
    """A pipe for standard error, the end of which is kept in `tail`."""
    reader, writer = os.pipe()

    def drain() -> None:
        with os.fdopen(reader, "rb", buffering=0) as stream:
            while chunk := stream.read(4096):
                tail.extend(chunk)
                del tail[:-_MAX_STDERR_BYTES]

    thread = threading.Thread(target=drain, name="satchel-stderr", daemon=True)
    thread.start()
    try:
        with os.fdopen(writer, "w") as stream:
            yield stream
    finally:
        thread.join(0.5)  # a process that the program started may keep the pipe open


class _LimitedStream(httpx2.AsyncByteStream):
    """The body of an answer, cut off at `MAX_ANSWER_BYTES`."""

    def __init__(self, response: httpx2.Response, notes: ConnectionNotes) -> None:
        self._inner = cast("httpx2.AsyncByteStream", response.stream)
        self._request = response.request
        self._notes = notes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        answer_bytes = 0
        async for chunk in self._inner:
            answer_bytes += len(chunk)
            if answer_bytes > MAX_ANSWER_BYTES:
                reason = f"the answer has more than {MAX_ANSWER_BYTES} bytes"
                self._notes.exceeded_limit = reason
                raise httpx2.ReadError(reason, request=self._request)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
