"""Renders templates as responses. All output is escaped; `say` translates.

    return page(request, "skills/page.html", rows=rows)    a whole page
    return page(request, "skills/list.html", rows=rows)    a fragment for htmx

Every template has `say`, `join_names`, `address`, `static(name)`, `split_sentence`, `language`,
`session`, `path`, `project`, the filter `printable`, and the macros of `parts/*.html` by import.
"""

from __future__ import annotations

import os
from functools import cache, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from starlette.responses import HTMLResponse, Response

from satchel.errors import InternalError
from satchel.i18n import join_names, language, say
from satchel.presentation.skill_page import split_sentence
from satchel.presentation.skills import label
from satchel.tools.framing import printable

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import Request

    from satchel.ui.auth import UiSession
    from satchel.ui.flash import Flash
    from satchel.ui.state import AppState

FOLDER = os.path.dirname(os.path.abspath(__file__))
STATIC_FOLDER = os.path.join(FOLDER, "static")
_FLASH_PARAMETER = "told"
"""The query parameter with the key of a flash message."""
_MAX_CACHED_URLS = 1_024


def app_state(request: Request) -> AppState:
    """Return the shared state of this server."""
    return request.app.state.shared


def wants_part(request: Request) -> bool:
    """Whether htmx requests a fragment, rather than a page from its history."""
    headers = request.headers
    return "hx-request" in headers and "hx-history-restore-request" not in headers


def go_to(request: Request, address: str) -> Response:
    """Redirect after a change."""
    if "hx-request" in request.headers:
        return Response(status_code=200, headers={"HX-Redirect": address})
    return Response(status_code=303, headers={"location": address})


def address(path: str, /, **query: Any) -> str:
    """Return a path with a query; empty values are left out."""
    parameters = [
        f"{name}={_quote(str(value))}"
        for name, value in query.items()
        if value not in ("", None, False)
    ]
    return f"{path}?{'&'.join(parameters)}" if parameters else path


def flash_address(request: Request, flash: Flash, path: str, /, **query: Any) -> str:
    """Return a path with a query, on whose page a message is shown."""
    query[_FLASH_PARAMETER] = app_state(request).flash.add(flash)
    return address(path, **query)


@lru_cache(_MAX_CACHED_URLS)
def _quote(text: str) -> str:
    """Quote a value; cached, since each row of a list uses the URL of its skill twice."""
    return quote_plus(text)


def page(request: Request, template: str, /, *, status: int = 200, **values: Any) -> Response:
    """Render a page, or a fragment for htmx."""
    session: UiSession | None = getattr(request.state, "session", None)

    flash_key = request.query_params.get(_FLASH_PARAMETER, "") if session is not None else ""
    html = (
        templates()
        .get_template(template)
        .render(
            language=language(),
            session=session,
            project=_project(request) if session is not None else "",
            path=request.url.path,
            query=request.query_params,
            by_htmx=wants_part(request),
            flash=app_state(request).flash.get(flash_key) if flash_key else None,
            live=getattr(request.state, "live", ""),
            **values,
        )
    )
    return HTMLResponse(html, status)


def _project(request: Request) -> str:
    folder = app_state(request).satchel.settings.project
    return printable(os.path.basename(os.path.abspath(folder)))


@cache
def templates() -> Environment:
    """Return the template environment."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(os.path.join(FOLDER, "templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(  # pyright: ignore[reportUnknownMemberType]
        say=say,
        join_names=join_names,
        static=static,
        address=address,
        has_static=has_static,
        split_sentence=split_sentence,
    )
    environment.filters.update(printable=printable, label=label)  # pyright: ignore[reportUnknownMemberType]
    return environment


@lru_cache(maxsize=64)
def static(name: str) -> str:
    """Return the URL of a static file with its digest, so that browsers may cache it.

    Raises:
        InternalError: there is no such file.
    """
    try:
        with open(os.path.join(STATIC_FOLDER, name), "rb") as stream:
            digest = blake2b(stream.read(), digest_size=6).hexdigest()
    except OSError as exc:
        raise InternalError(f"There is no static file `{name}`") from exc
    return f"/static/{name}?v={digest}"


@lru_cache(maxsize=64)
def has_static(name: str) -> bool:
    """Whether a static file exists: a wheel built without htmx lacks it."""
    return os.path.isfile(os.path.join(STATIC_FOLDER, name))
