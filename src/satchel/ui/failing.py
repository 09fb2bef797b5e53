"""Error handlers of all routes: an error becomes a page or a part of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from satchel._language import say
from satchel.errors import (
    AccessDenied,
    Conflict,
    InternalError,
    InvalidInput,
    MissingExtra,
    NotFound,
    Refused,
    SatchelError,
    ServerFailed,
    SkillBroken,
)
from satchel.ui.invalid import invalid, unreadable
from satchel.ui.view import page, part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

_STATUS: tuple[tuple[type[SatchelError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (InvalidInput, 422),
    (AccessDenied, 403),
    (Refused, 403),
    (SkillBroken, 422),
    (ServerFailed, 502),
    (MissingExtra, 501),
    (InternalError, 500),
)
"""The first that fits counts; 400 for the others."""


_NOT_OURS = frozenset(
    ("Request Entity Too Large", "Content Too Large", "Unsupported Media Type", "Bad Request",
     "There was an error parsing the body", "There was an error parsing the body.")
)  # fmt: skip
"""What the framework says by itself."""


class Failure(NamedTuple):
    """What went wrong, for a person."""

    status: int
    message: str
    hint: str


def catch_all(app: FastAPI) -> None:
    """Let `app` answer every error in our words."""

    @app.exception_handler(SatchelError)
    def _ours(request: Request, exc: SatchelError) -> Response:
        return answer(request, failure_of(exc))

    @app.exception_handler(HTTPException)
    def _http(request: Request, exc: HTTPException) -> Response:
        failure = _plain(exc.status_code)
        if isinstance(exc.__context__, MultiPartException):
            failure = failure._replace(message=unreadable(exc.detail))
        elif exc.status_code in {413, 415, 400} and exc.detail not in _NOT_OURS:
            failure = failure._replace(message=exc.detail)
        made = answer(request, failure)
        for name in ("allow", "connection", "retry-after"):
            if value := (exc.headers or {}).get(name) or (exc.headers or {}).get(name.title()):
                made.headers[name] = value
        return made

    @app.exception_handler(RequestValidationError)
    def _input(request: Request, exc: RequestValidationError) -> Response:
        first: dict[str, Any] = dict(exc.errors()[0]) if exc.errors() else {}
        return answer(request, Failure(422, invalid(first), say("Correct it")))

    @app.exception_handler(Exception)
    def _bug(request: Request, exc: Exception) -> Response:
        words = say("Something went wrong here: {reason}", reason=type(exc).__name__)
        hint = say("The terminal of `satchel ui` says more")
        return answer(request, Failure(500, words, hint))


def _plain(status: int) -> Failure:
    """What a status of the web says in our words. What was sent is not repeated."""
    if status == 404:
        hint = say("Go back to the list of skills")
        return Failure(404, say("There is no such page"), hint)
    if status == 405:
        return Failure(405, say("This cannot be done with this address"), "")
    if status == 408:
        return Failure(408, say("Nothing came for too long"), say("Send it again"))
    if status == 413:
        return Failure(413, say("This is too large"), say("Send less"))
    if status == 415:
        return Failure(415, say("This is not what is sent to this address"), "")
    if status == 429:
        words = say("Too many pages are open")
        return Failure(429, words, say("Close some of them"))
    if status == 400:
        return Failure(400, say("What was sent cannot be read"), "")
    return Failure(status, say("The server answers {status}", status=status), "")


def failure_of(exc: SatchelError) -> Failure:
    """What an error of ours says to a browser."""
    status = next((number for kind, number in _STATUS if isinstance(exc, kind)), 400)
    return Failure(status, exc.message, exc.hint)


def answer(request: Request, failure: Failure, typed: Sequence[tuple[str, str]] = ()) -> Response:
    """A failure as whoever asked wants it.

    Args:
        request: What failed.
        failure: Why.
        typed: Labels and texts of a form that would be lost: a page shows them.
    """
    if request.headers.get("hx-request"):
        made = part(request, "failure_note.html", status=failure.status, failure=failure)
        # Shown where messages are shown, whatever the form wanted to replace.
        made.headers["HX-Retarget"] = "#notes"
        made.headers["HX-Reswap"] = "innerHTML"
        return made
    return page(request, "failure.html", status=failure.status, failure=failure, typed=typed)
