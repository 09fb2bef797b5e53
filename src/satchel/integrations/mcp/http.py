"""The web server of the MCP server, with bearer tokens or those of an OAuth server.

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

    [clients.build]
    subject = "ci@example.com"          # of a token that the OAuth server issued

The issuer's keys are fetched by one request at a time and at most every half minute, even after
errors: a token can name any key. A client whose key is known never waits.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import time
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

ISSUER_TIMEOUT_S = 5.0
ISSUER_TOTAL_TIMEOUT_S = 12.0
KEY_REQUEST_INTERVAL_S = 30.0
"""Between two requests for unknown keys."""
KEY_REFRESH_S = 300.0
"""Age at which known keys are fetched again."""
MAX_KEY_AGE_S = 3_600.0
"""Age up to which known keys are used while the issuer does not answer."""
_MAX_METADATA_BYTES = 1 << 20


class OAuth(NamedTuple):
    """The OAuth server whose tokens are accepted."""

    issuer: str
    audience: str
    keys: str = ""
    """URL of its public keys; discovered through the issuer when empty."""
    scopes: tuple[str, ...] = ()


class IssuerKeys:
    """The public keys of one issuer, by name."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._keys_url = oauth.keys
        self._known: dict[str, Any] = {}
        self._fetched = 0.0
        self._requested_at = 0.0
        self._lock: Any = None

    async def get(self, kid: str) -> Any:
        """The key of that name; None when the issuer has none, or is unavailable."""
        import anyio

        if self._lock is None:
            self._lock = anyio.Lock()
        key = self._usable(kid)
        if key is not None and (
            self._age() < KEY_REFRESH_S or self._lock.locked() or not self._may_request()
        ):
            return key
        if key is None and not self._lock.locked() and not self._may_request():
            return None
        async with self._lock:
            if self._may_request():  # otherwise it was fetched while waiting
                await self._request()
        return self._usable(kid)

    def _age(self) -> float:
        return time.monotonic() - self._fetched if self._fetched else MAX_KEY_AGE_S

    def _usable(self, kid: str) -> Any:
        return self._known.get(kid) if self._age() < MAX_KEY_AGE_S else None

    def _may_request(self) -> bool:
        return (
            not self._requested_at
            or time.monotonic() - self._requested_at >= KEY_REQUEST_INTERVAL_S
        )

    async def _request(self) -> None:
        import anyio
        import anyio.to_thread

        self._requested_at = time.monotonic()
        found: dict[str, Any] | None = None
        # Not in the threads that serve requests.
        limiter = anyio.CapacityLimiter(1)
        with anyio.move_on_after(ISSUER_TOTAL_TIMEOUT_S):
            found = await anyio.to_thread.run_sync(
                self._fetch, abandon_on_cancel=True, limiter=limiter
            )
        self._requested_at = time.monotonic()
        if found is not None:
            self._known, self._fetched = found, self._requested_at

    def _fetch(self) -> dict[str, Any] | None:
        """All keys, or None when they are unavailable: no response of an issuer raises."""
        import jwt

        try:
            url = self._keys_url or self._find()
            client = jwt.PyJWKClient(url, cache_jwk_set=False, timeout=ISSUER_TIMEOUT_S)
            every = client.get_jwk_set().keys
            keys = [key for key in every if key.public_key_use in {"sig", None}]
        except Exception:  # noqa: BLE001 - see above
            return None
        if not keys:
            return None
        self._keys_url = url
        return {str(key.key_id or f"\0{at}"): key for at, key in enumerate(keys)}

    def _find(self) -> str:
        import json
        from urllib.parse import urlsplit
        from urllib.request import urlopen

        issuer = self._oauth.issuer.rstrip("/")
        parts = urlsplit(issuer)
        origin = f"{parts.scheme}://{parts.netloc}"
        tries = (
            f"{origin}/.well-known/oauth-authorization-server{parts.path}",
            f"{issuer}/.well-known/openid-configuration",
        )
        for url in tries:
            try:
                with urlopen(url, timeout=ISSUER_TIMEOUT_S) as answer:  # noqa: S310 - an address the user gave
                    found: Any = json.loads(answer.read(_MAX_METADATA_BYTES))
            except (OSError, ValueError):
                continue
            if not isinstance(found, dict):
                continue
            table = cast("dict[str, Any]", found)
            said, keys = table.get("issuer"), table.get("jwks_uri")
            if isinstance(said, str) and isinstance(keys, str) and said.rstrip("/") == issuer:
                return keys
        raise OSError(f"{issuer} does not say where its keys are")


MIN_TOKEN_CHARS = 16
"""A shorter token can be guessed."""
_MAX_FILE_BYTES = 1 << 20
_HEX = re.compile(r"[0-9a-f]{64}")
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
_KEYS = {
    "token-env",
    "token-file",
    "token-sha256",
    "subject",
    "include",
    "exclude",
    "tags",
    "tools",
}


class Client(NamedTuple):
    """A client of the server."""

    part: ClientScope
    digest: str = ""
    """The hexadecimal SHA-256 of the token; empty for clients of an OAuth server."""
    subject: str = ""
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
                say("The environment variable `{name}` is not set", name=variable),
                say("Set it to a token of at least {least} characters", least=MIN_TOKEN_CHARS),
            )
    else:
        try:
            token = read_plain(file, _MAX_FILE_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise NotFound(
                say("The file `{path}` cannot be read", path=file), say("Write a token into it")
            ) from exc
    if len(token) < MIN_TOKEN_CHARS:
        raise InvalidInput(
            say("The token has less than {least} characters", least=MIN_TOKEN_CHARS),
            say("Make one with `{command}`", command="openssl rand -hex 32"),
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

    try:
        table = tomllib.loads(read_plain(path, _MAX_FILE_BYTES).decode())
    except OSError as exc:
        raise NotFound(
            say("The file `{path}` cannot be read", path=path), say("Give a table of clients")
        ) from exc
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise SettingsError(
            say("`{path}` is not TOML: {reason}", path=path, reason=exc), ""
        ) from exc
    rows = cast("Mapping[str, Any]", table.get("clients"))
    if set(table) != {"clients"} or not isinstance(rows, dict) or not rows or "" in rows:
        raise SettingsError(
            say("`{path}` has no table of clients", path=path),
            say("Begin it with `{line}`", line="[clients.NAME]"),
        )
    folder = os.path.dirname(os.path.abspath(path))
    found = [_client(name, row, folder) for name, row in rows.items()]
    digests = [one.digest for one in found if one.digest]
    if len(set(digests)) != len(digests):
        raise SettingsError(
            say("Two clients in `{path}` have the same token", path=path),
            say("Give each a token of its own"),
        )
    return found


def _client(name: str, row: Any, folder: str) -> Client:
    if not isinstance(row, dict):
        raise _client_error(name, say("it is no table"))
    table = cast("Mapping[str, Any]", row)
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise _client_error(name, say("nobody knows `{key}`", key=unknown[0]))
    lists: dict[str, Any] = {key: table.get(key, []) for key in ("include", "exclude", "tags")}
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):  # pyright: ignore[reportUnknownVariableType]
            raise _client_error(name, say("`{key}` is no list of texts", key=key))
    if not isinstance(table.get("tools", True), bool):
        raise _client_error(name, say("`{key}` is neither true nor false", key="tools"))
    ways = [key for key in ("token-env", "token-file", "token-sha256", "subject") if key in table]
    if len(ways) != 1 or not isinstance(table[ways[0]], str):
        raise _client_error(
            name, say("it needs one of `token-env`, `token-file`, `token-sha256` and `subject`")
        )
    wanted = Filter(*(tuple(lists[key]) for key in ("include", "exclude", "tags")))
    part = ClientScope(name, wanted, bool(table.get("tools", True)))
    way, value = ways[0], str(table[ways[0]])
    if way == "subject":
        return Client(part, subject=value)
    if way == "token-sha256":
        if not _HEX.fullmatch(value):
            raise _client_error(name, say("`{key}` is no SHA-256 in hexadecimal digits", key=way))
        return Client(part, value)
    if way == "token-env":
        return Client(part, token_from(value))
    file = os.path.join(folder, os.path.expanduser(value))
    return Client(part, token_from(file=file), file=file)


def _client_error(name: str, reason: str) -> SettingsError:
    return SettingsError(
        say("The client `{name}` cannot be used: {reason}", name=name, reason=reason),
        say("Look at the guide `serve-over-mcp`"),
    )


class StaticTokens:
    """Static bearer tokens. A `TokenVerifier` of the SDK."""

    def __init__(self, clients: list[Client], scopes: tuple[str, ...] = ()) -> None:
        self._clients = [(one.digest.encode(), one.part.name) for one in clients if one.digest]
        self._scopes = scopes

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
        return AccessToken(token="-", client_id=found, scopes=list(self._scopes))  # noqa: S106 - it is not kept


class OAuthTokens:
    """Static tokens, and those of an OAuth server, checked by its public keys.

    A `TokenVerifier` of the SDK.
    """

    def __init__(self, oauth: OAuth, clients: list[Client], *, closed: bool = False) -> None:
        """Create a verifier.

        Args:
            oauth: The OAuth server.
            clients: Those with a subject have their own part.
            closed: Whether only these clients are accepted.
        """
        self._oauth = oauth
        self._static = StaticTokens(clients, oauth.scopes)
        self._names = {one.subject: one.part.name for one in clients if one.subject}
        self._closed = closed
        self._keys = IssuerKeys(oauth)

    async def verify_token(self, token: str) -> Any:
        """The token's client, or None when issuer, audience or expiry do not match."""
        import jwt
        from mcp.server.auth.provider import AccessToken

        if found := await self._static.verify_token(token):
            return found
        try:
            # A token that cannot be the issuer's does not cause a request for its keys.
            header = jwt.get_unverified_header(token)
            kid: object = header.get("kid")
            if header.get("alg") not in _ALGORITHMS or not isinstance(kid, str):
                return None
            rough: Any = jwt.decode(token, options={"verify_signature": False})
            if rough.get("iss") != self._oauth.issuer:
                return None
            key = await self._keys.get(kid)
            if key is None:
                return None
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=list(_ALGORITHMS),
                issuer=self._oauth.issuer,
                audience=self._oauth.audience,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
            return None
        subject = str(claims.get("sub", ""))
        name = self._names.get(subject)
        if self._closed and name is None:
            return None
        scopes = str(claims.get("scope", "")).split()
        return AccessToken(
            token="-",  # noqa: S106 - it is not kept
            client_id=name or str(claims.get("client_id") or claims.get("azp") or subject or "-"),
            scopes=scopes,
            expires_at=int(claims["exp"]),
            resource=self._oauth.audience,
            subject=subject or None,
            claims={"iss": claims["iss"]},
        )


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
    oauth: OAuth | None = None
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
    if web.host not in LOCAL_HOSTS and not clients and web.oauth is None:
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
        verifier = OAuthTokens(web.oauth, clients, closed=bool(web.clients))
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(web.oauth.issuer),
            resource_server_url=AnyHttpUrl(web.oauth.audience),
            required_scopes=list(web.oauth.scopes) or None,
            validate_token_resource=False,  # the audience is checked with the signature
        )
    elif clients:
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
    given = web.open or web.token_env or web.token_file or web.clients or web.oauth
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
