"""The web server of the MCP server, with a bearer token.

It listens on localhost and creates a token if none is given, since other users of the machine can
connect too. On other addresses it requires one. Requests that a web page makes through its own
host name (DNS rebinding) are always refused.

The token comes from the environment, never from a command line, which every process of the machine
can read. Only its digest is in memory, and comparisons take constant time.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.errors import InvalidInput, NotFound, Refused
from satchel.i18n import say
from satchel.integrations.mcp.client_view import ClientView

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.applications import Starlette

    from satchel.satchel import Satchel

MIN_TOKEN_CHARS = 16
"""A shorter token can be guessed."""


def token_from(variable: str) -> str:
    """The digest of a token in the environment.

    Raises:
        NotFound: there is none.
        InvalidInput: it is too short.
    """
    token = os.environ.get(variable, "")
    if not token:
        raise NotFound(
            say("Not set: {names}", names=variable),
            say("Set it to a token of at least {least} characters", least=MIN_TOKEN_CHARS),
        )
    if len(token) < MIN_TOKEN_CHARS:
        raise InvalidInput(
            say("The token has less than {least} characters", least=MIN_TOKEN_CHARS),
            say("Run `{command}`", command="openssl rand -hex 32"),
        )
    return sha256(token.encode()).hexdigest()


class StaticToken:
    """One bearer token. A `TokenVerifier` of the SDK."""

    def __init__(self, digest: str) -> None:
        self._digest = digest.encode()

    async def verify_token(self, token: str) -> Any:
        """The access of a token, or None; comparing takes constant time."""
        from mcp.server.auth.provider import AccessToken

        digest = sha256(token.encode("utf-8", "surrogateescape")).hexdigest().encode()
        if not compare_digest(digest, self._digest):
            return None
        return AccessToken(token="-", client_id="satchel", scopes=[])  # noqa: S106 - it is not kept


LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")
PATH = "/mcp"
DEFAULT_PORT = 8765
MAX_SESSIONS = 1_000
"""Of the older protocol; further clients are asked to retry later."""
SESSION_IDLE_S = 1_800.0
"""For a session without requests or an open stream."""
SHUTDOWN_TIMEOUT_S = 5
"""Time for open connections when the server stops."""


class Web(NamedTuple):
    """The address of the server, and how clients authenticate."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = DEFAULT_PORT
    """The port; 0 takes a free one."""
    token_env: str = ""
    """The environment variable with the token that clients send."""
    names: tuple[str, ...] = ()
    """Further host names of the server, such as that of a proxy."""
    started: Callable[[str, str], None] | None = None
    """Called with the URL, and the created token if any, once clients can connect."""
    open: bool = False
    """Require no token on localhost if none is given."""
    digest: str = ""
    """The SHA-256 of a created token."""


def make_app(satchel: Satchel, web: Web, *, tools: bool = True, url: str = "") -> Starlette:
    """Create the ASGI application, for a web server of your own.

    Args:
        satchel: The project.
        web: The address, and how clients authenticate.
        tools: Whether tools are served.
        url: The public address; made from `web` when empty.

    Raises:
        Refused: it would be open to other machines without a token.

    Example:
        from satchel import Satchel
        from satchel.integrations.mcp.http import Web, make_app

        app = make_app(Satchel.for_project("."), Web())
        assert app.routes[0].path == "/mcp"
    """
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.transport_security import TransportSecuritySettings
    from pydantic import AnyHttpUrl

    from satchel.integrations.mcp.server import make_server

    digest = web.digest
    if web.token_env:
        digest = token_from(web.token_env)
    if web.host not in LOCAL_HOSTS and not digest:
        raise Refused(
            say(
                "`{host}` can be reached from other machines without a token",
                host=web.host,
            ),
            say("Give `--token-env`"),
        )
    url = url or f"http://{web.host}:{web.port}{PATH}"
    verifier: Any = None
    settings: Any = None
    if digest:
        verifier = StaticToken(digest)
        settings = AuthSettings(issuer_url=AnyHttpUrl(url), resource_server_url=None)
    server = make_server(ClientView(satchel, tools=tools, remote=True))
    allowed = [*LOCAL_HOSTS[:1], "[::1]", "localhost", *_host_names(web.host), *web.names]
    origins = [f"{scheme}://{name}" for name in allowed for scheme in ("http", "https")]
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        max_sessions=MAX_SESSIONS,
        session_idle_timeout=SESSION_IDLE_S,
        host=web.host,
        auth=settings,
        token_verifier=verifier,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=[*allowed, *(f"{name}:*" for name in allowed)],
            allowed_origins=[*origins, *(f"{name}:*" for name in origins)],
        ),
    )
    app.add_middleware(_AddressSyntax)
    return app


_ADDRESS = re.compile(rb"(?:[a-z]+://)?(?:\[[0-9a-f:.]+\]|[^:/]*)(?::[0-9]{1,5})?\Z", re.IGNORECASE)


class _AddressSyntax:
    """Refuses a `Host` or `Origin` with anything but a number as its port.

    For an allowed host, the SDK accepts any text behind the colon: `http://127.0.0.1:8799.evil`.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request on, or answer with 403."""
        headers = scope["headers"] if scope["type"] == "http" else ()
        for name, value in headers:
            if name in (b"host", b"origin") and not _ADDRESS.match(value):
                kind = [(b"content-type", b"text/plain")]
                await send({"type": "http.response.start", "status": 403, "headers": kind})
                body = b"Invalid Host or Origin header"
                await send({"type": "http.response.body", "body": body})
                return
        await self._app(scope, receive, send)


def _host_names(host: str) -> list[str]:
    """The host name of a server on this address, if the address implies it."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not bound
        return [socket.gethostname()]
    return [f"[{host}]" if ":" in host else host]


def run_http(satchel: Satchel, web: Web, *, tools: bool = True) -> None:
    """Serve until the process ends; creates a token if none is given.

    Raises:
        Refused: it would be open to other machines without a token, or the port is taken.
    """
    import uvicorn

    token = ""
    if web.host in LOCAL_HOSTS and not web.open and not web.token_env:
        token = secrets.token_urlsafe(32)
        web = web._replace(digest=sha256(token.encode()).hexdigest())

    family = socket.AF_INET6 if ":" in web.host else socket.AF_INET
    # With a named protocol, asyncio sends small responses at once instead of after 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # Checked before binding, so that the port is never open without a token.
            host = f"[{web.host}]" if ":" in web.host else web.host
            app = make_app(satchel, web, tools=tools)
            listener.bind((web.host, web.port))
        except OSError as exc:
            raise Refused(
                say(
                    "`{address}` cannot be used: {reason}",
                    address=f"{web.host}:{web.port}",
                    reason=exc.strerror or exc,
                ),
                say("Choose another `--port`"),
            ) from exc
        port = listener.getsockname()[1]
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            log_level="warning",
            lifespan="on",
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        )
        listener.listen(128)
        (web.started or _print_address)(f"http://{host}:{port}{PATH}", token)
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()


def _print_address(url: str, token: str) -> None:
    lines = [url, *([f"Authorization: Bearer {token}"] if token else [])]
    print(*lines, sep="\n", file=sys.stderr, flush=True)  # noqa: T201 - the caller chose no other way
