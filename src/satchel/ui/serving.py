"""The web server: where it listens, which address people open, and how it ends.

It listens on this machine alone. On another address, behind a proxy and under a name that other
machines know it wants a password, or it does not start. It speaks no TLS: a proxy in front does,
and `https` says that there is one.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._language import say
from satchel.errors import Refused
from satchel.ui.app import LOCAL, is_home, make_app

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.facade import Satchel

HERE = ("127.0.0.1", "::1", "localhost")
PORT = 8790
SHUTDOWN = 1
"""Seconds that whoever is served has, once the server is to end."""
MOST_AT_ONCE = 1_000
"""Connections at a time; whoever comes then is told to come later."""


class Web(NamedTuple):
    """Where to listen and who may come in."""

    host: str = "127.0.0.1"
    port: int = PORT
    password: str = ""
    names: tuple[str, ...] = ()
    """Further names under which people reach the server, such as that of a proxy, or one of this
    machine that no other server has (`NAME.localhost`): sessions count under these alone then."""
    told: Callable[[str], None] | None = None
    """Told each address to open: the first once somebody can connect, a new one after each use."""
    https: bool = False
    """A proxy in front speaks TLS: cookies are for https alone."""

    @property
    def open_to_others(self) -> bool:
        """Whether other machines can reach it."""
        return self.host not in HERE

    @property
    def homes(self) -> tuple[str, ...]:
        """The names under which alone sessions count; the one to open comes first."""
        found = tuple(filter(is_home, self.names))
        if not found or self.https or self.open_to_others:
            return ()
        return (*found, *(one for one in self.names if one not in found))


def serve(satchel: Satchel, web: Web) -> None:
    """Serve until somebody ends the process.

    Raises:
        Refused: other machines would reach it without a password, or the port is taken.
        InvalidInput: the password is too short.
        MissingExtra: the extra `ui` is not installed.
    """
    from satchel._optional import require

    uvicorn = require("uvicorn", "ui")
    from satchel.ui.access import Access

    if not web.password:
        _keep_to_ourselves(web)
    access = Access(password=web.password)
    listener = _listen(web)
    try:
        port = listener.getsockname()[1]
        base = _base(web, port)
        app = make_app(
            satchel,
            access,
            hosts=[*_own(web.host), *web.names],
            homes=web.homes,
            # What begins with `__Host-` no page of another name or without TLS can set.
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
            limit_concurrency=MOST_AT_ONCE,
            timeout_graceful_shutdown=SHUTDOWN,
        )
        listener.listen(128)

        def announce(token: str) -> None:
            if web.told is not None:
                web.told(f"{base}/enter?token={token}" if token else base)

        access.announce = announce
        announce(access.new_link() if access.by_link else "")

        class Server(uvicorn.Server):
            """One that says goodbye to open pages first: it would wait for them to go."""

            async def shutdown(self, sockets: Any = None) -> None:
                app.house.live.end()
                await super().shutdown(sockets)  # pyright: ignore[reportUnknownMemberType]

        Server(config).run(sockets=[listener])
    finally:
        listener.close()


def _keep_to_ourselves(web: Web) -> None:
    """Who comes by a link alone sits at this machine, as far as we can tell.

    Raises:
        Refused: other machines can reach the server.
    """
    hint = say("Give `--password-file`")
    known = [one for one in web.names if one.lower() not in LOCAL and not is_home(one)]
    if web.open_to_others or known:
        raise Refused(
            say("`{host}` can be reached from other machines, and nobody needs a password",
                host=web.host if web.open_to_others else known[0]),
            hint,
        )  # fmt: skip
    if web.https:
        words = say("Other machines come through a proxy, and nobody needs a password")
        raise Refused(words, hint)


def _base(web: Web, port: int) -> str:
    """The address that people open."""
    if web.https and web.names:
        return f"https://{web.names[0]}"
    shown = f"[{web.host}]" if ":" in web.host else web.host
    if web.host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        shown = web.names[0] if web.names else socket.gethostname()
    if web.homes:
        shown = web.homes[0]
    return f"http://{shown}:{port}"


def _listen(web: Web) -> socket.socket:
    family = socket.AF_INET6 if ":" in web.host else socket.AF_INET
    # With its protocol named, asyncio sends small answers at once instead of after 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((web.host, web.port))
    except OSError as exc:
        listener.close()
        if exc.errno == errno.EADDRINUSE:
            raise Refused(
                say("Port {port} is taken; perhaps another `satchel ui` runs", port=web.port),
                say("Use its page, or give `--port 0` for a free one"),
            ) from exc
        raise Refused(
            say("`{address}` cannot be used: {reason}",
                address=f"{web.host}:{web.port}", reason=exc.strerror or exc),
            say("Choose another `--port`"),
        ) from exc  # fmt: skip
    return listener


def _own(host: str) -> list[str]:
    """The name under which a server on this address is reached, where the address says it."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not bound
        return [socket.gethostname()]
    return [f"[{host}]" if ":" in host else host]
