"""Error handlers of all routes: an error becomes a page or a part of one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from satchel._language import listed, say
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
from satchel.ui.view import page, part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

_CHOICE = re.compile(r"'([^']*)'")
_MOST_CHOICES = 8
_NO_INTEGER = frozenset(("int_parsing", "int_type", "int_from_float", "int_parsing_size"))


def invalid(error: Mapping[str, Any]) -> str:
    """Return one validation error of pydantic as a sentence."""
    place = tuple(str(one) for one in error.get("loc", ()))
    path = ".".join(place[1:]) or "body"
    name = label_of(*place[:2])
    field = f"“{name}”" if name else f"`{path}`"
    return _sentence(error, field)


def unreadable(words: str) -> str:
    """What is wrong with a form that the framework could not take apart, by what it said."""
    if words.startswith("Too many files"):
        return say("The form has too many files")
    if words.startswith("Too many"):
        return say("The form has too many fields")
    if "exceeded maximum size" in words:
        return say("A field of the form is too long")
    return say("What was sent cannot be read")


def _sentence(error: Mapping[str, Any], field: str) -> str:
    kind = str(error.get("type", ""))
    limits: Mapping[str, Any] = error.get("ctx") or {}
    told = _beyond(kind, limits, field) or _other(kind, limits, field)
    return told or say("{field} is not what belongs there", field=field)


def _beyond(kind: str, limits: Mapping[str, Any], field: str) -> str:
    """A limit that was not kept."""
    if kind == "string_too_long":
        most = limits.get("max_length", 0)
        return say("{field} has more than {most} characters", field=field, most=most)
    if kind == "greater_than_equal":
        return say("{field} must be at least {least}", field=field, least=limits.get("ge", 0))
    if kind == "less_than_equal":
        return say("{field} must be at most {most}", field=field, most=limits.get("le", 0))
    return ""


def _other(kind: str, limits: Mapping[str, Any], field: str) -> str:
    """Something that is not there, or is something else."""
    if kind in {"missing", "string_too_short"}:
        return say("{field} is missing", field=field)
    if kind in _NO_INTEGER:
        return say("{field} is not a whole number", field=field)
    choices = _CHOICE.findall(str(limits.get("expected", "")))
    if kind in {"literal_error", "enum"} and 0 < len(choices) <= _MOST_CHOICES:
        names = listed(f"`{one}`" for one in choices)
        return say("{field} is none of {names}", field=field, names=names)
    return ""


def label_of(part: str = "", name: str = "") -> str:
    """What a page calls a field that people fill in; nothing for those that pages fill in."""
    if part == "query":
        return {
            "budget": say("Budget"),
            "goal": say("A request"),
            "q": say("Search the skills"),
            "unit": say("Counted in"),
        }.get(name, "")
    if part != "body":
        return ""
    return {
        "accept_risk": say("Why it may be installed all the same"),
        "description": say("Description"),
        "name": say("Name"),
        "note": say("Note"),
        "own": say("Id"),
        "password": say("Password"),
        "path": say("Folder in it"),
        "ref": say("Branch, tag or commit"),
        "scope": say("Where"),
        "source": say("Address"),
    }.get(name, "")


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
