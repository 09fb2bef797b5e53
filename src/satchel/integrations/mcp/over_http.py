"""The web server: where it listens, and what it asks of whoever comes.

It listens on this machine alone and makes a token where none is given, since other users of the
machine can connect too. On another address it wants tokens, or it does not start. Requests that a
web page makes through a name of its own (DNS rebinding) are refused in any case.
"""

from __future__ import annotations

import secrets
import socket
import sys
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import say
from satchel.errors import InvalidInput, Refused
from satchel.integrations.mcp.access import Client, Either, Issued, Tokens, token_from
from satchel.integrations.mcp.views import Part, Views

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.applications import Starlette

    from satchel.facade import Satchel
    from satchel.integrations.mcp.issuer import OAuth

HERE = ("127.0.0.1", "::1", "localhost")
PATH = "/mcp"
PORT = 8765
MOST_SESSIONS = 1_000
"""Sessions of the older protocol at a time; whoever comes then is told to come later."""
IDLE = 1_800.0
"""Seconds after which a session is ended that asks nothing and does not listen."""
SHUTDOWN = 5
"""Seconds that whoever is connected has, once the server is to end."""


class Web(NamedTuple):
    """Where to listen and who may come in."""

    host: str = "127.0.0.1"
    port: int = PORT
    token_env: str = ""
    token_file: str = ""
    clients: tuple[Client, ...] = ()
    oauth: OAuth | None = None
    names: tuple[str, ...] = ()
    """Further names under which clients reach the server, such as that of a proxy."""
    started: Callable[[str, str], None] | None = None
    """Gets the address once clients can connect, and the token that was made, if any."""
    open: bool = False
    """Ask for no token on this machine, where none is given."""


def make_app(satchel: Satchel, web: Web, *, tools: bool = True, url: str = "") -> Starlette:
    """The server as an ASGI application.

    Raises:
        Refused: it would be open to other machines without a token.
    """
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.transport_security import TransportSecuritySettings
    from pydantic import AnyHttpUrl

    from satchel.integrations.mcp.server import make_server

    # What is left out for all is left out for each.
    clients = [
        one._replace(part=one.part._replace(tools=one.part.tools and tools)) for one in web.clients
    ]
    if web.token_env or web.token_file:
        clients.append(Client(Part("", tools=tools), token_from(web.token_env, web.token_file)))
    if web.host not in HERE and not clients and web.oauth is None:
        raise Refused(
            say(
                "`{host}` can be reached from other machines, and nobody needs a token",
                host=web.host,
            ),
            say("Give `--token-env`, `--token-file`, `--clients` or `--issuer`"),
        )
    if web.oauth is None and any(one.subject for one in clients):
        raise InvalidInput(
            say("A client has a `subject`, and no OAuth server is named"),
            say("Give `--issuer` and `--audience`"),
        )
    url = url or f"http://{web.host}:{web.port}{PATH}"
    verifier: Any = None
    settings: Any = None
    if web.oauth is not None:
        verifier = Either(
            Tokens(clients, web.oauth.scopes),
            Issued(web.oauth, clients, closed=bool(web.clients)),
        )
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(web.oauth.issuer),
            resource_server_url=AnyHttpUrl(web.oauth.audience),
            required_scopes=list(web.oauth.scopes) or None,
            validate_token_resource=False,  # the audience is checked with the signature
        )
    elif clients:
        verifier = Tokens(clients)
        settings = AuthSettings(issuer_url=AnyHttpUrl(url), resource_server_url=None)
    parts = [one.part for one in clients if one.part.name]
    views = Views(satchel, parts, tools=tools, remote=True)
    server = make_server(views, shared=not parts)
    allowed = [*HERE[:1], "[::1]", "localhost", *_own(web.host), *web.names]
    origins = [f"{scheme}://{name}" for name in allowed for scheme in ("http", "https")]
    return server.streamable_http_app(
        streamable_http_path=PATH,
        max_sessions=MOST_SESSIONS,
        session_idle_timeout=IDLE,
        host=web.host,
        auth=settings,
        token_verifier=verifier,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=[*allowed, *(f"{name}:*" for name in allowed)],
            allowed_origins=[*origins, *(f"{name}:*" for name in origins)],
        ),
    )


def _own(host: str) -> list[str]:
    """The name under which a server on this address is reached, where the address says it."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not bound
        return [socket.gethostname()]
    return [f"[{host}]" if ":" in host else host]


def run_http(satchel: Satchel, web: Web, *, tools: bool = True) -> None:
    """Serve until somebody ends the process; where no token is given, with one that is made.

    Raises:
        Refused: it would be open to other machines without a token, or the port is taken.
    """
    import uvicorn

    token = ""
    given = web.open or web.token_env or web.token_file or web.clients or web.oauth
    if web.host in HERE and not given:
        token = secrets.token_urlsafe(32)
        web = web._replace(clients=(Client(Part(""), sha256(token.encode()).hexdigest()),))

    family = socket.AF_INET6 if ":" in web.host else socket.AF_INET
    # With its protocol named, asyncio sends small answers at once instead of after 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # Checked before anything is bound, so that nothing is open for a moment.
            shown = f"[{web.host}]" if ":" in web.host else web.host
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
            timeout_graceful_shutdown=SHUTDOWN,
        )
        listener.listen(128)
        (web.started or _print_address)(f"http://{shown}:{port}{PATH}", token)
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()


def _print_address(url: str, token: str) -> None:
    lines = [url, *([f"Authorization: Bearer {token}"] if token else [])]
    print(*lines, sep="\n", file=sys.stderr, flush=True)  # noqa: T201 - the caller chose no other way
