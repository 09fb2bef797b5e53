"""Sign-in by a link or a password, the choice of language, and sign-out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match

from satchel.i18n import LANGUAGES, say
from satchel.ui.middleware import (
    LANGUAGE_COOKIE,
    LANGUAGE_PATH,
    LOGIN_PATH,
    LOGOUT_PATH,
    OPEN_PATHS,
    give_cookie,
)
from satchel.ui.templating import app_state, page

if TYPE_CHECKING:
    from starlette.types import Scope

    from satchel.ui.auth import UiSession

router = APIRouter()
HOME_PATH = "/skills"
LOGGED_OUT_PATH = f"{LOGIN_PATH}?left=1"
"""Shows that the session was ended."""
_LANGUAGE_COOKIE_S = 365 * 24 * 3_600


@router.get("/")
def home() -> Response:
    """Redirect to the list of skills."""
    return RedirectResponse(HOME_PATH, 303)


@router.get("/enter")
def enter(
    request: Request,
    token: Annotated[str, Query(max_length=256)] = "",
    left: Annotated[str, Query(max_length=8)] = "",
) -> Response:
    """Sign in by a link; without one, show the login page."""
    access = app_state(request).access
    if token and access.by_link:
        opened = access.enter_by_link(token)
        if opened is not None:
            return _start_session(request, opened)
        words = say("This link was used or has expired. The terminal shows a new one")
        return _login_page(request, words, 403)
    if request.state.session is not None:
        return RedirectResponse(HOME_PATH, 303)
    out = bool(left) or request.app.state.cookie in request.cookies
    return _login_page(request, "", 401 if access.by_link else 200, out=out)


@router.post("/enter")
def enter_by_password(
    request: Request, password: Annotated[str, Form(max_length=1024)]
) -> Response:
    """Sign in by the password."""
    access = app_state(request).access
    opened = access.enter_by_password(password)
    if opened is not None:
        return _start_session(request, opened)
    wait = max(1, round(access.closed_for()))
    words = say("Wrong password, or too many tries. Try again in {count} s", count=wait)
    return _login_page(request, words, 403)


@router.post(LOGOUT_PATH)
def leave(request: Request) -> Response:
    """End this session."""
    app_state(request).access.end_session(request.state.session)
    answer = RedirectResponse(LOGGED_OUT_PATH, 303)
    answer.delete_cookie(
        request.app.state.cookie, path="/", httponly=True, samesite="strict",
        secure=_secure(request),
    )  # fmt: skip
    return answer


@router.post(LANGUAGE_PATH)
def choose_language(request: Request, name: Annotated[str, Form(max_length=8)]) -> Response:
    """Set the language of this browser."""
    answer = RedirectResponse(_page_before(request), 303)
    if name in LANGUAGES:
        secure = _secure(request)
        give_cookie(answer, LANGUAGE_COOKIE, name, secure=secure, seconds=_LANGUAGE_COOKIE_S)
    return answer


def _start_session(request: Request, opened: tuple[UiSession, str]) -> Response:
    """Start a new session, and end the previous one."""
    if request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
        # The cookie is not sent in a navigation that another site began, so this page begins
        # another.
        answer = page(request, "login_done.html", home=HOME_PATH)
    else:
        answer = RedirectResponse(HOME_PATH, 303)
    if request.state.session is not None:
        app_state(request).access.end_session(request.state.session)
    give_cookie(answer, request.app.state.cookie, opened[1], secure=_secure(request))
    return answer


@router.get("/session")
def session() -> Response:
    """Tell a page whether it is signed in; without a session the middleware answers 401."""
    return Response(status_code=204)


def _page_before(request: Request) -> str:
    """The path of our page that sent a form."""
    try:
        parts = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return HOME_PATH
    ours = parts.netloc.lower() == request.headers.get("host", "").lower()
    if not ours or not parts.path.startswith("/") or parts.path.startswith(("//", "/\\")):
        return HOME_PATH
    if parts.path in OPEN_PATHS:  # its query was for one use
        return LOGGED_OUT_PATH if f"{parts.path}?{parts.query}" == LOGGED_OUT_PATH else LOGIN_PATH
    # The response to a POST may be at an address without a GET route.
    asked: Scope = {"type": "http", "method": "GET", "root_path": "", "headers": []}
    asked["path"] = parts.path
    found = {route.matches(asked)[0] for route in request.app.routes}
    if Match.PARTIAL in found and Match.FULL not in found:
        return HOME_PATH
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _login_page(request: Request, words: str, status: int, *, out: bool = False) -> Response:
    access = app_state(request).access
    way = "password" if access.by_password else "link"
    # The cookie is not sent when another site links here.
    from_us = request.headers.get("sec-fetch-site", "") in {"same-origin", "none"}
    known = request.state.session is not None or not (out or from_us)
    return page(request, "login.html", status=status, words=words, way=way, out=out, known=known)
