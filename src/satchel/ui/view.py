"""Templates -> answers. Whatever a template prints is escaped; `say` speaks the reader's language.

    return page(request, "skills/page.html", rows=rows)    a whole page
    return part(request, "skills/rows.html", rows=rows)    a piece that htmx puts into one

Every template has: `say`, `listed`, `language`, `session`, `path`, `static(name)`, `csrf(address)`,
`extras_missing`, and the macros of `parts/*.html` by import.
"""

from __future__ import annotations

import os
from functools import cache, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from starlette.responses import HTMLResponse, Response

from satchel._language import language, listed, say
from satchel.errors import InternalError
from satchel.ui.gate import CSRF_FIELD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Environment
    from starlette.requests import Request

    from satchel.ui.access import Session
    from satchel.ui.house import House

HERE = os.path.dirname(os.path.abspath(__file__))
STATIC = os.path.join(HERE, "static")
_ADDRESSES = 1_024
"""Parts of addresses that are kept as they are written in one."""


def house_of(request: Request) -> House:
    """What the pages of this server stand on."""
    return request.app.state.house


def wants_part(request: Request) -> bool:
    """Whether htmx asks, and not a reader who loads the page or goes back to it."""
    headers = request.headers
    return "hx-request" in headers and "hx-history-restore-request" not in headers


def page(request: Request, template: str, /, *, status: int = 200, **values: Any) -> Response:
    """A whole page."""
    return _answer(request, template, status, values)


def part(request: Request, template: str, /, *, status: int = 200, **values: Any) -> Response:
    """A piece of a page, as htmx wants it."""
    return _answer(request, template, status, values)


def go_to(request: Request, address: str) -> Response:
    """Send the reader to another page after something was done."""
    if "hx-request" in request.headers:
        return Response(status_code=200, headers={"HX-Redirect": address})
    return Response(status_code=303, headers={"location": address})


def address(path: str, /, **query: Any) -> str:
    """A path with a query; what is empty is left out."""
    kept = [
        f"{name}={_quoted(str(value))}"
        for name, value in query.items()
        if value not in ("", None, False)
    ]
    return f"{path}?{'&'.join(kept)}" if kept else path


@lru_cache(_ADDRESSES)
def _quoted(text: str) -> str:
    """Kept, since each row of a list says the address of its skill twice."""
    return quote_plus(text)


def _answer(request: Request, name: str, status: int, values: Mapping[str, Any]) -> Response:
    session: Session | None = getattr(request.state, "session", None)

    def csrf(path: str) -> str:
        """The address of a form that changes something, with the session's mark."""
        if session is None:
            return path
        mark = "&" if "?" in path else "?"
        return f"{path}{mark}{CSRF_FIELD}={quote(session.csrf)}"

    key = request.query_params.get("told", "") if session is not None else ""
    told = house_of(request).notes.look(key) if key else None
    found = templates().get_template(name)
    text = found.render(
        language=language(),
        session=session,
        csrf=csrf,
        path=request.url.path,
        query=request.query_params,
        by_htmx=wants_part(request),
        told=told,
        live=getattr(request.state, "live", ""),
        **values,
    )
    return HTMLResponse(text, status)


@cache
def templates() -> Environment:
    """The templates, read once."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(os.path.join(HERE, "templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals.update(  # pyright: ignore[reportUnknownMemberType]
        say=say, listed=listed, static=static, address=address, has_static=has_static
    )
    return made


@lru_cache(maxsize=64)
def static(name: str) -> str:
    """The address of a file of ours; it changes with the file, so browsers may keep it.

    Raises:
        InternalError: there is none.
    """
    try:
        with open(os.path.join(STATIC, name), "rb") as stream:
            digest = blake2b(stream.read(), digest_size=6).hexdigest()
    except OSError as exc:
        raise InternalError(f"There is no static file `{name}`") from exc
    return f"/static/{name}?v={digest}"


@lru_cache(maxsize=64)
def has_static(name: str) -> bool:
    """Whether a file of ours is here: a wheel that was built without htmx has none."""
    return os.path.isfile(os.path.join(STATIC, name))
