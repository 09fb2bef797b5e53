"""The web server of `satchel ui`: builds the ASGI application, binds the port and serves."""

from __future__ import annotations

import errno
import socket
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._optional import require
from satchel.errors import Refused
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from satchel.satchel import Satchel
    from satchel.ui.auth import UiAccess
    from satchel.ui.middleware import SecurityMiddleware

PAGES = (
    "login", "events", "skills", "imports", "changes", "editor", "catalogue", "goals",
    "health", "settings",
)  # fmt: skip
LOCAL_NAMES = ("127.0.0.1", "[::1]", "localhost")


def is_localhost_name(name: str) -> bool:
    """Whether a name is under `.localhost`; cookies for it are sent nowhere else."""
    return name.lower().endswith(".localhost")


def make_app(
    satchel: Satchel,
    access: UiAccess,
    *,
    hosts: Sequence[str] = (),
    homes: Sequence[str] = (),
    cookie: str = "satchel",
    https: bool = False,
) -> SecurityMiddleware:
    """Return the pages as an ASGI application.

    Args:
        satchel: The skills and goals to show.
        access: Authentication.
        hosts: Accepted names, besides those of this machine.
        homes: The only names under which sessions count; empty for all names.
        cookie: The name of the session cookie.
        https: Whether a proxy terminates TLS.

    Raises:
        MissingExtra: the extra `ui` is not installed.
    """
    for package in ("fastapi", "jinja2", "python_multipart", "markdown_it", "pygments", "nh3"):
        require(package, "ui")
    from fastapi import Depends, FastAPI
    from starlette.staticfiles import StaticFiles

    from satchel.ui.errors import catch_all
    from satchel.ui.middleware import SecurityMiddleware
    from satchel.ui.pages.events import begun
    from satchel.ui.state import AppState
    from satchel.ui.templating import STATIC_FOLDER

    hosts_lower = [host.lower() for host in hosts]
    access.is_reachable_remotely = https or any(
        host not in LOCAL_NAMES and not is_localhost_name(host) for host in hosts_lower
    )
    state = AppState(satchel, access)

    @asynccontextmanager
    async def life(_: Any) -> AsyncGenerator[None]:
        state.live.start()
        state.loading.reading.start()
        try:
            yield
        finally:
            await state.close()

    app = FastAPI(
        docs_url=None, redoc_url=None, openapi_url=None, lifespan=life, redirect_slashes=False
    )
    app.state.shared = state
    app.state.cookie = cookie
    app.mount("/static", StaticFiles(directory=STATIC_FOLDER), name="static")
    first = [Depends(begun)]
    for name in PAGES:
        app.include_router(import_module(f"satchel.ui.pages.{name}").router, dependencies=first)
    catch_all(app)
    return SecurityMiddleware(
        app, state, [*LOCAL_NAMES, *hosts_lower], cookie, homes=homes, https=https
    )


# --- serving ------------------------------------------------------------------------------

LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
DEFAULT_PORT = 8790
SHUTDOWN_TIMEOUT_S = 1
MAX_CONNECTIONS = 1_000
"""Further connections get 503."""


class UiServerSettings(NamedTuple):
    """Address, names and authentication of the server."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    password: str = ""
    names: tuple[str, ...] = ()
    """Further names of the server, such as that of a proxy, or one of this machine that no other
    server has (`NAME.localhost`): then sessions count under these alone."""
    on_start: Callable[[str], None] | None = None
    """Called with each URL to open: the first when the server listens, a new one after each use."""
    https: bool = False
    """A proxy terminates TLS: cookies are for https alone."""

    @property
    def open_to_others(self) -> bool:
        """Whether other machines can reach it."""
        return self.host not in LOOPBACK_HOSTS

    @property
    def homes(self) -> tuple[str, ...]:
        """The only names under which sessions count; the one to open comes first."""
        local_names = tuple(filter(is_localhost_name, self.names))
        if not local_names or self.https or self.open_to_others:
            return ()
        return (*local_names, *(name for name in self.names if name not in local_names))


def serve(satchel: Satchel, web: UiServerSettings) -> None:
    """Serve until the process is stopped.

    Raises:
        Refused: other machines would reach it without a password, or the port is taken.
        InvalidInput: the password is too short.
        MissingExtra: the extra `ui` is not installed.
    """
    uvicorn = require("uvicorn", "ui")
    from satchel.ui.auth import UiAccess

    if not web.password:
        _require_password_if_public(web)
    access = UiAccess(password=web.password)
    listener = _listen(web)
    try:
        port = listener.getsockname()[1]
        base = _base_url(web, port)
        app = make_app(
            satchel,
            access,
            hosts=[*_host_names(web.host), *web.names],
            homes=web.homes,
            # The prefix `__Host-` prevents other hosts, and pages without TLS, from setting it.
            cookie="__Host-satchel" if web.https else f"satchel-{port}",
            https=web.https,
        )
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            log_level="warning",
            lifespan="on",
            ws="none",
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        )
        listener.listen(128)

        def announce(token: str) -> None:
            if web.on_start is not None:
                web.on_start(f"{base}/enter?token={token}" if token else base)

        access.announce = announce
        announce(access.new_link() if access.by_link else "")

        class UiServer(uvicorn.Server):
            """Ends open event streams first: a shutdown would wait for them."""

            async def shutdown(self, sockets: Any = None) -> None:
                app.state.live.end()
                await super().shutdown(sockets)  # pyright: ignore[reportUnknownMemberType]

        UiServer(config).run(sockets=[listener])
    finally:
        listener.close()


def _require_password_if_public(web: UiServerSettings) -> None:
    """Links alone are only allowed for users on this machine.

    Raises:
        Refused: other machines can reach the server.
    """
    hint = say("Set `--password-file`")
    public_names = [
        name
        for name in web.names
        if name.lower() not in LOCAL_NAMES and not is_localhost_name(name)
    ]
    if web.open_to_others or public_names:
        raise Refused(
            say(
                "`{host}` is reachable from other machines without a password",
                host=web.host if web.open_to_others else public_names[0],
            ),
            hint,
        )
    if web.https:
        raise Refused(say("A password is required behind a proxy"), hint)


def _base_url(web: UiServerSettings, port: int) -> str:
    """The URL to open."""
    if web.https and web.names:
        return f"https://{web.names[0]}"
    host = f"[{web.host}]" if ":" in web.host else web.host
    if web.host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        host = web.names[0] if web.names else socket.gethostname()
    if web.homes:
        host = web.homes[0]
    return f"http://{host}:{port}"


def _listen(web: UiServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in web.host else socket.AF_INET
    # With IPPROTO_TCP, asyncio sets TCP_NODELAY: small responses are not delayed by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((web.host, web.port))
    except OSError as exc:
        listener.close()
        if exc.errno == errno.EADDRINUSE:
            raise Refused(
                say("Port {port} is in use", port=web.port), say("Choose another `--port`")
            ) from exc
        raise Refused(
            say(
                "`{address}` cannot be used: {reason}",
                address=f"{web.host}:{web.port}",
                reason=exc.strerror or exc,
            ),
            say("Choose another `--port`"),
        ) from exc
    return listener


def _host_names(host: str) -> list[str]:
    """The name for a listening address."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not bound
        return [socket.gethostname()]
    return [f"[{host}]" if ":" in host else host]
