"""The web server of the MCP server, with bearer tokens.

It listens on localhost and creates a token if none is given, since other users of the machine can
connect too. On other addresses it requires tokens. Requests that a web page makes through its own
host name (DNS rebinding) are always refused.

Tokens come from the environment or from a file, never from a command line, which every process of
the machine can read. Only their digests are in memory, and comparisons take constant time.
The table of clients:

    [clients.laptop]
    token-env = "LAPTOP_TOKEN"          # or token-file, or token-sha256
    include = ["pdf-*"]                 # and exclude, tags: as the settings of these names
    tools = false                       # the extension and prompts only
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._fs import read_plain
from satchel.errors import InvalidInput, NotFound, Refused, SettingsError
from satchel.i18n import say
from satchel.integrations.mcp.client_view import ClientScope, ClientViews
from satchel.library.snapshot import Filter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.applications import Starlette

    from satchel.satchel import Satchel

MIN_TOKEN_CHARS = 16
"""A shorter token can be guessed."""
_MAX_FILE_BYTES = 1 << 20
_HEX = re.compile(r"[0-9a-f]{64}")
_KEYS = {
    "token-env",
    "token-file",
    "token-sha256",
    "include",
    "exclude",
    "tags",
    "tools",
}


class Client(NamedTuple):
    """A client of the server."""

    part: ClientScope
    digest: str
    """The hexadecimal SHA-256 of the token."""
    file: str = ""


def token_from(variable: str = "", file: str = "") -> str:
    """The digest of a token in the environment or in a file.

    Raises:
        NotFound: there is none.
        InvalidInput: it is too short.
    """
    if variable:
        token = os.environ.get(variable, "")
        if not token:
            raise NotFound(
                say("Not set: {names}", names=variable),
                say("Set it to a token of at least {least} characters", least=MIN_TOKEN_CHARS),
            )
    else:
        try:
            token = read_plain(file, _MAX_FILE_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise NotFound(
                say(
                    "`{path}` cannot be read: {reason}",
                    path=file,
                    reason=getattr(exc, "strerror", "") or say("it is not text"),
                ),
                say("Set it to a token of at least {least} characters", least=MIN_TOKEN_CHARS),
            ) from exc
    if len(token) < MIN_TOKEN_CHARS:
        raise InvalidInput(
            say("The token has less than {least} characters", least=MIN_TOKEN_CHARS),
            say("Run `{command}`", command="openssl rand -hex 32"),
        )
    return sha256(token.encode()).hexdigest()


def others_can_read(path: str) -> bool:
    """Whether other users of this machine can read a file with a token."""
    try:
        return os.name == "posix" and bool(os.stat(path).st_mode & 0o077)
    except OSError:
        return False


def read_clients(path: str) -> list[Client]:
    """Read the table of clients.

    Raises:
        NotFound: there is no such file, or a token is missing.
        SettingsError: it is invalid.
    """
    import tomllib

    hint = say("Begin it with `{line}`", line="[clients.NAME]")
    try:
        table = tomllib.loads(read_plain(path, _MAX_FILE_BYTES).decode())
    except OSError as exc:
        words = say(
            "`{path}` cannot be read: {reason}",
            path=path,
            reason=getattr(exc, "strerror", "") or say("it is not text"),
        )
        raise NotFound(words, hint) from exc
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        words = say("`{path}` cannot be used: {reason}", path=path, reason=exc)
        raise SettingsError(words, hint) from exc
    rows = cast("Mapping[str, Any]", table.get("clients"))
    if set(table) != {"clients"} or not isinstance(rows, dict) or not rows or "" in rows:
        raise SettingsError(say("`{path}` has no table of clients", path=path), hint)
    folder = os.path.dirname(os.path.abspath(path))
    found = [_client(name, row, folder) for name, row in rows.items()]
    digests = [one.digest for one in found]
    if len(set(digests)) != len(digests):
        raise SettingsError(
            say("Two clients in `{path}` have the same token", path=path),
            say("Correct it"),
        )
    return found


def _client(name: str, row: Any, folder: str) -> Client:
    if not isinstance(row, dict):
        raise _client_error(name, say("`{value}` is not valid", value=name))
    table = cast("Mapping[str, Any]", row)
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise _client_error(name, say("`{value}` is not valid", value=unknown[0]))
    lists: dict[str, Any] = {key: table.get(key, []) for key in ("include", "exclude", "tags")}
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):  # pyright: ignore[reportUnknownVariableType]
            raise _client_error(name, say("`{value}` is not valid", value=key))
    if not isinstance(table.get("tools", True), bool):
        raise _client_error(name, say("`{key}` is not valid", key="tools"))
    ways = [key for key in ("token-env", "token-file", "token-sha256") if key in table]
    if len(ways) != 1 or not isinstance(table[ways[0]], str):
        raise _client_error(
            name, say("it needs one of `token-env`, `token-file` and `token-sha256`")
        )
    wanted = Filter(*(tuple(lists[key]) for key in ("include", "exclude", "tags")))
    part = ClientScope(name, wanted, bool(table.get("tools", True)))
    way, value = ways[0], str(table[ways[0]])
    if way == "token-sha256":
        if not _HEX.fullmatch(value):
            raise _client_error(name, say("`{value}` is not valid", value=way))
        return Client(part, value)
    if way == "token-env":
        return Client(part, token_from(value))
    file = os.path.join(folder, os.path.expanduser(value))
    return Client(part, token_from(file=file), file=file)


def _client_error(name: str, reason: str) -> SettingsError:
    return SettingsError(
        say("`{path}` cannot be used: {reason}", path=name, reason=reason),
        say("Look at the guide `serve-over-mcp`"),
    )


class StaticTokens:
    """Static bearer tokens. A `TokenVerifier` of the SDK."""

    def __init__(self, clients: list[Client]) -> None:
        self._clients = [(one.digest.encode(), one.part.name) for one in clients]

    async def verify_token(self, token: str) -> Any:
        """The token's client, or None. All digests are compared, to take constant time."""
        from mcp.server.auth.provider import AccessToken

        given = sha256(token.encode("utf-8", "surrogateescape")).hexdigest().encode()
        found = None
        for digest, name in self._clients:
            if compare_digest(given, digest):
                found = name
        if found is None:
            return None
        return AccessToken(token="-", client_id=found, scopes=[])  # noqa: S106 - it is not kept


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
    """Address and authentication."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token_env: str = ""
    token_file: str = ""
    clients: tuple[Client, ...] = ()
    names: tuple[str, ...] = ()
    """Further host names of the server, such as that of a proxy."""
    started: Callable[[str, str], None] | None = None
    """Called with the URL, and the created token if any, once clients can connect."""
    open: bool = False
    """Require no token on localhost if none is given."""


def make_app(satchel: Satchel, web: Web, *, tools: bool = True, url: str = "") -> Starlette:
    """Create the ASGI application.

    Raises:
        Refused: it would be open to other machines without a token.
    """
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.transport_security import TransportSecuritySettings
    from pydantic import AnyHttpUrl

    from satchel.integrations.mcp.server import make_server

    # The filter of the server applies to each client too.
    clients = [
        one._replace(part=one.part._replace(tools=one.part.tools and tools)) for one in web.clients
    ]
    if web.token_env or web.token_file:
        clients.append(
            Client(ClientScope("", tools=tools), token_from(web.token_env, web.token_file))
        )
    if web.host not in LOCAL_HOSTS and not clients:
        raise Refused(
            say(
                "`{host}` can be reached from other machines, and nobody needs a token",
                host=web.host,
            ),
            say("Give `--token-env`, `--token-file` or `--clients`"),
        )
    url = url or f"http://{web.host}:{web.port}{PATH}"
    verifier: Any = None
    settings: Any = None
    if clients:
        verifier = StaticTokens(clients)
        settings = AuthSettings(issuer_url=AnyHttpUrl(url), resource_server_url=None)
    parts = [one.part for one in clients if one.part.name]
    views = ClientViews(satchel, parts, tools=tools, remote=True)
    server = make_server(views, shared=not parts)
    allowed = [*LOCAL_HOSTS[:1], "[::1]", "localhost", *_host_names(web.host), *web.names]
    origins = [f"{scheme}://{name}" for name in allowed for scheme in ("http", "https")]
    return server.streamable_http_app(
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
    given = web.open or web.token_env or web.token_file or web.clients
    if web.host in LOCAL_HOSTS and not given:
        token = secrets.token_urlsafe(32)
        web = web._replace(clients=(Client(ClientScope(""), sha256(token.encode()).hexdigest()),))

    family = socket.AF_INET6 if ":" in web.host else socket.AF_INET
    # With a named protocol, asyncio sends small responses at once instead of after 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # Checked before binding, so that the port is never open without a token.
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
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        )
        listener.listen(128)
        (web.started or _print_address)(f"http://{shown}:{port}{PATH}", token)
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()


def _print_address(url: str, token: str) -> None:
    lines = [url, *([f"Authorization: Bearer {token}"] if token else [])]
    print(*lines, sep="\n", file=sys.stderr, flush=True)  # noqa: T201 - the caller chose no other way
