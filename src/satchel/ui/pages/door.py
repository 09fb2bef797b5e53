"""Sign-in by a link or a password, the choice of language, and sign-out."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Query, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Match

from satchel._language import LANGUAGES, say
from satchel.ui.bodies import EDITED, UPLOADS
from satchel.ui.failing import Failure, label_of
from satchel.ui.failing import answer as answer_failure
from satchel.ui.gate import DOOR, DOORS, LANGUAGE, OUT, TONGUE, give_cookie
from satchel.ui.view import house_of, page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Scope

    from satchel.ui.access import Session

router = APIRouter()
HOME = "/skills"
LEFT = f"{DOOR}?left=1"
"""Where somebody who signed out is told so."""
_YEAR = 365 * 24 * 3_600
_NEVER_SHOWN = frozenset(("password", "scope"))
_READING = threading.BoundedSemaphore(4)


class Typed(NamedTuple):
    """What somebody wrote into one field of a form."""

    label: str
    """As its page calls it; "" where only that page knows."""
    text: str


@router.get("/")
def home() -> Response:
    """The first page is the list of skills."""
    return RedirectResponse(HOME, 303)


@router.get("/enter")
def enter(
    request: Request,
    token: Annotated[str, Query(max_length=256)] = "",
    left: Annotated[str, Query(max_length=8)] = "",
) -> Response:
    """By a link; without one, the way to get in is shown."""
    access = house_of(request).access
    if token and access.by_link:
        opened = access.enter_by_link(token)
        if opened is not None:
            return _let_in(request, opened)
        words = say("This link was used, or is too old. The terminal has the newest")
        return _shut(request, words, 403)
    if request.state.session is not None:
        return RedirectResponse(HOME, 303)
    out = bool(left) or request.app.state.cookie in request.cookies
    return _shut(request, "", 401 if access.by_link else 200, out=out)


@router.post("/enter")
def enter_by_password(
    request: Request, password: Annotated[str, Form(max_length=1024)]
) -> Response:
    """By the password."""
    access = house_of(request).access
    opened = access.enter_by_password(password)
    if opened is not None:
        return _let_in(request, opened)
    wait = max(1, round(access.closed_for()))
    words = say("That is not the password, or it came too soon. Try again in {count} s", count=wait)
    return _shut(request, words, 403)


@router.post(OUT)
def leave(request: Request) -> Response:
    """End this session."""
    house_of(request).access.leave(request.state.session)
    answer = RedirectResponse(LEFT, 303)
    answer.delete_cookie(
        request.app.state.cookie, path="/", httponly=True, samesite="strict",
        secure=_secure(request),
    )  # fmt: skip
    return answer


@router.post(TONGUE)
def choose_language(request: Request, name: Annotated[str, Form(max_length=8)]) -> Response:
    """Another language, for this browser."""
    answer = RedirectResponse(_page_before(request), 303)
    if name in LANGUAGES:
        answer.set_cookie(
            LANGUAGE, name, max_age=_YEAR, path="/", samesite="strict", httponly=True,
            secure=_secure(request),
        )  # fmt: skip
    return answer


def _let_in(request: Request, opened: tuple[Session, str]) -> Response:
    """Somebody proved who they are: a new session, never one that was there before."""
    if request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
        # A browser keeps the cookie from what another site began; what this page begins is ours.
        answer = page(request, "door_opened.html", home=HOME)
    else:
        answer = RedirectResponse(HOME, 303)
    if request.state.session is not None:
        house_of(request).access.leave(request.state.session)
    give_cookie(answer, request.app.state.cookie, opened[1], secure=_secure(request))
    return answer


@router.get("/session")
def session(request: Request) -> Response:
    """The session's mark, for a page that was loaded in an earlier session."""
    return JSONResponse({"csrf": request.state.session.csrf})


async def too_late(request: Request) -> Response:
    """Something was sent from a page whose session ended. It is not taken, and not lost either."""
    if request.state.session is not None:
        return await _of_another(request)
    words = say("Nobody is signed in any more, and nothing was changed")
    if "hx-request" in request.headers:
        hint = say("Sign in with another tab, then try it again here: what you typed is still here")
        return answer_failure(request, Failure(401, words, hint))
    return _shut(request, words, 401, await _typed(request))


async def _of_another(request: Request) -> Response:
    """Who came in again since a page was loaded: what it sends has the mark of the time before."""
    words = say("This page was of another session, and nothing was changed")
    if "hx-request" in request.headers:
        return answer_failure(request, Failure(403, words, say("Load the page again")))
    typed = await _typed(request)
    hint = say("Open the page again. What you typed is below") if typed else ""
    failure = Failure(403, words, hint or say("Open the page again"))
    return answer_failure(request, failure, typed)


async def _typed(request: Request) -> tuple[Typed, ...]:
    """What somebody wrote into a form: the browser that goes back loads the page without it.

    Anybody can send this, so only few are read at a time.
    """
    if request.url.path in UPLOADS or not _READING.acquire(blocking=False):
        return ()
    try:
        async with request.form(max_files=0, max_fields=100, max_part_size=EDITED) as form:
            found = [(name, one) for name, one in form.multi_items() if isinstance(one, str)]
    except (HTTPException, ClientDisconnect):
        return ()
    finally:
        _READING.release()
    named = (
        Typed(label_of("body", name), text) for name, text in found if name not in _NEVER_SHOWN
    )
    # What pages fill in themselves is one word: a digest, a number, a name.
    return tuple(one for one in named if len(one.text.split(None, 1)) > (0 if one.label else 1))


def _page_before(request: Request) -> str:
    """The page of ours from which a form was sent, as a path: it leads nowhere else."""
    try:
        parts = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return HOME
    ours = parts.netloc.lower() == request.headers.get("host", "").lower()
    if not ours or not parts.path.startswith("/") or parts.path.startswith(("//", "/\\")):
        return HOME
    if parts.path in DOORS:  # what else stands there was for one time
        return LEFT if f"{parts.path}?{parts.query}" == LEFT else DOOR
    # What answered a form may be at an address that only forms are sent to.
    asked: Scope = {
        "type": "http",
        "method": "GET",
        "path": parts.path,
        "root_path": "",
        "headers": [],
    }
    found = {route.matches(asked)[0] for route in request.app.routes}
    if Match.PARTIAL in found and Match.FULL not in found:
        return HOME
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _shut(
    request: Request, words: str, status: int, typed: Sequence[Typed] = (), *, out: bool = False
) -> Response:
    access = house_of(request).access
    way = "password" if access.by_password else "link"
    # Their cookie does not come along when another site leads somebody here, or from its own page.
    from_us = request.headers.get("sec-fetch-site", "") in {"same-origin", "none"}
    inside = request.state.session is not None
    known = inside or not (out or typed or from_us)
    return page(
        request, "door.html", status=status, words=words, way=way, typed=typed, out=out, known=known
    )
