"""The list of goals."""

from __future__ import annotations

from math import isfinite

from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.errors import SatchelError
from satchel.ui.failing import failure_of
from satchel.ui.view import house_of, page, part, wants_part
from satchel.ui.views.goals import KINDS, PAGE, rows_of

router = APIRouter()
_LATEST = 4e9
"""No goal was begun after this moment."""


@router.get("/goals")
async def goals(request: Request, state: str = "", before: str = "", last: str = "") -> Response:
    """The latest first; for htmx, and for a page that refreshes itself, the rows alone."""
    keeper = house_of(request).goals
    kind = state if state in KINDS else ""
    since = _moment(before)
    try:
        found = await keeper.ask(
            # One more says that there are more; another may be the last of the page before.
            lambda engine: engine.list(states=KINDS[kind], limit=PAGE + 2, before=since)
        )
    except SatchelError as exc:
        failure = failure_of(exc)
        show = part if wants_part(request) else page
        values = {"failure": failure, "engine": keeper.name, "here": "/goals"}
        return show(request, "goals/closed.html", status=503, **values)
    rows = rows_of(found, kind, last)
    first = since is None
    if wants_part(request):
        return part(request, "goals/rows.html", list=rows, is_first=first)
    return page(request, "goals/page.html", list=rows, is_first=first, engine=keeper.name)


def _moment(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if isfinite(found) and 0 < found < _LATEST else None
