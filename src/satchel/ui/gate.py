"""What must every request pass? Host, session, forged requests; and what goes out with each answer.

In this order, and before any body is read:

    host        a name that we answer to, or 421: a page cannot reach us through a name of its own
    home        where a name is ours alone, sessions count under it alone: cookies know no ports
    sender      another site may lead people here by a link; it may load, frame and send nothing
    session     a cookie, or the door; the door, its language, the style and the script are open
    forgery     what changes something carries the session's mark and comes from our own pages
    language    the reader's choice, else the browser's
    body        counted while it comes: not too large, not too slow
    headers     no script, style, frame or picture but ours; nothing is kept by caches

Nothing that a proxy adds (`X-Forwarded-*`) is used.
"""

from __future__ import annotations

import re
from hmac import compare_digest
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import URL, Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from satchel._language import LANGUAGES, language, say, speak
from satchel.ui.access import IDLE
from satchel.ui.bodies import EDITED, ORDINARY, Body, limit_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from satchel.ui.access import Access, Session
    from satchel.ui.house import House

DOOR = "/enter"
OUT = "/leave"
TONGUE = "/language"
DOORS = frozenset((DOOR, TONGUE))
BY_SCRIPT = frozenset(("/live", "/session"))
"""Addresses that only the page's own script opens: it gets a status instead of the door."""
STATIC = "/static/"
"""These need no session: the ways in, what they look like, and in which language."""
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
CSRF_HEADER = "x-satchel-csrf"
CSRF_FIELD = "csrf"
"""In the address of a form, so that nothing of its body is read before it counts."""
LANGUAGE = "satchel-language"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "object-src 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_HSTS = "max-age=31536000"
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OURS = ("same-origin", "none")
"""What a browser says of a page of ours, and of an address that somebody typed."""


class Gate:
    """An ASGI application around the pages."""

    def __init__(
        self,
        app: ASGIApp,
        house: House,
        hosts: Iterable[str],
        cookie: str,
        *,
        too_late: Callable[[Request], Awaitable[Response]],
        homes: Sequence[str] = (),
        https: bool = False,
    ) -> None:
        """Guard `app`.

        Args:
            app: The pages.
            house: What they stand on; it knows who may come in.
            hosts: The names that we answer to, without ports, in lower case.
            cookie: The name of the session's cookie; other servers of this machine have others.
            too_late: Answers people who sent something after their session had ended, or from a
                page of another one.
            homes: The only names under which sessions count; all names where there are none.
            https: Whether something in front of us speaks TLS with the browsers.
        """
        self._app = app
        self.house = house
        self._access: Access = house.access
        self._hosts = frozenset(hosts)
        self._cookie = cookie
        self._too_late = too_late
        self._homes = tuple(one.lower() for one in homes)
        self._https = https

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it."""
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
        speak("")
        speak(_language(headers, cookies) or language())  # settled, or every word asks again
        secret = cookies.get(self._cookie, "") if self._at_home(headers) else ""
        session = self._access.session(secret)
        scope.setdefault("state", {})["session"] = session
        if session is None or scope["path"].startswith(STATIC) or not self._access.renews(session):
            secret = ""
        send = self._with_headers(scope, send, secret)
        refusal = self._refuse(scope, headers, session)
        if refusal is not None:
            if isinstance(refusal, PlainTextResponse) and "hx-request" in headers:
                # Shown where messages are shown: a part of the page that it replaced would be gone.
                refusal.headers.update({"HX-Retarget": "#notes", "HX-Reswap": "innerHTML"})
            await refusal(scope, receive, send)
            return
        if scope["method"] not in SAFE:
            receive = Body(receive, limit_of(scope["path"]))
        await self._app(scope, receive, send)

    def _refuse(self, scope: Scope, headers: Headers, session: Session | None) -> ASGIApp | None:
        path, method = str(scope["path"]), str(scope["method"])
        refusal = self._refuse_sender(path, method, headers)
        if refusal is not None:
            return refusal
        if not self._at_home(headers):
            return self._lead_home(scope)
        if path in DOORS or path.startswith(STATIC):
            return None
        if session is None:
            return self._door(scope, headers)
        if method not in SAFE and not _carries(session, headers, scope):
            return self._answer_late
        return None

    def _refuse_sender(self, path: str, method: str, headers: Headers) -> Response | None:
        """What nobody may send, whoever is signed in."""
        if not self._answers_to(headers.getlist("host")):
            words = say("This server does not answer to that name")
            return _no(421, words, say("Give `--name` at the start"))
        if not path.startswith("/") or _CONTROL.search(path):
            return _no(400, say("This is no address of a page"))
        if _foreign(method, headers) or (method not in SAFE and not self._same_origin(headers)):
            words = say("This request did not come from a page of this session")
            return _no(403, words, say("Load the page again"))
        if method not in SAFE and _too_large(headers, limit_of(path)):
            words = say("This is more than {most} MB", most=limit_of(path) // ORDINARY)
            return _no(413, words, say("Send less"))
        return None

    def _answers_to(self, hosts: list[str]) -> bool:
        """Whether a request names us, once: two names are a quarrel between two servers."""
        return len(hosts) == 1 and _name(hosts[0]) in self._hosts

    def _at_home(self, headers: Headers) -> bool:
        """Whether sessions count under the name that a request gives us."""
        return not self._homes or _name(headers.get("host", "")) in self._homes

    def _lead_home(self, scope: Scope) -> Response:
        """A reader is led to the name that is ours alone; others are told it."""
        home = self._homes[0]
        if scope["method"] in SAFE:
            return RedirectResponse(URL(scope=scope).replace(hostname=home), 303)
        words = say("This server does not answer to that name")
        return _no(421, words, say("Use the name `{name}`", name=home))

    def _door(self, scope: Scope, headers: Headers) -> ASGIApp:
        """Where somebody without a session goes."""
        path, safe = str(scope["path"]), scope["method"] in SAFE
        if path in BY_SCRIPT:
            return _no(401, say("Nobody is signed in"))
        if not safe and path != OUT:
            return self._answer_late
        if headers.get("hx-request"):
            return Response(status_code=401, headers={"HX-Redirect": DOOR})
        return RedirectResponse(DOOR, 303)

    async def _answer_late(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Something came from a page whose session ended: our words, and what was typed."""
        body = Body(receive, min(limit_of(scope["path"]), EDITED))
        answer = await self._too_late(Request({**scope, "app": self._app}, body))
        await answer(scope, receive, send)

    def _same_origin(self, headers: Headers) -> bool:
        """Whether a request comes from a page of ours, as the browser tells.

        Programs that are no browsers send no origin; they have no cookie that they did not ask
        for, so nobody can misuse them. A sandboxed page sends `null`, which is nobody's name.
        """
        origins = headers.getlist("origin")
        if not origins:
            return True
        try:
            parts = urlsplit(origins[0])
        except ValueError:
            return False
        # Something in front of us may speak https without our being told: the name counts.
        schemes = ("https",) if self._https else ("http", "https")
        ours = parts.netloc.lower() == headers.get("host", "").lower()
        return len(origins) == 1 and ours and parts.scheme in schemes

    def _with_headers(self, scope: Scope, send: Send, renewed: str) -> Callable[[Message], Any]:
        kept = str(scope["path"]).startswith(STATIC) and bytes(scope["query_string"])[:2] == b"v="

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if self._https:
                    headers["strict-transport-security"] = _HSTS
                # The address of a static file has its digest, so it may be kept; a page never is.
                keep = kept and message["status"] in {200, 206, 304}
                headers["cache-control"] = "public, max-age=31536000" if keep else "no-store"
                if not keep:
                    headers["vary"] = "Cookie, Accept-Language, HX-Request"
                given = [one.partition("=")[0] for one in headers.getlist("set-cookie")]
                if renewed and self._cookie not in given:  # else it was replaced, or is to go
                    again = Response()
                    give_cookie(again, self._cookie, renewed, secure=self._https)
                    headers.append("set-cookie", again.headers["set-cookie"])
            await send(message)

        return sent


def give_cookie(answer: Response, name: str, secret: str, *, secure: bool) -> None:
    """Give a browser the cookie of its session: for no script, and for no other site."""
    answer.set_cookie(
        name, secret, max_age=int(IDLE), path="/", httponly=True, samesite="strict", secure=secure
    )


def _name(host: str) -> str:
    """The name in a `Host` header, without its port; "" when it is none."""
    found = _HOST.fullmatch(host)
    return found[1].lower() if found is not None else ""


def _language(headers: Headers, cookies: dict[str, str]) -> str:
    """The reader's choice, else the first that the browser wants and we have; "" is ours."""
    chosen = cookies.get(LANGUAGE, "")
    if chosen in LANGUAGES:
        return chosen
    for part in headers.get("accept-language", "").split(",")[:16]:
        name = part.split(";")[0].strip().lower()[:2]
        if name in LANGUAGES:
            return name
    return ""


def _foreign(method: str, headers: Headers) -> bool:
    """Whether a page of another site, or of another port, does more than lead people here."""
    if headers.get("sec-fetch-site", "none") in _OURS:
        return False
    led = headers.get("sec-fetch-mode") == "navigate"
    return method != "GET" or not led or headers.get("sec-fetch-dest", "document") != "document"


def _carries(session: Session, headers: Headers, scope: Scope) -> bool:
    """Whether a request carries its session's mark."""
    given = headers.get(CSRF_HEADER, "")
    if not given:
        query = parse_qs(bytes(scope["query_string"]).decode("latin-1"))
        given = query.get(CSRF_FIELD, [""])[0]
    return compare_digest(given.encode("utf-8", "replace"), session.csrf.encode())


def _too_large(headers: Headers, limit: int) -> bool:
    said = headers.get("content-length", "")
    return said.isascii() and said.isdigit() and (len(said) > 18 or int(said) > limit)


def _no(status: int, words: str, hint: str = "") -> Response:
    """A refusal in plain text that repeats nothing of the request."""
    return PlainTextResponse(f"{words}. {hint}" if hint else words, status)
