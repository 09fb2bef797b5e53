"""The Health page: problems, scan and use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from satchel.ui.view import go_to, house_of, page, part, wants_part
from satchel.ui.views.health import SECTIONS

if TYPE_CHECKING:
    from satchel.ui.views.health import Look

router = APIRouter()


@router.get("/health")
def health(request: Request) -> Response:
    """All sections; each loads itself, since some take seconds."""
    return _page(request, SECTIONS)


@router.get("/health/{key}")
def section(request: Request, key: str) -> Response:
    """One section: a part of the page, or a page for those without script."""
    look = house_of(request).health().look(_known(key))
    if not wants_part(request):
        return _page(request, (key,), look)
    return part(request, "health/body.html", look=look, found=look.found, job=look.job)


@router.post("/health/{key}")
def begin(request: Request, key: str) -> Response:
    """Begin the work of a section."""
    house_of(request).health().start(_known(key))
    return section(request, key) if wants_part(request) else go_to(request, f"/health/{key}")


def _page(request: Request, sections: tuple[str, ...], look: Look | None = None) -> Response:
    values: dict[str, Any] = {"titles": house_of(request).health().titles(), "sections": sections}
    if look is not None:
        values |= {"found": look.found, "job": look.job}
    return page(request, "health/page.html", look=look, **values)


def _known(key: str) -> str:
    if key not in SECTIONS:
        raise HTTPException(404)
    return key
