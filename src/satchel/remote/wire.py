"""What is said to a server, and how much of its answers is listened to.

Every answer is bounded in bytes and in time, pages are counted, and an answer is only taken apart,
never believed: `entries` judges a list, and `Supply` compares every file.
"""

from __future__ import annotations

import base64
import binascii
import os
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.extension import advertise
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict

from satchel._language import say
from satchel.errors import ServerFailed
from satchel.remote.heard import Heard
from satchel.remote.program import running
from satchel.remote.servers import DEPTH, without_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from satchel.remote.servers import Server

EXTENSION = "io.modelcontextprotocol/skills"
MAX_SKILLS = 20_000
"""Skills that are taken from one server."""
MAX_PAGES = 1_000
ENOUGH = 20.0
"""Seconds after which no further page is asked for."""
MAX_ANSWER = 64 << 20
"""Bytes of one answer: the largest file there may be, however it is written as JSON."""
MAX_LIST = 32 << 20
"""Bytes of one list, all pages together."""
_CONNECT = 5.0
_SILENCE = 300.0
_SHOWN = 200


class Listed(NamedTuple):
    """What a server listed."""

    rows: list[Any]
    ttl: float
    """Seconds for which the server says it holds."""
    why: str = ""
    """Why this is not all of it."""


class _Answer(BaseModel):
    """Whatever came: it is taken apart by hand."""

    model_config = ConfigDict(extra="allow")


class _GetParams(types.RequestParams):
    uri: str


class _ListRequest(types.Request[types.PaginatedRequestParams, Literal["skills/list"]]):
    method: Literal["skills/list"] = "skills/list"
    params: types.PaginatedRequestParams


class _GetRequest(types.Request[_GetParams, Literal["skills/get"]]):
    method: Literal["skills/get"] = "skills/get"
    params: _GetParams


class _Client(Client):
    """A client that knows what its connection carried."""

    heard: Heard


@asynccontextmanager
async def connect(
    server: Server, changed: Callable[[], None], heard: Heard | None = None
) -> AsyncGenerator[Client]:
    """A connection to a server.

    Args:
        server: Which one.
        changed: Called when it says that its files are others now.
        heard: Counts what comes, and has what explains a failure.
    """
    heard = heard or Heard(MAX_ANSWER)

    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceListChangedNotification):
            changed()

    if server.command:
        allowed = {name: os.environ[name] for name in server.env if name in os.environ}
        # A program that takes skills from servers itself must not start us, and so on without end.
        env = {**get_default_environment(), **allowed, DEPTH: "1"}
        async with _client(running(server.command, env, heard), hear, heard) as client:
            yield client
        return
    async with httpx2.AsyncClient(
        headers=_headers(server),
        timeout=httpx2.Timeout(_CONNECT, read=_SILENCE),
        transport=_Bounded(httpx2.AsyncHTTPTransport(), heard),
    ) as http:
        transport = streamable_http_client(
            server.address, http_client=http, max_sse_event_size=MAX_ANSWER
        )
        async with _client(transport, hear, heard) as client:
            yield client


def _client(transport: Any, hear: Any, heard: Heard) -> _Client:
    client = _Client(
        transport,
        client_info=types.Implementation(name="satchel", version=_version()),
        cache=None,
        message_handler=hear,
        extensions=[advertise(EXTENSION)],
    )
    client.heard = heard
    return client


async def list_skills(client: Client, server: Server) -> Listed:
    """Everything that a server lists, and what the user named besides.

    Raises:
        ServerFailed: it has no skills, or its answers are none.
        MCPError: it says no.
    """
    if EXTENSION not in (client.server_capabilities.extensions or {}):
        raise ServerFailed("it does not offer skills (the extension is not declared)")
    heard = _heard(client, min(MAX_LIST, MAX_ANSWER))
    heard.listing = True
    try:
        return await _list(client, server, heard)
    finally:
        heard.listing = False


def _heard(client: Client, limit: int) -> Heard:
    """What counts for a client, from here on for another question."""
    heard = client.heard if isinstance(client, _Client) else Heard(limit)
    heard.total, heard.limit, heard.why = 0, limit, ""
    return heard


async def _list(client: Client, server: Server, heard: Heard) -> Listed:
    rows: list[Any] = []
    ttl, cursor, why = float("inf"), None, ""
    cursors: set[str] = set()
    end = time.monotonic() + ENOUGH
    for _ in range(MAX_PAGES):
        params = types.PaginatedRequestParams(cursor=cursor)
        answer = await _ask(client, _ListRequest(params=params))
        found = answer.get("skills")
        if not isinstance(found, list):
            raise ServerFailed("its list of skills is none")
        rows += cast("list[Any]", found)
        ttl = min(ttl, _seconds(answer.get("ttlMs")))
        following = answer.get("nextCursor")
        if not isinstance(following, str):
            break
        if len(rows) >= MAX_SKILLS:
            why = f"there are more than {MAX_SKILLS}"
            break
        if heard.total > MAX_LIST:
            why = f"it has more than {MAX_LIST} bytes"
            break
        if time.monotonic() > end:
            why = f"it takes longer than {ENOUGH:.0f} seconds"
            break
        if following in cursors:
            why = "its pages go round in a circle"
            break
        cursors.add(following)
        cursor = following
    else:
        why = f"there are more than {MAX_PAGES} pages"
    if len(rows) > MAX_SKILLS:
        why = f"there are more than {MAX_SKILLS}"
        del rows[MAX_SKILLS:]
    listed = {cast("dict[str, Any]", row).get("uri") for row in rows if isinstance(row, dict)}
    rows += [await _get(client, uri) for uri in server.skills if uri not in listed]
    return Listed(rows, ttl, why)


async def _ask(client: Client, request: types.Request[Any, Any]) -> dict[str, Any]:
    return (await client.session.send_request(request, _Answer)).model_extra or {}


async def _get(client: Client, uri: str) -> Any:
    """One entry that is not in the list. One that is not there is refused as such."""
    try:
        answer = await _ask(client, _GetRequest(params=_GetParams(uri=uri)))
    except MCPError:
        return {"uri": uri}
    return answer.get("skill")


async def read_file(client: Client, uri: str) -> bytes:
    """The bytes of one file.

    Raises:
        ServerFailed: there are none in the answer.
        MCPError: the server says no.
    """
    _heard(client, MAX_ANSWER)
    request = types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=uri))
    answer = await _ask(client, request)
    contents = answer.get("contents")
    for row in cast("list[Any]", contents) if isinstance(contents, list) else ():
        item = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
        if item.get("uri") != uri:
            continue
        text, blob = item.get("text"), item.get("blob")
        if isinstance(text, str):
            return text.encode("utf-8", "surrogatepass")
        if isinstance(blob, str):
            try:
                return base64.b64decode(blob, validate=True)
            except binascii.Error:
                break
    raise ServerFailed("its answer holds no such file")


async def wait_for_changes(client: Client, changed: Callable[[], None]) -> bool:
    """Listen until the server hangs up; False when it does not tell of changes at all."""
    resources = client.server_capabilities.resources
    if resources is None or not resources.list_changed:
        return False
    async with client.listen(resources_list_changed=True) as events:
        async for _ in events:
            changed()
    return True


def reason_of(exc: BaseException, server: Server, heard: Heard) -> str:
    """Why something failed, in a few words that a person understands, and no secret among them."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    if isinstance(exc, ServerFailed):
        return without_secrets(server, exc.message)
    if isinstance(exc, FileNotFoundError):
        return say("there is no program `{name}`", name=exc.filename)
    if heard.why:
        return heard.why
    if isinstance(exc, TimeoutError):
        reason = say("it took too long")
    else:
        text = _plain(without_secrets(server, str(exc) or type(exc).__name__))
        reason = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    said = _plain(without_secrets(server, heard.said))
    if not said:
        return reason
    return f"{reason}; it said: {said if len(said) <= _SHOWN else '…' + said[-_SHOWN:]}"


def _plain(text: str) -> str:
    """A text in one line, without signs that show nothing."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _headers(server: Server) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity"}
    wanted = [(name, variable, "") for name, variable in server.headers]
    if server.token:
        wanted.append(("Authorization", server.token, "Bearer "))
    for name, variable, before in wanted:
        value = os.environ.get(variable, "").strip()
        if not value:
            raise ServerFailed(f"the environment variable `{variable}` is not set")
        if not value.isascii() or not value.isprintable():
            raise ServerFailed(
                f"the environment variable `{variable}` has signs that no header may have"
            )
        headers[name] = before + value
    return headers


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("satchel")
    except PackageNotFoundError:  # run from a checkout
        return "0"


def _seconds(value: Any) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return float(value) / 1000 if good else 0.0


class _Bounded(httpx2.AsyncBaseTransport):
    """Hands on answers up to a bound; packed ones are refused, since they could be anything."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, heard: Heard) -> None:
        self._inner = inner
        self._heard = heard

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Ask, and bound the answer."""
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.ReadError("the answer is packed, which was not asked for", request=request)
        stream = cast("httpx2.AsyncByteStream", response.stream)
        response.stream = _BoundedStream(stream, request, self._heard)
        return response

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(
        self, inner: httpx2.AsyncByteStream, request: httpx2.Request, heard: Heard
    ) -> None:
        self._inner = inner
        self._request = request
        self._heard = heard

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = items = 0
        async for chunk in self._inner:
            size += len(chunk)
            try:
                items = self._heard.take(chunk, size, items)
            except ValueError as exc:
                raise httpx2.ReadError(str(exc), request=self._request) from exc
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
