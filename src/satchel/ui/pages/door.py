"""The door: a link, a password or an issuer lets somebody in; their language; the way out."""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from satchel._language import LANGUAGES, say
from satchel.errors import SatchelError
from satchel.ui.access import IDLE
from satchel.ui.gate import LANGUAGE
from satchel.ui.view import house_of, page

if TYPE_CHECKING:
    from satchel.ui.access import Session

router = APIRouter(include_in_schema=False)
HOME = "/skills"
BACK = "/enter/back"
"""Where an issuer sends people back to: it has to know this address."""
_YEAR = 365 * 24 * 3_600


@router.get("/")
def home() -> Response:
    """The first page is the list of skills."""
    return RedirectResponse(HOME, 303)


@router.get("/enter")
def enter(request: Request, token: Annotated[str, Query(max_length=256)] = "") -> Response:
    """By a link; without one, the way to get in is shown."""
    access = house_of(request).access
    if token and access.by_link:
        opened = access.enter_by_link(token)
        if opened is not None:
            return let_in(request, opened)
        words = say("This link was used, or is too old. The terminal has the newest")
        return _shut(request, words, 403)
    if request.state.session is not None:
        return RedirectResponse(HOME, 303)
    return _shut(request, "", 401 if access.by_link else 200)


@router.post("/enter")
def enter_by_password(
    request: Request, password: Annotated[str, Form(max_length=1024)]
) -> Response:
    """By the password."""
    access, address = house_of(request).access, address_of(request)
    opened = access.enter_by_password(password, address)
    if opened is not None:
        return let_in(request, opened)
    wait = max(1, round(access.closed_for(address)))
    words = say("That is not the password. Try again in {count} s", count=wait)
    return _shut(request, words, 403)


@router.get("/enter/go")
async def enter_by_issuer(request: Request) -> Response:
    """To the issuer, which asks who somebody is and sends them back."""
    issued = house_of(request).access.issued
    if issued is None:
        return RedirectResponse("/enter", 303)
    try:
        begun = await issued.begin(f"{request.url.scheme}://{request.headers['host']}{BACK}")
    except SatchelError as exc:
        return _shut(request, exc.message, 502)
    answer = RedirectResponse(begun.address, 303)
    # Not `strict`: the issuer's page leads back to us, and this has to come along.
    answer.set_cookie(
        _waiting(request), begun.state, max_age=600, path="/", httponly=True, samesite="lax",
        secure=_secure(request),
    )  # fmt: skip
    return answer


@router.get("/enter/back")
async def back_from_issuer(
    request: Request,
    state: Annotated[str, Query(max_length=256)] = "",
    code: Annotated[str, Query(max_length=4096)] = "",
) -> Response:
    """From the issuer: who is it? Only the browser that went there may come back."""
    access = house_of(request).access
    mine = request.cookies.get(_waiting(request), "")
    if access.issued is None or not state or not compare_digest(state.encode(), mine.encode()):
        return _shut(request, say("This did not begin here. Try it again"), 403)
    try:
        name = await access.issued.finish(state, code)
    except SatchelError as exc:
        return _shut(request, exc.message, 403)
    answer = let_in(request, access.open(name))
    answer.delete_cookie(_waiting(request), path="/", httponly=True, secure=_secure(request))
    return answer


@router.post("/leave")
def leave(request: Request) -> Response:
    """End this session."""
    house_of(request).access.leave(request.state.session)
    answer = RedirectResponse("/enter", 303)
    answer.delete_cookie(
        request.app.state.cookie, path="/", httponly=True, samesite="strict",
        secure=_secure(request),
    )  # fmt: skip
    return answer


@router.post("/language")
def choose_language(request: Request, name: Annotated[str, Form(max_length=8)]) -> Response:
    """Another language, for this browser."""
    answer = RedirectResponse(_page_before(request), 303)
    if name in LANGUAGES:
        answer.set_cookie(
            LANGUAGE, name, max_age=_YEAR, path="/", samesite="strict", httponly=True,
            secure=_secure(request),
        )  # fmt: skip
    return answer


def let_in(request: Request, opened: tuple[Session, str]) -> Response:
    """Somebody proved who they are: a new session, never one that was there before."""
    if request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
        # A browser keeps the cookie from what another site began; what this page begins is ours.
        answer = page(request, "door_opened.html", home=HOME)
    else:
        answer = RedirectResponse(HOME, 303)
    set_session(request, answer, opened)
    return answer


def set_session(request: Request, answer: Response, opened: tuple[Session, str]) -> None:
    """Give a browser its session. One that it had before ends."""
    if request.state.session is not None:
        house_of(request).access.leave(request.state.session)
    answer.set_cookie(
        request.app.state.cookie, opened[1], max_age=int(IDLE), path="/", httponly=True,
        samesite="strict", secure=_secure(request),
    )  # fmt: skip


def address_of(request: Request) -> str:
    """Where somebody is, as the connection says; behind a proxy all are at one place."""
    return request.client.host if request.client is not None else ""


def _page_before(request: Request) -> str:
    """The page of ours from which a form was sent, as a path: it leads nowhere else."""
    try:
        parts = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return HOME
    ours = parts.netloc.lower() == request.headers.get("host", "").lower()
    if not ours or not parts.path.startswith("/") or parts.path.startswith(("//", "/\\")):
        return HOME
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def _secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _waiting(request: Request) -> str:
    return f"{request.app.state.cookie}-begun"


def _shut(request: Request, words: str, status: int) -> Response:
    access = house_of(request).access
    way = "password" if access.by_password else "link" if access.by_link else "issuer"
    return page(request, "door.html", status=status, words=words, way=way)
