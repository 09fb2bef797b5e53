"""Error handlers of all routes: an error becomes a page or a part of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

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
from satchel.i18n import say
from satchel.ui.templating import page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response


_STATUS_CODES: tuple[tuple[type[SatchelError], int], ...] = (
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
"""The first match counts; 400 for other errors."""
_FRAMEWORK_MESSAGES = frozenset(
    ("Request Entity Too Large", "Content Too Large", "Unsupported Media Type", "Bad Request",
     "There was an error parsing the body", "There was an error parsing the body.")
)  # fmt: skip
"""Messages of the framework that are not shown."""


class PageError(NamedTuple):
    """An error as a page shows it."""

    status: int
    message: str
    hint: str


def _validation_message(error: Mapping[str, Any]) -> str:
    """Return one validation error of pydantic as a sentence."""
    key_path = tuple(str(key) for key in error.get("loc", ()))
    field = f"`{'.'.join(key_path[1:]) or 'body'}`"
    kind, limits = str(error.get("type", "")), cast("dict[str, Any]", error.get("ctx") or {})
    if kind in {"missing", "string_too_short"}:
        return say("{field} is missing", field=field)
    if kind == "string_too_long":
        return say(
            "{field} has more than {most} characters", field=field, most=limits["max_length"]
        )
    return say("{field} is not valid", field=field)


def catch_all(app: FastAPI) -> None:
    """Register handlers that turn every error into a page."""

    @app.exception_handler(SatchelError)
    def _handle_satchel_error(request: Request, exc: SatchelError) -> Response:
        return error_page(request, failure_of(exc))

    @app.exception_handler(HTTPException)
    def _handle_http_error(request: Request, exc: HTTPException) -> Response:
        failure = _http_error(exc.status_code)
        if isinstance(exc.__context__, MultiPartException):
            failure = failure._replace(message=say("The upload is too large"))
        elif exc.status_code in {413, 415, 400} and exc.detail not in _FRAMEWORK_MESSAGES:
            failure = failure._replace(message=exc.detail)
        response = error_page(request, failure)
        for name in ("allow", "connection", "retry-after"):
            if value := (exc.headers or {}).get(name) or (exc.headers or {}).get(name.title()):
                response.headers[name] = value
        return response

    @app.exception_handler(RequestValidationError)
    def _handle_invalid_input(request: Request, exc: RequestValidationError) -> Response:
        first_error: dict[str, Any] = dict(exc.errors()[0]) if exc.errors() else {}
        return error_page(
            request, PageError(422, _validation_message(first_error), say("Try again"))
        )

    @app.exception_handler(Exception)
    def _handle_bug(request: Request, exc: Exception) -> Response:
        message = say("Something went wrong here: {reason}", reason=type(exc).__name__)
        hint = say("The terminal of `satchel ui` says more")
        return error_page(request, PageError(500, message, hint))


def _http_error(status: int) -> PageError:
    """Return the message for an HTTP status. It repeats nothing of the request."""
    default = (say("Request failed (HTTP {status})", status=status), "")
    message, hint = {
        404: (say("Page not found"), say("Search for it in the list")),
        408: (say("The upload stalled"), say("Try again")),
        413: (say("The upload is too large"), ""),
    }.get(status, default)
    return PageError(status, message, hint)


def failure_of(exc: SatchelError) -> PageError:
    """Return status, message and hint for an error."""
    status = next((number for kind, number in _STATUS_CODES if isinstance(exc, kind)), 400)
    return PageError(status, exc.message, exc.hint)


def error_page(request: Request, failure: PageError) -> Response:
    """Render an error as a page, or as a part of one for htmx."""
    if request.headers.get("hx-request"):
        response = page(request, "failure_note.html", status=failure.status, failure=failure)
        # Shown in the message area, whatever the form wanted to replace.
        response.headers["HX-Retarget"] = "#notes"
        response.headers["HX-Reswap"] = "innerHTML"
        return response
    return page(request, "failure.html", status=failure.status, failure=failure)
