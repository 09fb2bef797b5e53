"""Security middleware: checks host, session and origin of every request, and sets response headers.

The checks run in this order, before any body is read:

    host        a known name, or 421: protects against DNS rebinding
    home        if a name is ours alone, sessions count under it alone: cookies ignore ports
    sender      other sites may link here; they may not load, frame or send anything
    session     a cookie, or the login page; login, language and static files need none
    forgery     a change names our own pages as its `Origin`; the cookie is for our own site alone
    language    the user's choice, else the browser's
    body        size and time are limited while it arrives
    headers     only our own scripts, styles, frames and images; no caching

Headers added by a proxy (`X-Forwarded-*`) are not used.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

import anyio
from starlette.datastructures import URL, Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from satchel.i18n import LANGUAGES, language, language_of, say, set_language
from satchel.ui.auth import COOKIE_LIFETIME_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from satchel.ui.auth import UiAccess, UiSession
    from satchel.ui.state import AppState

LOGIN_PATH = "/enter"
LOGOUT_PATH = "/leave"
LANGUAGE_PATH = "/language"
OPEN_PATHS = frozenset((LOGIN_PATH, LANGUAGE_PATH))
SCRIPT_PATHS = frozenset(("/live", "/session", "/badges"))
"""Requested only by the page's script, which gets a status instead of the login page."""
STATIC_PREFIX = "/static/"
"""Needs no session, like `OPEN_PATHS`."""
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
LANGUAGE_COOKIE = "satchel-language"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "object-src 'none'"
)
MAX_FORM_BYTES = 1 << 20
MAX_EDIT_BYTES = 4 << 20
MAX_UPLOAD_BYTES = 256 << 20
MAX_UPLOAD_BODY_BYTES = MAX_UPLOAD_BYTES + (1 << 20)
"""The uploaded files with the boundaries of the form."""
UPLOAD_PATHS = frozenset(("/skills/import/zip", "/skills/import/folder"))
BODY_STALL_S = 20.0
"""Maximum time between two parts of a body."""
MAX_FORM_S = 60.0
"""Maximum time for the whole body of a form."""
_RESPONSE_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_HSTS = "max-age=31536000"
_HOST_HEADER = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")
_OWN_SITES = ("same-origin", "none")
"""Values of `Sec-Fetch-Site` for our own pages and for typed addresses."""


class SecurityMiddleware:
    """An ASGI application around the pages."""

    def __init__(
        self,
        app: ASGIApp,
        state: AppState,
        hosts: Iterable[str],
        cookie: str,
        *,
        homes: Sequence[str] = (),
        https: bool = False,
    ) -> None:
        """Wrap `app`.

        Args:
            app: The pages.
            state: The shared state.
            hosts: The names of this server, without ports, in lower case.
            cookie: The name of the session cookie; other servers of this machine have others.
            homes: The only names under which sessions count; empty for all names.
            https: Whether a proxy terminates TLS.
        """
        self._app = app
        self.state = state
        self._access: UiAccess = state.access
        self._hosts = frozenset(hosts)
        self._cookie = cookie
        self._homes = tuple(home.lower() for home in homes)
        self._https = https

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if self._https:
            scope["scheme"] = "https"
        cookies = cookie_parser("; ".join(headers.getlist("cookie")))
        set_language("")
        set_language(_choose_language(headers, cookies) or language())  # resolved once per request
        secret = cookies.get(self._cookie, "") if self._is_home_host(headers) else ""
        session = self._access.session(secret)
        scope.setdefault("state", {})["session"] = session
        send = self._add_headers(scope, send)
        refusal = self._refuse(scope, headers, session)
        if refusal is not None:
            if isinstance(refusal, PlainTextResponse) and "hx-request" in headers:
                # Shown in the message area: it must not replace a part of the page.
                message = escape(bytes(refusal.body).decode())
                html = f'<p class="note bad" role="alert">{message}</p>'
                target = {"HX-Retarget": "#notes", "HX-Reswap": "innerHTML"}
                refusal = HTMLResponse(html, refusal.status_code, target)
            if session is None and scope["method"] not in SAFE_METHODS:
                # A connection that ends while a form is being sent would lose the response.
                with suppress(HTTPException):
                    body = LimitedBody(receive, min(limit_of(scope["path"]), MAX_EDIT_BYTES))
                    while (await body()).get("more_body"):
                        pass
            await refusal(scope, receive, send)
            return
        if scope["method"] not in SAFE_METHODS:
            receive = LimitedBody(receive, limit_of(scope["path"]))
        await self._app(scope, receive, send)

    def _refuse(self, scope: Scope, headers: Headers, session: UiSession | None) -> ASGIApp | None:
        path, method = str(scope["path"]), str(scope["method"])
        refusal = self._refuse_sender(path, method, headers)
        if refusal is not None:
            return refusal
        if not self._is_home_host(headers):
            return self._redirect_home(scope)
        if path in OPEN_PATHS or path.startswith(STATIC_PREFIX):
            return None
        return self._refuse_without_session(scope, headers) if session is None else None

    def _refuse_sender(self, path: str, method: str, headers: Headers) -> Response | None:
        """Return the refusal of a request, for all that does not depend on the session."""
        if not self._is_known_host(headers.getlist("host")):
            message = say("Unknown host name")
            return _refusal(421, message, say("Start the server with `--name`"))
        if not path.startswith("/") or _CONTROL_CHARACTERS.search(path):
            return _refusal(400, say("Page not found"))
        if _is_cross_site(method, headers) or (
            method not in SAFE_METHODS and not self._is_same_origin(headers)
        ):
            message = say("The request does not come from this site")
            return _refusal(403, message, say("Reload the page"))
        if method not in SAFE_METHODS and _is_too_large(headers, limit_of(path)):
            return _refusal(413, say("The upload is too large"))
        return None

    def _is_known_host(self, hosts: list[str]) -> bool:
        """Whether the request has exactly one `Host`, and it is known."""
        return len(hosts) == 1 and _host_name(hosts[0]) in self._hosts

    def _is_home_host(self, headers: Headers) -> bool:
        """Whether sessions count under the `Host` of the request."""
        return not self._homes or _host_name(headers.get("host", "")) in self._homes

    def _redirect_home(self, scope: Scope) -> Response:
        """Redirect to the name that is ours alone."""
        home = self._homes[0]
        if scope["method"] in SAFE_METHODS:
            return RedirectResponse(URL(scope=scope).replace(hostname=home), 303)
        message = say("Unknown host name")
        return _refusal(421, message, say("Use the name `{name}`", name=home))

    def _refuse_without_session(self, scope: Scope, headers: Headers) -> ASGIApp:
        """Return the response to a request without a session."""
        path, is_safe = str(scope["path"]), scope["method"] in SAFE_METHODS
        if path in SCRIPT_PATHS:
            return _refusal(401, say("You are signed out"))
        if not is_safe and path != LOGOUT_PATH:
            message = say("You are signed out. Nothing was changed")
            return _refusal(401, message, say("Sign in with another tab, then try again here"))
        if headers.get("hx-request"):
            return Response(status_code=401, headers={"HX-Redirect": LOGIN_PATH})
        return RedirectResponse(LOGIN_PATH, 303)

    def _is_same_origin(self, headers: Headers) -> bool:
        """Whether a change comes from our own pages. Browsers send `Origin` with every form."""
        origins = headers.getlist("origin")
        if not origins:
            return headers.get("sec-fetch-site") == "same-origin"
        # A proxy may terminate TLS without `https` being set, so both schemes are accepted.
        schemes = ("https",) if self._https else ("http", "https")
        host = headers.get("host", "").lower()
        return len(origins) == 1 and origins[0].lower() in [
            f"{scheme}://{host}" for scheme in schemes
        ]

    def _add_headers(self, scope: Scope, send: Send) -> Callable[[Message], Any]:
        is_cacheable = (
            str(scope["path"]).startswith(STATIC_PREFIX)
            and bytes(scope["query_string"])[:2] == b"v="
        )

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _RESPONSE_HEADERS.items():
                    headers[name] = value
                if self._https:
                    headers["strict-transport-security"] = _HSTS
                # The URL of a static file has its digest, so it may be cached; a page never is.
                may_cache = is_cacheable and message["status"] in {200, 206, 304}
                headers["cache-control"] = "public, max-age=31536000" if may_cache else "no-store"
                if not may_cache:
                    headers["vary"] = "Cookie, Accept-Language, HX-Request"
            await send(message)

        return send_with_headers


def set_cookie(
    response: Response, name: str, value: str, *, secure: bool, seconds: float = COOKIE_LIFETIME_S
) -> None:
    """Set a cookie: not for scripts, and not for other sites."""
    response.set_cookie(
        name, value, max_age=int(seconds), path="/", httponly=True, samesite="strict", secure=secure
    )


def _host_name(host: str) -> str:
    """Return the name in a `Host` header, without its port; empty when it is invalid."""
    match = _HOST_HEADER.fullmatch(host)
    return match[1].lower() if match is not None else ""


def _choose_language(headers: Headers, cookies: dict[str, str]) -> str:
    """Return the user's choice, else the browser's; empty for the default."""
    language = cookies.get(LANGUAGE_COOKIE, "")
    if language in LANGUAGES:
        return language
    for preference in headers.get("accept-language", "").split(",")[:16]:
        name = preference.split(";")[0].strip().lower()
        if name[:2] in LANGUAGES:
            return language_of(name)
    return ""


def _is_cross_site(method: str, headers: Headers) -> bool:
    """Whether a page of another site or port does more than link here."""
    if headers.get("sec-fetch-site", "none") in _OWN_SITES:
        return False
    is_navigation = headers.get("sec-fetch-mode") == "navigate"
    is_document = headers.get("sec-fetch-dest", "document") == "document"
    return method != "GET" or not is_navigation or not is_document


def _is_too_large(headers: Headers, limit: int) -> bool:
    length = headers.get("content-length", "")
    return length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > limit)


def _refusal(status: int, message: str, hint: str = "") -> Response:
    """Return a plain text refusal that repeats nothing of the request."""
    return PlainTextResponse(f"{message}. {hint}" if hint else message, status)


# --- request bodies -----------------------------------------------------------------------


def limit_of(path: str) -> int:
    """Return the largest body that a path accepts."""
    if path in UPLOAD_PATHS:
        return MAX_UPLOAD_BODY_BYTES
    return MAX_EDIT_BYTES if path.startswith("/skill/edit") else MAX_FORM_BYTES


class LimitedBody:
    """A `receive` that limits size and time of a body."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._remaining_bytes = limit
        self._remaining_s: float = MAX_FORM_S if limit < MAX_UPLOAD_BODY_BYTES else float("inf")
        self._has_ended = False

    async def __call__(self) -> Message:
        """Return the next message.

        Raises:
            HTTPException: 413, it is too large; 408, it is too slow.
        """
        if self._has_ended:  # from here on this waits for the end of the connection
            return await self._receive()
        started_at = time.monotonic()
        message: Message | None = None
        with anyio.move_on_after(min(BODY_STALL_S, self._remaining_s)):
            message = await self._receive()
        if message is None:
            raise HTTPException(408, headers={"connection": "close"})
        self._remaining_s -= time.monotonic() - started_at
        if message["type"] != "http.request":
            self._has_ended = True
            return message
        self._remaining_bytes -= len(message.get("body", b""))
        self._has_ended = not message.get("more_body", False)
        if self._remaining_bytes < 0:
            raise HTTPException(413)
        return message
