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
    set_cookie,
)
from satchel.ui.templating import app_state, page

if TYPE_CHECKING:
    from starlette.types import Scope

    from satchel.ui.auth import NewSession

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
    signed_out: Annotated[str, Query(alias="left", max_length=8)] = "",
) -> Response:
    """Sign in by a link; without one, show the login page."""
    access = app_state(request).access
    if token and access.by_link:
        new_session = access.enter_by_link(token)
        if new_session is not None:
            return _start_session(request, new_session)
        message = say("This link was used or has expired. The terminal shows a new one")
        return _login_page(request, message, 403)
    if request.state.session is not None:
        return RedirectResponse(HOME_PATH, 303)
    is_signed_out = bool(signed_out) or request.app.state.cookie in request.cookies
    status = 401 if access.by_link else 200
    return _login_page(request, "", status, is_signed_out=is_signed_out)


@router.post("/enter")
def enter_by_password(
    request: Request, password: Annotated[str, Form(max_length=1024)]
) -> Response:
    """Sign in by the password."""
    access = app_state(request).access
    new_session = access.enter_by_password(password)
    if new_session is not None:
        return _start_session(request, new_session)
    wait_s = max(1, round(access.lockout_remaining_s()))
    message = say("Wrong password, or too many tries. Try again in {count} s", count=wait_s)
    return _login_page(request, message, 403)


@router.post(LOGOUT_PATH)
def leave(request: Request) -> Response:
    """End this session."""
    app_state(request).access.end_session(request.state.session)
    response = RedirectResponse(LOGGED_OUT_PATH, 303)
    response.delete_cookie(
        request.app.state.cookie,
        path="/",
        httponly=True,
        samesite="strict",
        secure=_is_https(request),
    )
    return response


@router.post(LANGUAGE_PATH)
def choose_language(request: Request, name: Annotated[str, Form(max_length=8)]) -> Response:
    """Set the language of this browser."""
    response = RedirectResponse(_referring_path(request), 303)
    if name in LANGUAGES:
        secure = _is_https(request)
        set_cookie(response, LANGUAGE_COOKIE, name, secure=secure, seconds=_LANGUAGE_COOKIE_S)
    return response


def _start_session(request: Request, new_session: NewSession) -> Response:
    """Send the cookie of a new session, and end the previous one."""
    if request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
        # The cookie is not sent in a navigation that another site started, so this page starts
        # another one.
        response = page(request, "login_done.html", home=HOME_PATH)
    else:
        response = RedirectResponse(HOME_PATH, 303)
    if request.state.session is not None:
        app_state(request).access.end_session(request.state.session)
    cookie = request.app.state.cookie
    set_cookie(response, cookie, new_session.secret, secure=_is_https(request))
    return response


@router.get("/session")
def session() -> Response:
    """Answer a page that is signed in; without a session the middleware answers 401."""
    return Response(status_code=204)


def _referring_path(request: Request) -> str:
    """Return the path of our page that sent a form; the home page when it is none of ours."""
    try:
        referer = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return HOME_PATH
    path = referer.path
    if referer.netloc.lower() != request.headers.get("host", "").lower():
        return HOME_PATH
    if not path.startswith("/") or path.startswith(("//", "/\\")):
        return HOME_PATH
    full_path = f"{path}?{referer.query}" if referer.query else path
    if path in OPEN_PATHS:  # its query was for one use
        return LOGGED_OUT_PATH if full_path == LOGGED_OUT_PATH else LOGIN_PATH
    return full_path if _can_get(request, path) else HOME_PATH


def _can_get(request: Request, path: str) -> bool:
    """Whether a path may be loaded: the response to a POST may be at one without a GET route."""
    scope: Scope = {"type": "http", "method": "GET", "root_path": "", "headers": [], "path": path}
    matches = {route.matches(scope)[0] for route in request.app.routes}
    return Match.FULL in matches or Match.PARTIAL not in matches


def _is_https(request: Request) -> bool:
    return request.url.scheme == "https"


def _login_page(
    request: Request, message: str, status: int, *, is_signed_out: bool = False
) -> Response:
    # The cookie is not sent when another site links here, so the browser may have a session.
    is_own_request = request.headers.get("sec-fetch-site", "") in {"same-origin", "none"}
    may_have_session = not is_signed_out and not is_own_request
    return page(
        request,
        "login.html",
        status=status,
        message=message,
        method="password" if app_state(request).access.by_password else "link",
        is_signed_out=is_signed_out,
        has_session=request.state.session is not None or may_have_session,
    )
